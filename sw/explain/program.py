"""A program and the layers that its operations belong to: what each layer's cycles are spent on, whatever is free."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from dovetail.isa.checks import View
from dovetail.isa.config import Config
from dovetail.isa.instructions import Op, Unit
from dovetail.isa.timing.predecode import Words
from dovetail.isa.timing.rules import duration, rules_of
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.explain.causes import CAUSES
from dovetail.sw.explain.events import NONE, Step, critical_path, events_of, times_of
from dovetail.sw.explain.explanation import Shares
from dovetail.sw.explain.parts import Parts, array_macs, parts_of, unit_of
from dovetail.sw.explain.resources import NOTHING_FREE, Resource


@dataclass(frozen=True)
class Spent:
    """A layer's cycles by cause; ``ahead``: how many of them go to operations of other layers."""

    shares: Shares
    ahead: int

    @property
    def cycles(self) -> int:
        """All of them."""
        return sum(self.shares.values())


@dataclass(frozen=True)
class Operation:
    """An operation of a program, or a fetch if there is no ``op``; that belongs to no layer (`NONE`).

    ``parts``: what its cycles are spent on.
    """

    op: Op | None
    view: View
    layer: int
    parts: Parts

    @property
    def moved(self) -> int:
        """Bytes that a load or a store moves."""
        return self.view["LENGTH"] * self.view["COUNT", "rows"] * self.view["COUNT", "planes"]


class ExplainedProgram:
    """A program in which nothing faults.

    Parameters
    ----------
    config
        The accelerator and the timing of its memory.
    words
        The program.
    timeline
        Its run.
    layers
        Word index of an operation -> its layer.
    macs
        Per layer its MACs; 0 where all counts that the array multiplies.
    """

    def __init__(
        self, config: Config, words: Words, timeline: Timeline, layers: Mapping[int, int], macs: Sequence[int]
    ) -> None:
        self.config = config
        self._events = events_of(words)
        found = list(_found(timeline, layers))
        self._useful = _useful(config, found, macs)
        durations = (timeline.end - timeline.start).tolist()
        self.operations = [
            Operation(op, view, layer, self._parts(op, view, layer, cycles))
            for (op, view, layer), cycles in zip(found, durations, strict=True)
        ]

    def spent(self, resource: Resource = NOTHING_FREE) -> tuple[Spent, ...]:
        """What each layer's cycles are spent on, if a resource is free. They add up to the program's cycles.

        A layer's time is from the end of the last operation of those before it to that of its own; the first one's
        begins with the program, and the last one's ends with it. An operation that runs across a layer's end is
        shared out by cycles, each cause in proportion.
        """
        parts = [self._without(operation, resource) for operation in self.operations]
        queues = not resource.queues
        times = times_of(self._events, [sum(part.values()) for part in parts], queues=queues)
        ends = self._ends([times.end[action] + 1 for action in self._events.operations], times.cycles)
        shares: list[Counter[str]] = [Counter() for _ in ends]
        ahead = [0] * len(ends)
        for step in critical_path(self._events, times, queues=queues):
            owner = NONE if step.operation == NONE else self.operations[step.operation].layer
            for layer, pieces in _cut(step, _causes(step, parts), ends):
                shares[layer].update(pieces)
                if owner not in (NONE, layer):
                    ahead[layer] += sum(pieces.values())
        return tuple(Spent(_in_order(share), other) for share, other in zip(shares, ahead, strict=True))

    def moved(self, unit: Unit) -> list[int]:
        """Bytes that each layer's loads, or stores, move."""
        total = [0] * len(self._useful)
        for operation in self.operations:
            if operation.op is not None and operation.view.unit == unit:
                total[operation.layer] += operation.moved
        return total

    def _ends(self, after: Sequence[int], cycles: int) -> list[int]:
        """The first cycle behind each layer; ``after``: the first one behind each operation."""
        ends = [0] * len(self._useful)
        for operation, cycle in zip(self.operations, after, strict=True):
            if operation.layer != NONE:
                ends[operation.layer] = max(ends[operation.layer], cycle)
        ends[max(operation.layer for operation in self.operations)] = cycles
        return list(accumulate(ends, max))

    def _parts(self, op: Op | None, view: View, layer: int, cycles: int) -> Parts:
        if op is None:
            return {"fetch": cycles}
        return parts_of(self.config, op, view, cycles, self._useful[layer])

    def _without(self, operation: Operation, resource: Resource) -> Parts:
        """What an operation's cycles are spent on if a resource is free."""
        op, view, parts = operation.op, operation.view, operation.parts
        config = resource.config(self.config)
        if op is None:
            parts = {"fetch": rules_of(config).fetch}
        elif resource.retimes(view.unit):
            cycles = duration(config, op, view, resource.free)
            parts = parts_of(config, op, view, cycles, self._useful[operation.layer], resource.free)
        if resource.causes.isdisjoint(parts):
            return parts
        return {name: cycles for name, cycles in parts.items() if name not in resource.causes}


def _found(timeline: Timeline, layers: Mapping[int, int]) -> Iterator[tuple[Op | None, View, int]]:
    """(operation, registers, layer) of everything in a timeline."""
    for code, pc, registers in zip(timeline.op.tolist(), timeline.pc.tolist(), timeline.registers, strict=True):
        if code == FETCH:
            yield None, View(Unit.LOAD, registers), NONE
        else:
            yield Op(code), View(unit_of(Op(code)), registers), layers[pc]


def _useful(config: Config, found: Sequence[tuple[Op | None, View, int]], macs: Sequence[int]) -> list[Fraction]:
    """Per layer, which share of the MACs of its array operations are the network's."""
    done = [0] * len(macs)
    for op, view, layer in found:
        if op is not None and view.unit == Unit.ARRAY:
            done[layer] += array_macs(config, op, view)
    return [
        Fraction(min(own, all_), all_) if own and all_ else Fraction(1) for own, all_ in zip(macs, done, strict=True)
    ]


def _causes(step: Step, parts: Sequence[Parts]) -> Parts:
    if step.operation != NONE:
        return parts[step.operation]
    return {"fetch" if step.fetched else "control": step.cycles}


def _cut(step: Step, parts: Parts, ends: Sequence[int]) -> Iterator[tuple[int, Parts]]:
    """A step's causes by the layers in whose time it lies; ``ends``: the first cycle behind each layer."""
    layer = bisect_right(ends, step.start)
    begin, end = step.start, step.start + step.cycles
    if end <= ends[layer]:
        yield layer, parts
        return
    taken = dict.fromkeys(parts, 0)
    while begin < end:
        upto = min(end, ends[layer])
        share = _first(parts, upto - step.start, step.cycles)
        yield layer, {name: cycles - taken[name] for name, cycles in share.items()}
        taken, begin = share, upto
        layer += 1


def _first(parts: Parts, cycles: int, of: int) -> Parts:
    """The causes of the first cycles of an operation, all in proportion; they add up to ``cycles``."""
    sums = [total * cycles // of for total in accumulate(parts.values())]
    return {name: total - before for name, before, total in zip(parts, [0, *sums], sums, strict=False)}


def _in_order(shares: Mapping[str, int]) -> Shares:
    return {name: shares[name] for name in CAUSES if shares.get(name)}
