"""When the instructions of several accelerators start and end that compete for one memory: slow, and exact.

Each accelerator alone is played with assumed durations of its transfers; then all their bursts go through interconnect
and memory together, which gives new durations; and so on, until nothing changes. What happens in a cycle follows from
earlier cycles, so every round makes at least one more transfer final, and there is one end.

For programs without faults, and a memory of `MemoryTiming`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_BYTES, QUEUE_DEPTH, Op, Unit
from dovetail.isa.timing.core import play
from dovetail.isa.timing.dma import ADDRESS, PLACE, READ_END, WRITE_END, WRITE_FIRST, Shape, bursts
from dovetail.isa.timing.interconnect import DATA, Addresses, WriteData
from dovetail.isa.timing.memory import Direction
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.sequencer import CHECK, END_TO_DONE, as_words
from dovetail.isa.timing.timeline import FETCH

LONG_AGO = -(1 << 40)


@dataclass
class Run:
    """A program of an accelerator: its words, and addresses in system memory. ``origin``: its cycle 0, in cycles of the
    system."""

    config: Config
    program: bytes
    address: int
    base: int
    origin: int


@dataclass
class Transfer:
    """Bursts of an operation or a fetch, in beats each; ``verified``: the cycle of the system from which on it works.
    ``end`` is found."""

    beats: list[int]
    verified: int = 0
    end: int = 0


@dataclass
class Timed:
    """A run: (start, end) of everything in program order; its cycles; the rounds that it took to find them."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    cycles: int = 0
    rounds: int = 0


class _Accelerator:
    """One accelerator, with durations that change from round to round."""

    def __init__(self, run: Run) -> None:
        self.run = run
        alone = time_program(run.config, run.program, address=run.address, base=run.base)
        assert alone.fault is None, "for programs without faults"
        words = as_words(run.program)
        self.words = words[: int(np.flatnonzero(words & np.uint64(0xFF) == Op.END)[0])]
        self.lasting = alone.end - alone.start
        self.pages = int(np.count_nonzero(alone.op == FETCH))
        self.transfers: dict[int, Transfer] = {}
        self.reads: list[int] = []
        self.writes: list[int] = []
        for n, (unit, op) in enumerate(zip(alone.unit.tolist(), alone.op.tolist(), strict=True)):
            if op == FETCH:
                shape = Shape(run.address + PAGE_BYTES * int(alone.pc[n]), 1, 1, 0, 0, PAGE_BYTES)
            elif unit in (Unit.LOAD, Unit.STORE):
                shape = Shape.of(View(Unit(unit), alone.registers[n]), run.base)
            else:
                continue
            rows = [bursts(start, shape.length, run.config.bus_bytes) for start in shape.starts()]
            self.transfers[n] = Transfer([beats for row in rows for *_, beats in row])
            (self.writes if unit == Unit.STORE else self.reads).append(n)

    def play(self) -> None:
        """When everything starts, if transfers last as long as assumed."""
        self.played = play(self.words, self.pages, self.lasting, QUEUE_DEPTH)
        for n, transfer in self.transfers.items():
            transfer.verified = self.run.origin + int(self.played.starts[n]) + CHECK

    def learn(self) -> bool:
        """Take over how long transfers really lasted; whether that is news."""
        lasting = self.lasting.copy()
        for n, transfer in self.transfers.items():
            lasting[n] = max(transfer.end - self.run.origin - int(self.played.starts[n]), CHECK + 1)
        news = not np.array_equal(lasting, self.lasting)
        self.lasting = lasting
        return news

    def timed(self, rounds: int) -> Timed:
        ends = self.played.starts + self.lasting
        last = max(self.played.last + 1, int(ends.max(initial=0)), int(self.played.pops.max(initial=0)))
        spans = [*zip(self.played.starts.tolist(), ends.tolist(), strict=True)]
        return Timed(spans, last + END_TO_DONE, rounds)


