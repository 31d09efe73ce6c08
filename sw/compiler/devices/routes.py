"""Ways of an inference through a network: which kind of accelerator computes which of its nodes.

When many inferences are under way, what an inference takes of each accelerator counts, not how long it takes. So cycles
of each kind of accelerator have a price, and a route is a cheapest path through the nodes. A kind that is asked for too
much gets dearer, which gives another route; inferences take several of them in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import exp, inf, log
from typing import NamedTuple

from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import SEEN, STARTED
from dovetail.sw.compiler.devices.pieces import Prices, targets_of
from dovetail.sw.compiler.devices.shares import WHOLE, Share, share_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

TURNS = (8, 32, 32, 64)
"""By effort, how often prices of accelerators change."""
PRICED = ((0,), (0,), (0, 1), (0, 1))
"""By effort, those with which programs are compiled to compare legs: each may find other routes."""
CHANGE = 0.01
"""What a leg costs besides, as a part of what all nodes on one accelerator cost: of two routes that cost about the same
the one with fewer legs needs fewer inferences under way."""
STEP = 0.3
"""By what power of e an accelerator gets dearer that is asked for all of its time."""


class Leg(NamedTuple):
    """Nodes first..last-1 on an accelerator of a kind, by the kind's number."""

    first: int
    last: int
    kind: int


Route = tuple[Leg, ...]
"""All nodes of a network, leg by leg."""


class Routes:
    """Finds routes through a graph.

    Parameters
    ----------
    system: the accelerators; those that programs are the same for are of one kind.
    graph: what they compute.
    prices: of legs.
    options: of programs that are compiled to compare legs.
    effort: 0..3, how hard routes are searched for.
    """

    def __init__(self, system: System, graph: ir.Graph, prices: Prices, options: Options, effort: int) -> None:
        self.system, self.graph, self.prices, self.options, self.effort = system, graph, prices, options, effort
        self.nodes = [node for node in graph.nodes if not isinstance(node, ir.Constant)]
        kinds = dict[Config, list[int]]()
        for number, config in enumerate(targets_of(system)):
            kinds.setdefault(config, []).append(number)
        self.members = list(kinds.values())
        """Numbers of the accelerators of each kind."""
        self._shares: dict[tuple[int, int], Share | None] = {}
        self._cycles: dict[Leg, float] = {}  # of exact prices
        self._after: list[list[float]] = []
        self._before: list[list[float]] = []

    def share(self, leg: Leg) -> Share | None:
        """What a leg computes; None if that cannot be a program of its own."""
        key = leg.first, leg.last
        if key not in self._shares:
            self._shares[key] = share_of(self.graph, self.nodes[leg.first : leg.last], WHOLE, {})
        return self._shares[key]

    def cycles(self, leg: Leg) -> float:
        """For how long a leg keeps an accelerator, its start included; infinite if that cannot compute it."""
        if leg not in self._cycles:
            share, target = self.share(leg), targets_of(self.system)[self.members[leg.kind][0]]
            price = None if share is None else self.prices.exact(target, share, self.options)
            self._cycles[leg] = inf if price is None else self.system.reaction + STARTED + price.cycles + SEEN
        return self._cycles[leg]

    def whole(self) -> list[Route]:
        """Routes of one leg, which go through accelerators that can compute all of the network."""
        legs = [Leg(0, len(self.nodes), kind) for kind in range(len(self.members))]
        return [(leg,) for leg in legs if self.cycles(leg) < inf]

    def find(self) -> list[Route]:
        """The routes, exactly priced. Raises CompileError if there is none."""
        self._estimate()
        found = dict.fromkeys(self.whole())
        speeds = [len(own) / ended[-1] for own, ended in zip(self.members, self._after, strict=True)]
        taken = [log(speed) for speed in speeds]
        for _ in range(TURNS[self.effort] if len(speeds) > 1 else 1):
            # What a cycle of a kind costs: a power of e by how much it was asked for, over all of its accelerators.
            rates = [exp(had - max(taken)) / len(own) for had, own in zip(taken, self.members, strict=True)]
            route = self._cheapest(rates)
            found[route] = None
            loads = self._loads(route)
            taken = [had + STEP * load * sum(speeds) for had, load in zip(taken, loads, strict=True)]
        return list(found)

    def _loads(self, route: Route) -> list[float]:
        """Cycles that a route takes of each kind, for one of its accelerators."""
        found = [0.0] * len(self.members)
        for leg in route:
            found[leg.kind] += self.cycles(leg) / len(self.members[leg.kind])
        return found

    def _estimate(self) -> None:
        """What nodes take by themselves, and what two neighbours take less together, summed up for each kind."""
        count = len(self.nodes)
        for kind in range(len(self.members)):
            single = [self.cycles(Leg(n, n + 1, kind)) for n in range(count)]
            single = [0 if isinstance(node, ir.Reshape) else own for node, own in zip(self.nodes, single, strict=True)]
            # A node that the kind cannot compute is dearer than all others.
            dear = 1e3 * sum(own for own in single if own < inf)
            saved = []
            for n in range(count - 1):
                both = self.cycles(Leg(n, n + 2, kind))
                saved.append(single[n] + single[n + 1] - both if both < inf else 0.0)
            alone = list(accumulate((min(own, dear) for own in single), initial=0.0))
            # The legs first..last-1 take after[last] - before[first].
            less = [0.0, *accumulate(saved, initial=0.0)]
            self._after.append([own - part for own, part in zip(alone, less, strict=True)])
            self._before.append([own - part for own, part in zip(alone, [*less[1:], 0.0], strict=True)])

    def _cheapest(self, rates: Sequence[float]) -> Route:
        """The cheapest path if a cycle of each kind costs that much, with exact prices of all its legs."""
        while True:
            route = self._path(rates)
            rough = [leg for leg in route if leg not in self._cycles]
            if not rough:
                return route
            for leg in rough:
                self.cycles(leg)

    def _path(self, rates: Sequence[float]) -> Route:
        best: list[tuple[float, Leg | None]] = [(0, None)]
        change = CHANGE * min(rate * ended[-1] for rate, ended in zip(rates, self._after, strict=True))
        known, kinds = self._cycles, list(enumerate(zip(rates, self._before, self._after, strict=True)))
        for last in range(1, len(self.nodes) + 1):
            least, chosen = inf, None
            for first in range(last):
                before = best[first][0] + change
                for kind, (rate, begun, ended) in kinds:
                    leg = Leg(first, last, kind)
                    cost = before + rate * known.get(leg, ended[last] - begun[first])
                    if cost < least:
                        least, chosen = cost, leg
            best.append((least, chosen))
        route, last = list[Leg](), len(self.nodes)
        while last:
            step = best[last][1]
            if step is None:
                raise CompileError(f"layer {self.nodes[last - 1].name!r}: no accelerator of the system can compute it")
            route.append(step)
            last = step.first
        return tuple(reversed(route))
