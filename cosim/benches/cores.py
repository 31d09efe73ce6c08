"""The border of a unit's core: its control, the SRAM behind its ports, and a scoreboard backed by the model.

Works for the cores of all units and for what replaces them, as long as the ports are those of
``dovetail.hw.common.ports``: ``core__*``, SRAM ports by name, AXI4 channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge, Timer

from dovetail.hw.common.ports import GROUP
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View, check, claim
from dovetail.isa.instructions.table import PAGE_BYTES, REGISTERS, Cause, Op, Unit
from dovetail.isa.timing.memory import SRAM_READ, Broken, answers
from dovetail.isa.timing.operations import bus_error, duration, rules_of
from dovetail.isa.timing.sequencer import CHECK
from dovetail.sw.model.accelerator import UNITS
from dovetail.sw.model.base import Sram, SystemMemory

READ_PORTS = {Unit.LOAD: (), Unit.ARRAY: ("input", "weights"), Unit.VECTOR: ("input",), Unit.STORE: ("sram",)}
WRITE_PORTS = {Unit.LOAD: ("sram",), Unit.ARRAY: ("output",), Unit.VECTOR: ("output",), Unit.STORE: ()}
"""Names of the SRAM ports of each unit's core."""
WRITE_TO_READ = 2
"""Cycles after which a read must see a write."""
STALE = 0xA5
"""A byte on a read port when nothing was read."""
SETTLE = 1
"""Nanoseconds after an edge after which outputs have settled."""
LIMIT = 200_000
"""Cycles that an operation may take in a bench."""

Registers = dict[str, int]
"""Values of all registers of a unit, by name."""


