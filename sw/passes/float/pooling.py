"""Pass: every spelling of a pooling over all pixels becomes GlobalAveragePool or one MaxPool."""

from __future__ import annotations

import onnx_ir as oir

from dovetail.sw.network.layout import Shape
from dovetail.sw.passes.float.edit import Editor, is_op, numbers, operand, shape_of


def unify_pooling(model: oir.Model) -> bool:
    """AveragePool and ReduceMean over the whole image, ReduceMean over tokens, GlobalMaxPool, ReduceMax."""
    changed = False
    for node in list(model.graph):
        shape = shape_of(node.inputs[0]) if node.inputs else None
        if shape is None:
            continue
        if is_op(node, "AveragePool"):
            changed |= _average(node, shape)
        elif is_op(node, "ReduceMean", "ReduceMax"):
            changed |= _reduce(node, shape)
        elif is_op(node, "GlobalMaxPool") and len(shape) == 4:
            edit = Editor(node)
            edit.replace(_pooled(edit, node.inputs[0], shape, "ReduceMax"))
            changed = True
    return changed


def _average(node: oir.Node, shape: Shape) -> bool:
    kernel = tuple(node.attributes.get_ints("kernel_shape", ()))
    padded = any(node.attributes.get_ints("pads", ())) or node.attributes.get_string("auto_pad", "").startswith("SAME")
    if kernel != shape[2:] or padded or shape_of(node.outputs[0]) != (*shape[:2], *[1] * len(kernel)):
        return False
    edit = Editor(node)
    edit.replace(edit.add("GlobalAveragePool", [node.inputs[0]], shape_of(node.outputs[0])))
    return True


def _reduce(node: oir.Node, shape: Shape) -> bool:
    """Over height and width, channels first or last, or over the tokens of a (1, tokens, features) tensor."""
    axes = numbers(node, 1, "axes")
    out = shape_of(node.outputs[0])
    if axes is None or out is None or operand(node, 0) is None:
        return False
    along = sorted(axis % len(shape) for axis in axes)
    edit, data = Editor(node), node.inputs[0]
    assert data is not None
    if len(shape) == 3 and along == [1]:
        image = (shape[0], shape[2], shape[1], 1)
        turned = edit.add("Transpose", [data], (shape[0], shape[2], shape[1]), {"perm": [0, 2, 1]})
        data = edit.reshape(turned, image)
    elif len(shape) == 4 and along == [1, 2]:
        image = (shape[0], shape[3], shape[1], shape[2])
        data = edit.add("Transpose", [data], image, {"perm": [0, 3, 1, 2]})
    elif len(shape) == 4 and along == [2, 3]:
        image = (shape[0], shape[1], shape[2], shape[3])
    else:
        return False
    pooled = _pooled(edit, data, image, node.op_type)
    edit.replace(pooled if shape_of(pooled) == out else edit.reshape(pooled, out))
    return True


def _pooled(edit: Editor, data: oir.Value | None, image: Shape, kind: str) -> oir.Value:
    out = (*image[:2], 1, 1)
    if kind == "ReduceMean":
        return edit.add("GlobalAveragePool", [data], out)
    return edit.add("MaxPool", [data], out, {"kernel_shape": list(image[2:])})
