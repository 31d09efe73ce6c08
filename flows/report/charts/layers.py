"""Layers along an axis of cycles: their colours, and the strip that names them."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.flows.report.charts.chart import Axis, Boxes
from dovetail.flows.report.charts.colours import colours_of, lighter, short
from dovetail.sw.analysis.history import Span


def layer_colours(layers: Sequence[Span]) -> list[str]:
    """The colour of each layer: that of its kind, every other one of the same kind lighter."""
    table = colours_of([layer.kind for layer in layers])
    seen: dict[str, int] = {}
    colours = []
    for layer in layers:
        seen[layer.kind] = seen.get(layer.kind, -1) + 1
        colours.append(lighter(table[layer.kind], 0.35 * (seen[layer.kind] % 2)))
    return colours


def strip(x: Axis, layers: Sequence[Span], colours: Sequence[str], low: float, high: float) -> Boxes:
    """The layers between ``low`` and ``high`` of the y axis, named, or numbered, where there is room."""
    shown = [n for n, layer in enumerate(layers) if layer.end > x.low and layer.start < x.high]
    texts = [(layers[n].name, short(layers[n].name, 11), str(n)) if _is_wide(x, layers[n]) else () for n in shown]
    places = [(layers[n].start, layers[n].end, low, high) for n in shown]
    return Boxes(places, [colours[n] for n in shown], ["white"] * len(shown), 0.3, texts)


def _is_wide(x: Axis, layer: Span) -> bool:
    return layer.end - layer.start > (x.high - x.low) / 200
