"""Pass: an explicit padding layer in front of a convolution becomes the convolution's own padding."""

from __future__ import annotations

from dataclasses import replace

from dovetail.sw import graph as ir


def fold_pads(graph: ir.Graph) -> ir.Graph:
    """Fold `Pad` nodes into the convolutions that read them, and drop those nobody reads any more.

    A convolution pads with its input zero point, so only padding with that value folds.
    """
    pads = {node.outputs[0]: node for node in graph.nodes if isinstance(node, ir.Pad)}
    if not pads:
        return graph
    nodes = [_folded(node, pads) for node in graph.nodes]
    wanted = {port.tensor for port in graph.outputs} | {name for node in nodes for name in node.inputs}
    dead = {name for name in pads if name not in wanted}
    return replace(
        graph,
        nodes=tuple(node for node in nodes if node.outputs[0] not in dead),
        tensors={name: tensor for name, tensor in graph.tensors.items() if name not in dead},
    )


def _folded(node: ir.Node, pads: dict[str, ir.Pad]) -> ir.Node:
    if not isinstance(node, ir.Conv | ir.Depthwise) or node.inputs[0] not in pads:
        return node
    pad = pads[node.inputs[0]]
    if pad.value != node.requant.zero_in:
        return node
    top, left, bottom, right = (mine + more for mine, more in zip(node.pads, pad.pads, strict=True))
    return replace(node, inputs=pad.inputs, pads=(top, left, bottom, right))
