"""How long the array takes for a layer's tiles: stripes, sets of weights, columns and pairs that suit it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypedDict

import numpy as np

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import COLUMN_TAPS, ROW_STEPS, Config
from dovetail.isa.instructions.checks import MAX_SKIP, longest_line, results_apart
from dovetail.isa.timing.array import array_duration, array_durations, machine_of, matrix_reads
from dovetail.isa.timing.depthwise import Depthwise, depthwise_durations
from dovetail.sw.compiler.layer import ROW, ConvLayer
from dovetail.sw.compiler.plan.schedule import Ints, accumulates

MAX_DILATION = 255
"""Rows from a kernel row to the next that an instruction can have."""


def longest_stripe(config: Config, layer: ConvLayer) -> int:
    """The most pixels of a stripe."""
    if layer.mode != "depthwise":
        return config.stripe - (config.stripe % 2 if layer.pairs else 0)
    pixels = config.depthwise_pixels(layer.sets)
    return pixels if layer.rows == 1 else min(pixels, longest_line(config, layer.slide))


def equal_stripe(config: Config, layer: ConvLayer, extent: int) -> int:
    """Pixels per stripe: as few stripes as the accumulators allow, equally long, in whole pixel lanes."""
    most, pixels = longest_stripe(config, layer), extent % ROW
    size = ceil_div(pixels, ceil_div(pixels, most))
    return min(round_up(size, layer.pixels_together(config)), most)


@lru_cache(maxsize=4096)
def sets_of(config: Config, layer: ConvLayer) -> int:
    """How many weight sets a layer holds at the same time: those that take the fewest cycles."""
    if layer.mode != "depthwise" or layer.group[1] > 1:
        return 1
    numbers = range(1, min(config.depthwise_sets, config.stripe_rows * config.pixel_lanes) + 1)
    return min(numbers, key=lambda sets: _cycles_at_once(config, replace(layer, sets=sets)))


@lru_cache(maxsize=4096)
def in_columns(config: Config, layer: ConvLayer) -> ConvLayer:
    """A depthwise layer with as many columns of the input in a word as fill it, if it takes fewer cycles then: as many
    as there are pixels beside each other, or with a stride of two, two for a pixel that fills the lanes, or half of
    them."""
    beside, rest = divmod(config.acc_lanes, layer.channels)
    fills = beside in (2, 4) and beside <= config.word_columns and rest == layer.out_width % beside == 0
    columns, stride = max(beside, 2), layer.stride[1]
    if stride == 2:
        whole, half = config.has_wide_words and beside == 1, config.word_columns > 1 and beside == 2
        beside, fills = 1, (whole or half) and rest == 0
        columns = 2
    taps = layer.kernel[1] == COLUMN_TAPS and layer.dilation[1] == 1 and stride <= 2
    if layer.mode != "depthwise" or layer.group[1] > 1 or layer.repeats > 1 or not (fills and taps):
        return layer

    def cycles(some: ConvLayer) -> int:
        extent = some.extent(layer.out_height, layer.out_width)
        stripe = equal_stripe(config, some, extent)
        return array_cycles(config, some, extent, layer.out_channels, layer.channels, stripe)

    full = replace(layer, sets=config.pixel_lanes, columns=columns, beside=beside)
    return full if cycles(full) < cycles(layer) else layer


@lru_cache(maxsize=4096)
def in_rows(config: Config, layer: ConvLayer) -> ConvLayer:
    """A depthwise layer that takes as many kernel rows at once as take the fewest cycles, of lines or of a chain."""
    (stride, _), (dilation, _) = layer.turned(*layer.stride), layer.turned(*layer.dilation)
    if layer.mode != "depthwise" or layer.group[1] > 1 or layer.repeats > 1 or not layer.slide:
        return layer
    if not dilation or stride % dilation or not 1 <= stride // dilation <= MAX_SKIP:
        return layer
    (kh, kw), apart, several = layer.taps, layer.lines_apart, list[ConvLayer]()
    for rows in range(2, min(config.kernel_rows, kh) + 1):
        if kw not in config.row_kernels(rows):
            continue
        if kh <= rows * ROW_STEPS and rows * dilation <= MAX_DILATION:
            several.append(replace(layer, rows=rows))
        if 1 < apart <= ROW_STEPS and kh < apart + rows:
            several.append(replace(layer, rows=rows, chain=True))
    if layer.columns == 1:
        several = [replace(one, sets=sets_of(config, one)) for one in several]
    return min((layer, *several), key=lambda one: _cycles_at_once(config, one))


@lru_cache(maxsize=4096)
def down_columns(config: Config, layer: ConvLayer, along_rows: ConvLayer) -> ConvLayer:
    """A depthwise layer along columns, if that takes fewer cycles than ``along_rows``, in which it has what suits rows:
    of a plane higher than wide stripes are longer. Only where there is room for all of the plane, in two buffers: parts
    of it are rows."""
    if layer.mode != "depthwise" or layer.repeats > 1:
        return along_rows
    rows = (layer.out_height - 1) * layer.stride[0] + (layer.kernel[0] - 1) * layer.dilation[0] + 1
    plane = rows * layer.width * layer.channels + layer.out_height * layer.out_width * layer.out_channels
    if 2 * plane > config.sram:
        return along_rows
    down = replace(layer, down=True, rows=1)
    down = in_rows(config, replace(down, sets=sets_of(config, down)))
    return down if _cycles_at_once(config, down) < _cycles_at_once(config, along_rows) else along_rows


@lru_cache(maxsize=4096)
def has_pairs(config: Config, layer: ConvLayer) -> bool:
    """Whether a read can have the input of two pixels, and the layer takes fewer cycles if it does."""
    plain = layer.mode == "conv" and layer.terms == layer.item == 1
    if not plain or config.pixel_lanes == 1 or config.stripe == 1:
        return False
    near = layer.stride[1] * layer.channels <= config.pair_step
    if not near or layer.kc(config, layer.channels) > config.pair_sets:
        return False
    return _cycles_at_once(config, replace(layer, pairs=True)) < _cycles_at_once(config, layer)


def _cycles_at_once(config: Config, layer: ConvLayer) -> int:
    """Cycles of a layer in one instruction, if there were room for all of it."""
    extent = layer.extent(layer.out_height, layer.out_width)
    stripe = equal_stripe(config, layer, extent)
    return array_cycles(config, layer, extent, layer.out_channels, layer.channels, stripe)


@lru_cache(maxsize=65536)
def stripe_of(
    config: Config, layer: ConvLayer, extent: int, out_channels: int, in_channels: int, best: bool = False
) -> int:
    """Pixels per stripe of an instruction; ``best``: of all lengths the one that takes the fewest cycles. ``extent``
    as of :meth:`ConvLayer.extent`."""
    equal = equal_stripe(config, layer, extent)
    if not best:
        return equal
    added = bool(accumulates(layer, in_channels))

    def cycles(stripe: int) -> int:
        return array_cycles(config, layer, extent, out_channels, in_channels, stripe, accumulate=added)

    longest, step = longest_stripe(config, layer), layer.pixels_together(config)
    lengths: list[int] = [equal, *range(min(round_up(extent % ROW, step), longest), 0, -step)]
    return min(lengths, key=cycles)


def array_cycles(
    config: Config,
    layer: ConvLayer,
    extent: int,
    out_channels: int,
    in_channels: int,
    stripe: int,
    *,
    accumulate: bool = False,
    repeated: bool = False,
) -> int:
    """Cycles of one instruction: an ``extent`` of pixels of ``out_channels`` (one group of them), ``in_channels`` in
    this pass."""
    blocks, last = _blocks(config, layer, out_channels)
    if layer.mode == "depthwise":
        (cycles,) = _depthwise_cycles(config, layer, extent, ((blocks, last),), stripe, accumulate=accumulate)
        return cycles
    pixels = extent
    steps = _steps(config, layer, in_channels, repeated=repeated)
    return array_duration(
        config, **steps, pixels=pixels, stripe=stripe, blocks=blocks, last=last, accumulate=accumulate
    )


@lru_cache(maxsize=65536)
def repeated_cycles(config: Config, layer: ConvLayer, extent: int) -> int:
    """Cycles that repeated taps take on top, of an ``extent`` of pixels of all output channels."""
    if not layer.wide:
        return 0
    lanes, stripe = layer.lanes(config), equal_stripe(config, layer, extent)
    blocks, channels = len({channel // lanes for channel in layer.wide}), min(lanes, layer.out_channels)
    if layer.apart:
        spot = replace(layer, kernel=(layer.spot[1], layer.spot[3]))
        again = array_cycles(config, spot, extent, channels, layer.channels, stripe, accumulate=True)
        return blocks * (layer.repeats - 1) * again
    once, more = (
        array_cycles(config, layer, extent, channels, layer.channels, stripe, repeated=repeated)
        for repeated in (False, True)
    )
    return blocks * (more - once)


def tile_cycles(
    config: Config,
    layer: ConvLayer,
    extents: Sequence[int],
    out_channels: Sequence[int],
    in_channels: int,
    *,
    accumulate: bool,
    best: bool,
) -> Ints:
    """:func:`array_cycles` of every extent with every one of output channels, ascending, in their ``best`` or
    in equal stripes."""
    widths = tuple(_blocks(config, layer, channels) for channels in out_channels)
    if not best and layer.mode == "depthwise":
        rows = [
            _depthwise_cycles(config, layer, n, widths, equal_stripe(config, layer, n), accumulate=accumulate)
            for n in extents
        ]
    elif not best:
        machine, steps = machine_of(config), _steps(config, layer, in_channels)
        rows = [
            array_durations(
                machine, **steps, pixels=n, stripe=equal_stripe(config, layer, n), widths=widths, accumulate=accumulate
            )
            for n in extents
        ]
    else:
        rows = [
            tuple(
                array_cycles(
                    config,
                    layer,
                    n,
                    channels,
                    in_channels,
                    stripe_of(config, layer, n, channels, in_channels, best=True),
                    accumulate=accumulate,
                )
                for channels in out_channels
            )
            for n in extents
        ]
    return np.array(rows, np.int64)


def _depthwise_cycles(
    config: Config, layer: ConvLayer, extent: int, widths: tuple[tuple[int, int], ...], stripe: int, *, accumulate: bool
) -> tuple[int, ...]:
    height, width = divmod(extent, ROW)
    kh, kw = layer.taps
    machine = Depthwise.of(
        config,
        kh=kh,
        kw=kw,
        sets=layer.sets,
        slide=layer.slide,
        multiplier=layer.group[1],
        columns=layer.columns,
        rows=layer.rows,
        skip=layer.skip,
    )

    def cycles(width: int) -> tuple[int, ...]:
        return depthwise_durations(
            machine, height=height, width=width, stripe=stripe, widths=widths, accumulate=accumulate
        )

    if layer.rows == 1 or width <= stripe:
        return cycles(width)
    # An instruction for each band of lines that are no longer than a stripe.
    bands, rest = divmod(width, stripe)
    whole, last = cycles(stripe), cycles(rest) if rest else (0,) * len(widths)
    return tuple(bands * one + other for one, other in zip(whole, last, strict=True))


class _Steps(TypedDict):
    """What an instruction's steps depend on."""

    taps: int
    kc: int
    group: int
    matrix_rows: int
    pairs: bool
    result_pairs: bool


def _steps(config: Config, layer: ConvLayer, in_channels: int, *, repeated: bool = False) -> _Steps:
    kh, kw = layer.taps
    repeats = layer.repeats if repeated or in_channels < layer.channels else 1
    pairs = layer.pairs and in_channels == layer.channels
    return {
        "taps": kh * kw * repeats,
        "kc": layer.kc(config, in_channels),
        "group": layer.together(config, in_channels),
        "matrix_rows": matrix_reads(config, transposed=layer.transposed) if layer.mode == "matmul" else 0,
        "pairs": pairs,
        "result_pairs": pairs and results_apart(config, layer.out_channels),
    }


def _blocks(config: Config, layer: ConvLayer, out_channels: int) -> tuple[int, int]:
    """(blocks of output channels, channels of the last) of an instruction for a tile of so many."""
    grouped = layer.mode == "grouped"
    lanes = config.oc_lanes if grouped else layer.lanes(config)
    channels = layer.group[1] if grouped else out_channels * layer.beside
    blocks = ceil_div(channels, lanes)
    return blocks, channels - (blocks - 1) * lanes
