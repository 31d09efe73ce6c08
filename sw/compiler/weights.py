"""Packs weights, biases and multipliers into the array's weight streams (layout: docs/architecture.md, ARRAY)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.config import Config, ceil_div
from dovetail.sw import graph as ir
from dovetail.sw.compiler.layer import ConvLayer

Bytes = NDArray[np.uint8]


def _grouped(values: NDArray[Any], group: int, lanes: int) -> NDArray[Any]:
    """Channels (first axis) cut into blocks of ``group``, each padded with zeros to ``lanes``."""
    blocks = ceil_div(len(values), group)
    full = np.zeros((blocks * group, *values.shape[1:]), values.dtype)
    full[: len(values)] = values
    padded = np.zeros((blocks, lanes, *values.shape[1:]), values.dtype)
    padded[:, :group] = full.reshape(blocks, group, *values.shape[1:])
    return padded


def _records(node: ir.Conv | ir.Depthwise, group: int, lanes: int, config: Config) -> Bytes:
    """Requantisation records, (blocks, bytes)."""
    requant = node.requant
    axis = (1, 2, 3) if isinstance(node, ir.Conv) else (0, 1)
    total = node.weights.sum(axis, dtype=np.int64)
    fields = np.zeros((len(node.bias), 4), np.int32)
    fields[:, 0] = (node.bias - requant.zero_in * total).astype(np.int32)  # wraps, as the accumulator does
    fields[:, 1] = requant.mult
    fields[:, 2] = requant.shift
    records = _grouped(fields, group, lanes)
    packed = np.zeros((len(records), config.param_rows(lanes) * config.word_bytes), np.uint8)
    packed[:, : 16 * lanes] = records.reshape(len(records), -1).view(np.uint8)
    return packed


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


def pack(
    node: ir.Conv | ir.Depthwise, layer: ConvLayer, config: Config, group: int, slices: list[tuple[int, int]]
) -> Bytes:
    """The weight streams of a layer, one per input-channel slice ``(first, channels)``, back to back.

    Every block holds ``group`` output channels (the last may hold fewer), so any run of blocks is contiguous.
    """
    if isinstance(node, ir.Depthwise):
        taps = np.ascontiguousarray(node.weights.reshape(-1, node.weights.shape[2]).T)[:, :, None]
        lanes = config.dw if layer.mode == "depthwise" else config.oc
        size = config.word_bytes * (1 if layer.mode == "depthwise" else config.weight_rows)
        ic = 1 if layer.mode == "depthwise" else config.ic
        return np.concatenate([_records(node, group, lanes, config), _blocks(taps, group, lanes, ic, size)], 1).ravel()
    records = _records(node, group, config.oc, config)
    size = config.weight_rows * config.word_bytes
    parts = []
    for first, channels in slices:
        weights = node.weights[:, :, :, first : first + channels]
        taps = weights.reshape(len(weights), layer.taps[0] * layer.taps[1], -1)
        parts.append(np.concatenate([records, _blocks(taps, group, config.oc, config.ic, size)], 1).ravel())
    return np.concatenate(parts)
