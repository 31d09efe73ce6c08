"""What SRAM holds over a run: bytes that are still to be read, by what they are, and where they lie."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MultipleLocator

from dovetail.flows.report.pictures.layers import boxes, strip
from dovetail.flows.report.pictures.style import (
    FAINT,
    GRID,
    INK,
    RASTER,
    SMALL,
    TEXT,
    count_axis,
    new_figure,
    tidy,
    write_legend,
    write_title,
)
from dovetail.isa.common.sizes import format_bytes
from dovetail.sw.analysis.history import ROLES, History, levels

WIDTH, HEIGHT = 9.0, 6.2
"""Inches."""
LEFT, RIGHT = 0.95, 0.25
COLOURS = dict(zip(ROLES, ("#4477AA", "#66CCEE", "#EE7733", "#AA3377"), strict=True))
STRIPES = ("#D4D4D4", "#EAEAEA")
"""Colours of the layers; those of their kinds would be taken for what SRAM holds."""
THIN = 0.006
"""Height or width of a rectangle, as a part of the plot, up to which an edge in its own colour keeps it visible."""


def draw(history: History, title: str, subtitle: str = "") -> Figure:
    """Above: bytes over cycles. Below: every life as a rectangle of cycles by addresses; faint lines part the banks."""
    figure = new_figure(WIDTH, HEIGHT)
    amounts = _plot(figure, 3.95, 1.0, history.cycles)
    addresses = _plot(figure, 0.5, 3.2, history.cycles)
    _draw_amounts(amounts, history)
    _draw_addresses(addresses, history)
    names = _plot(figure, 5.0, 0.22, history.cycles)
    names.set_axis_off()
    names.set_ylim(0, 1)
    strip(names, history.layers, [STRIPES[n % 2] for n in range(len(history.layers))], 0, 1)
    amounts.tick_params(labelbottom=False)
    addresses.set_xlabel("cycle", fontsize=TEXT + 1, color=INK)
    write_title(figure, title, subtitle, LEFT)
    found = {life.role for life in history.lives}
    write_legend(figure, [Patch(color=COLOURS[role], label=role) for role in ROLES if role in found], LEFT)
    return figure


def _plot(figure: Figure, bottom: float, height: float, cycles: int) -> Axes:
    box = (LEFT / WIDTH, bottom / HEIGHT, (WIDTH - LEFT - RIGHT) / WIDTH, height / HEIGHT)
    plot = tidy(figure.add_axes(box))
    plot.set_xlim(0, max(cycles, 1))
    count_axis(plot, "x", 9)
    return plot


def _draw_amounts(plot: Axes, history: History) -> None:
    cycles = np.unique([c for life in history.lives for c in (life.start, life.end)] + [0, history.cycles])
    floor = np.zeros(len(cycles))
    for role in ROLES:
        steps = levels((life.start, life.end, life.size) for life in history.lives if life.role == role)
        if not steps:
            continue
        at, amount = np.array([(0, 0), *steps]).T
        height = floor + amount[np.searchsorted(at, cycles, "right") - 1]
        plot.fill_between(
            cycles, floor, height, step="post", color=COLOURS[role], linewidth=0, rasterized=len(cycles) > RASTER
        )
        floor = height
    size, peak = history.config.sram, int(floor.max())
    top = size if peak > size / 4 else max(peak, 1)
    plot.set_ylim(0, top * 1.25)
    _byte_axis(plot, top)
    plot.set_ylabel("live", fontsize=TEXT + 1, color=INK)
    if top == size:
        plot.axhline(size, color=INK, linewidth=1)
    plot.annotate(
        f"{format_bytes(size)} of SRAM, at most {peak:,} bytes ({peak / size:.0%}) live", (1, 1), (0, 1),
        xycoords="axes fraction", textcoords="offset points", ha="right", va="top", fontsize=SMALL, color=INK,
    )  # fmt: skip


def _draw_addresses(plot: Axes, history: History) -> None:
    config = history.config
    top = max((life.address + life.size for life in history.lives), default=1)
    top = min(-(-top // config.bank_bytes) * config.bank_bytes, config.sram)
    plot.set_ylim(0, top)
    places = [(life.start, life.end, life.address, life.address + life.size) for life in history.lives]
    fills = [COLOURS[life.role] for life in history.lives]
    large = [life.size > THIN * top and life.end - life.start > THIN * history.cycles for life in history.lives]
    edges = ["white" if is_large else fill for is_large, fill in zip(large, fills, strict=True)]
    boxes(plot, places, fills, edges, 0.3)
    for bank in range(config.bank_bytes, top, config.bank_bytes):
        plot.axhline(bank, color=GRID, linewidth=0.6, zorder=0.5)
    _byte_axis(plot, top)
    plot.set_ylabel("address", fontsize=TEXT + 1, color=INK)
    plot.grid(axis="x", color=GRID, linewidth=0.6)
    plot.spines["left"].set_color(FAINT)


def _byte_axis(plot: Axes, top: int) -> None:
    """Figures at powers of two, about four of them."""
    plot.yaxis.set_major_locator(MultipleLocator(2 ** max(int(np.ceil(np.log2(top / 4))), 0)))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(int(value)) if value else "0"))
