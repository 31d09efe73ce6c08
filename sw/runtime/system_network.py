"""A network on a system: its plan, runs of it on an engine, and what it gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from dovetail.isa.config.system import System
from dovetail.isa.instructions.table import PAGE_WORDS
from dovetail.isa.timing.jobs import Job
from dovetail.isa.timing.sequencer import as_words
from dovetail.isa.timing.system import JobTimes, time_jobs
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.devices.latency import latency_plan
from dovetail.sw.compiler.devices.pieces import configs_of
from dovetail.sw.compiler.devices.plan import Plan
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError
from dovetail.sw.frontend.parsed_file import Shapes
from dovetail.sw.model.accelerator import Model
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.runtime.compiled_network import CompiledNetwork, RunError
from dovetail.sw.runtime.engine import Bytes


class Ran(Protocol):
    """What an engine tells of jobs: cycle 0 of each in cycles of the system, and its timeline; None if it never ran."""

    @property
    def origins(self) -> tuple[int | None, ...]: ...
    @property
    def timelines(self) -> tuple[Timeline | None, ...]: ...


class JobsEngine(Protocol):
    """What runs the jobs of a system."""

    def run_jobs(self, memory: Bytes, jobs: Sequence[Job]) -> Ran:
        """Run them; ``memory`` is changed in place."""


class SystemModel:
    """Runs jobs on the model, one after the other in an order that they allow; they are not timed."""

    def __init__(self, system: System) -> None:
        self._models = {part.name: Model(part.config) for part in system.accelerators}

    def run_jobs(self, memory: Bytes, jobs: Sequence[Job]) -> Ran:
        """Run them; jobs wait for earlier ones only. Raises RunError for a fault."""
        for number, job in enumerate(jobs):
            pages = len(as_words(job.words)) // PAGE_WORDS
            result = self._models[job.accelerator].run(memory, job.address, pages, job.base)
            if result.fault:
                raise RunError(f"the engine stopped in job {number}: {result.fault}")
        return JobTimes((None,) * len(jobs), (None,) * len(jobs))


@dataclass(frozen=True)
class SystemResult:
    """What a run gives: ``outputs`` by name, system ``memory`` after it, and what the engine ``ran``."""

    outputs: dict[str, Array]
    memory: Bytes = field(repr=False)
    ran: Ran = field(repr=False)


class SystemNetwork:
    """A network planned for a system.

    Parameters
    ----------
    plan
        What the accelerators do.
    options
        Of the compilation.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan, self.options = plan, options
        self.graph, self.system = plan.graph, plan.system
        self.state = self.graph.initial_state()

    @cached_property
    def times(self) -> JobTimes:
        """When all of it happens. Raises RunError."""
        times = time_jobs(self.system, self.plan.jobs, memory_bytes=self.plan.memory_bytes)
        for number, line in enumerate(times.timelines):
            if line is None or line.fault:
                raise RunError(f"the compiler made a faulty program, job {number}; please report this network")
        return times

    @cached_property
    def alone(self) -> dict[str, int | None]:
        """Cycles of the network on each accelerator without the others, by name; None where it does not fit."""
        found: dict[str, int | None] = {}
        for part, config in zip(self.system.accelerators, configs_of(self.system), strict=True):
            try:
                code = generate(self.graph, config, self.options)
            except CompileError:
                found[part.name] = None
                continue
            found[part.name] = None if code.host_reasons else CompiledNetwork(code).report().cycles
        return found

    def run(self, inputs: Mapping[str, Array] | Array, engine: JobsEngine | None = None) -> SystemResult:
        """One inference, on the model or on another engine. Raises NetworkError, RunError."""
        values: dict[str, Array] = self.state | self.graph.bind(inputs)
        memory = self.plan.image()
        for name in self.graph.given:
            data = np.ascontiguousarray(values[name]).view(np.uint8).ravel()
            memory[self.plan.where[name] : self.plan.where[name] + data.size] = data
        ran = (engine or SystemModel(self.system)).run_jobs(memory, self.plan.jobs)
        for name in self.graph.wanted:
            tensor, address = self.graph.tensors[name], self.plan.where[name]
            values[name] = memory[address : address + tensor.bytes].view(tensor.dtype).reshape(tensor.shape).copy()
        self.state = self.graph.next_state(values)
        return SystemResult(self.graph.unbind(values), memory, ran)


def plan_network(
    network: str | Path | ir.Graph, system: System, *, shapes: Shapes | None = None, effort: int = Options().effort
) -> SystemNetwork:
    """Plan a network for a system, so that one inference takes few cycles.

    Raises
    ------
    NetworkError, CompileError
        One line that names the node or layer, the rule and the way out.
    """
    graph = network if isinstance(network, ir.Graph) else _read(network, shapes)
    options = Options(effort=effort)
    return SystemNetwork(latency_plan(system, graph, options), options)


def _read(network: str | Path, shapes: Shapes | None) -> ir.Graph:
    return simplify(frontend.parse(frontend.read(network), shapes).graph)
