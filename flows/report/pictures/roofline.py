"""The layers of a network under the roofline of one configuration, or of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import atan2, degrees, hypot, sqrt
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text

from dovetail.flows.report.pictures.labels import Mark, place_labels
from dovetail.flows.report.pictures.style import (
    FAINT,
    GRID,
    INK,
    KINDS,
    SMALL,
    add_plot,
    colours_of,
    label_axes,
    log_axis,
    new_figure,
    short,
    stack_order,
    write_legend,
    write_title,
)
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation

WIDTH, HEIGHT = 9.0, 5.8
"""Inches."""
LEFT = 0.85
SMALLEST, LARGEST = 9.0, 900.0
"""Square points of a layer without cycles, and of one that takes all."""
NAME = 22
"""Characters of a layer's name, at most."""
LOST = 0.002
"""A layer is labelled if it is above its bound by more than this part of all cycles."""
DEPTHWISE = KINDS["depthwise"]
"""Of the ceiling of depthwise layers."""
LINES: tuple[Any, ...] = ((0, (5, 2)), "-")
"""Of the ceilings of the first and of the second configuration."""
ALONG = (0.35, 0.5, 0.65, 0.2)
"""Where the slope may be labelled, as parts of its way up; the first in a tie."""

Line = tuple[tuple[float, float], ...]
"""The corners of a line."""


def draw(explanations: Sequence[Explanation], titles: Sequence[str], title: str, subtitle: str = "") -> Figure:
    """The picture of one or two explanations of a network; ``titles`` say which configurations they are.

    A layer's area says how much of the cycles it takes; labels are those of the layers with most cycles above what the
    roofline allows. Layers without MACs have no place in it; those that move no bytes stand at the right border.
    """
    if not 1 <= len(explanations) <= 2 or len(titles) != len(explanations):
        raise ValueError(f"explanations must be one or two with a title each, not {len(explanations)}")
    kinds = stack_order([layer.kind for explanation in explanations for layer in _shown(explanation)])
    colours, several = colours_of(kinds), len(explanations) > 1
    figure = new_figure(WIDTH, HEIGHT)
    top = write_title(figure, title, ", ".join(filter(None, [subtitle, _left_out(explanations[-1])])), LEFT)
    top = write_legend(figure, _handles(colours, titles if several else ()), LEFT, top)
    plot = add_plot(figure, LEFT, 0.6, 0.3, max(top, 0.95))
    edge = _scale(plot, explanations)
    placed = [_marks(explanation, edge) for explanation in explanations]
    every = [mark for marks in placed for mark in marks]
    texts = []
    for explanation, text, line in zip(explanations, titles, LINES[-len(titles) :], strict=True):
        texts += _draw_ceilings(plot, explanation, f"{text}: " if several else "", line, every)
    for number, (explanation, marks) in enumerate(zip(explanations, placed, strict=True)):
        _draw_layers(plot, explanation, marks, colours, hollow=several and number == 0)
    lines = [_ceilings(plot, explanation) for explanation in explanations]
    lines += _draw_moves(plot, explanations, placed) if several else []
    place_labels(plot, _telling(explanations[-1], placed[-1]), every, lines, texts)
    label_axes(plot, "MACs per byte, in the busier direction of the bus", "MACs per cycle")
    return figure


def _shown(explanation: Explanation) -> list[LayerExplanation]:
    return [layer for layer in explanation.layers if layer.macs and layer.cycles]


def _left_out(explanation: Explanation) -> str:
    """What the layers without MACs take."""
    others = [layer for layer in explanation.layers if not layer.macs]
    share = sum(layer.cycles for layer in others) / explanation.cycles if explanation.cycles else 0
    return f"not shown: layers without MACs, {share:.1%} of the cycles" if others else ""


def _scale(plot: Axes, explanations: Sequence[Explanation]) -> float:
    """Set the limits; the place on the x axis of layers that move nothing."""
    layers = [layer for explanation in explanations for layer in _shown(explanation)]
    peaks = [float(explanation.peak) for explanation in explanations]
    ridges = [explanation.peak / float(explanation.bandwidth) for explanation in explanations]
    across = [layer.intensity for layer in layers if layer.intensity] + ridges
    up = [layer.attained for layer in layers] + peaks
    plot.grid(color=GRID, linewidth=0.6)
    edge = max(across) * 2
    log_axis(plot, "x", min(across) / 2, edge * 1.2)
    log_axis(plot, "y", min(up) / 1.6, max(up) * 1.8)
    return edge


def _marks(explanation: Explanation, edge: float) -> list[Mark]:
    marks = []
    for layer in _shown(explanation):
        size = SMALLEST + LARGEST * layer.cycles / explanation.cycles
        marks.append(Mark(layer.intensity or edge, layer.attained, short(layer.name, NAME), sqrt(size) / 2))
    return marks


