"""Pass: arithmetic on one tensor alone becomes a table."""

from __future__ import annotations

import numpy as np

from dovetail.sw.network import ir, reference
from dovetail.sw.passes.integer.functions import CODES, Values, applied, function_of
from dovetail.sw.passes.integer.rewrite import makers, rebuilt


def tabulate(graph: ir.Graph) -> ir.Graph:
    """Turn an element-wise node whose operands are functions of one tensor into a table of that tensor.

    ``x * sigmoid(x)`` is one, and so is a sum with a constant all of whose elements are equal. One operand is read in
    place of two, and the functions are dropped if nothing else reads them.
    """
    made = makers(graph)
    nodes = [_tabulated(graph, made, node) if isinstance(node, ir.Elementwise) else node for node in graph.nodes]
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else rebuilt(graph, nodes)


def _tabulated(graph: ir.Graph, made: dict[str, ir.Node], node: ir.Elementwise) -> ir.Node:
    (a, left), (b, right) = (_expressed(graph, made, name) for name in node.inputs)
    shape = graph.tensors[node.outputs[0]].shape
    variable = a or b
    if variable is None or b not in (None, variable) or graph.tensors[variable].shape != shape:
        return node
    values = reference.elementwise(node, left, right)
    return ir.Table(name=node.name, inputs=(variable,), outputs=node.outputs, values=values, kind=node.op)


def _expressed(graph: ir.Graph, made: dict[str, ir.Node], name: str) -> tuple[str | None, Values]:
    """(tensor, table) with which a tensor is a function of another; the tensor is None if it is one constant."""
    node = made.get(name)
    if isinstance(node, ir.Constant) and np.all(node.value == node.value.flat[0]):
        return None, np.full(len(CODES), node.value.flat[0])
    values = None if node is None else function_of(graph.tensors, node)
    if node is None or values is None:
        return name, CODES
    variable, inner = _expressed(graph, made, node.inputs[0])
    return variable, applied(values, inner)
