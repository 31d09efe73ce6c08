"""The picture of a sweep: stacked bars of cycles per kind of layer, one bar per configuration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.results.row import Row, common
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.options.parameters import AXES
from dovetail.flows.output.reply import si
from dovetail.flows.report.pictures.style import (
    ALARM,
    FAINT,
    GRID,
    INK,
    colours_of,
    new_figure,
    stack_order,
    tidy,
    write_legend,
    write_title,
)
from dovetail.isa.common.sizes import format_bytes

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
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, PLOT_HEIGHT = 1.05, 0.25, 0.95, 3.9
"""Inches."""
PLOT_HEIGHT_OF_SEVERAL, BETWEEN = 3.0, 0.3
"""Inches of each line of bars where there are several, and between two."""
ROW = 17.0
"""Points per row of labels."""


@dataclass(frozen=True)
class Bar:
    """A configuration of the picture; ``cost`` is None where it is not possible."""

    axes: Mapping[str, Any]
    cost: Cost | None


def draw(rows: Sequence[Row], title: str, subtitle: str = "", *, network: int = 0) -> Figure:
    """The picture of rows, which stand in the order of their axes, outermost first; ``network``: which workload.

    It is :data:`WIDEST` at most: bars that do not fit beside each other go below, parted where an outer axis changes.
    """
    bars = [Bar(row.axes, row.costs[network] if row.costs else None) for row in rows]
    axes = list(bars[0].axes)
    lines = [(line, list(_places(line, axes))) for line in _lines(bars, axes)]
    extent = max(places[-1] for _, places in lines) + 2
    width = max(7.5, SLOT * extent + MARGIN_LEFT + MARGIN_RIGHT)
    slot = (width - MARGIN_LEFT - MARGIN_RIGHT) / extent * 72
    labels = [_label_rows(line, axes, slot) for line, _ in lines]
    below = [(sum(height for _, _, height in rows) + 14) / 72 for rows in labels]
    tall = PLOT_HEIGHT if len(lines) == 1 else PLOT_HEIGHT_OF_SEVERAL
    kinds = kinds_of(bars)
    handles, margin = _handles(bars, kinds), MARGIN_TOP
    for _ in range(2):  # once to see how many lines titles and legend take
        height = margin + sum(below) + len(lines) * tall + (len(lines) - 1) * BETWEEN
        figure = new_figure(width, height)
        margin = max(
            MARGIN_TOP, write_legend(figure, handles, MARGIN_LEFT, write_title(figure, title, subtitle, MARGIN_LEFT))
        )
    top = max((_height(bar) for bar in bars), default=0) * 1.1
    span = 1 - (MARGIN_LEFT + MARGIN_RIGHT) / width
    above = margin
    for (line, places), rows_of_labels, under in zip(lines, labels, below, strict=True):
        box = (MARGIN_LEFT / width, 1 - (above + tall) / height, span, tall / height)
        plot = tidy(figure.add_axes(box))
        _axis(plot, top, extent)
        _bars(plot, line, places, kinds, top or 1.0)
        _labels(plot, rows_of_labels, places)
        above += tall + under + BETWEEN
    return figure


def of_results(results: Results, network: int = 0) -> Figure:
    """The picture of a sweep, of the workload with this number."""
    title = f"{results.networks[network]}: cycles per inference"
    return draw(results.rows, title, _subtitle(results), network=network)


def _subtitle(results: Results) -> str:
    """What all configurations have in common."""
    rows, same = results.rows, common(results.rows)
    parts = [f"{len(rows)} configurations"] if len(rows) > 1 else []
    if {"ic_lanes", "oc_lanes"} <= same.keys():
        parts.append(f"{same['ic_lanes']} x {same['oc_lanes']} multipliers")
    same |= {"sram": format_bytes(same["sram"])} if "sram" in same else {}
    texts = {
        "sram": "{} SRAM",
        "depthwise": "depthwise {}",
        "bus": "{}-bit bus",
        "read_latency": "read latency {} cycles",
    }
    parts += [text.format(same[name]) for name, text in texts.items() if name in same]
    cut = "rows and channels" if results.space.tiling == "free" else "output channels"
    return ", ".join([*parts, f"tiling in {cut}"])


def _lines(bars: Sequence[Bar], axes: Sequence[str]) -> list[list[Bar]]:
    """The bars in lines that are not too wide, parted where an axis as far out as possible changes."""
    room = (WIDEST - MARGIN_LEFT - MARGIN_RIGHT) / SLOT - 2
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
    return stack_order([kind for bar in bars if bar.cost for kind, n in bar.cost.kinds.items() if n])


def host_depthwise(bar: Bar) -> int:
    """How many depthwise layers the host runs: they cost no cycles here and are not counted."""
    return sum(kind == "depthwise" for _, kind, _ in bar.cost.host) if bar.cost else 0


def _height(bar: Bar) -> float:
    if bar.cost is None:
        return 0.0
    return max(bar.cost.cycles, bar.cost.bound_cycles) * (1 + CAP * bool(host_depthwise(bar)))


def _places(bars: Sequence[Bar], axes: Sequence[str]) -> Iterator[float]:
    """The bars' positions: the further out the axis that changes, the wider the gap."""
    place = 0.0
    yield place
    for before, after in pairwise(bars):
        changes = [n for n, a in enumerate(axes) if before.axes[a] != after.axes[a]]
        place += 1 + GAP * max(len(axes) - 1 - min(changes, default=len(axes)), 0)
        yield place


