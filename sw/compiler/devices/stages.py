"""One inference faster: neighbouring nodes are shared by all accelerators, stage by stage.

A stage is neighbouring nodes and their shares. It takes as long as its slowest share, as what all of them load or store
through one memory, and as the host, which starts them one after the other. Which nodes make a stage and how they are
shared is a shortest path: first by estimates that no program is below, then by exact prices of what lies on the path,
until all on it are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import WRITTEN, Job
from dovetail.isa.timing.memory import ADDRESS_SPACE
from dovetail.isa.timing.system import time_jobs
from dovetail.sw.compiler.devices.pieces import Price, Prices, targets_of
from dovetail.sw.compiler.devices.shares import CHANNELS, ROWS, WHOLE, Share, Span, share_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import border_of
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

LONGEST = 8
"""Nodes of a stage that is shared, at most: of longer ones the shares compute more and more rows twice."""
ROUNDS = (0, 24, 60, 200)
"""By effort, how often the path is priced exactly, at most."""
SEARCHED = (0, 1, 1, 1)
"""By effort, that with which programs are compiled on the way to the path, without plans for less SRAM."""
KEPT = (0, 1, 1, 2)
"""By effort, that with which programs of stages on the path are compiled in the end, where that is better."""
MOVES = (0, 2, 4, 8)
"""By effort, how often a row or a block of channels moves from the slowest share to the fastest one."""

CROWDED = 1.03
"""By how much shares that run at once may take longer than the slowest of them alone. Where it is more, programs that
are compiled for a slower memory are tried: they load less at a time, and less in all."""


@dataclass(frozen=True)
class Stage:
    """Nodes first..last-1 of a graph, what they are shared by, the share of each accelerator (None: it has none), and
    the cost in cycles. Programs are compiled with ``options``, and for every ``rivals``-th beat of memory."""

    first: int
    last: int
    kind: str
    cuts: tuple[int, ...]
    shares: tuple[Share | None, ...]
    cycles: int
    exact: bool
    options: Options
    rivals: int = 1


class Stages:
    """Finds the stages of a graph's nodes.

    Parameters
    ----------
    system: the accelerators.
    graph, nodes: what they compute; nodes are neighbours in the order of execution.
    prices: of shares.
    options: of the compilation; ``effort`` is that of the search for stages, too.
    longest: nodes of a stage that is shared, at most.
    even: shares are of equal size, however fast the accelerators are.
    """

    def __init__(
        self,
        system: System,
        graph: ir.Graph,
        nodes: Sequence[ir.Node],
        prices: Prices,
        *,
        options: Options,
        longest: int = LONGEST,
        even: bool = False,
    ) -> None:
        self.system, self.graph, self.prices = system, graph, prices
        self.nodes = [node for node in nodes if not isinstance(node, ir.Constant)]
        self.configs = targets_of(system)
        self.options, self.longest, self.even = options, longest, even
        self._searched = replace(options, effort=SEARCHED[options.effort], smaller=False)
        self._kept = replace(options, effort=KEPT[options.effort])
        self._grain = max(config.oc_lanes for config in self.configs)

    def find(self) -> list[Stage]:
        """The cheapest path. Raises CompileError if there is none."""
        return [self._better(stage) for stage in self._cheapest()]

    def _better(self, stage: Stage) -> Stage:
        """The stage, compiled with all that may make it shorter, if it does."""
        if stage.options == self._kept:
            return stage
        found = self.compiled(stage, self._kept)
        return found if found and found.cycles < stage.cycles else stage

    def _cheapest(self) -> list[Stage]:
        count = len(self.nodes)
        edges = {
            (first, last): list(self._ways(first, last))
            for first in range(count)
            for last in range(first + 1, min(first + self.longest, count) + 1)
        }
        for _ in range(ROUNDS[self.options.effort]):
            path = self._path(edges)
            rough = [stage for stage in path if not stage.exact]
            if not rough:
                return path
            for stage in rough:
                ways = edges[stage.first, stage.last]
                ways.remove(stage)
                ways += filter(None, [self._exact(stage)])
        # What is not priced by now is, once: the last path is of exact prices as far as there are any.
        while rough := [stage for stage in self._path(edges) if not stage.exact]:
            known = {key: [stage for stage in ways if stage.exact] for key, ways in edges.items()}
            for stage in rough:
                edges[stage.first, stage.last].remove(stage)
                if exact := self._exact(stage):
                    edges[stage.first, stage.last].append(exact)
                    known[stage.first, stage.last].append(exact)
            try:
                return self._path(known)
            except CompileError:
                continue
        return self._path(edges)

    def _path(self, edges: dict[tuple[int, int], list[Stage]]) -> list[Stage]:
        best: list[tuple[int, Stage | None] | None] = [(0, None)]
        for last in range(1, len(self.nodes) + 1):
            found: tuple[int, Stage | None] | None = None
            for first in range(max(last - self.longest, 0), last):
                before = best[first]
                if before is None:
                    continue
                for stage in edges[first, last]:
                    if found is None or before[0] + stage.cycles < found[0]:
                        found = before[0] + stage.cycles, stage
            best.append(found)
        path, last = list[Stage](), len(self.nodes)
        while last:
            reached = best[last]
            if reached is None or reached[1] is None:
                name = next(self.nodes[n].name for n in range(last) if best[n + 1] is None)
                raise CompileError(f"layer {name!r}: no accelerator of the system can compute it")
            path.append(reached[1])
            last = reached[1].first
        return path[::-1]

    # --- one stage ---------------------------------------------------------------------------------------------

    def _ways(self, first: int, last: int) -> Iterator[Stage]:
        """How some nodes could be shared, by estimates."""
        nodes = self.nodes[first:last]
        if all(isinstance(node, ir.FREE) for node in nodes):
            yield Stage(first, last, WHOLE, (), (None,) * len(self.configs), 0, exact=True, options=self._kept)
            return
        whole = share_of(self.graph, nodes, WHOLE, {})
        if whole is None:
            return
        for chosen in range(len(self.configs)):
            if self.configs.index(self.configs[chosen]) == chosen:  # of equal ones the first
                shares = tuple(whole if n == chosen else None for n in range(len(self.configs)))
                yield self._estimated(first, last, WHOLE, (), shares)
        if len(self.configs) > 1:
            speeds = [1 / self.prices.estimate(config, whole).cycles for config in self.configs]
            for kind in (ROWS, CHANNELS):
                if (units := self._units(nodes, kind)) > 1:
                    cuts = self._cuts(units, [1.0] * len(speeds) if self.even else speeds)
                    if stage := self._shared(first, last, kind, cuts):
                        yield stage

    def _units(self, nodes: Sequence[ir.Node], kind: str) -> int:
        """How many rows, or blocks of channels, there are to share; 0 if they cannot be."""
        shapes = {self.graph.tensors[name].shape for name in border_of(self.graph, nodes)[1]}
        if kind == ROWS:
            return min((shape[1] if len(shape) == 4 else 0 for shape in shapes), default=0)
        channels = {shape[-1] for shape in shapes}
        return ceil_div(max(channels), self._grain) if len(channels) == 1 else 0

    @staticmethod
    def _cuts(units: int, speeds: Sequence[float]) -> tuple[int, ...]:
        """Borders of shares that are about proportional to speeds."""
        wanted = [units * speed / sum(speeds) for speed in speeds]
        counts = [int(each) for each in wanted]
        for n in sorted(range(len(counts)), key=lambda n: counts[n] - wanted[n])[: units - sum(counts)]:
            counts[n] += 1
        return tuple(accumulate(counts, initial=0))

    def _spans(self, nodes: Sequence[ir.Node], kind: str, units: int, low: int, high: int) -> dict[str, Span]:
        """What a share from one border to another makes."""
        spans = {}
        for name in border_of(self.graph, nodes)[1]:
            shape = self.graph.tensors[name].shape
            if kind == ROWS:
                begin, end = shape[1] * low // units, shape[1] * high // units
            else:
                begin, end = min(low * self._grain, shape[-1]), min(high * self._grain, shape[-1])
            spans[name] = begin, end - begin
        return spans

    def _shared(self, first: int, last: int, kind: str, cuts: tuple[int, ...]) -> Stage | None:
        """A stage whose shares have these borders, by estimates; None if it cannot be."""
        nodes, shares = self.nodes[first:last], list[Share | None]()
        for low, high in pairwise(cuts):
            if low == high:
                shares.append(None)
                continue
            share = share_of(self.graph, nodes, kind, self._spans(nodes, kind, cuts[-1], low, high))
            if share is None:
                return None
            shares.append(share)
        return self._estimated(first, last, kind, cuts, tuple(shares))

    def _estimated(
        self, first: int, last: int, kind: str, cuts: tuple[int, ...], shares: tuple[Share | None, ...]
    ) -> Stage:
        """A stage by estimates."""
        prices = [
            None if share is None else self.prices.estimate(config, share)
            for config, share in zip(self.configs, shares, strict=True)
        ]
        return Stage(first, last, kind, cuts, shares, self._least(prices), exact=False, options=self._searched)

    def compiled(self, stage: Stage, options: Options) -> Stage | None:
        """The stage with programs of such options, by their exact cycles; None if it cannot be."""
        found = self._each(stage.shares, options, 1)
        if found is None:
            return None
        cycles, rivals = self._together(found), 1
        there = [price for price in found if price]
        if len(there) > 1 and cycles > CROWDED * max(price.cycles for price in there):
            other = self._each(stage.shares, options, len(there))
            if other and (took := self._together(other)) < cycles:
                cycles, rivals = took, len(there)
        return replace(stage, cycles=cycles, exact=True, options=options, rivals=rivals)

    def _least(self, prices: Sequence[Price | None]) -> int:
        """An estimate for shares that run at once: the slowest, what all load or store, and their starts."""
        there = [(config, price) for config, price in zip(self.configs, prices, strict=True) if price]
        moved = max(sum(price.loads for _, price in there), sum(price.stores for _, price in there))
        bus = ceil_div(moved, max(config.bus_bytes for config, _ in there)) * there[0][0].like_fixed.beat_cycles
        start = (self.system.reaction + WRITTEN) * len(there)
        return start + max(bus, *(price.cycles for _, price in there))

    def _together(self, prices: Sequence[Price | None]) -> int:
        """Cycles of shares that run at once, which is exact but for where they lie in memory."""
        parts = zip(self.system.accelerators, prices, strict=True)
        jobs = [Job(part.name, price.words) for part, price in parts if price]
        return time_jobs(self.system, jobs, memory_bytes=ADDRESS_SPACE).cycles

    def _each(self, shares: Sequence[Share | None], options: Options, rivals: int) -> list[Price | None] | None:
        """The exact price of each share; None if one has none."""
        found = [
            None if share is None else self.prices.exact(config, share, options)
            for config, share in zip(targets_of(self.system, rivals), shares, strict=True)
        ]
        return None if any(one is None and share for one, share in zip(found, shares, strict=True)) else found

    def _exact(self, stage: Stage) -> Stage | None:
        """A stage by exact prices, with borders moved where that makes it shorter; None if it cannot be."""
        best = self.compiled(stage, self._searched)
        for _ in range(0 if best is None or stage.kind == WHOLE or self.even else MOVES[self.options.effort]):
            assert best
            other = self._moved(best)
            if other is None or other.cycles >= best.cycles:
                break
            best = other
        return best

    def _moved(self, stage: Stage) -> Stage | None:
        """One unit from the slowest share to the fastest."""
        found = self._each(stage.shares, stage.options, stage.rivals)
        assert found
        cycles = [price.cycles if price else 0 for price in found]
        counts = [high - low for low, high in pairwise(stage.cuts)]
        slow, fast = cycles.index(max(cycles)), cycles.index(min(cycles))
        if slow == fast or not counts[slow]:
            return None
        counts[slow] -= 1
        counts[fast] += 1
        moved = self._shared(stage.first, stage.last, stage.kind, tuple(accumulate(counts, initial=0)))
        return moved and self.compiled(moved, self._searched)
