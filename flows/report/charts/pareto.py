"""Two metrics of many configurations as points: colours show a parameter, a line the best points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log
from pathlib import PurePath
from statistics import fmean
from textwrap import fill
from typing import Any

from dovetail.flows.explore.results.outcome import Outcome
from dovetail.flows.explore.results.row import Row, competing
from dovetail.flows.explore.results.table import is_unsure, scenarios_in_words
from dovetail.flows.explore.space.deployment import Deployment
from dovetail.flows.explore.space.metrics import Metric
from dovetail.flows.options.parameters import AXES
from dovetail.flows.report.charts.chart import Axis, Chart, Dots, Entry, Label, Line, Mark, Panel
from dovetail.flows.report.charts.colours import INK, SERIES, group_colours

HEIGHT, EACH = 4.05, 3.5
"""Inches of a panel alone, and of one of several."""
PANELS = 3
SHAPES = {False: "o", True: "s"}
"""Of points, by whether their estimates are unsure."""
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


def front(spots: Sequence[Spot], x: Metric, y: Metric) -> list[Spot]:
    """The spots of which none is better in one metric without being worse in the other; the best in x first."""
    right, up = (-1 if x.more else 1), (-1 if y.more else 1)
    best: list[Spot] = []
    for spot in sorted(spots, key=lambda s: (right * s.x, up * s.y)):
        if not best or up * spot.y < up * best[-1].y:
            best.append(spot)
    return best


def of_results(results: Outcome, x: str | None = None, y: str | None = None, colour: str | None = None) -> Chart | None:
    """The chart of a sweep: ``x`` and ``y`` are names of metrics; without them the first objective over each of the
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
    drawn = []
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
        drawn.append((spots, known[name]))
    networks = " + ".join(PurePath(workload.source).name for workload in results.space.workloads)
    failed = sum(not row.values for row in results.rows)
    what = "systems" if isinstance(results.space.base, Deployment) else "configurations"
    subtitle = f"{len(rows):,} {what}" + (f", {failed:,} more are not possible" if failed else "")
    if rows[0].axes:
        subtitle += f"; labels: {', '.join(AXES[name].title for name in rows[0].axes)}"
    if results.space.scenario_axes:
        subtitle += f"; {scenarios_in_words(results.space)}"
    if unseen := [known[name].title for name in names if name not in shown]:
        subtitle += f"; objectives that are not drawn: {', '.join(unseen)}"
    colours = group_colours(groups, ordered)
    legend = _legend([spot for spots, _ in drawn for spot in spots], len(front), colours,
                     [known[name].title for name in names] if len(names) > 2 or set(names) - shown else [])  # fmt: skip
    height = HEIGHT if len(drawn) == 1 else EACH
    panels = [
        _panel(spots, metric, known[y], colours, height, 0.75 if n else 0) for n, (spots, metric) in enumerate(drawn)
    ]
    over = " and ".join(metric.title for _, metric in drawn)
    heading = AXES[colour].title if colour else ""
    return Chart(f"{networks}: {known[y].title} over {over}", subtitle, panels, legend, heading)


def _panel(
    spots: Sequence[Spot], x: Metric, y: Metric, colours: Mapping[str, str], height: float, above: float
) -> Panel:
    """Those that do not compete are hollow, those that are infeasible faint, estimates of unknown error squares. The
    first panel has labels."""
    kept = [spot for spot in spots if spot.competes]
    best = front(kept, x, y)
    line = _corners(best)
    size = 14 if len(spots) > 600 else 26

    def dots(some: Sequence[Spot], area: float, **style: Any) -> list[Mark]:
        return [
            Dots([(s.x, s.y) for s in those], [colours.get(s.group, SERIES[0]) for s in those], [area] * len(those),
                 shape=shape, **style)
            for unsure, shape in SHAPES.items()
            if (those := [spot for spot in some if spot.unsure is unsure])
        ]  # fmt: skip

    marks = [
        *dots([spot for spot in spots if not spot.feasible], size * 0.6, hollow=True, width=0.7, opacity=FAINTLY),
        *dots([spot for spot in spots if spot.feasible and not spot.competes], size * 0.8, hollow=True, width=0.7),
        *dots(kept, size, opacity=0.75),
        *dots([spot for spot in kept if spot.best], 44, edge=INK, width=1.0, order=4),
        Line(line),
    ]
    labels = [] if above else [Label(s.x, s.y, s.label) for s in _telling(best) if s.label]
    return Panel(_axis(x, [s.x for s in spots]), _axis(y, [s.y for s in spots]), marks, height, above, labels)


def _legend(spots: Sequence[Spot], best: int, colours: Mapping[str, str], objectives: Sequence[str]) -> list[Entry]:
    of = f" of {', '.join(objectives)}" if objectives else ""
    entries = [Entry(name, colour, "dot") for name, colour in colours.items()]
    entries.append(Entry(f"Pareto front{of}, {best} point{'s' * (best != 1)}", INK, "ring"))
    some = (
        (any(spot.competes for spot in spots), Entry("best of the two shown", INK, "line")),
        (any(spot.feasible and not spot.competes for spot in spots), Entry("leaves more to the host", INK, "hollow")),
        (any(not spot.feasible for spot in spots), Entry("infeasible", WEAK, "hollow")),
        (
            any(spot.unsure for spot in spots),
            Entry("estimate outside of what was measured, error not known", INK, "square"),
        ),
    )
    return entries + [entry for there, entry in some if there]


def _axis(metric: Metric, values: Sequence[float]) -> Axis:
    """Limits and figures of an axis; where few values occur, they are the figures."""
    own = sorted({value for value in values if isfinite(value)}) or [0.0, 1.0]
    low, high = own[0], own[-1]
    wide = low > 0 and high / low >= WIDE
    places = [log(value) if wide else value for value in own]
    gaps = [after - before for before, after in pairwise(places)]
    ticks = own if gaps and min(gaps) >= APART * (places[-1] - places[0]) else None
    if wide:
        room = (high / low) ** ROOM
        low, high = low / room, high * room
    else:
        room = (high - low) * ROOM or abs(high) * 0.1 or 1.0
        low, high = low - room, high + room
    return Axis(low, high, metric.axis, log=wide, unit=metric.unit, ticks=ticks, grid=True)


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


def _shown(name: str, value: Any) -> str:
    """A value without spaces at which a line could break."""
    return AXES[name].show(value).replace(" ", "\N{NO-BREAK SPACE}")


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