class SramPorts:
    """The SRAM behind a core's ports: what is read SRAM_READ cycles later, what is written WRITE_TO_READ cycles later.

    ``contents`` is changed in place; it is complete :data:`WRITE_TO_READ` cycles after the last write.
    """

    def __init__(self, dut: Any, contents: bytearray, *, readers: Sequence[str], writers: Sequence[str]) -> None:
        self.dut, self.contents = dut, contents
        self.writes = 0
        """Writes so far."""
        self._arriving: list[list[tuple[int, bytes]]] = [[] for _ in range(WRITE_TO_READ)]
        self._writers = [
            [getattr(dut, f"{name}__{part}") for part in ("en", "addr", "size", "data")] for name in writers
        ]
        self._readers = [[getattr(dut, f"{name}__{part}") for part in ("en", "addr", "data")] for name in readers]
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        size = len(self.contents)
        stale = [int.from_bytes(bytes([STALE]) * (len(data) // 8), "little") for _, _, data in self._readers]
        on_their_way = [[value] * (SRAM_READ - 1) for value in stale]
        while True:
            await RisingEdge(self.dut.clk)
            for address, data in self._arriving.pop(0):
                self.contents[address : address + len(data)] = data
            for (enable, address, port), empty, later in zip(self._readers, stale, on_their_way, strict=True):
                word = empty
                if enable.value:
                    first, width = int(address.value) % size, len(port) // 8
                    row = self.contents[first : first + width]
                    word = int.from_bytes(row + self.contents[: width - len(row)], "little")
                later.append(word)
                port.value = later.pop(0)
            now = []
            for enable, address, count, port in self._writers:
                if enable.value:
                    first, length = int(address.value), int(count.value)
                    assert length > 0 and first + length <= size, f"write of {length} bytes at {first:#x} outside SRAM"
                    data = int(port.value).to_bytes(len(port) // 8, "little")[:length]
                    now.append((first, data))
                    self.writes += 1
            self._arriving.append(now)


class PageBuffers:
    """LOAD's page port: both page buffers, filled by fetches."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.contents = bytearray(2 * PAGE_BYTES)
        cocotb.start_soon(self._run())

    def page(self, address: int) -> bytes:
        """The buffer of the page at ``address``."""
        first = address % (2 * PAGE_BYTES)
        return bytes(self.contents[first : first + PAGE_BYTES])

    async def _run(self) -> None:
        dut, size = self.dut, len(self.dut.page__data) // 8
        while True:
            await RisingEdge(dut.clk)
            if dut.page__en.value:
                first = int(dut.page__row.value) * size
                self.contents[first : first + size] = int(dut.page__data.value).to_bytes(size, "little")


@dataclass(frozen=True)
class Outcome:
    """What an operation showed at the border: the failed check, or the banks it claims, the cycles from its start to
    its end, and whether the bus answered with an error."""

    cause: Cause
    reads: int = 0
    writes: int = 0
    cycles: int = CHECK
    error: bool = False


class CoreDriver:
    """Control of a unit, towards its core."""

    def __init__(self, dut: Any, unit: Unit) -> None:
        self.dut, self.unit = dut, unit
        for name in ("cfg__clear", "cfg__en", "cfg__due", "start", "fetch", "go"):
            self._port(name).value = 0

    def _port(self, name: str) -> Any:
        return getattr(self.dut, f"core__{name}")

    async def clear(self) -> None:
        """All registers to zero, as before a program."""
        self._port("cfg__clear").value = 1
        await RisingEdge(self.dut.clk)
        self._port("cfg__clear").value = 0

    async def configure(self, values: Registers) -> None:
        """Write registers, one a cycle."""
        self._port("cfg__en").value = 1
        self._port("cfg__due").value = 1
        for name, value in values.items():
            group, place = divmod(REGISTERS[self.unit][name].index, GROUP)
            self._port("cfg__group").value = 1 << group
            self._port("cfg__place").value = 1 << place
            self._port("cfg__value").value = value
            await RisingEdge(self.dut.clk)
        self._port("cfg__en").value = 0
        self._port("cfg__due").value = 0

    async def operate(self, op: Op) -> Outcome:
        """Start an operation and, if its checks pass, see it through."""
        return await self._see_through(op.name, {"op": int(op), "fetch": 0})

    async def fetch(self, address: int) -> Outcome:
        """LOAD: the same for the fetch of an instruction page."""
        return await self._see_through("fetch", {"fetch": 1, "address": address})

    async def _see_through(self, name: str, values: Registers) -> Outcome:
        for port, value in values.items():
            self._port(port).value = value
        self._port("start").value = 1
        await RisingEdge(self.dut.clk)
        self._port("start").value = 0
        for _ in range(CHECK - 1):
            await RisingEdge(self.dut.clk)
        await Timer(SETTLE, "ns")  # `go` answers in the cycle in which the core shows its verdict
        cause, reads, writes = (int(self._port(name).value) for name in ("cause", "reads", "writes"))
        if cause:
            await RisingEdge(self.dut.clk)
            return Outcome(Cause(cause))
        self._port("go").value = 1
        done, cycles = self._port("done"), CHECK
        while True:
            await RisingEdge(self.dut.clk)
            self._port("go").value = 0
            if done.value:
                break
            cycles += 1
            assert cycles < LIMIT, f"{name} did not end within {LIMIT} cycles"
        return Outcome(Cause.NONE, reads, writes, cycles, bool(self._port("error").value))


class UnitScoreboard:
    """What an operation must do, from the model: ``sw.model`` for bytes, ``isa.instructions.checks`` for causes and
    claims, ``isa.timing`` for cycles.

    Parameters
    ----------
    sram, memory
        What SRAM and system memory hold at first.
    base
        What system memory addresses are relative to.
    broken
        (address, bytes) of system memory that answers with an error.
    """

    def __init__(
        self, config: Config, unit: Unit, sram: bytes, memory: bytes = b"", *, base: int = 0, broken: Broken = ()
    ) -> None:
        self.config, self.unit = config, unit
        self._model = UNITS[unit](config)
        self._sram = Sram(config.sram)
        self._sram.data[:] = np.frombuffer(sram, np.uint8)
        self._sram.touch(0, config.sram)
        self._memory = SystemMemory(np.frombuffer(memory, np.uint8).copy(), base, broken)

    def predict(self, op: Op, values: Registers) -> Outcome:
        """What the core must show for an operation; nothing is carried out."""
        view = self._view(values)
        cause = check(self.config, op, view)
        if cause:
            return Outcome(cause)
        claims = claim(self.config, op, view)
        if claims.twice:
            return Outcome(Cause.BANK_CONFLICT)
        memory, error = self._memory, False
        if self.unit in (Unit.LOAD, Unit.STORE):
            error = bus_error(int(op), view.values, memory.base, len(memory.data), memory.broken)
        return Outcome(Cause.NONE, claims.reads, claims.writes, duration(self.config, op, view), error)

    def predict_fetch(self, address: int) -> Outcome:
        """What LOAD's core must show for the fetch of a page."""
        memory = self._memory
        good = answers(address, PAGE_BYTES, len(memory.data), memory.broken)
        return Outcome(Cause.NONE, cycles=rules_of(self.config).fetch, error=not good)

    def carry_out(self, op: Op, values: Registers) -> None:
        """Do what an operation that passes its checks does."""
        self._model.execute(op, self._view(values), self._sram, self._memory)

    def _view(self, values: Registers) -> View:
        return View(self.unit, [values[name] for name in REGISTERS[self.unit]])

    def check(self, name: str, outcome: Outcome, expected: Outcome, *, timed: bool) -> None:
        """Compare what the core showed; ``timed``: the cycles as well, for a memory that never stalls."""
        if not timed:
            outcome = replace(outcome, cycles=expected.cycles)
        assert outcome == expected, f"{name}: must be {expected}, not {outcome}"

    def check_bytes(self, name: str, sram: bytes, memory: bytes = b"") -> None:
        """Compare SRAM and system memory."""
        for what, got, want in (("SRAM", sram, self._sram.data), ("memory", memory, self._memory.data)):
            differs = np.flatnonzero(np.frombuffer(got, np.uint8) != want)
            assert not len(differs), (
                f"{name}: {what} differs in {len(differs)} bytes, first at {differs[0]:#x}:"
                f" must be {want[differs[0]]:#04x}, not {got[differs[0]]:#04x}"
            )
