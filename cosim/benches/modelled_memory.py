"""System memory with rows and refreshes behind the accelerator in a bench: it answers when the rules of `isa/timing`
say, as that of the RTL engine does."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from cocotbext.axi import AxiResp

from dovetail.cosim.benches.axi import Responder, store_beat, within
from dovetail.isa.config.memory import DramTiming, SdramTiming
from dovetail.isa.timing.dma import ADDRESS
from dovetail.isa.timing.memories.dram import Dram
from dovetail.isa.timing.memories.models import model_of
from dovetail.isa.timing.memories.sdram import Sdram
from dovetail.isa.timing.sequencer import CHECK, FIRST_ACTION

FIRST_ADDRESS = FIRST_ACTION + 1 + CHECK + ADDRESS
"""The cycle of a run in which its first address, that of its first page, is on the bus."""


@dataclass
class _Burst:
    accepted: int
    address: int
    beats: int
    taken: int = 0
    first: int = 0  # the cycle in which its first beat was offered
    worst: AxiResp = AxiResp.OKAY


class ModelledMemory:
    """System memory behind an accelerator's port, which has one run after the other; between them nothing is in flight,
    and :meth:`restart` is called.

    What a manager shows is there in the middle of a cycle, at the clock's falling edge; then memory decides what it
    shows in the same cycle.
    """

    def __init__(
        self,
        dut: Any,
        prefix: str,
        contents: bytearray,
        timing: SdramTiming | DramTiming,
        *,
        respond: Responder | None = None,
    ) -> None:
        self.dut, self.contents = dut, contents
        self._prefix, self._respond = prefix, respond or within(contents)
        self._timing = timing
        self._size = len(self._port("rdata")) // 8
        self.restart()
        for name in ("arready", "awready", "wready"):
            self._port(name).value = int(name != "wready")
        cocotb.start_soon(self._run())

    def restart(self) -> None:
        """The next address is the first one of a run."""
        self._rule = model_of(self._timing, self._size)
        self._cycle: int | None = None  # of the run
        self._beats: deque[tuple[int, bool]] = deque()  # of reads: when, and whether the last one
        self._answers: deque[int] = deque()  # of writes
        self._reads: deque[_Burst] = deque()
        self._writes: deque[_Burst] = deque()  # whose beats have not all come
        self._answered: deque[AxiResp] = deque()

    def _port(self, name: str) -> Any:
        return getattr(self.dut, f"{self._prefix}_{name}")

    def _high(self, name: str) -> bool:
        return bool(self._port(name).value)

    def _burst(self, channel: str, cycle: int) -> _Burst:
        return _Burst(cycle, int(self._port(f"{channel}addr").value), int(self._port(f"{channel}len").value) + 1)

    async def _run(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            if self._cycle is None:
                if not self._high("arvalid"):
                    continue
                self._cycle = FIRST_ADDRESS
            self._step(self._cycle)
            self._cycle += 1

    def _step(self, cycle: int) -> None:
        """A cycle."""
        offered = self._high("wvalid")
        if offered and self._writes and not self._writes[0].taken:
            self._offer(self._writes[0], cycle)
        taken = self._decide(cycle)
        takes = taken if isinstance(self._rule, Sdram) else True
        self._port("wready").value = int(takes)
        self._read(cycle)
        answers = bool(self._answers) and self._answers[0] == cycle
        self._port("bvalid").value = int(answers)
        if answers:
            self._answers.popleft()
            self._port("bresp").value = int(self._answered.popleft())
        if offered and takes:
            self._write(cycle)
        if self._high("arvalid"):
            burst = self._burst("ar", cycle)
            self._reads.append(burst)
            self._rule.take(cycle, burst.address, burst.beats, write=False)
        if self._high("awvalid"):
            self._writes.append(self._burst("aw", cycle))

    def _offer(self, burst: _Burst, cycle: int) -> None:
        """A write's first beat is on the bus; the SDRAM's rule wants to know that before the beat is taken."""
        if burst.first:
            return
        burst.first = cycle
        if isinstance(self._rule, Sdram):
            self._rule.take(burst.accepted, burst.address, burst.beats, write=True, data=cycle)

    def _decide(self, cycle: int) -> bool:
        """What is decided up to a cycle; whether a write's beat is taken in it."""
        taken = False
        while self._rule.next is not None and self._rule.next <= cycle:
            for beat in self._rule.serve():
                if not beat.write:
                    self._beats.append((beat.cycle, beat.last))
                else:
                    taken = True
                    if beat.last:
                        self._answers.append(beat.cycle)
        return taken

    def _read(self, cycle: int) -> None:
        gives = bool(self._beats) and self._beats[0][0] == cycle
        self._port("rvalid").value = int(gives)
        if not gives:
            return
        _, last = self._beats.popleft()
        burst = self._reads[0]
        at = burst.address + burst.taken * self._size
        burst.taken += 1
        if last:
            self._reads.popleft()
        answer = self._respond(at, self._size)
        good = answer == AxiResp.OKAY
        self._port("rdata").value = int.from_bytes(self.contents[at : at + self._size], "little") if good else 0
        self._port("rresp").value = int(answer)
        self._port("rlast").value = int(last)

    def _write(self, cycle: int) -> None:
        assert self._writes, "write data came before its address"
        burst = self._writes[0]
        at = burst.address + burst.taken * self._size
        answer = store_beat(
            self.contents, self._respond, at, int(self._port("wdata").value), int(self._port("wstrb").value), self._size
        )
        burst.worst = answer if answer != AxiResp.OKAY else burst.worst
        burst.taken += 1
        last = burst.taken == burst.beats
        assert self._high("wlast") == last, "WLAST must be with the last beat of a burst"
        if last:
            self._writes.popleft()
            self._answered.append(burst.worst)
            if isinstance(self._rule, Dram):
                first = cycle - burst.beats + 1
                self._rule.take(burst.accepted, burst.address, burst.beats, write=True, data=first)
