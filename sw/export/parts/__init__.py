"""Nodes of a graph as ONNX models that ONNX Runtime computes with its integer kernels.

A model's inputs and outputs are int8, as the accelerator's memory has them; inside, activations are uint8 (128 higher),
for which ONNX Runtime has an integer kernel of every quantised operator. Tensors keep the graph's order, channels last;
operators that want channels first have transpositions around them.
"""

from __future__ import annotations

from dovetail.sw.errors import NetworkError
from dovetail.sw.export.parts.host_nodes import write_host
from dovetail.sw.export.parts.movement import write_move
from dovetail.sw.export.parts.nodes import WRITERS
from dovetail.sw.export.parts.part import Part
from dovetail.sw.network import ir


def write(part: Part, node: ir.Node) -> None:
    """Append a node whose inputs are there.

    Raises
    ------
    NetworkError
        It has no form in ONNX.
    """
    if isinstance(node, ir.Host):
        write_host(part, node)
    elif isinstance(node, ir.Move):
        write_move(part, node)
    elif writer := WRITERS.get(type(node)):
        writer(part, node)
    else:
        raise NetworkError(f"{node.name!r}: {node.op} has no form in ONNX")
