"""Labels of points that do not overlap: those without room are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from dovetail.flows.output.printable import printable
from dovetail.flows.report.charts.chart import SMALL, Dots, Line, Panel, Point
from dovetail.flows.report.charts.colours import INK

PLACES = ((1, 0.75), (1, -0.75), (-1, 0.75), (-1, -0.75), (1, 0), (-1, 0), (0, 1.2), (0, -1.2))
"""Where a label may stand, as seen from its point: signs, and distances in parts of ``DISTANCE``; the best first."""
DISTANCE = 7.0
"""Points between a label and the edge of its point."""

Pixels = npt.NDArray[np.float64]
"""(points, 2): x and y on the screen."""


@dataclass(frozen=True)
class Spot:
    """A point that wants a label."""

    x: float
    y: float
    text: str


def place_labels(plot: Axes, wanted: Sequence[Spot], panel: Panel, *, most: int = 12) -> None:
    """Write labels beside their points, the first first, inside the plot and away from each other and from all marks of
    the panel."""
    scale = plot.figure.dpi / 72
    inside = plot.get_window_extent()
    dots = [mark for mark in panel.marks if isinstance(mark, Dots)]
    places = [(panel.x.high if x is None else x, y) for each in dots for x, y in each.points]
    radii = [sqrt(area) / 2 for each in dots for area in each.areas]
    radius = dict(zip(places, radii, strict=True))
    taken = [text.get_window_extent().padded(1.5) for text in plot.texts]
    before = len(taken)
    lines = [_dense(_pixels(plot, mark.points)) for mark in panel.marks if isinstance(mark, Line)]
    pixels = np.concatenate([_pixels(plot, places), *lines])
    reach = np.array([each * scale for each in radii] + [0.0] * (len(pixels) - len(radii)))
    for spot in wanted:
        if len(taken) == most + before:
            return
        away = DISTANCE + radius.get((spot.x, spot.y), 0)
        for right, up in PLACES:
            text = printable(spot.text, keep="\n")
            label = plot.annotate(
                text, (spot.x, spot.y), (right * away, up * away), textcoords="offset points",
                fontsize=SMALL, color=INK, ha="left" if right > 0 else "right" if right < 0 else "center",
                va="bottom" if up > 0 else "top" if up < 0 else "center", parse_math=False,
            )  # fmt: skip
            box = label.get_window_extent().padded(1.5)
            if _is_free(box, inside, taken, pixels, reach):
                taken.append(box)
                break
            label.remove()


def _pixels(plot: Axes, points: Sequence[Point]) -> Pixels:
    return np.asarray(plot.transData.transform(np.array(points, float).reshape(-1, 2)))


def _dense(corners: Pixels) -> Pixels:
    """Points all along a line, a few pixels apart."""
    parts = [corners[:0]]
    for start, end in pairwise(corners):
        parts.append(np.linspace(start, end, 2 + int(np.abs(end - start).max() // 4)))
    return np.concatenate(parts)


def _is_free(box: Bbox, inside: Bbox, taken: Sequence[Bbox], dots: Pixels, radii: Pixels) -> bool:
    if box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1:
        return False
    if any(box.overlaps(other) for other in taken):
        return False
    nearest = np.clip(dots, (box.x0, box.y0), (box.x1, box.y1))
    return bool((np.hypot(*(dots - nearest).T) > radii).all())
