"""Passes that fold padding and orders of channels into convolutions and poolings."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.edit import Names, makers, private, rebuilt, with_others
from dovetail.sw.passes.integer.elementwise import range_of

MAX_PAD = MAX_TAPS = 255
"""The most padding that a window can have on the accelerator, and the most pixels of a kernel's row or column."""
LANES = 8
"""Input lanes by which forms of a window are compared."""


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


def fold_strides(graph: ir.Graph) -> ir.Graph:
    """Give convolutions along a line another form where windows begin some pixels apart: these, or as many of them as
    divide the line, become the channels of one pixel. A spectrum of 256 samples of a line of 832, 128 apart, is a
    kernel of 4 pixels of 64 channels then. That fills the array, and kernels may have 255 pixels at most.

    Only where the array needs fewer steps, or else could not have the kernel.
    """
    names, others, added = Names(graph), dict[str, list[ir.Node]](), list[ir.Tensor]()
    for node in graph.nodes:
        if isinstance(node, ir.Conv) and (form := _in_parts(graph, node, names)):
            view, tensor, conv = form
            others[node.name] = [view, conv]
            added.append(tensor)
    return with_others(graph, others, added)


def _in_parts(graph: ir.Graph, node: ir.Conv, names: Names) -> tuple[ir.Reshape, ir.Tensor, ir.Conv] | None:
    """A view of the operand, its tensor, and the convolution that reads it; None if another form does not suit."""
    source, out = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    batch, *extent, channels = source.nhwc
    along = 0 if extent[1] == 1 else 1
    across = (*node.pads[1 - along :: 2], node.kernel[1 - along] - 1, extent[1 - along] - 1)
    if any(across) or node.groups > 1 or node.rest is not None or node.dilation[along] > 1:
        return None
    length, taps, begin = extent[along], node.kernel[along], node.pads[along]
    part = gcd(node.stride[along], length, begin)
    parts, stride, lead, count = length // part, node.stride[along] // part, begin // part, out.nhwc[1 + along]
    kernel = ceil_div(taps, part)
    tail = max((count - 1) * stride + kernel - lead - parts, 0)
    before = taps * ceil_div(channels, LANES) if along == 0 else ceil_div(taps * channels, LANES)
    fewer = kernel * ceil_div(part * channels, LANES) < before or taps > MAX_TAPS
    if part == 1 or tail > MAX_PAD or not fewer or (lead + parts + tail - kernel) // stride + 1 != count:
        return None

    def of_line(size: int, other: int) -> tuple[int, int]:
        return (size, other) if along == 0 else (other, size)

    shape = (batch, *of_line(parts, 1), part * channels)
    tensor = names.like(source, shape, f"{node.name}/parts")
    name = names.fresh(f"{node.name}/view")
    view = ir.Reshape(name=name, inputs=(source.name,), outputs=(tensor.name,), shape=shape)
    weights = node.weights.reshape(len(node.weights), taps, channels)
    weights = np.pad(weights, ((0, 0), (0, kernel * part - taps), (0, 0)))
    conv = replace(
        node,
        inputs=(tensor.name,),
        weights=weights.reshape(len(weights), *of_line(kernel, 1), part * channels),
        stride=of_line(stride, 1),
        pads=(*of_line(lead, 0), *of_line(tail, 0)),
    )
    return view, tensor, conv


def permute_weights(graph: ir.Graph) -> ir.Graph:
    """Leave out movement that orders the channels of every pixel in one way: a shuffle in front of a convolution or
    behind one, an image flattened in another order in front of a dense layer. The weights are ordered instead."""
    change = _Change(graph)
    for node in graph.nodes:
        change.visit(node)
    return rebuilt(graph, change.nodes.values(), added=change.added) if change.changed else graph


