"""The timeline of a run: what each unit does when, for the whole network and, below, for a window of it."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.flows.report.charts.chart import Axis, Boxes, Chart, Entry, Mark, Note, Panel, Place
from dovetail.flows.report.charts.colours import FAINT, GRID, colours_of
from dovetail.flows.report.charts.layers import layer_colours, strip
from dovetail.isa.instructions.table import Unit
from dovetail.sw.analysis.history import Event, History, Wait

ROWS = ("layers", *(unit.name for unit in Unit))
THICK = 0.36
"""Half the height of a row; rows are 1 apart."""
EVENTS = 26
"""Operations of the window that is chosen when nobody names one."""

Window = tuple[int, int]
"""(first cycle, cycle after the last)."""


def chart(history: History, title: str, subtitle: str = "", *, window: Window | None = None) -> Chart:
    """The chart; without a ``window`` it is where the layer that takes most cycles begins."""
    window = window or window_of(history)
    whole = _panel(history, (0, max(history.cycles, 1)), named=False)
    part = _panel(history, window, named=True)
    busy = {unit: sum(e.end - e.start for e in history.events if e.unit == unit) for unit in Unit}
    told = [
        Note(f"{busy[unit] / history.cycles if history.cycles else 0:.1%} busy", 1, -row, 5, align="left", anchor="x")
        for row, unit in enumerate(Unit, 1)
    ]
    legend = [Entry(kind, colour) for kind, colour in colours_of([layer.kind for layer in history.layers]).items()]
    legend += [Entry("instruction fetch", FAINT), Entry("waits for a token", GRID)]
    panels = (
        Panel(whole.x, whole.y, [*whole.marks, *told], 1.48, zoom=window),
        Panel(part.x, part.y, part.marks, 1.95, above=0.73),
    )
    return Chart(title, subtitle, panels, legend, left=0.95, right=0.75, bottom=0.5)


def window_of(history: History) -> Window:
    """Some operations from where the layer that takes most cycles begins, with a few before."""
    largest = max(range(len(history.layers)), key=lambda n: history.layers[n].end - history.layers[n].start, default=0)
    first = next((n for n, event in enumerate(history.events) if event.layer == largest), 0)
    shown = history.events[max(first - EVENTS // 6, 0) :][:EVENTS]
    if not shown:
        return 0, max(history.cycles, 1)
    return shown[0].start, max(event.end for event in shown)


def _panel(history: History, window: Window, *, named: bool) -> Panel:
    x = Axis(*window, title="cycle" if named else "", count=9)
    y = Axis(-len(ROWS) + 0.45, 0.45, ticks=[-row for row in range(len(ROWS))], names=ROWS, line=False)
    colours = layer_colours(history.layers)
    marks: list[Mark] = [strip(x, history.layers, colours, -THICK, THICK)]
    if named:
        waits = [(w.start, w.end, *_row(w.unit, THICK / 4)) for w in history.waits if _is_within(window, w)]
        marks.append(Boxes(waits, [GRID] * len(waits)))
    shown = [event for event in history.events if _is_within(window, event)]
    places: list[Place] = [(event.start, event.end, *_row(event.unit, THICK)) for event in shown]
    fills = [FAINT if event.layer is None else colours[event.layer] for event in shown]
    edges: Sequence[str] = ["white"] * len(shown) if named else ()
    texts = [(event.name,) for event in shown] if named else ()
    marks.append(Boxes(places, fills, edges, 0.4 if named else 0, texts))
    return Panel(x, y, marks, 0)


def _is_within(window: Window, span: Event | Wait) -> bool:
    return span.end > window[0] and span.start < window[1]


def _row(unit: int, half: float) -> tuple[float, float]:
    return -unit - 1 - half, -unit - 1 + half
