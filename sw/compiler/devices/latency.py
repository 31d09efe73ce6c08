"""The plan that makes one inference fast: stages, each shared by all accelerators, and layers of the host beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import AnyJob, HostJob, Job
from dovetail.isa.timing.system import time_jobs
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.devices.host_layers import HostLayers, host_cycles, host_reasons, orders
from dovetail.sw.compiler.devices.pieces import Prices, compiled, targets_of
from dovetail.sw.compiler.devices.plan import Layout, Plan, Task
from dovetail.sw.compiler.devices.shares import WHOLE, Region, share_of
from dovetail.sw.compiler.devices.stages import LONGEST, Stage, Stages
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import HOST, Step
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

Bytes = tuple[str, Region]
"""Some of a tensor, with the name of the tensor whose bytes it shares."""
Codes = dict[tuple[Config, int], Code | None]
"""Programs, by what they are compiled for and the identity of their share."""


class Turn(NamedTuple):
    """Nodes that have their turn together: as a stage of accelerators, or, without one, at the host."""

    nodes: Sequence[ir.Node]
    stage: Stage | None


def latency_plan(
    system: System,
    graph: ir.Graph,
    options: Options,
    *,
    longest: int = LONGEST,
    even: bool = False,
    clock: float | None = None,
) -> Plan:
    """The plan of a graph.

    Parameters
    ----------
    options: of the compilation; ``effort`` is that of the search for stages, too.
    longest: nodes of a shared stage, at most.
    even: shares of equal size, however fast the accelerators are.
    clock: of the accelerators in Hz, for the cycles of a host that has another one.

    Raises
    ------
    CompileError: a microcoded accelerator; a layer that no accelerator can compute with its SRAM; memory that is too
        small.
    """
    prices = Prices(options)

    def turns(step: Step) -> list[Turn]:
        search = Stages(system, graph, step.nodes, prices, effort=options.effort, longest=longest, even=even)
        return [Turn(search.nodes[stage.first : stage.last], stage) for stage in search.find()]

    found = []
    for steps in orders(graph, host_reasons(system, graph, options)):
        order = [turn for step in steps for turn in ([Turn(step.nodes, None)] if step.device == HOST else turns(step))]
        codes: Codes = {}
        found.append(_plan(system, graph, order, options, clock, codes))
        spread = _spread(system, graph, order, [task.job for task in found[-1].tasks])
        if spread != order:
            found.append(_plan(system, graph, spread, options, clock, codes))
    return _best(found)


def alone_plan(system: System, name: str, graph: ir.Graph, options: Options, clock: float | None = None) -> Plan | None:
    """The plan of a graph on one accelerator and the host, while the others rest; None if the accelerator cannot
    compute what others could. Parameters and errors are those of :func:`latency_plan`."""
    found = []
    for steps in orders(graph, host_reasons(system, graph, options)):
        order = list[Turn]()
        for step in steps:
            share = None if step.device == HOST else share_of(graph, step.nodes, WHOLE, {})
            shares = tuple(share if part.name == name else None for part in system.accelerators)
            stage = Stage(0, len(step.nodes), WHOLE, (), shares, 0, exact=False, effort=options.effort)
            order.append(Turn(step.nodes, stage if share else None))
        try:
            found.append(_plan(system, graph, order, options, clock, {}))
        except Unable:
            continue
    return _best(found) if found else None


class Unable(CompileError):
    """An accelerator cannot compute its share in one program."""


def _best(plans: Sequence[Plan]) -> Plan:
    """The fastest."""
    if len(plans) == 1:
        return plans[0]
    return min(plans, key=lambda plan: time_jobs(plan.system, plan.jobs, memory_bytes=plan.memory_bytes).cycles)


def _spread(system: System, graph: ir.Graph, order: Sequence[Turn], jobs: Sequence[AnyJob]) -> list[Turn]:
    """Turns whose stages of one accelerator are on another one like it, where they would begin earlier there: branches
    run beside each other."""
    configs = targets_of(system)
    makers = {name: node for node in graph.nodes for name in node.outputs}
    cycles = iter([job.cycles for job in jobs if isinstance(job, HostJob)])
    free, ends, host, found = [0] * len(configs), dict[str, int](), 0, list[Turn]()

    def made(name: str) -> int:
        """When a tensor is there."""
        node = makers.get(name)
        if node is None or node.name in ends:
            return ends[node.name] if node else 0
        return max(map(made, node.inputs), default=0)  # another shape, or a constant

    for nodes, stage in order:
        own = {name for node in nodes for name in node.outputs}
        ready = max((made(name) for node in nodes for name in node.inputs if name not in own), default=0)
        if stage is None:
            end = host = max(ready, host) + next(cycles)
        else:
            used = [n for n, share in enumerate(stage.shares) if share]
            if len(used) == 1:
                alike = [n for n, config in enumerate(configs) if config == configs[used[0]]]
                best = min(alike, key=lambda n: (max(ready, free[n]), n != used[0]))
                share = stage.shares[used[0]]
                stage = replace(stage, shares=tuple(share if n == best else None for n in range(len(configs))))
                used = [best]
            end = max(ready, *(free[n] for n in used)) + stage.cycles if used else ready
            for n in used:
                free[n] = end
        ends |= dict.fromkeys((node.name for node in nodes), end)
        found.append(Turn(nodes, stage))
    return found


def _plan(
    system: System, graph: ir.Graph, order: Sequence[Turn], options: Options, clock: float | None, codes: Codes
) -> Plan:
    """The jobs of turns, and where everything lies. ``codes``: of turns with the same shares in the same order."""
    shares = [share for _, stage in order if stage for share in stage.shares if share]
    host = [HostLayers(graph, tuple(nodes), {}) for nodes, stage in order if not stage]
    layout = Layout(graph, shares, more=[name for layers in host for name in (*layers.reads, *layers.writes)])
    tasks, writes = list[Task](), list[list[Bytes]]()

    def whole(names: Sequence[str]) -> list[Bytes]:
        return [(layout.roots[name], Region(graph.tensors[name], WHOLE, (0, 1))) for name in names]

    def wait(reads: Sequence[Bytes]) -> tuple[int, ...]:
        after = [n for n, made in enumerate(writes) if any(_meets(one, other) for one in made for other in reads)]
        return _nearest(after, [task.job for task in tasks])

    for nodes, stage in order:
        names = tuple(node.name for node in nodes)
        if stage is None:
            layers = HostLayers(graph, tuple(nodes), layout.where[0])
            cycles = host_cycles(options, graph, nodes, clock)
            tasks.append(Task(HostJob(cycles, wait(whole(layers.reads)), work=layers), names))
            writes.append(whole(layers.writes))
            continue
        for part, config, share in zip(
            system.accelerators, targets_of(system, stage.rivals), stage.shares, strict=True
        ):
            if share is None:
                continue
            key = config, id(share)
            if key not in codes:
                pieces = replace(options, effort=stage.effort)
                codes[key] = compiled(config, share, pieces, share.given(layout.where[0], layout.start))
            code = codes[key]
            if code is None:
                raise Unable(f"layer {names[0]!r}: {part.name} cannot compute it")
            words, address = layout.program(code)
            job = Job(part.name, words, address, 0, wait(_bytes(layout, share.reads)))
            region = next(iter(share.writes.values()))
            told = "" if region.is_whole else f"{stage.kind} {region.span[0]}..{sum(region.span) - 1}"
            tasks.append(Task(job, names, told))
            writes.append(_bytes(layout, share.writes))
    return layout.plan(system, tasks)


def _bytes(layout: Layout, regions: Mapping[str, Region]) -> list[Bytes]:
    return [(layout.roots[region.tensor.name], region) for region in regions.values()]


def _meets(one: Bytes, other: Bytes) -> bool:
    """Whether the two have bytes in common."""
    if one[0] != other[0]:
        return False
    return one[1].tensor.name != other[1].tensor.name or one[1].meets(other[1])


def _nearest(after: Sequence[int], jobs: Sequence[AnyJob]) -> tuple[int, ...]:
    """The last program of each accelerator, which waits for those before it, and the host's layers."""
    last = dict[str, int]()
    layers = list[int]()
    for number in sorted(after):
        job = jobs[number]
        if isinstance(job, HostJob):
            layers.append(number)
        else:
            last[job.accelerator] = number
    return tuple(sorted([*last.values(), *layers]))
