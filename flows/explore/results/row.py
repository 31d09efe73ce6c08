"""A priced point: its metrics, and which points are best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.space.deployment import Deployment, Design, parameters_of
from dovetail.flows.explore.space.design_space import Point, Space
from dovetail.flows.explore.space.metrics import Shared, Work, fixed_values, work_values
from dovetail.flows.options.parameters import CLOCK, label
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, EnergyTable, energy_of, load_table


@dataclass(frozen=True)
class Row:
    """A point that was priced, or failed.

    Parameters
    ----------
    number: of the point within the space; rows stand in this order.
    axes: the values of what varies, by parameter name, outermost first.
    config: or the system; None where the combination breaks a rule.
    costs: of the space's workloads, in their order; empty if the point failed.
    values: the metrics by name (see `dovetail.flows.explore.space.metrics`); empty if the point failed.
    error: why there is no cost, else empty.
    feasible: whether the point keeps all of the space's constraints.
    violation: how far it is from keeping those on metrics: a share of the limit each, added up; 0 if it is feasible.
    front: whether it is on the Pareto front of the space's objectives, among the feasible rows.
    confirmed: "equal" or "differs" where the RTL was asked, else empty.
    seconds: CPU time of pricing it.
    clock: Hz.
    scenarios: how many it stands for (see `dovetail.flows.explore.results.outcome`).
    """

    number: int
    axes: Mapping[str, Any]
    config: Design | None
    costs: tuple[Cost, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    feasible: bool = True
    violation: float = 0.0
    front: bool = False
    confirmed: str = ""
    seconds: float = 0.0
    clock: float = 100e6
    scenarios: int = 1

    def __repr__(self) -> str:
        cycles = f"{self.values['cycles']:,.0f} cycles" if "cycles" in self.values else "no cost"
        told = self.error or cycles + (", on the front" if self.front else "" if self.feasible else ", infeasible")
        return f"<Row {self.number} ({label(self.axes)}): {told}>"


def row_of(space: Space, point: Point, costs: Sequence[Cost], error: str = "", seconds: float = 0.0) -> Row:
    """The row of a point that was priced, or that failed for the reason ``error``."""
    error = point.error or error
    if error or point.config is None:
        return Row(
            point.number, point.axes, point.config, error=error, feasible=False, seconds=seconds, clock=point.clock
        )
    values = values_of(space, point.config, costs, point.clock)
    violation = sum(violations(space, point.number, point.config, values).values())
    return Row(
        point.number,
        point.axes,
        point.config,
        tuple(costs),
        values,
        feasible=not violation,
        violation=violation,
        seconds=seconds,
        clock=point.clock,
    )


def competing(space: Space, rows: Sequence[Row], metrics: Sequence[str]) -> list[int]:
    """The indices of the rows that may be compared by some metrics.

    They are feasible and have the metrics. Cycles and energy do not include the host, so a design could win by leaving
    work to it. So only the rows with the fewest MACs on the host compete, and of these the ones with the fewest layers
    there, unless ``space.host`` is "any" or host MACs are an objective.
    """
    able = [
        i for i, row in enumerate(rows) if row.feasible and row.values and all(map(row.values.__contains__, metrics))
    ]
    if space.host == "any" or "host_macs" in space.objectives or not able:
        return able
    least = min(_left(rows[i]) for i in able)
    return [i for i in able if _left(rows[i]) == least]


def _left(row: Row) -> tuple[float, float]:
    return row.values["host_macs"], row.values["host_nodes"]


def front_of(space: Space, rows: Sequence[Row]) -> list[int]:
    """The indices of the rows on the Pareto front of the objectives; rows with equal objectives are all on it."""
    able = competing(space, rows, space.objectives)
    if not able:
        return []
    return [able[i] for i in np.flatnonzero(pareto(oriented(space, [rows[i] for i in able])))]


def oriented(space: Space, rows: Sequence[Row]) -> NDArray[np.float64]:
    """(rows, objectives) of costs: metrics of which more is better change their sign."""
    signs = [-1.0 if space.known[name].more else 1.0 for name in space.objectives]
    return np.array([[row.values[name] for name in space.objectives] for row in rows], dtype=np.float64) * signs


def pareto(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows of (n, objectives) no other row dominates."""
    values, inverse = np.unique(costs, axis=0, return_inverse=True)  # sorted: nobody is dominated by a later one
    left = np.arange(len(values))
    on_front = np.zeros(len(values), dtype=bool)
    while left.size:
        on_front[left[0]] = True
        beaten = (values[left] >= values[left[0]]).all(axis=1)
        left = left[~beaten]
    return on_front[inverse.reshape(-1)]


def common(rows: Sequence[Row]) -> dict[str, Any]:
    """The parameters that have one value in all of the rows with a configuration, and that value."""
    tables = [parameters_of(row.config) for row in rows if row.config]
    first = tables[0] if tables else {}
    return {name: value for name, value in first.items() if all(table[name] == value for table in tables)}


