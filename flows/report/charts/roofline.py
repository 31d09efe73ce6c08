"""The layers of a network under the roofline of one configuration, or of two."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

from dovetail.flows.report.charts.chart import Axis, Chart, Dots, Entry, Label, Line, Mark, Note, Panel, Point
from dovetail.flows.report.charts.colours import FAINT, INK, KINDS, colours_of, short
from dovetail.sw.analysis.explain.explanation import Explanation, LayerExplanation

SMALLEST, LARGEST = 9.0, 900.0
"""Square points of a layer without cycles, and of one that takes all."""
NAME = 22
"""Characters of a layer's name, at most."""
LOST = 0.002
"""A layer is labelled if it is above its bound by more than this part of all cycles."""
DEPTHWISE = KINDS["depthwise"]
"""Of the ceiling of depthwise layers."""
ALONG = (0.35, 0.5, 0.65, 0.2)
"""Where the slope may be labelled, as parts of its way up; the first in a tie."""
BEYOND = 1e3
"""Factor by which lines extend beyond the plot: a joint plot may be larger."""


def chart(explanations: Sequence[Explanation], titles: Sequence[str], title: str, subtitle: str = "") -> Chart:
    """The chart of one or two explanations of a network; ``titles`` say which configurations they are.

    A layer's area says how much of the cycles it takes; labels are those of the layers with most cycles above what the
    roofline allows. Layers without MACs have no place in it; those that move no bytes stand at the right border.
    """
    if not 1 <= len(explanations) <= 2 or len(titles) != len(explanations):
        raise ValueError(f"explanations must be one or two with a title each, not {len(explanations)}")
    several = len(explanations) > 1
    colours = colours_of([layer.kind for explanation in explanations for layer in shown(explanation)])
    legend = [Entry(kind, colour, "dot") for kind, colour in colours.items()]
    if several:
        legend += [Entry(text, INK, shape) for text, shape in zip(titles, ("dashed", "solid"), strict=True)]
    x, y = _axes(explanations)
    marks: list[Mark] = []
    for number, (explanation, text) in enumerate(zip(explanations, titles, strict=True)):
        first = several and number == 0
        marks += _roof(explanation, f"{text}: " if several else "", [*marks], x, y, dashed=first)
        for shape in "o>":
            layers = [layer for layer in shown(explanation) if (shape == "o") == bool(layer.intensity)]
            marks.append(_dots(explanation, layers, [colours[layer.kind] for layer in layers], shape, hollow=first))
    marks += _moves(explanations)
    labels = [Label(layer.intensity, layer.attained, short(layer.name, NAME)) for layer in _telling(explanations[-1])]
    about = ", ".join(filter(None, [subtitle, _left_out(explanations[-1])]))
    return Chart(title, about, [Panel(x, y, marks, 4.25, labels=labels)], legend, right=0.3)


def shown(explanation: Explanation) -> list[LayerExplanation]:
    """The layers that have a place."""
    return [layer for layer in explanation.layers if layer.macs and layer.cycles]


def _left_out(explanation: Explanation) -> str:
    """What the layers without MACs take."""
    others = [layer for layer in explanation.layers if not layer.macs]
    share = sum(layer.cycles for layer in others) / explanation.cycles if explanation.cycles else 0
    return f"not shown: layers without MACs, {share:.1%} of the cycles" if others else ""


def _axes(explanations: Sequence[Explanation]) -> tuple[Axis, Axis]:
    layers = [layer for explanation in explanations for layer in shown(explanation)]
    peaks = [float(explanation.peak) for explanation in explanations]
    ridges = [explanation.peak / float(explanation.bandwidth) for explanation in explanations]
    across = [layer.intensity for layer in layers if layer.intensity] + ridges
    up = [layer.attained for layer in layers] + peaks
    title = "MACs per byte, in the busier direction of the bus"
    x = Axis(min(across) / 2, max(across) * 2.4, title, log=True, grid=True)
    return x, Axis(min(up) / 1.6, max(up) * 1.8, "MACs per cycle", log=True, grid=True)


