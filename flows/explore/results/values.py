"""The metrics of a priced point: networks are added up by weight, expressions are evaluated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.metrics import Work, fixed_values, work_values
from dovetail.flows.options.parameters import CLOCK, flat
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, EnergyTable, energy_of, load_table


def values_of(space: Space, config: Config, costs: Sequence[Cost], clock: float | None = None) -> Mapping[str, float]:
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
        known = {**flat(config), CLOCK.name: hertz, **values}
        own = {name: expression.value(known) for name, expression in space.own.items()}
        values |= {name: value for name, value in own.items() if value is not None}
    return values


def _work(space: Space, config: Config, costs: Sequence[Cost], weights: Sequence[float], hertz: float) -> Work:
    """Counts of some networks, added up by weight."""

    def total(counts: Sequence[float]) -> float:
        return sum(weight * count for weight, count in zip(weights, counts, strict=True))

    host = [cost.host_cycles for cost in costs if cost.host_cycles is not None]
    parts = energy_parts(space, config, costs, weights)
    return Work(
        config,
        hertz,
        cycles=total([cost.cycles for cost in costs]),
        bound_cycles=total([cost.bound_cycles for cost in costs]),
        macs=total([cost.macs for cost in costs]),
        dram_bytes=total([cost.read_bytes + cost.write_bytes for cost in costs]),
        host_macs=total([cost.host_macs for cost in costs]),
        host_nodes=sum(len(cost.host) for cost in costs),
        host_cycles=space.host_cost.at(total(host), hertz) if len(host) == len(costs) else None,
        joules=1e-6 * sum(parts.values()) if parts else None,
    )


def energy_parts(
    space: Space, config: Config, costs: Sequence[Cost], weights: Sequence[float] = ()
) -> dict[str, float]:
    """µJ of a unit of work by component (see `dovetail.sw.analysis.cost.energy.COMPONENTS`); nothing where a
    cost has no activity. ``weights`` of the costs, if they are not those of the workloads. Raises EnergyError."""
    if not all(cost.activity for cost in costs):
        return {}
    table = _table(space.energy_table or DEFAULT_TABLE)
    total: dict[str, float] = {}
    for weight, cost in zip(weights or [workload.weight for workload in space.workloads], costs, strict=True):
        for name, pj in energy_of(config, cost.activity, cost.cycles, table).parts.items():
            total[name] = total.get(name, 0.0) + 1e-6 * weight * pj
    return total


def violations(space: Space, number: int, config: Config, values: Mapping[str, float]) -> dict[str, float]:
    """The violation of each constraint on metrics, by its text; 0 where it is kept."""
    known = known_of(space, number, config, values)
    return {constraint.text: constraint.violation(known) for constraint in space.metric_constraints}


def known_of(space: Space, number: int, config: Config, values: Mapping[str, float]) -> dict[str, Any]:
    """The values of everything that an expression may name, at a point."""
    return {CLOCK.name: space.clock, **flat(config), **space.values(number), **values}


@lru_cache(maxsize=16)
def _table(source: str) -> EnergyTable:
    return load_table(source)
