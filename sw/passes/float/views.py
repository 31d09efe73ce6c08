"""Passes: Reshape, Squeeze, Unsqueeze and Flatten in one form, and views behind the activations they come before."""

from __future__ import annotations

import numpy as np
import onnx_ir as oir

from dovetail.sw.frontend.onnx.elementwise import FUNCTIONS
from dovetail.sw.passes.float.edit import Editor, constant, is_op, only_user, redirect, shape_of

_VIEWS = ("Reshape", "Squeeze", "Unsqueeze", "Flatten")


def unify_views(model: oir.Model) -> bool:
    """Views of known shape are a Reshape to constant sizes; of two in a row one is left, of one that changes nothing
    none."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, *_VIEWS):
            continue
        before, after = shape_of(node.inputs[0]), shape_of(node.outputs[0])
        source = node.inputs[0]
        if before is None or after is None or source is None:
            continue
        if before == after:
            redirect(node.outputs[0], source)
            model.graph.remove(node, safe=True)
            changed = True
            continue
        first = source.producer()
        if first is not None and is_op(first, "Reshape") and first.inputs[0] is not None:
            source = first.inputs[0]
        if source is not node.inputs[0] or not _is_plain(node, after):
            edit = Editor(node)
            edit.replace(edit.reshape(source, after))
            changed = True
    return changed


def _is_plain(node: oir.Node, after: tuple[int, ...]) -> bool:
    sizes = constant(node.inputs[1]) if node.op_type == "Reshape" else None
    return sizes is not None and np.array_equal(sizes, after)


def sink_transposes(model: oir.Model) -> bool:
    """A Transpose in front of a sum or product with a constant goes behind it: the factors and offsets of channels
    follow the convolution that an exporter has turned to channels last."""
    changed = False
    for node in list(model.graph):
        if not is_op(node, "Add", "Sub", "Mul", "Div") or len(node.inputs) != 2:
            continue
        place = 1 if constant(node.inputs[0]) is not None else 0
        data, array = node.inputs[place], constant(node.inputs[1 - place])
        view = data.producer() if data is not None else None
        shape = shape_of(node.outputs[0])
        if data is None or array is None or view is None or shape is None or array.size == 1:
            continue
        perm = view.attributes.get_ints("perm", range(len(shape))[::-1])
        if not is_op(view, "Transpose") or only_user(data) is not node or shape_of(data) != shape or perm is None:
            continue
        full = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
        node.replace_input_with(1 - place, Editor(node).constant(full.transpose(np.argsort(perm)), "operand"))
        _sink(model.graph, node, view, place)
        changed = True
    return changed


def sink_views(model: oir.Model) -> bool:
    """A Reshape or Transpose in front of a function of one tensor goes behind it, so that the function follows what
    computes its operand."""
    changed = False
    for node in list(model.graph):
        source = node.inputs[0] if node.inputs else None
        view = source.producer() if source is not None and is_op(node, *FUNCTIONS) else None
        if view is None or source is None or not is_op(view, "Reshape", "Transpose") or only_user(source) is not node:
            continue
        if any(constant(value) is None for value in node.inputs[1:] if value is not None):
            continue
        _sink(model.graph, node, view, 0)
        changed = True
    return changed


def _sink(graph: oir.Graph, node: oir.Node, view: oir.Node, place: int) -> None:
    """Let a node read what a view in front of it reads, and others a view of its result."""
    source, out = view.inputs[0], node.outputs[0]
    assert source is not None
    moved = oir.Value(name=f"{out.name}/view", type=out.type, shape=out.shape)
    name, was_output = out.name, out.is_graph_output()
    out.replace_all_uses_with(moved, replace_graph_outputs=True)
    if was_output:
        out.name, moved.name = f"{name}/before", name
    node.replace_input_with(place, source)
    out.shape = source.shape
    inputs = [out, *view.inputs[1:]]
    attributes = view.attributes.values()
    again = oir.Node("", view.op_type, inputs, attributes, outputs=[moved], name=f"{view.name}/sunk")
    graph.insert_after(node, again)
    graph.remove(view, safe=True)
