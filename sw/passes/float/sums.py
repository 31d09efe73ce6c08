"""Pass: sums, minima and maxima of many tensors become chains of two."""

from __future__ import annotations

import onnx_ir as oir

from dovetail.sw.passes.float.edit import Editor, is_op, shape_of

_OF_TWO = {"Sum": "Add", "Min": "Min", "Max": "Max"}


def split_sums(model: oir.Model) -> bool:
    """Sum of one tensor is the tensor, of two an Add, of more a chain."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, *_OF_TWO) or (len(node.inputs) == 2 and node.op_type != "Sum"):
            continue
        edit = Editor(node)
        total = node.inputs[0]
        assert total is not None
        for value in node.inputs[1:]:
            shapes = shape_of(total), shape_of(value)
            shape = shapes[0] if shapes[0] == shapes[1] else None
            total = edit.add(_OF_TWO[node.op_type], [total, value], shape)
        edit.replace(total)
        changed = True
    return changed
