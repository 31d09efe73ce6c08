"""Pass: bilinear enlargement by a small whole factor becomes depthwise convolutions and DepthToSpace.

The pixels of the result fall into phases by their place between pixels of the source. A phase is a mean of 2 x 2 pixels
with the same weights everywhere; at the edges the outermost pixels are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Shape
from dovetail.sw.passes.float.edit import Editor, is_op, shape_of

_LARGEST = 4
"""A factor makes as many convolutions as its square."""
_CENTRES = ("half_pixel", "pytorch_half_pixel")


def unfold_bilinear(model: oir.Model) -> bool:
    """Resize of images, height and width by the same factor; not where corners are aligned."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, "Resize") or node.attributes.get_string("mode", "nearest") != "linear":
            continue
        data, shape, out = node.inputs[0], shape_of(node.inputs[0]), shape_of(node.outputs[0])
        if data is None or shape is None or out is None or len(shape) != 4:
            continue
        where = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
        factor = out[2] // shape[2]
        if not 2 <= factor <= _LARGEST or out != (*shape[:2], shape[2] * factor, shape[3] * factor):
            continue
        if where not in (*_CENTRES, "asymmetric"):
            continue
        _replace(Editor(node), data, out, factor, centred=where in _CENTRES)
        changed = True
    return changed


def _replace(edit: Editor, data: oir.Value, out: Shape, factor: int, *, centred: bool) -> None:
    channels, height, width = out[1], out[2] // factor, out[3] // factor
    phase = np.arange(factor)
    places = (phase + 0.5) / factor + 0.5 if centred else phase / factor
    for axis in (2, 3):
        data = _repeat_edges(edit, data, axis, before=centred)
    results = []
    for row, column in product(places, places):
        corner = int(row), int(column)
        window = _part(edit, data, corner, (corner[0] + height + 1, corner[1] + width + 1))
        kernel = np.outer(np.array([1 - row % 1, row % 1]), np.array([1 - column % 1, column % 1]))
        weights = edit.constant(np.tile(kernel, (channels, 1, 1, 1)).astype(np.float32), "weights")
        form = {"group": channels, "kernel_shape": [2, 2]}
        results.append(edit.add("Conv", [window, weights], (out[0], channels, height, width), form))
    joined = edit.add("Concat", results, (out[0], channels * factor**2, height, width), {"axis": 1})
    edit.replace(edit.add("DepthToSpace", [joined], out, {"blocksize": factor, "mode": "DCR"}))


def _repeat_edges(edit: Editor, data: oir.Value, axis: int, *, before: bool) -> oir.Value:
    """The last row or column once more, and the first one if asked for."""
    shape = shape_of(data)
    assert shape is not None
    first, last = ([0, 0], [*shape[2:]]), ([0, 0], [*shape[2:]])
    first[1][axis - 2], last[0][axis - 2] = 1, shape[axis] - 1
    parts = [data, _part(edit, data, *last)]
    if before:
        parts.insert(0, _part(edit, data, *first))
    whole = (*shape[:axis], shape[axis] + len(parts) - 1, *shape[axis + 1 :])
    return edit.add("Concat", parts, whole, {"axis": axis})


def _part(edit: Editor, data: oir.Value, starts: Sequence[int], ends: Sequence[int]) -> oir.Value:
    """Rows and columns from `starts` to before `ends`."""
    shape = shape_of(data)
    assert shape is not None
    sizes = (end - start for start, end in zip(starts, ends, strict=True))
    return edit.cut(data, (2, 3), starts, ends, (*shape[:2], *sizes))
