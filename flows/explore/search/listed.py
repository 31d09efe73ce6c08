"""What a search is, and those whose points are fixed in advance: all of them, or a random choice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Protocol

from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.space.design_space import Point, Space


class Search(Protocol):
    """Proposes points and receives their results. The points depend only on the seed and the rows."""

    @property
    def total(self) -> int:
        """The points it will look at; 0 if unknown."""
        ...

    def ask(self, most: int) -> list[Point]:
        """Up to ``most`` points that were not handed out before; none while it waits for rows, or at its end."""
        ...

    def tell(self, row: Row) -> None:
        """The outcome of a point that was handed out, failed ones included."""
        ...


class Listed:
    """Hands out points by their numbers; rows change nothing."""

    def __init__(self, space: Space, numbers: Iterator[int], total: int) -> None:
        self.total = total
        self._points = map(space.point, numbers)

    def ask(self, most: int) -> list[Point]:
        return list(islice(self._points, most))

    def tell(self, row: Row) -> None:
        """Rows change nothing."""


def exhaustive(space: Space) -> Listed:
    """All points, or the first of them if the plan limits their number."""
    total = space.count(space.search.points)
    return Listed(space, islice(space.numbers(), total), total)


def random(space: Space) -> Listed:
    """As many points as the plan says, each at most once, drawn evenly; all, without a limit.

    They are handed out in the order of :meth:`Space.numbers`, whose neighbours are cheaper to price.
    """
    wanted = space.search.points
    if not wanted or space.count(wanted + 1) <= wanted:
        return exhaustive(space)
    drawn = set(islice(filter(space.admits, shuffled(len(space), space.search.seed)), wanted))
    return Listed(space, iter(sorted(drawn, key=space.rank)), len(drawn))


def shuffled(count: int, seed: int) -> Iterator[int]:
    """0 .. count - 1, each once, in random order; memory grows only with what is taken."""
    draw = Random(seed)
    moved: dict[int, int] = {}
    for place in range(count):
        other = draw.randrange(place, count)
        yield moved.get(other, other)
        moved[other] = moved.pop(place, place)
