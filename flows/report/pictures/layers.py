"""Layers along an axis of cycles: their colours, and the strip that names them."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from dovetail.flows.output.printable import printable
from dovetail.flows.report.pictures.style import RASTER, SMALL, colours_of, ink_on, lighter, short
from dovetail.sw.analysis.history import Span

SIZE = SMALL - 0.5
"""Points, of what stands in boxes."""


def layer_colours(layers: Sequence[Span]) -> list[str]:
    """The colour of each layer: that of its kind, every other one of the same kind lighter."""
    table = colours_of(list(dict.fromkeys(layer.kind for layer in layers)))
    seen: dict[str, int] = {}
    colours = []
    for layer in layers:
        seen[layer.kind] = seen.get(layer.kind, -1) + 1
        colours.append(lighter(table[layer.kind], 0.35 * (seen[layer.kind] % 2)))
    return colours


Box = tuple[float, float, float, float]
"""Left, right, bottom, top."""


def boxes(plot: Axes, places: Sequence[Box], colours: Sequence[str], edges: Sequence[str], width: float) -> None:
    """Draw rectangles with edges of ``width`` points. Many are one image in SVG."""
    corners = [((a, low), (b, low), (b, high), (a, high)) for a, b, low, high in places]
    many = len(corners) > RASTER
    plot.add_collection(
        PolyCollection(corners, facecolors=colours, edgecolors=edges, linewidths=width, rasterized=many)
    )


def write_inside(plot: Axes, box: Box, texts: Sequence[str], colour: str) -> None:
    """Write the first of the texts that fits into a box of that colour, if one does."""
    first, last = plot.get_xlim()
    left, right = max(box[0], first), min(box[1], last)
    (begin, _), (end, _) = plot.transData.transform([(left, 0), (right, 0)])
    for text in texts:
        label = plot.text(
            (left + right) / 2,
            (box[2] + box[3]) / 2,
            printable(text),
            fontsize=SIZE,
            color=ink_on(colour),
            ha="center",
            va="center",
            parse_math=False,
        )
        if label.get_window_extent().width + 4 <= end - begin:
            return
        label.remove()


def strip(plot: Axes, layers: Sequence[Span], colours: Sequence[str], low: float, high: float) -> None:
    """The layers between ``low`` and ``high`` of the plot's y axis, named, or numbered, where there is room."""
    first, last = plot.get_xlim()
    shown = [n for n, layer in enumerate(layers) if layer.end > first and layer.start < last]
    places = [(layers[n].start, layers[n].end, low, high) for n in shown]
    boxes(plot, places, [colours[n] for n in shown], ["white"] * len(shown), 0.3)
    for number, place in zip(shown, places, strict=True):
        name = layers[number].name
        if place[1] - place[0] > (last - first) / 200:
            write_inside(plot, place, (name, short(name, 11), str(number)), colours[number])
