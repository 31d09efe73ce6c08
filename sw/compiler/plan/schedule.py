"""A layer's schedule and the SRAM it may use: sizes of tiles, order of loops, places of buffers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import Count, ceil_div, round_up
from dovetail.isa.config.resolved import COLUMN_TAPS, PAIR_STEPS, Config
from dovetail.isa.timing.array import array_duration, array_durations, machine_of, matrix_reads
from dovetail.isa.timing.depthwise import Depthwise, depthwise_durations
from dovetail.sw.compiler.emit.arena import Runs
from dovetail.sw.compiler.layer import ROW, ConvLayer

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Number = int | Ints
"""One number, or one of each of many tilings."""

Copies = tuple[int, int, int]
"""Buffers of input, weights and output."""
Places = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""SRAM byte addresses of the buffers of input, weights and output."""


@dataclass(frozen=True)
class Tiling:
    """A layer's schedule.

    ``rows`` x ``out_channels``: output tile; ``in_channels``: input channels per pass (all unless split);
    ``rows_outer``: the order of the two loops; ``*_at``: SRAM byte addresses of each operand's buffers (two when
    doubled; as many as there are pieces when all stay); ``price``: cycles; ``best_stripe``: stripes are as long as
    takes the fewest cycles, else as long as accumulators allow; ``columns`` of the output tile if not all.
    """

    rows: int
    out_channels: int
    in_channels: int
    rows_outer: bool
    input_at: tuple[int, ...]
    weights_at: tuple[int, ...]
    output_at: tuple[int, ...]
    price: int
    best_stripe: bool = False
    columns: int = 0

    def __str__(self) -> str:
        order = "rows outer" if self.rows_outer else "channels outer"
        copies = "/".join(str(len(at)) for at in (self.input_at, self.weights_at, self.output_at))
        wide = f" x {self.columns} columns" if self.columns else ""
        return f"{self.rows} rows{wide} x {self.out_channels} of {self.in_channels} channels, {order}, buffers {copies}"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Tiling":
        """What `dataclasses.asdict` wrote, also by way of JSON. Raises ValueError for anything of another form."""
        wanted = {field.name: field.type for field in fields(cls)}
        if not isinstance(data, Mapping) or data.keys() != wanted.keys():
            raise ValueError("a schedule must have the entries of one")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
        for name, kind in wanted.items():
            value = values[name]
            right = isinstance(value, bool) if kind in (bool, "bool") else _counts(value, kind in (int, "int"))
            if not right:
                raise ValueError(f"{name} of a schedule must be of its type, not {value!r}")
        return cls(**values)


def _counts(value: Any, single: bool) -> bool:
    """Whether it is a number from 0 on, or a tuple of such."""
    if not single and not isinstance(value, tuple):
        return False
    return all(type(number) is int and number >= 0 for number in ([value] if single else value))


@dataclass(frozen=True)
class Space:
    """The SRAM that a layer's schedule may use.

    ``free``: runs of whole banks, as (first bank, banks). ``input_at``, ``output_at``: SRAM byte address of the whole
    input, or output, which needs no buffers then; None where it comes from, or goes to, system memory tile by tile.
    Residents lie in banks that are not free.
    """

    free: Runs
    input_at: int | None = None
    output_at: int | None = None

    @classmethod
    def whole(cls, config: Config) -> "Space":
        """All of SRAM, nothing in it."""
        return cls(((0, config.banks),))

    @property
    def anywhere(self) -> "Space":
        """The same residents, without a place."""
        return Space((), None if self.input_at is None else 0, None if self.output_at is None else 0)


@dataclass(frozen=True)
class Buffers:
    """Bytes of one buffer of each operand."""

    input: int
    weights: int
    output: int


