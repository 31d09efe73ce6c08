"""Pass: Gather with constant indices of regular steps becomes Slice, and Reshape where it drops the axis."""

from __future__ import annotations

import numpy as np
import onnx_ir as oir

from dovetail.sw.passes.float.edit import Editor, constant, is_op, shape_of


def slice_gathers(model: oir.Model) -> bool:
    """One index, or several in equal steps forwards: what transformers take from a stack of heads or tokens."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, "Gather"):
            continue
        data, indices = node.inputs[0], constant(node.inputs[1])
        shape, out = shape_of(data), shape_of(node.outputs[0])
        if data is None or indices is None or shape is None or out is None or indices.ndim > 1 or not indices.size:
            continue
        axis = node.attributes.get_int("axis", 0) % len(shape)
        picked = indices.ravel().astype(np.int64) % shape[axis]
        steps = np.unique(np.diff(picked)) if picked.size > 1 else np.ones(1, np.int64)
        if steps.size != 1 or steps[0] < 1:
            continue
        edit, kept = Editor(node), (*shape[:axis], picked.size, *shape[axis + 1 :])
        cut = edit.cut(data, [axis], [int(picked[0])], [int(picked[-1]) + 1], kept, [int(steps[0])])
        edit.replace(cut if kept == out else edit.reshape(cut, out))
        changed = True
    return changed
