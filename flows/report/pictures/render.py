"""Charts as matplotlib figures, and as the bytes of a PNG or SVG file: the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import atan2, ceil, degrees, log2
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import ConnectionPatch, Patch, Polygon
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, MaxNLocator, MultipleLocator, NullLocator
from matplotlib.transforms import Affine2D, ScaledTranslation

from dovetail.flows.output.printable import printable
from dovetail.flows.report.charts.chart import SMALL, Area, Axis, Boxes, Chart, Dots, Entry, Line, Note, Panel, Place
from dovetail.flows.report.charts.colours import FAINT, GRID, INK, SOFT, ink_on
from dovetail.flows.report.pictures.labels import Spot, place_labels
from dovetail.isa.common.sizes import format_bytes

DPI = 150
SCREEN = 96
"""Pixels of an inch of a picture as a browser shows it."""
TEXT, HEADING = 8.5, 12.5
"""Points."""
RASTER = 3000
"""Marks beyond which an SVG holds them as an image: a browser draws it at once, and it stays small."""
FORMATS = ("png", "svg")
DASHES = (0, (5, 2))
HATCH: dict[str, Any] = {"hatch": "//////", "linestyle": (0, (2, 1.5))}


class Picture(Figure):
    """A figure that a notebook shows, also where nobody has imported pyplot."""

    def draw(self, renderer: RendererBase) -> None:
        """Draw it. Names of layers are no formulas, and hold nothing that XML does not know."""
        for shown in self.findobj(Text):
            shown.set_text(printable(shown.get_text(), keep="\n"))
            shown.set_parse_math(False)
        super().draw(renderer)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        return figure_bytes(self), {"width": round(self.get_figwidth() * SCREEN)}


def draw(chart: Chart) -> Picture:
    """The figure of a chart."""
    left = chart.left if chart.indent is None else chart.indent
    top, height = chart.top, sum(panel.height + panel.above for panel in chart.panels) + chart.bottom
    for _ in range(2):  # once to see how many lines titles and legend take
        figure = new_figure(chart.width, top + height)
        below = write_title(figure, chart.title, chart.subtitle, left)
        top = max(chart.top, write_legend(figure, chart.legend, left, below, chart.heading))
    at, plots = top, list[Axes]()
    for panel in chart.panels:
        at += panel.above + panel.height
        plots.append(_panel(figure, panel, chart, top + height - at))
    for place, panel in enumerate(chart.panels):
        if panel.zoom:
            _connect(figure, plots[place], plots[place + 1], panel.zoom)
    return figure


def new_figure(width: float, height: float) -> Picture:
    """An empty figure; sizes in inches."""
    return Picture(figsize=(width, height), dpi=DPI)


def _panel(figure: Figure, panel: Panel, chart: Chart, bottom: float) -> Axes:
    width, height = figure.get_size_inches()
    across = (width - chart.left - chart.right) / width
    plot = figure.add_axes((chart.left / width, bottom / height, across, panel.height / height))
    plot.tick_params(labelsize=TEXT, length=3, colors=INK, which="both")
    plot.set_axisbelow(True)
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    for which, axis in (("x", panel.x), ("y", panel.y)):
        _axis(plot, which, axis)
    many = sum(len(mark.points) for mark in panel.marks if isinstance(mark, Dots)) > RASTER
    for mark in panel.marks:
        if isinstance(mark, Line):
            _line(plot, mark, figure.dpi_scale_trans)
        elif isinstance(mark, Dots):
            _dots(plot, mark, panel.x.high, many)
        elif isinstance(mark, Boxes):
            _boxes(plot, mark)
        elif isinstance(mark, Area):
            plot.add_patch(Polygon(mark.corners, facecolor=mark.colour, rasterized=len(mark.corners) > RASTER))
        else:
            _note(plot, mark)
    wanted = [Spot(panel.x.high if label.x is None else label.x, label.y, label.text) for label in panel.labels]
    if wanted:
        place_labels(plot, wanted, panel)
    return plot


def _axis(plot: Axes, which: str, axis: Axis) -> None:
    own, spine = (plot.xaxis, "bottom") if which == "x" else (plot.yaxis, "left")
    if axis.log:
        (plot.set_xscale if which == "x" else plot.set_yscale)("log")
        own.set_minor_locator(NullLocator())
    (plot.set_xlim if which == "x" else plot.set_ylim)(axis.low, axis.high)
    own.set_major_locator(_locator(axis))
    own.set_major_formatter(FuncFormatter(lambda value, _: figure_of(value, axis)))
    if axis.names:
        own.set_ticks(axis.ticks or [], [printable(name) for name in axis.names])
        plot.tick_params(axis="y", length=0)
    own.set_label_text(axis.title, fontsize=TEXT + 1, color=INK)
    if axis.grid:
        own.grid(visible=True, color=GRID, linewidth=0.6)
    plot.spines[spine].set_color(FAINT)
    plot.spines[spine].set_visible(axis.line)


def _locator(axis: Axis) -> Locator:
    if axis.ticks is not None:
        return FixedLocator(list(axis.ticks))
    if axis.log:
        return FixedLocator(round_values(axis.low, axis.high))
    if axis.unit == "B":  # powers of two, about four of them
        return MultipleLocator(2 ** max(ceil(log2((axis.high - axis.low) / 5)), 0))
    return MaxNLocator(axis.count)


def round_values(low: float, high: float) -> list[float]:
    """Values for figures of a logarithmic axis: 1, 2 and 5 where there is room."""
    found: list[float] = []
    for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        values = (step * 10.0**decade for decade in range(-12, 16) for step in steps)
        found = [value for value in values if low <= value <= high]
        if len(found) <= 9:
            break
    return found


def figure_of(value: float, axis: Axis) -> str:
    """The figure at a place of an axis."""
    if axis.unit == "B":
        return format_bytes(round(value)) if value else "0"
    if axis.unit == "%":
        return f"{100 * value:.3g} %"
    return count(float(f"{value:.3g}") if axis.log else value)


def count(value: float) -> str:
    """A tick's figure: as short as it can be without loss, with k, M or G."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def _line(plot: Axes, line: Line, scale: Affine2D) -> None:
    style: dict[str, Any] = {"color": line.colour, "linewidth": line.width, "zorder": line.order}
    if line.dashed:
        style["linestyle"] = DASHES
    if line.below:
        move = ScaledTranslation(0, -line.below / 72, scale)
        style |= {"transform": plot.get_xaxis_transform() + move, "clip_on": False}
    plot.add_line(
        Line2D(*zip(*line.points, strict=True), solid_capstyle="butt", **style) if line.points else Line2D([], [])
    )


