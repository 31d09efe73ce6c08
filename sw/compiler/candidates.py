"""The tilings of a grid with the least estimates: every tile in both orders, with several numbers of buffers."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from dovetail.isa.config import Config
from dovetail.sw.compiler.estimate import Costs, costs_of, estimate, transfers
from dovetail.sw.compiler.grid import Grid
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.schedule import Buffers, Copies, Flags, Ints, Space, Tiling, fits, place

BUFFERS: tuple[Copies, ...] = ((2, 2, 2), (2, 2, 1), (1, 2, 1), (2, 1, 1), (1, 1, 1))
"""Numbers of buffers, best first; fewer where there are fewer pieces. With the first ones nothing waits for a buffer:
the others are tried where those do not fit."""

MOST_BUFFERS = 64
"""The most buffers of an operand whose pieces all stay."""

NEVER = np.iinfo(np.int64).max
"""The price of what does not fit."""


def cheapest(config: Config, layer: ConvLayer, space: Space, grids: Iterable[Grid], most: int) -> list[Tiling]:
    """The ``most`` tilings of the least estimates, the least first; of equal ones those that come first."""
    found: list[Tiling] = []
    for grid in grids:
        for slab in grid.slabs():
            found += cheapest_of(config, layer, space, slab, costs_of(config, layer, slab), most, staying=True)
    return sorted(found, key=lambda tiling: tiling.price)[:most]


def cheapest_of(
    config: Config, layer: ConvLayer, space: Space, grid: Grid, costs: Costs, most: int, *, staying: bool
) -> list[Tiling]:
    """The same of one grid, of which the costs are known. ``staying``: also with so many buffers that all pieces of an
    operand stay."""
    costs = costs.within(space)
    (tiles,) = np.nonzero(costs.sizes.sum(axis=0) <= config.sram_bytes)
    if not tiles.size:
        return []
    # Axes: tile, whether rows are the outer loop, numbers of buffers.
    each, rows_outer = costs.of((tiles, None, None)), np.array([[True], [False]])
    copies, useful = _copies(layer, space, each, rows_outer, staying)
    placed, shared = fits(config, each.sizes, copies, space)
    placed &= useful & (rows_outer == (each.areas > 1)) | useful & (each.areas > 1) & (each.columns > 1)
    placed[..., 1 - len(BUFFERS) :] &= ~placed[..., -len(BUFFERS), None]
    prices = np.where(placed, estimate(layer, space, each, rows_outer, copies, shared), NEVER).ravel()
    best = np.argsort(prices, kind="stable")[:most] if most > 1 else np.array([prices.argmin()])
    found = []
    for number in best[prices[best] < NEVER].tolist():
        index = np.unravel_index(number, placed.shape)
        tile, order, _ = index
        data, weights, result = (int(n[index]) for n in copies)
        place_ = place(config, Buffers(*costs.sizes[:, tiles[tile]].tolist()), (data, weights, result), space)
        assert place_
        outer = bool(rows_outer[order])
        found.append(grid.tiling(layer, int(tiles[tile]), outer, place_[0], int(prices[number])))
    return found


def _copies(layer: ConvLayer, space: Space, costs: Costs, rows_outer: Flags, staying: bool) -> tuple[Ints, Flags]:
    """Numbers of buffers of each operand to try, in the last axis; and which of them are worth it.

    :data:`BUFFERS`, but no more than there are pieces; before them, if ``staying``, as many as there are pieces.
    """
    most = np.minimum(transfers(layer, space, costs, rows_outer, (2, 2, 2)), 2)
    usual = np.minimum(most, np.array(BUFFERS).T[:, None, None])
    if not staying:
        return usual, np.array(True)
    found, useful = [], []
    for operand, buffers in enumerate(all_stay(layer, space, costs, rows_outer)):
        for fewer in range(2):
            copies = most.copy()
            copies[operand] = buffers
            copies[2] -= fewer
            found.append(copies)
            useful.append((buffers > 0) & (copies[2] > 0))
    again = np.zeros(usual.shape[1:], bool)
    for i, j in combinations(range(len(BUFFERS)), 2):
        again[..., j] |= (usual[..., i] == usual[..., j]).all(axis=0)
    return np.concatenate([*found, usual], axis=-1), np.concatenate([*useful, ~again], axis=-1)


def all_stay(layer: ConvLayer, space: Space, costs: Costs, rows_outer: bool | Flags) -> tuple[Ints, Ints]:
    """Input and weight buffers with which all pieces stay while they are used; 0 where that is two or not worth it."""
    passes = costs.passes
    inputs = passes * np.where(rows_outer, 1, costs.areas)
    weights = (passes + layer.terms - 1) * np.where(rows_outer, costs.columns, 1)
    many = costs.columns > 1 if space.input_at is None and not layer.separable else np.array(False)
    return (
        np.where((inputs > 2) & (inputs <= MOST_BUFFERS) & many, inputs, 0),
        np.where((weights > 2) & (weights <= MOST_BUFFERS) & (costs.areas > 1), weights, 0),
    )


__all__ = ["all_stay", "cheapest", "cheapest_of"]
