"""Convolutions, and matrix products: with constant weights they are 1x1 convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.numerics.multiplier import onnx_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import OnnxNode
from dovetail.sw.frontend.onnx.operators.window import window_of
from dovetail.sw.frontend.onnx.scope import Scope
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Sums, Target, Value
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, Shape

_ONE = np.ones((), np.float32)
"""The scale of integers that are what they are."""

_MOST_BIASED = 3
"""Axes of a matrix product at most that ONNX Runtime makes one node with the bias behind it."""


def _convolution(
    scope: Scope,
    attributes: Mapping[str, Any],
    source: Source,
    weights: Constant,
    bias: Constant | Array | None,
    target: Target,
) -> Value | None:
    """Convolution, grouped or not: weights OIHW. With one input channel per group it is depthwise."""
    shape, builder, where = source.value.shape, scope.builder, f"node {target.node!r}"
    if len(shape) != 4 or shape[0] != 1 or weights.values.ndim != 4:
        return None
    channels, depth, *kernel = weights.values.shape
    groups = int(attributes.get("group", 1))
    if depth * groups != shape[1]:
        raise NetworkError(f"{where}: weights must have {shape[1]} input channels, not {depth * groups}")
    depthwise = groups > 1 and depth == 1
    window = window_of(attributes, shape, (kernel[0], kernel[1]))
    image = builder.image(source.value)
    integers, scales = weights.weights(0, where)
    levels = _bias(target.node, bias, source.quant, scales)
    layout = Layout.image((1, channels, window.rows, window.cols))
    out = builder.integer(target.name, layout, target.quant)
    wires: dict[str, Any] = {
        "name": builder.node_name(target.node),
        "inputs": (image.tensor,),
        "outputs": (out.tensor,),
        "bias": levels,
        "requant": _requant(source.quant, scales, target),
        "stride": window.stride,
        "pads": window.pads,
        "dilation": window.dilation,
    }
    ordered = np.ascontiguousarray(integers.transpose(2, 3, 0, 1)[..., 0] if depthwise else _ohwi(integers))
    if depthwise:
        builder.nodes.append(ir.Depthwise(**wires, weights=ordered))
    else:
        builder.nodes.append(ir.Conv(**wires, weights=ordered, groups=groups))
    return out


def _dense(
    scope: Scope, source: Source, weights: Constant, bias: Constant | Array | None, target: Target | Sums
) -> Value | None:
    """Matrix product with constant weights [K, N] as a 1x1 convolution over the rows."""
    shape, builder, where = source.value.shape, scope.builder, f"node {target.node!r}"
    if weights.values.ndim != 2 or len(shape) < 2:
        return None
    depth, channels = weights.values.shape
    if shape[-1] != depth:
        raise NetworkError(f"{where}: weights must have {shape[-1]} rows, not {depth}")
    rows = int(np.prod(shape[:-1]))
    integers, scales = weights.weights(1, where)
    matrix = integers.T
    value = source.value
    if rows == 1 and not value.layout.is_plain:
        # A flattened image: reorder the weights' columns once instead of the activations every time.
        reordered = np.empty_like(matrix)
        reordered[:, value.layout.order()] = matrix
        matrix = reordered
        value = Value(value.tensor, Layout.plain(value.shape), value.dtype)
    inner = (1, 1, rows, depth)
    if not value.layout.is_plain or builder.nhwc(value) != inner:
        value = builder.placed(value, Layout(inner, (0, 1, 2, 3), value.shape))
    layout = Layout((1, 1, rows, channels), (0, 1, 2, 3), (*shape[:-1], channels))
    levels = _bias(target.node, bias, source.quant, scales)
    out = builder.integer(target.name, layout, target.quant)
    builder.nodes.append(
        ir.Conv(
            name=builder.node_name(target.node),
            inputs=(value.tensor,),
            outputs=(out.tensor,),
            weights=np.ascontiguousarray(matrix.reshape(channels, 1, 1, depth)),
            bias=levels,
            requant=_requant(source.quant, scales, target),
            kind="dense",
        )
    )
    return out


def _product(scope: Scope, a: Source, b: Source, target: Target | Sums) -> Value | None:
    """Matrix product of two activations: one matrix each, or equally many."""
    left, right, builder = a.value.shape, b.value.shape, scope.builder
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        return None
    rows: Shape
    if len(right) == 2:
        rows = (int(np.prod(left[:-1])), left[-1])
    elif left[:-2] == right[:-2]:
        rows = left
    else:
        return None
    first = builder.placed(a.value, Layout(rows, tuple(range(len(rows))), left))
    # Where the matrix lies column by column already, it is taken so.
    swap = (*range(len(right) - 2), len(right) - 1, len(right) - 2)
    turned = tuple(right[k] for k in swap)
    transposed = _fastest(b.value.layout) == len(right) - 2
    second = builder.placed(b.value, Layout(turned, swap, right) if transposed else Layout.plain(right))
    inner = (*rows[:-1], right[-1])
    out = builder.integer(target.name, Layout(inner, tuple(range(len(inner))), (*left[:-1], right[-1])), target.quant)
    builder.nodes.append(
        ir.MatMul(
            name=builder.node_name(target.node),
            inputs=(first.tensor, second.tensor),
            outputs=(out.tensor,),
            requant=_requant(a.quant, np.array([b.quant.scale], np.float32), target),
            zero_b=b.quant.zero_point,
            transposed=transposed,
        )
    )
    return out


def _bias(name: str, bias: Constant | Array | None, source: Quant, scales: NDArray[np.float32]) -> NDArray[np.int32]:
    """int32 levels of the accumulator's scale; a bias kept as float is rounded to them."""
    steps = np.float64(source.scale) * scales.astype(np.float64)
    if bias is None:
        return np.zeros(scales.size, np.int32)
    if isinstance(bias, Constant):
        levels = bias.values.ravel()
        if levels.dtype == np.int32 and levels.size == scales.size and not np.any(bias.zero_point):
            if _is_in_steps(bias, steps):
                return np.ascontiguousarray(levels)
            raise NetworkError(f"node {name!r}: bias scale must be input scale times weight scale")
        bias = bias.real()
    if bias.dtype == np.int32:
        return np.ascontiguousarray(bias.ravel())
    real = np.broadcast_to(bias.ravel() if bias.size > 1 else bias.reshape(()), scales.shape)
    rounded = np.rint(real.astype(np.float64) / steps)
    return np.clip(rounded, -(2**31), 2**31 - 1).astype(np.int32)