def _draw_layers(
    plot: Axes, explanation: Explanation, marks: Sequence[Mark], colours: Mapping[str, str], *, hollow: bool
) -> None:
    for layer, mark in zip(_shown(explanation), marks, strict=True):
        colour = colours[layer.kind]
        face, edge = ("none", colour) if hollow else (colour, "white")
        plot.scatter(
            mark.x, mark.y, s=(2 * mark.radius) ** 2, marker="o" if layer.intensity else ">", facecolor=face,
            edgecolor=edge, linewidth=0.8, alpha=0.85, zorder=3,
        )  # fmt: skip


def _draw_moves(plot: Axes, explanations: Sequence[Explanation], placed: Sequence[Sequence[Mark]]) -> list[Line]:
    """From each layer of the first configuration to the same of the second; the lines."""
    named = [
        {layer.name: mark for layer, mark in zip(_shown(explanation), marks, strict=True)}
        for explanation, marks in zip(explanations, placed, strict=True)
    ]
    both = [name for name in named[0] if name in named[1]]
    for name in both:
        start, end = (marks[name] for marks in named)
        plot.plot([start.x, end.x], [start.y, end.y], color=FAINT, linewidth=0.6, zorder=2)
    return [tuple((marks[name].x, marks[name].y) for marks in named) for name in both]


def _telling(explanation: Explanation, marks: Sequence[Mark]) -> list[Mark]:
    """Layers with many cycles above what the roofline allows, most first."""
    lost = {}
    for number, layer in enumerate(_shown(explanation)):
        part = layer.cycles * (1 - min(layer.attained / layer.ceiling, 1)) / explanation.cycles
        if part > LOST:
            lost[number] = part
    return [marks[number] for number in sorted(lost, key=lost.__getitem__, reverse=True)]


def _ceilings(plot: Axes, explanation: Explanation) -> Line:
    peak, bandwidth = explanation.peak, float(explanation.bandwidth)
    (left, right), (low, _) = plot.get_xlim(), plot.get_ylim()
    start = max(left, low / bandwidth)
    return (start, start * bandwidth), (peak / bandwidth, peak), (right, peak)


def _draw_ceilings(plot: Axes, explanation: Explanation, text: str, style: Any, marks: Sequence[Mark]) -> list[Text]:
    """Draw the roof and say what it is made of, unless that stands there, away from ``marks``; the texts."""
    corners = _ceilings(plot, explanation)
    plot.plot([x for x, _ in corners], [y for _, y in corners], color=INK, linewidth=1.3, linestyle=style)
    there = [label for label in plot.texts if isinstance(label, Annotation)]
    (x0, y0), (x1, y1), (right, peak) = corners
    below = any(label.xy == (right, peak) for label in there)
    flat = plot.annotate(
        f"{text}{explanation.peak} MACs per cycle", (right, peak), (-2, -3 if below else 3),
        textcoords="offset points", ha="right", va="top" if below else "bottom", fontsize=SMALL, color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5}, zorder=2.5,
    )  # fmt: skip
    flats: list[Text] = [flat]
    if (lanes := explanation.depthwise_peak) is not None:
        low = max(x0, lanes / float(explanation.bandwidth))
        plot.plot([low, right], [lanes, lanes], color=DEPTHWISE, linewidth=1.1, linestyle=style)
        taken = any(label.xy == (right, lanes) for label in [*there, flat])
        said = plot.annotate(
            f"{text}depthwise, {lanes} MACs per cycle", (right, lanes), (-2, -3 if taken else 3),
            textcoords="offset points", ha="right", va="top" if taken else "bottom", fontsize=SMALL, color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5}, zorder=2.5,
        )  # fmt: skip
        flats.append(said)
    bandwidth = f"{float(explanation.bandwidth):g} bytes per cycle"
    if any(label.get_text() == bandwidth for label in there):
        return flats
    places = [(x0 ** (1 - part) * x1**part, y0 ** (1 - part) * y1**part) for part in ALONG]
    place = max(places, key=lambda place: _distance(plot, place, marks))
    (left, low), (end, high) = plot.transData.transform(corners[:2])
    slope = plot.annotate(
        bandwidth, place, (-4, 4), textcoords="offset points", ha="center", va="bottom", fontsize=SMALL, color=INK,
        rotation=degrees(atan2(high - low, end - left)), rotation_mode="anchor",
    )  # fmt: skip
    return [*flats, slope]


def _distance(plot: Axes, place: tuple[float, float], marks: Sequence[Mark]) -> float:
    """Pixels from a place to the next mark."""
    x, y = plot.transData.transform(place)
    dots = [plot.transData.transform((mark.x, mark.y)) for mark in marks]
    return min((hypot(dot[0] - x, dot[1] - y) for dot in dots), default=0.0)


def _handles(colours: Mapping[str, str], titles: Sequence[str]) -> list[Line2D]:
    style: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 7}
    handles = [Line2D([], [], color=colour, label=kind, **style) for kind, colour in colours.items()]
    for number, (title, line) in enumerate(zip(titles, LINES, strict=False)):
        fill = INK if number else "none"
        handles.append(
            Line2D([], [], color=INK, linestyle=line, marker="o", markersize=6, markerfacecolor=fill, label=title)
        )
    return handles
