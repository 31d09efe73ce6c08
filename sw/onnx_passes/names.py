"""Pass: names for everything, and offsets that no two operators share."""

from __future__ import annotations

import onnx_ir as oir
import onnx_ir.passes.common as common

from dovetail.sw.onnx_passes.edit import Editor, constant, is_op, operand


def name_everything(model: oir.Model) -> None:
    """Unique names for nodes and values.

    An offset of several convolutions is copied for each: quantised, it has the scale of its operator's data.
    """
    for node in model.graph:
        bias = operand(node, 2) if is_op(node, "Conv", "ConvTranspose", "Gemm") else None
        array = constant(bias)
        if bias is not None and array is not None and len(bias.uses()) > 1:
            node.replace_input_with(2, Editor(node).constant(array, "bias"))
    for node in model.graph:
        node.name = node.name or node.outputs[0].name
    common.NameFixPass()(model)


def order_constants(model: oir.Model) -> None:
    """Initialisers in the order of their first use, so that equal networks are equal files."""
    graph = model.graph
    used = dict.fromkeys(value for node in graph for value in node.inputs if value is not None and value.is_initializer())
    for value in [*graph.initializers.values()]:
        graph.initializers.pop(value.name)
        if value not in used:
            used.setdefault(value)
    for value in used:
        if value.uses() or value.is_graph_output():
            graph.register_initializer(value)
