"""Metrics of a configuration or a system, from exact counts and cost models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dovetail.flows.explore.space.deployment import Design
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import Area, area_of, area_of_all, smallest_part
from dovetail.sw.runtime.clock import milliseconds, per_second

AREA, ENERGY, HOST = "area", "energy", "host"
"""The estimates that a metric may rest on."""


@dataclass(frozen=True)
class Shared:
    """What accelerators of a system do together, of as many plans as there are units of work; added up like
    :class:`Work`.

    ``alone``: cycles of an inference on the fastest accelerator alone, None if none can compute all; ``waited`` and
    ``worked``: cycles that jobs lose to one another, and all of theirs; ``beats``, of the bus's busier direction, and
    ``lasted``: cycles of the whole plan.
    """

    alone: float | None
    waited: float
    worked: float
    beats: float
    lasted: float


@dataclass(frozen=True)
class Work:
    """What metrics follow from: counts of an inference, or of several added up by weight.

    ``hertz``: of the accelerator; ``cycles``: of an inference from its start to its end; ``interval``: from one result
    to the next; ``host_cycles``: of the host in such cycles, estimated, None if it was not asked; ``joules``:
    estimated, None if no event was counted; ``shared``: of systems.
    """

    config: Design
    hertz: float
    cycles: float
    interval: float
    bound_cycles: float
    macs: float
    dram_bytes: float
    host_macs: float
    host_nodes: int
    host_cycles: float | None
    joules: float | None
    shared: Shared | None = None

    @property
    def total(self) -> float | None:
        """Cycles in all."""
        return None if self.host_cycles is None else self.cycles + self._beside

    @property
    def seconds(self) -> float | None:
        """The time that they take."""
        return None if self.total is None else 1e-3 * milliseconds(self.total, self.hertz)

    @property
    def period(self) -> float | None:
        """Cycles from one result to the next, those of the host among them."""
        return None if self.host_cycles is None else self.interval + self._beside

    @property
    def _beside(self) -> float:
        """Cycles of the host that are not among the others: a system's plan has them."""
        return self.host_cycles or 0 if self.shared is None else 0

    @property
    def watts(self) -> float | None:
        """Power."""
        if self.joules is None or self.period is None:
            return None
        return self.joules / (1e-3 * milliseconds(self.period, self.hertz)) if self.period else 0.0


@dataclass(frozen=True)
class Metric:
    """A figure of a configuration.

    Parameters
    ----------
    unit: "%" for a share of 1, which people read in per cent.
    more: more of it is better.
    value: gives it for a :class:`Work`, None if something is not known of that; for a :class:`Config` if ``fixed``: the
        configuration alone tells it. None for what the user defines.
    rests_on: the estimates it is, or is made of.
    """

    name: str
    title: str
    unit: str
    more: bool
    doc: str
    value: Callable[[Any], float | None] | None = None
    rests_on: tuple[str, ...] = ()
    fixed: bool = False

    @property
    def axis(self) -> str:
        """The title of an axis of it; the ticks say bytes and per cent themselves."""
        is_said = self.unit in self.title or self.unit in ("B", "%", "1/s")
        return f"{self.title}{'' if is_said else f' ({self.unit})'}, {'more' if self.more else 'less'} is better"


METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric(
            "cycles", "cycles", "cycles", False,
            "exact cycles of the accelerator per inference, added up over the networks by weight", lambda w: w.cycles,
        ),
        Metric(
            "host_cycles", "host cycles", "cycles", False, "cycles of the host beside these, an estimate whose error"
            " is the table's (`dovetail docs host-cost`)",
            lambda w: w.host_cycles, (HOST,),
        ),
        Metric(
            "total_cycles", "cycles in all", "cycles", False, "cycles and host_cycles, one after the other",
            lambda w: w.total, (HOST,),
        ),
        Metric(
            "latency", "latency", "ms", False, "time of a unit of work, host included, at the clock",
            lambda w: None if w.total is None else milliseconds(w.total, w.hertz), (HOST,),
        ),
        Metric(
            "fps", "frames/s", "1/s", True, "units of work per second, host included, at the clock",
            lambda w: None if w.period is None else per_second(w.period, w.hertz), (HOST,),
        ),
        Metric(
            "utilisation", "utilisation", "%", True,
            "MACs over the peak MACs of the multipliers in that time; 0.5 in expressions is 50 % in tables",
            lambda w: w.macs / (w.interval * w.config.macs_per_cycle) if w.interval else 0.0,
        ),
        Metric(
            "roofline", "cycles / roofline", "", False, "cycles over the roofline bound; 1 is optimal",
            lambda w: w.interval / w.bound_cycles if w.bound_cycles else 0.0,
        ),
        Metric(
            "dram_bytes", "DRAM traffic", "B", False, "bytes that layers move from and to system memory",
            lambda w: w.dram_bytes,
        ),
        Metric("host_macs", "host MACs", "MACs", False, "MACs left to the host", lambda w: w.host_macs),
        Metric("host_nodes", "layers on the host", "", False, "layers left to the host", lambda w: w.host_nodes),
        Metric(
            "energy", "energy", "µJ", False, "energy per unit of work, estimated by the energy table",
            lambda w: None if w.joules is None else 1e6 * w.joules, (ENERGY,),
        ),
        Metric(
            "power", "power", "mW", False, "energy of accelerator and memory over the latency, estimated",
            lambda w: None if w.watts is None else 1e3 * w.watts, (ENERGY, HOST),
        ),
        Metric(
            "edp", "energy x delay", "nJ s", False, "energy times latency, estimated",
            lambda w: None if w.joules is None or w.seconds is None else 1e9 * w.joules * w.seconds, (ENERGY, HOST),
        ),
        Metric(
            "lut", "LUTs", "", False, "4-input LUTs of an ECP5, estimated", lambda c: area_of_design(c).lut, (AREA,),
            fixed=True,
        ),
        Metric(
            "ff", "flip-flops", "", False, "flip-flops of an ECP5, estimated", lambda c: area_of_design(c).ff, (AREA,),
            fixed=True,
        ),
        Metric(
            "dsp", "DSPs", "", False, "18 x 18 multipliers of an ECP5", lambda c: area_of_design(c).dsp, (AREA,),
            fixed=True,
        ),
        Metric(
            "bram", "block RAMs", "", False, "block RAMs of an ECP5, 16 Kibit each",
            lambda c: area_of_design(c).bram, (AREA,), fixed=True,
        ),
        Metric("pe", "PEs", "", False, "multipliers of the array", lambda c: c.macs_per_cycle, fixed=True),
        Metric("sram", "SRAM", "B", False, "on-chip memory", lambda c: c.sram, fixed=True),
    )
}  # fmt: skip
"""Every metric of a configuration, in the order of tables."""
_OF_A_SYSTEM = (
    replace(
        METRICS["cycles"], rests_on=(HOST,),
        doc="cycles of an inference from the host's turn to its end, of several the slowest; exact but for layers of"
        " the host",
    ),
    Metric(
        "interval", "interval", "cycles", False, "cycles from one result to the next while all accelerators are busy;"
        " with the mode latency those of an inference", lambda w: w.interval, (HOST,),
    ),
    Metric(
        "gain", "gain", "", True, "how many times as long the fastest of the accelerators takes alone, over the"
        " interval", lambda w: w.shared.alone / w.interval if w.shared.alone and w.interval else None,
    ),
    Metric(
        "contention", "contention", "%", False, "share of the jobs' cycles that they lose to one another at memory",
        lambda w: max(w.shared.waited / w.shared.worked, 0.0) if w.shared.worked else 0.0,
    ),
    Metric(
        "bus_use", "bus use", "%", False,
        "beats of the busier direction, instructions included, over the cycles of the plan",
        lambda w: w.shared.beats / w.shared.lasted if w.shared.lasted else 0.0,
    ),
    Metric(
        "accelerator_count", "number of accelerators", "", False, "accelerators of the system",
        lambda d: len(d.configs), fixed=True,
    ),
    replace(METRICS["host_cycles"], doc="cycles of the host's layers, which are among those of the plan; an estimate"),
    replace(METRICS["total_cycles"], doc="cycles, those of the host's layers among them"),
    replace(METRICS["sram"], title="SRAM each", doc="on-chip memory of an accelerator, of different ones the most"),
    Metric(
        "total_sram", "total SRAM", "B", False, "on-chip memory of all accelerators", lambda d: d.total_sram, fixed=True
    ),
)  # fmt: skip
_OWN = {m.name: m for m in _OF_A_SYSTEM}
SYSTEM_METRICS: dict[str, Metric] = dict(list(_OWN.items())[:5]) | METRICS | _OWN
"""Every metric of a system, in the order of tables."""


def metrics_of(base: Design) -> Mapping[str, Metric]:
    """The metrics of the points of a space."""
    return METRICS if isinstance(base, Config) else SYSTEM_METRICS


def per_network(metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """Those that each network has too, of one inference: ``resnet8.latency``."""
    return tuple(name for name, metric in metrics.items() if not metric.fixed)


def fixed_of(metrics: Mapping[str, Metric]) -> tuple[str, ...]:
    """Those that the configuration or system alone tells."""
    return tuple(name for name, metric in metrics.items() if metric.fixed)


def own_metric(name: str, text: str) -> Metric:
    """A user's metric: an expression, of which less is better unless ``max`` stands before it."""
    more, expression = direction_of(text)
    return Metric(name, name if name != text else expression, "", more, f"{expression}, by the space")


def direction_of(text: str) -> tuple[bool, str]:
    """Whether more is better, and the expression, of ``max EXPRESSION``, ``min EXPRESSION`` or an expression."""
    found = re.match(r"\s*(max|min)\s+(?!\()", text)
    return (found[1] == "max", text[found.end() :].strip()) if found else (False, text.strip())


@dataclass(frozen=True)
class AreaDoubt:
    """The error of a configuration's estimated area, and the part it fits.

    ``error``: of LUTs and flip-flops, as a share, as far as measured; None where it is not known, as the configuration
    lies ``outside`` of what was measured, in these quantities. ``part``: the smallest supported part that has room, or
    empty.
    """

    error: float | None
    outside: tuple[str, ...]
    part: str


def area_of_design(design: Design) -> Area:
    """The estimated area of an accelerator, or of those of a system and its interconnect.

    Raises DovetailError where there is no estimate.
    """
    return area_of(design) if isinstance(design, Config) else area_of_all(design.configs)


@lru_cache(maxsize=1 << 14)
def area_doubt(design: Design) -> AreaDoubt:
    """The doubt about the metrics of the area. Raises DovetailError where there is no estimate."""
    area = area_of_design(design)
    return AreaDoubt(None if area.extrapolated else area.error, area.extrapolated, smallest_part(area))


@lru_cache(maxsize=1 << 14)
def fixed_values(design: Design) -> Mapping[str, float]:
    """The metrics :func:`fixed_of`. Cached: a table is made again and again while a sweep runs."""
    metrics = metrics_of(design)
    return {name: metric.value(design) or 0 for name, metric in metrics.items() if metric.fixed and metric.value}


def work_values(work: Work) -> dict[str, float]:
    """The metrics :func:`per_network` that are known of some work."""
    metrics = metrics_of(work.config)
    found = {name: metric.value(work) for name, metric in metrics.items() if not metric.fixed and metric.value}
    return {name: value for name, value in found.items() if value is not None}
