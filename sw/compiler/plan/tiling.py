"""Chooses tiles: how many output rows and channels at a time, in which order, in which banks.

Effort 0 takes the least estimate of a few hundred tilings. From effort 1 on the candidates are priced exactly, by the
timing of the layer's own program: the best few by estimate, more of them at effort 2, and at effort 3 all whose lower
bound is below the best price. Every effort starts from what the one below it has found.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from itertools import product

import numpy as np

from dovetail.isa.common.sizes import ceil_div, format_bytes, round_up
from dovetail.isa.config.given import MAX_SRAM
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.plan import choices, pricing, schedule_cache
from dovetail.sw.compiler.plan.candidates import Estimates, all_stay, cheapest, cheapest_of, estimates_of
from dovetail.sw.compiler.plan.estimate import Costs, Counts, array_total, costs_of, lower_bound, transfers
from dovetail.sw.compiler.plan.grid import Grid
from dovetail.sw.compiler.plan.schedule import Buffers, Copies, Space, Tiling, buffer_bytes, place
from dovetail.sw.errors import CompileError

COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128, 192, 256, 512, 1024)
"""Into how many parts an axis is cut at efforts 0 and 1."""

COARSE = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""The same at effort 1 where there are passes over the input channels."""

EXACT = {1: (3, 400), 2: (32, 32768)}
"""Candidates that an effort prices exactly, and their operations, at most (but the first is priced anyway)."""

SLACK = 1.03
"""Estimate over the array's least cycles from which effort 1 tries passes over the input channels."""


GROUPS = 8
"""Groups of channels that tiles of effort 0 have at least where that fits: their weights are one transfer, not as many
transfers as there are groups. Of ten configurations for MobileNetV1 with emulated depthwise layers this makes seven
faster, the most by 0.37 %, and three slower, the most by 0.18 %; programs are half as long."""


def choose(config: Config, layer: ConvLayer, space: Space, options: Options) -> Tiling:
    """The cheapest tiling that ``options.effort`` finds within ``space``.

    An output that is resident rules out passes over the input channels. Cutting output channels only, as the
    reference study did, is done by estimate as it was there, whatever the effort.

    Raises
    ------
    CompileError
        Not even the smallest tile fits the SRAM.
    """
    if options.tiling == "channels":
        return _by_estimate(config, layer, space, whole_rows=True)
    return _choose(config, layer, space, options.effort)


@lru_cache(maxsize=4096)
def check(config: Config, layer: ConvLayer, space: Space, *, whole_rows: bool) -> None:
    """Whether there is any tiling, with whole rows only or not. Raises CompileError if there is none."""
    *_, grid = _grids(config, layer, space, whole_rows)
    if place(config, _smallest(config, layer, space, grid), (1, 1, 1), space) is None:
        _by_estimate(config, layer, space, whole_rows)


@lru_cache(maxsize=4096)
def _choose(config: Config, layer: ConvLayer, space: Space, effort: int) -> Tiling:
    if effort == 0:
        return _by_estimate(config, layer, space, whole_rows=False)
    cache = schedule_cache.current()
    key = [asdict(layer), config.to_dict(), asdict(space), effort] if cache else []
    if cache and (known := cache.get(key)):
        with suppress(ValueError):  # of another form: searched for again
            return Tiling.from_dict(known)
    best = search(config, layer, space, effort)
    if cache:
        cache.put(key, asdict(best))
    return best


def search(config: Config, layer: ConvLayer, space: Space, effort: int) -> Tiling:
    """What an effort from 1 on finds, with its exact price."""
    best = _choose(config, layer, space, effort - 1)
    if effort == 3:
        return _exhaust(config, layer, space, best)
    if effort == 1:
        best = replace(best, price=pricing.exact(config, layer, space, best))
        grids = _few_grids(config, layer, space, best)
    else:
        grids = many_grids(config, layer, space, best)
    most, operations = EXACT[effort]
    found = cheapest(config, layer, space, grids, most)
    for tiling in found:
        operations -= _operations(layer, tiling)
        if operations < 0 and tiling is not found[0]:
            break
        best = _cheaper(config, layer, space, best, replace(tiling, best_stripe=True))
    return best