class _Change:
    """``nodes`` by name: those that take the place of the graph's, in order."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.made = makers(graph)
        self.private = private(graph)
        self.names = Names(graph)
        self.nodes: dict[str, ir.Node] = {}
        self.added: list[ir.Tensor] = []
        self.changed = False

    def visit(self, node: ir.Node) -> None:
        """Append a node, or what takes its place."""
        if isinstance(node, ir.Conv):
            node = self._behind(node)
        elif isinstance(node, ir.Move):
            node = self._before(node)
        self.nodes[node.name] = node

    def _behind(self, node: ir.Conv) -> ir.Conv:
        """A convolution of what another order of its operand's channels was made from."""
        operand = self.graph.tensors[node.inputs[0]]
        name = operand.name
        while isinstance(before := self.made.get(name), ir.Reshape):
            name = before.inputs[0]
        if node.groups > 1 or not isinstance(before, ir.Move):
            return node
        order = _order(self.graph, before, node.weights.shape[3])
        if order is None:
            return node
        inverse = np.argsort(order)
        rest = None if node.rest is None else node.rest[..., inverse]
        source = self.graph.tensors[before.inputs[0]].name
        if self.graph.tensors[source].shape != operand.shape:
            view = self._tensor(operand, f"{source}/{node.name}")
            name = self.names.fresh(f"{node.name}/view")
            self.nodes[name] = ir.Reshape(name=name, inputs=(source,), outputs=(view,), shape=operand.shape)
            source = view
        self.changed = True
        return replace(node, inputs=(source,), weights=node.weights[..., inverse], rest=rest)

    def _before(self, node: ir.Move) -> ir.Node:
        """A movement, or in its place a convolution that makes its result, or a view of it."""
        source, out = self.graph.tensors[node.inputs[0]], self.graph.tensors[node.outputs[0]]
        maker = self.made.get(source.name)
        if not isinstance(maker, ir.Conv) or maker.groups > 1 or source.name not in self.private:
            return node
        order = _order(self.graph, node, len(maker.weights))
        if order is None:
            return node
        maker = self.nodes.pop(maker.name)
        assert isinstance(maker, ir.Conv)
        requant = maker.requant
        if requant.mult.size > 1:
            requant = replace(requant, mult=requant.mult[order], shift=requant.shift[order])
        result = out.name
        if out.shape != source.shape:
            result = self._tensor(replace(out, shape=source.shape), f"{out.name}/{maker.name}")
        weights, bias = maker.weights[order], maker.bias[order]
        rest = None if maker.rest is None else maker.rest[:, order]
        conv = replace(maker, outputs=(result,), weights=weights, rest=rest, bias=bias, requant=requant)
        self.made[result] = conv
        self.changed = True
        if result == out.name:
            return conv
        self.nodes[conv.name] = conv
        view = ir.Reshape(name=node.name, inputs=(result,), outputs=node.outputs, shape=out.shape)
        self.made[out.name] = view
        return view

    def _tensor(self, like: ir.Tensor, wanted: str) -> str:
        """Add a tensor."""
        self.added.append(self.names.like(like, like.shape, wanted))
        return self.added[-1].name


def _order(graph: ir.Graph, node: ir.Move, channels: int) -> NDArray[np.int64] | None:
    """For each channel of the result the channel of the operand that it is, if that is the same everywhere; None if
    bytes move from pixel to pixel."""
    size = graph.tensors[node.outputs[0]].size
    if len(node.copies) > 1 or graph.tensors[node.inputs[0]].size != size or size % channels:
        return None
    (copy,) = node.copies
    reading, writing = np.array([copy.source]), np.array([copy.target])
    for count, source, target in zip(copy.sizes, copy.source_steps, copy.target_steps, strict=True):
        steps = np.arange(count)[:, None]
        reading, writing = (reading + steps * source).ravel(), (writing + steps * target).ravel()
    places = np.empty(size, np.int64)
    places[writing] = reading
    pixels = places.reshape(-1, channels) - np.arange(0, size, channels)[:, None]
    order: NDArray[np.int64] = pixels[0]
    inside = order.min() >= 0 and order.max() < channels
    return order if inside and np.array_equal(pixels, np.broadcast_to(order, pixels.shape)) else None
