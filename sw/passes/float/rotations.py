"""Pass on rotary positions: turning a head by its position's angles becomes one product with a matrix.

Spelled out, ``x * cos + turned(x) * sin`` rounds three times between integers, the product once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as oir
from numpy.typing import NDArray

from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, is_op, numbers, shape_of

MOST_ENTRIES = 1 << 20
"""Of all positions' matrices. They are the head's size as large as the sines, and with this many 4 MiB in float."""

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Picked:
    """A row of a constant ``table`` [positions, head], picked by ``index``."""

    table: Array
    index: oir.Value


@dataclass(frozen=True)
class Rotation:
    """``data * cosine + turned(data) * sine``.

    Parameters
    ----------
    data: what is turned; its last axis is a head.
    cosine, sine: rows of two tables of one shape, both picked by the same index.
    places: for each element of a turned head the one that it was, counted from 1, negative if its sign changes.
    """

    data: oir.Value
    cosine: Picked
    sine: Picked
    places: Places

    def matrices(self) -> Array:
        """[positions, head * head]: each row a matrix that is multiplied from the right."""
        count, head = self.cosine.table.shape
        result = np.zeros((count, head, head), self.cosine.table.dtype)
        columns = np.arange(head)
        result[:, columns, columns] += self.cosine.table
        result[:, np.abs(self.places) - 1, columns] += np.sign(self.places) * self.sine.table
        return result.reshape(count, head * head)


def join_rotations(model: oir.Model) -> bool:
    """Rotary positions of one token become a matrix product, whose matrix is picked from a table by the position.

    Only where all heads turn alike, and the table has at most `MOST_ENTRIES` entries.
    """
    matrices: dict[tuple[oir.Value, bytes], oir.Value] = {}
    changed = False
    for node in list(model.graph):
        found = _rotation(node) if is_op(node, "Add") else None
        if found is not None:
            changed |= _replace(node, found, matrices)
    return changed


def _replace(node: oir.Node, rotation: Rotation, matrices: dict[tuple[oir.Value, bytes], oir.Value]) -> bool:
    edit, shape, index = Editor(node), shape_of(rotation.data), rotation.cosine.index
    assert shape is not None
    head, table = shape[-1], rotation.matrices()
    key = index, table.tobytes()
    if key not in matrices:
        picked = (*(shape_of(index) or ()), head * head)
        row = edit.add("Gather", [edit.constant(table, "matrices"), index], picked, {"axis": 0})
        matrices[key] = edit.reshape(row, (head, head))
    rows = edit.reshape(rotation.data, (int(np.prod(shape[:-1])), head))
    product = edit.add("MatMul", [rows, matrices[key]], shape_of(rows))
    return edit.replace(edit.reshape(product, shape))


def _rotation(node: oir.Node) -> Rotation | None:
    """What a sum computes, if it is a rotation."""
    products = [value.producer() for value in node.inputs if value is not None]
    if len(products) != 2 or not all(is_op(each, "Mul") for each in products):
        return None
    for straight, across in (products, products[::-1]):
        for data, cosine in _factors(straight):
            for turned, sine in _factors(across):
                found = _checked(data, cosine, turned, sine)
                if found is not None and shape_of(node.outputs[0]) == shape_of(data):
                    return found
    return None


def _factors(product: oir.Node | None) -> list[tuple[oir.Value, Picked]]:
    """Operands of a product of which the second is picked from a table."""
    ends = [value for value in product.inputs if value is not None] if product is not None else []
    pairs = [(one, _picked(other)) for one, other in zip(ends, ends[::-1], strict=True)]
    return [(one, picked) for one, picked in pairs if picked is not None]


def _picked(value: oir.Value) -> Picked | None:
    """The one row of a table that a value is a view of."""
    node = value.producer()
    if is_op(node, "Reshape") and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if not is_op(node, "Gather") or node.attributes.get_int("axis", 0) != 0:
        return None
    index = node.inputs[1]
    table, count, shape = constant(node.inputs[0]), shape_of(index), shape_of(value)
    if table is None or table.ndim != 2 or index is None or count is None or np.prod(count) != 1 or shape is None:
        return None
    return Picked(table, index) if shape[-1:] == table.shape[1:] else None


def _checked(data: oir.Value, cosine: Picked, turned: oir.Value, sine: Picked) -> Rotation | None:
    """The rotation, if it is one, of all heads alike."""
    shape, places = shape_of(data), _places(turned, data)
    if not shape or places is None or places.shape != shape or cosine.index is not sine.index:
        return None
    head, tables = shape[-1], cosine.table.shape
    if tables != (len(cosine.table), head) or tables != sine.table.shape or cosine.table.size * head > MOST_ENTRIES:
        return None
    rows = places.reshape(-1, head)
    firsts = head * np.arange(len(rows))[:, None]
    rows = np.where(rows > 0, rows - firsts, rows + firsts)
    if head == 1 or np.any(rows != rows[0]) or not np.array_equal(np.sort(np.abs(rows[0])), np.arange(1, head + 1)):
        return None
    return Rotation(data, cosine, sine, rows[0])


def _places(value: oir.Value | None, data: oir.Value) -> Places | None:
    """For each element of a value the one of ``data`` that it is, counted from 1, negative if its sign has changed;
    None if it is anything else."""
    shape = shape_of(value)
    if value is data and shape is not None:
        return np.arange(1, int(np.prod(shape)) + 1).reshape(shape)
    node = value.producer() if value is not None else None
    if value is None or shape is None or not is_op(node, "Neg", "Concat", "Split", "Slice", "Reshape"):
        return None
    parts = [_places(each, data) for each in (node.inputs if node.op_type == "Concat" else node.inputs[:1])]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    match node.op_type:
        case "Neg":
            return -known[0]
        case "Concat":
            return np.concatenate(known, node.attributes["axis"].as_int())
        case "Split":
            axis = node.attributes.get_int("axis", 0)
            sizes = [(shape_of(out) or (0,) * len(shape))[axis] for out in node.outputs]
            return np.split(known[0], np.cumsum(sizes)[:-1], axis)[value.index() or 0]
        case "Slice":
            return _sliced(node, known[0])
        case _:
            return known[0].reshape(shape)


def _sliced(node: oir.Node, places: Places) -> Places | None:
    starts, ends, axes, steps = (numbers(node, index) for index in range(1, 5))
    if starts is None or ends is None or (steps is not None and min(steps) < 1):
        return None
    cuts = [slice(None)] * places.ndim
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        cuts[axes[index] if axes is not None else index] = slice(start, end, steps[index] if steps is not None else 1)
    return places[tuple(cuts)]
