"""Pass: what depends on constants alone is computed once."""

from __future__ import annotations

from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.rewrite import rebuilt

MAX_ELEMENTS = 1 << 20
"""The largest result that becomes a constant of the program: repeating a small one is left to the accelerator."""


def fold_constants(graph: ir.Graph) -> ir.Graph:
    """Replace nodes all of whose operands are constants by their results."""
    known: dict[str, Array] = {}
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        computed = bool(node.inputs) and all(name in known for name in node.inputs)
        fits = graph.tensors[node.outputs[0]].size <= MAX_ELEMENTS
        if computed and fits and not isinstance(node, ir.Host):
            value = reference.execute(graph, node, [known[name] for name in node.inputs])[0]
            node = ir.Constant(name=node.name, inputs=(), outputs=node.outputs, value=value)
        if isinstance(node, ir.Constant):
            known[node.outputs[0]] = node.value
        nodes.append(node)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else rebuilt(graph, nodes)
