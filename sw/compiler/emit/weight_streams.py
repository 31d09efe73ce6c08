"""Weight streams of the array: weights, biases and multipliers packed (layout: docs/architecture.md, ARRAY), and which
part of a stream each of a tile's instructions takes.

One instruction does for all channels but where weights exceed int8 (docs/decisions/0011-old-uint8-weights.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.network import ir

Bytes = NDArray[np.uint8]


class Pass(NamedTuple):
    """What one pass adds up: first and number of input channels, and which of the weights' int8 terms; ``loaded``: the
    first and the number of those that are loaded for it, and for passes beside it."""

    first: int
    channels: int
    term: int
    loaded: tuple[int, int]


def _grouped(values: NDArray[Any], group: int, lanes: int) -> NDArray[Any]:
    """Channels (first axis) cut into blocks of ``group``, each padded with zeros to ``lanes``."""
    blocks = ceil_div(len(values), group)
    full = np.zeros((blocks * group, *values.shape[1:]), values.dtype)
    full[: len(values)] = values
    padded = np.zeros((blocks, lanes, *values.shape[1:]), values.dtype)
    padded[:, :group] = full.reshape(blocks, group, *values.shape[1:])
    return padded


def records(bias: NDArray[np.int64], requant: ir.Requant, group: int, lanes: int, config: Config) -> Bytes:
    """Requantisation records (blocks, bytes) of channels, ``group`` in each block of ``lanes``."""
    fields = np.zeros((len(bias), 4), np.int32)
    fields[:, 0] = bias.astype(np.int32)  # wraps, as the accumulator does
    fields[:, 1] = requant.mult
    fields[:, 2] = requant.shift
    grouped = _grouped(fields, group, lanes)
    packed = np.zeros((len(grouped), config.param_rows(lanes) * config.word_bytes), np.uint8)
    packed[:, : 16 * lanes] = grouped.reshape(len(grouped), -1).view(np.uint8)
    return packed


def _part(requant: ir.Requant, channels: slice) -> ir.Requant:
    """The multipliers of some channels."""
    if requant.mult.size == 1:
        return requant
    return replace(requant, mult=requant.mult[channels], shift=requant.shift[channels])


def _blocks(taps: NDArray[np.int8], group: int, lanes: int, ic: int, block_bytes: int) -> Bytes:
    """Weight blocks (output blocks, bytes) of (channels, taps, input bytes) weights."""
    kc = ceil_div(taps.shape[2], ic)
    full = np.zeros((*taps.shape[:2], kc * ic), np.int8)
    full[:, :, : taps.shape[2]] = taps
    padded = _grouped(full, group, lanes)
    blocks = len(padded)
    order = padded.reshape(blocks, lanes, taps.shape[1], kc, ic).transpose(0, 2, 3, 4, 1)
    packed = np.zeros((blocks, taps.shape[1] * kc, block_bytes), np.uint8)
    packed[:, :, : ic * lanes] = order.reshape(blocks, -1, ic * lanes).view(np.uint8)
    return packed.reshape(blocks, -1)


def _depthwise_blocks(taps: NDArray[np.int8], layer: ConvLayer, group: int, config: Config) -> Bytes:
    """Weight blocks (output blocks, bytes) of a depthwise kernel [kh, kw, C, M]: taps on the input lanes, the last on
    the first."""
    kh, kw = taps.shape[:2]
    across, lanes, rows = min(config.ic_lanes, kw), config.oc_lanes, layer.kernel_rows(kh)
    together, steps = across * layer.rows, len(rows) // layer.rows
    full = np.zeros((len(rows), round_up(kw, across), layer.out_channels), np.int8)
    for number, row in enumerate(rows):
        if row is not None:
            full[number, :kw] = taps[row].reshape(kw, -1)
    blocks = _grouped(np.tile(full, layer.beside).transpose(2, 0, 1), group, lanes * layer.sets)
    order = blocks.reshape(len(blocks), layer.sets, lanes, steps, -1, together)[..., ::-1].transpose(0, 3, 4, 1, 5, 2)
    size = config.depthwise_rows(together) * config.word_bytes
    packed = np.zeros((*order.shape[:4], size), np.uint8)
    packed[..., : together * lanes] = order.reshape(*order.shape[:4], -1).view(np.uint8)
    return packed.reshape(len(blocks), -1)


def _taps(node: ir.Conv | ir.Depthwise, layer: ConvLayer, weights: NDArray[np.int8]) -> NDArray[np.int8]:
    """Weights as (channels, taps, input bytes)."""
    if isinstance(node, ir.Depthwise):
        return np.ascontiguousarray(weights.reshape(-1, weights.shape[2]).T)[:, :, None]
    return weights.reshape(len(weights), layer.taps[0] * layer.taps[1], -1)


def _joined(head: Bytes, plain: Bytes, repeated: Bytes, which: Sequence[bool]) -> Bytes:
    """The blocks of a stream, each with its records and its weights, ``plain`` or ``repeated``."""
    if not any(which):
        return np.concatenate([head, plain], 1).ravel()
    return np.concatenate(
        [part for n, twice in enumerate(which) for part in (head[n], (repeated if twice else plain)[n])]
    )


def pack(node: ir.Conv | ir.Depthwise, layer: ConvLayer, config: Config, block: int, passes: Sequence[Pass]) -> Bytes:
    """The weight streams of a layer, one per pass or per group, back to back.

    Every block holds ``block`` output channels (the last may hold fewer), so any run of blocks is contiguous.
    """
    terms = [node.weights, *(() if node.rest is None else node.rest)]
    # The input zero point goes into the bias.
    sums = sum(_taps(node, layer, term).sum((1, 2), dtype=np.int64) for term in terms)
    bias = node.bias - node.requant.zero_in * sums
    parts = []
    if layer.mode == "depthwise":
        # Columns of a word have the same channels.
        requant, beside, block = node.requant, layer.beside, block * layer.beside
        if beside > 1 and requant.mult.size > 1:
            requant = replace(requant, mult=np.tile(requant.mult, beside), shift=np.tile(requant.shift, beside))
        head = records(np.tile(bias, beside), requant, block, config.oc_lanes * layer.sets, config)
        row, rows, column, columns = layer.spot
        whole = terms[0].swapaxes(0, 1) if layer.down else terms[0]
        spots = [term[row : row + rows, column : column + columns] for term in terms[1:]]
        plain, *more = (_depthwise_blocks(taps, layer, block, config) for taps in (whole, *spots))
        twice = np.concatenate([plain, *(part for rest in more for part in (head, rest))], 1)
        return _joined(head, plain, twice, layer.repeated(block // beside, layer.channels))
    size = config.weight_rows * config.word_bytes
    if layer.mode == "grouped":
        taps, step = _taps(node, layer, node.weights), layer.group[1]
        for first in range(0, layer.out_channels, step):
            own = slice(first, first + step)
            head = records(bias[own], _part(node.requant, own), config.oc_lanes, config.oc_lanes, config)
            parts.append(
                np.concatenate(
                    [head, _blocks(taps[own], config.oc_lanes, config.oc_lanes, config.ic_lanes, size)], 1
                ).ravel()
            )
        return np.concatenate(parts)
    head = records(bias, node.requant, block, config.oc_lanes, config)
    for first, channels, term, _ in passes:
        some = [_taps(node, layer, one[:, :, :, first : first + channels]) for one in terms]
        repeated = np.stack(some, 2).reshape(*some[0].shape[:1], -1, *some[0].shape[2:])
        plain, twice = (_blocks(taps, block, config.oc_lanes, config.ic_lanes, size) for taps in (some[term], repeated))
        parts.append(_joined(head, plain, twice, layer.repeated(block, channels)))
    return np.concatenate(parts)


class Run(NamedTuple):
    """What one instruction computes of a tile, or one per group.

    ``channels`` outputs from the tile's ``first`` on; ``stream`` bytes of its weight stream from ``at`` on; whether
    taps are ``repeated``; whether it ``adds`` to int32 sums, and whether it leaves ``int32`` sums.
    """

    first: int
    channels: int
    at: int
    stream: int
    repeated: bool
    adds: bool
    int32: bool


def starts_of(config: Config, layer: ConvLayer, block: int, in_channels: int) -> list[int]:
    """Where the blocks of a pass's weight stream begin, and its end."""
    sizes = [layer.block_bytes(config, in_channels, repeated=more) for more in (False, True)]
    return list(accumulate((sizes[more] for more in layer.repeated(block, in_channels)), initial=0))


