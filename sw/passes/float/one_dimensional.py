"""Pass: convolutions and poolings of one dimension become those of two, of height one."""

from __future__ import annotations

import onnx_ir as oir

from dovetail.sw.passes.float.edit import Editor, constant, is_op, operand, shape_of

_PAIRS = ("kernel_shape", "strides", "dilations")


def lift_one_dimensional(model: oir.Model) -> bool:
    """Conv, MaxPool, AveragePool and the global poolings of (batch, channels, length) between two Reshapes."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, "Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"):
            continue
        source, out = node.inputs[0], shape_of(node.outputs[0])
        shape = shape_of(source)
        weights = constant(operand(node, 1)) if node.op_type == "Conv" else None
        if source is None or shape is None or out is None or len(shape) != 3 or len(node.outputs) > 1:
            continue
        if node.op_type == "Conv" and weights is None:
            continue
        edit = Editor(node)
        inputs = [edit.reshape(source, (*shape[:2], 1, shape[2])), *node.inputs[1:]]
        if weights is not None:
            inputs[1] = edit.constant(weights[:, :, None, :], "weights")
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        for name in _PAIRS:
            if name in attributes:
                attributes[name] = [1, *attributes[name]]
        if "pads" in attributes:
            before, after = attributes["pads"]
            attributes["pads"] = [0, before, 0, after]
        lifted = edit.add(node.op_type, inputs, (*out[:2], 1, out[2]), attributes)
        edit.replace(edit.reshape(lifted, out))
        changed = True
    return changed
