"""Prices tilings from a handful of numbers: close estimates, and bounds that no program of the tiling can beat.

All tiles of a grid are priced at once: formulas are written for arrays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.dma import ADDRESS, BOUNDARY, MAX_BURST
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.plan.array_time import repeated_cycles, tile_cycles
from dovetail.sw.compiler.plan.grid import Cut, Cuts, Grid, cut
from dovetail.sw.compiler.plan.schedule import Flags, Ints, Number, Space, Tiling, tile_bytes, window

OVERHEAD = 12
"""Cycles between two operations of a unit: register writes and waits. For estimates only."""
OVERHEAD_GROUP = 6
"""The same between the operations of two groups."""


class Costs(NamedTuple):
    """What the pieces of tiles cost in cycles; the last axis of every array is the tile.

    ``sizes``: bytes of a buffer of input, weights and output; ``areas``: tiles in the plane, ``columns``: across the
    output channels; ``passes`` over the input channels, without those of the weights' further terms;
    ``array``: all of the array's work, ``last``: that of one tile's last pass; ``one``: a transfer of input, weights
    and output, ``all``: all of them when every piece is moved once. All zero for residents.
    """

    sizes: Ints
    areas: Ints
    columns: Ints
    passes: Ints
    array: Ints
    last: Ints
    one: Ints
    all: Ints

    @property
    def tiles(self) -> Ints:
        """Output tiles."""
        return self.areas * self.columns

    def of(self, which: Any) -> "Costs":
        """Those of some tiles, as an index of NumPy tells."""
        return Costs(*(values[..., *which] for values in self))

    def within(self, space: Space) -> "Costs":
        """The same with residents."""
        moved = np.array([[space.input_at is None], [True], [space.output_at is None]])
        return self._replace(sizes=self.sizes * moved, one=self.one * moved, all=self.all * moved)


class Counts(NamedTuple):
    """Of the tile of a grid of one, what `Costs` has under the same names."""

    areas: Ints
    columns: Ints
    passes: Ints

    @classmethod
    def of(cls, layer: ConvLayer, grid: Grid) -> "Counts":
        """Those of a grid's tile."""
        passes, columns, rows, channels = (np.ravel(cut.number) for cut in grid.cuts(layer))
        return cls(rows * columns, channels, passes)

    @property
    def tiles(self) -> Ints:
        """Output tiles."""
        return self.areas * self.columns


