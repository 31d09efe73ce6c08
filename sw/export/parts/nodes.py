"""Writers of nodes: QDQ for what ONNX Runtime has an integer kernel, operators on bytes and tables for the rest.

Operators of an ONNX file are written as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper, version_converter

from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.rounding import INT16_MAX, INT16_MIN, Rounding
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.export.parts.exactness import rescaled, runtime_difference, scales_of
from dovetail.sw.export.parts.part import OPSET, Part
from dovetail.sw.host import kernels
from dovetail.sw.network import ir, reference
from dovetail.sw.network.elementwise import BYTES, LEFT, PAIR_OPERATORS, RIGHT
from dovetail.sw.network.layout import as_unsigned


def _convolution(part: Part, node: ir.Conv | ir.Depthwise) -> None:
    source, result, r = node.inputs[0], node.outputs[0], node.requant
    if isinstance(node, ir.Conv) and not part.is_byte(result):
        before, after = (part.graph.tensors[name].shape for name in (source, result))
        rows = part.reshaped(part.plain(source), before, (-1, before[-1]))
        matrix = part.constant(np.ascontiguousarray(node.weights[:, 0, 0].T), f"{node.name}/weights")
        sums = _sums(part, rows, r.zero_in, matrix, np.int8(0), f"{node.name}/sums")
        biased = part.op("Add", [sums, part.constant(node.bias, f"{node.name}/bias")], f"{node.name}/biased")
        part.values[result] = part.reshaped(biased, (-1, after[-1]), after)
        return
    if isinstance(node, ir.Depthwise):
        weights = node.whole_weights.transpose(2, 0, 1)[:, None]
        groups = part.graph.tensors[source].nhwc[3]
    else:
        weights, groups = node.whole_weights.transpose(0, 3, 1, 2), node.groups
    scales = scales_of(r, part.scale(source), None, part.scale(result), len(weights))
    part.exact &= scales.exact
    # Weights beyond int8 come from uint8 ones with a zero point.
    zero = np.int8(0) if node.rest is None else np.uint8(max(-int(weights.min()), 0))
    integers = part.constant(np.ascontiguousarray((weights + zero).astype(zero.dtype)), f"{node.name}/weights")
    steps = part.constant(scales.weights, f"{node.name}/weights/scale")
    zeros = part.constant(np.full(len(weights), zero), f"{node.name}/weights/zero")
    bias = part.constant(node.bias, f"{node.name}/bias")
    bias_steps = part.constant(scales.operand * scales.weights, f"{node.name}/bias/scale")
    bias_zeros = part.constant(np.zeros(len(weights), np.int32), f"{node.name}/bias/zero")
    operands = [
        part.real(part.image(source), scales.operand, r.zero_in),
        part.op("DequantizeLinear", [integers, steps, zeros], f"{integers}/real", axis=0),
        part.op("DequantizeLinear", [bias, bias_steps, bias_zeros], f"{bias}/real", axis=0),
    ]
    sums = part.op(
        "Conv",
        operands,
        f"{node.name}/sums",
        kernel_shape=list(node.kernel),
        strides=list(node.stride),
        dilations=list(node.dilation),
        pads=list(node.pads),
        group=groups,
    )
    part.images[result] = part.quantised(sums, result, scales.result, r.zero_out, (r.lo, r.hi))


def _product(part: Part, node: ir.MatMul) -> None:
    a, b, result, r = *node.inputs, node.outputs[0], node.requant
    right = part.plain(b)
    if node.transposed:
        rank = len(part.graph.tensors[b].shape)
        right = part.transposed(right, (*range(rank - 2), rank - 1, rank - 2))
    if not part.is_byte(result):
        part.values[result] = _sums(part, part.plain(a), r.zero_in, right, np.uint8(node.zero_b + 128), result)
        return
    scales = scales_of(r, part.scale(b), part.scale(a), part.scale(result))
    part.exact &= scales.exact
    reals = [
        part.real(part.plain(a), scales.weights[0], r.zero_in),
        part.real(right, scales.operand, node.zero_b),
    ]
    sums = part.op("MatMul", reals, f"{node.name}/sums")
    part.values[result] = part.quantised(sums, result, scales.result, r.zero_out, (r.lo, r.hi))


def _sums(part: Part, a: str, zero_a: int, b: str, zero_b: np.int8 | np.uint8, name: str) -> str:
    """int32 sums of a product of two matrices; ``zero_a`` as in the graph, ``zero_b`` as in the file."""
    zeros = [part.constant(np.uint8(zero_a + 128), f"{name}/zero_a"), part.constant(zero_b, f"{name}/zero_b")]
    return part.op("MatMulInteger", [a, b, *zeros], name)


def _elementwise(part: Part, node: ir.Elementwise) -> None:
    params, result = node.params, node.outputs[0]
    values = [part.plain(name) for name in node.inputs]
    if node.own == Op.E32_ADD:
        part.values[result] = part.op("Add", values, result)
        return
    if node.own is not None:
        part.values[result] = _pairs(part, values, node)
        return
    kind = PAIR_OPERATORS[params.operation].onnx
    if params.operation in (VectorOperation.MINIMUM, VectorOperation.MAXIMUM):
        sides = [part.lookup(value, levels, f"{result}/{side}") for value, levels, side in zip(
            values, rescaled(params), "ab", strict=True
        )]  # fmt: skip
        part.values[result] = part.op(kind, sides, result)
        return
    scales = [part.scale(name) for name in (*node.inputs, result)]
    subtracts = params.operation == VectorOperation.SUBTRACT
    kind = "Add" if subtracts else kind
    # A sum may have other zero points than its tensors, with which the accelerator rounds as the file's runtime does.
    own = [part.graph.tensors[name].zero_point for name in (*node.inputs, result)]
    choices = [[params.za, params.zb, params.zy], own]
    differences = [runtime_difference(node, kind, scales, zeros) for zeros in choices]
    difference = min(differences)
    if difference > (part.graph.source == "tflite"):
        part.values[result] = _pairs(part, values, node)
        return
    part.exact &= difference == 0
    zeros = choices[differences.index(difference)]
    if subtracts:
        values[1], zeros[1] = part.lookup(values[1], ~BYTES, f"{result}/negated"), ~zeros[1]
    reals = [part.real(value, scale, zero) for value, scale, zero in zip(values, scales, zeros, strict=False)]
    combined = part.op(kind, reals, f"{node.name}/real")
    part.values[result] = part.quantised(combined, result, scales[2], zeros[2], (params.lo, params.hi))


def _pairs(part: Part, values: Sequence[str], node: ir.Elementwise) -> str:
    """The result for every pair of bytes from a table."""
    name = node.outputs[0]
    a, b = (part.op("Cast", [value], f"{name}/index", to=TensorProto.INT32) for value in values)
    row = part.op("Mul", [a, part.constant(np.int32(256), f"{name}/pitch")], f"{name}/row")
    place = part.op("Add", [row, b], f"{name}/place")
    levels = reference.elementwise(node, LEFT, RIGHT)
    return part.op("Gather", [part.constant(as_unsigned(levels), f"{name}/table"), place], name)


def _rescale(part: Part, node: ir.Rescale) -> None:
    if node.own == Op.REQUANT:
        (source,), (result,), r = node.inputs, node.outputs, node.requant
        real = _of_words(part, source, part.constant(part.scale(source), f"{result}/step"), result)
        part.values[result] = part.quantised(real, result, part.scale(result), r.zero_out, (r.lo, r.hi))
        return
    levels = reference.rescale(node, BYTES)
    part.values[node.outputs[0]] = part.lookup(part.plain(node.inputs[0]), levels, node.outputs[0])


def _of_words(part: Part, source: str, steps: str, result: str) -> str:
    """int32 times the steps, in float32."""
    real = part.op("Cast", [part.plain(source)], f"{result}/words", to=TensorProto.FLOAT)
    return part.op("Mul", [real, steps], f"{result}/real")


def _table(part: Part, node: ir.Table) -> None:
    part.values[node.outputs[0]] = part.lookup(part.plain(node.inputs[0]), node.values, node.outputs[0])


def _average(part: Part, node: ir.AvgPool) -> None:
    source, result = node.inputs[0], node.outputs[0]
    tensor = part.graph.tensors[source]
    part.exact &= node.rounding == Rounding.ONNX
    value, pads = part.image(source), node.pads
    if node.counted is not None and any(pads):
        sizes = part.constant(np.array([0, 0, *pads[:2], 0, 0, *pads[2:]], np.int64), f"{result}/pads")
        fill = part.constant(np.uint8(node.counted + 128), f"{result}/fill")
        value, pads = part.op("Pad", [value, sizes, fill], f"{result}/padded"), (0, 0, 0, 0)
    real = part.real(value, part.scale(source), tensor.zero_point)
    pooled = part.op(
        "AveragePool",
        [real],
        f"{node.name}/real",
        kernel_shape=list(node.kernel),
        strides=list(node.stride),
        pads=list(pads),
    )
    clamp = node.lo, node.hi
    part.images[result] = part.quantised(pooled, result, part.scale(source), tensor.zero_point, clamp)


def _mean(part: Part, node: ir.Mean) -> None:
    source, result, r = node.inputs[0], node.outputs[0], node.requant
    _, height, width, channels = part.graph.tensors[source].nhwc
    count = np.float32(height * width)
    scales = scales_of(r, np.float32(1), part.scale(source), part.scale(result) * count)
    part.exact &= scales.exact
    sums = part.real(part.image(source), scales.weights[0], r.zero_in)
    mean = part.op("GlobalAveragePool", [sums], f"{node.name}/real")
    pooled = part.quantised(mean, result, np.float32(scales.result / count), r.zero_out, (r.lo, r.hi))
    part.values[result] = part.reshaped(pooled, (1, channels, 1, 1), part.graph.tensors[result].shape)


def _maximum(part: Part, node: ir.MaxPool) -> None:
    source, result, clamp = node.inputs[0], node.outputs[0], (node.lo, node.hi)
    if node.kernel == (1, 1) and node.stride == (1, 1):
        part.values[result] = part.clamped(part.plain(source), result, clamp)
        return
    sizes = {"kernel_shape": list(node.kernel), "strides": list(node.stride), "pads": list(node.pads)}
    pooled = part.op("MaxPool", [part.image(source)], result, **sizes)
    part.images[result] = part.clamped(pooled, result, clamp)


def _pad(part: Part, node: ir.Pad) -> None:
    top, left, bottom, right = node.pads
    sizes = np.array([0, 0, top, left, 0, 0, bottom, right], np.int64)
    operands = [part.image(node.inputs[0]), part.constant(sizes, f"{node.name}/pads")]
    fill = part.constant(np.uint8(node.value + 128), f"{node.name}/fill")
    part.images[node.outputs[0]] = part.op("Pad", [*operands, fill], node.outputs[0])


def _reshape(part: Part, node: ir.Reshape) -> None:
    source, result = (part.graph.tensors[name] for name in (node.inputs[0], node.outputs[0]))
    part.values[result.name] = part.reshaped(part.plain(source.name), source.shape, result.shape)


WRITERS: Mapping[type, Callable[[Part, Any], None]] = {
    ir.Conv: _convolution,
    ir.Depthwise: _convolution,
    ir.MatMul: _product,
    ir.Elementwise: _elementwise,
    ir.Rescale: _rescale,
    ir.Table: _table,
    ir.AvgPool: _average,
    ir.Mean: _mean,
    ir.MaxPool: _maximum,
    ir.Pad: _pad,
    ir.Reshape: _reshape,
}


def write_move(part: Part, node: ir.Move) -> None:
    """Concatenation along an axis as such, anything else by the position of every byte."""
    result = part.graph.tensors[node.outputs[0]]
    shapes = [part.graph.tensors[name].shape for name in node.inputs]
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    places = [ir.positions(shape) + start for shape, start in zip(shapes, starts, strict=False)]
    order = _moved(node, places, result.size).reshape(result.shape)
    values = [part.plain(name) for name in node.inputs]
    if (axis := _joined_axis(places, order)) is not None:
        part.values[result.name] = part.op("Concat", values, result.name, axis=axis)
        return
    if len(values) == 1 and (turn := _transposition(places[0], order)):
        part.values[result.name] = part.op("Transpose", values, result.name, perm=turn)
        return
    flat = [part.reshaped(value, shape, (-1,)) for value, shape in zip(values, shapes, strict=True)]
    joined = part.op("Concat", flat, f"{result.name}/flat", axis=0) if len(flat) > 1 else flat[0]
    index = part.constant(order, f"{result.name}/order")
    part.values[result.name] = part.op("Gather", [joined, index], result.name)


def _moved(node: ir.Move, places: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    """Which element of all inputs, one after the other, each element of the result is."""
    result = np.empty(size, np.int64)
    for copy, source in zip(node.copies, places, strict=True):
        steps = [tuple(8 * step for step in steps) for steps in (copy.source_steps, copy.target_steps)]
        reading = np.lib.stride_tricks.as_strided(source.ravel()[copy.source :], copy.sizes, steps[0])
        writing = np.lib.stride_tricks.as_strided(result[copy.target :], copy.sizes, steps[1])
        writing[...] = reading
    return result


def _joined_axis(places: Sequence[NDArray[np.int64]], order: NDArray[np.int64]) -> int | None:
    """The axis along which concatenation gives the result."""
    for axis in range(order.ndim):
        rest = {part.shape[:axis] + part.shape[axis + 1 :] for part in places}
        fits = rest == {order.shape[:axis] + order.shape[axis + 1 :]}
        if fits and np.array_equal(np.concatenate(places, axis), order):
            return axis
    return None


def _transposition(before: NDArray[np.int64], after: NDArray[np.int64]) -> list[int]:
    """The permutation of axes that makes one of the other; empty if there is none."""
    steps = [stride // before.itemsize for stride in before.strides]
    perm: list[int] = []
    for axis, size in enumerate(after.shape):
        index = [0] * after.ndim
        index[axis] = 1
        step = int(after[tuple(index)]) if size > 1 else -1
        options = [k for k in range(before.ndim) if before.shape[k] == size and k not in perm]
        perm.append(next((k for k in options if size == 1 or steps[k] == step), -1))
    complete = sorted(perm) == list(range(before.ndim))
    return perm if complete and np.array_equal(before.transpose(perm), after) else []


def write_host(part: Part, node: ir.Host) -> None:
    """Append a node of the host. Raises NetworkError where it has no form in ONNX."""
    payload, source, result = node.payload, node.inputs[0] if node.inputs else "", node.outputs[0]
    match payload:
        case kernels.Quantize(wide=True):
            steps = part.op(
                "Div", [part.plain(source), part.constant(payload.scale, f"{result}/step")], f"{result}/steps"
            )
            bounds = [part.constant(np.float32(end), f"{result}/{end}") for end in (INT16_MIN, INT16_MAX)]
            near = part.op("Clip", [part.op("Round", [steps], f"{result}/whole"), *bounds], f"{result}/near")
            value = part.op("Cast", [near], result, to=TensorProto.INT32)
            part.values[result] = _shaped(part, value, source, result)
        case kernels.Quantize():
            part.exact &= payload.ties_even
            value = part.plain(source)
            quantised = part.quantised(value, result, payload.scale, payload.zero_point, (-128, 127))
            part.values[result] = _shaped(part, quantised, source, result)
        case kernels.Dequantize():
            real = part.real(part.plain(source), payload.scale, payload.zero_point)
            part.values[result] = _shaped(part, real, source, result)
        case kernels.DequantizeSums():
            scaled = _of_words(part, source, part.constant(payload.steps, f"{result}/steps"), result)
            part.values[result] = _shaped(part, scaled, source, result)
        case kernels.Around():
            zero = part.op("Cast", [part.plain(node.inputs[1])], f"{result}/zero", to=TensorProto.INT32)
            shift = part.op("Mul", [zero, part.constant(payload.totals, f"{result}/totals")], f"{result}/shift")
            part.values[result] = part.op("Sub", [part.plain(source), shift], result)
        case kernels.Permute():
            outside = part.outside(part.plain(source), part.graph.tensors[source].shape, payload.before)
            value = part.inside(outside, payload.after)
            part.values[result] = part.reshaped(value, payload.after.inner, part.graph.tensors[result].shape)
        case kernels.OnnxOp():
            _file_node(part, node, payload)
        case _:
            raise NetworkError(f"{node.name!r}: {node.op} has no form in ONNX")


def _shaped(part: Part, value: str, source: str, result: str) -> str:
    return part.reshaped(value, part.graph.tensors[source].shape, part.graph.tensors[result].shape)


def _file_node(part: Part, node: ir.Host, payload: kernels.OnnxOp) -> None:
    """A node of the network's file, as it is there."""
    model = _current(part, onnx.load_model_from_string(payload.model), payload.label)
    names: dict[str, str] = {"": ""}
    for tensor, wire in zip(node.inputs, payload.inputs, strict=True):
        value = part.plain(tensor)
        if part.is_byte(tensor) and not wire.unsigned:
            value = part.lowered(value)
        names[wire.name] = part.outside(value, part.graph.tensors[tensor].shape, wire.layout)
    for constant in model.graph.initializer:
        names[constant.name] = part.constant(numpy_helper.to_array(constant), constant.name)
    for proto in model.graph.node:
        for name in proto.output:
            names.setdefault(name, part.fresh(name))
        proto.input[:] = [names[name] for name in proto.input]
        proto.output[:] = [names[name] for name in proto.output]
        part.nodes.append(proto)
    for tensor, wire in zip(node.outputs, payload.outputs, strict=True):
        value = part.inside(names[wire.name], wire.layout)
        if part.is_byte(tensor) and not wire.unsigned:
            value = part.raised(value)
        part.values[tensor] = part.reshaped(value, wire.layout.inner, part.graph.tensors[tensor].shape)


def _current(part: Part, model: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """The model in an operator set that this one can have, which is written down."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    if versions.get("", OPSET) < OPSET:
        try:
            model = version_converter.convert_version(model, OPSET)
        except Exception as error:  # the converter raises several classes, undocumented
            reason = first_line(error)
            raise NetworkError(f"{label}: must have a form in operator set {OPSET}, not: {reason}") from error
        versions[""] = OPSET
    part.opsets |= versions
    return model


def write(part: Part, node: ir.Node) -> None:
    """Append a node whose inputs are there.

    Raises
    ------
    NetworkError
        It has no form in ONNX.
    """
    if isinstance(node, ir.Host):
        write_host(part, node)
    elif isinstance(node, ir.Move):
        write_move(part, node)
    elif writer := WRITERS.get(type(node)):
        writer(part, node)
    else:
        raise NetworkError(f"{node.name!r}: {node.op} has no form in ONNX")
