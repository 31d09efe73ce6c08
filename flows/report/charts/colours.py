"""Colours that colour-blind readers tell apart."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.sw.analysis.explain.causes import CAUSES

INK, SOFT, FAINT, GRID, ALARM = "#222222", "#555555", "#8A8A8A", "#E4E4E4", "#B00020"
"""Text and lines, from the strongest to the weakest; ``ALARM`` is for what failed."""

KINDS = {
    "conv": "#4477AA",
    "depthwise": "#EE7733",
    "dense": "#228833",
    "matmul": "#332288",
    "add": "#AA3377",
    "maxpool": "#CCBB44",
    "avgpool": "#66CCEE",
    "mean": "#44AA99",
    "other": "#BBBBBB",
}
"""Colours per kind of layer; the order is that of a stack."""
STATES = {"all busy": "#4477AA", "some busy": "#EE7733", "all idle": "#BBBBBB"}
"""Colours of what accelerators of a system do, in the order of a stack."""
SPARE = ("#882255", "#999933", "#DDCC77", "#DDDDDD")
"""For kinds that the table does not have."""

SERIES = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB", "#332288")
"""Colours of groups that are in no order, in the order of their use."""

RAMP = ("#5a4bb5", "#4a66ba", "#3b80b3", "#2b97a2", "#2fae8a", "#5bc268", "#8fd146", "#c0da2c")
"""Colours of groups that are in an order, from blue over green to yellow: seen on white and on black."""

BOUNDS = {
    "array": "#228833",
    "weights": "#44AA99",
    "requantise": "#EE7733",
    "vector": "#CCBB44",
    "load": "#4477AA",
    "store": "#AA3377",
    "latency": "#BBBBBB",
    "frontend": "#666666",
}
"""Colours per bound of an explanation."""
SHADES = (0.0, 0.35, 0.55, 0.7, 0.8)
"""White in the colours of the causes of one bound, in their order."""


def colours_of(kinds: Sequence[str]) -> dict[str, str]:
    """A colour for each kind of layer, in the order of a stack: kinds outside the table come last, in spare colours."""
    table = KINDS | STATES
    known = [kind for kind in table if kind in kinds]
    unknown = [kind for kind in dict.fromkeys(kinds) if kind not in table]
    return {kind: table[kind] for kind in known} | {kind: SPARE[n % len(SPARE)] for n, kind in enumerate(unknown)}


def group_colours(groups: Sequence[str], ordered: bool) -> dict[str, str]:
    """The colour of every group; those in an order get a part of the ramp."""
    if ordered and len(groups) > 2:
        return {name: ramp_colour(n / (len(groups) - 1)) for n, name in enumerate(groups)}
    return {name: SERIES[n % len(SERIES)] for n, name in enumerate(groups)}


def cause_colours() -> dict[str, str]:
    """The colour of every cause: a shade of its bound's."""
    seen: dict[str, int] = {}
    colours = {}
    for name, cause in CAUSES.items():
        shade = seen.get(cause.bound, 0)
        seen[cause.bound] = shade + 1
        colours[name] = lighter(BOUNDS[cause.bound], SHADES[min(shade, len(SHADES) - 1)])
    return colours


def ramp_colour(part: float) -> str:
    """The colour of a part, 0 to 1, of the ramp."""
    place = min(max(part, 0.0), 1.0) * (len(RAMP) - 1)
    below = min(int(place), len(RAMP) - 2)
    pairs = zip(_parts(RAMP[below]), _parts(RAMP[below + 1]), strict=True)
    return "#" + "".join(f"{round(low + (high - low) * (place - below)):02x}" for low, high in pairs)


def lighter(colour: str, share: float) -> str:
    """A colour mixed with ``share`` of white."""
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in _parts(colour))


def ink_on(colour: str) -> str:
    """White on dark colours, black on light ones."""
    red, green, blue = _parts(colour)
    return "white" if 0.30 * red + 0.59 * green + 0.11 * blue < 0.55 * 255 else "#111111"


def _parts(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def short(text: str, length: int) -> str:
    """The text, its middle left out where it is longer than ``length``: names differ at their ends."""
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}…{text[len(text) - (length - 1 - head) :]}"
