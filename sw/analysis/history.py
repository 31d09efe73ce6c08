"""A run of all segments, from its first cycle to its last: operations, waits, and what SRAM held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, REGISTERS, Op, Unit
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.analysis.sram import accesses_of, held, registers_of
from dovetail.sw.runtime.compiled_network import CompiledNetwork

FETCH_NAME = "FETCH"
ROLES = ("weights", "tensors loaded", "results", "partial sums")
"""What SRAM holds: weights, tables and matrices of constants that LOAD brought; tensors that it brought; what ARRAY or
VECTOR computed; int32 sums that ARRAY goes on with."""


@dataclass(frozen=True)
class Event:
    """An operation, or a fetch of instructions. Cycles count from the first segment's start.

    Parameters
    ----------
    unit, name: who does what.
    layer: number of its layer; None of a fetch.
    start, end: the first busy cycle, and the first that is not.
    moved: bytes that cross the bus, of LOAD and STORE.
    registers: the unit's registers that are not zero.
    """

    unit: Unit
    name: str
    layer: int | None
    start: int
    end: int
    moved: int
    registers: Mapping[str, int]


@dataclass(frozen=True)
class Wait:
    """Cycles ``start`` .. ``end`` - 1 in which a unit stands still until ``on`` has done what it waits for."""

    unit: Unit
    on: Unit
    start: int
    end: int


@dataclass(frozen=True)
class Life:
    """Bytes of SRAM that hold something still to be read.

    Parameters
    ----------
    address, size: in bytes; whole SRAM words.
    start, end: from the start of the operation that writes them to the end of the last that reads them.
    role: of :data:`ROLES`.
    """

    address: int
    size: int
    start: int
    end: int
    role: str


@dataclass(frozen=True)
class Span:
    """A layer's share of a run: cycles ``start`` .. ``end`` - 1, without gaps between layers."""

    name: str
    kind: str
    start: int
    end: int


@dataclass(frozen=True)
class History:
    """A whole run; every tuple is in the order of ``start``."""

    network: str
    config: Config
    cycles: int
    events: tuple[Event, ...]
    waits: tuple[Wait, ...]
    lives: tuple[Life, ...]
    layers: tuple[Span, ...]


def history(compiled: CompiledNetwork, timelines: Sequence[Timeline] | None = None) -> History:
    """The history of one inference.

    Parameters
    ----------
    compiled
        The network.
    timelines
        One per segment, from a run on either engine; exact timing when left out. When things happened is taken from
        them. Registers are those of the program, and waits those of the timing rules: no engine records them.
    """
    report, code, config = compiled.report(), compiled.code, compiled.config
    timelines = report.timeline if timelines is None else timelines
    events: list[Event] = []
    waits: list[Wait] = []
    lives: list[Life] = []
    offset = 0
    for segment, run, exact in zip(code.segments, timelines, report.timeline, strict=True):
        registers = registers_of(exact)
        layers = dict(segment.layers)
        events += sorted(_events(run, registers, layers, offset), key=lambda event: (event.start, event.unit))
        waits += sorted(_waits(segment.body, exact, offset), key=lambda wait: (wait.start, wait.unit))
        lives += sorted(_lives(config, run, registers, offset), key=lambda life: (life.start, life.address))
        offset += run.cycles
    ends = list(accumulate(layer.cycles for layer in report.layers))
    spans = [
        Span(layer.name, layer.kind, end - layer.cycles, end) for layer, end in zip(report.layers, ends, strict=True)
    ]
    return History(compiled.graph.name, config, offset, tuple(events), tuple(waits), tuple(lives), tuple(spans))


Registers = Mapping[int, tuple[int, ...]]
"""The registers that each operation sees, by the index of its word."""


def _events(run: Timeline, registers: Registers, layers: Mapping[int, int], offset: int) -> Iterator[Event]:
    rows = zip(*(column.tolist() for column in (run.unit, run.op, run.pc, run.start, run.end)), strict=True)
    names = [[register.name for register in REGISTERS[unit].values()] for unit in Unit]
    for number, op, pc, start, end in rows:
        unit = Unit(number)
        times = start + offset, end + 1 + offset
        if op == FETCH:
            yield Event(unit, FETCH_NAME, None, *times, PAGE_BYTES, {})
            continue
        values = registers[pc]
        named = {name: value for name, value in zip(names[unit], values, strict=True) if value}
        moved = View(unit, values).moved if INSTRUCTIONS[Op(op)].moves else 0
        yield Event(unit, Op(op).name, layers[pc], *times, moved, named)


def _waits(words: Sequence[int], exact: Timeline, offset: int) -> Iterator[Wait]:
    syncs = [word for word in words if word & 0xFF == Op.SYNC]
    for word, (unit, head, pop) in zip(syncs, exact.waits.tolist(), strict=True):
        if pop > head:
            yield Wait(Unit(unit), Unit(word >> 16 & 0xFF), head + offset, pop + offset)


def _lives(config: Config, run: Timeline, registers: Registers, offset: int) -> Iterator[Life]:
    """What lives between the operations of a segment."""
    accesses = accesses_of(run, registers)
    for part in held(config, accesses):
        writer, reader = accesses[part.writer], accesses[part.reader]
        yield Life(
            part.first * config.word_bytes,
            (part.last - part.first) * config.word_bytes,
            int(run.start[writer.element]) + offset,
            int(run.end[reader.element]) + 1 + offset,
            ROLES[_role(writer.view.unit, _use(reader.op, reader.view, part.use))],
        )


_CONSTANT, _TENSOR, _SUMS = range(3)


def _use(op: Op, view: View, number: int) -> int:
    """What an operation takes its read region with that number for."""
    if view.unit == Unit.ARRAY and number:
        matrix = INSTRUCTIONS[op].matrix and number == 2
        return _TENSOR if matrix else _CONSTANT if number == 1 else _SUMS
    return _CONSTANT if INSTRUCTIONS[op].looks_up and number else _TENSOR


def _role(writer: Unit, use: int) -> int:
    """The index in :data:`ROLES` of what ``writer`` wrote and another operation took for ``use``."""
    if use == _SUMS:
        return 3
    if writer != Unit.LOAD:
        return 2
    return 0 if use == _CONSTANT else 1


def levels(changes: Iterable[tuple[int, int, int]]) -> tuple[tuple[int, int], ...]:
    """The sum of what holds from a cycle up to another: (cycle, sum from then on), where it changes.

    ``changes``: (first cycle, cycle after the last, amount).
    """
    steps: dict[int, int] = {}
    for start, end, amount in changes:
        steps[start] = steps.get(start, 0) + amount
        steps[end] = steps.get(end, 0) - amount
    cycles = [cycle for cycle in sorted(steps) if steps[cycle]]
    return tuple(zip(cycles, accumulate(steps[cycle] for cycle in cycles), strict=True))
