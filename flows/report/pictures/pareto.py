"""Two metrics of many configurations as points: colour says a parameter, a line the best there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log
from pathlib import PurePath
from statistics import fmean
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from dovetail.flows.explore.results.row import Row, competing
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.results.table import is_unsure, scenarios_in_words
from dovetail.flows.options.parameters import AXES
from dovetail.flows.report.pictures.labels import Mark, place_labels
from dovetail.flows.report.pictures.style import (
    GRID,
    INK,
    RASTER,
    SERIES,
    add_plot,
    count_axis,
    label_axes,
    log_axis,
    new_figure,
    ramp_colour,
    write_legend,
    write_title,
)
from dovetail.isa.common.sizes import format_bytes

WIDTH, HEIGHT, MORE = 9.0, 5.6, 4.0
"""Inches: of a picture with one panel, and what each further one adds."""
GAP, BOTTOM, TOP = 0.75, 0.6, 0.95
"""Inches between panels, below them, and what is above them at least."""
PANELS = 3
MARKERS = {False: "o", True: "s"}
"""Of points, by whether their estimates are unsure."""
LEFT = 0.85
WIDE = 12
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
ROOM = 0.1
"""Of the span of an axis: what is left free at either end, for labels."""
APART = 0.07
"""Distance of two figures of an axis, as a part of it, at least."""
WEAK, FAINTLY = "#BBBBBB", 0.5
"""Of what is infeasible: in the legend, and how much of its own colour is left."""
GROUPS = len(SERIES)
"""Colours that a reader can tell apart."""


@dataclass(frozen=True)
class Axis:
    """A metric: what to write, and whether more of it is better."""

    title: str
    unit: str = ""
    more: bool = False

    @property
    def text(self) -> str:
        """Title, unit and the better direction."""
        known = self.unit in self.title or self.title.endswith("/s") or self.unit in ("B", "%")
        unit = "" if known else f" ({self.unit})"
        return f"{self.title}{unit}, {'more' if self.more else 'less'} is better"


@dataclass(frozen=True)
class Spot:
    """A configuration: both metrics, the group that colours it, its label.

    ``competes``: it may be on the front; if not, ``feasible`` says whether it keeps all constraints at least. ``best``:
    it is on the front of all objectives, also those that are not drawn here. ``unsure``: one of both metrics is an
    estimate whose error is not known.
    """

    x: float
    y: float
    group: str = ""
    label: str = ""
    competes: bool = True
    feasible: bool = True
    best: bool = False
    unsure: bool = False


@dataclass(frozen=True)
class Panel:
    """Two metrics of the spots."""

    spots: Sequence[Spot]
    x: Axis
    y: Axis


def draw(
    panels: Sequence[Panel],
    title: str,
    subtitle: str = "",
    *,
    groups: Sequence[str] = (),
    heading: str = "",
    ordered: bool = False,
    objectives: Sequence[str] = (),
) -> Figure:
    """The picture.

    Parameters
    ----------
    panels: one below another, of the same configurations; those that do not compete are hollow, those that are
        infeasible faint, those with an estimate of unknown error squares.
    groups: those of the spots, in the order of the legend.
    heading: what the groups are values of.
    ordered: the groups are in an order, which their colours show.
    objectives: titles of what the front is made of, where that is more than a panel shows.
    """
    colours = _colours(groups, ordered)
    handles, rows = _handles(panels, colours, objectives), 0.0
    height = HEIGHT + (len(panels) - 1) * MORE
    for _ in range(2):  # once to see how many lines the titles and the legend take
        figure = new_figure(WIDTH, height + rows)
        top = write_title(figure, title, subtitle, LEFT)
        top = write_legend(figure, handles, LEFT, top, heading=heading)
        rows = max(top - TOP, 0.0)
    each = (height + rows - top - GAP * (len(panels) - 1) - BOTTOM) / len(panels)
    for number, panel in enumerate(panels):
        above = top + number * (each + GAP)
        _draw_panel(add_plot(figure, LEFT, height + rows - above - each, 0.25, above), panel, colours, number == 0)
    return figure


def _draw_panel(plot: Axes, panel: Panel, colours: Mapping[str, str], labelled: bool) -> None:
    spots = panel.spots
    kept = [spot for spot in spots if spot.competes]
    aside = [spot for spot in spots if spot.feasible and not spot.competes]
    infeasible = [spot for spot in spots if not spot.feasible]
    best = front(kept, panel.x, panel.y)
    line = _corners(best)
    for which, axis in (("x", panel.x), ("y", panel.y)):
        _scale(plot, which, [getattr(spot, which) for spot in spots], axis.unit == "B")

    def shades(some: Sequence[Spot]) -> list[str]:
        return [colours.get(spot.group, SERIES[0]) for spot in some]

    many = len(spots) > RASTER
    size = 14 if len(spots) > 600 else 26
    plot.grid(color=GRID, linewidth=0.6)
    hollow = {"facecolors": "none", "linewidths": 0.7, "rasterized": many}
    for unsure, marker in MARKERS.items():

        def those(some: Sequence[Spot], unsure: bool = unsure) -> list[Spot]:
            return [spot for spot in some if spot.unsure is unsure]

        beside, left = those(infeasible), those(aside)
        _dots(plot, beside, s=size * 0.6, edgecolors=shades(beside), alpha=FAINTLY, marker=marker, **hollow)
        _dots(plot, left, s=size * 0.8, edgecolors=shades(left), marker=marker, **hollow)
        inner = those(kept)
        _dots(plot, inner, s=size, c=shades(inner), alpha=0.75, linewidths=0, rasterized=many, marker=marker)
        ringed = those([spot for spot in kept if spot.best])
        _dots(plot, ringed, s=44, c=shades(ringed), edgecolors=INK, linewidths=1.0, zorder=4, marker=marker)
    plot.plot([x for x, _ in line], [y for _, y in line], color=INK, linewidth=1.1, zorder=3)
    label_axes(plot, panel.x.text, panel.y.text)
    if labelled:
        wanted = [Mark(s.x, s.y, s.label) for s in _telling(best) if s.label]
        place_labels(plot, wanted, [Mark(s.x, s.y) for s in spots], [line])


def _handles(panels: Sequence[Panel], colours: Mapping[str, str], objectives: Sequence[str]) -> list[Line2D]:
    """What stands in the legend."""
    spots = [spot for panel in panels for spot in panel.spots]
    style: dict[str, Any] = {"linestyle": "none", "marker": "o"}
    handles = [Line2D([], [], color=colour, markersize=6, label=name, **style) for name, colour in colours.items()]
    found = sum(spot.best for spot in panels[0].spots)
    of = f" of {', '.join(objectives)}" if objectives else ""
    points = f"{found} point{'s' * (found != 1)}"
    ring: dict[str, Any] = {"color": "none", "markeredgecolor": INK, "markerfacecolor": "none", "markersize": 7}
    handles.append(Line2D([], [], label=f"Pareto front{of}, {points}", **style, **ring))
    if any(spot.competes for spot in spots):
        handles.append(Line2D([], [], color=INK, linewidth=1.1, label="best of the two shown"))
    aside = any(spot.feasible and not spot.competes for spot in spots)
    infeasible = any(not spot.feasible for spot in spots)
    for there, colour, name in ((aside, INK, "leaves more to the host"), (infeasible, WEAK, "infeasible")):
        if there:
            handles.append(Line2D([], [], color=colour, markersize=5, markerfacecolor="none", label=name, **style))
    if any(spot.unsure for spot in spots):
        text = "estimate outside of what was measured, error not known"
        handles.append(Line2D([], [], color=INK, linestyle="none", marker=MARKERS[True], markersize=6, label=text))
    return handles


def front(spots: Sequence[Spot], x: Axis, y: Axis) -> list[Spot]:
    """The spots of which none is better in one metric without being worse in the other; the best in x first."""
    right, up = (-1 if x.more else 1), (-1 if y.more else 1)
    best: list[Spot] = []
    for spot in sorted(spots, key=lambda s: (right * s.x, up * s.y)):
        if not best or up * spot.y < up * best[-1].y:
            best.append(spot)
    return best


def of_results(
    results: Results, x: str | None = None, y: str | None = None, colour: str | None = None
) -> Figure | None:
    """The picture of a sweep: ``x`` and ``y`` are names of metrics; without them the first objective over each of the
    others, a panel each, up to :data:`PANELS`. ``colour`` is a parameter that varies, by default the one that explains
    most of ``y``. Scenarios of a choice are one point. None if no row has all metrics."""
    results, known = results.apart(), results.space.known
    names = list(results.space.objectives)
    y = y or next((name for name in names if name != x), "cycles")
    across = [x] if x else [name for name in names if name != y][:PANELS] or [next(n for n in ("pe", "lut") if n != y)]
    rows = [row for row in results.rows if all(name in row.values for name in (*across, y))]
    if not rows:
        return None
    colour = colour or telling_axis(rows, y)
    values = {_shown(colour, row.axes[colour]): row.axes[colour] for row in rows} if colour else {}
    ordered = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    order = [_shown(colour, value) for value in results.space.axes.get(colour, ())] if colour else []
    groups = sorted(values, key=values.__getitem__ if ordered else order.index)
    front = {row.number for row in results.marked().rows if row.front}
    shown = {y, *across}
    panels = []
    for name in across:
        able = {rows[index].number for index in competing(results.space, rows, (name, y))}
        spots = [
            Spot(
                row.values[name],
                row.values[y],
                _shown(colour, row.axes[colour]) if colour else "",
                _label(", ".join(_shown(axis, value) for axis, value in row.axes.items())),
                row.number in able,
                row.feasible,
                row.number in front,
                any(is_unsure(results.space, row, each) for each in (name, y)),
            )
            for row in rows
        ]
        panels.append(Panel(spots, *(Axis(known[n].title, known[n].unit, known[n].more) for n in (name, y))))
    networks = " + ".join(PurePath(workload.source).name for workload in results.space.workloads)
    failed = sum(not row.values for row in results.rows)
    subtitle = f"{len(rows):,} configurations" + (f", {failed:,} more are not possible" if failed else "")
    if rows[0].axes:
        subtitle += f"; labels: {', '.join(_title(name) for name in rows[0].axes)}"
    if results.space.scenario_axes:
        subtitle += f"; {scenarios_in_words(results.space)}"
    if unseen := [known[name].title for name in names if name not in shown]:
        subtitle += f"; objectives that are not drawn: {', '.join(unseen)}"
    over = " and ".join(panel.x.title for panel in panels)
    return draw(
        panels, f"{networks}: {panels[0].y.title} over {over}", subtitle, groups=groups,
        heading=_title(colour) if colour else "", ordered=ordered,
        objectives=[known[name].title for name in names] if len(names) > 2 or set(names) - shown else (),
    )  # fmt: skip


def telling_axis(rows: Sequence[Row], metric: str) -> str | None:
    """The parameter whose values, few enough for colours, part the metric best; None if none varies."""
    mean = fmean(row.values[metric] for row in rows)

    def between(name: str) -> float:
        groups: dict[str, list[float]] = {}
        for row in rows:
            groups.setdefault(str(row.axes[name]), []).append(row.values[metric])
        if not 1 < len(groups) <= GROUPS:
            return -1.0
        return sum(len(values) * (fmean(values) - mean) ** 2 for values in groups.values())

    best = max(rows[0].axes, key=between, default=None)
    return best if best is not None and between(best) >= 0 else None


def _label(text: str) -> str:
    """The text in two lines if it is long: there is more room below one another than side by side."""
    return fill(text, len(text) // 2 + 4) if len(text) > 20 else text


def _title(name: str) -> str:
    return AXES[name].title


def _shown(name: str, value: Any) -> str:
    """A value in one piece."""
    return AXES[name].show(value).replace(" ", "\N{NO-BREAK SPACE}")


def _dots(plot: Axes, spots: Sequence[Spot], **style: Any) -> None:
    if spots:
        plot.scatter([spot.x for spot in spots], [spot.y for spot in spots], **style)


def _corners(best: Sequence[Spot]) -> list[tuple[float, float]]:
    """From point to point over the worse corner: everything beyond the line is matched by a point on it."""
    line: list[tuple[float, float]] = []
    for n, spot in enumerate(best):
        line += [(spot.x, best[n - 1].y)] if n else []
        line.append((spot.x, spot.y))
    return line


def _telling(best: Sequence[Spot]) -> list[Spot]:
    """The front in the order in which its labels matter: both ends, the middle, and so on in halves."""
    order = dict.fromkeys([0, len(best) - 1] if best else [])
    parts = 2
    while len(order) < len(best):
        order |= dict.fromkeys(round(n * (len(best) - 1) / parts) for n in range(1, parts))
        parts *= 2
    return [best[n] for n in order]


def _scale(plot: Axes, which: str, values: Sequence[float], in_bytes: bool) -> None:
    """Limits and figures of an axis; where few values occur, they are the figures."""
    values = [value for value in values if isfinite(value)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    wide = low > 0 and high / low >= WIDE
    if wide:
        room = (high / low) ** ROOM
        log_axis(plot, which, low / room, high * room)
    else:
        room = (high - low) * ROOM or abs(high) * 0.1 or 1.0
        (plot.set_xlim if which == "x" else plot.set_ylim)(low - room, high + room)
        count_axis(plot, which)
    axis = plot.xaxis if which == "x" else plot.yaxis
    if in_bytes:
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(round(value)) if value else "0"))
    own = sorted(set(values))
    places = [log(value) if wide else value for value in own]
    gaps = [after - before for before, after in pairwise(places)]
    if gaps and min(gaps) >= APART * (places[-1] - places[0]):
        axis.set_major_locator(FixedLocator(own))


def _colours(groups: Sequence[str], ordered: bool) -> dict[str, str]:
    """As the page has them."""
    if ordered and len(groups) > 2:
        return {name: ramp_colour(n / (len(groups) - 1)) for n, name in enumerate(groups)}
    return {name: SERIES[n % len(SERIES)] for n, name in enumerate(groups)}
