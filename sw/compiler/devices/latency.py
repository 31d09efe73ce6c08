"""The plan that makes one inference fast: stages, each shared by all accelerators, and layers of the host beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import AnyJob, HostJob
from dovetail.sw.compiler.devices.host_layers import host_reasons, orders
from dovetail.sw.compiler.devices.pieces import Prices, targets_of
from dovetail.sw.compiler.devices.plan import Plan
from dovetail.sw.compiler.devices.stages import LONGEST, Stages
from dovetail.sw.compiler.devices.turns import Turn, Turns, Unable
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import HOST, Step
from dovetail.sw.network import ir


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
    prices = Prices()

    def turns(step: Step) -> list[Turn]:
        search = Stages(system, graph, step.nodes, prices, options=options, longest=longest, even=even)
        return [Turn(search.nodes[stage.first : stage.last], stage) for stage in search.find()]

    maker, found = Turns(system, graph, options, clock), list[Plan]()
    for steps in orders(graph, host_reasons(system, graph, options)):
        order = [turn for step in steps for turn in ([Turn(step.nodes, None)] if step.device == HOST else turns(step))]
        found.append(maker.plan(order))
        spread = _spread(system, graph, order, found[-1].jobs)
        if spread != order:
            found.append(maker.plan(spread))
    return _best(found)


def alone_plan(system: System, name: str, graph: ir.Graph, options: Options, clock: float | None = None) -> Plan | None:
    """The plan of a graph on one accelerator and the host, while the others rest; None if the accelerator cannot
    compute what others could. Parameters and errors are those of :func:`latency_plan`."""
    maker, found = Turns(system, graph, options, clock), list[Plan]()
    for steps in orders(graph, host_reasons(system, graph, options)):
        try:
            found.append(maker.plan(maker.alone(steps, name)))
        except Unable:
            continue
    return _best(found) if found else None


def _best(plans: Sequence[Plan]) -> Plan:
    """The fastest."""
    return plans[0] if len(plans) == 1 else min(plans, key=lambda plan: plan.times.cycles)


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
