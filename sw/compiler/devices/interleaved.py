"""Many inferences of a network with layers of the host: while the host computes those of one inference, accelerators
are at others.

Each inference stays on one accelerator. What an accelerator does next is what could begin first, and of several the
part of the oldest inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import STARTED
from dovetail.sw.compiler.devices.host_layers import host_reasons, orders
from dovetail.sw.compiler.devices.plan import Layout, Plan, Task
from dovetail.sw.compiler.devices.turns import Turn, Turns, Unable, without_detours
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import Step
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir


def interleaved_plan(system: System, graph: ir.Graph, options: Options, inferences: int, clock: float | None) -> Plan:
    """The plan of that many inferences of a graph; ``clock`` as of
    :func:`~dovetail.sw.compiler.devices.latency.latency_plan`.

    Raises
    ------
    CompileError: no accelerator can compute all that the host does not; memory that is too small.
    """
    maker, found = Turns(system, graph, options, clock), list[Plan]()
    refused: CompileError | None = None
    for steps in orders(graph, host_reasons(system, graph, options)):
        try:
            found.append(_plan(maker, steps, inferences))
        except CompileError as error:
            refused = refused or error
    if not found:
        assert refused
        raise refused
    return min(found, key=lambda plan: plan.times.cycles)


def _plan(maker: Turns, steps: Sequence[Step], inferences: int) -> Plan:
    """With the steps of each inference in this order."""
    system = maker.system
    start = system.reaction + STARTED
    able, cycles = dict[str, list[Turn]](), dict[str, list[int]]()
    for part in system.accelerators:
        order = maker.alone(steps, part.name)
        try:
            done = maker.plan(order).done
        except Unable:
            continue
        able[part.name] = order
        cycles[part.name] = [each.cycles + (start if each.task.accelerator else 0) for each in done]
    if not able:
        raise CompileError("mode must be latency: no accelerator can compute all that the host does not")
    layout = maker.layout((turn for order in able.values() for turn in order), tuple(range(inferences)))
    own = {name: layout.take(_most(maker, order, layout, system.numbers[name])) for name, order in able.items()}
    tasks, took, busy = list[list[Task]](), list[list[int]](), dict.fromkeys(able, 0)
    work = {name: _work(able[name], cycles[name]) for name in able}
    for inference in range(inferences):
        name = min(busy, key=lambda name: busy[name] + work[name])
        busy[name] += work[name]
        tasks.append(maker.tasks(able[name], layout, inference, own))
        took.append(cycles[name])
    return layout.plan(system, without_detours(_in_turns(tasks, took)))


def _work(order: Sequence[Turn], cycles: Sequence[int]) -> int:
    """Cycles of the accelerator."""
    return sum(took for turn, took in zip(order, cycles, strict=True) if turn.stage)


def _most(maker: Turns, order: Sequence[Turn], layout: Layout, number: int) -> int:
    """Bytes that programs of an accelerator have of their own, at most."""
    return max((layout.own_bytes(maker.code(turn.stage, number, layout)) for turn in order if turn.stage), default=0)


def _in_turns(inferences: Sequence[Sequence[Task]], cycles: Sequence[Sequence[int]]) -> list[Task]:
    """The tasks of all inferences in the order in which they begin, if each takes its cycles."""
    free, ends = dict[str | None, int](), dict[tuple[int, int], int]()
    left = [list(range(len(tasks))) for tasks in inferences]
    order = list[tuple[int, int]]()
    while any(left):
        best: tuple[int, int, int] | None = None
        for n, places in enumerate(left):
            for place in places:
                task = inferences[n][place]
                if all((n, other) in ends for other in task.job.after):
                    ready = max((ends[n, other] for other in task.job.after), default=0)
                    one = max(ready, free.get(task.accelerator, 0)), n, place
                    best = one if best is None else min(best, one)
        assert best, "tasks wait for earlier ones only"
        begins, n, place = best
        left[n].remove(place)
        ends[n, place] = free[inferences[n][place].accelerator] = begins + cycles[n][place]
        order.append((n, place))
    numbers = {task: number for number, task in enumerate(order)}
    found = []
    for n, place in order:
        task = inferences[n][place]
        after = tuple(sorted(numbers[n, other] for other in task.job.after))
        found.append(replace(task, job=replace(task.job, after=after)))
    return found
