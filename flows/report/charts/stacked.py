"""The chart of a sweep: stacked bars of cycles per kind of layer, one bar per configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.outcome import Outcome
from dovetail.flows.explore.results.row import Row, common
from dovetail.flows.explore.space.deployment import Deployment
from dovetail.flows.options.parameters import AXES
from dovetail.flows.output.reply import si
from dovetail.flows.report.charts.chart import Axis, Boxes, Chart, Entry, Line, Mark, Note, Panel
from dovetail.flows.report.charts.colours import ALARM, FAINT, INK, colours_of
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.given import ARRAY_LANES
from dovetail.isa.config.resolved import array_of

BAR = 0.8
"""Width of a bar; they are 1 apart."""
GAP = 0.5
"""Extra room between groups per level of grouping."""
CAP = 0.028
"""Height of the mark for layers on the host, as a part of the plot."""
SLOT = 0.37
"""Inches per bar."""
WIDEST = 14.0
"""Inches of a picture."""
LEFT, RIGHT = 1.05, 0.25
"""Inches beside the plot."""
ALONE, EACH, BETWEEN = 3.9, 3.0, 0.3
"""Inches of a line of bars alone, of each of several, and between two."""
ROW = 17.0
"""Points per row of labels."""


@dataclass(frozen=True)
class Bar:
    """A configuration of the picture; ``cost`` is None where it is not possible."""

    axes: Mapping[str, Any]
    cost: Cost | None


def chart(rows: Sequence[Row], title: str, subtitle: str = "", *, network: int = 0) -> Chart:
    """The chart of rows, which stand in the order of their axes, outermost first; ``network``: which workload.

    It is :data:`WIDEST` at most: bars that do not fit beside each other go below, parted where an outer axis changes.
    """
    bars = [Bar(row.axes, row.costs[network] if row.costs else None) for row in rows]
    axes = list(bars[0].axes)
    lines = [(line, list(_places(line, axes))) for line in _lines(bars, axes)]
    extent = max(places[-1] for _, places in lines) + 2
    width = max(7.5, SLOT * extent + LEFT + RIGHT)
    slot = (width - LEFT - RIGHT) / extent * 72
    kinds, panels, under = kinds_of(bars), list[Panel](), 0.0
    top = max((_height(bar) for bar in bars), default=0) * 1.1
    x, y = Axis(-1, extent - 1, ticks=()), Axis(0, top or 1.0, "cycles", ticks=None if top else (), grid=True)
    for line, places in lines:
        labels = _label_rows(line, axes, slot)
        marks = [*_bars(line, places, kinds, top or 1.0), *_labels(labels, places)]
        panels.append(Panel(x, y, marks, ALONE if len(lines) == 1 else EACH, under and under + BETWEEN))
        under = (sum(height for _, _, height in labels) + 14) / 72
    legend = [Entry(kind, colour) for kind, colour in colours_of(kinds).items()]
    if any(bar.cost for bar in bars):
        legend.append(Entry("roofline bound", INK, "line"))
    if any(map(host_depthwise, bars)):
        legend.append(Entry("depthwise on the host, not in these cycles", FAINT, "hatched"))
    return Chart(title, subtitle, panels, legend, width=width, left=LEFT, right=RIGHT, bottom=under)


def of_results(results: Outcome, network: int = 0) -> Chart:
    """The chart of a sweep, of the workload with this number."""
    title = f"{results.networks[network]}: cycles per inference"
    return chart(results.rows, title, _subtitle(results), network=network)


def _subtitle(results: Outcome) -> str:
    """What all configurations have in common."""
    rows, same = results.rows, common(results.rows)
    if isinstance(results.space.base, Deployment):
        return ", ".join([f"{len(rows)} systems", "cycles of the plan over its inferences, by what accelerators do"])
    parts = [f"{len(rows)} configurations"] if len(rows) > 1 else []
    if set(ARRAY_LANES) <= same.keys():
        parts.append(f"{array_of(same)} multipliers")
    same |= {"sram": format_bytes(same["sram"])} if "sram" in same else {}
    texts = {
        "sram": "{} SRAM",
        "depthwise": "depthwise {}",
        "bus": "{}-bit bus",
        "read_latency": "read latency {} cycles",
    }
    parts += [text.format(same[name]) for name, text in texts.items() if name in same]
    cut = "rows and channels" if results.space.tiling == "free" else "output channels"
    kept = ["weights stay in SRAM"] if results.space.keep_weights else []
    return ", ".join([*parts, f"tiling in {cut}", *kept])


def _lines(bars: Sequence[Bar], axes: Sequence[str]) -> list[list[Bar]]:
    """The bars in lines that are not too wide, parted where an axis as far out as possible changes."""
    room = (WIDEST - LEFT - RIGHT) / SLOT - 2
    parts = [list(bars)]
    for depth in range(1, len(axes) + 1):
        if all(_extent(part, axes) <= room for part in parts):
            break
        keys = [[bar.axes[name] for name in axes[:depth]] for bar in bars]
        parts = [[bars[n] for n in part] for _, part in groupby(range(len(bars)), key=keys.__getitem__)]
    lines: list[list[Bar]] = []
    for part in parts:
        if lines and _extent([*lines[-1], *part], axes) <= room:
            lines[-1] += part
        else:
            lines.append(part)
    return lines


def _extent(bars: Sequence[Bar], axes: Sequence[str]) -> float:
    """How far apart the first and the last bar stand."""
    return list(_places(bars, axes))[-1]


def kinds_of(bars: Sequence[Bar]) -> list[str]:
    """The kinds of layer that occur, in the order of the stack."""
    return list(colours_of([kind for bar in bars if bar.cost for kind, n in bar.cost.kinds.items() if n]))


def host_depthwise(bar: Bar) -> int:
    """How many depthwise layers the host runs: they cost no cycles here and are not counted."""
    return sum(kind == "depthwise" for _, kind, _ in bar.cost.host) if bar.cost else 0


def _height(bar: Bar) -> float:
    if bar.cost is None:
        return 0.0
    return max(bar.cost.bar, bar.cost.bound_cycles) * (1 + CAP * bool(host_depthwise(bar)))


def _places(bars: Sequence[Bar], axes: Sequence[str]) -> Iterator[float]:
    """The bars' positions: the further out the axis that changes, the wider the gap."""
    place = 0.0
    yield place
    for before, after in pairwise(bars):
        changes = [n for n, a in enumerate(axes) if before.axes[a] != after.axes[a]]
        place += 1 + GAP * max(len(axes) - 1 - min(changes, default=len(axes)), 0)
        yield place