def window(layer: ConvLayer, rows: Number, columns: Number) -> tuple[Number, Number]:
    """Input rows and columns that output rows and columns need, away from padding; all columns for whole rows."""
    (stride_y, stride_x), (dilation_y, dilation_x), (kh, kw) = layer.stride, layer.dilation, layer.kernel
    height = np.minimum((rows - 1) * stride_y + (kh - 1) * dilation_y + 1, layer.height)
    width = np.minimum((columns - 1) * stride_x + (kw - 1) * dilation_x + 1, layer.width)
    return height, np.where(columns == layer.out_width, layer.width, width)


def tile_bytes(
    config: Config, layer: ConvLayer, rows: Number, columns: Number, out_channels: Number, in_channels: Number
) -> tuple[Number, Number, Number]:
    """Bytes of a tile's input, weights and output. Sums of several passes are held as int32."""
    height, width = window(layer, rows, columns)
    pixel = np.where(_accumulates(layer, in_channels), 4 * out_channels, layer.pixel_bytes(config, out_channels))
    return (
        height * width * layer.inputs_of(out_channels, in_channels),
        layer.weight_bytes(config, out_channels, in_channels),
        rows * columns * pixel,
    )


@lru_cache(maxsize=65536)
def _tile_bytes(
    config: Config, layer: ConvLayer, rows: int, columns: int, out_channels: int, in_channels: int
) -> tuple[int, int, int]:
    """The same of one tile."""
    data, weights, result = map(int, tile_bytes(config, layer, rows, columns, out_channels, in_channels))
    return data, weights, result


def buffer_bytes(
    config: Config,
    layer: ConvLayer,
    rows: int,
    out_channels: int,
    in_channels: int,
    space: Space,
    columns: int = 0,
) -> Buffers:
    """SRAM that a tile needs besides residents; ``columns``: 0 for all."""
    data, weights, result = _tile_bytes(config, layer, rows, columns or layer.out_width, out_channels, in_channels)
    return Buffers(data if space.input_at is None else 0, weights, result if space.output_at is None else 0)


def _accumulates(layer: ConvLayer, in_channels: Number) -> bool | Flags:
    """Whether there are passes that add to the sums of others."""
    return (layer.terms > 1) | (not layer.separable) & (in_channels < layer.channels)


def place(config: Config, sizes: Buffers, copies: Copies, space: Space) -> tuple[Places, bool] | None:
    """Addresses of (input, weights, output) buffers in banks of their own, or None when they do not fit.

    Where three groups of banks do not fit, output shares the input's banks (the second value says so): more fits, and
    the ports take turns. An operand that is resident has no buffers.
    """
    word = config.word_bytes
    padded = [round_up(size, word) for size in (sizes.input, sizes.weights, sizes.output)]
    for shared, groups in _groups(config, padded, copies, space):
        firsts = _first_banks(space.free, groups)
        if firsts is None:
            continue
        starts = [first * config.bank_bytes for first in firsts]
        if shared:
            starts[2] = starts[0] + padded[0] * copies[0]
        input_at, weights_at, output_at = (
            tuple(start + i * size for i in range(count))
            for start, size, count in zip(starts, padded, copies, strict=True)
        )
        return (input_at, weights_at, output_at), shared
    return None


def fits(config: Config, sizes: Ints, copies: Ints, space: Space) -> tuple[Flags, Flags]:
    """(whether :func:`place` finds room, whether output shares the input's banks) for arrays of sizes and copies."""
    word = config.word_bytes
    padded = [round_up(size, word) for size in sizes]
    own, *shared = (_have_banks(space.free, banks) for _, banks in _groups(config, padded, list(copies), space))
    return (own | shared[0], shared[0] & ~own) if shared else (own, np.zeros_like(own))


def _groups(
    config: Config, padded: Sequence[Count], copies: Sequence[Count], space: Space
) -> Iterator[tuple[bool, tuple[Count, Count, Count]]]:
    """(whether output shares the input's banks, banks of input, weights and output), best first."""
    data, weights, result = (size * count for size, count in zip(padded, copies, strict=True))
    bank = config.bank_bytes
    yield False, (ceil_div(data, bank), ceil_div(weights, bank), ceil_div(result, bank))
    if space.input_at is None and space.output_at is None:
        yield True, (ceil_div(data + result, bank), ceil_div(weights, bank), 0)


