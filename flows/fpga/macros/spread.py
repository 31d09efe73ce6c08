"""Cells that lie on top of each other, moved to where there is room, in the same order."""

from __future__ import annotations

import numpy as np

from dovetail.flows.fpga.macros.wires import Floats, Ints, sums

BIN = 3
"""Tiles of a bin's side."""
FEW = 8
"""Cells of a region that is not cut any more."""

Box = tuple[int, int, int, int]
"""Columns from, to, rows from, to; of bins."""


def spread(places: Floats, areas: Floats, size: tuple[int, int], room: float) -> Floats:
    """Places where no region is overfull.

    Around each bin that is, the fullest first, a region grows until it has room for its cells. They are cut in two
    halves of equal area along the longer side of the region, which is cut alike, and so on (M. Kim, D. Lee and
    I. Markov, "SimPL", 2012, section 4). ``places``: ``[cells, 2]`` in tiles; ``areas``: of the cells; ``size``: of
    the chip, in tiles; ``room``: area of a tile.
    """
    found = places.copy()
    bins = (-(-size[0] // BIN), -(-size[1] // BIN))
    at = np.clip((found // BIN).astype(np.int64), 0, np.array(bins) - 1)
    used = sums(at[:, 0] * bins[1] + at[:, 1], areas, bins[0] * bins[1]).reshape(bins)
    excess: Floats = used - BIN * BIN * room
    done = np.zeros(bins, bool)
    for x, y in np.argwhere(excess > 0)[np.argsort(-excess[excess > 0], kind="stable")]:
        if done[x, y]:
            continue
        x0, x1, y0, y1 = _region(int(x), int(y), excess)
        done[x0:x1, y0:y1] = True
        inside = (at[:, 0] >= x0) & (at[:, 0] < x1) & (at[:, 1] >= y0) & (at[:, 1] < y1)
        low, high = (x0 * BIN, y0 * BIN), (min(x1 * BIN, size[0]), min(y1 * BIN, size[1]))
        _cut(found, areas, np.flatnonzero(inside), np.array([low, high], np.float64))
    return found


def _region(x: int, y: int, excess: Floats) -> Box:
    """Bins around one, without an excess together: grown by the side that has most room for a bin."""
    box: Box = (x, x + 1, y, y + 1)
    while _inside(excess, box) > 0:
        x0, x1, y0, y1 = box
        grown: list[Box] = [
            (max(x0 - 1, 0), x1, y0, y1),
            (x0, min(x1 + 1, excess.shape[0]), y0, y1),
            (x0, x1, max(y0 - 1, 0), y1),
            (x0, x1, y0, min(y1 + 1, excess.shape[1])),
        ]
        able = [(_gain(excess, box, new), new) for new in grown if new != box]
        if not able:
            break
        box = min(able)[1]
    return box


def _inside(excess: Floats, box: Box) -> float:
    x0, x1, y0, y1 = box
    return float(excess[x0:x1, y0:y1].sum())


def _gain(excess: Floats, old: Box, new: Box) -> float:
    """What each bin of the new box adds to the excess of the old one."""
    bins = (new[1] - new[0]) * (new[3] - new[2]) - (old[1] - old[0]) * (old[3] - old[2])
    return (_inside(excess, new) - _inside(excess, old)) / bins


def _cut(places: Floats, areas: Floats, cells: Ints, box: Floats) -> None:
    """Spreads cells over a box evenly by area; changes ``places``. ``box``: its low and its high corner."""
    total = areas[cells].sum()
    if len(cells) <= FEW or total == 0:
        places[cells] = np.clip(places[cells], box[0], np.nextafter(box[1], box[0]))
        return
    axis = int(np.argmax(box[1] - box[0]))
    cells = cells[np.argsort(places[cells, axis], kind="stable")]
    filled = np.cumsum(areas[cells])
    half = min(int(np.searchsorted(filled, total / 2)) + 1, len(cells) - 1)
    middle = box[0, axis] + (box[1, axis] - box[0, axis]) * filled[half - 1] / total
    for part, end in ((cells[:half], 1), (cells[half:], 0)):
        inner = box.copy()
        inner[end, axis] = middle
        _cut(places, areas, part, inner)
