"""A plan for a system over time: what the host and each accelerator do, and whose data memory moves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.flows.report.charts.chart import Area, Axis, Boxes, Chart, Entry, Mark, Note, Panel
from dovetail.flows.report.charts.colours import FAINT, SERIES, SOFT, lighter
from dovetail.sw.analysis.system_history import host_spans, moved
from dovetail.sw.runtime.system_network import SystemNetwork

BINS = 300
"""Of the areas of bytes."""
THICK = 0.38
"""Half the height of a row; rows are 1 apart."""
SHADES = (0.3, 0.55)
"""White in the colours of jobs: of one stage, and of the next."""
FORMS = ("quantize", "dequantize")
"""Kinds of the host's layers that name a job last."""
LAYER = "#DDDDDD"
"""The host's layers."""

Colours = Mapping[str, str]
"""Of each accelerator, by its name."""


def chart(network: SystemNetwork, title: str, subtitle: str = "") -> Chart:
    """The chart: above a row for the host and one of jobs for each accelerator, below the bytes a cycle that memory
    moves for each, one upon the other."""
    names = [part.name for part in network.system.accelerators]
    colours = {name: SERIES[number % len(SERIES)] for number, name in enumerate(names)}
    labels, end = ["host", *names], max(network.times.cycles, 1)
    rows = Axis(-len(labels) + 0.45, 0.55, ticks=[-row for row in range(len(labels))], names=labels, line=False)
    areas, most = _areas(network, colours, end)
    amounts = Axis(0, most * 1.1, title="bytes a cycle", count=3, grid=True)
    marks: list[Mark] = [*_jobs(network, colours), *_host(network), *_shares(network, names, end)]
    panels = [
        Panel(Axis(0, end, count=9), rows, marks, max(0.35 * len(labels), 0.8)),
        Panel(Axis(0, end, title="cycle", count=9), amounts, areas, 1.2, above=0.45),
    ]
    legend = [Entry("the host starts a job", SOFT)]
    legend += [Entry("computes a layer", LAYER)] if network.host_cycles else []
    legend += [Entry(f"{name}, and its data", colours[name]) for name in names]
    return Chart(title, subtitle, panels, legend, right=0.75)


def _host(network: SystemNetwork) -> list[Mark]:
    """Starts, and layers with the name or kind of the one that takes most cycles, or the job's number."""
    graph, cost = network.graph, network.options.host
    nodes = {node.name: node for node in graph.nodes}
    spans = host_spans(network.plan, network.times)
    places = [(span.start, span.end, -THICK, THICK) for span in spans]
    colours = [SOFT if span.is_start else LAYER for span in spans]
    texts = list[tuple[str, ...]]()
    for span in spans:
        own = [nodes[name] for name in network.plan.tasks[span.job].nodes]
        most = max(own, key=lambda node: (cost.cycles(graph, node), node.op not in FORMS))
        texts.append(() if span.is_start else (most.name, most.op, str(span.job)))
    return [Boxes(places, colours, [SOFT if span.is_start else FAINT for span in spans], 0.4, texts)]


def _jobs(network: SystemNetwork, colours: Colours) -> list[Mark]:
    """Boxes of accelerators' jobs, in one shade for all shares of the same nodes, with inference and first node, or the
    job's number."""
    numbers, plan = network.system.numbers, network.plan
    stages = {key: n for n, key in enumerate(dict.fromkeys((task.inference, task.nodes) for task in plan.tasks))}
    places, shades, texts = [], [], []
    for number, (task, origin, end, _, _) in enumerate(network.done):
        if task.accelerator is None:
            continue
        row, stage = -1 - numbers[task.accelerator], stages[task.inference, task.nodes]
        places.append((origin, end, row - THICK, row + THICK))
        shades.append(lighter(colours[task.accelerator], SHADES[stage % len(SHADES)]))
        which = f"{task.inference}: " if network.inferences > 1 else ""
        texts.append((which + task.nodes[0], str(number)))
    return [Boxes(places, shades, [FAINT] * len(places), 0.4, texts)]


def _shares(network: SystemNetwork, names: list[str], end: int) -> list[Mark]:
    """The part of all cycles in which each row is busy."""
    busy = [sum(span.end - span.start for span in host_spans(network.plan, network.times))]
    for name in names:
        busy.append(sum(done.cycles for done in network.done if done.task.accelerator == name))
    return [Note(f"{cycles / end:.1%} busy", 1, -row, 5, align="left", anchor="x") for row, cycles in enumerate(busy)]


def _areas(network: SystemNetwork, colours: Colours, end: int) -> tuple[list[Mark], float]:
    """Bytes a cycle of each accelerator upon those of the others, on average over a part of the cycles; the most."""
    borders = np.linspace(0, end, min(BINS, end) + 1).astype(np.int64)
    floor, marks = np.zeros(len(borders) - 1), list[Mark]()
    for name, own in moved(network.plan, network.times).items():
        height = floor + np.diff(own.until(borders)) / np.diff(borders)
        upper, lower = ([(float(x), float(y)) for x, y in _stairs(borders, v)] for v in (height, floor))
        marks.append(Area([*upper, *reversed(lower)], colours[name]))
        floor = height
    return marks, max(float(floor.max()), 1.0)


def _stairs(borders: np.ndarray, heights: np.ndarray) -> list[tuple[int, float]]:
    steps = zip(borders[:-1].tolist(), borders[1:].tolist(), heights.tolist(), strict=True)
    return [corner for start, end, height in steps for corner in ((start, height), (end, height))]
