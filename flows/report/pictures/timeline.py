"""The timeline of a run: what each unit does when, for the whole network and, below, for a window of it."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch, Patch

from dovetail.flows.report.pictures.layers import boxes, layer_colours, strip, write_inside
from dovetail.flows.report.pictures.style import (
    FAINT,
    GRID,
    INK,
    SMALL,
    TEXT,
    colours_of,
    count_axis,
    new_figure,
    stack_order,
    tidy,
    write_legend,
    write_title,
)
from dovetail.isa.instructions.table import Unit
from dovetail.sw.analysis.history import History

WIDTH, HEIGHT = 9.0, 5.6
"""Inches."""
LEFT, RIGHT = 0.95, 0.75
ROWS = ("layers", *(unit.name for unit in Unit))
THICK = 0.36
"""Half the height of a row; rows are 1 apart."""
EVENTS = 26
"""Operations of the window that is chosen when nobody names one."""

Window = tuple[int, int]
"""(first cycle, cycle after the last)."""


def draw(history: History, title: str, subtitle: str = "", *, window: Window | None = None) -> Figure:
    """The picture; without a ``window`` it is where the layer that takes most cycles begins."""
    window = window or window_of(history)
    figure = new_figure(WIDTH, HEIGHT)
    colours = layer_colours(history.layers)
    whole = _plot(figure, 3.18, 1.48, (0, max(history.cycles, 1)))
    part = _plot(figure, 0.5, 1.95, window)
    busy = {unit: sum(e.end - e.start for e in history.events if e.unit == unit) for unit in Unit}
    _draw_rows(whole, history, colours, named=False)
    _draw_rows(part, history, colours, named=True)
    for row, unit in enumerate(Unit, 1):
        share = busy[unit] / history.cycles if history.cycles else 0
        whole.annotate(
            f"{share:.1%} busy", (1, -row), (5, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            fontsize=SMALL, color=INK, va="center",
        )  # fmt: skip
    _connect(figure, whole, part, window)
    part.set_xlabel("cycle", fontsize=TEXT + 1, color=INK)
    write_title(figure, title, subtitle, LEFT)
    kinds = stack_order([layer.kind for layer in history.layers])
    table = colours_of(kinds)
    handles = [Patch(color=table[kind], label=kind) for kind in kinds]
    handles += [
        Patch(color=FAINT, label="instruction fetch"),
        Patch(facecolor=GRID, label="waits for a token"),
    ]
    write_legend(figure, handles, LEFT)
    return figure


def window_of(history: History) -> Window:
    """Some operations from where the layer that takes most cycles begins, with a few before."""
    largest = max(range(len(history.layers)), key=lambda n: history.layers[n].end - history.layers[n].start, default=0)
    first = next((n for n, event in enumerate(history.events) if event.layer == largest), 0)
    shown = history.events[max(first - EVENTS // 6, 0) :][:EVENTS]
    if not shown:
        return 0, max(history.cycles, 1)
    return shown[0].start, max(event.end for event in shown)


def _plot(figure: Figure, bottom: float, height: float, window: Window) -> Axes:
    box = (LEFT / WIDTH, bottom / HEIGHT, (WIDTH - LEFT - RIGHT) / WIDTH, height / HEIGHT)
    plot = tidy(figure.add_axes(box))
    plot.set_xlim(*window)
    plot.set_ylim(-len(ROWS) + 0.45, 0.45)
    plot.set_yticks([-row for row in range(len(ROWS))], ROWS)
    plot.tick_params(axis="y", length=0)
    plot.spines["left"].set_visible(False)
    count_axis(plot, "x", 9)
    return plot


def _draw_rows(plot: Axes, history: History, colours: list[str], *, named: bool) -> None:
    first, last = plot.get_xlim()
    strip(plot, history.layers, colours, -THICK, THICK)
    shown = [event for event in history.events if event.end > first and event.start < last]
    if named:
        waits = [wait for wait in history.waits if wait.end > first and wait.start < last]
        places = [(w.start, w.end, -w.unit - 1 - THICK / 4, -w.unit - 1 + THICK / 4) for w in waits]
        boxes(plot, places, [GRID] * len(places), [], 0)
    places = [(e.start, e.end, -e.unit - 1 - THICK, -e.unit - 1 + THICK) for e in shown]
    fills = [FAINT if event.layer is None else colours[event.layer] for event in shown]
    boxes(plot, places, fills, ["white"] * len(shown) if named else [], 0.4 if named else 0)
    if named:
        for event, place, fill in zip(shown, places, fills, strict=True):
            write_inside(plot, place, (event.name,), fill)


def _connect(figure: Figure, whole: Axes, part: Axes, window: Window) -> None:
    """Where the window lies in the whole."""
    whole.axvspan(*window, color=INK, alpha=0.12, linewidth=0, zorder=0.5)
    low, high = whole.get_ylim()[0], part.get_ylim()[1]
    for cycle in window:
        whole.plot([cycle, cycle], whole.get_ylim(), color=INK, linewidth=0.7)
        figure.add_artist(
            ConnectionPatch((cycle, low), (cycle, high), "data", "data", axesA=whole, axesB=part, color=FAINT,
                            linewidth=0.7, linestyle=(0, (2, 2)), zorder=-1)
        )  # fmt: skip
    for label in whole.get_xticklabels():
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})
