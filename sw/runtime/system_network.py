"""A network on a system: its plan, runs of it on an engine, and what it gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import numpy as np

from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import STARTED, AnyJob, HostJob
from dovetail.isa.timing.system import JobTimes, time_jobs
from dovetail.sw import frontend
from dovetail.sw.compiler.devices.host_layers import host_reasons
from dovetail.sw.compiler.devices.latency import alone_plan, latency_plan
from dovetail.sw.compiler.devices.plan import Done, Plan
from dovetail.sw.compiler.devices.throughput import alone, throughput_plan
from dovetail.sw.compiler.options import MODES, Options
from dovetail.sw.compiler.partition.host_cost import HostCost, default_host, load_host_cost
from dovetail.sw.errors import CompileError, NetworkError
from dovetail.sw.frontend.parsed_file import Shapes
from dovetail.sw.model.accelerator import Model
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.runtime.compiled_network import RunError
from dovetail.sw.runtime.engine import Bytes


class JobsEngine(Protocol):
    """What runs the jobs of a system."""

    def run_jobs(self, memory: Bytes, jobs: Sequence[AnyJob]) -> JobTimes:
        """Run them; ``memory`` is changed in place. An engine that does not time them gives None for all."""


class SystemModel:
    """Runs jobs on the model, one after the other in an order that they allow; they are not timed."""

    def __init__(self, system: System) -> None:
        self._models = {part.name: Model(part.config) for part in system.accelerators}

    def run_jobs(self, memory: Bytes, jobs: Sequence[AnyJob]) -> JobTimes:
        """Run them; jobs wait for earlier ones only. Raises RunError for a fault."""
        for number, job in enumerate(jobs):
            if isinstance(job, HostJob):
                job.work(memory)
                continue
            result = self._models[job.accelerator].run(memory, job.address, job.pages, job.base)
            if result.fault:
                raise RunError(f"the engine stopped in job {number}: {result.fault}")
        return JobTimes(*[(None,) * len(jobs)] * 3)


@dataclass(frozen=True)
class SystemResult:
    """What a run gives: for each inference its ``outputs`` by name; system ``memory`` after it, and what the engine
    ``ran``."""

    outputs: tuple[dict[str, Array], ...]
    memory: Bytes = field(repr=False)
    ran: JobTimes = field(repr=False)


class SystemNetwork:
    """A network planned for a system.

    Parameters
    ----------
    plan
        What the accelerators do.
    options
        Of the compilation.
    mode
        Of :data:`MODES`.
    clock
        Of the accelerators in Hz, with which the plan has the cycles of a host that has another one.
    """

    def __init__(self, plan: Plan, options: Options, mode: str = MODES[0], clock: float | None = None) -> None:
        self.plan, self.options, self.mode, self.clock = plan, options, mode, clock
        self.graph, self.system = plan.graph, plan.system
        self.state = self.graph.initial_state()

    @cached_property
    def times(self) -> JobTimes:
        """When all of it happens. Raises RunError."""
        times = self.plan.times
        for number, (end, line) in enumerate(zip(times.ends, times.timelines, strict=True)):
            if end is None or (line is not None and line.fault):
                raise RunError(f"the compiler made a faulty program, job {number}; please report this network")
        return times

    @property
    def done(self) -> list[Done]:
        """When each task of the plan is done. Raises RunError."""
        return self.plan.done if self.times else []

    @cached_property
    def alone(self) -> dict[str, int | None]:
        """Cycles of the network on each accelerator without the others, by name; None where it does not fit."""
        if self.host_reasons:
            return {name: _cycles(plan) if plan else None for name, plan in self.plans_alone.items()}
        return alone(self.system, self.graph, self.options)

    @cached_property
    def host_reasons(self) -> dict[str, str]:
        """Why the host computes a layer, by its name."""
        return host_reasons(self.system, self.graph, self.options)

    @cached_property
    def plans_alone(self) -> dict[str, Plan | None]:
        """A network's with layers of the host, by the name of the one accelerator that works beside the host."""
        names = [part.name for part in self.system.accelerators]
        return {name: alone_plan(self.system, name, self.graph, self.options, self.clock) for name in names}

    @property
    def host_cycles(self) -> int:
        """Of the layers that the host computes, in all inferences: an estimate."""
        return sum(job.cycles for job in self.plan.jobs if isinstance(job, HostJob))

    @property
    def inferences(self) -> int:
        """How many the plan makes."""
        return len(self.plan.where)

    @property
    def gain(self) -> float | None:
        """How many times as long the fastest accelerator alone would take; None if none can compute all."""
        found = [cycles for cycles in self.alone.values() if cycles]
        return self.inferences * min(found) / self.times.cycles if found else None

    @cached_property
    def gain_without_host(self) -> float | None:
        """:attr:`gain` if the host's layers took no time, which shows what rests on their estimate; None if it computes
        none, or no accelerator can compute all else."""
        found = [_cycles(plan, host=False) for plan in self.plans_alone.values() if plan] if self.host_reasons else []
        return self.inferences * min(found) / _cycles(self.plan, host=False) if found else None

    @property
    def steady_gain(self) -> float | None:
        """How many times the rate of the fastest accelerator alone, while all accelerators are busy; None if inferences
        are shared, or none can compute all."""
        found = [cycles for cycles in self.alone.values() if cycles]
        return min(found) / self.interval if found and not self._is_shared else None

    @property
    def _is_shared(self) -> bool:
        """Whether several accelerators compute the same nodes of an inference."""
        return any(task.share for task in self.plan.tasks)

    @property
    def interval(self) -> float:
        """Cycles from one result to the next while all accelerators are busy; those of an inference where accelerators
        share it. Of an inference that goes through several accelerators, and the host, each does the part that its
        cycles are of all cycles of the inference."""
        if self.inferences == 1 or self._is_shared:
            return self.times.cycles / self.inferences
        each = [0] * self.inferences
        for one in self.done:
            each[one.task.inference] += one.cycles
        spans: dict[str | None, tuple[float, int, int]] = {}  # inferences, first cycle, the one behind the last
        for task, begin, end, cycles, _ in self.done:
            count, first, _ = spans.get(task.accelerator, (0.0, begin, 0))
            spans[task.accelerator] = count + cycles / each[task.inference], first, end
        start = self.system.reaction + STARTED
        return 1 / sum(count / (end - first + (start if name else 0)) for name, (count, first, end) in spans.items())

    def simpler(self) -> dict[str, int]:
        """Cycles of plans that do less, by what they do. Of one inference: layers shared one by one, and shares of
        equal size if accelerators differ; of many that go from one accelerator to another: each stays on one."""
        plans = dict[str, Plan]()
        plan = partial(latency_plan, self.system, self.graph, self.options, clock=self.clock)
        if self.mode == MODES[0] and len(self.system.accelerators) > 1:
            plans["each layer shared by itself"] = plan(longest=1)
            if len({part.config for part in self.system.accelerators}) > 1:
                plans["shares of equal size"] = plan(even=True)
        elif not self.host_reasons and len(self.plan.tasks) > self.inferences and any(self.alone.values()):
            whole = throughput_plan(self.system, self.graph, self.options, self.inferences, legs=False)
            plans["each inference on one accelerator"] = whole
        return {name: _cycles(found) for name, found in plans.items()}

    @cached_property
    def lost(self) -> int:
        """Cycles that jobs take more than each would alone: what they lose by waiting for one another at memory."""
        lost = 0
        for done in self.done:
            if done.line is not None:
                job = replace(done.task.job, after=(), earliest=0)
                times = time_jobs(self.system, [job], memory_bytes=self.plan.memory_bytes)
                lost += done.cycles - (times.cycles - self.system.reaction - STARTED)
        return lost

    def run(self, samples: Sequence[Mapping[str, Array]], engine: JobsEngine | None = None) -> SystemResult:
        """The plan's inferences, on the model or on another engine; ``samples``: the inputs of each, by name.

        Raises
        ------
        NetworkError
            Inputs do not fit the network, or there are more or fewer than inferences.
        RunError
            The engine faulted.
        """
        if len(samples) != self.inferences:
            raise NetworkError(f"samples must be {self.inferences}, one for each inference, not {len(samples)}")
        memory = self.plan.image()
        for sample, where in zip(samples, self.plan.where, strict=True):
            values = self.state | self.graph.bind(sample)
            for name in self.graph.given:
                data = np.ascontiguousarray(values[name]).view(np.uint8).ravel()
                memory[where[name] : where[name] + data.size] = data
        ran = (engine or SystemModel(self.system)).run_jobs(memory, self.plan.jobs)
        outputs = []
        for where in self.plan.where:
            made = dict[str, Array]()
            for name in self.graph.wanted:
                tensor = self.graph.tensors[name]
                content = memory[where[name] : where[name] + tensor.bytes]
                made[name] = content.view(tensor.dtype).reshape(tensor.shape).copy()
            outputs.append(self.graph.unbind(made))
            self.state = self.graph.next_state(made)
        return SystemResult(tuple(outputs), memory, ran)


