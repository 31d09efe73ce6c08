"""Metrics of a configuration, from exact counts and cost models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import area_of, smallest_part
from dovetail.sw.runtime.clock import milliseconds, per_second

AREA, ENERGY, HOST = "area", "energy", "host"
"""The estimates that a metric may rest on."""


@dataclass(frozen=True)
class Work:
    """What metrics follow from: counts of an inference, or of several added up by weight.

    ``hertz``: of the accelerator; ``host_cycles``: of the host in such cycles, estimated, None if it was not asked;
    ``joules``: estimated, None if no event was counted.
    """

    config: Config
    hertz: float
    cycles: float
    bound_cycles: float
    macs: float
    dram_bytes: float
    host_macs: float
    host_nodes: int
    host_cycles: float | None
    joules: float | None

    @property
    def total(self) -> float | None:
        """Cycles in all."""
        return None if self.host_cycles is None else self.cycles + self.host_cycles

    @property
    def seconds(self) -> float | None:
        """The time that they take."""
        return None if self.total is None else 1e-3 * milliseconds(self.total, self.hertz)

    @property
    def watts(self) -> float | None:
        """Power."""
        if self.joules is None or self.seconds is None:
            return None
        return self.joules / self.seconds if self.seconds else 0.0


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
            " is the table's (`dovetail docs host-cost`); the default was not measured",
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
            lambda w: None if w.total is None else per_second(w.total, w.hertz), (HOST,),
        ),
        Metric(
            "utilisation", "utilisation", "%", True,
            "MACs over the peak MACs of the multipliers in that time; 0.5 in expressions is 50 % in tables",
            lambda w: w.macs / (w.cycles * w.config.macs_per_cycle) if w.cycles else 0.0,
        ),
        Metric(
            "roofline", "cycles / roofline", "", False, "cycles over the roofline bound; 1 is optimal",
            lambda w: w.cycles / w.bound_cycles if w.bound_cycles else 0.0,
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
            lambda w: None if w.watts is None else 1e9 * w.joules * w.seconds, (ENERGY, HOST),
        ),
        Metric(
            "lut", "LUTs", "", False, "4-input LUTs of an ECP5, estimated", lambda c: area_of(c).lut, (AREA,),
            fixed=True,
        ),
        Metric(
            "ff", "flip-flops", "", False, "flip-flops of an ECP5, estimated", lambda c: area_of(c).ff, (AREA,),
            fixed=True,
        ),
        Metric(
            "dsp", "DSPs", "", False, "18 x 18 multipliers of an ECP5", lambda c: area_of(c).dsp, (AREA,), fixed=True
        ),
        Metric(
            "bram", "block RAMs", "", False, "block RAMs of an ECP5, 16 Kibit each", lambda c: area_of(c).bram, (AREA,),
            fixed=True,
        ),
        Metric("pe", "PEs", "", False, "multipliers of the array", lambda c: c.macs_per_cycle, fixed=True),
        Metric("sram", "SRAM", "B", False, "on-chip memory", lambda c: c.sram, fixed=True),
    )
}  # fmt: skip
"""Every metric, in the order of tables."""

PER_NETWORK = tuple(name for name, metric in METRICS.items() if not metric.fixed)
"""Metrics that each network has too, of one inference: ``resnet8.latency``."""
FIXED = tuple(name for name, metric in METRICS.items() if metric.fixed)
"""Metrics that the configuration alone tells."""


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


@lru_cache(maxsize=1 << 14)
def area_doubt(config: Config) -> AreaDoubt:
    """The doubt about the metrics of the area. Raises DovetailError where there is no estimate."""
    area = area_of(config)
    return AreaDoubt(None if area.extrapolated else area.error, area.extrapolated, smallest_part(area))


@lru_cache(maxsize=1 << 14)
def fixed_values(config: Config) -> Mapping[str, float]:
    """The metrics :data:`FIXED`. Cached: a table is made again and again while a sweep runs."""
    return {name: metric.value(config) or 0 for name, metric in METRICS.items() if metric.fixed and metric.value}


def work_values(work: Work) -> dict[str, float]:
    """The metrics :data:`PER_NETWORK` that are known of some work."""
    found = {name: metric.value(work) for name, metric in METRICS.items() if not metric.fixed and metric.value}
    return {name: value for name, value in found.items() if value is not None}
