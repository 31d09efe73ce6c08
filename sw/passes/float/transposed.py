"""Pass: transposed convolutions become convolutions whose channels are the pixels of a block.

With stride s, the result's pixels fall into s x s phases by their place in a block of s x s, and every phase is a
convolution of the source at stride 1 by its part of the kernel. One convolution makes all phases as channels,
DepthToSpace puts them beside each other, Slice takes away what the padding does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, is_op, only_user, operand, redirect, shape_of

_CLAMPS = ("Relu", "Clip")


@dataclass(frozen=True)
class Axis:
    """One axis of the result: blocks that are computed, padding of the source for it, first pixel that counts."""

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


def unfold_transposed_convolutions(model: oir.Model) -> bool:
    """ConvTranspose of images with one stride for both axes, without dilation; a clamp behind it comes before."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, "ConvTranspose"):
            continue
        weights, bias = constant(node.inputs[1]), operand(node, 2)
        source, out = shape_of(node.inputs[0]), shape_of(node.outputs[0])
        if weights is None or weights.ndim != 4 or source is None or out is None:
            continue
        strides = node.attributes.get_ints("strides", (1, 1))
        plain = max(node.attributes.get_ints("dilations", (1, 1))) == 1 and "output_shape" not in node.attributes
        named = node.attributes.get_string("auto_pad", "NOTSET")
        if strides[0] != strides[1] or not plain or named not in ("NOTSET", "VALID"):
            continue
        pads = node.attributes.get_ints("pads", (0, 0, 0, 0)) if named == "NOTSET" else (0, 0, 0, 0)
        kernel = weights.shape[2:]
        axes = [Axis.of(source[k + 2], out[k + 2], kernel[k], strides[0], pads[k]) for k in range(2)]
        held = constant(bias)
        if min(axis.before for axis in axes) < 0 or (bias is not None and held is None):
            continue
        _replace(node, axes, weights, held, strides[0])
        changed = True
    return changed


def _replace(node: oir.Node, axes: list[Axis], weights: Array, bias: Array | None, stride: int) -> None:
    edit, groups, size = Editor(node), node.attributes.get_int("group", 1), stride * stride
    source, out = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    assert source is not None and out is not None
    rows, columns = axes
    inputs = [node.inputs[0], edit.constant(_phases(weights, axes, stride, groups), "weights")]
    if bias is not None:
        inputs.append(edit.constant(np.repeat(bias, size) if groups > 1 else np.tile(bias, size), "bias"))
    attributes = {
        "group": groups,
        "kernel_shape": [rows.taps, columns.taps],
        "pads": [rows.before, columns.before, rows.after, columns.after],
    }
    value = edit.add("Conv", inputs, (source[0], out[1] * size, rows.blocks, columns.blocks), attributes)
    clamp = only_user(node.outputs[0])
    if clamp is not None and is_op(clamp, *_CLAMPS):
        value = edit.add(clamp.op_type, [value, *clamp.inputs[1:]], shape_of(value), clamp.attributes)
        redirect(clamp.outputs[0], node.outputs[0])
        edit.graph.remove(clamp, safe=True)
    whole = (source[0], out[1], rows.blocks * stride, columns.blocks * stride)
    if stride > 1:
        mode = "CRD" if groups > 1 else "DCR"
        value = edit.add("DepthToSpace", [value], whole, {"blocksize": stride, "mode": mode})
    if whole != out:
        ends = rows.first + out[2], columns.first + out[3]
        value = edit.cut(value, (2, 3), (rows.first, columns.first), ends, out)
    edit.replace(value)


def _phases(weights: Array, axes: list[Axis], stride: int, groups: int) -> Array:
    """(inputs, outputs, height, width) to (outputs of all phases, inputs of a group, taps, taps).

    Outputs vary fastest, then phases; of several groups, phases fastest.
    """
    rows, columns = (axis.taps for axis in axes)
    inputs, outputs, height, width = weights.shape
    padded = np.zeros((inputs, outputs, rows * stride, columns * stride), weights.dtype)
    padded[:, :, :height, :width] = weights
    split = padded.reshape(groups, inputs // groups, outputs, rows, stride, columns, stride)[:, :, :, ::-1, :, ::-1]
    order = (0, 2, 4, 6, 1, 3, 5) if groups > 1 else (4, 6, 0, 2, 1, 3, 5)
    return split.transpose(order).reshape(-1, inputs // groups, rows, columns)