def _axis(plot: Axes, top: float, extent: float) -> None:
    plot.set_ylim(0, top or 1.0)
    plot.set_xlim(-1, extent - 1)
    plot.set_ylabel("cycles", fontsize=10, color=INK)
    plot.yaxis.set_major_locator(MaxNLocator(7, integer=True) if top else NullLocator())
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, top)))
    plot.grid(axis="y", color=GRID, linewidth=0.7)
    plot.set_xticks([])


def _tick(value: float, top: float) -> str:
    unit, name = (1e6, " M") if top > 3e6 else (1e3, " k") if top > 3e3 else (1, "")
    return f"{value / unit:g}{name}" if value else "0"


def _bars(plot: Axes, bars: Sequence[Bar], places: Sequence[float], kinds: Sequence[str], top: float) -> None:
    floor, colours = [0.0] * len(bars), colours_of(kinds)
    for kind in kinds:
        heights = [float(bar.cost.kinds.get(kind, 0)) if bar.cost else 0.0 for bar in bars]
        plot.bar(places, heights, BAR, floor, color=colours[kind], edgecolor="white", linewidth=0.4)
        floor = [a + b for a, b in zip(floor, heights, strict=True)]
    for bar, place, end in zip(bars, places, floor, strict=True):
        if bar.cost is None:
            plot.text(
                place, top * 0.015, "not possible", rotation=90, ha="center", va="bottom", fontsize=7.5, color=ALARM
            )
            continue
        if host_depthwise(bar):
            plot.bar(place, top * CAP, BAR * 0.96, end, **_HOST_STYLE)
            end += top * CAP
        bound = bar.cost.bound_cycles
        plot.plot([place - BAR / 2, place + BAR / 2], [bound, bound], color=INK, linewidth=1.3, solid_capstyle="butt")
        label = max(end, bound) + top * 0.008
        plot.text(place, label, si(bar.cost.cycles), ha="center", va="bottom", fontsize=6.5, color=INK)


_HOST_STYLE: dict[str, Any] = {
    "facecolor": "white", "edgecolor": FAINT, "hatch": "//////", "linewidth": 0.7, "linestyle": (0, (2, 1.5)),
}  # fmt: skip


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
        rows.append((parameter.title, groups, longest * 4.6 + 8 if inner and longest * 5 > slot else ROW))
    return rows


def _labels(plot: Axes, rows: Sequence[LabelRow], places: Sequence[float]) -> None:
    """The rows of labels below the bars, with a line over what belongs together."""
    offset = 4.0
    across = plot.get_xaxis_transform()
    for number, (title, groups, height) in enumerate(rows):
        rotated = height > ROW
        below = -offset - (3 if number or not rotated else 0)
        for members, text in groups:
            left, right = places[members[0]], places[members[-1]]
            plot.annotate(
                text, ((left + right) / 2, 0), (0, below), xycoords=across,
                textcoords="offset points", ha="center", va="top", rotation=90 if rotated else 0,
                fontsize=8 if number == 0 else 9, color=INK, fontweight="bold" if number == len(rows) - 1 > 0 else None,
            )  # fmt: skip
            if number:
                move = ScaledTranslation(0, -offset / 72, plot.figure.dpi_scale_trans)
                ends = [left - BAR / 2, right + BAR / 2]
                plot.add_line(Line2D(ends, [0, 0], transform=across + move, color=FAINT, linewidth=0.9, clip_on=False))
        plot.annotate(
            title, (0, 0), (-8, below - (height / 2 - 8 if rotated else 0)), xycoords="axes fraction",
            textcoords="offset points", ha="right", va="top", fontsize=8, color=FAINT, style="italic",
        )  # fmt: skip
        offset += height


def _handles(bars: Sequence[Bar], kinds: Sequence[str]) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(color=colour, label=kind) for kind, colour in colours_of(kinds).items()]
    if any(bar.cost for bar in bars):
        handles.append(Line2D([], [], color=INK, linewidth=1.3, label="roofline bound"))
    if any(map(host_depthwise, bars)):
        handles.append(Patch(**_HOST_STYLE, label="depthwise on the host, not in these cycles"))
    return handles
