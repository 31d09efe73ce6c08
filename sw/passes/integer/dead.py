"""Pass: nodes whose results nobody uses are left out."""

from __future__ import annotations

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.rewrite import rebuilt


def drop_dead(graph: ir.Graph) -> ir.Graph:
    """Leave out nodes that no network output and no state depends on."""
    wanted = set(graph.wanted)
    nodes: list[ir.Node] = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else rebuilt(graph, reversed(nodes))