def forget() -> None:
    """Forget all schedules, costs and choices of this process; what is in the cache stays."""
    choices.forget()
    _choose.cache_clear()
    _by_estimate.cache_clear()
    _known.cache_clear()
    _known_costs.cache_clear()
    _array_cycles.cache_clear()


def _cheaper(config: Config, layer: ConvLayer, space: Space, best: Tiling, other: Tiling) -> Tiling:
    """``other`` with its exact price, if that is less than that of ``best``."""
    if bound(config, layer, space, other) >= best.price:
        return best
    price = pricing.within(config, layer, space, other, best.price - 1)
    return best if price is None else replace(other, price=price)


def bound(config: Config, layer: ConvLayer, space: Space, tiling: Tiling) -> int:
    """Cycles that the exact price of a tiling cannot be below."""
    grid = Grid.of(layer, tiling)
    copies = len(tiling.input_at), len(tiling.weights_at), len(tiling.output_at)
    loads = transfers(layer, space, Counts.of(layer, grid), tiling.rows_outer, copies).ravel().tolist()
    return lower_bound(config, layer, tiling, loads, array_cycles(config, layer, tiling))


def array_cycles(config: Config, layer: ConvLayer, tiling: Tiling, overhead: int = 1) -> int:
    """Cycles of the array with some ``overhead`` per instruction; no program of a tiling is below that of 1."""
    return _array_cycles(_without_sram(config), layer, Grid.of(layer, tiling), overhead)


@lru_cache(maxsize=4096)
def _array_cycles(config: Config, layer: ConvLayer, grid: Grid, overhead: int) -> int:
    return int(array_total(config, layer, grid, overhead).item())


def _operations(layer: ConvLayer, tiling: Tiling) -> int:
    """Operations of the array."""
    areas = ceil_div(layer.out_height, tiling.rows) * ceil_div(layer.out_width, tiling.columns or layer.out_width)
    tiles = areas * ceil_div(layer.out_channels, tiling.out_channels)
    if layer.mode == "grouped":
        return tiles * ceil_div(tiling.out_channels, layer.group[1])
    return tiles * (ceil_div(layer.channels, tiling.in_channels) + layer.terms - 1)


# --- effort 0 ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _parts(total: int, quantum: int, counts: tuple[int, ...] = COUNTS) -> tuple[int, ...]:
    """Tile sizes worth trying: ``total`` cut into equal parts, rounded up to ``quantum``."""
    sizes: list[int] = []
    for count in counts:
        size = round_up(ceil_div(total, count), quantum)
        size = min(size, total)
        if size not in sizes:
            sizes.append(size)
        if size <= quantum:
            break
    if quantum not in sizes and quantum < total:
        sizes.append(quantum)
    return tuple(sizes)


def _splits(config: Config, layer: ConvLayer, space: Space, counts: tuple[int, ...] = COUNTS) -> list[int]:
    """Input channels of a pass, less than all of them."""
    if layer.separable or layer.packed or space.output_at is not None:
        return []
    return [c for c in _parts(layer.channels, min(config.ic_lanes, layer.channels), counts) if c < layer.channels]


