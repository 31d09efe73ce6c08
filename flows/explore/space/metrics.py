"""What an architect weighs up: metrics of a configuration, from exact counts and cost models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from dovetail.flows.options.parameters import flat
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import area_of, smallest_part
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, EnergyTable, energy_of, load_table
from dovetail.sw.runtime.clock import milliseconds, per_second

if TYPE_CHECKING:
    from dovetail.flows.explore.pricing.cost import Cost
    from dovetail.flows.explore.space.design_space import Space
    from dovetail.sw.compiler.partition.host_cost import HostCost


@dataclass(frozen=True)
class Metric:
    """A figure of a configuration. ``more``: more of it is better."""

    name: str
    title: str
    unit: str
    more: bool
    doc: str


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(
            "cycles",
            "cycles",
            "cycles",
            False,
            "exact cycles of the accelerator per inference, added up over the networks by weight",
        ),
        Metric(
            "host_cycles",
            "host cycles",
            "cycles",
            False,
            "cycles of the host beside these, an estimate whose error"
            " is the table's (`dovetail docs host-cost`); the default was not measured",
        ),
        Metric("total_cycles", "cycles in all", "cycles", False, "cycles and host_cycles, one after the other"),
        Metric("latency", "latency", "ms", False, "time of a unit of work, host included, at the clock"),
        Metric("fps", "frames/s", "1/s", True, "units of work per second, host included, at the clock"),
        Metric("utilisation", "utilisation", "", True, "MACs over the peak MACs of the multipliers in that time"),
        Metric("roofline", "cycles / roofline", "", False, "cycles over the roofline bound; 1 is optimal"),
        Metric("dram_bytes", "DRAM traffic", "B", False, "bytes that layers move from and to system memory"),
        Metric("host_macs", "host MACs", "MACs", False, "MACs left to the host"),
        Metric("host_nodes", "layers on the host", "", False, "layers left to the host"),
        Metric("energy", "energy", "µJ", False, "energy per unit of work, estimated by the energy table"),
        Metric("power", "power", "mW", False, "energy of accelerator and memory over the latency, estimated"),
        Metric("edp", "energy x delay", "nJ s", False, "energy times latency, estimated"),
        Metric("lut", "LUTs", "", False, "4-input LUTs of an ECP5, estimated"),
        Metric("ff", "flip-flops", "", False, "flip-flops of an ECP5, estimated"),
        Metric("dsp", "DSPs", "", False, "18 x 18 multipliers of an ECP5"),
        Metric("bram", "block RAMs", "", False, "block RAMs of an ECP5, 16 Kibit each"),
        Metric("pe", "PEs", "", False, "multipliers of the array"),
        Metric("sram", "SRAM", "B", False, "on-chip memory"),
    )
}
"""Every metric, in the order of tables."""

PER_NETWORK = (
    *(
        "cycles",
        "host_cycles",
        "total_cycles",
        "latency",
        "fps",
        "utilisation",
        "roofline",
        "dram_bytes",
        "host_macs",
        "host_nodes",
    ),
    *("energy", "power", "edp"),
)
"""Metrics that each network has too, of one inference: ``resnet8.latency``."""
AREA = ("lut", "ff", "dsp", "bram")
"""Metrics of the area model (docs/area.md); the configuration alone tells them."""


def own_metric(name: str, text: str) -> Metric:
    """A user's metric: an expression, of which less is better unless ``max`` stands before it."""
    more, expression = direction_of(text)
    return Metric(name, name if name != text else expression, "", more, f"{expression}, by the space")


def direction_of(text: str) -> tuple[bool, str]:
    """Whether more is better, and the expression, of ``max EXPRESSION``, ``min EXPRESSION`` or an expression."""
    found = re.match(r"\s*(max|min)\s+(?!\()", text)
    return (found[1] == "max", text[found.end() :].strip()) if found else (False, text.strip())


