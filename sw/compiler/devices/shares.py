"""A share of neighbouring nodes: some rows, or some channels, of what they make, as a network of its own.

What nodes read from before them, and what they make for others, lies in system memory, where all accelerators see it.
Rows of a tensor are neighbours there; channels are not, so they are stored with the whole tensor's pitch. What a share
needs between its nodes it computes itself: rows that the windows of two shares see are computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dovetail.sw.compiler.partition.bands import input_rows, is_local
from dovetail.sw.compiler.partition.segments import border_of
from dovetail.sw.compiler.place import Given, Part
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Layout

ROWS, CHANNELS, WHOLE = "rows", "channels", "whole"
"""What nodes are shared by."""

Span = tuple[int, int]
"""First, count: rows or channels."""

_Windows = ir.Conv | ir.Depthwise | ir.MaxPool | ir.AvgPool


@dataclass(frozen=True)
class Region:
    """Some of a tensor: all of it, or a span of its rows or channels, as ``kind`` says."""

    tensor: ir.Tensor
    kind: str
    span: Span

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole tensor."""
        return self.kind == WHOLE or self.span == (0, self.tensor.shape[_axis(self.kind)])

    @property
    def offset(self) -> int:
        """Bytes from the tensor's start to its own."""
        if self.is_whole:
            return 0
        return self.span[0] * prod(self.tensor.shape[2:] if self.kind == ROWS else ()) * self.tensor.item_bytes

    @property
    def is_dense(self) -> bool:
        """Whether its bytes are neighbours."""
        return self.is_whole or self.kind == ROWS or prod(self.tensor.shape[:-1]) == 1

    def meets(self, other: Region) -> bool:
        """Whether two regions of one tensor have bytes in common."""
        if self.is_whole or other.is_whole or self.kind != other.kind:
            return True
        return self.span[0] < sum(other.span) and other.span[0] < sum(self.span)

    def part(self) -> ir.Tensor:
        """The region as a tensor."""
        if self.is_whole:
            return self.tensor
        shape = list(self.tensor.shape)
        shape[_axis(self.kind)] = self.span[1]
        name = f"{self.tensor.name} {self.kind} {self.span[0]}+{self.span[1]}"
        return replace(self.tensor, name=name, shape=tuple(shape))


@dataclass(frozen=True, eq=False)
class Share:
    """A share of some nodes: its ``graph``, what it ``reads`` and ``writes`` in system memory, by its own tensors'
    names."""

    graph: ir.Graph
    reads: Mapping[str, Region]
    writes: Mapping[str, Region]

    def given(self, where: Mapping[str, int], start: int) -> Given:
        """What is settled about its memory: ``where`` whole tensors lie, ``start`` of what is its own."""
        places, parts = dict[str, int](), dict[str, Part]()
        viewed = {node.outputs[0]: node.inputs[0] for node in self.graph.nodes if isinstance(node, ir.Reshape)}
        for name, region in (*self.reads.items(), *self.writes.items()):
            address = where[region.tensor.name]
            if region.is_dense:
                root = name
                while root in viewed:
                    root = viewed[root]
                places[root] = address + region.offset
            else:
                places[region.tensor.name] = address
                pitch = region.tensor.shape[-1] * region.tensor.item_bytes
                parts[name] = Part(region.tensor.name, region.offset, pitch)
        return Given(start, places, parts)


def _axis(kind: str) -> int:
    return 1 if kind == ROWS else -1


def share_of(graph: ir.Graph, nodes: Sequence[ir.Node], kind: str, spans: Mapping[str, Span]) -> Share | None:
    """The share of a graph's nodes that makes ``spans`` of what they make for others, all of it where there is none.

    None if these nodes cannot be shared by that kind.
    """
    nodes = [node for node in nodes if not isinstance(node, ir.Constant)]
    constants = {node.outputs[0]: node for node in graph.nodes if isinstance(node, ir.Constant)}
    _, outputs = border_of(graph, nodes)
    needed: dict[str, Span] = {}
    for name in outputs:
        tensor = graph.tensors[name]
        if kind != WHOLE and len(tensor.shape) < (4 if kind == ROWS else 1):
            return None
        needed[name] = spans.get(name, _all(tensor, kind))
    stored = dict(needed)
    for node in reversed(nodes):
        if node.outputs[0] not in needed:
            return None
        found = _operand(graph, node, kind, needed[node.outputs[0]])
        if found is None or found[1] < 1:
            return None
        for name in node.inputs:
            span = found if kind != CHANNELS or _is_channelwise(graph, node) else _all(graph.tensors[name], kind)
            needed[name] = _union(needed[name], span) if name in needed else span
    made = {name for node in nodes for name in node.outputs}
    if any(needed[name] != span for name, span in stored.items()):
        return None  # others would need rows of it that this share computes twice
    return _build(graph, nodes, kind, needed, made, outputs, constants)


