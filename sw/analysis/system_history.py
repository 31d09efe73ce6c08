"""A plan on a system over time: what the host does when, what accelerators do, and whose data memory moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import PAGE_BYTES, Unit
from dovetail.isa.timing.jobs import STARTED, WRITTEN, HostJob
from dovetail.isa.timing.system import JobTimes
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.analysis.sram import registers_of
from dovetail.sw.compiler.devices.plan import Plan

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class HostSpan:
    """Cycles ``start`` .. ``end`` - 1 of the system in which the host does something for a job: it starts the program,
    ``is_start``, or works on a layer. A layer that starts have interrupted has several spans."""

    job: int
    start: int
    end: int
    is_start: bool


def host_spans(plan: Plan, times: JobTimes) -> list[HostSpan]:
    """All that the host does, in the order of time; cycles between are those in which it waits."""
    starts, layers = list[HostSpan](), list[HostSpan]()
    for number, (job, origin) in enumerate(zip(plan.jobs, times.origins, strict=True)):
        if origin is None or isinstance(job, HostJob):
            continue
        first = origin - STARTED
        starts.append(HostSpan(number, first - plan.system.reaction, first + WRITTEN, True))
    starts.sort(key=lambda span: span.start)
    for number, (job, origin, end) in enumerate(zip(plan.jobs, times.origins, times.ends, strict=True)):
        if origin is None or end is None or not isinstance(job, HostJob):
            continue
        at = origin
        for span in starts:
            if at < span.end and span.start < end:
                if at < span.start:
                    layers.append(HostSpan(number, at, span.start, False))
                at = span.end
        if at < end:
            layers.append(HostSpan(number, at, end, False))
    return sorted([*starts, *layers], key=lambda span: span.start)


@dataclass(frozen=True)
class Moved:
    """LOADs, STOREs and fetches of an accelerator: ``bytes`` that each moves, in cycles ``start`` .. ``end`` - 1 of the
    system."""

    start: Int64s
    end: Int64s
    bytes: Int64s

    def until(self, cycles: Int64s) -> NDArray[np.float64]:
        """Bytes that are moved up to some cycles, if each transfer goes evenly from its first cycle to its last."""
        rates = self.bytes / np.maximum(self.end - self.start, 1)
        total = np.zeros(len(cycles))
        for sign, edges in ((1, self.start), (-1, self.end)):
            order = np.argsort(edges, kind="stable")
            rate, weight = (np.concatenate([[0], np.cumsum(v[order])]) for v in (rates, rates * edges))
            passed = np.searchsorted(edges[order], cycles)
            total += sign * (rate[passed] * cycles - weight[passed])
        return total


def moved(plan: Plan, times: JobTimes) -> dict[str, Moved]:
    """What each accelerator moves, by its name. ``times``: those of the rules, whose timelines have registers."""
    rows: dict[str, list[tuple[int, int, int]]] = {part.name: [] for part in plan.system.accelerators}
    for task, origin, line in zip(plan.tasks, times.origins, times.timelines, strict=True):
        if task.accelerator is not None and origin is not None and line is not None:
            rows[task.accelerator] += [(origin + start, origin + end, size) for start, end, size in transfers(line)]
    return {name: Moved(*np.array(own, np.int64).reshape(-1, 3).T) for name, own in rows.items()}


def transfers(line: Timeline) -> list[tuple[int, int, int]]:
    """First cycle, the one behind the last, and bytes of all that a program loads, stores and fetches."""
    registers, found = registers_of(line), []
    columns = (line.unit, line.is_fetch, line.pc, line.start, line.end)
    for unit, fetch, pc, start, end in zip(*(column[line.works].tolist() for column in columns), strict=True):
        if fetch or unit in (Unit.LOAD, Unit.STORE):
            found.append((start, end + 1, PAGE_BYTES if fetch else View(Unit(unit), registers[pc]).moved))
    return found
