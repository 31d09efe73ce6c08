"""Labels of points that do not run into one another: what finds no place is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from dovetail.flows.output.printable import printable
from dovetail.flows.report.pictures.style import INK, SMALL

PLACES = ((1, 0.75), (1, -0.75), (-1, 0.75), (-1, -0.75), (1, 0), (-1, 0), (0, 1.2), (0, -1.2))
"""Where a label may stand, as seen from its point: signs, and distances in parts of ``DISTANCE``; the best first."""
DISTANCE = 7.0
"""Points between a label and the edge of its point."""

Spot = tuple[float, float]
Pixels = npt.NDArray[np.float64]
"""(points, 2): x and y on the screen."""


@dataclass(frozen=True)
class Mark:
    """A point of a picture, with its radius in points; ``text``: its label, if it has one."""

    x: float
    y: float
    text: str = ""
    radius: float = 0.0


def place_labels(
    plot: Axes,
    wanted: Sequence[Mark],
    marks: Sequence[Mark],
    lines: Sequence[Sequence[Spot]] = (),
    texts: Sequence[Text] = (),
    *,
    most: int = 12,
) -> None:
    """Write labels beside their points, the first first, inside the plot and away from each other, from all ``marks``,
    from ``lines`` and from other ``texts``."""
    scale = plot.figure.dpi / 72
    inside = plot.get_window_extent()
    dots = _pixels(plot, [(mark.x, mark.y) for mark in marks])
    dots = np.concatenate([dots, *(_dense(_pixels(plot, line)) for line in lines)])
    radii = np.array([mark.radius * scale for mark in marks] + [0.0] * (len(dots) - len(marks)))
    taken = [text.get_window_extent().padded(1.5) for text in texts]
    for mark in wanted:
        if len(taken) == most + len(texts):
            return
        away = DISTANCE + mark.radius
        for right, up in PLACES:
            text = printable(mark.text, keep="\n")
            label = plot.annotate(
                text, (mark.x, mark.y), (right * away, up * away), textcoords="offset points",
                fontsize=SMALL, color=INK, ha="left" if right > 0 else "right" if right < 0 else "center",
                va="bottom" if up > 0 else "top" if up < 0 else "center", parse_math=False,
            )  # fmt: skip
            box = label.get_window_extent().padded(1.5)
            if _is_free(box, inside, taken, dots, radii):
                taken.append(box)
                break
            label.remove()


def _pixels(plot: Axes, points: Sequence[Spot]) -> Pixels:
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
