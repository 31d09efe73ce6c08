"""Searches: which points of a space to look at next."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.flows.explore.search.listed import Search, exhaustive, random
from dovetail.flows.explore.search.narrow import Narrowing
from dovetail.flows.explore.search.sampled import Sampled
from dovetail.flows.explore.search.scenarios import Scenarios
from dovetail.flows.explore.space.design_space import Space

MAKERS: dict[str, Callable[[Space], Search]] = {
    "exhaustive": exhaustive,
    "random": random,
    "optuna": Sampled,
    "narrow": Narrowing,
}
"""Searches by the method of a plan."""


def search_of(space: Space) -> Search:
    """The search of the space's plan. Raises DovetailError."""
    method = MAKERS[space.search.method]
    return Scenarios(space, method) if space.scenario_axes else method(space)