def _bars(bars: Sequence[Bar], places: Sequence[float], kinds: Sequence[str], top: float) -> list[Mark]:
    marks: list[Mark] = []
    colours, half = colours_of(kinds), BAR / 2
    for bar, place in zip(bars, places, strict=True):
        if bar.cost is None:
            marks.append(Note("not possible", place, top * 0.015, over="bottom", colour=ALARM, upright=True))
            continue
        edges = [0]
        for kind in kinds:
            edges.append(edges[-1] + bar.cost.kinds.get(kind, 0))
        parts = [(place - half, place + half, low, high) for low, high in pairwise(edges)]
        marks.append(Boxes(parts, list(colours.values()), ["white"] * len(parts), 0.4))
        end, bound = float(edges[-1]), bar.cost.bound_cycles
        if host_depthwise(bar):
            cap = (place - 0.96 * half, place + 0.96 * half, end, end + top * CAP)
            marks.append(Boxes([cap], ["white"], [FAINT], 0.7, hatched=True))
            end += top * CAP
        marks.append(Line([(place - half, bound), (place + half, bound)], width=1.3))
        marks.append(Note(si(bar.cost.bar), place, max(end, bound) + top * 0.008, over="bottom", size=6.5))
    return marks


Group = tuple[list[int], str]
LabelRow = tuple[str, list[Group], float]
"""Title of a row of labels, its groups of bars with their text, and its height in points."""


def _label_rows(bars: Sequence[Bar], axes: Sequence[str], slot: float) -> list[LabelRow]:
    """One row per axis, the innermost (closest to the bars) first; its text is turned where ``slot`` is narrow."""
    rows: list[LabelRow] = []
    for level in reversed(range(len(axes))):
        parameter = AXES[axes[level]]
        keys = [tuple(bar.axes[a] for a in axes[: level + 1]) for bar in bars]
        groups = [
            (list(members), parameter.show(key[-1])) for key, members in groupby(range(len(keys)), key=keys.__getitem__)
        ]
        longest = max(len(text) for _, text in groups)
        inner = level == len(axes) - 1
        rows.append((parameter.title, groups, longest * 5.2 + 8 if inner and longest * 5 > slot else ROW))
    return rows


def _labels(rows: Sequence[LabelRow], places: Sequence[float]) -> list[Mark]:
    """The rows of labels below the bars, with a line over what belongs together."""
    marks: list[Mark] = []
    offset = 4.0
    for number, (title, groups, height) in enumerate(rows):
        upright = height > ROW
        below = -offset - (3 if number or not upright else 0)
        outermost = number == len(rows) - 1 > 0
        for members, text in groups:
            left, right = places[members[0]], places[members[-1]]
            marks.append(
                Note(text, (left + right) / 2, 0, 0, below, over="top", anchor="y", size=9 if number else 8,
                     bold=outermost, upright=upright)
            )  # fmt: skip
            if number:
                marks.append(Line([(left - BAR / 2, 0), (right + BAR / 2, 0)], FAINT, 0.9, below=offset))
        down = below - (height / 2 - 8 if upright else 0)
        marks.append(Note(title, 0, 0, -8, down, "right", "top", "plot", size=8, colour=FAINT, italic=True))
        offset += height
    return marks
