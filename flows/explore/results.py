"""The outcome of a sweep, as tables, pictures and pages take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.flows.explore.cost import Cost
from dovetail.flows.explore.space import Space
from dovetail.isa.config import Config


@dataclass(frozen=True)
class Row:
    """A point that was priced, or could not be.

    Parameters
    ----------
    number: of the point within the space; rows stand in this order.
    axes: the values of what varies, by parameter name, outermost first.
    config: None where the combination breaks a rule of the configuration.
    costs: of the space's workloads, in their order; empty if the point failed.
    values: the metrics by name (see `dovetail.flows.explore.metrics`); empty if the point failed.
    error: why there is no cost, else empty.
    feasible: whether the point keeps all of the space's constraints.
    front: whether it is on the Pareto front of the space's objectives, among the feasible rows.
    confirmed: "equal" or "differs" where the RTL was asked, else empty.
    seconds: CPU time of pricing it.
    """

    number: int
    axes: Mapping[str, Any]
    config: Config | None
    costs: tuple[Cost, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    feasible: bool = True
    front: bool = False
    confirmed: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Results:
    """A space and its rows so far; ``total``: the points that the search will look at, 0 if nobody knows."""

    space: Space
    rows: tuple[Row, ...]
    total: int = 0
