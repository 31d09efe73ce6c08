"""Searches: which points of a space to look at next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dovetail.flows.explore.results.rows import Row
from dovetail.flows.explore.space.design_space import Point, Space


class Search(Protocol):
    """Proposes points and receives their results. The points depend only on the seed and the rows."""

    @property
    def total(self) -> int:
        """The points that it will look at; 0 if nobody knows."""
        ...

    def ask(self, most: int) -> list[Point]:
        """Up to ``most`` points that were not handed out before; none while it waits for rows, or at its end."""
        ...

    def tell(self, row: Row) -> None:
        """The outcome of a point that was handed out, failed ones included."""
        ...


def search_of(space: Space) -> Search:
    """The search of the space's plan. Raises DovetailError."""
    from dovetail.flows.explore.search.scenarios import Scenarios

    return Scenarios(space, _search_of) if space.scenario_axes else _search_of(space)


def _search_of(space: Space) -> Search:
    from dovetail.flows.explore.search.listed import exhaustive, random
    from dovetail.flows.explore.search.narrow import Narrowing
    from dovetail.flows.explore.search.sampled import Sampled

    methods: dict[str, Callable[[Space], Search]] = {
        "exhaustive": exhaustive,
        "random": random,
        "optuna": Sampled,
        "narrow": Narrowing,
    }
    return methods[space.search.method](space)