def _dots(plot: Axes, dots: Dots, border: float, many: bool) -> None:
    x = [border if x is None else x for x, _ in dots.points]
    plot.scatter(
        x, [y for _, y in dots.points], dots.areas, marker=dots.shape, alpha=dots.opacity, linewidths=dots.width,
        facecolors="none" if dots.hollow else dots.colours, edgecolors=dots.edge or dots.colours, zorder=dots.order,
        rasterized=many, clip_on=border not in x,
    )  # fmt: skip


def _boxes(plot: Axes, boxes: Boxes) -> None:
    """Many are one image in SVG."""
    corners = [((a, low), (b, low), (b, high), (a, high)) for a, b, low, high in boxes.places]
    style: dict[str, Any] = HATCH if boxes.hatched else {}
    plot.add_collection(
        PolyCollection(corners, facecolors=boxes.colours, edgecolors=boxes.edges or "none", linewidths=boxes.width,
                       rasterized=len(corners) > RASTER, **style)
    )  # fmt: skip
    for place, texts, colour in zip(boxes.places, boxes.texts, boxes.colours, strict=False):
        _write_inside(plot, place, texts, ink_on(colour))


def _write_inside(plot: Axes, place: Place, texts: Sequence[str], colour: str) -> None:
    """Write the first of the texts that fits into a box, if one does."""
    first, last = plot.get_xlim()
    left, right = max(place[0], first), min(place[1], last)
    (begin, _), (end, _) = plot.transData.transform([(left, 0), (right, 0)])
    for text in texts:
        label = plot.text(
            (left + right) / 2, (place[2] + place[3]) / 2, printable(text), fontsize=SMALL - 0.5, color=colour,
            ha="center", va="center", parse_math=False,
        )  # fmt: skip
        if label.get_window_extent().width + 4 <= end - begin:
            return
        label.remove()


ANCHORS: dict[str, Any] = {
    "data": "data",
    "x": ("axes fraction", "data"),
    "y": ("data", "axes fraction"),
    "plot": "axes fraction",
}


def _note(plot: Axes, note: Note) -> None:
    angle = 90.0 if note.upright else 0.0
    if note.along:
        (x0, y0), (x1, y1) = plot.transData.transform(note.along)
        angle = degrees(atan2(y1 - y0, x1 - x0))
    plot.annotate(
        note.text, (note.x, note.y), (note.dx, note.dy), xycoords=ANCHORS[note.anchor], textcoords="offset points",
        ha=note.align, va=note.over, fontsize=note.size, color=note.colour, rotation=angle,
        rotation_mode="anchor" if note.along else "default", fontweight="bold" if note.bold else "normal",
        style="italic" if note.italic else "normal", zorder=2.5 if note.plain else 3, parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5} if note.plain else None,
    )  # fmt: skip