def _have_banks(free: Runs, groups: tuple[Number, Number, Number]) -> Flags:
    """Whether there are banks for each group."""
    most = sum(banks for _, banks in free)
    one, two, three = groups
    found = np.asarray(one + two + three <= most)
    if len(free) == 1:
        return found
    base = most + 1
    numbers, which = np.unique(np.asarray((one * base + two) * base + three)[found], return_inverse=True)
    firsts = [_first_banks(free, (n // base**2, n // base % base, n % base)) for n in numbers.tolist()]
    found[found] = np.array([first is not None for first in firsts], bool)[which]
    return found


@lru_cache(maxsize=65536)
def _first_banks(free: Runs, groups: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """The first bank of each group of banks: first fit in their order, else the largest group first."""
    for order in (range(len(groups)), sorted(range(len(groups)), key=lambda i: -groups[i])):
        runs = [list(run) for run in free]
        firsts = [0] * len(groups)
        for i in order:
            run = next((run for run in runs if run[1] >= groups[i]), None)
            if run is None:
                break
            firsts[i] = run[0]
            run[0] += groups[i]
            run[1] -= groups[i]
        else:
            return firsts[0], firsts[1], firsts[2]
    return None


def longest_stripe(config: Config, layer: ConvLayer) -> int:
    """The most pixels of a stripe."""
    if layer.mode != "depthwise":
        return config.stripe - (config.stripe % 2 if layer.pairs else 0)
    return config.stripe_rows // config.depthwise_visits(layer.sets)


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
    as there are pixels beside each other, or with a stride of two, two for a pixel that fills the lanes."""
    beside, rest = divmod(config.acc_lanes, layer.channels)
    fills = beside in (2, 4) and beside <= config.word_columns and rest == layer.out_width % beside == 0
    columns, stride = max(beside, 2), layer.stride[1]
    if stride == 2:
        fills = config.has_wide_words and layer.channels == config.acc_lanes
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
def has_pairs(config: Config, layer: ConvLayer) -> bool:
    """Whether a read can have the input of two pixels, and the layer takes fewer cycles if it does."""
    if layer.mode != "conv" or layer.terms > 1 or config.pixel_lanes == 1 or config.stripe == 1:
        return False
    near = layer.stride[1] * layer.channels < PAIR_STEPS
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
    added = bool(_accumulates(layer, in_channels))

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
        config, kh=kh, kw=kw, sets=layer.sets, slide=layer.slide, multiplier=layer.group[1], columns=layer.columns
    )
    return depthwise_durations(machine, height=height, width=width, stripe=stripe, widths=widths, accumulate=accumulate)


class _Steps(TypedDict):
    """What an instruction's steps depend on."""

    taps: int
    kc: int
    group: int
    matrix_rows: int
    pairs: bool


def _steps(config: Config, layer: ConvLayer, in_channels: int, *, repeated: bool = False) -> _Steps:
    kh, kw = layer.taps
    repeats = layer.repeats if repeated or in_channels < layer.channels else 1
    return {
        "taps": kh * kw * repeats,
        "kc": layer.kc(config, in_channels),
        "group": layer.together(config, in_channels),
        "matrix_rows": matrix_reads(config, transposed=layer.transposed) if layer.mode == "matmul" else 0,
        "pairs": layer.pairs and in_channels == layer.channels,
    }


def _blocks(config: Config, layer: ConvLayer, out_channels: int) -> tuple[int, int]:
    """(blocks of output channels, channels of the last) of an instruction for a tile of so many."""
    grouped = layer.mode == "grouped"
    lanes = config.oc_lanes if grouped else layer.lanes(config)
    channels = layer.group[1] if grouped else out_channels * layer.beside
    blocks = ceil_div(channels, lanes)
    return blocks, channels - (blocks - 1) * lanes
