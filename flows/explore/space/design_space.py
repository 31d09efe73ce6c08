"""A space of configurations, the networks it is explored with, and what counts there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import islice
from math import prod
from pathlib import PurePath
from typing import Any

from dovetail.flows.explore.space import expressions
from dovetail.flows.explore.space.deployment import (
    Deployment,
    Design,
    changed_design,
    check_axes,
    columns_of,
    parameters_of,
)
from dovetail.flows.explore.space.expressions import FUNCTIONS, Constraint, Expression, Scope
from dovetail.flows.explore.space.metrics import (
    Metric,
    direction_of,
    fixed_values,
    metrics_of,
    own_metric,
    per_network,
)
from dovetail.flows.options.parameters import AXES, CLOCK, DERIVED, dataflow_of, named_lanes
from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.given import ARRAY_LANES, ConfigError, Parameter, check_shape
from dovetail.isa.config.resolved import lanes_of
from dovetail.sw.analysis.cost.area import PARTS
from dovetail.sw.compiler.partition.host_cost import HostCost, default_host
from dovetail.sw.runtime.clock import CLOCKS

SHAPE = ("lanes", "pe", "ic_lanes", "oc_lanes", "pixel_lanes", "dataflow")
"""Settings that say what shape the array has; the value of one follows from the others."""

SLOWEST_FIRST = (
    "accelerators", "total_sram", "mode", "inferences", *SHAPE,
    "depthwise", "matmul", "pooling", "elementwise", "activation", "softmax", "norm", "norm_bits", "extensions",
    "parameters", "kernel_rows", "requant_lanes", "vector_lanes", "stripe", "outstanding", "bus", "banks", "sram",
    "memory_model", "read_latency", "write_latency", "beat_cycles", CLOCK.name,
)  # fmt: skip
"""The order in which points are handed out: neighbours differ in what the compiler can keep most of."""


METHODS = ("exhaustive", "random", "optuna", "narrow")
"""Ways to search."""
SAMPLERS = ("nsga2", "nsga3", "tpe", "gp")
"""Optuna's samplers."""
HOSTS = ("least", "any")
"""Which points compete for the front: only those that leave the least work to the host, or all."""
MOST = (1 << 63) - 1
"""Combinations of a space, at most."""
WEIGHTS = (1e-9, 1e9)
"""Limits of a workload's weight."""
EACH = "each"
SCENARIOS = ("worst", "mean", EACH)
"""How the scenarios of a configuration are combined, unless one of them is chosen; each: they compete."""
PART_NAMES = tuple(name.lower() for name in PARTS)


