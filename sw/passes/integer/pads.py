"""Pass: a padding layer becomes the padding of what reads it."""

from __future__ import annotations

from dataclasses import replace

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.functions import range_of
from dovetail.sw.passes.integer.rewrite import makers, rebuilt

MAX_PAD = 255
"""The most padding that a window can have on the accelerator."""


def fold_pads(graph: ir.Graph) -> ir.Graph:
    """Fold `Pad` nodes into the convolutions, poolings and paddings that read them.

    A convolution pads with its input zero point and a maximum ignores its padding, so only padding with that zero
    point, or with what is below every element, folds; an average counts padding of any value. Windows of a maximum must
    still touch the input.
    """
    made = makers(graph)
    nodes = []
    for node in graph.nodes:
        nodes.append(_folded(node, made))
        made.update(dict.fromkeys(node.outputs, nodes[-1]))
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else rebuilt(graph, nodes)


def _folded(node: ir.Node, made: dict[str, ir.Node]) -> ir.Node:
    if not isinstance(node, ir.Conv | ir.Depthwise | ir.MaxPool | ir.AvgPool | ir.Pad):
        return node
    pad = made.get(node.inputs[0])
    if not isinstance(pad, ir.Pad):
        return node
    top, left, bottom, right = (mine + more for mine, more in zip(node.pads, pad.pads, strict=True))
    if not isinstance(node, ir.Pad) and max(top, left, bottom, right) > MAX_PAD:
        return node
    if isinstance(node, ir.MaxPool) and (max(top, bottom) >= node.kernel[0] or max(left, right) >= node.kernel[1]):
        return node
    merged = replace(node, inputs=pad.inputs, pads=(top, left, bottom, right))
    match merged:
        case ir.Pad():
            fits = merged.value == pad.value
        case ir.Conv() | ir.Depthwise():
            fits = merged.requant.zero_in == pad.value
        case ir.MaxPool():
            fits = pad.value <= range_of(made.get(pad.inputs[0]))[0]
        case ir.AvgPool():
            fits = not any(node.pads) or merged.counted == pad.value
            merged = replace(merged, counted=pad.value)
    return merged if fits else node
