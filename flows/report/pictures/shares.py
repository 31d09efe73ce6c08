"""Where the cycles of each layer go: stacked bars of the causes of an explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dovetail.flows.report.pictures.style import (
    BOUNDS,
    FAINT,
    GRID,
    INK,
    SMALL,
    TEXT,
    count_axis,
    ink_on,
    lighter,
    new_figure,
    short,
    tidy,
    write_legend,
    write_title,
)
from dovetail.sw.analysis.explain.causes import CAUSES
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation
from dovetail.sw.analysis.explain.sentences import title_of

WIDTH, ROW = 9.0, 0.19
"""Inches: the picture, and a bar."""
LEFT, RIGHT, TOP, BOTTOM = 1.7, 1.15, 1.3, 0.55
WHOLE = 0.28
"""Inches of the network's bar."""
BAR = 0.8
"""Height of a bar; they are 1 apart."""
MOST = 80
"""Layers that have a bar each; of larger networks the kinds of layers have."""
SHADES = (0.0, 0.35, 0.55, 0.7, 0.8)
"""White in the colours of the causes of one bound, in their order."""
FIGURES = (48, 78)
"""Right ends of the columns of figures, in points from the plot."""
CHARACTER = 0.012
"""Width of a character in the network's bar, as a part of the bar."""
NAME = 24
"""Characters of a layer's name, at most."""


@dataclass(frozen=True)
class Bar:
    """A line of the picture: cycles by cause."""

    name: str
    cycles: int
    shares: Mapping[str, int]


def draw(explanation: Explanation, title: str, subtitle: str = "") -> Figure:
    """The picture: a bar for the network in parts of all its cycles, and one per layer (see :func:`bars_of`)."""
    bars, colours, top = bars_of(explanation), cause_colours(), TOP
    causes = [cause for cause in CAUSES if any(bar.shares.get(cause) for bar in bars)]
    handles = [Patch(color=colours[cause], label=CAUSES[cause].title) for cause in causes]
    for _ in range(2):  # once to see how many lines titles and legend take
        height = top + len(bars) * ROW + BOTTOM
        figure = new_figure(WIDTH, height)
        top = max(TOP, WHOLE + write_legend(figure, handles, top=write_title(figure, title, subtitle)))
    width = (WIDTH - LEFT - RIGHT) / WIDTH
    whole = tidy(figure.add_axes((LEFT / WIDTH, 1 - (top - 0.07) / height, width, 0.24 / height)))
    plot = tidy(figure.add_axes((LEFT / WIDTH, BOTTOM / height, width, len(bars) * ROW / height)))
    _draw_whole(whole, explanation)
    _draw_bars(plot, bars, colours, explanation.cycles)
    return figure


def cause_colours() -> dict[str, str]:
    """The colour of every cause: a shade of its bound's."""
    seen: dict[str, int] = {}
    colours = {}
    for name, cause in CAUSES.items():
        shade = seen.get(cause.bound, 0)
        seen[cause.bound] = shade + 1
        colours[name] = lighter(BOUNDS[cause.bound], SHADES[min(shade, len(SHADES) - 1)])
    return colours


def bars_of(explanation: Explanation) -> list[Bar]:
    """A bar per layer, or per kind of layer (and how many) beyond ``MOST`` layers; in the order of the network."""
    layers = explanation.layers
    if len(layers) <= MOST:
        return [Bar(layer.name, layer.cycles, layer.shares) for layer in layers]
    kinds: dict[str, list[LayerExplanation]] = {}
    for layer in layers:
        kinds.setdefault(layer.kind, []).append(layer)
    return [
        Bar(
            f"{kind} ({len(members)})",
            sum(layer.cycles for layer in members),
            {cause: sum(layer.shares.get(cause, 0) for layer in members) for cause in CAUSES},
        )
        for kind, members in kinds.items()
    ]


def _draw_whole(plot: Axes, explanation: Explanation) -> None:
    """The network by bound, with figures."""
    plot.set_xlim(0, max(explanation.cycles, 1))
    plot.set_ylim(-0.5, 0.5)
    plot.set_axis_off()
    left = 0
    for bound, colour in BOUNDS.items():
        cycles = sum(count for name, count in explanation.shares.items() if CAUSES[name].bound == bound)
        plot.barh(0, cycles, 1, left, color=colour, edgecolor="white", linewidth=0.6)
        share = cycles / explanation.cycles if explanation.cycles else 0
        named = f"{title_of(bound)} {share:.1%}"
        if share > 0.04:
            text = named if share > CHARACTER * len(named) else f"{share:.0%}"
            plot.text(left + cycles / 2, 0, text, ha="center", va="center", fontsize=TEXT, color=ink_on(colour))
        left += cycles
    plot.text(-0.012, 0.5, "network", transform=plot.transAxes, ha="right", va="center", fontsize=TEXT, color=INK)
    plot.annotate(
        f"{explanation.cycles:,}", (1, 0.5), (FIGURES[0], 0), xycoords="axes fraction", textcoords="offset points",
        ha="right", va="center", fontsize=SMALL, color=INK,
    )  # fmt: skip


def _draw_bars(plot: Axes, bars: Sequence[Bar], colours: Mapping[str, str], cycles: int) -> None:
    rows = range(len(bars))
    longest = max((bar.cycles for bar in bars), default=0) or 1
    plot.set_xlim(0, longest * 1.01)
    plot.set_ylim(len(bars) - 0.4, -0.6)
    left = [0] * len(bars)
    for cause in CAUSES:
        counts = [bar.shares.get(cause, 0) for bar in bars]
        if any(counts):
            plot.barh(rows, counts, BAR, left, color=colours[cause], linewidth=0)
            left = [a + b for a, b in zip(left, counts, strict=True)]
    plot.set_yticks(list(rows), [short(bar.name, NAME) for bar in bars])
    plot.tick_params(axis="y", length=0, labelsize=SMALL)
    for row, bar in enumerate(bars):
        texts = f"{bar.cycles:,}", f"{bar.cycles / cycles if cycles else 0:.1%}"
        for text, right in zip(texts, FIGURES, strict=True):
            plot.annotate(
                text, (1, row), (right, 0), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
                va="center", fontsize=SMALL, color=INK,
            )  # fmt: skip
    count_axis(plot, "x")
    plot.grid(axis="x", color=GRID, linewidth=0.6)
    plot.spines["left"].set_color(FAINT)
    plot.set_xlabel("cycles", fontsize=TEXT + 1, color=INK)
