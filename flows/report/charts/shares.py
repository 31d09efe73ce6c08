"""Where the cycles of each layer go: stacked bars of the causes of an explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.flows.report.charts.chart import SMALL, Axis, Boxes, Chart, Entry, Mark, Note, Panel, Place
from dovetail.flows.report.charts.colours import BOUNDS, cause_colours, short
from dovetail.sw.analysis.explain.causes import CAUSES
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation
from dovetail.sw.analysis.explain.sentences import title_of

ROW = 0.19
"""Inches of a bar."""
BAR = 0.8
"""Height of a bar; they are 1 apart."""
MOST = 80
"""Layers that have a bar each; of larger networks the kinds of layers have."""
FIGURES = (48, 78)
"""Right ends of the columns of figures, in points from the plot."""
NAME = 24
"""Characters of a layer's name, at most."""


@dataclass(frozen=True)
class Bar:
    """A line of the chart: cycles by cause."""

    name: str
    cycles: int
    shares: Mapping[str, int]


def chart(explanation: Explanation, title: str, subtitle: str = "") -> Chart:
    """A bar for the network in parts of all its cycles, and one per layer (see :func:`bars_of`)."""
    bars, colours = bars_of(explanation), cause_colours()
    causes = [cause for cause in CAUSES if any(bar.shares.get(cause) for bar in bars)]
    legend = [Entry(CAUSES[cause].title, colours[cause]) for cause in causes]
    panels = (_whole(explanation), _bars(bars, colours, explanation.cycles))
    return Chart(title, subtitle, panels, legend, left=1.7, right=1.15, bottom=0.55, top=1.02, indent=0.2)


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


def _whole(explanation: Explanation) -> Panel:
    """The network by bound, with figures."""
    places, texts, left = list[Place](), [], 0
    for bound in BOUNDS:
        cycles = sum(count for name, count in explanation.shares.items() if CAUSES[name].bound == bound)
        share = cycles / explanation.cycles if explanation.cycles else 0
        places.append((left, left + cycles, -0.5, 0.5))
        texts.append((f"{title_of(bound)} {share:.1%}", f"{share:.0%}"))
        left += cycles
    marks: list[Mark] = [
        Boxes(places, list(BOUNDS.values()), ["white"] * len(places), 0.6, texts),
        Note("network", 0, 0.5, -7, align="right", anchor="plot", size=SMALL + 1),
        Note(f"{explanation.cycles:,}", 1, 0.5, FIGURES[0], align="right", anchor="plot"),
    ]
    x, y = Axis(0, max(explanation.cycles, 1), ticks=(), line=False), Axis(-0.5, 0.5, ticks=(), line=False)
    return Panel(x, y, marks, 0.24)


def _bars(bars: list[Bar], colours: Mapping[str, str], cycles: int) -> Panel:
    places, fills, marks = list[Place](), [], list[Mark]()
    for row, bar in enumerate(bars):
        left = 0
        for cause in CAUSES:
            count = bar.shares.get(cause, 0)
            places.append((left, left + count, row - BAR / 2, row + BAR / 2))
            fills.append(colours[cause])
            left += count
        texts = f"{bar.cycles:,}", f"{bar.cycles / cycles if cycles else 0:.1%}"
        for text, right in zip(texts, FIGURES, strict=True):
            marks.append(Note(text, 1, row, right, align="right", anchor="x"))
    longest = max((bar.cycles for bar in bars), default=0) or 1
    names = [short(bar.name, NAME) for bar in bars]
    y = Axis(len(bars) - 0.4, -0.6, ticks=range(len(bars)), names=names)
    return Panel(Axis(0, longest * 1.01, "cycles", grid=True), y, [Boxes(places, fills), *marks], len(bars) * ROW, 0.07)
