"""A plan for a system: what each accelerator computes when, and how many of them load and store at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.flows.report.charts.chart import Axis, Boxes, Chart, Entry, Line, Mark, Panel
from dovetail.flows.report.charts.colours import FAINT, SERIES, lighter
from dovetail.isa.instructions.table import Unit
from dovetail.sw.runtime.system_network import SystemNetwork

BINS = 300
"""Of the curves of loads and stores."""
THICK = 0.38
"""Half the height of an accelerator's row; rows are 1 apart."""
MEMORY = (Unit.LOAD, Unit.STORE)


def chart(network: SystemNetwork, title: str, subtitle: str = "") -> Chart:
    """The chart: above a row of jobs for each accelerator, and one for the host if it computes layers; below the mean
    number of loads and stores under way."""
    count = len(network.system.accelerators)
    names = [part.name for part in network.system.accelerators] + (["host"] if network.host_cycles else [])
    end = max(network.times.cycles, 1)
    x = Axis(0, end, count=9)
    rows = Axis(-len(names) + 0.45, 0.55, ticks=[-row for row in range(len(names))], names=names, line=False)
    curves: list[Mark] = [
        Line(_under_way(network, unit, end), SERIES[number], tip=unit.name) for number, unit in enumerate(MEMORY)
    ]
    many = Axis(0, count, title="at once", ticks=[0, count], grid=True)
    panels = [
        Panel(x, rows, _jobs(network, names), max(0.35 * len(names), 0.8)),
        Panel(Axis(0, end, title="cycle", count=9), many, curves, 1.2, above=0.45),
    ]
    legend = [Entry(f"{unit.name} under way", SERIES[number], "line") for number, unit in enumerate(MEMORY)]
    return Chart(title, subtitle, panels, legend)


def _jobs(network: SystemNetwork, names: Sequence[str]) -> list[Mark]:
    """Boxes, in one colour for all shares of the same nodes."""
    places, colours, texts = [], [], []
    stages = {key: number for number, key in enumerate(dict.fromkeys(_stage(network, n) for n in _numbers(network)))}
    for number, (origin, end) in enumerate(zip(network.times.origins, network.times.ends, strict=True)):
        if origin is None or end is None:
            continue
        task, stage = network.plan.tasks[number], stages[_stage(network, number)]
        row = 1 - len(names) if task.accelerator is None else -names.index(task.accelerator)
        places.append((origin, end, row - THICK, row + THICK))
        colours.append(lighter(SERIES[stage % len(SERIES)], 0.25))
        texts.append((task.nodes[0], str(stage)))
    return [Boxes(places, colours, [FAINT] * len(places), 0.4, texts)]


def _numbers(network: SystemNetwork) -> range:
    return range(len(network.plan.tasks))


def _stage(network: SystemNetwork, number: int) -> tuple[int, tuple[str, ...]]:
    task = network.plan.tasks[number]
    return task.inference, task.nodes


def _under_way(network: SystemNetwork, unit: Unit, end: int) -> list[tuple[float, float]]:
    """Of all accelerators, how many operations of a unit are under way, on average over a part of the cycles."""
    changes = np.zeros(end + 2, np.int32)
    for origin, line in zip(network.times.origins, network.times.timelines, strict=True):
        if origin is None or line is None:
            continue
        own = (line.unit == unit) & line.works
        np.add.at(changes, np.minimum(origin + line.start[own], end), 1)
        np.add.at(changes, np.minimum(origin + line.end[own] + 1, end), -1)
    counts = np.cumsum(changes[:end])
    borders = np.linspace(0, end, min(BINS, end) + 1).astype(np.int64)
    means = np.add.reduceat(counts, borders[:-1]) / np.diff(borders)
    return [(float(at), float(mean)) for at, mean in zip((borders[:-1] + borders[1:]) / 2, means, strict=True)]
