"""A plan on a system as a file for trace viewers (ui.perfetto.dev): the host, and each accelerator, as processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dovetail.isa.instructions.table import Op, Unit
from dovetail.isa.timing.system import JobTimes
from dovetail.sw.analysis.chrome_trace import LAYERS, PROCESS, UNITS, scale_of, thread_names, trace_text
from dovetail.sw.analysis.history import FETCH_NAME, levels
from dovetail.sw.analysis.system_history import host_spans, moved
from dovetail.sw.compiler.devices.plan import Plan, Task

HOST, FIRST = PROCESS, PROCESS + 1
"""The host, and the first accelerator."""
BUSY, JOBS = LAYERS, LAYERS
"""The host's thread, and that of an accelerator's jobs, before those of its units."""


def system_trace(plan: Plan, times: JobTimes, clock: float | None = None) -> str:
    """The file's text. ``times``: those of the rules. ``clock``: in Hz; without it a cycle is shown as a microsecond.

    Categories: ``start`` and ``layer``, what the host does; ``job`` and ``operation`` of accelerators. Counters: bytes
    that each accelerator has on their way from and to memory.
    """
    scale = scale_of(clock)
    about = {"network": plan.graph.name, "cycles": times.cycles, "microseconds_per_cycle": scale}
    return trace_text(_events(plan, times, scale), about)


def job_name(task: Task) -> str:
    """Of a job, for people."""
    nodes = task.nodes[0] if len(task.nodes) == 1 else f"{task.nodes[0]} .. {task.nodes[-1]}"
    return f"{nodes} {task.share}".rstrip()


def _events(plan: Plan, times: JobTimes, scale: float) -> Iterator[dict[str, Any]]:
    numbers = {name: FIRST + number for name, number in plan.system.numbers.items()}
    for process, name in ((HOST, "host"), *((number, name) for name, number in numbers.items())):
        yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
        yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}
        threads = [(BUSY, "host")] if process == HOST else [(JOBS, "jobs"), *((UNITS + u, u.name) for u in Unit)]
        yield from thread_names(threads, process)

    def at(cycle: int) -> float:
        return round(cycle * scale, 3)

    def slice_of(process: int, thread: int, category: str, name: str, start: int, end: int) -> dict[str, Any]:
        when = {"ts": at(start), "dur": round(at(end) - at(start), 3)}
        return {"ph": "X", "pid": process, "tid": thread, "cat": category, "name": name, **when}

    def about(number: int) -> dict[str, Any]:
        task = plan.tasks[number]
        return {"args": {"job": number, "inference": task.inference, "after": list(task.job.after)}}

    for span in host_spans(plan, times):
        name = job_name(plan.tasks[span.job])
        kind = ("start", f"start {name}") if span.is_start else ("layer", name)
        yield slice_of(HOST, BUSY, *kind, span.start, span.end) | about(span.job)
    for number, task in enumerate(plan.tasks):
        origin, end, line = times.origins[number], times.ends[number], times.timelines[number]
        if task.accelerator is None or origin is None or end is None or line is None:
            continue
        process, name = numbers[task.accelerator], job_name(task)
        yield slice_of(process, JOBS, "job", name, origin, end) | about(number)
        columns = (line.unit, line.op, line.is_fetch, line.start, line.end)
        for unit, op, fetch, first, last in zip(*(column.tolist() for column in columns), strict=True):
            told = FETCH_NAME if fetch else Op(op).name
            yield slice_of(process, UNITS + unit, "operation", told, origin + first, origin + last + 1)
    for name, own in moved(plan, times).items():
        changes = zip(own.start.tolist(), own.end.tolist(), own.bytes.tolist(), strict=True)
        for cycle, amount in ((0, 0), *levels(changes)):
            yield {"ph": "C", "pid": numbers[name], "name": "memory", "ts": at(cycle), "args": {"bytes": amount}}
