"""Synthetic results for the page: costs that follow the configuration in the direction that real ones would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.row import Row, row_of
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space.design_space import Space
from dovetail.isa.config.resolved import Config

REASON = "layer conv</script><script>document.title='broken out'</script>: one row must fit into SRAM"
"""An error text that tries to leave the data of the page."""

STUDY_AXES: dict[str, Sequence[Any]] = {
    "pe": (64, 128),
    "sram": (512 << 10, 1 << 20, 256 << 20),
    "dataflow": ("input", "output"),
    "depthwise": ("none", "emulated", "native"),
}
MANY_AXES: dict[str, Sequence[Any]] = {
    "lanes": [(i, o) for i in (4, 8, 12, 16, 24, 32) for o in (4, 8, 12, 16, 24, 32) if 48 <= i * o <= 576],
    "depthwise": ("none", "emulated", "native"),
    "stripe": (8, 16, 32, 64),
    "bus": (32, 64, 128, 256),
    "sram": [k << 10 for k in (64, 128, 256, 512, 1024, 2048, 4096)],
}


def cost_of(config: Config, scale: float = 1.0) -> Cost:
    """A cost that follows the configuration in the direction that a real one would."""
    pe = config.macs_per_cycle
    kinds = {
        "conv": int(
            scale * (5.1e8 / pe * (1 + 0.3 * abs(config.ic_lanes - config.oc_lanes) / pe) + 4e11 / config.sram)
        ),
        "depthwise": 0 if config.depthwise == "none" else int(scale * 1.7e7 / (config.oc_lanes * config.pixel_lanes)),
        "dense": int(2e6 * 64 / config.bus),
    }
    host = (("dw1", "depthwise", 500),) if config.depthwise == "none" else ()
    macs = int(5.1e8 * scale)
    return Cost(sum(kinds.values()), macs, macs // pe, 4_200_000, 1_200_000, kinds, host, host_cycles=2000)


def results_of(space: Space, failing: int = 37) -> Results:
    """Every point of a space with such costs; every ``failing``-th fails, some are confirmed."""
    rows: list[Row] = []
    for point in map(space.point, range(len(space))):
        if point.number % failing == 5 or not isinstance(point.config, Config):
            rows.append(row_of(space, point, (), error=REASON))
        else:
            costs = [cost_of(point.config, 1 + 0.4 * n) for n in range(len(space.workloads))]
            rows.append(row_of(space, point, costs, seconds=0.1))
    return Results(space, tuple(rows), len(rows)).marked()
