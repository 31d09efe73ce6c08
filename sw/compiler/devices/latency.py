"""The plan that makes one inference fast: stages, each shared by all accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import Job
from dovetail.sw.compiler.devices.pieces import Prices, check_layers, compiled, targets_of
from dovetail.sw.compiler.devices.plan import Layout, Plan, Task
from dovetail.sw.compiler.devices.shares import Region
from dovetail.sw.compiler.devices.stages import LONGEST, Stages
from dovetail.sw.compiler.options import Options
from dovetail.sw.network import ir

Bytes = tuple[str, Region]
"""Some of a tensor, with the name of the tensor whose bytes it shares."""


def latency_plan(
    system: System, graph: ir.Graph, options: Options, *, longest: int = LONGEST, even: bool = False
) -> Plan:
    """The plan of a graph.

    Parameters
    ----------
    options: of the compilation; ``effort`` is that of the search for stages, too.
    longest: nodes of a shared stage, at most.
    even: shares of equal size, however fast the accelerators are.

    Raises
    ------
    CompileError: a layer that no accelerator of the system can compute; memory that is too small.
    """
    check_layers(system, graph, options)
    search = Stages(system, graph, graph.nodes, Prices(options), effort=options.effort, longest=longest, even=even)
    stages = search.find()
    layout = Layout(graph, (share for stage in stages for share in stage.shares if share))
    tasks, writes = list[Task](), list[list[Bytes]]()
    for stage in stages:
        names = tuple(node.name for node in search.nodes[stage.first : stage.last])
        configs = targets_of(system, stage.rivals)
        for part, config, share in zip(system.accelerators, configs, stage.shares, strict=True):
            if share is None:
                continue
            pieces = replace(options, effort=stage.effort)
            code = compiled(config, share, pieces, share.given(layout.where[0], layout.start))
            assert code, "it had a price"
            words, address = layout.program(code)
            reads, makes = (
                [(layout.roots[region.tensor.name], region) for region in regions.values()]
                for regions in (share.reads, share.writes)
            )
            after = [n for n, made in enumerate(writes) if any(_meets(one, other) for one in made for other in reads)]
            job = Job(part.name, words, address, 0, _nearest(after, [task.job for task in tasks]))
            region = next(iter(share.writes.values()))
            told = "" if region.is_whole else f"{stage.kind} {region.span[0]}..{sum(region.span) - 1}"
            tasks.append(Task(job, names, told))
            writes.append(makes)
    return layout.plan(system, tasks)


def _meets(one: Bytes, other: Bytes) -> bool:
    """Whether the two have bytes in common."""
    if one[0] != other[0]:
        return False
    return one[1].tensor.name != other[1].tensor.name or one[1].meets(other[1])


def _nearest(after: Sequence[int], jobs: Sequence[Job]) -> tuple[int, ...]:
    """The last job of each accelerator: it waits for those before it."""
    return tuple(sorted({jobs[number].accelerator: number for number in sorted(after)}.values()))
