"""Pass: PRelu with a slope for each channel becomes a product and a maximum, which the accelerator has.

With one slope for all it stays: it is a function of one element, hence a table.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.passes.float.edit import Editor, constant, is_op, shape_of


def spell_out_prelus(model: oir.Model) -> bool:
    """max(x, slope * x) for slopes up to 1, the minimum for those above, one after the other where both occur."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, "PRelu"):
            continue
        data, slopes, shape = node.inputs[0], constant(node.inputs[1]), shape_of(node.outputs[0])
        if data is None or slopes is None or shape is None or slopes.size == 1 or not np.all(np.isfinite(slopes)):
            continue
        edit, value = Editor(node), data
        if np.any(slopes < 1):
            value = _bent(edit, value, "Max", np.minimum(slopes, 1), shape)
        if np.any(slopes > 1):
            value = _bent(edit, value, "Min", np.maximum(slopes, 1), shape)
        edit.replace(value)
        changed = True
    return changed


def _bent(edit: Editor, data: oir.Value, kind: str, slopes: Array, shape: Shape) -> oir.Value:
    scaled = edit.add("Mul", [data, edit.constant(slopes, "slopes")], shape)
    return edit.add(kind, [data, scaled], shape)
