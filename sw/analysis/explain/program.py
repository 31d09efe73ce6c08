"""What each layer's cycles of a program are spent on, with any resource free."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.sequencer import Words
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.analysis.explain.causes import CAUSES, NOTHING_FREE, Resource, fastest
from dovetail.sw.analysis.explain.cycle_parts import NO_LAYER, Parts, kinds_of
from dovetail.sw.analysis.explain.events import Times, critical_path, events_of, times_of
from dovetail.sw.analysis.explain.explanation import Shares


@dataclass(frozen=True)
class Spent:
    """A layer's cycles by cause; ``ahead``: how many of them go to operations of other layers."""

    shares: Shares
    ahead: int

    @property
    def cycles(self) -> int:
        """All of them."""
        return sum(self.shares.values())


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
        elements = zip(timeline.op.tolist(), timeline.pc.tolist(), strict=True)
        self._layers = [NO_LAYER if code == FETCH else layers[pc] for code, pc in elements]
        self._count = len(macs)
        self._kinds, self._kind_of = kinds_of(config, timeline, self._layers, macs)
        self._parts = [kind.parts(config) for kind in self._kinds]

    def spent(self, resource: Resource = NOTHING_FREE) -> tuple[Spent, ...]:
        """What each layer's cycles are spent on, if a resource is free. They add up to the program's cycles.

        A layer's time is from the end of the last operation of those before it to that of its own; the first one's
        begins with the program, and the last one's ends with it. An operation that runs across a layer's end is
        shared out by cycles, each cause in proportion.
        """
        parts = self._without(resource)
        cycles = [sum(causes.values()) for causes in parts]
        queues = not resource.queues
        times = times_of(self._events, [cycles[kind] for kind in self._kind_of], queues=queues)
        ends = self._ends(times)
        shares: list[Counter[str]] = [Counter(control=end - start) for start, end in pairwise((0, *ends))]
        ahead = [0] * self._count

        def add(layer: int, owner: int, causes: Parts, count: int = 1) -> None:
            for name, taken in causes.items():
                shares[layer][name] += count * taken
            taken = count * sum(causes.values())
            shares[layer]["control"] -= taken
            if owner not in (NO_LAYER, layer):
                ahead[layer] += taken

        whole: Counter[tuple[int, int, int]] = Counter()
        for number in critical_path(self._events, times, queues=queues):
            action, kind, owner = self._events.operations[number], self._kind_of[number], self._layers[number]
            start, end = times.pop[action], times.end[action]
            layer = bisect_right(ends, start)
            if end <= ends[layer]:
                whole[layer, owner, kind] += 1
            else:
                for part_of, causes in _cut(start, end, parts[kind], ends):
                    add(part_of, owner, causes)
        for (layer, owner, kind), count in whole.items():
            add(layer, owner, parts[kind], count)
        return tuple(Spent(_in_order(share), other) for share, other in zip(shares, ahead, strict=True))

    def moved(self, unit: Unit) -> list[int]:
        """Bytes that each layer's loads, or stores, move."""
        sizes = [kind.moved(unit) for kind in self._kinds]
        total = [0] * self._count
        for layer, kind in zip(self._layers, self._kind_of, strict=True):
            if layer != NO_LAYER:
                total[layer] += sizes[kind]
        return total

    def _without(self, resource: Resource) -> list[Parts]:
        """What the cycles of every kind are spent on if a resource is free."""
        config = fastest(self.config) if resource.memory else self.config
        parts = [
            kind.parts(config, resource.free) if resource.retimes(kind.view.unit) else own
            for kind, own in zip(self._kinds, self._parts, strict=True)
        ]
        return [{name: cycles for name, cycles in own.items() if name not in resource.causes} for own in parts]

    def _ends(self, times: Times) -> list[int]:
        """The first cycle behind each layer."""
        ends = [0] * self._count
        for layer, action in zip(self._layers, self._events.operations, strict=True):
            if layer != NO_LAYER and times.end[action] >= ends[layer]:
                ends[layer] = times.end[action] + 1
        ends[max(self._layers)] = times.cycles
        return list(accumulate(ends, max))


def _cut(start: int, end: int, parts: Parts, ends: Sequence[int]) -> Iterator[tuple[int, Parts]]:
    """An operation's causes by the layers in whose time it lies; ``ends``: the first cycle behind each layer."""
    taken = dict.fromkeys(parts, 0)
    upto, layer = start, bisect_right(ends, start)
    while upto < end:
        upto = min(end, ends[layer])
        share = _first(parts, upto - start, end - start)
        yield layer, {name: cycles - taken[name] for name, cycles in share.items()}
        taken, layer = share, layer + 1


def _first(parts: Parts, cycles: int, of: int) -> Parts:
    """The causes of the first cycles of an operation, all in proportion; they add up to ``cycles``."""
    sums = [total * cycles // of for total in accumulate(parts.values())]
    return {name: total - before for name, before, total in zip(parts, [0, *sums], sums, strict=False)}


def _in_order(shares: Mapping[str, int]) -> Shares:
    return {name: shares[name] for name in CAUSES if shares.get(name)}
