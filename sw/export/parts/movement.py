"""Writer of data movement: Concat and Transpose where it is that, else a Gather of every byte from its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.export.parts.part import Part
from dovetail.sw.network import ir


def write_move(part: Part, node: ir.Move) -> None:
    """Concatenation along an axis as such, anything else by the position of every byte."""
    result = part.graph.tensors[node.outputs[0]]
    shapes = [part.graph.tensors[name].shape for name in node.inputs]
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    places = [ir.positions(shape) + start for shape, start in zip(shapes, starts, strict=False)]
    order = _moved(node, places, result.size).reshape(result.shape)
    values = [part.plain(name) for name in node.inputs]
    if (axis := _joined_axis(places, order)) is not None:
        part.values[result.name] = part.op("Concat", values, result.name, axis=axis)
        return
    if len(values) == 1 and (turn := _transposition(places[0], order)):
        part.values[result.name] = part.op("Transpose", values, result.name, perm=turn)
        return
    flat = [part.reshaped(value, shape, (-1,)) for value, shape in zip(values, shapes, strict=True)]
    joined = part.op("Concat", flat, f"{result.name}/flat", axis=0) if len(flat) > 1 else flat[0]
    index = part.constant(order, f"{result.name}/order")
    part.values[result.name] = part.op("Gather", [joined, index], result.name)


def _moved(node: ir.Move, places: Sequence[NDArray[np.int64]], size: int) -> NDArray[np.int64]:
    """Which element of all inputs, one after the other, each element of the result is."""
    result = np.empty(size, np.int64)
    for copy, source in zip(node.copies, places, strict=True):
        steps = [tuple(8 * step for step in steps) for steps in (copy.source_steps, copy.target_steps)]
        reading = np.lib.stride_tricks.as_strided(source.ravel()[copy.source :], copy.sizes, steps[0])
        writing = np.lib.stride_tricks.as_strided(result[copy.target :], copy.sizes, steps[1])
        writing[...] = reading
    return result


def _joined_axis(places: Sequence[NDArray[np.int64]], order: NDArray[np.int64]) -> int | None:
    """The axis along which concatenation gives the result."""
    for axis in range(order.ndim):
        rest = {part.shape[:axis] + part.shape[axis + 1 :] for part in places}
        fits = rest == {order.shape[:axis] + order.shape[axis + 1 :]}
        if fits and np.array_equal(np.concatenate(places, axis), order):
            return axis
    return None


def _transposition(before: NDArray[np.int64], after: NDArray[np.int64]) -> list[int]:
    """The permutation of axes that makes one of the other; empty if there is none."""
    steps = [stride // before.itemsize for stride in before.strides]
    perm: list[int] = []
    for axis, size in enumerate(after.shape):
        index = [0] * after.ndim
        index[axis] = 1
        step = int(after[tuple(index)]) if size > 1 else -1
        options = [k for k in range(before.ndim) if before.shape[k] == size and k not in perm]
        perm.append(next((k for k in options if size == 1 or steps[k] == step), -1))
    complete = sorted(perm) == list(range(before.ndim))
    return perm if complete and np.array_equal(before.transpose(perm), after) else []
