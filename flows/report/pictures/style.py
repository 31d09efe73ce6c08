"""What all pictures share: colours that colour-blind readers tell apart, sizes, titles, and how they become bytes."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from textwrap import wrap
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from dovetail.flows.output.printable import printable

INK, SOFT, FAINT, GRID, ALARM = "#222222", "#555555", "#8A8A8A", "#E4E4E4", "#B00020"
"""Text and lines, from the strongest to the weakest; ``ALARM`` is for what failed."""

KINDS = {
    "conv": "#4477AA",
    "depthwise": "#EE7733",
    "dense": "#228833",
    "matmul": "#332288",
    "add": "#AA3377",
    "maxpool": "#CCBB44",
    "avgpool": "#66CCEE",
    "mean": "#44AA99",
    "other": "#BBBBBB",
}
"""Colours per kind of layer; the order is that of a stack."""
SPARE = ("#882255", "#999933", "#DDCC77", "#DDDDDD")
"""For kinds that the table does not have."""

SERIES = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB", "#332288")
"""Colours of groups that are in no order, in the order of their use."""

RAMP = ("#5a4bb5", "#4a66ba", "#3b80b3", "#2b97a2", "#2fae8a", "#5bc268", "#8fd146", "#c0da2c")
"""Colours of groups that are in an order, from blue over green to yellow: seen on white and on black."""

BOUNDS = {
    "array": "#228833",
    "weights": "#44AA99",
    "requantise": "#EE7733",
    "vector": "#CCBB44",
    "load": "#4477AA",
    "store": "#AA3377",
    "latency": "#BBBBBB",
    "frontend": "#666666",
}
"""Colours per bound of an explanation."""

DPI = 150
SCREEN = 96
"""Pixels of an inch of a picture as a browser shows it."""
TEXT, SMALL, HEADING = 8.5, 7.5, 12.5
"""Points. A picture of 9 inches is still legible on a page that shows it 800 pixels wide."""
RASTER = 3000
"""Marks beyond which an SVG holds them as an image: a browser draws it at once, and it stays small."""
FORMATS = ("png", "svg")

_TOP = 0.95
"""Inches above the plot, for title, subtitle and legend."""


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


def new_figure(width: float, height: float) -> Picture:
    """An empty figure; sizes in inches."""
    return Picture(figsize=(width, height), dpi=DPI)


def add_plot(figure: Figure, left: float, bottom: float, right: float, top: float = _TOP) -> Axes:
    """A plot that leaves margins, in inches."""
    width, height = figure.get_size_inches()
    box = (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    return tidy(figure.add_axes(box))


def tidy(plot: Axes) -> Axes:
    """Nothing around the plot but two thin lines and small figures."""
    for side in ("top", "right"):
        plot.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        plot.spines[side].set_color(FAINT)
    plot.tick_params(labelsize=TEXT, length=3, colors=INK, which="both")
    plot.set_axisbelow(True)
    return plot


def label_axes(plot: Axes, x: str, y: str) -> None:
    """The titles of the axes."""
    plot.set_xlabel(x, fontsize=TEXT + 1, color=INK)
    plot.set_ylabel(y, fontsize=TEXT + 1, color=INK)


def count_axis(plot: Axes, which: str, ticks: int = 7) -> None:
    """Figures of an axis of counts as 950, 12.5k, 3M."""
    axis = plot.xaxis if which == "x" else plot.yaxis
    axis.set_major_locator(MaxNLocator(ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: count(value)))


def count(value: float) -> str:
    """A tick's figure: as short as it can be without loss, with k, M or G."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def log_axis(plot: Axes, which: str, low: float, high: float) -> None:
    """A logarithmic axis from ``low`` to ``high`` with figures at round values: 1, 2 and 5 where there is room."""
    axis = plot.xaxis if which == "x" else plot.yaxis
    (plot.set_xscale if which == "x" else plot.set_yscale)("log")
    (plot.set_xlim if which == "x" else plot.set_ylim)(low, high)
    decades = range(-12, 16)
    for steps in ((1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= 9:
            break
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: count(float(f"{value:.3g}"))))


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
    figure: Figure, handles: Sequence[Artist], left: float = 0.2, top: float = 0.62, heading: str = ""
) -> float:
    """The legend below the titles, ``left`` and ``top`` inches from the corner: one row, or more if it is too wide;
    where it ends and a plot may begin, in inches from the top."""
    width, height = figure.get_size_inches()
    if heading:
        shown = _write(figure, left, top, heading, fontsize=TEXT, style="italic", color=FAINT)
        left += shown.get_window_extent().width / figure.dpi + 0.12
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(
            handles=list(handles), loc="upper left", bbox_to_anchor=(left / width, 1 - top / height),
            bbox_transform=figure.transFigure, ncols=columns, frameon=False, fontsize=TEXT, handlelength=1.4,
            columnspacing=1.4, borderaxespad=0, borderpad=0, labelspacing=0.3,
        )  # fmt: skip
        extent = legend.get_window_extent()
        if columns == 1 or extent.x1 <= (width - 0.1) * figure.dpi:
            return float(top + extent.height / figure.dpi + 0.15)
        legend.remove()
    return top


def colours_of(kinds: Sequence[str]) -> dict[str, str]:
    """A colour for each kind of layer; kinds outside the table get spare ones in their order."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    return {kind: KINDS.get(kind) or SPARE[unknown.index(kind) % len(SPARE)] for kind in kinds}


def stack_order(kinds: Sequence[str]) -> list[str]:
    """Kinds in the order of a stack, those outside the table last."""
    return [kind for kind in KINDS if kind in kinds] + [kind for kind in dict.fromkeys(kinds) if kind not in KINDS]


def ramp_colour(part: float) -> str:
    """The colour of a part, 0 to 1, of the ramp; as the page has it."""
    place = min(max(part, 0.0), 1.0) * (len(RAMP) - 1)
    below = min(int(place), len(RAMP) - 2)
    low, high = to_rgb(RAMP[below]), to_rgb(RAMP[below + 1])
    red, green, blue = (a + (b - a) * (place - below) for a, b in zip(low, high, strict=True))
    return to_hex((red, green, blue))


def lighter(colour: str, share: float) -> str:
    """A colour mixed with ``share`` of white."""
    return "#" + "".join(f"{round(255 * (part + (1 - part) * share)):02X}" for part in to_rgb(colour))


def ink_on(colour: str) -> str:
    """White on dark colours, black on light ones."""
    red, green, blue = to_rgb(colour)
    return "white" if 0.30 * red + 0.59 * green + 0.11 * blue < 0.55 else "#111111"


def short(text: str, length: int) -> str:
    """The text, its middle left out where it is longer than ``length``: names differ at their ends."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"


def figure_bytes(figure: Figure, fmt: str = "png") -> bytes:
    """The file: the same bytes every time, without a date or random names. ``fmt``: "png" or "svg"."""
    if fmt not in FORMATS:
        raise ValueError(f"fmt must be {' or '.join(FORMATS)}, not {fmt!r}")
    out = BytesIO()
    names = {"Software": "dovetail"} if fmt == "png" else {"Creator": "dovetail", "Date": None}
    with rc_context({"svg.hashsalt": "dovetail"}):
        figure.savefig(out, format=fmt, facecolor="white", metadata=names)
    return out.getvalue()
