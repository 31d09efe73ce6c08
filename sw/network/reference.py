"""The graph interpreter: exact integers, one plain function per node.

It is the functional oracle of the compiler and the executor of nodes that stay on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.isa.numerics.average import average
from dovetail.isa.numerics.norm import norm, norm16, norm16_wide
from dovetail.isa.numerics.requantise import requantise, requantise_wide
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import softmax_onnx, softmax_tflite
from dovetail.sw.errors import NetworkError
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array

Int8 = NDArray[np.int8]
Int64 = NDArray[np.int64]

_EXACT_FLOAT32 = 1 << 24
"""float32 sums of integers are exact while they stay below this."""


def run(graph: ir.Graph, inputs: Any) -> dict[str, Array]:
    """The network's outputs as its file declares them, for inputs as its file declares them, from the initial state.

    `inputs` is a mapping by input name, a sequence in input order, or one array.
    """
    return graph.unbind(evaluate(graph, graph.initial_state() | graph.bind(inputs), keep_all=True))


def evaluate(graph: ir.Graph, inputs: Mapping[str, Array], keep_all: bool = False) -> dict[str, Array]:
    """Run the graph on tensors.

    Parameters
    ----------
    inputs: inputs and states by tensor name, in the graph's layout (`Graph.bind` makes inputs from the user's arrays).
    keep_all: return every tensor, not only the network's outputs.

    Returns
    -------
    Tensors by tensor name.
    """
    values = dict(inputs)
    for name in graph.given:
        if name not in values:
            raise NetworkError(f"input tensor {name!r} must be given, not missing")
    wanted = set(graph.wanted)
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    for i, node in enumerate(graph.nodes):
        results = execute(graph, node, [values[name] for name in node.inputs])
        values.update(zip(node.outputs, results, strict=True))
        if not keep_all:
            for name in node.inputs:
                if last[name] == i and name not in wanted:
                    values.pop(name, None)
    return values if keep_all else {name: values[name] for name in wanted}


def execute(graph: ir.Graph, node: ir.Node, inputs: list[Array]) -> list[Array]:
    """Outputs of one node for its input tensors."""
    if isinstance(node, ir.Host):
        results = node.payload.run(inputs)
        tensors = [graph.tensors[name] for name in node.outputs]
        for value, tensor in zip(results, tensors, strict=True):
            if value.size != tensor.size:
                raise NetworkError(f"{node.name!r}: must make {tensor.shape} as the file says, not {value.shape}")
        return [np.asarray(value).reshape(t.shape) for value, t in zip(results, tensors, strict=True)]
    out = graph.tensors[node.outputs[0]]
    pixels: Array = np.empty(0)
    if isinstance(node, _SPATIAL):
        pixels = inputs[0].reshape(graph.tensors[node.inputs[0]].nhwc)
    result: Array
    match node:
        case ir.Conv() if out.dtype == "int32":
            result = conv_accumulators(node, pixels)
        case ir.Conv():
            result = conv(node, pixels)
        case ir.Depthwise():
            result = depthwise(node, pixels)
        case ir.MatMul() if out.dtype == "int32":
            result = matmul_accumulators(node, inputs[0], inputs[1])
        case ir.MatMul():
            result = matmul(node, inputs[0], inputs[1])
        case ir.Elementwise():
            result = elementwise(node, inputs[0], inputs[1])
        case ir.Rescale():
            result = rescale(node, inputs[0])
        case ir.Table():
            result = node.values[inputs[0].astype(np.int16) + 128]
        case ir.Softmax():
            result = softmax(node, inputs[0])
        case ir.Norm():
            result = normed(node, inputs[0])
        case ir.AvgPool():
            result = average_pool(node, pixels)
        case ir.Mean():
            result = mean(node, pixels)
        case ir.MaxPool():
            result = max_pool(node, pixels)
        case ir.Pad():
            result = _padded(pixels, node.pads, node.value)
        case ir.Im2col():
            padded = _padded(pixels, node.pads, node.value)
            result = np.concatenate(_taps(padded, node.kernel, node.stride, node.dilation), axis=-1)
        case ir.Move():
            result = move(node, inputs, out.size)
        case ir.Update():
            result = update(graph, node, inputs)
        case ir.Reshape():
            result = inputs[0]
        case ir.Constant():
            result = node.value
        case ir.Pick():
            result = pick(node, inputs[0])
    return [np.asarray(result).astype(out.dtype).reshape(out.shape)]


_SPATIAL = ir.Conv | ir.Depthwise | ir.AvgPool | ir.Mean | ir.MaxPool | ir.Pad | ir.Im2col


def rescaled(acc: Int64, requant: ir.Requant) -> Int8:
    """int32 accumulators [..., C] to int8."""
    r = requant
    return requantise(acc, r.mult, r.shift, r.rounding, r.zero_out, r.lo, r.hi)


def _padded(pixels: Array, pads: ir.Pads, fill: int) -> Array:
    top, left, bottom, right = pads
    if not any(pads):
        return pixels
    return np.pad(pixels, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)


def _taps(pixels: Array, kernel: ir.Pair, stride: ir.Pair, dilation: ir.Pair = (1, 1)) -> list[Array]:
    """For each (ky, kx), in order, the strided view [OH, OW, C] that tap sees."""
    _, height, width, _ = pixels.shape
    rows = ir.window_size(height, kernel[0], stride[0], dilation[0], 0, 0)
    cols = ir.window_size(width, kernel[1], stride[1], dilation[1], 0, 0)
    views = []
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            y, x = ky * dilation[0], kx * dilation[1]
            views.append(
                pixels[
                    0,
                    y : y + (rows - 1) * stride[0] + 1 : stride[0],
                    x : x + (cols - 1) * stride[1] + 1 : stride[1],
                ]
            )
    return views


def conv_accumulators(node: ir.Conv, pixels: Int8) -> Int64:
    """int32 accumulators [OH, OW, OC] of a convolution, bias in."""
    channels, depth = len(node.weights) // node.groups, node.weights.shape[3]
    zero, whole = node.requant.zero_in, node.whole_weights
    padded = _padded(pixels, node.pads, zero).astype(np.int16) - np.int16(zero)
    parts = []
    for group in range(node.groups):
        matrix = whole[group * channels : (group + 1) * channels].reshape(channels, -1).astype(np.int64)
        bound = 255 * int(np.abs(matrix).sum(axis=1).max(initial=0))
        dtype = "float32" if bound < _EXACT_FLOAT32 else "float64"
        centred = padded[..., group * depth : (group + 1) * depth].astype(dtype)
        columns = np.concatenate(_taps(centred, node.kernel, node.stride, node.dilation), axis=-1)
        parts.append((columns @ matrix.T.astype(dtype)).astype(np.int64))
    return _wrap(np.concatenate(parts, axis=-1) + node.bias.astype(np.int64))


def depthwise_accumulators(node: ir.Depthwise, pixels: Int8) -> Int64:
    """int32 accumulators [OH, OW, C * M] of a depthwise convolution, bias in."""
    centred = _padded(pixels, node.pads, node.requant.zero_in).astype(np.int32) - np.int32(node.requant.zero_in)
    centred = np.repeat(centred, node.weights.shape[2] // pixels.shape[3], axis=3)
    taps = node.whole_weights.reshape(-1, node.weights.shape[-1]).astype(np.int32)
    views = _taps(centred, node.kernel, node.stride, node.dilation)
    sums = np.zeros(views[0].shape, np.int32)
    for view, tap in zip(views, taps, strict=True):
        sums += view * tap
    return _wrap(sums.astype(np.int64) + node.bias.astype(np.int64))


def _wrap(acc: Int64) -> Int64:
    """The value a 32-bit accumulator holds."""
    return acc.astype(np.int32).astype(np.int64)


def conv(node: ir.Conv, pixels: Int8) -> Int8:
    """(1, H, W, IC) -> [OH, OW, OC]"""
    return rescaled(conv_accumulators(node, pixels), node.requant)


def depthwise(node: ir.Depthwise, pixels: Int8) -> Int8:
    """(1, H, W, C) -> [OH, OW, C]"""
    return rescaled(depthwise_accumulators(node, pixels), node.requant)


def matmul_accumulators(node: ir.MatMul, a: Int8, b: Int8) -> Int64:
    """int32 accumulators, [..., M, K] x [..., K, N] -> [..., M, N]"""
    left = a.astype(np.float64) - node.requant.zero_in
    right = b.astype(np.float64) - node.zero_b
    sums = left @ (np.swapaxes(right, -1, -2) if node.transposed else right)  # exact: far below 2^53
    return _wrap(sums.astype(np.int64))


def matmul(node: ir.MatMul, a: Int8, b: Int8) -> Int8:
    """[..., M, K] x [..., K, N] -> [..., M, N]"""
    return rescaled(matmul_accumulators(node, a, b), node.requant)


def elementwise(node: ir.Elementwise, a: Array, b: Array) -> Array:
    """Two tensors to one, as NumPy broadcasts them."""
    left, right = np.broadcast_arrays(a, b)
    return INSTRUCTIONS[node.instruction].compute(left, right, node.params)


def rescale(node: ir.Rescale, values: Array) -> Array:
    """Element by element."""
    total = values.astype(np.int64) - node.requant.zero_in
    if node.own == Op.WIDEN:
        return requantise_wide(total, node.requant.mult, node.requant.shift, node.requant.rounding)
    above = rescaled(np.abs(total) if node.absolute else total, node.requant)
    if node.below is None:
        return above
    r = node.requant
    below = requantise(total, *node.below, r.rounding, r.zero_out, r.lo, r.hi)
    return np.where(total < 0, below, above)


def normed(node: ir.Norm, rows: Array) -> Array:
    """Row by row, [..., rows, n]."""
    if node.instruction == Op.NORM16_WIDE:
        return norm16_wide(rows, node.epsilon, node.records, rms=node.rms)
    if node.instruction == Op.NORM16:
        return norm16(rows, node.epsilon, node.records, node.zero_out, rms=node.rms)
    return norm(rows, node.zero_in, node.epsilon, node.records, node.zero_out, rms=node.rms)


def softmax(node: ir.Softmax, values: Int8) -> Int8:
    """Row by row, [..., rows, n]."""
    counts: Array | bool = True
    if node.valid is not None:
        first, step = node.valid
        counts = np.arange(values.shape[-1]) < first + step * np.arange(values.shape[-2])[:, None]
    if node.form == Rounding.TFLITE:
        return softmax_tflite(values, node.exponentials.astype(np.int32), node.zero_out, counts)
    return softmax_onnx(values, node.exponentials.astype(np.float32), node.levels, node.zero_out, counts)


def move(node: ir.Move, inputs: list[Array], size: int) -> Array:
    """The flat result of all copies."""
    result: Array = np.empty(size, inputs[0].dtype)
    for copy, value in zip(node.copies, inputs, strict=True):
        source = np.ascontiguousarray(value).ravel()
        steps = [[step * result.itemsize for step in steps] for steps in (copy.source_steps, copy.target_steps)]
        reading = np.lib.stride_tricks.as_strided(source[copy.source :], copy.sizes, steps[0])
        writing = np.lib.stride_tricks.as_strided(result[copy.target :], copy.sizes, steps[1])
        writing[...] = reading
    return result


def update(graph: ir.Graph, node: ir.Update, inputs: list[Array]) -> Array:
    """The state with its rows replaced. Raises NetworkError for rows that would lie outside."""
    state, rows, place = inputs
    first, places = int(place.item()), node.places(graph)
    if not 0 <= first < places:
        raise NetworkError(f"{node.inputs[2]} must be 0..{places - 1}, not {first}")
    result = state.reshape(graph.tensors[node.inputs[0]].shape).copy()
    where = [slice(None)] * result.ndim
    where[node.axis] = slice(first, first + rows.shape[node.axis])
    result[tuple(where)] = rows
    return result


def pick(node: ir.Pick, number: Array) -> Int8:
    """The row of this number. Raises NetworkError where there is none."""
    row = int(number.item())
    if not 0 <= row < len(node.table):
        raise NetworkError(f"{node.inputs[0]} must be 0..{len(node.table) - 1}, not {row}")
    found: Int8 = node.table[row]
    return found


def average_pool(node: ir.AvgPool, pixels: Int8) -> Int8:
    """(1, H, W, C) -> [OH, OW, C]"""
    fill, counts = (0, 0) if node.counted is None else (node.counted, 1)
    values = _padded(pixels.astype(np.int32), node.pads, fill)
    valid = _padded(np.ones((*pixels.shape[:3], 1), np.int32), node.pads, counts)
    total = np.sum(_taps(values, node.kernel, node.stride), axis=0, dtype=np.int64)
    count = np.sum(_taps(valid, node.kernel, node.stride), axis=0, dtype=np.int64)
    above = total - node.origin * count
    result = np.asarray(average(above, np.broadcast_to(count, total.shape), node.rounding))
    return np.clip(result + node.origin, node.lo, node.hi).astype(np.int8)


def mean(node: ir.Mean, pixels: Int8) -> Int8:
    """(1, H, W, C) -> [C]"""
    total = (pixels.astype(np.int64) - node.requant.zero_in).sum(axis=(0, 1, 2))
    return rescaled(total, node.requant)


def max_pool(node: ir.MaxPool, pixels: Int8) -> Int8:
    """(1, H, W, C) -> [OH, OW, C]; padding never wins."""
    views = _taps(_padded(pixels, node.pads, -128), node.kernel, node.stride)
    result: Int8 = np.clip(np.max(views, axis=0), node.lo, node.hi).astype(np.int8)
    return result
