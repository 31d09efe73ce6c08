"""Passes on linear operators: factors and offsets are folded into the operator before them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as oir
from numpy.typing import NDArray

from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, each, is_op, only_user, operand, shape_of

Reals = NDArray[np.float64]

_BINARY = ("Mul", "Add", "Sub", "Div")
_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")


# Factors and offsets ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Affine:
    """`scale * data + shift`, each of one element or one per channel of `axis` (counted from the front)."""

    data: oir.Value
    scale: Reals
    shift: Reals
    axis: int

    @property
    def per_channel(self) -> bool:
        """Whether channels differ."""
        return max(self.scale.size, self.shift.size) > 1


@each("BatchNormalization", *_BINARY)
def fold_affine(node: oir.Node) -> bool:
    """Batch normalisations, and factors and offsets of channels, are folded into the linear operator before them.

    Without such an operator they become a depthwise 1x1 convolution.
    """
    affine = _affine(node)
    return affine is not None and (_fold(node, affine) or _stand_alone(node, affine))


def _affine(node: oir.Node) -> Affine | None:
    if is_op(node, "BatchNormalization"):
        return _normalisation(node)
    if not is_op(node, *_BINARY):
        return None
    left, right = (constant(value) for value in node.inputs)
    data, number = (node.inputs[0], right) if left is None else (node.inputs[1], left)
    shape = shape_of(data)
    if data is None or number is None or (left is not None and (right is not None or node.op_type == "Div")):
        return None
    if shape is None or shape != shape_of(node.outputs[0]) or not np.issubdtype(number.dtype, np.floating):
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


def _along_channels(number: Reals, shape: tuple[int, ...]) -> tuple[Reals, int] | None:
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
    used = [out for out in node.outputs[1:] if out.uses() or out.is_graph_output()]
    if len(known) < 4 or used or node.attributes.get_int("training_mode", 0) != 0 or node.inputs[0] is None:
        return None
    gamma, beta, mean, variance = known
    epsilon = node.attributes.get_float("epsilon", 1e-5)
    if np.any(variance + epsilon <= 0):
        return None
    scale = gamma / np.sqrt(variance + epsilon)
    return Affine(node.inputs[0], scale, beta - mean * scale, 1)


def _fold(node: oir.Node, affine: Affine) -> bool:
    """Into the operator that computes the data, if nothing else reads it."""
    linear = affine.data.producer() if only_user(affine.data) is node else None
    if not affine.per_channel and not np.any(affine.shift):
        linear = _source(affine.data)
    if not is_op(linear, *_LINEAR):
        return False
    weights, bias = constant(linear.inputs[1]), operand(linear, 2)
    held = constant(bias)
    if weights is None or (bias is not None and held is None):
        return False
    channel_axis = 1 if linear.op_type in ("Conv", "ConvTranspose") else len(affine.data.shape or ()) - 1
    if affine.per_channel and affine.axis != channel_axis:
        return False
    if linear.op_type == "MatMul" and (weights.ndim != 2 or np.any(affine.shift)):
        return False
    split, along = _by_outputs(linear, weights)
    scale = np.broadcast_to(affine.scale, prod(along))
    edit, scaled = Editor(linear), (split * scale.reshape(along)).reshape(weights.shape)
    linear.replace_input_with(1, edit.constant(scaled.astype(weights.dtype), "weights"))
    if linear.op_type != "MatMul":
        before = np.zeros(scale.size) if held is None else held.astype(np.float64)
        if linear.op_type == "Gemm":
            before = before * linear.attributes.get_float("beta", 1.0)
            linear.attributes["beta"] = oir.AttrFloat32("beta", 1.0)
        linear.resize_inputs(3)
        linear.replace_input_with(2, edit.constant((before * scale + affine.shift).astype(weights.dtype), "bias"))
    return Editor(node).replace(affine.data)


def _source(value: oir.Value) -> oir.Node | None:
    """The linear operator that can absorb a factor of a value, behind views and products of two tensors."""
    producer = value.producer()
    if producer is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    if is_op(producer, "Reshape", "Transpose") and producer.inputs[0] is not None:
        return _source(producer.inputs[0])
    if is_op(producer, "MatMul") and constant(producer.inputs[0]) is None and constant(producer.inputs[1]) is None:
        sides = [_source(side) for side in producer.inputs if side is not None]
        return next((side for side in sides if side is not None), None)
    return producer if is_op(producer, *_LINEAR) else None


def _by_outputs(linear: oir.Node, weights: Array) -> tuple[Array, tuple[int, ...]]:
    """Weights, and the shape in which a number for each output channel multiplies them."""
    if linear.op_type == "ConvTranspose":
        groups = linear.attributes.get_int("group", 1)
        inside = weights.reshape(groups, -1, *weights.shape[1:])
        return inside, (groups, 1, weights.shape[1], *[1] * (weights.ndim - 2))
    if linear.op_type == "Conv" or linear.attributes.get_int("transB", 0) != 0:
        return weights, (weights.shape[0], *[1] * (weights.ndim - 1))
    return weights, (1, weights.shape[1])


def _stand_alone(node: oir.Node, affine: Affine) -> bool:
    """As a depthwise 1x1 convolution, together with factors and offsets before it; flat data as Mul and Add.

    Constants of one element stay, as part of a table. Offsets alone stay, as a sum with a constant.
    """
    shape = shape_of(affine.data)
    if shape is None:
        return False
    image = len(shape) in (3, 4)
    if node.op_type != "BatchNormalization" and not (image and affine.scale.size > 1 and affine.axis == 1):
        return False
    affine = _with_what_is_before(affine)
    edit, along = Editor(node), (-1, *[1] * (len(shape) - 2))
    scale, shift = (np.broadcast_to(v, shape[1]).astype(np.float32) for v in (affine.scale, affine.shift))
    if image:
        weights = edit.constant(scale.reshape(-1, *[1] * (len(shape) - 1)), "weights")
        inputs = [affine.data, weights, edit.constant(shift, "bias")]
        form = {"group": shape[1], "kernel_shape": [1] * (len(shape) - 2)}
        return edit.replace(edit.add("Conv", inputs, shape, form))
    product = edit.add("Mul", [affine.data, edit.constant(scale.reshape(along), "scale")], shape)
    return edit.replace(edit.add("Add", [product, edit.constant(shift.reshape(along), "shift")], shape))


def _with_what_is_before(affine: Affine) -> Affine:
    """Composed with the affine nodes before it that nothing else reads."""
    producer = affine.data.producer()
    before = _affine(producer) if producer is not None else None
    if before is None or only_user(affine.data) is None or (before.per_channel and before.axis != affine.axis):
        return affine
    scale, shift = before.scale * affine.scale, before.shift * affine.scale + affine.shift
    return _with_what_is_before(Affine(before.data, scale, shift, affine.axis))


# Matrix products -------------------------------------------------------------------------------


@each("Gemm", "MatMul")
def unify_dense(node: oir.Node) -> bool:
    """MatMul by constant weights and Add become Gemm, between Reshapes if there are more than two axes.

    Gemm becomes A @ B + C, with B [K, N] and C [N], without factors.
    """
    return _plain(node) if node.op_type == "Gemm" else _with_offset(node)


def _plain(node: oir.Node) -> bool:
    attributes = node.attributes
    alpha, beta = attributes.get_float("alpha", 1.0), attributes.get_float("beta", 1.0)
    turned = attributes.get_int("transB", 0) == 1
    weights, offset = constant(node.inputs[1]), operand(node, 2)
    bias = constant(offset)
    if weights is None or attributes.get_int("transA", 0) != 0:
        return False
    channels = weights.shape[0 if turned else 1]
    if offset is not None and (bias is None or not _is_row(bias, channels)):
        return False
    if (alpha, beta, turned) == (1.0, 1.0, False) and (bias is None or bias.shape == (channels,)):
        return False
    edit = Editor(node)
    matrix = weights.T if turned else weights
    scaled = matrix if alpha == 1.0 else matrix * np.asarray(alpha, weights.dtype)
    node.replace_input_with(1, edit.constant(scaled, "weights"))
    if bias is not None:
        node.replace_input_with(2, edit.constant(_row(bias * np.asarray(beta, bias.dtype), channels), "bias"))
    for name in ("alpha", "beta", "transB"):
        attributes.pop(name, None)
    return True


def _is_row(bias: Array, channels: int) -> bool:
    """One number for all channels, or one for each."""
    return bias.size == 1 or (bias.size == channels and bias.shape[-1] == channels)


def _row(bias: Array, channels: int) -> Array:
    return np.broadcast_to(bias.reshape(-1), (channels,))


def _with_offset(node: oir.Node) -> bool:
    add, data = only_user(node.outputs[0]), node.inputs[0]
    weights, shape = constant(node.inputs[1]), shape_of(data)
    if data is None or weights is None or weights.ndim != 2 or shape is None or len(shape) < 2 or not is_op(add, "Add"):
        return False
    offset = add.inputs[1] if add.inputs[0] is node.outputs[0] else add.inputs[0]
    bias, out = constant(offset), shape_of(add.outputs[0])
    depth, channels = weights.shape
    if bias is None or not _is_row(bias, channels) or out != (*shape[:-1], channels):
        return False
    edit, rows = Editor(add), prod(shape[:-1])
    row = edit.constant(_row(bias, channels), "bias")
    product = edit.add("Gemm", [edit.reshape(data, (rows, depth)), node.inputs[1], row], (rows, channels))
    edit.replace(edit.reshape(product, out))
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return True
