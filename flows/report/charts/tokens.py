"""Where a token's cycles go, by its position: what a language model takes on the accelerator, by kind of layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.flows.report.charts.chart import Area, Axis, Chart, Entry, Mark, Panel
from dovetail.flows.report.charts.colours import colours_of

SHOWN = 5


def chart(kinds: Mapping[str, Sequence[int]], title: str, subtitle: str = "") -> Chart:
    """A stack of bars without gaps, one for each position.

    ``kinds``: cycles of each position, by kind of layer; those that take most have colours, the rest is one more.
    """
    most = sorted(kinds, key=lambda kind: -sum(kinds[kind]))
    rest = [kinds[kind] for kind in most[SHOWN:]]
    kinds = {kind: kinds[kind] for kind in most[:SHOWN]} | (
        {"other": [sum(each) for each in zip(*rest, strict=True)]} if rest else {}
    )
    colours = colours_of([*kinds])
    count = len(next(iter(kinds.values())))
    floor, marks = np.zeros(count), list[Mark]()
    for kind, colour in colours.items():
        height = floor + np.array(kinds[kind])
        marks.append(Area([*_stairs(height), *reversed(_stairs(floor))], colour))
        floor = height
    axes = Axis(0, count, "position"), Axis(0, 1.1 * max(float(floor.max()), 1), "cycles of a token", grid=True)
    return Chart(title, subtitle, [Panel(*axes, marks, 3.2)], [Entry(kind, colour) for kind, colour in colours.items()])


def _stairs(heights: np.ndarray) -> list[tuple[float, float]]:
    return [
        corner for place, height in enumerate(heights.tolist()) for corner in ((place, height), (place + 1, height))
    ]