def _is_in_steps(bias: Constant, steps: NDArray[np.floating[Any]]) -> bool:
    """Whether a bias has the scale of the sums, as far as float32 can tell."""
    given = np.broadcast_to(bias.scale.ravel(), steps.shape).astype(np.float64)
    return np.allclose(given, steps, rtol=1e-3, atol=1e-30)


def _fastest(layout: Layout) -> int:
    """The axis in the file along which neighbours are neighbours in memory; the last if there is none."""
    if not layout.is_direct:
        return len(layout.shape) - 1
    moving = [axis for axis in range(len(layout.inner)) if layout.inner[axis] != 1]
    return layout.perm.index(moving[-1]) if moving else len(layout.shape) - 1


def _ohwi(weights: NDArray[np.int8]) -> NDArray[np.int8]:
    return weights.transpose(0, 2, 3, 1)


def _requant(source: Quant, scales: NDArray[np.float32], target: Target | Sums) -> ir.Requant:
    if isinstance(target, Sums):
        return ir.Requant.of_sums(source.zero_point, Rounding.ONNX)
    real = onnx_multiplier(np.asarray(source.scale), scales, np.asarray(target.quant.scale))
    zeros = source.zero_point, target.quant.zero_point
    return ir.Requant.encode(real, Rounding.ONNX, *zeros, *target.clamp, where=target.node)