def runs_of(
    config: Config,
    layer: ConvLayer,
    block: int,
    starts: list[int],
    tile: tuple[int, int],
    in_channels: int,
    adds: bool,
    int32: bool,
) -> tuple[int, list[Run]]:
    """(bytes of the weight stream, instructions) of a tile of (first, number of) output channels, ``block`` of them in
    each block of the pass's stream, which ``starts`` there.

    Of a depthwise layer the blocks that take several instructions come first, one by one: their sums lie where results
    of the blocks behind them will.
    """
    channel, count = tile
    begin, end = channel // block, ceil_div(channel + count, block)
    if layer.repeats == 1:
        size = starts[end] - starts[begin]
        return size, [Run(0, channel + count - begin * block, 0, size, False, adds, int32)]
    repeated = layer.repeated(block, in_channels)
    ends = [n for n in range(begin + 1, end) if repeated[n] != repeated[n - 1] or (layer.apart and repeated[n])]
    several, others = list[Run](), list[Run]()
    for first, last in zip((begin, *ends), (*ends, end), strict=True):
        at, size = starts[first] - starts[begin], starts[last] - starts[first]
        channels = min(last * block, channel + count) - first * block
        run = Run((first - begin) * block, channels, at, size, repeated[first], adds, int32)
        if layer.apart and run.repeated:
            several += _several(run, layer.block_bytes(config, in_channels), layer.repeats)
        else:
            others.append(run)
    return starts[end] - starts[begin], several + others


def _several(run: Run, first: int, count: int) -> list[Run]:
    """So many instructions in place of one that each add to the sums before, but for the ``first`` bytes' one."""
    size = (run.stream - first) // (count - 1)
    more = [run._replace(at=run.at + first + n * size, stream=size, adds=True, int32=True) for n in range(count - 1)]
    return [run._replace(stream=first, int32=True), *more[:-1], more[-1]._replace(int32=False)]
