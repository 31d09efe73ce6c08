"""Cascades: bands of rows through several layers, one band after the other, where the tensors between these layers are
too large to stay in SRAM as a whole.

A graph is cut into bands before it is planned: every layer of a cascade becomes a node per band, what it reads a slice
of rows, the result a concatenation of bands; neither is a copy (`parts`). Rows between layers that the windows of two
bands share are computed twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TypeGuard

from dovetail.sw.network import ir

Window = ir.Conv | ir.Depthwise | ir.MaxPool | ir.AvgPool | ir.Im2col
Rows = tuple[int, int]
"""First row, rows."""


@dataclass(frozen=True)
class Cascade:
    """``nodes`` that follow one another, in ``bands`` of rows of what the last one makes. In some bands, ``plain``, by
    number, the node ``instead`` makes these rows from what the first one reads."""

    nodes: tuple[ir.Node, ...]
    bands: int
    instead: ir.Node | None = None
    plain: frozenset[int] = frozenset()

    def nodes_of(self, band: int) -> tuple[ir.Node, ...]:
        """Those of a band."""
        return (self.instead,) if self.instead and band in self.plain else self.nodes


def is_local(graph: ir.Graph, node: ir.Node) -> bool:
    """Whether a row of a node's result needs a few rows of its operands, all of which are int8 and have several."""
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs)]
    shapes = [tensor.shape for tensor in tensors]
    if any(len(tensor.shape) != 4 or tensor.shape[1] < 2 or tensor.item_bytes > 1 for tensor in tensors):
        return False
    return _has_window(node) or (isinstance(node, ir.Pointwise) and len(set(shapes)) == 1)


def _has_window(node: ir.Node) -> TypeGuard[Window]:
    return isinstance(node, Window)


def leaves_out(node: ir.Node) -> bool:
    """Whether there may be rows of its operand that a node does not see."""
    first, after = _reach(node, (0, 1))
    return _has_window(node) and node.stride[0] > after - first


def needed(graph: ir.Graph, nodes: Sequence[ir.Node], last: Rows) -> dict[str, Rows] | None:
    """Rows of each tensor that a cascade's nodes need for some rows of the last one's result; None where a window sees
    nothing but padding."""
    found = {nodes[-1].outputs[0]: last}
    for node in reversed(nodes):
        first, rows = input_rows(graph, node, found[node.outputs[0]])
        if rows < 1:
            return None
        for name in node.inputs:
            begin, count = found.get(name, (first, rows))
            low = min(begin, first)
            found[name] = low, max(begin + count, first + rows) - low
    return found


def input_rows(graph: ir.Graph, node: ir.Node, rows: Rows) -> Rows:
    """The rows of its operands that a node needs for some of its result."""
    begin, end = _reach(node, rows)
    low = max(begin, 0)
    return low, min(end, graph.tensors[node.inputs[0]].shape[1]) - low


def _reach(node: ir.Node, rows: Rows) -> Rows:
    """First input row that output rows see, and the one after the last, in padding or not."""
    first, count = rows
    if not _has_window(node):
        return first, first + count
    dilation = node.dilation[0] if isinstance(node, ir.Conv | ir.Depthwise | ir.Im2col) else 1
    begin = first * node.stride[0] - node.pads[0]
    return begin, begin + (count - 1) * node.stride[0] + (node.kernel[0] - 1) * dilation + 1


def bands_of(graph: ir.Graph, cascade: Cascade) -> Iterator[Rows]:
    """The rows of a cascade's result, band by band, about equally many in each."""
    height = graph.tensors[cascade.nodes[-1].outputs[0]].shape[1]
    starts = [height * n // cascade.bands for n in range(cascade.bands + 1)]
    yield from ((start, end - start) for start, end in pairwise(starts))


def cut(graph: ir.Graph, cascades: Sequence[Cascade]) -> tuple[ir.Graph, dict[str, str]]:
    """The graph with its cascades in bands, and the node that each new one is a band of, by name."""
    tensors, band_of = dict(graph.tensors), dict[str, str]()
    behind = {cascade.nodes[-1].name: cascade for cascade in cascades}
    inside = {node.name for cascade in cascades for node in cascade.nodes}
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        if node.name not in inside:
            nodes.append(node)
        elif node.name in behind:
            nodes += _cut(graph, behind[node.name], tensors, band_of)
    for cascade in cascades:
        for node in cascade.nodes[:-1]:
            del tensors[node.outputs[0]]
    return replace(graph, tensors=tensors, nodes=tuple(nodes)).check(), band_of


def _cut(
    graph: ir.Graph, cascade: Cascade, tensors: dict[str, ir.Tensor], band_of: dict[str, str]
) -> Iterator[ir.Node]:
    """A cascade's nodes, band by band, then the concatenation; adds their tensors."""
    result = cascade.nodes[-1].outputs[0]
    results, copies = list[str](), list[ir.Copy]()
    for number, rows in enumerate(bands_of(graph, cascade)):
        nodes = cascade.nodes_of(number)
        made = {node.outputs[0] for node in nodes}
        extents = needed(graph, nodes, rows)
        assert extents
        names = {name: _part(tensors, graph.tensors[name], extents[name]) for name in made}
        for node in nodes:
            out = node.outputs[0]
            first, count = input_rows(graph, node, extents[out])
            inputs = []
            for name in node.inputs:
                whole, offset = (names[name], extents[name][0]) if name in made else (name, 0)
                if tensors[whole].shape[1] == count:
                    inputs.append(whole)
                    continue
                inputs.append(_part(tensors, graph.tensors[name], (first, count), f" of {whole} for {node.name}"))
                if inputs[-1] not in inputs[:-1]:
                    yield _slice(tensors, whole, first - offset, inputs[-1])
            name = f"{node.name} rows {extents[out][0]}+{extents[out][1]}"
            band_of[name] = node.name
            band = replace(node, name=name, inputs=tuple(inputs), outputs=(names[out],))
            if _has_window(band):
                begin, end = _reach(node, extents[out])
                band = replace(band, pads=(first - begin, band.pads[1], end - first - count, band.pads[3]))
            yield band
        results.append(names[result])
        copies.append(_copy(tensors[names[result]].size, 0, rows[0] * _row(graph.tensors[result])))
    yield ir.Move(
        name=f"{cascade.nodes[-1].name} of bands", inputs=tuple(results), outputs=(result,), copies=tuple(copies)
    )


def _part(tensors: dict[str, ir.Tensor], tensor: ir.Tensor, rows: Rows, of: str = "") -> str:
    """Add some rows of a tensor to the tensors; returns the new one's name."""
    name = f"{tensor.name} rows {rows[0]}+{rows[1]}{of}"
    tensors[name] = replace(tensor, name=name, shape=(1, rows[1], *tensor.shape[2:]))
    return name


def _slice(tensors: Mapping[str, ir.Tensor], whole: str, first: int, name: str) -> ir.Move:
    copy = _copy(tensors[name].size, first * _row(tensors[whole]), 0)
    return ir.Move(name=f"slice {name}", inputs=(whole,), outputs=(name,), copies=(copy,), kind="slice")


def _copy(size: int, source: int, target: int) -> ir.Copy:
    return ir.Copy((size,), source, (1,), target, (1,))


def _row(tensor: ir.Tensor) -> int:
    return prod(tensor.shape[2:])