def costs_of(config: Config, layer: ConvLayer, grid: Grid) -> Costs:
    """The costs of a grid's tiles without residents."""
    overhead = OVERHEAD_GROUP if layer.mode == "grouped" else OVERHEAD
    cuts = grid.cuts(layer)
    passes, columns, rows, channels = cuts
    terms = layer.terms - 1
    # The transfers of separable layers depend on the output channels, of others on the pass.
    seen = layer.inputs_of(channels.size, passes.size)
    parts = [(n, layer.inputs_of(m, 0)) for n, m in channels.pieces] if layer.separable else passes.pieces
    streams = [*passes.pieces, (terms, layer.span[1])] if terms else passes.pieces
    height, width = window(layer, rows.size, columns.size)
    one = (
        _load_input(config, layer, height, width, seen),
        _load_weights(config, layer, channels.size, passes.size),
        _store(config, layer, rows.size, columns.size, channels.size),
    )
    every = (
        sum(
            n * m * _load_input(config, layer, height, width, channels)
            for n, height, width in _loaded(layer, cuts)
            for m, channels in parts
        ),
        sum(n * m * _load_weights(config, layer, made, seen) for n, made in channels.pieces for m, seen in streams),
        sum(
            n * m * k * _store(config, layer, h, w, made)
            for n, h in rows.pieces
            for m, w in columns.pieces
            for k, made in channels.pieces
        ),
    )
    array, tile = _array_work(config, layer, grid, overhead)

    def tiles(*values: Number) -> Ints:
        return np.array([np.broadcast_to(value, grid.shape).ravel() for value in values], np.int64)

    sizes = tile_bytes(config, layer, rows.size, columns.size, channels.size, passes.size)
    areas, across, count = tiles(rows.number * columns.number, channels.number, passes.number)
    return Costs(
        sizes=tiles(*sizes),
        areas=areas,
        columns=across,
        passes=count,
        array=array.ravel(),
        last=(tile // (passes.number + terms)).ravel(),
        one=tiles(*one),
        all=tiles(*every),
    )


def array_total(config: Config, layer: ConvLayer, grid: Grid, overhead: int) -> Ints:
    """The array's cycles for the layer, with ``overhead`` per instruction; axes as of ``Grid.shape``."""
    return _array_work(config, layer, grid, overhead)[0]


def _array_work(config: Config, layer: ConvLayer, grid: Grid, overhead: int) -> tuple[Ints, Ints]:
    """The array's cycles for the layer, and for one tile that is not at an end."""
    passes, columns, rows, channels = grid.cuts(layer)
    (n, height), (m, width), (k, made) = _stacked(rows, 0), _stacked(columns, 1), _stacked(channels, 2)
    extents = np.asarray(layer.extent(height, width))
    tiles = _tile_cycles(config, layer, extents, made, passes, overhead, grid.best_stripe)
    total = (n * m * k * tiles).sum(axis=(0, 1, 2))
    if layer.wide:
        sizes, pixel = np.unique(extents, return_inverse=True)
        known = np.array([repeated_cycles(config, layer, size) for size in sizes.tolist()])
        more = (n * m * known[pixel.reshape(extents.shape)]).sum(axis=(0, 1, 2))
        total = total + np.where(passes.number > 1, 0, more)
    return total, tiles[0, 0, 0]


def _stacked(cut: Cut[Number], axis: int) -> tuple[Ints, Ints]:
    """The pieces' numbers and sizes, in one of three axes in front of their own."""
    (most, size), (one, last) = cut.pieces
    others = tuple({0, 1, 2} - {axis})
    numbers, sizes = np.stack(np.broadcast_arrays(most, one)), np.stack(np.broadcast_arrays(size, last))
    return np.expand_dims(numbers, others), np.expand_dims(sizes, others)


def _tile_cycles(
    config: Config, layer: ConvLayer, extents: Ints, out_channels: Ints, passes: Cut[Number], overhead: int, best: bool
) -> Ints:
    """The array's cycles for a tile, all passes, with ``overhead`` per instruction."""
    sizes, pixel = np.unique(extents, return_inverse=True)
    widths, channel = np.unique(out_channels, return_inverse=True)
    pixel, channel = pixel.reshape(extents.shape), channel.reshape(out_channels.shape)

    def cycles(in_channels: Number, *, accumulate: bool) -> Ints:
        seen, part = np.unique(in_channels, return_inverse=True)
        known = [
            tile_cycles(config, layer, sizes.tolist(), widths.tolist(), n, accumulate=accumulate, best=best)
            for n in seen.tolist()
        ]
        return np.array(known)[part.reshape(np.shape(in_channels)), pixel, channel] + overhead

    total = cycles(passes.size, accumulate=False)
    if np.any(passes.number > 1):
        total = total + np.maximum(passes.number - 2, 0) * cycles(passes.size, accumulate=True)
        total = total + (passes.number > 1) * cycles(passes.last, accumulate=True)
    if layer.terms > 1:
        total = total + (layer.terms - 1) * cycles(layer.span[1], accumulate=True)
    return total * (out_channels // layer.group[1]) if layer.mode == "grouped" else total


def _transfer(config: Config, latency: int, length: Number, rows: Number = 1) -> Number:
    """About the cycles of a DMA of ``rows`` rows, aligned ones if there is one."""
    memory = config.like_fixed
    beats = ceil_div(length, config.bus_bytes) + (rows > 1) * (length % config.bus_bytes > 0)
    longest = min(MAX_BURST, BOUNDARY // config.bus_bytes)
    bursts = ceil_div(beats, longest)
    in_flight = (latency + ceil_div(beats, bursts) * memory.beat_cycles) * bursts // config.outstanding
    row = np.maximum(np.maximum(beats * memory.beat_cycles, bursts * ADDRESS), in_flight)
    return rows * row + latency + OVERHEAD


def _loaded(layer: ConvLayer, cuts: Cuts) -> Iterator[tuple[Number, Number, Number]]:
    """(number, rows, columns) of the input of equal tiles; the last rows without what is padding."""
    rows = cuts.rows
    ends = [layer.input_rows(layer.out_height - n, n)[1] for n in np.ravel(rows.last).tolist()]
    end = np.reshape(ends, np.shape(rows.last))
    for number, columns in cuts.columns.pieces:
        height, width = window(layer, rows.size, columns)
        yield number * (rows.number - 1), height, width
        yield number, end, width


def _load_input(config: Config, layer: ConvLayer, rows: Number, columns: Number, channels: Number) -> Number:
    return _plane(config, config.like_fixed.read_latency, rows, columns, channels, layer.width, layer.channels)


def _store(config: Config, layer: ConvLayer, rows: Number, columns: Number, channels: Number) -> Number:
    made, pitch = channels * layer.item, layer.out_channels * layer.item
    return _plane(config, config.like_fixed.write_latency, rows, columns, made, layer.out_width, pitch)


def _plane(
    config: Config, latency: int, rows: Number, columns: Number, channels: Number, width: int, pitch: int
) -> Number:
    """The transfer of a part of ``width`` pixels of ``pitch`` channels."""
    by_pixel, by_row = channels < pitch, columns < width
    length = np.where(by_pixel, channels, np.where(by_row, columns, rows * columns) * channels)
    return _transfer(config, latency, length, np.where(by_pixel, rows * columns, np.where(by_row, rows, 1)))


def _load_weights(config: Config, layer: ConvLayer, out_channels: Number, in_channels: Number) -> Number:
    latency = config.like_fixed.read_latency
    stream = _transfer(config, latency, layer.stream_bytes(config, out_channels, in_channels))
    if layer.mode != "matmul" or layer.inside:
        return stream
    (outer, pitch), inner = (in_channels, layer.out_channels), out_channels
    if layer.transposed:
        (outer, pitch), inner = (out_channels, layer.channels), in_channels
    whole = inner == pitch
    return stream + _transfer(config, latency, np.where(whole, outer * inner, inner), np.where(whole, 1, outer))


def transfers(
    layer: ConvLayer, space: Space, costs: Costs | Counts, rows_outer: bool | Flags, copies: Sequence[int] | Ints
) -> Ints:
    """Transfers of input, weights and output. A piece that is still in one of its buffers is not loaded again."""
    areas, columns, passes = costs.areas, costs.columns, costs.passes
    streams = passes + layer.terms - 1
    stays = _stays(areas, passes, rows_outer, copies[0]) & (not layer.separable)
    inputs = np.where(stays, areas, costs.tiles) * passes
    weights = np.where(_stays(columns, streams, np.logical_not(rows_outer), copies[1]), columns, costs.tiles) * streams
    moved = np.zeros((3, *inputs.shape), np.int64)
    moved[0] = inputs if space.input_at is None else 0
    moved[1] = weights
    moved[2] = costs.tiles if space.output_at is None else 0
    return moved


def _stays(own: Ints, passes: Ints, outer: bool | Flags, copies: Number) -> Flags:
    """Whether pieces of an operand, ``own`` x ``passes``, are loaded once however often each is used."""
    return copies >= passes * np.where(outer, 1, own)


def estimate(
    layer: ConvLayer,
    space: Space,
    costs: Costs,
    rows_outer: bool | Flags,
    copies: Sequence[int] | Ints,
    shared: bool | Flags,
) -> Ints:
    """About the cycles of a layer. ``shared``: input and output take turns at the ports of their banks.

    Loads, computation and stores of different tiles overlap where buffers are doubled, and half of the first loads and
    of the last store with other layers.
    """
    loads = transfers(layer, space, costs, rows_outer, copies)
    pieces = costs.tiles if layer.separable else costs.areas * costs.passes
    total_input = costs.all[0] * (loads[0] // pieces)
    total_weights = costs.all[1] * (loads[1] // (costs.columns * (costs.passes + layer.terms - 1)))
    stored = costs.all[2]
    waits = np.where(np.asarray(copies) < np.minimum(loads, 2), (loads - 1) * costs.one, 0)
    turns = total_input + costs.one[1] + np.maximum(costs.array + waits[1], total_weights - costs.one[1]) + stored
    loading = total_input + total_weights - waits[0] - waits[1]
    slowest = np.maximum(costs.array + waits.sum(axis=0), np.maximum(loading, stored) + costs.last // 2)
    price: Ints = np.where(shared, turns, costs.one.sum(axis=0) // 2 + slowest)
    return price


def lower_bound(config: Config, layer: ConvLayer, tiling: Tiling, loads: Sequence[int], busy: int) -> int:
    """Cycles that no exact price of a tiling can beat; ``loads`` as of :func:`transfers`, ``busy``: the array's cycles
    with one per instruction.

    Each unit does one thing at a time. The array starts behind the first loads, the last store behind all of it. All
    weights may stay, however often they are used.
    """
    memory = config.like_fixed

    def read(length: int) -> int:
        return ceil_div(length, config.bus_bytes) * memory.beat_cycles + memory.read_latency

    def write(length: int) -> int:
        return ceil_div(length, config.bus_bytes) * memory.beat_cycles + memory.write_latency

    passes, across = cut(layer.channels, tiling.in_channels), cut(layer.out_channels, tiling.out_channels)
    rows, columns = cut(layer.out_height, tiling.rows), cut(layer.out_width, tiling.columns or layer.out_width)
    streams = [*passes.pieces, (layer.terms - 1, layer.span[1])] if layer.terms > 1 else passes.pieces
    channels = layer.inputs_of(across.last, passes.last)
    few = replace(layer, wide=())  # a tile may have none of the blocks with repeated taps
    inputs = [
        read(
            layer.input_rows(y, min(tiling.rows, layer.out_height - y))[1]
            * layer.input_columns(x, min(columns.size, layer.out_width - x))[1]
            * channels
        )
        for y in range(0, layer.out_height, tiling.rows)
        for x in range(0, layer.out_width, columns.size)
    ]
    weights = [
        (count * taken, read(few.weight_bytes(config, made, seen)))
        for count, made in across.pieces
        for taken, seen in streams
    ]
    stores = sum(
        n * m * k * write(height * width * made * layer.item)
        for n, height in rows.pieces
        for m, width in columns.pieces
        for k, made in across.pieces
    )
    first = min(cycles for _, cycles in weights) + (inputs[0] if loads[0] else 0)
    store = write(rows.last * columns.last * across.last * layer.item) if loads[2] else 0
    loaded = sum(inputs) * loads[0] // len(inputs) + sum(count * cycles for count, cycles in weights)
    return ceil_div(max(first + 2 * busy + store, 2 * loaded + store, first + 2 * stores if loads[2] else 0), 2)
