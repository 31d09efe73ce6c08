"""Operations of a program that take the same time for the same reasons: few, where a program has many operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import INDEX, View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit
from dovetail.isa.timing.array import NOTHING, Free
from dovetail.isa.timing.dma import BOUNDARY
from dovetail.isa.timing.operations import duration, rules_of
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.analysis.explain.cycle_parts import Parts, array_macs, parts_of

NO_LAYER = -1
"""Of instruction fetches."""

_TRANSFER = ("MEM_ADDR", "COUNT", "MEM_ROW_STEP", "MEM_PLANE_STEP", "LENGTH")
_RELEVANT = {
    Unit.LOAD: _TRANSFER,
    Unit.ARRAY: ("TILE", "STRIPE", "BLOCKS", "KC", "GEOMETRY", "MODE", "B_FORM"),
    Unit.VECTOR: ("TILE", "BLOCKS", "GEOMETRY"),
    Unit.STORE: _TRANSFER,
}
"""Registers that durations follow from; of a memory address what matters is where in 4 KiB it is."""
_PICK = {unit: itemgetter(*(INDEX[unit][name] for name in names)) for unit, names in _RELEVANT.items()}
_UNIT = {int(op): row.unit for op, row in INSTRUCTIONS.items() if row.unit is not None}


@dataclass(frozen=True)
class Kind:
    """Operations alike; fetches have no ``op``. ``useful``: the share of the array's MACs that are the network's."""

    op: Op | None
    view: View
    useful: Fraction = Fraction(1)

    def parts(self, config: Config, free: Free = NOTHING) -> Parts:
        """What its cycles are spent on; ``free``: what takes the array no time."""
        if self.op is None:
            return {"fetch": rules_of(config).fetch}
        cycles = duration(config, self.op, self.view, free)
        return parts_of(config, self.op, self.view, cycles, self.useful, free)

    def moved(self, unit: Unit) -> int:
        """Bytes that an operation moves, if it is one of ``unit``, which is LOAD or STORE."""
        if self.op is None or self.view.unit != unit:
            return 0
        return self.view["LENGTH"] * self.view["COUNT", "rows"] * self.view["COUNT", "planes"]


def kinds_of(
    config: Config, timeline: Timeline, layers: Sequence[int], macs: Sequence[int]
) -> tuple[list[Kind], list[int]]:
    """The kinds of everything in a timeline, and the number of the kind of each element.

    ``layers``: of each element, or `NO_LAYER`; ``macs``: of each layer, 0 where all counts that the array multiplies.
    """
    numbers: dict[tuple[int, ...], int] = {}
    found: list[tuple[Op | None, View, int]] = []
    kind_of = []
    for code, registers, layer in zip(timeline.op.tolist(), timeline.registers, layers, strict=True):
        unit = Unit.LOAD if code == FETCH else _UNIT[code]
        key = _key(code, unit, registers, layer)
        number = numbers.setdefault(key, len(found))
        if number == len(found):
            found.append((None if code == FETCH else Op(code), View(unit, registers), layer))
        kind_of.append(number)
    counts = Counter(kind_of)
    done = [0] * len(macs)
    for number, (op, view, layer) in enumerate(found):
        if op is not None and view.unit == Unit.ARRAY:
            done[layer] += counts[number] * array_macs(config, op, view)
    useful = [_share(own, all_) for own, all_ in zip(macs, done, strict=True)]
    return [Kind(op, view, Fraction(1) if op is None else useful[layer]) for op, view, layer in found], kind_of


def _key(code: int, unit: Unit, registers: Sequence[int], layer: int) -> tuple[int, ...]:
    if code == FETCH:
        return (code,)
    values = _PICK[unit](registers)
    if unit in (Unit.LOAD, Unit.STORE):
        return (code, values[0] % BOUNDARY, *values[1:])
    return (code, layer, *values)


def _share(macs: int, done: int) -> Fraction:
    """Which share of the MACs done in a layer are its own."""
    return Fraction(min(macs, done), done) if macs and done else Fraction(1)
