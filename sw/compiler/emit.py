"""Turns tile tasks into instruction words: register writes that change something, waits, operations, loads ahead.

Computations and stores keep their order, and so do loads; but a load goes out as soon as the bytes that it replaces, or
reads, are no longer waited for and its unit's queue has room, however far ahead of its task that is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dovetail.isa.checks import INDEX
from dovetail.isa.config import Config
from dovetail.isa.instructions import PAGE_WORDS, Op, Unit, cfg, pack
from dovetail.isa.timing.clock import Clock
from dovetail.sw.compiler.arena import Arena
from dovetail.sw.hazards import Range, Tracker

_PAGE = 4096
"""Bytes of system memory whose stores are kept together."""
_RANGES = 8
"""Stores to a page that are told apart."""
_MARGIN = 128
"""Cycles before LOAD runs dry in which it gets its next load."""
_UNITS = tuple(Unit)
_WORDS = 6
"""About the words of an operation: register writes, waits, itself."""


@dataclass(slots=True)
class Transfer:
    """A DMA between system memory and SRAM: ``planes`` x ``rows`` x ``length`` bytes."""

    memory: int
    sram: int
    length: int
    rows: int = 1
    planes: int = 1
    memory_row: int = 0
    memory_plane: int = 0
    sram_row: int = 0
    sram_plane: int = 0

    @property
    def memory_range(self) -> Range:
        """Bytes of system memory between the first and the last."""
        span = self.length + (self.rows - 1) * self.memory_row + (self.planes - 1) * self.memory_plane
        return self.memory, span

    @property
    def sram_range(self) -> Range:
        """Bytes of SRAM between the first and the last."""
        span = self.length + (self.rows - 1) * self.sram_row + (self.planes - 1) * self.sram_plane
        return self.sram, span

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return self.length * self.rows * self.planes

    def registers(self, unit: Unit) -> dict[str, int]:
        """Register values."""
        values = {
            "MEM_ADDR": self.memory,
            "SRAM_ADDR": self.sram,
            "SRAM_BYTES": self.sram_range[1],
            "LENGTH": self.length,
            "COUNT": pack(unit, "COUNT", rows=self.rows, planes=self.planes),
        }
        if self.rows > 1:
            values |= {"MEM_ROW_STEP": self.memory_row, "SRAM_ROW_STEP": self.sram_row}
        if self.planes > 1:
            values |= {"MEM_PLANE_STEP": self.memory_plane, "SRAM_PLANE_STEP": self.sram_plane}
        return values


@dataclass(slots=True)
class Compute:
    """An operation of the array or vector unit with its register values and the regions it claims."""

    unit: Unit
    op: Op
    registers: Mapping[str, int]
    reads: tuple[Range, ...]
    write: Range


@dataclass(slots=True)
class Task:
    """A tile: what must be loaded, the operations, what is stored."""

    layer: int
    loads: list[Transfer] = field(default_factory=list)
    computes: list[Compute] = field(default_factory=list)
    stores: list[Transfer] = field(default_factory=list)


@dataclass(slots=True)
class _Operation:
    """An instruction to come. Ranges are what it touches: SRAM, then system memory."""

    layer: int
    unit: Unit
    op: Op
    registers: Mapping[str, int]
    reads: tuple[Range, ...] = ()
    writes: tuple[Range, ...] = ()
    mem_reads: tuple[Range, ...] = ()
    mem_writes: tuple[Range, ...] = ()


@dataclass(slots=True)
class _Load:
    """A load to come: not before the first ``after`` of the other operations are out, and before number ``due`` is."""

    operation: _Operation
    after: int
    due: int


class Emitter:
    """The words of one segment.

    ``words`` are there after `end`; ``layers`` maps the word index of each operation to the layer it belongs to.
    ``arena`` knows which operation touches which SRAM last, of those that were added; ``clock`` when they are executed.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.words: list[int] = []
        self.layers: dict[int, int] = {}
        self.moved: dict[int, int] = {}
        """Bytes moved over the bus, by layer."""
        self.arena = Arena(config)
        self._tracker = Tracker(config)
        self.clock = Clock(config)
        self._operations: list[_Operation] = []
        self._loads: list[_Load] = []
        self._stored = Stores()

    def add(self, tasks: Iterable[Task]) -> None:
        """Take tasks, in an order in which they could be executed one by one."""
        for task in tasks:
            due = len(self._operations)
            for transfer in task.loads:
                self._add_load(task.layer, transfer, due)
            for compute in task.computes:
                self._add(
                    _Operation(task.layer, compute.unit, compute.op, compute.registers, compute.reads, (compute.write,))
                )
            for transfer in task.stores:
                self._add_store(task.layer, transfer)

    def end(self) -> None:
        """Write the words: all that was added, the end, and what fills the last page."""
        operations = self._operations
        out = 0
        for load in self._loads:
            while out < load.after or (out < load.due and self._goes_first(operations[out].unit)):
                self._emit(operations[out])
                out += 1
            self._emit(load.operation)
        for operation in operations[out:]:
            self._emit(operation)
        self.words.append(int(Op.END))
        self.words += [int(Op.END)] * (-len(self.words) % PAGE_WORDS)

    def _goes_first(self, unit: Unit) -> bool:
        """Whether an operation for a unit goes out before a load: its queue takes it while LOAD is busy still.

        More loads than LOAD needs to go on would only be in the way of instruction fetches, which queue behind them.
        """
        clock = self.clock
        return clock.ready(unit, _WORDS) < max(clock.ready(Unit.LOAD, _WORDS), clock.free[Unit.LOAD] - _MARGIN)

    def _add(self, operation: _Operation) -> None:
        self._operations.append(operation)
        for touched in (*operation.reads, *operation.writes):
            self.arena.touch(touched, len(self._operations))

    def _add_load(self, layer: int, transfer: Transfer, due: int) -> None:
        sram, memory = transfer.sram_range, transfer.memory_range
        after = max(self.arena.touched(sram), self._stored.latest(memory))
        registers = transfer.registers(Unit.LOAD)
        operation = _Operation(layer, Unit.LOAD, Op.DMA_READ, registers, writes=(sram,), mem_reads=(memory,))
        self._loads.append(_Load(operation, after, due))
        self.moved[layer] = self.moved.get(layer, 0) + transfer.bytes

    def _add_store(self, layer: int, transfer: Transfer) -> None:
        sram, memory = transfer.sram_range, transfer.memory_range
        registers = transfer.registers(Unit.STORE)
        self._add(_Operation(layer, Unit.STORE, Op.DMA_WRITE, registers, reads=(sram,), mem_writes=(memory,)))
        self._stored.add(memory, len(self._operations))
        self.moved[layer] = self.moved.get(layer, 0) + transfer.bytes

    def _emit(self, operation: _Operation) -> None:
        words, clock, unit = self.words, self.clock, operation.unit
        index, values = INDEX[unit], clock.values[unit]
        for name, value in operation.registers.items():
            value &= 0xFFFF_FFFF
            if values[index[name]] != value:
                words.append(cfg(unit, name, value))
                clock.write(unit, index[name], value)
        for word in self._tracker.issue(
            unit,
            reads=operation.reads,
            writes=operation.writes,
            mem_reads=operation.mem_reads,
            mem_writes=operation.mem_writes,
        ):
            words.append(word)
            clock.wait(unit, _UNITS[word >> 16 & 0xFF], word >> 32)
        self.layers[len(words)] = operation.layer
        words.append(int(operation.op))
        clock.operate(unit, operation.op)


class Stores:
    """Which operation writes a part of system memory last. Ranges are kept by page, a few of them in each."""

    def __init__(self) -> None:
        self._pages: dict[int, list[tuple[int, int, int]]] = {}  # (first byte, byte after the last, number)

    def add(self, memory: Range, number: int) -> None:
        """An operation, of a higher number than those before, writes a range."""
        low, high = memory[0], sum(memory)
        for page in _pages(memory):
            kept = [entry for entry in self._pages.get(page, ()) if entry[0] < low or entry[1] > high]
            if len(kept) == _RANGES:
                (a, b, _), (c, d, later), *rest = kept
                kept = [(min(a, c), max(b, d), later), *rest]
            self._pages[page] = [*kept, (low, high, number)]

    def latest(self, memory: Range) -> int:
        """The highest number of an operation that writes to a range; 0 if none does."""
        low, high, found = memory[0], sum(memory), 0
        for page in _pages(memory):
            for first, end, number in self._pages.get(page, ()):
                if first < high and low < end and number > found:
                    found = number
        return found


def _pages(memory: Range) -> range:
    return range(memory[0] // _PAGE, (memory[0] + memory[1] - 1) // _PAGE + 1)