def usual_goals(base: Design, axes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """What a space of systems has where it says nothing of them: memories compete, as they are parts of systems; with
    throughput among the modes the interval is an objective."""
    if not isinstance(base, Deployment):
        return {}
    modes = axes.get("mode", (base.mode,))
    times = [name for name, mode in (("cycles", "latency"), ("interval", "throughput")) if mode in modes]
    return {"objectives": (*times, "lut"), "scenario": EACH}


STUDY: Mapping[str, Sequence[Any]] = {
    "pe": (64, 128),
    "sram": (512 << 10, 1 << 20, 256 << 20),
    "dataflow": ("input", "output"),
    "depthwise": ("none", "emulated", "native"),
}
"""The 36 configurations of the reference study, as axes of a space."""


@dataclass(frozen=True)
class Workload:
    """A network of the exploration.

    ``source``: a file or a ``zoo:`` name; ``weight``: inferences of it per unit of work, by which cycles, energy and
    traffic are added up; ``shapes``: sizes of inputs that the file leaves open; ``name``: in expressions, such as
    ``resnet8.latency``; left out, the file's. Raises ConfigError.
    """

    source: str
    weight: float = 1.0
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    name: str = ""

    def __post_init__(self) -> None:
        if not WEIGHTS[0] <= self.weight <= WEIGHTS[1]:
            raise ConfigError(f"weight must be {WEIGHTS[0]:g} to {WEIGHTS[1]:g}, not {self.weight}")
        if self.name and not self.name.isidentifier():
            raise ConfigError(f"name must be a word of letters, digits and _, not {self.name!r}")


@dataclass(frozen=True)
class Plan:
    """How a space is searched (see `dovetail.flows.explore.search`).

    ``points``: how many are looked at, 0: as many as the method wants. ``sampler``, ``storage`` (a URL or a file) and
    ``study`` (its name there) are Optuna's. Raises ConfigError.
    """

    method: str = "exhaustive"
    points: int = 0
    seed: int = 0
    sampler: str = "nsga2"
    storage: str = ""
    study: str = ""

    def __post_init__(self) -> None:
        for name, value, choices in (("search", self.method, METHODS), ("sampler", self.sampler, SAMPLERS)):
            if value not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
        if self.points < 0:
            raise ConfigError(f"points must be at least 1, or 0 for as many as the search wants, not {self.points}")


@dataclass(frozen=True)
class Point:
    """A configuration of a space. ``axes``: the values of what varies, by parameter name, outermost first.

    ``config`` is None, and ``error`` says why, where the combination breaks a rule of the configuration. ``clock``: Hz.
    """

    number: int
    axes: Mapping[str, Any]
    config: Design | None
    error: str = ""
    clock: float = 100e6


def _read(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values of an axis, with sizes and frequencies as numbers. Raises ConfigError."""
    try:
        return tuple(map(AXES[name].kind.read, values))
    except ValueError as error:
        raise ConfigError(f"axis {name}: {error}") from None


@dataclass(frozen=True)
class Space:
    """All combinations of the values of ``axes``, on top of ``base``, that keep the constraints which need no cost.

    Points are numbered through all combinations, the last axis fastest, and made when asked for. Those that break such
    a constraint are not in the space, but have numbers, so that numbers stay when a constraint changes.

    Parameters
    ----------
    workloads: at least one network.
    base: what the axes change.
    axes: setting (of `dovetail.flows.options.parameters.AXES`) -> its values, outermost first. Those of the memory's
        timing are properties of the world: their combinations are scenarios, which do not compete with each other.
    constraints: expressions over parameters and metrics; those that the configuration alone tells
        (``"ic_lanes * oc_lanes <= 256"``, ``"lut <= 60000"``) rule points out, the others make them infeasible.
    objectives: names of metrics, or expressions over them; of these less is better unless ``max`` stands before them.
    clock: Hz, of points without a clock of their own.
    tiling, effort, keep_weights: of the compiler.
    host_cost: what the host costs, by which the compiler leaves it work and its cycles are counted, an estimate.
    energy_table: a file of energies, else the one that comes with the package.
    host: "least": only points that leave the least to the host compete for the front; "any": all do.
    search: how it is searched.
    metrics: of the user: name -> expression, each over those before it; ``max`` before one: more is better.
    part: the FPGA that the estimated area must fit, of :data:`PART_NAMES`; empty: any.
    scenario: "worst" or "mean": what of its scenarios counts for a configuration; or the one that counts, as values of
        axes of the memory's timing.

    Raises
    ------
    ConfigError: an axis, an objective or the clock cannot be; the shape of the array is given in two ways; there are
        too many combinations.
    ExpressionError: a constraint cannot be read.
    """

    workloads: tuple[Workload, ...]
    base: Design
    axes: Mapping[str, Sequence[Any]]
    constraints: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ("cycles", "lut")
    clock: float = 100e6
    tiling: str = "free"
    effort: int = 0
    keep_weights: bool = False
    energy_table: str = ""
    host: str = "least"
    search: Plan = Plan()
    host_cost: HostCost = field(default_factory=default_host)
    metrics: Mapping[str, str] = field(default_factory=dict)
    part: str = ""
    scenario: str | Mapping[str, Any] = SCENARIOS[0]

    @property
    def compiler(self) -> dict[str, Any]:
        """What `compile_network` is told besides network and configuration."""
        return {
            "tiling": self.tiling,
            "effort": self.effort,
            "host": self.host_cost,
            "keep_weights": self.keep_weights,
        }

    def __post_init__(self) -> None:
        for name in self.axes:
            if name not in SLOWEST_FIRST:
                raise ConfigError(f'axes must be configuration parameters, not "{name}"{nearest(name, SLOWEST_FIRST)}')
        object.__setattr__(self, "axes", {name: _read(name, values) for name, values in self.axes.items()})
        check_axes(self.base, self.axes)
        if isinstance(self.base, Deployment) and self.host_cost.clock:
            raise ConfigError("host_cost must be in cycles of the accelerators for systems, not of a host's own clock")
        if isinstance(self.base, Deployment) and self.keep_weights:
            raise ConfigError("keep_weights must be left out for systems, whose accelerators run several programs")
        check_shape(self.axes)
        if prod(map(len, self.axes.values())) > MOST:
            raise ConfigError("axes must have fewer than 2^63 combinations; leave some out, or values of some")
        if not CLOCKS[0] <= self.clock <= CLOCKS[1]:
            raise ConfigError(f"clock must be {CLOCKS[0]:g} to {CLOCKS[1]:g} Hz, not {self.clock}")
        if self.part and self.part not in PART_NAMES:
            raise ConfigError(f"part must be one of {', '.join(PART_NAMES)}, not {self.part!r}")
        self._check_metrics()
        self._check_scenario()
        for text in self.constraints:
            expressions.parse(text, self.scope)

    def _check_metrics(self) -> None:
        """Check the user's metrics and the objectives."""
        for n, (name, text) in enumerate(self.metrics.items()):
            if not name.isidentifier() or name in {*AXES, *metrics_of(self.base), *FUNCTIONS}:
                raise ConfigError(f"metrics must have names of their own, of letters, digits and _, not {name!r}")
            before = replace(self.scope, own=self.scope.own[:n])
            expressions.parse_number(direction_of(text)[1], before)
        for text in self.objectives:
            if not text.strip() or (_is_name(text) and text not in self.known):
                word = text.rpartition(".")[2] if "." in text else text
                raise ConfigError(f'objectives must be metrics, not "{text}"{nearest(word, tuple(self.known))}')
            if not _is_name(text):
                expressions.parse_number(direction_of(text)[1], self.scope)
        if len(set(self.objectives)) != len(self.objectives) or not self.objectives:
            raise ConfigError(f"objectives must be one metric or more, each once, not {', '.join(self.objectives)!r}")

    def _check_scenario(self) -> None:
        """Check that the scenario that counts is one of the space."""
        if isinstance(self.scenario, str):
            if self.scenario not in SCENARIOS:
                raise ConfigError(
                    f"scenario must be {', '.join(SCENARIOS)}, or one such as read_latency=40, not {self.scenario!r}"
                )
            return
        for name, value in self.scenario.items():
            if name not in self.scenario_axes:
                of = ", ".join(self.scenario_axes) or "none here"
                raise ConfigError(f"scenario must be of axes of the memory's timing ({of}), not {name}")
            if value not in self.axes[name]:
                values = ", ".join(map(str, self.axes[name]))
                raise ConfigError(f"scenario must have a value of the axis {name} ({values}), not {value}")

    def __repr__(self) -> str:
        axes = ", ".join(f"{name} ({len(values)})" for name, values in self.axes.items())
        networks = ", ".join(workload.source for workload in self.workloads)
        return f"<Space of {networks} over {axes or 'one point'}>"

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is kept of constraints

    def __len__(self) -> int:
        """All combinations, those that are ruled out included: numbers run from 0 to below this."""
        return prod(map(len, self.axes.values()))

    def __iter__(self) -> Iterator[Point]:
        """The points, in the order of :meth:`numbers`."""
        return map(self.point, self.numbers())

    def indices(self, number: int) -> tuple[int, ...]:
        """Which value each axis has at a point."""
        if not 0 <= number < len(self):
            raise IndexError(f"number must be 0..{len(self) - 1}, not {number}")
        return tuple(number // stride % len(values) for stride, values in self._strides.values())

    def number(self, indices: Sequence[int]) -> int:
        """The inverse of :meth:`indices`."""
        return sum(stride * index for (stride, _), index in zip(self._strides.values(), indices, strict=True))

    def values(self, number: int) -> dict[str, Any]:
        """The value of each axis at a point."""
        return {name: values[i] for (name, values), i in zip(self.axes.items(), self.indices(number), strict=True)}

    def point(self, number: int) -> Point:
        """The point of a number, ruled out or not. Raises IndexError."""
        values = self.values(number)
        axes = {name: value for name, value in values.items() if len(self.axes[name]) > 1}
        clock = values.pop(CLOCK.name, self.clock)
        try:
            return Point(number, axes, changed_design(self.base, values), clock=clock)
        except ConfigError as error:
            return Point(number, axes, None, str(error), clock)

    def admits(self, number: int) -> bool:
        """Whether the point keeps the constraints that need no cost."""
        values = self.values(number)
        known = {**self._fixed, **values, **self._shape(values)}
        return all(rule.holds(known) for rules in self._rules for rule in rules) and self._admits_late(number)

    def numbers(self) -> Iterator[int]:
        """The numbers of all points that are not ruled out, so that neighbours share as much as possible."""
        walk = self._walk(0, 0, self._fixed, {})
        return filter(self._admits_late, walk) if self._late else walk

    def rank(self, number: int) -> tuple[int, ...]:
        """The key by which :meth:`numbers` is sorted."""
        indices = dict(zip(self.axes, self.indices(number), strict=True))
        return tuple(indices[name] for name in self._order)

    def count(self, most: int = 0) -> int:
        """How many :meth:`numbers` there are; ``most``: do not look for more than these."""
        if self._late or 0 < most < len(self):
            return sum(1 for _ in islice(self.numbers(), most or None))
        return self._count(0, self._fixed, {})

    # --- what names mean ----------------------------------------------------------------------------------------

    @cached_property
    def scope(self) -> Scope:
        """What expressions may name besides parameters and metrics."""
        own = tuple((name, direction_of(text)[1]) for name, text in self.metrics.items())
        names = [workload.name or _word(workload.source) for workload in self.workloads]
        told = [name if names.count(name) == 1 else f"{name}_{place}" for place, name in enumerate(names, 1)]
        return Scope(tuple(told), own, isinstance(self.base, Deployment))

    @property
    def metrics_built_in(self) -> Mapping[str, Metric]:
        """The metrics of every space like this one."""
        return metrics_of(self.base)

    @property
    def columns(self) -> Mapping[str, Parameter]:
        """The parameters of a point, as tables have them."""
        return columns_of(self.base)

    @cached_property
    def of_networks(self) -> Mapping[str, tuple[int, str]]:
        """Metrics of one network: name -> (index of the workload, metric). Of a single network only those asked for."""
        every = {
            f"{n}.{m}": (index, m)
            for index, n in enumerate(self.scope.networks)
            for m in per_network(self.metrics_built_in)
        }
        if len(self.workloads) > 1:
            return every
        texts = " ".join([*self.constraints, *self.objectives, *self.metrics.values()])
        return {name: place for name, place in every.items() if name in texts}

    @cached_property
    def known(self) -> Mapping[str, Metric]:
        """Every metric of this space by name: the built-in ones, those of each network, the user's own, and objectives
        that are expressions."""
        known = dict(self.metrics_built_in)
        for name, (index, metric) in self.of_networks.items():
            network, of = self.scope.networks[index], known[metric]
            known[name] = replace(of, name=name, title=f"{network} {of.title}", doc=f"{of.doc}; of {network} alone")
        known |= {name: own_metric(name, text) for name, text in self.metrics.items()}
        return known | {
            text: own_metric(text, text) for text in self.objectives if text not in known and not _is_name(text)
        }

    @cached_property
    def own(self) -> Mapping[str, Expression]:
        """The metrics that are expressions, by name."""
        built_in = {*self.metrics_built_in, *self.of_networks}
        return {
            name: expressions.parse_number(name if name in self.metrics else direction_of(name)[1], self.scope)
            for name in self.known
            if name not in built_in
        }

    @cached_property
    def all_constraints(self) -> tuple[Constraint, ...]:
        """The constraints, and the part as one."""
        parsed = [expressions.parse(text, self.scope) for text in self.constraints]
        if self.part:
            has = next(resources for name, resources in PARTS.items() if name.lower() == self.part)
            fits = " and ".join(f"{name} <= {amount}" for name, amount in vars(has).items())
            parsed.append(replace(expressions.parse(fits), text=f'part = "{self.part}"'))
        return tuple(parsed)

    @cached_property
    def metric_constraints(self) -> tuple[Constraint, ...]:
        """The constraints that need costs."""
        return tuple(constraint for constraint in self.all_constraints if constraint.needs_cost)

    @cached_property
    def scenario_axes(self) -> tuple[str, ...]:
        """The axes that are properties of the world: the memory's timing, where it has several values."""
        if self.scenario == EACH:
            return ()
        return tuple(name for name, values in self.axes.items() if AXES[name].memory and len(values) > 1)

    # --- constraints without costs: checked as soon as the axes that they need have values ----------------------

    @cached_property
    def _strides(self) -> dict[str, tuple[int, Sequence[Any]]]:
        strides: dict[str, tuple[int, Sequence[Any]]] = {}
        stride = 1
        for name, values in reversed(list(self.axes.items())):
            strides[name] = stride, values
            stride *= len(values)
        return dict(reversed(list(strides.items())))

    @cached_property
    def _order(self) -> list[str]:
        return sorted(self.axes, key=SLOWEST_FIRST.index)

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        """The parameters that no axis has an influence on."""
        varies = {*self.axes, *DERIVED, *(SHAPE if set(SHAPE) & set(self.axes) else ())}
        if isinstance(self.base, Deployment):  # most of it follows from the accelerators
            return {} if CLOCK.name in varies else {CLOCK.name: self.clock}
        known = {**parameters_of(self.base), CLOCK.name: self.clock}
        return {name: value for name, value in known.items() if name not in varies}

    @cached_property
    def _rules(self) -> list[list[Constraint]]:
        """For each axis of the order the constraints that can be told from there on."""
        rules: list[list[Constraint]] = [[] for _ in self._order]
        shape = [depth for depth, name in enumerate(self._order) if name in SHAPE]
        depths = dict.fromkeys(self._fixed, 0)
        depths |= {name: shape[-1] for name in SHAPE if shape}
        depths |= {name: depth for depth, name in enumerate(self._order)}
        for constraint in self.all_constraints:
            if constraint.names <= depths.keys() and rules:
                rules[max(depths[name] for name in constraint.names)].append(constraint)
        return rules

    @cached_property
    def _late(self) -> list[Constraint]:
        """The constraints that only a finished configuration tells."""
        early = [rule for rules in self._rules for rule in rules]
        return [c for c in self.all_constraints if not c.needs_cost and c not in early]

    def _admits_late(self, number: int) -> bool:
        if not self._late:
            return True
        point = self.point(number)
        if point.config is None:  # as where a value does not exist
            return False
        values = {
            **parameters_of(point.config),
            **fixed_values(point.config),
            CLOCK.name: point.clock,
            **self.values(number),
        }
        return all(constraint.holds(values) for constraint in self._late)

    def _shape(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What follows for the shape of the array once all of its axes have values; nothing if it breaks a rule."""
        if not set(SHAPE) & set(values):
            return {}
        lanes = {name: values.get(name, getattr(self.base, name)) for name in ARRAY_LANES}
        if "lanes" in values:
            lanes = named_lanes(values["lanes"])
        elif {"pe", "dataflow"} & set(values):
            try:
                pe, dataflow = values.get("pe", self.base.macs_per_cycle), values.get("dataflow", "mixed")
                lanes = named_lanes(lanes_of(pe, dataflow))
            except ConfigError:
                return {}
        return {"pe": prod(lanes.values()), "dataflow": dataflow_of(*lanes.values()), **lanes, **values}

    def _steps(self, depth: int, known: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[tuple[int, Any, Any]]:
        """(index, known, own) for each value of the axis at ``depth`` that keeps the constraints there."""
        name = self._order[depth]
        last_of_shape = name in SHAPE and not set(SHAPE) & set(self._order[depth + 1 :])
        for index, value in enumerate(self.axes[name]):
            mine = {**own, name: value} if name in SHAPE else own
            inner = {**known, name: value, **(self._shape(mine) if last_of_shape else {})}
            if all(rule.holds(inner) for rule in self._rules[depth]):
                yield index, inner, mine

    def _walk(self, depth: int, number: int, known: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[int]:
        if depth == len(self._order):
            yield number
            return
        stride = self._strides[self._order[depth]][0]
        for index, inner, mine in self._steps(depth, known, own):
            yield from self._walk(depth + 1, number + stride * index, inner, mine)

    def _count(self, depth: int, known: Mapping[str, Any], own: Mapping[str, Any]) -> int:
        if not any(self._rules[depth:]):
            return prod(len(self.axes[name]) for name in self._order[depth:])
        return sum(self._count(depth + 1, inner, mine) for _, inner, mine in self._steps(depth, known, own))


def _is_name(text: str) -> bool:
    """Whether it is a word, or a network's; else it is an expression."""
    return not text.strip() or text.replace(".", "_").isidentifier()


def _word(source: str) -> str:
    """A network's name as expressions can write it."""
    word = re.sub(r"\W", "_", PurePath(source.removeprefix("zoo:").partition("?")[0]).stem)
    return word if word.isidentifier() else f"_{word}"
