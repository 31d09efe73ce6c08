"""Charts as data: panels with axes, marks and labels. Pictures and the page draw them.

Coordinates are those of the data, lengths are inches, sizes of text and widths of lines points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import Any

from dovetail.flows.report.charts.colours import INK

SMALL = 7.5
"""Points: text in a plot. A picture of 9 inches is still legible on a page that shows it 800 pixels wide."""
WIDTH = 9.0
"""Inches of a picture."""

Point = tuple[float, float]
Place = tuple[float, float, float, float]
"""Left, right, bottom, top."""


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``, which may be the smaller one.

    Parameters
    ----------
    unit: "B" for bytes, "%" for shares of 1, else figures are counts.
    ticks: where figures stand, or ``names`` in place of them; None: at about ``count`` round values.
    grid: lines go through the plot from there.
    line: the axis itself is drawn.
    """

    low: float = 0.0
    high: float = 1.0
    title: str = ""
    log: bool = False
    unit: str = ""
    ticks: Sequence[float] | None = None
    names: Sequence[str] = ()
    count: int = 7
    grid: bool = False
    line: bool = True

    def part(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        low, high, place = (log(each) if self.log else each for each in (self.low, self.high, value))
        return (place - low) / (high - low)


@dataclass(frozen=True)
class Line:
    """A line through points. ``below``: if not 0, that many points below the plot, from the first x to the last.

    ``tip``: what the page says of it.
    """

    points: Sequence[Point]
    colour: str = INK
    width: float = 1.1
    dashed: bool = False
    below: float = 0.0
    order: float = 3.0
    tip: str = ""


@dataclass(frozen=True)
class Dots:
    """Points with an ``area`` in square points; ``x`` None is the right border.

    ``edge``: its colour, in place of the dots' own; ``hollow``: nothing but an edge. ``shape``: "o", "s" or ">".
    """

    points: Sequence[tuple[float | None, float]]
    colours: Sequence[str]
    areas: Sequence[float]
    edge: str = ""
    width: float = 0.0
    hollow: bool = False
    shape: str = "o"
    opacity: float = 1.0
    order: float = 2.0
    tips: Sequence[str] = ()


@dataclass(frozen=True)
class Boxes:
    """Rectangles. ``edges``: colours; ``texts`` of each: the first that has room is written inside."""

    places: Sequence[Place]
    colours: Sequence[str]
    edges: Sequence[str] = ()
    width: float = 0.0
    texts: Sequence[Sequence[str]] = ()
    hatched: bool = False


@dataclass(frozen=True)
class Area:
    """A filled shape."""

    corners: Sequence[Point]
    colour: str


@dataclass(frozen=True)
class Note:
    """A text at a place, ``dx`` to the right and ``dy`` up in points.

    ``anchor``: "data"; "x" or "y" if that is a part of the plot's width or height; "plot" if both are. ``along``: two
    points whose direction the text has. ``plain``: on white.
    """

    text: str
    x: float
    y: float
    dx: float = 0.0
    dy: float = 0.0
    align: str = "center"
    over: str = "center"
    anchor: str = "data"
    size: float = SMALL
    colour: str = INK
    bold: bool = False
    italic: bool = False
    upright: bool = False
    along: Sequence[Point] = ()
    plain: bool = False


@dataclass(frozen=True)
class Label:
    """The name of a point, written beside it if there is room."""

    x: float | None
    y: float
    text: str


Mark = Line | Dots | Boxes | Area | Note


@dataclass(frozen=True)
class Panel:
    """A plot. ``above``: inches to what stands above it; ``zoom``: what of its x axis the next panel shows."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    height: float
    above: float = 0.0
    labels: Sequence[Label] = ()
    zoom: Point | None = None


@dataclass(frozen=True)
class Entry:
    """A line of the legend; ``shape``: "box", "hatched", "dot", "ring", "hollow", "square", "line", "dashed" and
    "solid", which are lines with a dot."""

    text: str
    colour: str = INK
    shape: str = "box"


@dataclass(frozen=True)
class Chart:
    """Panels below one another, with a title and a legend. ``heading``: of the legend; ``top``: inches above, at least;
    ``indent``: of title and legend, if they do not begin where the plots do."""

    title: str
    subtitle: str
    panels: Sequence[Panel]
    legend: Sequence[Entry]
    heading: str = ""
    width: float = WIDTH
    left: float = 0.85
    right: float = 0.25
    bottom: float = 0.6
    top: float = 0.95
    indent: float | None = None


def panel_json(chart: Chart) -> dict[str, Any]:
    """What the page draws of a chart with one panel: axes, lines, dots, and the legend's texts and colours."""
    (panel,) = chart.panels
    marks = [{"kind": type(mark).__name__, **asdict(mark)} for mark in panel.marks if isinstance(mark, Line | Dots)]
    legend = [(entry.text, entry.colour) for entry in chart.legend]
    return {"x": asdict(panel.x), "y": asdict(panel.y), "marks": marks, "legend": legend}