def _qlinear_conv(scope: Scope, node: OnnxNode) -> bool:
    source, weights, target = scope.operand(node, 0), scope.weight(node, 3, 0), scope.target(node, 6, 7)
    if source is None or weights is None or target is None:
        return False
    bias = scope.constant(node.input(8)) if node.input(8) else None
    return scope.put(node, _convolution(scope, node.attributes, source, weights, bias, target))


def _qlinear_matmul(scope: Scope, node: OnnxNode) -> bool:
    """With constant weights or of two activations."""
    source, weights, target = scope.operand(node, 0), scope.weight(node, 3, 1), scope.target(node, 6, 7)
    if source is None or target is None:
        return False
    if weights is not None:
        return scope.put(node, _dense(scope, source, weights, None, target))
    other = scope.operand(node, 3)
    return other is not None and scope.put(node, _product(scope, source, other, target))


def _qgemm(scope: Scope, node: OnnxNode) -> bool:
    """With constant weights; its result is float if it has no scale."""
    source, of_sums = scope.operand(node, 0), not node.input(7)
    weights = _gemm_weights(node, scope.weight(node, 3, 0 if node.attributes.get("transB", 0) else 1))
    target = Sums(node.name, f"{node.outputs[0]}/sums") if of_sums else scope.target(node, 7, 8)
    if source is None or weights is None or target is None or (of_sums and not weights.fit(1)):
        return False
    bias = scope.constant(node.input(6)) if node.input(6) else None
    value = _dense(scope, source, weights, bias, target)
    if value is not None and of_sums:
        value = scope.builder.dequantize_sums(node.outputs[0], value, _steps(source, weights))
    return scope.put(node, value)


