"""Turns tile tasks into instruction words: register writes that change something, waits, operations, loads ahead."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dovetail.isa.config import Config
from dovetail.isa.instructions import PAGE_WORDS, REGISTERS, Op, Unit, cfg, pack
from dovetail.sw.hazards import Range, Tracker

_PAD_WORD = int(Op.END)


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


def _overlap(a: Range, b: Range) -> bool:
    return a[0] < b[0] + b[1] and b[0] < a[0] + a[1]


class Emitter:
    """The words of one segment.

    ``words`` grows with every task; ``layers`` maps the word index of each operation to the layer it belongs to.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.words: list[int] = []
        self.layers: dict[int, int] = {}
        self.moved: dict[int, int] = {}
        """Bytes moved over the bus, by layer."""
        self._tracker = Tracker(config)
        self._values: list[dict[str, int]] = [dict.fromkeys(REGISTERS[unit], 0) for unit in Unit]

    def emit(self, tasks: Iterable[Task]) -> None:
        """Emit tasks in order, each one's loads ahead of the computation before it where that is legal."""
        before: Task | None = None
        for task in tasks:
            ahead = [t for t in task.loads if before is None or self._independent(t, before)]
            for transfer in ahead:
                self._load(task.layer, transfer)
            if before:
                self._finish(before)
            for transfer in task.loads:
                if transfer not in ahead:
                    self._load(task.layer, transfer)
            before = task
        if before:
            self._finish(before)

    def end(self) -> None:
        """Close the segment and fill its last page."""
        self.words.append(int(Op.END))
        self.words += [_PAD_WORD] * (-len(self.words) % PAGE_WORDS)

    @staticmethod
    def _independent(transfer: Transfer, task: Task) -> bool:
        """Whether a load may go before a task that comes first in the order of the network."""
        sram, memory = transfer.sram_range, transfer.memory_range
        for compute in task.computes:
            if _overlap(sram, compute.write) or any(_overlap(sram, read) for read in compute.reads):
                return False
        return not any(_overlap(sram, s.sram_range) or _overlap(memory, s.memory_range) for s in task.stores)

    def _load(self, layer: int, transfer: Transfer) -> None:
        self._operation(
            layer,
            Unit.LOAD,
            Op.DMA_READ,
            transfer.registers(Unit.LOAD),
            writes=(transfer.sram_range,),
            mem_reads=(transfer.memory_range,),
        )
        self.moved[layer] = self.moved.get(layer, 0) + transfer.bytes

    def _finish(self, task: Task) -> None:
        for compute in task.computes:
            self._operation(
                task.layer,
                compute.unit,
                compute.op,
                compute.registers,
                reads=compute.reads,
                writes=(compute.write,),
            )
        for transfer in task.stores:
            self._operation(
                task.layer,
                Unit.STORE,
                Op.DMA_WRITE,
                transfer.registers(Unit.STORE),
                reads=(transfer.sram_range,),
                mem_writes=(transfer.memory_range,),
            )
            self.moved[task.layer] = self.moved.get(task.layer, 0) + transfer.bytes

    def _operation(
        self,
        layer: int,
        unit: Unit,
        op: Op,
        registers: Mapping[str, int],
        *,
        reads: tuple[Range, ...] = (),
        writes: tuple[Range, ...] = (),
        mem_reads: tuple[Range, ...] = (),
        mem_writes: tuple[Range, ...] = (),
    ) -> None:
        words = self.words
        values = self._values[unit]
        for name, value in registers.items():
            value &= 0xFFFF_FFFF
            if values[name] != value:
                values[name] = value
                words.append(cfg(unit, name, value))
        words += self._tracker.issue(unit, reads=reads, writes=writes, mem_reads=mem_reads, mem_writes=mem_writes)
        self.layers[len(words)] = layer
        words.append(int(op))
