"""Pass: matrix products with constant weights and an offset become Gemm, all in one form."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, is_op, only_user, operand, shape_of


def unify_dense(model: oir.Model) -> bool:
    """MatMul and Add become Gemm (between Reshapes if there are more than two axes); Gemm is A @ B + C with B [K, N]
    and C [N] without factors."""
    changed = False
    for node in list(model.graph):
        if is_op(node, "Gemm"):
            changed |= _plain(node)
        elif is_op(node, "MatMul"):
            changed |= _with_offset(node)
    return changed


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
    add = only_user(node.outputs[0])
    weights, shape = constant(node.inputs[1]), shape_of(node.inputs[0])
    if add is None or not is_op(add, "Add") or weights is None or weights.ndim != 2 or shape is None or len(shape) < 2:
        return False
    offset = add.inputs[1] if add.inputs[0] is node.outputs[0] else add.inputs[0]
    bias, out = constant(offset), shape_of(add.outputs[0])
    depth, channels = weights.shape
    if bias is None or not _is_row(bias, channels) or out != (*shape[:-1], channels):
        return False
    edit = Editor(add)
    data = node.inputs[0]
    assert data is not None
    rows = prod(shape[:-1])
    flat = len(shape) == 2
    row = edit.constant(_row(bias, channels), "bias")
    inputs = [data if flat else edit.reshape(data, (rows, depth)), node.inputs[1], row]
    product = edit.add("Gemm", inputs, (rows, channels))
    edit.replace(product if flat else edit.reshape(product, out))
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return True