def values_of(space: Space, config: Config, costs: Sequence[Cost], clock: float | None = None) -> Mapping[str, float]:
    """The metrics of a configuration; ``costs`` of the space's workloads, in their order; ``clock`` in Hz, if it is not
    the space's.

    Those of energy are left out where a cost has no activity, those of time where it has no cycles of the host. Where
    nothing runs, cycles are 0, and so are the rates. Those of networks and the space's own are in it too, as
    `Space.known` has them. Raises EnergyError.
    """
    hertz = clock or space.clock
    weights = [workload.weight for workload in space.workloads]
    values = _of_work(space, config, costs, weights, hertz)
    values |= {"pe": config.macs_per_cycle, "sram": config.sram, **area_values(config)}
    for index in sorted({index for index, _ in space.of_networks.values()}):
        alone = _of_work(space, config, costs[index : index + 1], [1.0], hertz)
        values |= {name: alone[m] for name, (n, m) in space.of_networks.items() if n == index and m in alone}
    if space.own:
        known = {**flat(config), "clock": hertz, **values}
        own = {name: expression.value(known) for name, expression in space.own.items()}
        values |= {name: value for name, value in own.items() if value is not None}
    return values


def _of_work(
    space: Space, config: Config, costs: Sequence[Cost], weights: Sequence[float], hertz: float
) -> dict[str, float]:
    """What follows from counts of some networks, added up by weight."""

    def total(counts: Sequence[float]) -> float:
        return sum(weight * count for weight, count in zip(weights, counts, strict=True))

    cycles = total([cost.cycles for cost in costs])
    bound = total([cost.bound_cycles for cost in costs])
    macs = total([cost.macs for cost in costs])
    values = {
        "cycles": cycles,
        "utilisation": macs / (cycles * config.macs_per_cycle) if cycles else 0.0,
        "roofline": cycles / bound if bound else 0.0,
        "dram_bytes": total([cost.read_bytes + cost.write_bytes for cost in costs]),
        "host_macs": total([cost.host_macs for cost in costs]),
        "host_nodes": sum(len(cost.host) for cost in costs),
    }
    host = [cost.host_cycles for cost in costs if cost.host_cycles is not None]
    if len(host) == len(costs):
        values |= times_of(space.host_cost, cycles, total(host), hertz)
    if parts := energy_parts(space, config, costs, weights):
        joules = 1e-6 * sum(parts.values())
        values["energy"] = 1e6 * joules
        if "latency" in values:
            seconds = 1e-3 * values["latency"]
            values |= {"power": 1e3 * joules / seconds if seconds else 0.0, "edp": 1e9 * joules * seconds}
    return values


def energy_parts(
    space: Space, config: Config, costs: Sequence[Cost], weights: Sequence[float] = ()
) -> dict[str, float]:
    """µJ of a unit of work by component (see `dovetail.sw.analysis.cost.energy_report.COMPONENTS`); nothing where a
    cost has no activity. ``weights`` of the costs, if they are not those of the workloads. Raises EnergyError."""
    if not all(cost.activity for cost in costs):
        return {}
    table = _table(space.energy_table or DEFAULT_TABLE)
    total: dict[str, float] = {}
    for weight, cost in zip(weights or [workload.weight for workload in space.workloads], costs, strict=True):
        for name, pj in energy_of(config, cost.activity, cost.cycles, table).parts.items():
            total[name] = total.get(name, 0.0) + 1e-6 * weight * pj
    return total


def times_of(cost: HostCost, cycles: float, host_cycles: float, clock: float) -> dict[str, float]:
    """The metrics of time for cycles of the accelerator and of the host; ``cost``: of the host; ``clock`` in Hz."""
    host = cost.at(host_cycles, clock)
    total = cycles + host
    return {
        "host_cycles": host,
        "total_cycles": total,
        "latency": milliseconds(total, clock),
        "fps": per_second(total, clock),
    }


@dataclass(frozen=True)
class AreaDoubt:
    """How good the estimated area of a configuration is.

    ``error``: of LUTs and flip-flops, as a share, as far as measured; None where it is not known, as the configuration
    lies ``outside`` of what was measured, in these quantities. ``part``: the smallest supported part that has room, or
    empty.
    """

    error: float | None
    outside: tuple[str, ...]
    part: str


@lru_cache(maxsize=1 << 14)
def area_doubt(config: Config) -> AreaDoubt:
    """How good the estimate behind :func:`area_values` is. Raises DovetailError where there is none."""
    area = area_of(config)
    return AreaDoubt(None if area.extrapolated else area.error, area.extrapolated, smallest_part(area))


@lru_cache(maxsize=1 << 14)
def area_values(config: Config) -> Mapping[str, float]:
    """The metrics of :data:`AREA`. Cached: a table is made again and again while a sweep runs."""
    area = area_of(config)
    return {name: getattr(area, name) for name in AREA}


@lru_cache(maxsize=16)
def _table(source: str) -> EnergyTable:
    return load_table(source)