def _connect(figure: Figure, whole: Axes, part: Axes, window: tuple[float, float]) -> None:
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


def write_title(figure: Figure, title: str, subtitle: str = "", left: float = 0.2) -> float:
    """Title and subtitle from ``left`` inches on, at the top, in as many lines as they need; where they end, in inches
    from the top."""
    top = 0.12
    for text, size, weight, colour, step, after in (
        (title, HEADING, "bold", INK, 0.22, 0.03),
        (subtitle, TEXT, "normal", SOFT, 0.16, 0.09),
    ):
        for line in _lines(figure, printable(text), size, weight, left):
            _write(figure, left, top, line, fontsize=size, fontweight=weight, color=colour)
            top += step
        top += after
    return max(top, 0.62)


def _lines(figure: Figure, text: str, size: float, weight: str, left: float) -> list[str]:
    """The text in lines that fit the figure; words that are too long are broken."""
    room = (figure.get_size_inches()[0] - left - 0.1) * figure.dpi
    shown = _write(figure, left, 0, text, fontsize=size, fontweight=weight)
    wide = shown.get_window_extent().width
    shown.remove()
    if wide <= room or not text:
        return [text]
    return wrap(text, max(8, int(len(text) * room / wide * 0.96)))


def _write(figure: Figure, left: float, top: float, text: str, **style: Any) -> Text:
    """A text, ``left`` and ``top`` inches from the corner."""
    width, height = figure.get_size_inches()
    return figure.text(left / width, 1 - top / height, text, ha="left", va="top", parse_math=False, **style)


def write_legend(
    figure: Figure, entries: Sequence[Entry], left: float = 0.2, top: float = 0.62, heading: str = ""
) -> float:
    """The legend below the titles, ``left`` and ``top`` inches from the corner: one row, or more if it is too wide;
    where it ends and a plot may begin, in inches from the top."""
    width, height = figure.get_size_inches()
    handles = [_handle(entry) for entry in entries]
    if heading:
        shown = _write(figure, left, top, heading, fontsize=TEXT, style="italic", color=FAINT)
        left += shown.get_window_extent().width / figure.dpi + 0.12
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(left / width, 1 - top / height),
            bbox_transform=figure.transFigure, ncols=columns, frameon=False, fontsize=TEXT, handlelength=1.4,
            columnspacing=1.4, borderaxespad=0, borderpad=0, labelspacing=0.3,
        )  # fmt: skip
        extent = legend.get_window_extent()
        if columns == 1 or extent.x1 <= (width - 0.1) * figure.dpi:
            return float(top + extent.height / figure.dpi + 0.15)
        legend.remove()
    return top


def _handle(entry: Entry) -> Artist:
    """The symbol of a legend entry."""
    if entry.shape == "box":
        return Patch(color=entry.colour, label=entry.text)
    if entry.shape == "hatched":
        return Patch(facecolor="white", edgecolor=entry.colour, linewidth=0.7, label=entry.text, **HATCH)
    styles: dict[str, dict[str, Any]] = {
        "dot": {"marker": "o", "markersize": 6.5},
        "ring": {"marker": "o", "markersize": 7, "markerfacecolor": "none", "markeredgecolor": entry.colour},
        "hollow": {"marker": "o", "markersize": 5, "markerfacecolor": "none"},
        "square": {"marker": "s", "markersize": 6},
        "line": {"linewidth": 1.3},
        "dashed": {"linestyle": DASHES, "marker": "o", "markersize": 6, "markerfacecolor": "none"},
        "solid": {"linestyle": "-", "marker": "o", "markersize": 6},
    }
    style = {"linewidth": 1.3, **styles[entry.shape]}
    if "marker" in style:
        style = {"linestyle": "none", **style}
    return Line2D([], [], color=entry.colour, label=entry.text, **style)


def figure_bytes(figure: Figure, fmt: str = "png") -> bytes:
    """The file: the same bytes every time, without a date or random names. ``fmt``: "png" or "svg"."""
    if fmt not in FORMATS:
        raise ValueError(f"fmt must be {' or '.join(FORMATS)}, not {fmt!r}")
    out = BytesIO()
    names = {"Software": "dovetail"} if fmt == "png" else {"Creator": "dovetail", "Date": None}
    with rc_context({"svg.hashsalt": "dovetail"}):
        figure.savefig(out, format=fmt, facecolor="white", metadata=names)
    return out.getvalue()