def _build(
    graph: ir.Graph,
    nodes: Sequence[ir.Node],
    kind: str,
    needed: Mapping[str, Span],
    made: set[str],
    outputs: Sequence[str],
    constants: Mapping[str, ir.Constant],
) -> Share | None:
    regions = {name: Region(graph.tensors[name], kind, span) for name, span in needed.items()}
    parts = {name: region.part() for name, region in regions.items()}
    tensors = {part.name: part for part in parts.values()}
    own: list[ir.Node] = []
    reads = dict[str, Region]()
    for name in dict.fromkeys(name for node in nodes for name in node.inputs if name not in made):
        if name in constants:
            if not regions[name].is_whole:
                return None
            own.append(constants[name])
        else:
            reads[parts[name].name] = regions[name]
    for node in nodes:
        (result,) = node.outputs
        if kind == WHOLE:
            own.append(node)
            continue
        span = needed[result]
        inputs = []
        for name in node.inputs:
            span_in = _operand(graph, node, kind, span) if kind == ROWS or _is_channelwise(graph, node) else None
            wanted = span_in or _all(graph.tensors[name], kind)
            if wanted == needed[name]:
                inputs.append(parts[name].name)
                continue
            if not regions[name].is_dense:
                return None
            part = Region(graph.tensors[name], kind, wanted).part()
            part = replace(part, name=f"{part.name} for {node.name}")
            if part.name not in tensors:
                tensors[part.name] = part
                own.append(_slice(parts[name], part, kind, wanted[0] - needed[name][0]))
            inputs.append(part.name)
        own.append(_cut(graph, node, kind, span, tuple(inputs), parts[result].name))
    writes = {parts[name].name: regions[name] for name in outputs}
    for region in (*reads.values(), *writes.values()):
        if not region.is_dense:
            tensors.setdefault(region.tensor.name, region.tensor)
    ports = [tuple(_port(tensors[name]) for name in names) for names in (reads, writes)]
    return Share(ir.Graph(ports[0], ports[1], tensors, tuple(own), graph.source, graph.name), reads, writes)


def _all(tensor: ir.Tensor, kind: str) -> Span:
    return (0, 1) if kind == WHOLE else (0, tensor.shape[_axis(kind)])


def _union(one: Span, other: Span) -> Span:
    low = min(one[0], other[0])
    return low, max(sum(one), sum(other)) - low


def _operand(graph: ir.Graph, node: ir.Node, kind: str, span: Span) -> Span | None:
    """The span of its operands that a node needs for one of its result; None if it cannot be shared so. Of channels,
    those of a convolution's operand are not meant: it needs them all."""
    if kind == WHOLE:
        return 0, 1
    if kind == ROWS:
        return input_rows(graph, node, span) if is_local(graph, node) else None
    if isinstance(node, ir.Conv):
        return span if node.groups == 1 else None
    if isinstance(node, ir.Depthwise):
        times = graph.tensors[node.outputs[0]].shape[-1] // graph.tensors[node.inputs[0]].shape[-1]
        return None if span[0] % times or span[1] % times else (span[0] // times, span[1] // times)
    return span if _is_channelwise(graph, node) else None


def _is_channelwise(graph: ir.Graph, node: ir.Node) -> bool:
    """Whether each channel of a node's result follows from the same one, or one in its place, of its operands."""
    shapes = {graph.tensors[name].shape for name in (*node.inputs, *node.outputs)}
    if isinstance(node, ir.Pointwise):
        return len(shapes) == 1
    if isinstance(node, ir.Reshape):
        return all(prod(shape) == shape[-1] for shape in shapes)
    return isinstance(node, ir.Depthwise | ir.MaxPool | ir.AvgPool | ir.Mean)


def _cut(graph: ir.Graph, node: ir.Node, kind: str, span: Span, inputs: tuple[str, ...], output: str) -> ir.Node:
    """The node for a span of its result."""
    cut = replace(node, inputs=inputs, outputs=(output,))
    if kind == ROWS:
        if isinstance(cut, _Windows):
            first, count = input_rows(graph, node, span)
            dilation = cut.dilation[0] if isinstance(cut, ir.Conv | ir.Depthwise) else 1
            begin = span[0] * cut.stride[0] - cut.pads[0]
            end = begin + (span[1] - 1) * cut.stride[0] + (cut.kernel[0] - 1) * dilation + 1
            return replace(cut, pads=(first - begin, cut.pads[1], end - first - count, cut.pads[3]))
        return cut
    chosen = slice(span[0], sum(span))
    if isinstance(cut, ir.Conv):
        rest = None if cut.rest is None else cut.rest[:, chosen]
        return replace(
            cut, weights=cut.weights[chosen], bias=cut.bias[chosen], requant=_some(cut.requant, chosen), rest=rest
        )
    if isinstance(cut, ir.Depthwise):
        rest = None if cut.rest is None else cut.rest[..., chosen]
        weights = np.ascontiguousarray(cut.weights[..., chosen])
        return replace(cut, weights=weights, bias=cut.bias[chosen], requant=_some(cut.requant, chosen), rest=rest)
    if isinstance(cut, ir.Reshape):
        return replace(cut, shape=(*cut.shape[:-1], span[1]))
    return cut


def _some(requant: ir.Requant, chosen: slice) -> ir.Requant:
    if len(requant.mult) == 1:
        return requant
    return replace(requant, mult=requant.mult[chosen], shift=requant.shift[chosen])


def _slice(whole: ir.Tensor, part: ir.Tensor, kind: str, first: int) -> ir.Move:
    chosen = [slice(None)] * len(whole.shape)
    chosen[_axis(kind)] = slice(first, first + part.shape[_axis(kind)])
    copy = ir.Copy.between(ir.positions(whole.shape)[tuple(chosen)], ir.positions(part.shape))
    assert copy
    return ir.Move(name=f"slice {part.name}", inputs=(whole.name,), outputs=(part.name,), copies=(copy,), kind="slice")


def _port(tensor: ir.Tensor) -> ir.Port:
    return ir.Port(tensor.name, tensor.name, tensor.dtype, None, 0, Layout.plain(tensor.shape))
