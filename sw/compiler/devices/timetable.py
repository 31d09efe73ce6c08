"""Which accelerator computes which part of which inference, and in what order, by cycles without contention."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import NamedTuple

from dovetail.sw.compiler.devices.routes import Leg, Route

TRIED = 50_000
"""Visits of timetables that are tried from a start, at most."""


class Visit(NamedTuple):
    """A leg of an inference on an accelerator, by its number. ``after``: numbers of the visits that it waits for,
    beside the one before it on its accelerator."""

    inference: int
    leg: Leg
    accelerator: int
    after: tuple[int, ...]


@dataclass(frozen=True)
class Timetable:
    """``visits`` in the order of their numbers; ``slots``: for each inference the number of the place in memory of its
    tensors between legs; ``cycles`` until all are done, if none waits for memory."""

    visits: tuple[Visit, ...]
    slots: tuple[int, ...]
    cycles: float

    @property
    def working(self) -> int:
        """How many accelerators have something to do."""
        return len({visit.accelerator for visit in self.visits})


def timetable(
    routes: Sequence[Route], members: Sequence[Sequence[int]], cycles: Callable[[Leg], float], places: int
) -> Timetable:
    """Inferences on given routes: whatever can begin first does, of several legs the shortest, so that others get work.

    Parameters
    ----------
    routes: of each inference.
    members: numbers of the accelerators of each kind.
    cycles: of a leg on its kind of accelerator.
    places: how many inferences may be between two of their legs at once.
    """
    free = {number: 0.0 for own in members for number in own}
    held = [(0.0, -1)] * places  # until when, and the visit that ends it; infinite where that is not known
    slots = [0] * len(routes)
    entering: dict[Route, deque[int]] = {}
    for inference, route in enumerate(routes):
        entering.setdefault(route, deque()).append(inference)
    under_way: dict[int, tuple[int, float, int]] = {}  # next leg, from when it can begin, the visit before
    visits = list[Visit]()
    while entering or under_way:
        place = min(range(places), key=lambda number: held[number])
        asks = [(number, leg, ready, before) for number, (leg, ready, before) in under_way.items()]
        for route, queue in entering.items():
            ready, before = held[place] if len(route) > 1 else (0.0, -1)
            if ready < inf:
                asks.append((queue[0], 0, ready, before))
        begin, took, inference, chosen, number, before = min(
            (max(ready, free[accelerator]), cycles(routes[inference][number]), inference, number, accelerator, before)
            for inference, number, ready, before in asks
            for accelerator in [min(members[routes[inference][number].kind], key=lambda one: (free[one], one))]
        )
        route = routes[inference]
        leg, last = route[chosen], chosen + 1 == len(route)
        free[number] = begin + took
        visits.append(Visit(inference, leg, number, () if before < 0 else (before,)))
        if not chosen:
            entering[route].popleft()
            if not entering[route]:
                del entering[route]
            if not last:
                slots[inference] = place
                held[place] = inf, -1
        if not last:
            under_way[inference] = chosen + 1, free[number], len(visits) - 1
        elif chosen:
            del under_way[inference]
            held[slots[inference]] = free[number], len(visits) - 1
    return Timetable(tuple(visits), tuple(slots), max(free.values()))


def dealt(
    routes: Sequence[Route], inferences: int, members: Sequence[Sequence[int]], cycles: Callable[[Leg], float]
) -> Timetable:
    """That many inferences, each on one of the routes, so that all are done early.

    In the beginning all are on one route, on each in turn; then an inference goes to another one wherever that helps.
    """
    most = 2 * sum(map(len, members)) + 1
    found = []
    for start in routes:
        chosen = [start] * inferences
        table = timetable(chosen, members, cycles, most)
        left, better = TRIED - len(table.visits), True
        while better and left > 0:
            better = False
            for inference, route in product(reversed(range(inferences)), routes):
                if route == chosen[inference] or left <= 0:
                    continue
                other = [*chosen[:inference], route, *chosen[inference + 1 :]]
                tried = timetable(other, members, cycles, most)
                left -= len(tried.visits)
                if tried.cycles < table.cycles:
                    chosen, table, better = other, tried, True
        found.append((table, chosen))
    table, chosen = min(found, key=lambda one: one[0].cycles)
    # Fewer places, if that delays nothing.
    return next(
        tried
        for places in range(1, most + 1)
        if (tried := timetable(chosen, members, cycles, places)).cycles <= table.cycles
    )
