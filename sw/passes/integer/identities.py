"""Pass: nodes that change no byte are left out."""

from __future__ import annotations

import numpy as np

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.copies import in_place
from dovetail.sw.passes.integer.functions import CODES, function_of, range_of
from dovetail.sw.passes.integer.rewrite import makers, rebuilt


def drop_identities(graph: ir.Graph) -> ir.Graph:
    """Leave out functions that map every value to itself, padding by nothing, reshapes to the same shape; movement
    that moves nothing becomes a reshape, and a reshape of a reshape one."""
    made = makers(graph)
    renamed: dict[str, str] = {}
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        source = _same_bytes(graph, made, node)
        if source is None:
            nodes.append(node)
            continue
        below = made.get(source)
        if isinstance(below, ir.Reshape):
            source = below.inputs[0]
        out = graph.tensors[node.outputs[0]]
        if graph.tensors[source].shape == out.shape:
            renamed[out.name] = source
        elif isinstance(node, ir.Reshape) and node.inputs == (source,):
            nodes.append(node)
        else:
            nodes.append(ir.Reshape(name=node.name, inputs=(source,), outputs=node.outputs, shape=out.shape))
    same = len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    return graph if same else rebuilt(graph, nodes, renamed)


def _same_bytes(graph: ir.Graph, made: dict[str, ir.Node], node: ir.Node) -> str | None:
    """The operand whose bytes a node's result has, all of them in their order; None if it has others."""
    if isinstance(node, ir.Host | ir.Constant):
        return None
    source, out = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    match node:
        case ir.Reshape():
            return source.name
        case ir.Pad() if not any(node.pads):
            return source.name
        case ir.Move():
            alone = set(node.inputs) == {source.name} and source.size == out.size
            return source.name if alone and all(in_place(copy) for copy in node.copies) else None
    values = function_of(graph.tensors, node)
    if values is None:
        return None
    lo, hi = range_of(made.get(source.name))
    part = slice(lo + 128, hi + 129)
    return source.name if np.array_equal(values[part], CODES[part]) else None
