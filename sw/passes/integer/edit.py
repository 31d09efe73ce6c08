"""What passes share: who uses what, and a graph with other nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dovetail.sw.network import ir
from dovetail.sw.network.layout import Shape
from dovetail.sw.network.names import unused


def makers(graph: ir.Graph) -> dict[str, ir.Node]:
    """The node that writes each tensor; network inputs and states have none."""
    return {name: node for node in graph.nodes for name in node.outputs}


def private(graph: ir.Graph) -> set[str]:
    """Tensors that one node writes and only one operand of one node reads: their bytes may change unnoticed."""
    reads = Counter(name for node in graph.nodes for name in node.inputs)
    seen = {*graph.given, *graph.wanted}
    return {name for name, count in reads.items() if count == 1 and name not in seen}


def rebuilt(
    graph: ir.Graph,
    nodes: Iterable[ir.Node],
    renamed: Mapping[str, str] | None = None,
    added: Iterable[ir.Tensor] = (),
) -> ir.Graph:
    """The graph with other nodes, checked.

    Parameters
    ----------
    renamed: tensor -> tensor that is read in its place, also by network outputs and states; chains are followed.
    added: tensors that the graph does not have yet, or has in another form.

    Tensors that no node mentions any more are left out; not those that none has mentioned, which others are parts of.
    """
    names = renamed or {}

    def now(name: str) -> str:
        while name in names:
            name = names[name]
        return name

    changed = tuple(
        replace(node, inputs=tuple(map(now, node.inputs))) if any(name in names for name in node.inputs) else node
        for node in nodes
    )
    outputs = tuple(replace(port, tensor=now(port.tensor)) for port in graph.outputs)
    states = tuple(replace(state, written=now(state.written)) for state in graph.states)
    mentioned, used = (
        {name for node in those for name in (*node.inputs, *node.outputs)} for those in (graph.nodes, changed)
    )
    graph = replace(graph, outputs=outputs, states=states)
    used |= {*graph.given, *graph.wanted} | (graph.tensors.keys() - mentioned)
    tensors = {**graph.tensors, **{tensor.name: tensor for tensor in added}}
    kept = {name: tensor for name, tensor in tensors.items() if name in used}
    return replace(graph, nodes=changed, tensors=kept).check()


def with_others(graph: ir.Graph, others: Mapping[str, Iterable[ir.Node]], added: Iterable[ir.Tensor]) -> ir.Graph:
    """The graph with other nodes in the place of some, by the names of these; the graph itself if there are none.
    ``added``: as of `rebuilt`."""
    if not others:
        return graph
    return rebuilt(graph, (one for node in graph.nodes for one in others.get(node.name, (node,))), added=added)


class Names:
    """New tensors and node names that the graph does not have yet."""

    def __init__(self, graph: ir.Graph) -> None:
        self.taken = set(graph.tensors) | {node.name for node in graph.nodes}

    def fresh(self, wanted: str) -> str:
        """`wanted`, with a number behind it if it is taken."""
        name = unused(wanted, self.taken)
        self.taken.add(name)
        return name

    def like(self, tensor: ir.Tensor, shape: Shape, wanted: str) -> ir.Tensor:
        """A tensor of another name and shape with the same quantisation."""
        return replace(tensor, name=self.fresh(wanted), shape=shape)
