"""Two metrics of many configurations as points: colour says a parameter, a line the best there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from pathlib import PurePath
from statistics import fmean
from textwrap import fill
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

from dovetail.flows.explore.metrics import METRICS
from dovetail.flows.explore.results import Results, Row, competing
from dovetail.flows.parameters import AXES
from dovetail.flows.pictures.labels import Mark, place_labels
from dovetail.flows.pictures.style import (
    GRID,
    INK,
    RASTER,
    SERIES,
    add_plot,
    count_axis,
    figure_bytes,
    label_axes,
    log_axis,
    new_figure,
    write_legend,
    write_title,
)
from dovetail.isa.config import format_bytes

WIDTH, HEIGHT = 9.0, 5.6
"""Inches."""
LEFT = 0.85
WIDE = 12
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""
ROOM = 0.1
"""Of the span of an axis: what is left free at either end, for labels."""
APART = 0.07
"""Distance of two figures of an axis, as a part of it, at least."""
WEAK = "#BBBBBB"
"""Of what is infeasible."""
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
        known = self.unit in self.title or self.title.endswith("/s") or self.unit == "B"
        unit = "" if known else f" ({self.unit})"
        return f"{self.title}{unit}, {'more' if self.more else 'less'} is better"


@dataclass(frozen=True)
class Spot:
    """A configuration: both metrics, the group that colours it, its label.

    ``competes``: it may be on the front; if not, ``feasible`` says whether it keeps all constraints at least.
    """

    x: float
    y: float
    group: str = ""
    label: str = ""
    competes: bool = True
    feasible: bool = True


def draw(
    spots: Sequence[Spot],
    x: Axis,
    y: Axis,
    title: str,
    subtitle: str = "",
    *,
    groups: Sequence[str] = (),
    heading: str = "",
    ordered: bool = False,
    fmt: str = "png",
) -> bytes:
    """The picture.

    Parameters
    ----------
    spots: those that do not compete are hollow, those that are infeasible faint.
    groups: those of the spots, in the order of the legend.
    heading: what the groups are values of.
    ordered: the groups are in an order, which their colours show.
    """
    figure = new_figure(WIDTH, HEIGHT)
    plot = add_plot(figure, LEFT, 0.6, 0.25)
    kept = [spot for spot in spots if spot.competes]
    aside = [spot for spot in spots if spot.feasible and not spot.competes]
    infeasible = [spot for spot in spots if not spot.feasible]
    best = front(kept, x, y)
    line = _corners(best)
    for which, axis in (("x", x), ("y", y)):
        _scale(plot, which, [getattr(spot, which) for spot in spots], axis.unit == "B")
    colours = _colours(groups, ordered)

    def shades(some: Sequence[Spot]) -> list[str]:
        return [colours.get(spot.group, SERIES[0]) for spot in some]

    many = len(spots) > RASTER
    size = 14 if len(spots) > 600 else 26
    plot.grid(color=GRID, linewidth=0.6)
    hollow = {"facecolors": "none", "linewidths": 0.7, "rasterized": many}
    _dots(plot, infeasible, s=size * 0.6, edgecolors=WEAK, **hollow)
    _dots(plot, aside, s=size * 0.8, edgecolors=shades(aside), **hollow)
    _dots(plot, kept, s=size, c=shades(kept), alpha=0.75, linewidths=0, rasterized=many)
    plot.plot([x for x, _ in line], [y for _, y in line], color=INK, linewidth=1.1, zorder=3)
    _dots(plot, best, s=44, c=shades(best), edgecolors=INK, linewidths=1.0, zorder=4)
    label_axes(plot, x.text, y.text)
    wanted = [Mark(s.x, s.y, s.label) for s in _telling(best) if s.label]
    place_labels(plot, wanted, [Mark(s.x, s.y) for s in spots], [line])
    write_title(figure, title, subtitle, LEFT)
    style: dict[str, Any] = {"linestyle": "none", "marker": "o"}
    handles = [Line2D([], [], color=colour, markersize=6, label=name, **style) for name, colour in colours.items()]
    found = f"Pareto front, {len(best)} point{'s' * (len(best) != 1)}"
    handles.append(Line2D([], [], color=INK, linewidth=1.1, label=found))
    for some, colour, name in ((aside, INK, "leaves more to the host"), (infeasible, WEAK, "infeasible")):
        if some:
            handles.append(Line2D([], [], color=colour, markersize=5, markerfacecolor="none", label=name, **style))
    write_legend(figure, handles, LEFT, heading=heading)
    return figure_bytes(figure, fmt)


def front(spots: Sequence[Spot], x: Axis, y: Axis) -> list[Spot]:
    """The spots of which none is better in one metric without being worse in the other; the best in x first."""
    right, up = (-1 if x.more else 1), (-1 if y.more else 1)
    best: list[Spot] = []
    for spot in sorted(spots, key=lambda s: (right * s.x, up * s.y)):
        if not best or up * spot.y < up * best[-1].y:
            best.append(spot)
    return best


def of_results(
    results: Results, x: str | None = None, y: str | None = None, colour: str | None = None, *, fmt: str = "png"
) -> bytes | None:
    """The picture of a sweep: ``x`` and ``y`` are names of metrics, by default the space's first two objectives;
    ``colour`` is a parameter that varies, by default the one that explains most of ``y``. None if no row has both
    metrics."""
    names = [name for name in results.space.objectives if name in METRICS]
    y = y or next((name for name in names if name != x), "cycles")
    x = x or next((name for name in names if name != y), "pe")
    rows = [row for row in results.rows if x in row.values and y in row.values]
    if not rows:
        return None
    colour = colour or telling_axis(rows, y)
    values = {_shown(colour, row.axes[colour]): row.axes[colour] for row in rows} if colour else {}
    ordered = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
    groups = sorted(values, key=values.__getitem__) if ordered else list(values)
    able = {rows[index].number for index in competing(results.space, rows, (x, y))}
    spots = [
        Spot(
            row.values[x],
            row.values[y],
            _shown(colour, row.axes[colour]) if colour else "",
            _label(", ".join(_shown(name, value) for name, value in row.axes.items())),
            row.number in able,
            row.feasible,
        )
        for row in rows
    ]
    networks = " + ".join(PurePath(workload.source).name for workload in results.space.workloads)
    across, up = (Axis(METRICS[name].title, METRICS[name].unit, METRICS[name].more) for name in (x, y))
    failed = sum(not row.values for row in results.rows)
    subtitle = f"{len(rows):,} configurations" + (f", {failed:,} more are not possible" if failed else "")
    if rows[0].axes:
        subtitle += f"; labels: {', '.join(_title(name) for name in rows[0].axes)}"
    return draw(
        spots, across, up, f"{networks}: {up.title} over {across.title}", subtitle,
        groups=groups, heading=_title(colour) if colour else "", ordered=ordered, fmt=fmt,
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
    return AXES[name].title or name


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
    if ordered and len(groups) > 2:
        scale = colormaps["viridis"]
        return {name: to_hex(scale(0.92 * n / (len(groups) - 1))) for n, name in enumerate(groups)}
    return {name: SERIES[n % len(SERIES)] for n, name in enumerate(groups)}