def time_together(runs: Sequence[Run], memory: MemoryTiming) -> list[Timed]:
    """Each run; the places in the sequence are the numbers of the accelerators."""
    accelerators = [_Accelerator(run) for run in runs]
    outstanding = [run.config.outstanding for run in runs]
    rounds = 0
    while True:
        rounds += 1
        for accelerator in accelerators:
            accelerator.play()
        reads = [[a.transfers[n] for n in a.reads] for a in accelerators]
        writes = [[a.transfers[n] for n in a.writes] for a in accelerators]
        _serve(reads, outstanding, _Reads(memory), READ_END)
        _serve(writes, outstanding, _Writes(memory, len(runs)), WRITE_END)
        news = [accelerator.learn() for accelerator in accelerators]
        if not any(news):
            return [accelerator.timed(rounds) for accelerator in accelerators]


class _Reads:
    """Memory's side of read bursts."""

    def __init__(self, memory: MemoryTiming) -> None:
        self.memory = Direction.reads(memory)
        self.last = LONG_AGO

    def serve(self, manager: int, beats: int, accepted: int, taken: int, first: int | None) -> int:
        self.last = self.memory.last_beat(self.memory.first_beat(taken, self.last), beats)
        return self.last + DATA


class _Writes:
    """Memory's side of write bursts, and the managers' beats."""

    def __init__(self, memory: MemoryTiming, managers: int) -> None:
        self.memory = memory
        self.data = WriteData()
        self.last = LONG_AGO
        self.free = [LONG_AGO] * managers

    def serve(self, manager: int, beats: int, accepted: int, taken: int, first: int | None) -> int:
        presented = max(self.free[manager], accepted + 1)
        if first is not None:
            presented = max(presented, first + WRITE_FIRST)
        for _ in range(beats):
            presented = self.data.accept(presented, taken) + 1
            self.last = max(self.data.offered, self.last + self.memory.beat_cycles)
            self.data.taken(self.last)
        self.free[manager] = presented
        return self.last + self.memory.write_latency + DATA


def _serve(
    managers: Sequence[Sequence[Transfer]], outstanding: Sequence[int], memory: "_Reads | _Writes", more: int
) -> None:
    """Puts the bursts of a direction through interconnect and memory; ``more``: cycles from a transfer's last answer to
    its end."""
    addresses = Addresses(len(managers))
    flows = [_Flow(transfers, limit) for transfers, limit in zip(managers, outstanding, strict=True)]
    while True:
        known = [(flow.presents, k) for k, flow in enumerate(flows) if flow.presents is not None]
        grant = addresses.due()
        if known and (grant is None or min(known)[0] < grant.cycle):
            when, k = min(known)
            flows[k].accepted(addresses.present(k, when))
        elif grant is None:
            return
        else:
            addresses.grant(grant)
            addresses.taken(grant.offered)
            flow = flows[grant.manager]
            end = memory.serve(grant.manager, flow.beats, flow.at, grant.offered, flow.first)
            flow.ended(end, more)


class _Flow:
    """The bursts of a manager, one after the other. ``presents``: when it presents the next address; None while it
    waits for the grant of one, and at the end."""

    def __init__(self, transfers: Sequence[Transfer], outstanding: int) -> None:
        self.outstanding = outstanding
        self.bursts = self._all(transfers)
        self.transfer, self.beats, self.last = next(self.bursts, (None, 0, True))
        self.ends: list[int] = []  # of the transfer's bursts
        self.at = LONG_AGO
        self.presents = self._earliest()

    @staticmethod
    def _all(transfers: Sequence[Transfer]) -> Iterator[tuple[Transfer | None, int, bool]]:
        for transfer in transfers:
            for n, beats in enumerate(transfer.beats):
                yield transfer, beats, n == len(transfer.beats) - 1

    def _earliest(self) -> int | None:
        if self.transfer is None:
            return None
        place = self.ends[-self.outstanding] + PLACE if len(self.ends) >= self.outstanding else LONG_AGO
        return max(self.transfer.verified + ADDRESS, self.at + ADDRESS, place)

    def accepted(self, cycle: int) -> None:
        """The address is in the slice."""
        self.at, self.presents = cycle, None

    @property
    def first(self) -> int | None:
        """When the transfer was verified whose first burst this is."""
        return None if self.ends or self.transfer is None else self.transfer.verified

    def ended(self, end: int, more: int) -> None:
        """The burst is granted, and so the cycle of its answer is known."""
        assert self.transfer is not None
        self.ends.append(end)
        if self.last:
            self.transfer.end = self.ends[-1] + more
            self.ends = []
        self.transfer, self.beats, self.last = next(self.bursts, (None, 0, True))
        self.presents = self._earliest()