def _grids(config: Config, layer: ConvLayer, space: Space, whole_rows: bool) -> Iterator[Grid]:
    """The tiles of effort 0, in groups of which one is tried if nothing fits of those before: with rows as long as the
    output, then parts of single rows; the same in passes over the input channels. Of grouped layers those with
    :data:`GROUPS` come before."""
    lanes = min(layer.lanes(config), layer.out_channels)
    channels = _parts(layer.out_channels, lanes)
    heights, widths = _parts(layer.out_height, 1), _parts(layer.out_width, layer.beside)[1:]
    if whole_rows:
        heights, widths = (layer.out_height,), ()
        group = layer.group[1]
        if layer.lanes(config) > 1:
            channels = (*channels, *range((lanes - 1) // group * group, 0, -group))
    if layer.mode == "grouped" and not whole_rows:
        yield _grid([layer.channels], [layer.out_width], heights, _parts(layer.out_channels, GROUPS * lanes))
    for split in (layer.channels, *_splits(config, layer, space)):
        yield _grid([split], [layer.out_width], heights, channels)
        if widths:
            yield _grid([split], widths, [1], channels)


def _grid(splits: Sequence[int], widths: Sequence[int], heights: Sequence[int], channels: Sequence[int]) -> Grid:
    return Grid(tuple(splits), tuple(widths), tuple(heights), tuple(channels))


@lru_cache(maxsize=4096)
def _by_estimate(config: Config, layer: ConvLayer, space: Space, whole_rows: bool) -> Tiling:
    """The least estimate; parts of rows, and passes over the input channels, where nothing else fits."""
    for grid in _grids(config, layer, space, whole_rows):
        costs, estimates = _known(_without_sram(config), layer, space.anywhere, grid)
        if found := cheapest_of(config, layer, space, grid, np.arange(grid.size), costs, estimates, 1):
            return found[0]
    raise _too_small(config, layer, space, grid)


def _smallest(config: Config, layer: ConvLayer, space: Space, grid: Grid) -> Buffers:
    """Bytes of the smallest of a grid's tiles."""
    in_channels, columns, rows, out_channels = grid.tile(grid.size - 1)
    return buffer_bytes(config, layer, rows, out_channels, in_channels, space, columns)


def _too_small(config: Config, layer: ConvLayer, space: Space, grid: Grid) -> CompileError:
    smallest = _smallest(config, layer, space, grid)
    _, columns, rows, channels = grid.tile(grid.size - 1)
    return CompileError(
        f"its smallest tile ({rows} row(s) of {columns} pixel(s), {channels} channel(s)) needs"
        f" {smallest.input} + {smallest.weights} + {smallest.output} bytes of input, weights and output, in banks of"
        f" their own; {format_bytes(config.sram)} of SRAM in {config.banks} banks is too small:"
        " give more SRAM"
    )


@lru_cache(maxsize=64)
def _without_sram(config: Config) -> Config:
    """A configuration of the same costs, for all sizes of SRAM."""
    return config.replace(sram=MAX_SRAM, banks=None)


@lru_cache(maxsize=64)
def _known_costs(config: Config, layer: ConvLayer, grid: Grid) -> Costs:
    return costs_of(config, layer, grid)


@lru_cache(maxsize=128)
def _known(config: Config, layer: ConvLayer, residents: Space, grid: Grid) -> tuple[Costs, Estimates]:
    """What does not depend on the size of SRAM, nor on where residents are."""
    costs = _known_costs(config, layer, grid).within(residents)
    return costs, estimates_of(layer, residents, costs, staying=False)


# --- more effort ------------------------------------------------------------------------------------------------


def _few_grids(config: Config, layer: ConvLayer, space: Space, before: Tiling) -> Iterator[Grid]:
    """The tiles of effort 1: parts of rows where ``before`` has no more than one; passes over the input channels where
    it leaves the array idle."""
    lanes = min(layer.lanes(config), layer.out_channels)
    whole = [layer.out_width]
    yield _grid([layer.channels], whole, _parts(layer.out_height, 1), _parts(layer.out_channels, lanes))
    heights, channels = _parts(layer.out_height, 1, COARSE), _parts(layer.out_channels, lanes, COARSE)
    widths = _parts(layer.out_width, layer.beside, COARSE)[1:] if before.rows == 1 else ()
    yield _grid([layer.channels], widths, heights, channels)
    one = Grid.of(layer, replace(before, in_channels=layer.channels, best_stripe=False))
    if before.in_channels < layer.channels or before.price > SLACK * array_total(config, layer, one, 0).item():
        yield _grid(_splits(config, layer, space, COARSE), [*whole, *widths], heights, channels)


def many_grids(config: Config, layer: ConvLayer, space: Space, before: Tiling) -> Iterator[Grid]:
    """The tiles of effort 2: all equal parts, of rows too where ``before`` has no more than one."""
    lanes = min(layer.lanes(config), layer.out_channels)
    splits = [layer.channels, *_all_splits(config, layer, space)]
    widths = _all_parts(layer.out_width, layer.beside) if before.rows == 1 else [layer.out_width]
    yield _grid(splits, widths, _all_parts(layer.out_height, 1), _all_parts(layer.out_channels, lanes))


def _all_parts(total: int, quantum: int) -> list[int]:
    """Every size of equal parts of ``total``, rounded up to ``quantum``."""
    units = ceil_div(total, quantum)
    return sorted({min(ceil_div(units, count) * quantum, total) for count in range(1, units + 1)}, reverse=True)


def _all_splits(config: Config, layer: ConvLayer, space: Space) -> list[int]:
    if not _splits(config, layer, space):
        return []
    return [c for c in _all_parts(layer.channels, min(config.ic_lanes, layer.channels)) if c < layer.channels]


def _exhaust(config: Config, layer: ConvLayer, space: Space, before: Tiling) -> Tiling:
    """Branch and bound: every size of rows and channels, every order and number of buffers."""
    lanes = min(layer.lanes(config), layer.out_channels)
    channel_tiles = [min(n, layer.out_channels) for n in range(lanes, layer.out_channels + lanes, lanes)]
    widths = _all_parts(layer.out_width, layer.beside) if before.rows == 1 else [layer.out_width]
    splits = [layer.channels, *_all_splits(config, layer, space)]
    every = replace(_grid(splits, widths, range(1, layer.out_height + 1), channel_tiles), best_stripe=True)
    bounded = []
    for grid in every.slabs():
        costs, busy = costs_of(config, layer, grid).within(space), array_total(config, layer, grid, 1).ravel()
        (hopeful,) = np.nonzero((costs.sizes.sum(axis=0) <= config.sram) & (busy < before.price))
        for number in hopeful.tolist():
            for tiling, loads in _largest(config, layer, space, grid, number, costs.of((number,))):
                least = lower_bound(config, layer, tiling, loads, int(busy[number]))
                if least < before.price:
                    bounded.append((least, tiling))
    best = before
    for _, tiling in sorted(bounded, key=lambda item: item[0]):
        best = _cheaper(config, layer, space, best, tiling)
    return best


def _largest(
    config: Config, layer: ConvLayer, space: Space, grid: Grid, number: int, costs: Costs
) -> Iterator[tuple[Tiling, Copies]]:
    """Tilings of a tile, and their transfers, with as many buffers as fit: none of which has room for another one."""
    sizes = Buffers(*costs.sizes.tolist())
    for rows_outer in (True, False) if costs.areas > 1 and costs.columns > 1 else (bool(costs.areas > 1),):
        choices = [[3, 2, 1] if size else [0] for size in costs.sizes]
        for choice, buffers in zip(choices, all_stay(layer, space, costs, rows_outer), strict=False):
            choice[:0] = [int(buffers)] if buffers > 3 else []
        kept: list[Copies] = []
        for inputs, weights, outputs in product(*choices):
            copies = inputs, weights, outputs
            if any(all(a >= b for a, b in zip(other, copies, strict=True)) for other in kept):
                continue
            if placed := place(config, sizes, copies, space):
                kept.append(copies)
                inputs, weights, outputs = transfers(layer, space, costs, rows_outer, copies).tolist()
                yield grid.tiling(layer, number, rows_outer, placed[0], 0), (inputs, weights, outputs)


__all__ = ["Space", "Tiling", "bound", "check", "choose", "forget", "many_grids", "search"]
