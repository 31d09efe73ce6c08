"""Routes: what is found is about as good as the best of all there are."""

from collections.abc import Iterator, Sequence
from math import inf

from dovetail.sw.compiler.devices.pieces import Prices
from dovetail.sw.compiler.devices.routes import Leg, Route, Routes
from dovetail.sw.compiler.options import Options
from tests.sw.compiler.devices.test_plan import TINY, WIDE, system_of
from tests.sw.compiler.devices.test_shares import graph_of


def every_route(nodes: int, first: int = 0) -> Iterator[Route]:
    """All ways through nodes on two kinds of accelerators."""
    if first == nodes:
        yield ()
    for last in range(first + 1, nodes + 1):
        for kind in (0, 1):
            for rest in every_route(nodes, last):
                if not rest or rest[0].kind != kind:
                    yield Leg(first, last, kind), *rest


def period(loads: Sequence[Sequence[float]]) -> float:
    """Cycles from one inference to the next if some take one of two routes, and the others the other one."""
    best = inf
    for a, b in loads:
        for c, d in loads:
            # A part x of them takes the first route; the best x makes both accelerators equally busy, if there is one.
            slope = a - b - c + d
            x = min(max((d - c) / slope, 0.0), 1.0) if slope else 0.0
            best = min(best, max(x * a + (1 - x) * c, x * b + (1 - x) * d))
    return best


def test_found_routes_are_about_the_best() -> None:
    search = Routes(system_of(TINY, WIDE), graph_of("mobilenet_v2_block"), Prices(), Options(effort=0), 0)
    assert search.members == [[0], [1]]

    def loads(route: Route) -> list[float]:
        return [sum(search.cycles(leg) for leg in route if leg.kind == kind) for kind in (0, 1)]

    found = search.find()
    whole = period([loads(route) for route in search.whole()])
    mine = period([loads(route) for route in found])
    compiled = search.prices.programs
    best = period([own for route in every_route(len(search.nodes)) if max(own := loads(route)) < 4 * whole])
    assert best <= mine <= 1.03 * best < 0.97 * whole
    assert compiled < search.prices.programs
