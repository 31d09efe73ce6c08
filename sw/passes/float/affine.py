"""Pass: batch normalisations, and factors and offsets of channels, become part of the operator before them.

What has no convolution or matrix product before it becomes a depthwise 1x1 convolution, which the accelerator runs
with a factor for each channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as oir
from numpy.typing import NDArray

from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, is_op, only_user, operand, redirect, shape_of

_BINARY = ("Mul", "Add", "Sub", "Div")
_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@dataclass(frozen=True)
class Affine:
    """`scale * data + shift`, each of one element or one per channel of `axis` (counted from the front)."""

    data: oir.Value
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]
    axis: int

    @property
    def per_channel(self) -> bool:
        """Whether channels have numbers of their own."""
        return max(self.scale.size, self.shift.size) > 1


def fold_affine(model: oir.Model) -> bool:
    """Fold every affine node that has a linear operator before it; turn other batch normalisations into one."""
    changed = False
    for node in list(model.graph):
        affine = _affine(node)
        if affine is not None and node.graph is not None:
            changed |= _fold(node, affine) or _stand_alone(node, affine)
    return changed


def _affine(node: oir.Node) -> Affine | None:
    if is_op(node, "BatchNormalization"):
        return _normalisation(node)
    if not is_op(node, *_BINARY) or len(node.inputs) != 2:
        return None
    left, right = (constant(value) for value in node.inputs)
    if (left is None) == (right is None):
        return None
    data, number = (node.inputs[0], right) if left is None else (node.inputs[1], left)
    assert data is not None and number is not None
    shape = shape_of(data)
    if shape is None or shape != shape_of(node.outputs[0]) or not np.issubdtype(number.dtype, np.floating):
        return None
    if node.op_type == "Div" and left is not None:
        return None
    found = _along_channels(number.astype(np.float64), shape)
    if found is None:
        return None
    values, axis = found
    one, zero = np.ones(1), np.zeros(1)
    match node.op_type:
        case "Mul":
            return Affine(data, values, zero, axis)
        case "Div":
            return Affine(data, 1 / values, zero, axis)
        case "Add":
            return Affine(data, one, values, axis)
        case _:
            return Affine(data, one, -values, axis) if right is not None else Affine(data, -one, values, axis)


def _along_channels(number: Array, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], int] | None:
    """(values, axis) of a constant of one element or one that follows a single axis."""
    if number.size == 1:
        return number.reshape(1), 1
    if number.ndim > len(shape):
        return None
    full = (1,) * (len(shape) - number.ndim) + number.shape
    long = [axis for axis, size in enumerate(full) if size > 1]
    return (number.ravel(), long[0]) if len(long) == 1 and long[0] > 0 else None


def _normalisation(node: oir.Node) -> Affine | None:
    parameters = [constant(operand(node, index)) for index in range(1, 5)]
    known = [array.astype(np.float64) for array in parameters if array is not None]
    training = node.attributes.get("training_mode")
    used = [out for out in node.outputs[1:] if out.uses() or out.is_graph_output()]
    if len(known) < 4 or used or (training is not None and training.as_int()) or node.inputs[0] is None:
        return None
    gamma, beta, mean, variance = known
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    if np.any(variance + epsilon <= 0):
        return None
    scale = gamma / np.sqrt(variance + epsilon)
    return Affine(node.inputs[0], scale, beta - mean * scale, 1)


def _fold(node: oir.Node, affine: Affine) -> bool:
    """Into the operator that makes the data, if nothing else reads it."""
    linear = affine.data.producer() if only_user(affine.data) is node else None
    if not affine.per_channel and not np.any(affine.shift):
        linear = _source(affine.data)
    if linear is None or not is_op(linear, *_LINEAR):
        return False
    weights, bias = constant(linear.inputs[1]), operand(linear, 2)
    rank = len(affine.data.shape or ())
    channel_axis = 1 if linear.op_type in ("Conv", "ConvTranspose") else rank - 1
    if weights is None or (bias is not None and constant(bias) is None):
        return False
    if affine.per_channel and affine.axis != channel_axis:
        return False
    if linear.op_type == "MatMul" and (weights.ndim != 2 or np.any(affine.shift)):
        return False
    channels = _channels(linear, weights)
    scale = np.broadcast_to(affine.scale, channels)
    edit = Editor(linear)
    linear.replace_input_with(1, edit.constant(_scaled(linear, weights, scale).astype(weights.dtype), "weights"))
    if linear.op_type != "MatMul":
        held = constant(bias)
        before = np.zeros(channels) if held is None else held.astype(np.float64)
        if linear.op_type == "Gemm":
            before = before * linear.attributes.get_float("beta", 1.0)
            linear.attributes["beta"] = oir.AttrFloat32("beta", 1.0)
        after = before * scale + affine.shift
        linear.resize_inputs(3)
        linear.replace_input_with(2, edit.constant(after.astype(weights.dtype), "bias"))
    redirect(node.outputs[0], affine.data)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return True


def _source(value: oir.Value) -> oir.Node | None:
    """The linear operator that a factor of a value can go to: through views, and products of two tensors."""
    producer = value.producer()
    if producer is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    if is_op(producer, "Reshape", "Transpose") and producer.inputs[0] is not None:
        return _source(producer.inputs[0])
    if is_op(producer, "MatMul") and constant(producer.inputs[0]) is None and constant(producer.inputs[1]) is None:
        sides = [_source(side) for side in producer.inputs if side is not None]
        return next((side for side in sides if side is not None), None)
    return producer if is_op(producer, *_LINEAR) else None


def _channels(linear: oir.Node, weights: Array) -> int:
    match linear.op_type:
        case "Conv":
            return int(weights.shape[0])
        case "ConvTranspose":
            return int(weights.shape[1]) * linear.attributes.get_int("group", 1)
        case "Gemm" if linear.attributes.get_int("transB", 0):
            return int(weights.shape[0])
        case _:
            return int(weights.shape[1])


def _scaled(linear: oir.Node, weights: Array, scale: NDArray[np.float64]) -> Array:
    match linear.op_type:
        case "Conv":
            return weights * scale.reshape(-1, *[1] * (weights.ndim - 1))
        case "ConvTranspose":
            groups = linear.attributes.get_int("group", 1)
            inside = weights.reshape(groups, -1, *weights.shape[1:])
            spread = scale.reshape(groups, 1, -1, *[1] * (weights.ndim - 2))
            return (inside * spread).reshape(weights.shape)
        case "Gemm" if linear.attributes.get_int("transB", 0):
            return weights * scale[:, None]
        case _:
            return weights * scale


def _stand_alone(node: oir.Node, affine: Affine) -> bool:
    """As a depthwise 1x1 convolution, together with factors and offsets before it; flat data as Mul and Add.

    Constants of one element stay: they are part of a table. So do offsets alone: they are a sum with a constant.
    """
    shape = shape_of(affine.data)
    if shape is None or (node.op_type != "BatchNormalization" and not _worth_it(affine, len(shape))):
        return False
    affine = _with_what_is_before(affine)
    edit, kind = Editor(node), np.float32
    scale = np.broadcast_to(affine.scale, shape[1]).astype(kind)
    shift = np.broadcast_to(affine.shift, shape[1]).astype(kind)
    if len(shape) in (3, 4):
        weights = edit.constant(scale.reshape(-1, *[1] * (len(shape) - 1)), "weights")
        inputs = [affine.data, weights, edit.constant(shift, "bias")]
        edit.replace(edit.add("Conv", inputs, shape, {"group": shape[1], "kernel_shape": [1] * (len(shape) - 2)}))
        return True
    along = (-1, *[1] * (len(shape) - 2))
    product = edit.add("Mul", [affine.data, edit.constant(scale.reshape(along), "scale")], shape)
    edit.replace(edit.add("Add", [product, edit.constant(shift.reshape(along), "shift")], shape))
    return True


def _worth_it(affine: Affine, rank: int) -> bool:
    return rank in (3, 4) and affine.scale.size > 1 and affine.axis == 1


def _with_what_is_before(affine: Affine) -> Affine:
    """The composition with the affine nodes in front of it that nothing else reads."""
    producer = affine.data.producer()
    before = _affine(producer) if producer is not None else None
    if before is None or only_user(affine.data) is None or (before.per_channel and before.axis != affine.axis):
        return affine
    scale, shift = before.scale * affine.scale, before.shift * affine.scale + affine.shift
    return _with_what_is_before(Affine(before.data, scale, shift, affine.axis))
