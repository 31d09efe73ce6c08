"""Pass: constant operands that repeat themselves become as small as broadcasting allows."""

from __future__ import annotations

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, is_op, shape_of


def shrink_operands(model: oir.Model) -> bool:
    """An operand of Add, Sub, Mul or Div that is the same along an axis keeps one entry of it; the last axis stays.

    Of one element, it loses its axes.
    """
    changed = False
    for node in list(model.graph):
        if not is_op(node, "Add", "Sub", "Mul", "Div"):
            continue
        for index, value in enumerate(node.inputs):
            array, other = constant(value), shape_of(node.inputs[1 - index])
            if array is None or constant(node.inputs[1 - index]) is not None or other != shape_of(node.outputs[0]):
                continue
            smaller = _shrunk(array)
            if smaller.shape != array.shape:
                node.replace_input_with(index, Editor(node).constant(smaller, "operand"))
                changed = True
    return changed


def _shrunk(array: Array) -> Array:
    for axis in range(array.ndim - 1):
        first = array.take([0], axis)
        if array.shape[axis] > 1 and np.array_equal(array, np.broadcast_to(first, array.shape)):
            array = first
    return array.reshape(()) if array.size == 1 else array