def plan_network(
    network: str | Path | ir.Graph,
    system: System,
    *,
    shapes: Shapes | None = None,
    mode: str = MODES[0],
    inferences: int = 1,
    effort: int = Options().effort,
    host: HostCost | str | Path | None = None,
    clock: float | None = None,
) -> SystemNetwork:
    """Plan a network for a system.

    Parameters
    ----------
    network, shapes, effort, host
        As of :func:`~dovetail.sw.runtime.compiled_network.compile_network`.
    mode
        ``"latency"``: one inference takes few cycles; ``"throughput"``: many do.
    inferences
        How many the plan makes; 1 for latency.
    clock
        Of the accelerators in Hz, where that of the host in ``host`` is another one.

    Raises
    ------
    NetworkError, CompileError
        One line that names the node or layer, the rule and the way out.
    """
    if mode not in MODES:
        raise CompileError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    if inferences < 1 or (mode == MODES[0] and inferences > 1):
        raise CompileError(
            f"inferences must be {'1 for latency' if inferences > 0 else 'at least 1'}, not {inferences}"
        )
    graph = network if isinstance(network, ir.Graph) else read_graph(network, shapes)
    most = max(part.config.parameters for part in system.accelerators)
    if most and any(isinstance(node, ir.Update) for node in graph.nodes):
        raise CompileError(f"accelerators of a system must have parameters = 0 to update variables, not {most}")
    cost = load_host_cost(host) if isinstance(host, str | Path) else host or default_host()
    options = Options(host=cost, effort=effort)
    if mode == MODES[0]:
        shared = SystemNetwork(latency_plan(system, graph, options, clock=clock), options, clock=clock)
        # Small networks may not be worth sharing.
        if shared.gain is None or shared.gain >= 1:
            return shared
        if shared.host_reasons:
            least = min(filter(None, shared.plans_alone.values()), key=_cycles)
            return SystemNetwork(least, options, clock=clock)
        return SystemNetwork(throughput_plan(system, graph, options, 1), options)
    plan = throughput_plan(system, graph, options, inferences, clock=clock)
    return SystemNetwork(plan, options, mode, clock)


def _cycles(plan: Plan, *, host: bool = True) -> int:
    """Of a plan; without ``host`` its layers take a cycle each."""
    if host:
        return plan.times.cycles
    jobs = [replace(job, cycles=1) if isinstance(job, HostJob) else job for job in plan.jobs]
    return time_jobs(plan.system, jobs, memory_bytes=plan.memory_bytes).cycles


def read_graph(network: str | Path, shapes: Shapes | None = None, states: Mapping[str, str] | None = None) -> ir.Graph:
    """The graph of a network's file or ``zoo:`` name; ``shapes``, ``states``: see `compile_network`. Raises
    NetworkError."""
    return simplify(frontend.parse(frontend.read(network, states), shapes).graph)
