"""What SRAM holds over a run: bytes that are still to be read, by what they are, and where they lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dovetail.flows.report.charts.chart import Area, Axis, Boxes, Chart, Entry, Line, Mark, Note, Panel
from dovetail.flows.report.charts.colours import GRID
from dovetail.flows.report.charts.layers import strip
from dovetail.isa.common.sizes import format_bytes
from dovetail.sw.analysis.history import ROLES, History, levels

COLOURS = dict(zip(ROLES, ("#4477AA", "#66CCEE", "#EE7733", "#AA3377"), strict=True))
STRIPES = ("#D4D4D4", "#EAEAEA")
"""Colours of the layers; those of their kinds would be taken for what SRAM holds."""
THIN = 0.006
"""Height or width of a rectangle, as a part of the plot, up to which an edge in its own colour keeps it visible."""


def chart(history: History, title: str, subtitle: str = "") -> Chart:
    """Above: bytes over cycles. Below: every life as a rectangle of cycles by addresses; faint lines part the banks."""
    high = max(history.cycles, 1)
    hidden = Axis(0, high, ticks=(), line=False)
    stripes = [STRIPES[n % 2] for n in range(len(history.layers))]
    names = Panel(hidden, Axis(ticks=(), line=False), [strip(hidden, history.layers, stripes, 0, 1)], 0.22)
    found = {life.role for life in history.lives}
    legend = [Entry(role, COLOURS[role]) for role in ROLES if role in found]
    panels = (names, _amounts(history, high), _addresses(history, high))
    return Chart(title, subtitle, panels, legend, left=0.95, bottom=0.5)


def _amounts(history: History, high: int) -> Panel:
    cycles = np.unique([c for life in history.lives for c in (life.start, life.end)] + [0, history.cycles])
    floor, marks = np.zeros(len(cycles)), list[Mark]()
    for role in ROLES:
        steps = levels((life.start, life.end, life.size) for life in history.lives if life.role == role)
        if not steps:
            continue
        at, amount = np.array([(0, 0), *steps]).T
        height = floor + amount[np.searchsorted(at, cycles, "right") - 1]
        marks.append(Area([*_stairs(cycles, height), *reversed(_stairs(cycles, floor))], COLOURS[role]))
        floor = height
    size, peak = history.config.sram, int(floor.max())
    top = size if peak > size / 4 else max(peak, 1)
    if top == size:
        marks.append(Line([(0, size), (high, size)], width=1))
    told = f"{format_bytes(size)} of SRAM, at most {peak:,} bytes ({peak / size:.0%}) live"
    marks.append(Note(told, 1, 1, align="right", over="top", anchor="plot"))
    return Panel(Axis(0, high, ticks=()), Axis(0, top * 1.25, "live", unit="B"), marks, 1.0, above=0.05)


def _stairs(cycles: np.ndarray, heights: np.ndarray) -> list[tuple[float, float]]:
    """The corners of amounts that stay until the next cycle of change."""
    steps = zip(pairwise(cycles.tolist()), heights.tolist(), strict=False)
    return [corner for (start, end), height in steps for corner in ((start, height), (end, height))]


def _addresses(history: History, high: int) -> Panel:
    config = history.config
    top = max((life.address + life.size for life in history.lives), default=1)
    top = min(-(-top // config.bank_bytes) * config.bank_bytes, config.sram)
    places = [(life.start, life.end, life.address, life.address + life.size) for life in history.lives]
    fills = [COLOURS[life.role] for life in history.lives]
    large = [life.size > THIN * top and life.end - life.start > THIN * history.cycles for life in history.lives]
    edges = ["white" if is_large else fill for is_large, fill in zip(large, fills, strict=True)]
    banks = range(config.bank_bytes, top, config.bank_bytes)
    marks: list[Mark] = [Line([(0, bank), (high, bank)], GRID, 0.6, order=0.5) for bank in banks]
    marks.append(Boxes(places, fills, edges, 0.3))
    return Panel(Axis(0, high, "cycle", count=9, grid=True), Axis(0, top, "address", unit="B"), marks, 3.2, above=0.25)
