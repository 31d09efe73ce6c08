"""Pooling and other windows; means; a rectifier alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.frontend.onnx.file import OnnxNode
from dovetail.sw.frontend.onnx.operators.elementwise import kernel
from dovetail.sw.frontend.onnx.operators.window import window_of
from dovetail.sw.frontend.onnx.scope import Scope
from dovetail.sw.frontend.onnx.values import Quant, Source, Target, Value
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Layout


def _average_pool(scope: Scope, attributes: Mapping[str, Any], source: Source, target: Target) -> Value | None:
    """Windowed average; input and output quantisation must be equal.

    As ONNX Runtime's integer kernel: the mean of the integers with their zero point, ties to even. In float, which
    it uses at lower optimisation, ties of windows with an even number of taps may go the other way.
    """
    shape, quant, builder = source.value.shape, target.quant, scope.builder
    if len(shape) != 4 or (source.quant.scale, source.quant.zero_point) != (quant.scale, quant.zero_point):
        return None
    window = window_of(attributes, shape, None)
    counted = bool(attributes.get("count_include_pad", 0)) and any(window.pads)
    # What ceil_mode adds at the end never counts.
    if window.dilation != (1, 1) or (counted and attributes.get("ceil_mode", 0)):
        return None
    image = builder.image(source.value)
    out = builder.integer(target.name, Layout.image((1, shape[1], window.rows, window.cols)), quant)
    builder.nodes.append(
        ir.AvgPool(
            name=builder.node_name(target.node),
            inputs=(image.tensor,),
            outputs=(out.tensor,),
            kernel=window.kernel,
            stride=window.stride,
            pads=window.pads,
            rounding=Rounding.ONNX,
            lo=target.clamp[0],
            hi=target.clamp[1],
            counted=quant.zero_point if counted else None,
        )
    )
    return out


def _mean(scope: Scope, source: Source | None, target: Target | None, keep: bool = True) -> Value | None:
    """Average over all pixels, requantised from the sum."""
    if source is None or target is None or len(source.value.shape) != 4:
        return None
    shape, quant, builder = source.value.shape, target.quant, scope.builder
    image = builder.image(source.value)
    real = source.quant.scale / (quant.scale * np.float32(shape[2] * shape[3]))
    layout = Layout.image((1, shape[1], 1, 1))
    out = builder.integer(target.name, layout, quant)
    zeros = (source.quant.zero_point, quant.zero_point)
    requant = ir.Requant.encode(np.array([real], np.float32), Rounding.ONNX, *zeros, *target.clamp, where=target.node)
    builder.nodes.append(
        ir.Mean(
            name=builder.node_name(target.node),
            inputs=(image.tensor,),
            outputs=(out.tensor,),
            requant=requant,
        )
    )
    return out if keep else Value(out.tensor, layout.reshaped((1, shape[1])), out.dtype)


def _qlinear_average(scope: Scope, node: OnnxNode) -> bool:
    """Channels first."""
    source, target = scope.operand(node, 0), scope.target(node, 3, 4)
    if source is None or target is None or node.attributes.get("channels_last", 0):
        return False
    return scope.put(node, _average_pool(scope, node.attributes, source, target))


def _qlinear_global(scope: Scope, node: OnnxNode) -> bool:
    """Channels first."""
    if node.attributes.get("channels_last", 0):
        return False
    return scope.put(node, _mean(scope, scope.operand(node, 0), scope.target(node, 3, 4)))


def _max_pool(scope: Scope, node: OnnxNode) -> bool:
    """Maximum over windows: the same in integers as in reals."""
    name, result, builder = node.inputs[0], node.outputs[0], scope.builder
    value = scope.held(name)
    if value is None or any(node.outputs[1:]) or value.dtype not in ("int8", "uint8"):
        return False
    shape = value.shape
    if len(shape) != 4 or shape[0] != 1:
        return False
    window = window_of(node.attributes, shape, None)
    if window.dilation != (1, 1) or node.attributes.get("storage_order", 0):
        return False
    tensor = builder.tensors[value.tensor]
    quant = scope.sources[name].quant if name in scope.sources else None
    if quant is None and tensor.scale is not None:
        quant = Quant(tensor.scale, tensor.zero_point, value.dtype)
    image = builder.image(value)
    layout = Layout.image((1, shape[1], window.rows, window.cols))
    out = builder.tensor(result, layout.inner, "int8", quant)
    builder.nodes.append(
        ir.MaxPool(
            name=builder.node_name(node.name),
            inputs=(image.tensor,),
            outputs=(out,),
            kernel=window.kernel,
            stride=window.stride,
            pads=window.pads,
        )
    )
    scope.derive(name, result, Value(out, layout, value.dtype))
    return True


def _relu(scope: Scope, node: OnnxNode) -> bool:
    """A rectifier alone, as a 1x1 maximum with a clamp."""
    source, result, builder = scope.sources.get(node.inputs[0]), node.outputs[0], scope.builder
    users = scope.file.consumers.get(result, [])
    quantised = users and result not in scope.file.outputs and all(user.op == "QuantizeLinear" for user in users)
    if source is None or quantised:
        return False
    value = source.value
    layout = value.layout
    if builder.tensors[value.tensor].shape != layout.inner or len(layout.inner) > 4:
        flat = Layout((value.layout.order().size,), (0,), value.shape)
        value = builder.plain(value) if not layout.is_plain else value
        value = builder.placed(value, flat)
        layout = flat
    out = builder.integer(result, layout, source.quant)
    builder.nodes.append(
        ir.MaxPool(
            name=builder.node_name(node.name),
            inputs=(value.tensor,),
            outputs=(out.tensor,),
            kernel=(1, 1),
            stride=(1, 1),
            pads=(0, 0, 0, 0),
            lo=source.quant.zero_point,
        )
    )
    scope.sources[result] = Source(out, source.quant)
    return True


def _average(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    source = scope.sources.get(node.inputs[0])
    if source is None:
        return None
    value = _average_pool(scope, node.attributes, source, target)
    if value is None and scope.is_of_one_type(source, target.quant):
        return kernel(scope, node, "QLinearAveragePool", (source,), target, **node.attributes)
    return value


def _global(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    return _mean(scope, scope.sources.get(node.inputs[0]), target)


def _reduce(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    source = scope.sources.get(node.inputs[0])
    axes = scope.constant(node.input(1)) if node.input(1) else node.attributes.get("axes")
    if source is None or axes is None or len(source.value.shape) != 4:
        return None
    if sorted(int(axis) % 4 for axis in axes) != [2, 3]:
        return None
    return _mean(scope, source, target, bool(node.attributes.get("keepdims", 1)))


NODES = {
    "MaxPool": _max_pool,
    "QLinearAveragePool": _qlinear_average,
    "QLinearGlobalAveragePool": _qlinear_global,
    "Relu": _relu,
}
BETWEEN = {"AveragePool": _average, "GlobalAveragePool": _global, "ReduceMean": _reduce}
