"""Passes on data movement: views get one form and move behind activations, regular Gathers become Slices."""

from __future__ import annotations

import numpy as np
import onnx_ir as oir

from dovetail.sw.frontend.onnx.operators.elementwise import FUNCTIONS
from dovetail.sw.passes.float.edit import Editor, constant, each, is_op, only_user, shape_of


@each("Reshape", "Squeeze", "Unsqueeze", "Flatten")
def unify_views(node: oir.Node) -> bool:
    """A view of known shape becomes a Reshape to constant sizes.

    Two in a row become one. A view that changes nothing is removed.
    """
    source, before, after = node.inputs[0], shape_of(node.inputs[0]), shape_of(node.outputs[0])
    if source is None or before is None or after is None:
        return False
    edit = Editor(node)
    if before == after:
        return edit.replace(source)
    first = source.producer()
    if is_op(first, "Reshape") and first.inputs[0] is not None:
        source = first.inputs[0]
    sizes = constant(node.inputs[1]) if node.op_type == "Reshape" else None
    if source is node.inputs[0] and sizes is not None and np.array_equal(sizes, after):
        return False
    return edit.replace(edit.reshape(source, after))


@each("Gather")
def slice_gathers(node: oir.Node) -> bool:
    """Gather by one index, or by several in equal steps forwards, becomes a Slice, with a Reshape if the axis vanishes.

    Transformers take heads or tokens out of a stack like this.
    """
    data, indices = node.inputs[0], constant(node.inputs[1])
    shape, out = shape_of(data), shape_of(node.outputs[0])
    if data is None or indices is None or shape is None or out is None or indices.ndim > 1 or not indices.size:
        return False
    axis = node.attributes.get_int("axis", 0) % len(shape)
    picked = [int(index) % shape[axis] for index in indices.ravel()]
    step = picked[1] - picked[0] if len(picked) > 1 else 1
    if step < 1 or picked != [*range(picked[0], picked[-1] + 1, step)]:
        return False
    edit = Editor(node)
    return edit.replace(edit.reshape(edit.cut(data, [axis], [picked[0]], [picked[-1] + 1], step), out))


@each("Add", "Sub", "Mul", "Div")
def sink_transposes(node: oir.Node) -> bool:
    """A Transpose before a sum or product with a constant moves behind it.

    The factors and offsets of channels then follow their convolution directly.
    """
    place = 1 if constant(node.inputs[0]) is not None else 0
    data, array = node.inputs[place], constant(node.inputs[1 - place])
    view = data.producer() if data is not None else None
    shape = shape_of(node.outputs[0])
    if data is None or array is None or shape is None or array.size == 1:
        return False
    if not is_op(view, "Transpose") or only_user(data) is not node or shape_of(data) != shape:
        return False
    perm = view.attributes.get_ints("perm", range(len(shape))[::-1])
    full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    node.replace_input_with(1 - place, Editor(node).constant(full.transpose(np.argsort(perm)), "operand"))
    return _sink(node, view, place)


@each(*FUNCTIONS)
def sink_views(node: oir.Node) -> bool:
    """A Reshape or Transpose before a function of one tensor moves behind it.

    The function then follows the operator that computes its operand.
    """
    source = node.inputs[0]
    view = source.producer() if source is not None else None
    if source is None or not is_op(view, "Reshape", "Transpose") or only_user(source) is not node:
        return False
    if any(constant(value) is None for value in node.inputs[1:] if value is not None):
        return False
    return _sink(node, view, 0)


def _sink(node: oir.Node, view: oir.Node, place: int) -> bool:
    """Swap a node and the view before it."""
    source, out, graph = view.inputs[0], node.outputs[0], node.graph
    assert source is not None and graph is not None
    moved = oir.Value(name=f"{out.name}/view", type=out.type, shape=out.shape)
    name, was_output = out.name, out.is_graph_output()
    out.replace_all_uses_with(moved, replace_graph_outputs=True)
    if was_output:
        out.name, moved.name = f"{name}/before", name
    node.replace_input_with(place, source)
    out.shape = source.shape
    inputs, attributes = [out, *view.inputs[1:]], view.attributes.values()
    graph.insert_after(node, oir.Node("", view.op_type, inputs, attributes, outputs=[moved], name=f"{view.name}/sunk"))
    graph.remove(view, safe=True)
    return True
