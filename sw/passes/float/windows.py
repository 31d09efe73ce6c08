"""Passes on convolutions, poolings and resizing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.passes.float.edit import (
    Editor,
    constant,
    each,
    is_op,
    numbers,
    only_user,
    operand,
    redirect,
    shape_of,
)

_PAIRS = ("kernel_shape", "strides", "dilations")
_CLAMPS = ("Relu", "Clip")
_CENTRES = ("half_pixel", "pytorch_half_pixel")
_TO_IMAGE = {(3, 1): (0, 2, 1), (4, 1, 2): (0, 3, 1, 2), (4, 2, 3): (0, 1, 2, 3)}
"""Rank and reduced axes -> the order of axes that has these last."""
_LARGEST_FACTOR = 4
"""The number of convolutions is the square of the factor."""


@each("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
def lift_one_dimensional(node: oir.Node) -> bool:
    """Operators on (batch, channels, length) become operators on images of height one, between Reshapes."""
    source, shape, out = node.inputs[0], shape_of(node.inputs[0]), shape_of(node.outputs[0])
    weights = constant(node.inputs[1]) if node.op_type == "Conv" else None
    if source is None or shape is None or out is None or len(shape) != 3 or len(node.outputs) > 1:
        return False
    if node.op_type == "Conv" and weights is None:
        return False
    edit = Editor(node)
    inputs = [edit.reshape(source, (*shape[:2], 1, shape[2])), *node.inputs[1:]]
    if weights is not None:
        inputs[1] = edit.constant(weights[:, :, None, :], "weights")
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    attributes |= {name: [1, *attributes[name]] for name in _PAIRS if name in attributes}
    if "pads" in attributes:
        before, after = attributes["pads"]
        attributes["pads"] = [0, before, 0, after]
    return edit.replace(edit.reshape(edit.add(node.op_type, inputs, (*out[:2], 1, out[2]), attributes), out))


# Padding layers --------------------------------------------------------------------------------


@each("Pad")
def spell_out_pads(node: oir.Node) -> bool:
    """A Pad of some axes becomes one of all axes, the form of older operator sets."""
    sizes, axes, shape = numbers(node, 1), numbers(node, 3), shape_of(node.inputs[0])
    if axes is None or sizes is None or shape is None:
        return False
    full = np.zeros((2, len(shape)), np.int64)
    full[:, [axis % len(shape) for axis in axes]] = np.array(sizes).reshape(2, -1)
    node.replace_input_with(1, Editor(node).constant(full.ravel(), "pads"))
    node.resize_inputs(3)
    return True


@each("Pad")
def fuse_pads(node: oir.Node) -> bool:
    """A Pad with zeros is folded into the operator behind it.

    That is Conv; AveragePool, which then counts the padding; or MaxPool of a tensor without negative values.
    """
    user, pads = only_user(node.outputs[0]), _spatial(node)
    if user is None or pads is None or not _takes(user, node.inputs[0]):
        return False
    own = list(user.attributes.get_ints("pads", [0] * len(pads)))
    if is_op(user, "AveragePool") and any(own) and not user.attributes.get_int("count_include_pad", 0):
        return False
    total = [mine + more for mine, more in zip(own, pads, strict=True)]
    kernel = user.attributes.get_ints("kernel_shape", ())
    if not is_op(user, "Conv") and any(pad >= size for pad, size in zip(total, (*kernel, *kernel), strict=True)):
        return False
    user.attributes["pads"] = oir.AttrInt64s("pads", total)
    if is_op(user, "AveragePool"):
        user.attributes["count_include_pad"] = oir.AttrInt64("count_include_pad", 1)
    user.replace_input_with(0, node.inputs[0])
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return True


def _spatial(node: oir.Node) -> list[int] | None:
    """Padding of height and width, all starts, then all ends; None if the node does something else."""
    shape, sizes, fill = shape_of(node.inputs[0]), numbers(node, 1), operand(node, 2)
    value = constant(fill)
    if shape is None or sizes is None or operand(node, 3) is not None or len(sizes) != 2 * len(shape):
        return None
    if node.attributes.get_string("mode", "constant") != "constant" or min(sizes) < 0:
        return None
    if fill is not None and (value is None or np.any(value)):
        return None
    rank = len(shape)
    if rank < 3 or any(sizes[axis] for axis in (0, 1, rank, rank + 1)):
        return None
    return sizes[2:rank] + sizes[rank + 2 :]


def _takes(user: oir.Node, data: oir.Value | None) -> bool:
    if user.attributes.get_string("auto_pad", "NOTSET") != "NOTSET" or user.attributes.get_int("ceil_mode", 0) != 0:
        return False
    return is_op(user, "Conv", "AveragePool") or (is_op(user, "MaxPool") and _never_negative(data))


def _never_negative(data: oir.Value | None) -> bool:
    producer = data.producer() if data is not None else None
    low = constant(operand(producer, 1)) if is_op(producer, "Clip") else None
    return is_op(producer, "Relu") or (low is not None and bool(np.all(low >= 0)))


# Poolings over all pixels ----------------------------------------------------------------------


@each("AveragePool", "ReduceMean", "ReduceMax", "GlobalMaxPool")
def unify_pooling(node: oir.Node) -> bool:
    """A mean over a whole image, or over tokens, becomes GlobalAveragePool, and a maximum MaxPool."""
    data, shape, out = node.inputs[0], shape_of(node.inputs[0]), shape_of(node.outputs[0])
    if data is None or shape is None or out is None:
        return False
    edit = Editor(node)
    if node.op_type == "AveragePool":
        whole = _is_whole(node, shape) and out == (*shape[:2], *[1] * (len(shape) - 2))
        return whole and edit.replace(edit.add("GlobalAveragePool", [data], out))
    axes = [2, 3] if node.op_type == "GlobalMaxPool" else [axis % len(shape) for axis in numbers(node, 1, "axes") or ()]
    order = _TO_IMAGE.get((len(shape), *sorted(axes)))
    if order is None:
        return False
    image = tuple(shape[axis] for axis in order)
    if order != (0, 1, 2, 3):
        data = edit.add("Transpose", [data], image, {"perm": order})
    image += (1,) * (4 - len(image))
    data = edit.reshape(data, image)
    if node.op_type == "ReduceMean":
        pooled = edit.add("GlobalAveragePool", [data], (*image[:2], 1, 1))
    else:
        pooled = edit.add("MaxPool", [data], (*image[:2], 1, 1), {"kernel_shape": image[2:]})
    return edit.replace(edit.reshape(pooled, out))


def _is_whole(node: oir.Node, shape: Shape) -> bool:
    """Whether the kernel is the image, and nothing is padded."""
    pads, auto_pad = node.attributes.get_ints("pads", ()), node.attributes.get_string("auto_pad", "")
    return (
        tuple(node.attributes.get_ints("kernel_shape", ())) == shape[2:]
        and not any(pads)
        and not auto_pad.startswith("SAME")
    )


# Enlargement -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """One axis of the result: taps of the kernel, blocks, padding of the source, and the first pixel that is kept."""

    taps: int
    blocks: int
    before: int
    after: int
    first: int

    @staticmethod
    def of(size: int, wanted: int, kernel: int, stride: int, pad: int) -> Axis:
        """For a source of `size` pixels and a result of `wanted`."""
        taps, skipped = -(-kernel // stride), pad // stride
        before = taps - 1 - skipped
        last = -(-(pad + wanted) // stride) - skipped
        after = max(last - size + skipped, 0)
        return Axis(taps, size + before + after - taps + 1, before, after, pad - skipped * stride)


@each("ConvTranspose")
def unfold_transposed_convolutions(node: oir.Node) -> bool:
    """Transposed convolutions become convolutions whose channels are the pixels of a block.

    With stride s, a pixel of the result belongs to one of s x s phases, by its place in a block of s x s. Every phase
    is a convolution of the source at stride 1 by its part of the kernel. One convolution computes all phases as
    channels, DepthToSpace puts them side by side, and Slice removes what padding removes. A clamp behind it moves
    before these.

    Only for images, with one stride for both axes, without dilation.
    """
    weights, bias = constant(node.inputs[1]), operand(node, 2)
    source, out, held = shape_of(node.inputs[0]), shape_of(node.outputs[0]), constant(bias)
    if weights is None or weights.ndim != 4 or source is None or out is None or (bias is not None and held is None):
        return False
    stride, other = node.attributes.get_ints("strides", (1, 1))
    named = node.attributes.get_string("auto_pad", "NOTSET")
    plain = max(node.attributes.get_ints("dilations", (1, 1))) == 1 and "output_shape" not in node.attributes
    if stride != other or not plain or named not in ("NOTSET", "VALID"):
        return False
    pads = node.attributes.get_ints("pads", (0, 0, 0, 0)) if named == "NOTSET" else (0, 0, 0, 0)
    rows, columns = (Axis.of(source[k + 2], out[k + 2], weights.shape[k + 2], stride, pads[k]) for k in range(2))
    if min(rows.before, columns.before) < 0:
        return False
    edit, groups, size = Editor(node), node.attributes.get_int("group", 1), stride * stride
    inputs = [node.inputs[0], edit.constant(_phases(weights, rows.taps, columns.taps, stride, groups), "weights")]
    if held is not None:
        inputs.append(edit.constant(np.repeat(held, size) if groups > 1 else np.tile(held, size), "bias"))
    attributes = {
        "group": groups,
        "kernel_shape": [rows.taps, columns.taps],
        "pads": [rows.before, columns.before, rows.after, columns.after],
    }
    value = edit.add("Conv", inputs, (source[0], out[1] * size, rows.blocks, columns.blocks), attributes)
    clamp = only_user(node.outputs[0])
    if is_op(clamp, *_CLAMPS):
        value = edit.add(clamp.op_type, [value, *clamp.inputs[1:]], shape_of(value), clamp.attributes)
        redirect(clamp.outputs[0], node.outputs[0])
        edit.graph.remove(clamp, safe=True)
    whole = (source[0], out[1], rows.blocks * stride, columns.blocks * stride)
    if stride > 1:
        mode = "CRD" if groups > 1 else "DCR"
        value = edit.add("DepthToSpace", [value], whole, {"blocksize": stride, "mode": mode})
    if whole != out:
        ends = rows.first + out[2], columns.first + out[3]
        value = edit.cut(value, (2, 3), (rows.first, columns.first), ends)
    return edit.replace(value)


def _phases(weights: Array, rows: int, columns: int, stride: int, groups: int) -> Array:
    """(inputs, outputs, height, width) to (outputs of all phases, inputs of a group, rows, columns).

    Outputs vary fastest, then phases; of several groups, phases fastest.
    """
    inputs, outputs, height, width = weights.shape
    padded = np.zeros((inputs, outputs, rows * stride, columns * stride), weights.dtype)
    padded[:, :, :height, :width] = weights
    split = padded.reshape(groups, inputs // groups, outputs, rows, stride, columns, stride)[:, :, :, ::-1, :, ::-1]
    order = (0, 2, 4, 6, 1, 3, 5) if groups > 1 else (4, 6, 0, 2, 1, 3, 5)
    return split.transpose(order).reshape(-1, inputs // groups, rows, columns)


@each("Resize")
def unfold_bilinear(node: oir.Node) -> bool:
    """Bilinear enlargement by a small whole factor becomes depthwise convolutions and DepthToSpace.

    A pixel of the result belongs to a phase, by its place between pixels of the source. A phase is a mean of 2 x 2
    pixels with the same weights everywhere. At the edges the outermost pixels are repeated.

    Only for images, with one factor for height and width, and not if corners are aligned.
    """
    data, shape, out = node.inputs[0], shape_of(node.inputs[0]), shape_of(node.outputs[0])
    if data is None or shape is None or out is None or len(shape) != 4:
        return False
    where = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    linear = node.attributes.get_string("mode", "nearest") == "linear" and where in (*_CENTRES, "asymmetric")
    batch, channels, height, width = shape
    factor = out[2] // height
    if not linear or not 2 <= factor <= _LARGEST_FACTOR or out != (batch, channels, height * factor, width * factor):
        return False
    edit, phase, centred = Editor(node), np.arange(factor), where in _CENTRES
    places = (phase + 0.5) / factor + 0.5 if centred else phase / factor
    for axis in (2, 3):
        data = _repeat_edges(edit, data, axis, before=centred)
    results = []
    for row, column in product(places, places):
        top, left = int(row), int(column)
        window = edit.cut(data, (2, 3), (top, left), (top + height + 1, left + width + 1))
        kernel = np.outer(np.array([1 - row % 1, row % 1]), np.array([1 - column % 1, column % 1]))
        weights = edit.constant(np.tile(kernel, (channels, 1, 1, 1)).astype(np.float32), "weights")
        results.append(edit.add("Conv", [window, weights], shape, {"group": channels, "kernel_shape": [2, 2]}))
    joined = edit.add("Concat", results, (batch, channels * factor**2, height, width), {"axis": 1})
    return edit.replace(edit.add("DepthToSpace", [joined], out, {"blocksize": factor, "mode": "DCR"}))


def _repeat_edges(edit: Editor, data: oir.Value, axis: int, *, before: bool) -> oir.Value:
    """Repeat the last row or column, and the first one if asked for."""
    shape = shape_of(data)
    assert shape is not None
    first, last = ([0, 0], [*shape[2:]]), ([0, 0], [*shape[2:]])
    first[1][axis - 2], last[0][axis - 2] = 1, shape[axis] - 1
    parts = [data, edit.cut(data, (2, 3), *last)]
    if before:
        parts.insert(0, edit.cut(data, (2, 3), *first))
    whole = (*shape[:axis], shape[axis] + len(parts) - 1, *shape[axis + 1 :])
    return edit.add("Concat", parts, whole, {"axis": axis})
