"""A layer's schedule and the SRAM it may use: sizes of tiles, order of loops, places of buffers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dovetail.isa.config import Config, ceil_div, round_up
from dovetail.isa.timing.array import array_duration, matrix_reads
from dovetail.sw.compiler.layer import ConvLayer

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
        """What `dataclasses.asdict` wrote, also by way of JSON."""
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
        return cls(**values)


@dataclass(frozen=True)
class Space:
    """The SRAM that a layer's schedule may use.

    ``free``: runs of whole banks, as (first bank, banks). ``input_at``, ``output_at``: SRAM byte address of the whole
    input, or output, which needs no buffers then; None where it comes from, or goes to, system memory tile by tile.
    Residents lie in banks that are not free.
    """

    free: tuple[tuple[int, int], ...]
    input_at: int | None = None
    output_at: int | None = None

    @classmethod
    def whole(cls, config: Config) -> "Space":
        """All of SRAM, nothing in it."""
        return cls(((0, config.n_banks),))


@dataclass(frozen=True)
class Buffers:
    """Bytes of one buffer of each operand."""

    input: int
    weights: int
    output: int


def buffer_bytes(
    config: Config,
    layer: ConvLayer,
    rows: int,
    out_channels: int,
    in_channels: int,
    space: Space,
    columns: int = 0,
) -> Buffers:
    """SRAM that a tile needs besides residents; ``columns``: 0 for all. Sums of several passes are held as
    int32."""
    height = (rows - 1) * layer.stride[0] + (layer.kernel[0] - 1) * layer.dilation[0] + 1
    width = (columns - 1) * layer.stride[1] + (layer.kernel[1] - 1) * layer.dilation[1] + 1 if columns else layer.width
    channels = layer.inputs_of(out_channels, in_channels)
    item = 4 if _accumulates(layer, in_channels) else 1
    return Buffers(
        0 if space.input_at is not None else min(height, layer.height) * min(width, layer.width) * channels,
        layer.weight_bytes(config, out_channels, in_channels),
        0 if space.output_at is not None else rows * (columns or layer.out_width) * out_channels * item,
    )


def _accumulates(layer: ConvLayer, in_channels: int) -> bool:
    """Whether there are passes that add to the sums of others."""
    return layer.terms > 1 or (not layer.separable and in_channels < layer.channels)


def place(config: Config, sizes: Buffers, copies: Copies, space: Space) -> tuple[Places, bool] | None:
    """Addresses of (input, weights, output) buffers in banks of their own, or None when they do not fit.

    Where three groups of banks do not fit, output shares the input's banks (the second value says so): more fits, and
    the ports take turns. An operand that is resident has no buffers.
    """
    bank, word = config.bank_bytes, config.word_bytes
    sides = (sizes.input, sizes.weights, sizes.output)
    padded = [round_up(size, word) for size in sides]
    need = [size * count for size, count in zip(padded, copies, strict=True)]
    shareable = space.input_at is None and space.output_at is None
    for shared in (False, True) if shareable else (False,):
        groups = [need[0] + need[2], need[1], 0] if shared else need
        firsts = _banks(space.free, [ceil_div(size, bank) for size in groups])
        if firsts is None:
            continue
        starts = [first * bank for first in firsts]
        if shared:
            starts[2] = starts[0] + need[0]
        input_at, weights_at, output_at = (
            tuple(start + i * size for i in range(count))
            for start, size, count in zip(starts, padded, copies, strict=True)
        )
        return (input_at, weights_at, output_at), shared
    return None


def _banks(free: tuple[tuple[int, int], ...], groups: list[int]) -> list[int] | None:
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
            return firsts
    return None


def equal_stripe(config: Config, pixels: int) -> int:
    """Pixels per stripe: as few stripes as the accumulators allow, equally long."""
    return ceil_div(pixels, ceil_div(pixels, config.stripe))


@lru_cache(maxsize=65536)
def stripe_of(
    config: Config, layer: ConvLayer, pixels: int, out_channels: int, in_channels: int, best: bool = False
) -> int:
    """Pixels per stripe of an instruction; ``best``: of all lengths the one that takes the fewest cycles."""
    equal = equal_stripe(config, pixels)
    if not best:
        return equal
    added = _accumulates(layer, in_channels)

    def cycles(stripe: int) -> int:
        return array_cycles(config, layer, pixels, out_channels, in_channels, stripe, accumulate=added)

    lengths: list[int] = [equal, *range(min(pixels, config.stripe), 0, -1)]
    return min(lengths, key=cycles)


def array_cycles(
    config: Config,
    layer: ConvLayer,
    pixels: int,
    out_channels: int,
    in_channels: int,
    stripe: int,
    *,
    accumulate: bool = False,
) -> int:
    """Cycles of one instruction: ``pixels`` of ``out_channels`` (one group of them), ``in_channels`` in this pass."""
    kh, kw = layer.taps
    grouped = layer.mode == "grouped"
    lanes = config.oc if grouped else layer.lanes(config)
    channels = layer.group[1] if grouped else out_channels
    blocks = ceil_div(channels, lanes)
    return array_duration(
        config,
        depthwise=layer.mode == "depthwise",
        taps=kh * kw,
        kc=layer.kc(config, in_channels),
        pixels=pixels,
        stripe=stripe,
        blocks=blocks,
        last=channels - (blocks - 1) * lanes,
        accumulate=accumulate,
        multiplier=layer.group[1] if layer.mode == "depthwise" else 1,
        matrix_rows=matrix_reads(config, transposed=layer.transposed) if layer.mode == "matmul" else 0,
    )
