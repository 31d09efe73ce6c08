"""Functions of one int8 element as tables of 256 values: what a node makes of each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.network import ir, reference
from dovetail.sw.network.elementwise import BYTES

Values = NDArray[np.int8]

CODES: Values = BYTES
"""Every value of an element, in the order of a table."""


def clamps(node: ir.Node) -> bool:
    """Whether a node clamps its result at no cost. What an extension's instruction does with bounds is its own."""
    if isinstance(node, ir.Elementwise):
        return node.instruction is None
    return isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul | ir.Rescale | ir.AvgPool | ir.MaxPool | ir.Mean)


def applied(values: Values, to: Values) -> Values:
    """A table's results for an array of elements."""
    result: Values = values[to.astype(np.int16) + 128]
    return result


def function_of(tensors: Mapping[str, ir.Tensor], node: ir.Node) -> Values | None:
    """The table of a node that is a function of one element and keeps its operand's shape; None for other nodes."""
    match node:
        case ir.Table():
            return node.values
        case ir.Rescale():
            return reference.rescale(node, CODES)
        case ir.MaxPool() | ir.AvgPool() if node.kernel == node.stride == (1, 1) and not any(node.pads):
            if tensors[node.inputs[0]].shape == tensors[node.outputs[0]].shape:
                return np.clip(CODES, node.lo, node.hi)
    return None


def range_of(node: ir.Node | None) -> tuple[int, int]:
    """The clamp of a node's result."""
    match node:
        case ir.Conv() | ir.Depthwise() | ir.MatMul() | ir.Mean() | ir.Rescale():
            return node.requant.lo, node.requant.hi
        case ir.Elementwise(instruction=None):
            return node.params.lo, node.params.hi
        case ir.AvgPool() | ir.MaxPool():
            return node.lo, node.hi
    return -128, 127


def clamp_within(values: Values, lo: int, hi: int) -> tuple[int, int] | None:
    """The bounds to which a function clamps elements of ``lo..hi``; None if it does anything else with them."""
    part = values[lo + 128 : hi + 129]
    if not part.size:
        return None
    bounds = int(part[0]), int(part[-1])
    clamped = bounds[0] <= bounds[1] and np.array_equal(part, np.clip(CODES[lo + 128 : hi + 129], *bounds))
    return bounds if clamped else None