def _conv(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    source, weights = scope.sources.get(node.inputs[0]), scope.quantised.get(node.inputs[1])
    known, bias = scope.bias(node.input(2))
    if source is None or weights is None or not known:
        return None
    return _convolution(scope, node.attributes, source, weights, bias, target)


def _gemm(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    source, weights = scope.sources.get(node.inputs[0]), _gemm_weights(node, scope.quantised.get(node.inputs[1]))
    known, bias = scope.bias(node.input(2))
    if source is None or weights is None or not known:
        return None
    return _dense(scope, source, weights, bias, target)


def _gemm_weights(node: OnnxNode, weights: Constant | None) -> Constant | None:
    """Weights [K, N] of a Gemm or QGemm; None if they are no integers, or it does more than a product and a bias."""
    plain = node.attributes.get("alpha", 1.0) == 1.0 and node.attributes.get("beta", 1.0) == 1.0
    if weights is None or not plain or node.attributes.get("transA", 0):
        return None
    return weights.transposed((1, 0)) if node.attributes.get("transB", 0) else weights


def _matmul(scope: Scope, node: OnnxNode, target: Target, bias: Constant | Array | None = None) -> Value | None:
    source, weights = scope.sources.get(node.inputs[0]), scope.quantised.get(node.inputs[1])
    other = scope.sources.get(node.inputs[1])
    if source is not None and other is not None and bias is None:
        return _product(scope, source, other, target)
    if source is None or weights is None:
        return None
    return _dense(scope, source, weights, bias, target)


def biased(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    """MatMul and Add of a constant."""
    for product, bias in _biased_products(scope, node):
        size = bias.values.size if isinstance(bias, Constant) else np.asarray(bias).size
        weights = scope.quantised.get(product.inputs[1])
        if weights is not None and size in (1, weights.values.shape[-1]):
            return _matmul(scope, product, replace(target, node=product.name), bias)
    return None


def _biased_products(scope: Scope, node: OnnxNode) -> Iterator[tuple[OnnxNode, Constant | Array]]:
    """A MatMul that waits and the constant that an Add adds to it."""
    left, right = node.inputs
    for data, other in ((left, right), (right, left)):
        _, bias = scope.bias(other)
        product = scope.waiting.get(data)
        if bias is not None and product is not None and product.op == "MatMul":
            yield product, bias


# Sums that leave as they are -------------------------------------------------------------------


def scaled_sums(scope: Scope, node: OnnxNode) -> Value | None:
    """The float result of a product that nothing quantises: int32 sums, times their step on the host.

    ONNX Runtime computes it so, too, where operands and bias are integers, and the first operand is uint8 or becomes
    so in the file's uint8 form. None if they are not, or the node is no product.
    """
    product, bias, known = node, None, True
    if node.op == "Add":
        alone = (pair for pair in _biased_products(scope, node) if _is_alone(scope, pair[0]))
        product, bias = next(alone, (node, None))
    elif node.op == "Gemm":
        known, bias = scope.bias(node.input(2))
    source, other = (scope.sources.get(name) for name in (*product.inputs, "")[:2])
    wanted = Sums(node.name, f"{node.outputs[0]}/sums")
    if product.op not in ("Gemm", "MatMul") or source is None or not known:
        return None
    if scope.file.kernel_types[source.quant.dtype] != "uint8":
        return None
    if product.op == "MatMul" and other is not None:
        sums, steps = _product(scope, source, other, wanted), np.atleast_1d(source.quant.scale * other.quant.scale)
    else:
        weights = scope.quantised.get(product.inputs[1])
        weights = _gemm_weights(product, weights) if product.op == "Gemm" else weights
        if weights is None or not weights.fit(1):
            return None
        steps = _steps(source, weights)
        if bias is not None and not _is_of_sums(bias, steps, weights.values.shape[1]):
            return None
        sums = _dense(scope, source, weights, bias, wanted)
    return None if sums is None else scope.builder.dequantize_sums(node.outputs[0], sums, steps)


def _steps(source: Source, weights: Constant) -> NDArray[np.float32]:
    """What 1 stands for in the sums, for each channel or for all."""
    return np.float32(source.quant.scale) * weights.scale.astype(np.float32).ravel()


def _matmul_integer(scope: Scope, node: OnnxNode) -> bool:
    """With constant weights: the int32 sums are the result. Where the zero point is only known in a run
    (DynamicQuantizeLinear), they are those around 0, and the host makes up for it."""
    value, levels = scope.values.get(node.inputs[0]), scope.constant(node.inputs[1])
    if value is None or value.dtype not in ("int8", "uint8") or levels is None:
        return False
    zero, zero_b = scope.zero(node, 2, value.dtype), scope.zero(node, 3, str(levels.dtype))
    quant = Quant.of(_ONE, np.zeros((), value.dtype) if zero is None else zero, f"node {node.label}")
    if zero is None and value.dtype != "uint8":
        return False
    if quant is None or zero_b is None or not (weights := Constant(levels, _ONE, zero_b, 1)).fit(1):
        return False
    wanted = Sums(node.name, node.outputs[0] if zero is not None else f"{node.outputs[0]}/sums")
    sums = _dense(scope, Source(value, quant), weights, None, wanted)
    if sums is not None and zero is None:
        totals = weights.weights(1, node.label)[0].sum(axis=0, dtype=np.int32)
        sums = scope.builder.around(node.outputs[0], sums, scope.value(node.input(2)), totals)
    return scope.put(node, sums)


def _is_alone(scope: Scope, product: OnnxNode) -> bool:
    """Whether a product's result goes into one sum and nowhere else: ONNX Runtime makes one of the two then."""
    (name,) = product.outputs
    source = scope.sources.get(product.inputs[0])
    few = source is not None and len(source.value.shape) <= _MOST_BIASED
    return few and len(scope.file.consumers.get(name, ())) == 1 and name not in scope.file.outputs


def _is_of_sums(bias: Constant | Array, steps: NDArray[np.float32], channels: int) -> bool:
    """Whether a bias is int32, a number of the sums' steps for each channel."""
    if not isinstance(bias, Constant) or bias.values.dtype != np.int32 or bias.values.size != channels:
        return False
    return not np.any(bias.zero_point) and _is_in_steps(bias, steps)


NODES = {
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QGemm": _qgemm,
    "MatMulInteger": _matmul_integer,
}
BETWEEN = {"Conv": _conv, "Gemm": _gemm, "MatMul": _matmul}
