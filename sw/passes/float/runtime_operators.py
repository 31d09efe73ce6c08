"""Pass: operators of ONNX Runtime's own domain become standard ones where there are such."""

from __future__ import annotations

import onnx_ir as oir

from dovetail.sw.passes.float.edit import Editor, operand, shape_of

_GELU = {"Gelu": "none", "BiasGelu": "none", "FastGelu": "tanh"}


def standardise(model: oir.Model) -> bool:
    """Gelu, BiasGelu and FastGelu, as transformer optimisers write them."""
    changed = False
    for node in list(model.graph):
        if node.domain != "com.microsoft" or node.op_type not in _GELU:
            continue
        edit = Editor(node)
        data, bias = node.inputs[0], operand(node, 1)
        assert data is not None
        shape = shape_of(data)
        if bias is not None:
            data = edit.add("Add", [data, bias], shape)
        edit.replace(edit.add("Gelu", [data], shape, {"approximate": _GELU[node.op_type]}))
        changed = True
    return changed
