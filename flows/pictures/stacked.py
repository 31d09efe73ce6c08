"""The picture of a sweep: stacked bars of cycles per kind of layer, one bar per configuration."""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from dovetail.flows.parameters import PARAMETERS
from dovetail.flows.pictures.style import (
    ALARM,
    FAINT,
    GRID,
    INK,
    colours_of,
    figure_bytes,
    new_figure,
    stack_order,
    tidy,
    write_legend,
    write_title,
)
from dovetail.flows.report import si
from dovetail.flows.study import Record

BAR = 0.8
"""Width of a bar; they are 1 apart."""
GAP = 0.5
"""Extra room between groups per level of grouping."""
CAP = 0.028
"""Height of the mark for layers on the host, as a part of the plot."""
SLOT = 0.37
"""Inches per bar."""
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, PLOT_HEIGHT = 1.05, 0.25, 0.95, 3.9
"""Inches."""
ROW = 17.0
"""Points per row of labels."""


def draw(records: Sequence[Record], title: str, subtitle: str = "", *, fmt: str = "png") -> bytes:
    """The picture of the records, which stand in the order of their axes, outermost first."""
    axes = list(records[0].point.axes)
    places = list(_places(records, axes))
    width = max(7.5, SLOT * (places[-1] + 2) + MARGIN_LEFT + MARGIN_RIGHT)
    slot = (width - MARGIN_LEFT - MARGIN_RIGHT) / (places[-1] + 2) * 72
    rows = _label_rows(records, axes, slot)
    below = (sum(height for _, _, height in rows) + 14) / 72
    height = below + PLOT_HEIGHT + MARGIN_TOP
    figure = new_figure(width, height)
    span = 1 - (MARGIN_LEFT + MARGIN_RIGHT) / width
    plot = tidy(figure.add_axes((MARGIN_LEFT / width, below / height, span, PLOT_HEIGHT / height)))
    top = max((_height(r) for r in records), default=0) * 1.1 or 1.0
    kinds = kinds_of(records)
    _axis(plot, top, places)
    _bars(plot, records, places, kinds, top)
    _labels(plot, rows, places)
    write_title(figure, title, subtitle, MARGIN_LEFT)
    write_legend(figure, _handles(records, kinds), MARGIN_LEFT)
    return figure_bytes(figure, fmt)


def kinds_of(records: Sequence[Record]) -> list[str]:
    """The kinds of layer that occur, in the order of the stack."""
    return stack_order([kind for r in records if r.cost for kind, n in r.cost.kinds.items() if n])


def host_depthwise(record: Record) -> int:
    """How many depthwise layers the host runs: they cost no cycles here and are not counted."""
    return sum(kind == "depthwise" for _, kind, _ in record.cost.host) if record.cost else 0


def _height(record: Record) -> float:
    if record.cost is None:
        return 0.0
    return max(record.cost.cycles, record.cost.bound_cycles) * (1 + CAP * bool(host_depthwise(record)))


def _places(records: Sequence[Record], axes: Sequence[str]) -> Iterator[float]:
    """The bars' positions: the further out the axis that changes, the wider the gap."""
    place = 0.0
    yield place
    for before, after in pairwise(records):
        changes = [n for n, a in enumerate(axes) if before.point.axes[a] != after.point.axes[a]]
        place += 1 + GAP * max(len(axes) - 1 - min(changes, default=len(axes)), 0)
        yield place


def _axis(plot: Axes, top: float, places: Sequence[float]) -> None:
    plot.set_ylim(0, top)
    plot.set_xlim(places[0] - 1, places[-1] + 1)
    plot.set_ylabel("cycles", fontsize=10, color=INK)
    plot.yaxis.set_major_locator(MaxNLocator(7))
    plot.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, top)))
    plot.grid(axis="y", color=GRID, linewidth=0.7)
    plot.set_xticks([])


def _tick(value: float, top: float) -> str:
    unit, name = (1e6, " M") if top > 3e6 else (1e3, " k") if top > 3e3 else (1, "")
    return f"{value / unit:g}{name}" if value else "0"


def _bars(plot: Axes, records: Sequence[Record], places: Sequence[float], kinds: Sequence[str], top: float) -> None:
    floor, colours = [0.0] * len(records), colours_of(kinds)
    for kind in kinds:
        heights = [float(r.cost.kinds.get(kind, 0)) if r.cost else 0.0 for r in records]
        plot.bar(places, heights, BAR, floor, color=colours[kind], edgecolor="white", linewidth=0.4)
        floor = [a + b for a, b in zip(floor, heights, strict=True)]
    for record, place, end in zip(records, places, floor, strict=True):
        if record.cost is None:
            plot.text(
                place, top * 0.015, "not possible", rotation=90, ha="center", va="bottom", fontsize=7.5, color=ALARM
            )
            continue
        if host_depthwise(record):
            plot.bar(place, top * CAP, BAR * 0.96, end, **_HOST_STYLE)
            end += top * CAP
        bound = record.cost.bound_cycles
        plot.plot([place - BAR / 2, place + BAR / 2], [bound, bound], color=INK, linewidth=1.3, solid_capstyle="butt")
        label = max(end, bound) + top * 0.008
        plot.text(place, label, si(record.cost.cycles), ha="center", va="bottom", fontsize=6.5, color=INK)


_HOST_STYLE: dict[str, Any] = {
    "facecolor": "white", "edgecolor": FAINT, "hatch": "//////", "linewidth": 0.7, "linestyle": (0, (2, 1.5)),
}  # fmt: skip


Group = tuple[list[int], str]
LabelRow = tuple[str, list[Group], float]
"""Title of a row of labels, its groups of bars with their text, and its height in points."""


def _label_rows(records: Sequence[Record], axes: Sequence[str], slot: float) -> list[LabelRow]:
    """One row per axis, the innermost (closest to the bars) first; its text is turned where ``slot`` is narrow."""
    rows: list[LabelRow] = []
    for level in reversed(range(len(axes))):
        parameter = PARAMETERS[axes[level]]
        keys = [tuple(record.point.axes[a] for a in axes[: level + 1]) for record in records]
        groups = [
            (list(members), parameter.show(key[-1])) for key, members in groupby(range(len(keys)), key=keys.__getitem__)
        ]
        longest = max(len(text) for _, text in groups)
        inner = level == len(axes) - 1
        rows.append(
            (parameter.title or parameter.name, groups, longest * 4.6 + 8 if inner and longest * 5 > slot else ROW)
        )
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


def _handles(records: Sequence[Record], kinds: Sequence[str]) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = [Patch(color=colour, label=kind) for kind, colour in colours_of(kinds).items()]
    if any(r.cost for r in records):
        handles.append(Line2D([], [], color=INK, linewidth=1.3, label="roofline bound"))
    if any(host_depthwise(r) for r in records):
        handles.append(Patch(**_HOST_STYLE, label="depthwise on the host, not counted"))
    return handles