def values_of(space: Space, config: Design, costs: Sequence[Cost], clock: float | None = None) -> Mapping[str, float]:
    """The metrics of a configuration; ``costs`` of the space's workloads, in their order; ``clock`` in Hz, if it is not
    the space's.

    Those of energy are left out where a cost has no activity, those of time where it has no cycles of the host. Where
    nothing runs, cycles are 0, and so are the rates. Those of networks and the space's own are in it too, as
    `Space.known` has them. Raises EnergyError.
    """
    hertz = clock or space.clock
    weights = [workload.weight for workload in space.workloads]
    values = {**work_values(_work(space, config, costs, weights, hertz)), **fixed_values(config)}
    for index in sorted({index for index, _ in space.of_networks.values()}):
        alone = work_values(_work(space, config, costs[index : index + 1], [1.0], hertz))
        values |= {name: alone[m] for name, (n, m) in space.of_networks.items() if n == index and m in alone}
    if space.own:
        known = {**parameters_of(config), CLOCK.name: hertz, **values}
        own = {name: expression.value(known) for name, expression in space.own.items()}
        values |= {name: value for name, value in own.items() if value is not None}
    return values


def _work(space: Space, config: Design, costs: Sequence[Cost], weights: Sequence[float], hertz: float) -> Work:
    """Counts of some networks, added up by weight."""

    def total(counts: Sequence[float]) -> float:
        return sum(weight * count for weight, count in zip(weights, counts, strict=True))

    host = [cost.host_cycles for cost in costs if cost.host_cycles is not None]
    parts = energy_parts(space, config, costs, weights)
    return Work(
        config,
        hertz,
        cycles=total([cost.cycles for cost in costs]),
        interval=total([cost.interval for cost in costs]),
        bound_cycles=total([cost.bound_cycles for cost in costs]),
        macs=total([cost.macs for cost in costs]),
        dram_bytes=total([cost.read_bytes + cost.write_bytes for cost in costs]),
        host_macs=total([cost.host_macs for cost in costs]),
        host_nodes=sum(len(cost.host) for cost in costs),
        host_cycles=space.host_cost.at(total(host), hertz) if len(host) == len(costs) else None,
        joules=1e-6 * sum(parts.values()) if parts else None,
        shared=_shared(costs, weights),
    )


def _shared(costs: Sequence[Cost], weights: Sequence[float]) -> Shared | None:
    """What accelerators do together, added up by weight."""
    plans = [(weight / cost.system.inferences, cost.system) for weight, cost in zip(weights, costs, strict=True)
             if cost.system]  # fmt: skip
    if not plans:
        return None
    alone = [weight * cost.system.alone for weight, cost in zip(weights, costs, strict=True)
             if cost.system and cost.system.alone]  # fmt: skip
    return Shared(
        alone=sum(alone) if len(alone) == len(plans) else None,
        waited=sum(share * plan.lost for share, plan in plans),
        worked=sum(share * plan.worked for share, plan in plans),
        beats=sum(share * plan.beats for share, plan in plans),
        lasted=sum(share * plan.plan_cycles for share, plan in plans),
    )


def energy_parts(
    space: Space, config: Design, costs: Sequence[Cost], weights: Sequence[float] = ()
) -> dict[str, float]:
    """µJ of a unit of work by component (see `dovetail.sw.analysis.cost.energy.COMPONENTS`); nothing where a
    cost has no activity. ``weights`` of the costs, if they are not those of the workloads. Raises EnergyError."""
    if not all(cost.activity or cost.system for cost in costs):
        return {}
    table = _table(space.energy_table or DEFAULT_TABLE)
    total: dict[str, float] = {}
    for weight, cost in zip(weights or [workload.weight for workload in space.workloads], costs, strict=True):
        for part, activity, cycles, share in _runs(config, cost):
            for name, pj in energy_of(part, activity, cycles, table).parts.items():
                total[name] = total.get(name, 0.0) + 1e-6 * weight * pj * share
    return total


def _runs(design: Design, cost: Cost) -> Iterator[tuple[Config, Mapping[str, int], int, float]]:
    """Of each accelerator its events, the cycles that they took, and the inferences' share of one of them."""
    if not isinstance(design, Deployment):
        yield design, cost.activity, cost.cycles, 1.0
    elif cost.system:
        for config, activity in zip(design.configs, cost.system.activities, strict=True):
            yield config, activity, cost.system.plan_cycles, 1 / cost.system.inferences


def violations(space: Space, number: int, config: Design, values: Mapping[str, float]) -> dict[str, float]:
    """The violation of each constraint on metrics, by its text; 0 where it is kept."""
    known = known_of(space, number, config, values)
    return {constraint.text: constraint.violation(known) for constraint in space.metric_constraints}


def known_of(space: Space, number: int, config: Design, values: Mapping[str, float]) -> dict[str, Any]:
    """The values of everything that an expression may name, at a point."""
    return {CLOCK.name: space.clock, **parameters_of(config), **space.values(number), **values}


@lru_cache(maxsize=16)
def _table(source: str) -> EnergyTable:
    return load_table(source)
