"""The plan that makes many inferences fast: each runs on one accelerator, as soon as one is free.

Accelerators of equal configurations that begin at once ask for memory at the same moments. So the plan lets them begin
one after the other; by how many cycles is tried out on the whole system.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import itemgetter

from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.isa.timing.jobs import Job
from dovetail.isa.timing.memory import ADDRESS_SPACE
from dovetail.isa.timing.system import time_jobs
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.devices.pieces import check_layers, compiled, targets_of
from dovetail.sw.compiler.devices.plan import Layout, Plan, Task
from dovetail.sw.compiler.devices.shares import WHOLE, Share, share_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

LATER = (0, 64, 32, 16, 8, 4)
"""By what part of an inference's cycles an accelerator begins later than the one before it, divided by their number;
0: at once."""


def throughput_plan(system: System, graph: ir.Graph, options: Options, inferences: int) -> Plan:
    """The plan of that many inferences of a graph.

    Raises
    ------
    CompileError: a layer that no accelerator can compute, no accelerator that can compute all of them, variables that
        go from one inference to the next; memory that is too small.
    """
    check_layers(system, graph, options)
    if graph.states and inferences > 1:
        raise CompileError("inferences must follow one another, as the network has variables: inferences must be 1")
    share = share_of(graph, graph.nodes, WHOLE, {})
    assert share
    layout = Layout(graph, [share], inferences)
    able = {name: code for name, code in _codes(system, share, layout, options).items() if code}
    if not able:
        raise CompileError("mode must be latency: no accelerator of the system can compute the whole network")
    cycles = {name: _cycles(system, name, code) for name, code in able.items()}
    own = {name: layout.take(Layout.own_bytes(code)) for name, code in able.items()}
    nodes = tuple(node.name for node in graph.nodes if not isinstance(node, ir.Constant))
    tasks = []
    for inference, (name, earliest) in enumerate(_order(system, able, cycles, inferences)):
        words, address = layout.program(able[name], inference=inference, own=own[name])
        tasks.append(Task(Job(name, words, address, earliest=earliest), nodes, inference=inference))
    return layout.plan(system, tasks)


def _order(
    system: System, codes: Mapping[str, Code], cycles: Mapping[str, int], inferences: int
) -> list[tuple[str, int]]:
    """The accelerator of each inference, and its earliest start, so that all take the fewest cycles. Slow ones get none
    where memory has no room for them."""
    best, least = list[tuple[str, int]](), None
    names = sorted(codes, key=lambda name: cycles[name])
    for count in range(len(names), 0, -1):
        busy, jobs = dict.fromkeys(names[:count], 0), list[Job]()
        for _ in range(inferences):
            name = min(busy, key=lambda name: busy[name] + cycles[name])
            busy[name] += cycles[name]
            jobs.append(Job(name, codes[name].segments[0].words))
        tried, took = _staggered(system, jobs, cycles[names[0]])
        if least is not None and took >= least:
            break
        best, least = [(job.accelerator, job.earliest) for job in tried], took
    return best


def alone(system: System, graph: ir.Graph, options: Options) -> dict[str, int | None]:
    """Cycles of one inference on each accelerator while the others rest, by name, with its start; None where an
    accelerator cannot compute all of it."""
    share = share_of(graph, graph.nodes, WHOLE, {})
    assert share
    codes = _codes(system, share, Layout(graph, [share]), options)
    return {name: None if code is None else _cycles(system, name, code) for name, code in codes.items()}


def _codes(system: System, share: Share, layout: Layout, options: Options) -> dict[str, Code | None]:
    """A network's program for each accelerator, by name; None where it cannot compute all of it."""
    codes: dict[Config, Code | None] = {}
    for config in targets_of(system):
        if config not in codes:
            codes[config] = compiled(config, share, options, share.given(layout.where[0], layout.start))
    return {part.name: codes[config] for part, config in zip(system.accelerators, targets_of(system), strict=True)}


def _cycles(system: System, name: str, code: Code) -> int:
    """Cycles of a program while the others rest."""
    return time_jobs(system, [Job(name, code.segments[0].words)], memory_bytes=ADDRESS_SPACE).cycles


def _staggered(system: System, jobs: list[Job], cycles: int) -> tuple[list[Job], int]:
    """The jobs with the starts that take the fewest cycles in all, and these."""
    first = {job.accelerator: number for number, job in reversed(list(enumerate(jobs)))}
    order = [first[part.name] for part in system.accelerators if part.name in first]
    found = []
    for divisor in LATER if len(order) > 1 else LATER[:1]:
        later = cycles // (divisor * len(order)) if divisor else 0
        tried = list(jobs)
        for place, number in enumerate(order):
            tried[number] = replace(jobs[number], earliest=later * place)
        found.append((time_jobs(system, tried, memory_bytes=ADDRESS_SPACE).cycles, tried))
    took, best = min(found, key=itemgetter(0))
    return best, took
