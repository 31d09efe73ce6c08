"""Passes: padding layers become the padding of the convolution or pooling behind them."""

from __future__ import annotations

import numpy as np
import onnx_ir as oir

from dovetail.sw.passes.float.edit import Editor, constant, is_op, numbers, only_user, operand, shape_of


def fuse_pads(model: oir.Model) -> bool:
    """Zeros before Conv; before AveragePool, which then counts them; before MaxPool where nothing is below zero."""
    changed = False
    for node in list(model.graph):
        user = only_user(node.outputs[0]) if is_op(node, "Pad") else None
        pads = _spatial(node) if user is not None else None
        if user is None or pads is None or not _takes(user, node.inputs[0]):
            continue
        own = list(user.attributes.get_ints("pads", [0] * len(pads)))
        if is_op(user, "AveragePool") and any(own) and not user.attributes.get_int("count_include_pad", 0):
            continue
        total = [mine + more for mine, more in zip(own, pads, strict=True)]
        kernel = user.attributes.get_ints("kernel_shape", ())
        if not is_op(user, "Conv") and any(pad >= size for pad, size in zip(total, (*kernel, *kernel), strict=True)):
            continue
        user.attributes["pads"] = oir.AttrInt64s("pads", total)
        if is_op(user, "AveragePool"):
            user.attributes["count_include_pad"] = oir.AttrInt64("count_include_pad", 1)
        user.replace_input_with(0, node.inputs[0])
        model.graph.remove(node, safe=True)
        changed = True
    return changed


def spell_out_pads(model: oir.Model) -> bool:
    """Pad of some axes names all of them, in the order of the standard before it knew axes."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, "Pad") or operand(node, 3) is None:
            continue
        sizes, axes, shape = numbers(node, 1), numbers(node, 3), shape_of(node.inputs[0])
        if axes is None or sizes is None or shape is None:
            continue
        full = np.zeros((2, len(shape)), np.int64)
        full[:, [axis % len(shape) for axis in axes]] = np.array(sizes).reshape(2, -1)
        node.replace_input_with(1, Editor(node).constant(full.ravel(), "pads"))
        node.resize_inputs(3)
        changed = True
    return changed


def _spatial(node: oir.Node) -> list[int] | None:
    """Pads of the axes behind batch and channels, all before all after; None if the node does something else."""
    shape, sizes = shape_of(node.inputs[0]), numbers(node, 1)
    fill = operand(node, 2)
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
    if (
        not is_op(user, "Conv", "AveragePool", "MaxPool")
        or user.attributes.get_string("auto_pad", "NOTSET") != "NOTSET"
    ):
        return False
    if user.op_type == "Conv":
        return True
    plain = not user.attributes.get_int("ceil_mode", 0)
    return plain and (user.op_type == "AveragePool" or _never_negative(data))


def _never_negative(data: oir.Value | None) -> bool:
    producer = data.producer() if data is not None else None
    if is_op(producer, "Relu"):
        return True
    low = constant(operand(producer, 1)) if producer is not None and is_op(producer, "Clip") else None
    return low is not None and bool(np.all(low >= 0))
