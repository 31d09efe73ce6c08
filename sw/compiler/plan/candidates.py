"""The tilings of a grid with the least estimates: every tile in both orders, with several numbers of buffers."""

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.plan.estimate import Costs, costs_of, estimate, transfers
from dovetail.sw.compiler.plan.grid import Grid
from dovetail.sw.compiler.plan.schedule import Buffers, Copies, Flags, Ints, Space, Tiling, fits, place

BUFFERS: tuple[Copies, ...] = ((2, 2, 2), (2, 2, 1), (1, 2, 1), (2, 1, 1), (1, 1, 1))
"""Numbers of buffers, best first; fewer where there are fewer pieces. With the first ones nothing waits for a buffer:
the others are tried where those do not fit."""

MOST_BUFFERS = 64
"""The most buffers of an operand whose pieces all stay."""

NEVER = int(np.iinfo(np.int64).max)
"""The price of what does not fit."""


_ORDERS = np.array([[True], [False]])
"""Whether rows are the outer loop."""


class Estimates(NamedTuple):
    """Axes: tile, order of the loops, numbers of buffers.

    ``copies``: buffers of each operand; ``apart``, ``shared``: estimates where input and output have banks of their
    own, and where they do not; :data:`NEVER` for what makes no sense.
    """

    copies: Ints
    apart: Ints
    shared: Ints


def estimates_of(layer: ConvLayer, space: Space, costs: Costs, *, staying: bool) -> Estimates:
    """The estimates of tiles with residents. ``staying``: also with so many buffers that all pieces of an operand
    stay."""
    each = costs.of((slice(None), None, None))
    copies, useful = _copies(layer, space, each, _ORDERS, staying)
    useful = useful & ((each.areas > 1) == _ORDERS) | useful & (each.areas > 1) & (each.columns > 1)
    apart, shared = (
        np.where(useful, estimate(layer, space, each, _ORDERS, copies, together), NEVER) for together in (False, True)
    )
    return Estimates(copies, apart, shared)


def cheapest(config: Config, layer: ConvLayer, space: Space, grids: Iterable[Grid], most: int) -> list[Tiling]:
    """The ``most`` tilings of the least estimates, the least first; of equal ones those that come first."""
    found: list[Tiling] = []
    for grid in grids:
        for slab in grid.slabs():
            costs = costs_of(config, layer, slab).within(space)
            (tiles,) = np.nonzero(costs.sizes.sum(axis=0) <= config.sram)
            costs = costs.of((tiles,))
            estimates = estimates_of(layer, space, costs, staying=True)
            found += cheapest_of(config, layer, space, slab, tiles, costs, estimates, most)
    return sorted(found, key=lambda tiling: tiling.price)[:most]


def cheapest_of(
    config: Config,
    layer: ConvLayer,
    space: Space,
    grid: Grid,
    tiles: Ints,
    costs: Costs,
    estimates: Estimates,
    most: int,
) -> list[Tiling]:
    """The same of some ``tiles`` of one grid."""
    copies, apart, shared = estimates
    placed, together = fits(config, costs.sizes[..., None, None], copies, space)
    placed[..., 1 - len(BUFFERS) :] &= ~placed[..., -len(BUFFERS), None]
    prices = np.where(placed, np.where(together, shared, apart), NEVER).ravel()
    best = np.argsort(prices, kind="stable") if most > 1 else np.array([prices.argmin()])
    found = []
    for number in best[:most].tolist() if prices.size else []:
        if prices[number] == NEVER:
            break
        index = np.unravel_index(number, placed.shape)
        tile, order, _ = (int(n) for n in index)
        data, weights, result = (int(n[index]) for n in copies)
        at = place(config, Buffers(*costs.sizes[:, tile].tolist()), (data, weights, result), space)
        assert at
        found.append(grid.tiling(layer, int(tiles[tile]), bool(_ORDERS[order]), at[0], int(prices[number])))
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


__all__ = ["Estimates", "all_stay", "cheapest", "cheapest_of", "estimates_of"]