def _dots(
    explanation: Explanation, layers: Sequence[LayerExplanation], colours: Sequence[str], shape: str, *, hollow: bool
) -> Dots:
    parts = [layer.cycles / explanation.cycles for layer in layers]
    tips = [
        f"{layer.name} ({layer.kind}): {layer.attained:.3g} of {layer.ceiling:.3g} MACs per cycle,"
        f" {part:.1%} of the cycles, bound by {layer.bound}"
        for layer, part in zip(layers, parts, strict=True)
    ]
    places = [(layer.intensity or None, layer.attained) for layer in layers]
    edge = "" if hollow else "white"
    return Dots(places, colours, [SMALLEST + LARGEST * part for part in parts], edge, 0.8, hollow, shape, 0.85, 3, tips)


def _moves(explanations: Sequence[Explanation]) -> list[Mark]:
    """From each layer of the first configuration to the same of the second."""
    named = [{layer.name: layer for layer in shown(explanation)} for explanation in explanations]
    both = [(layer, named[-1][name]) for name, layer in named[0].items() if name in named[-1]]
    return [
        Line([(a.intensity, a.attained), (b.intensity, b.attained)], FAINT, 0.6, order=2)
        for a, b in both
        if a is not b and a.intensity and b.intensity
    ]


def _telling(explanation: Explanation) -> list[LayerExplanation]:
    """Layers with many cycles above what the roofline allows, most first."""
    lost = [
        (layer.cycles * (1 - min(layer.attained / layer.ceiling, 1)) / explanation.cycles, layer)
        for layer in shown(explanation)
    ]
    told = sorted((each for each in lost if each[0] > LOST), key=lambda each: each[0], reverse=True)
    return [layer for _, layer in told]


def _roof(explanation: Explanation, text: str, there: Sequence[Mark], x: Axis, y: Axis, *, dashed: bool) -> list[Mark]:
    """The ceilings and what they are made of, unless ``there`` says it."""
    peak, bandwidth = explanation.peak, float(explanation.bandwidth)
    ridge, start, end = peak / bandwidth, x.low / BEYOND, x.high * BEYOND
    told = f"{peak} MACs per cycle"
    roof = [(start, start * bandwidth), (ridge, peak), (end, peak)]
    marks: list[Mark] = [
        Line(roof, width=1.3, dashed=dashed, tip=told),
        _said(f"{text}{told}", x.high, peak, there),
    ]
    if (lanes := explanation.depthwise_peak) is not None:
        told = f"depthwise, {lanes} MACs per cycle"
        marks.append(Line([(lanes / bandwidth, lanes), (end, lanes)], DEPTHWISE, 1.1, dashed, tip=told))
        marks.append(_said(f"{text}{told}", x.high, lanes, [*there, *marks]))
    slope = f"{bandwidth:g} bytes per cycle"
    if any(isinstance(mark, Note) and mark.text == slope for mark in there):
        return marks
    low = max(x.low, y.low / bandwidth)
    places = [(at, at * bandwidth) for part in ALONG if (at := low ** (1 - part) * ridge**part)]
    dots = [(layer.intensity or x.high, layer.attained) for layer in shown(explanation)]
    place = max(places, key=lambda place: min((_distance(place, dot, x, y) for dot in dots), default=0))
    return [*marks, Note(slope, *place, -4, 4, over="bottom", along=roof[:2])]


def _said(text: str, x: float, y: float, there: Sequence[Mark]) -> Note:
    """What a ceiling is, above it, or below if something stands there."""
    below = any(isinstance(mark, Note) and (mark.x, mark.y) == (x, y) for mark in there)
    return Note(text, x, y, -2, -3 if below else 3, "right", "top" if below else "bottom", plain=True)


def _distance(a: Point, b: Point, x: Axis, y: Axis) -> float:
    return hypot(x.part(a[0]) - x.part(b[0]), y.part(a[1]) - y.part(b[1]))
