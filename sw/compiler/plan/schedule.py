"""A layer's schedule and the SRAM it may use: sizes of tiles, order of loops, places of buffers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import Count, ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.arena import Runs
from dovetail.sw.compiler.layer import ConvLayer

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
    takes the fewest cycles, else as long as accumulators allow; ``columns`` of the output tile if not all;
    ``passes_outer``: all tiles take a pass before any takes the next one, so that each has a buffer for its sums.
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
    passes_outer: bool = False

    def __str__(self) -> str:
        order = "passes outer" if self.passes_outer else "rows outer" if self.rows_outer else "channels outer"
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

    ``free``: runs of whole banks, as (first bank, banks). ``input_at``, ``output_at``, ``matrix_at``: SRAM byte address
    of the whole input, output, or matrix of a product, which needs no buffers then; None where it comes from, or goes
    to, system memory tile by tile. Residents lie in banks that are not free.
    """

    free: Runs
    input_at: int | None = None
    output_at: int | None = None
    matrix_at: int | None = None

    @classmethod
    def whole(cls, config: Config) -> "Space":
        """All of SRAM, nothing in it."""
        return cls(((0, config.banks),))

    @property
    def anywhere(self) -> "Space":
        """The same residents, without a place."""
        places = (None if at is None else 0 for at in (self.input_at, self.output_at, self.matrix_at))
        return Space((), *places)


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
    pixel = np.where(accumulates(layer, in_channels), 4 * out_channels, layer.pixel_bytes(config, out_channels))
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


def accumulates(layer: ConvLayer, in_channels: Number) -> bool | Flags:
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
