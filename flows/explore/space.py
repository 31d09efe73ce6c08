"""A space of configurations, the networks it is explored with, and what counts there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.isa.config import Config


@dataclass(frozen=True)
class Workload:
    """A network of the exploration.

    ``source``: a file or a ``zoo:`` name; ``weight``: inferences of it per unit of work, by which cycles, energy and
    traffic are added up; ``shapes``: sizes of inputs that the file leaves open.
    """

    source: str
    weight: float = 1.0
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Space:
    """All combinations of the values of ``axes``, on top of ``base``, that keep the constraints on parameters.

    ``axes``: parameter name (of `dovetail.flows.parameters.PARAMETERS`) -> values, outermost first. ``constraints``:
    expressions over parameters and metrics (``"ic_lanes * oc_lanes <= 256"``, ``"lut <= 60000"``); those over
    parameters alone rule points out, the others make them infeasible. ``objectives``: names of metrics. ``clock``: Hz.
    """

    workloads: tuple[Workload, ...]
    base: Config
    axes: Mapping[str, Sequence[Any]]
    constraints: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ("cycles", "lut")
    clock: float = 100e6
    tiling: str = "free"
    effort: int = 0
