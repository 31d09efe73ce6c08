"""Pass: names for everything, and offsets that no two operators share."""

from __future__ import annotations

import onnx_ir as oir
import onnx_ir.passes.common as common

from dovetail.sw.passes.float.edit import Editor, constant, is_op, operand


def name_everything(model: oir.Model) -> None:
    """Unique names for nodes and values.

    An offset of several convolutions is copied for each: quantised, it has the scale of its operator's data.
    """
    for node in model.graph:
        bias = operand(node, 2) if is_op(node, "Conv", "ConvTranspose", "Gemm") else None
        array = constant(bias)
        if bias is not None and array is not None and len(bias.uses()) > 1:
            node.replace_input_with(2, Editor(node).constant(array, "bias"))
    name_nodes(model)
    common.NameFixPass()(model)


def name_nodes(model: oir.Model) -> None:
    """A node without a name is named after its result."""
    for node in model.graph:
        node.name = node.name or node.outputs[0].name


def order_constants(model: oir.Model) -> None:
    """Initialisers in the order of their first use, so that equal networks are equal files."""
    graph = model.graph
    read = [value for node in graph for value in node.inputs if value is not None and value.is_initializer()]
    held = [value for value in graph.initializers.values() if value.is_graph_output()]
    graph.initializers.clear()
    for value in dict.fromkeys([*read, *held]):
        graph.register_initializer(value)
