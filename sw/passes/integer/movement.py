"""Movement: copies of copies become one copy, and transpositions go where they cost less."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.copies import composed, in_place, simplest, size, worth
from dovetail.sw.passes.integer.edit import Names, makers, private, rebuilt
from dovetail.sw.passes.integer.elementwise import function_of

Piece = tuple[str, ir.Copy]
"""A copy and the tensor that it reads."""


def join_moves(graph: ir.Graph) -> ir.Graph:
    """Let movement read what the movement before it read: concatenations of concatenations, slices of concatenations
    and transpositions, transpositions there and back.

    Only if the movement before is then no longer needed, or if all that is left is the same bytes in another place.
    Flat copies do not see reshapes, so they read through them.
    """
    made = makers(graph)
    readers = _readers(graph)
    nodes = []
    for node in graph.nodes:
        if isinstance(node, ir.Move):
            node = _joined(graph, made, readers, node)
        nodes.append(node)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else rebuilt(graph, nodes)


def _readers(graph: ir.Graph) -> Mapping[str, list[ir.Node | None]]:
    """Who reads each tensor, also under another shape; None stands for an output of the network, or a state."""
    readers: dict[str, list[ir.Node | None]] = defaultdict(list)
    for name in graph.wanted:
        readers[name].append(None)
    for node in reversed(graph.nodes):
        for name in node.inputs:
            readers[name] += readers[node.outputs[0]] if isinstance(node, ir.Reshape) else [node]
    return readers


def _joined(
    graph: ir.Graph, made: Mapping[str, ir.Node], readers: Mapping[str, list[ir.Node | None]], node: ir.Move
) -> ir.Move:
    found: list[Piece] = []
    for operand, copy in zip(node.inputs, node.copies, strict=True):
        name = _root(made, operand)
        before = made.get(name)
        pieces = pulled(before, copy) if isinstance(before, ir.Move) else None
        if pieces and (_all_pull(made, readers[name], before) or _is_whole(graph, node, pieces)):
            found += pieces
        else:
            found.append((name, copy))
    names, copies = zip(*found, strict=True)
    return node if names == node.inputs else replace(node, inputs=names, copies=copies)


def _root(made: Mapping[str, ir.Node], name: str) -> str:
    """What a tensor is a reshape of."""
    while isinstance(node := made.get(name), ir.Reshape):
        name = node.inputs[0]
    return name


def pulled(before: ir.Node | None, copy: ir.Copy) -> list[Piece] | None:
    """Copies from what ``before`` reads in place of one from its result; None if it takes that result."""
    if not isinstance(before, ir.Move):
        return None
    pieces = []
    for name, inner in zip(before.inputs, before.copies, strict=True):
        piece = composed(inner, copy)
        if piece is not None and worth(piece, inner, copy):
            pieces.append((name, piece))
    return pieces if sum(size(piece) for _, piece in pieces) == size(copy) else None


def _all_pull(made: Mapping[str, ir.Node], readers: list[ir.Node | None], before: ir.Node | None) -> bool:
    """Whether all that read a movement's result could read its operands."""
    return all(
        isinstance(reader, ir.Move)
        and all(
            pulled(before, copy)
            for name, copy in zip(reader.inputs, reader.copies, strict=True)
            if made.get(_root(made, name)) is before
        )
        for reader in readers
    )


def _is_whole(graph: ir.Graph, node: ir.Move, pieces: list[Piece]) -> bool:
    """Whether nothing but a view is left of a movement."""
    if len(node.inputs) > 1 or len(pieces) > 1:
        return False
    ((name, copy),) = pieces
    return in_place(copy) and graph.tensors[name].size == size(copy)


def sink_transposes(graph: ir.Graph) -> ir.Graph:
    """A product takes a transposed second operand as it is. An element-wise node whose operands are all transposed
    alike computes first, if its result is moved again, or if two transpositions become one."""
    sinking = _Sinking(graph)
    for node in graph.nodes:
        sinking.visit(node)
    return rebuilt(graph, sinking.nodes, added=sinking.added) if sinking.changed else graph


class _Sinking:
    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.made: Mapping[str, ir.Node] = makers(graph)
        self.private = private(graph)
        self.names = Names(graph)
        self.readers = {name: node for node in graph.nodes for name in node.inputs}
        self.nodes: list[ir.Node] = []
        self.added: list[ir.Tensor] = []
        self.changed = False

    def visit(self, node: ir.Node) -> None:
        """Append a node, or what takes its place."""
        found: list[ir.Node] | None = None
        if isinstance(node, ir.MatMul):
            found = self._product(node)
        elif isinstance(node, ir.Elementwise) or function_of(self.graph.tensors, node) is not None:
            found = self._elementwise(node)
        self.changed |= found is not None
        self.nodes += found or [node]

    def _product(self, node: ir.MatMul) -> list[ir.Node] | None:
        """A product whose second operand is the transposition of something."""
        turned = self.made.get(node.inputs[1])
        out = self.graph.tensors[node.inputs[1]]
        if not isinstance(turned, ir.Move) or len(turned.copies) > 1:
            return None
        shape = (*out.shape[:-2], out.shape[-1], out.shape[-2])
        swap = ir.Copy.between(np.swapaxes(ir.positions(shape), -1, -2), ir.positions(out.shape))
        if swap is None or simplest(swap) != simplest(turned.copies[0]):
            return None
        source = self.graph.tensors[turned.inputs[0]]
        if source.size != out.size:
            return None
        operand, found = source.name, list[ir.Node]()
        if source.shape != shape:
            view = self.names.like(source, shape, f"{source.name}/matrices")
            self.added.append(view)
            operand = view.name
            name = self.names.fresh(f"{node.name}/matrices")
            found.append(ir.Reshape(name=name, inputs=(source.name,), outputs=(operand,), shape=shape))
        return [*found, replace(node, inputs=(node.inputs[0], operand), transposed=not node.transposed)]

    def _elementwise(self, node: ir.Node) -> list[ir.Node] | None:
        """The node on what its operands are transpositions of, and the transposition of its result."""
        out = self.graph.tensors[node.outputs[0]]
        made = [self.made.get(name) for name in node.inputs]
        moves = [move for move in made if isinstance(move, ir.Move) and len(move.copies) == 1]
        if len(moves) < len(made) or not self.private.issuperset(node.inputs):
            return None
        first, sources = moves[0], [self.graph.tensors[move.inputs[0]] for move in moves]
        alike = all(simplest(move.copies[0]) == simplest(first.copies[0]) for move in moves)
        sizes = {self.graph.tensors[name].size for name in node.inputs} | {source.size for source in sources}
        whole = sizes == {out.size} and len({source.shape for source in sources}) == 1
        if not alike or not whole or not (len(moves) > 1 or self._moves_on(first, out.name)):
            return None
        inner = self.names.like(out, sources[0].shape, f"{out.name}/moved")
        self.added.append(inner)
        early = replace(node, inputs=tuple(source.name for source in sources), outputs=(inner.name,))
        name = self.names.fresh(f"{node.name}/{first.op}")
        return [early, replace(first, name=name, inputs=(inner.name,), outputs=node.outputs)]

    def _moves_on(self, first: ir.Move, name: str) -> bool:
        """Whether one movement alone reads a tensor, and could read what ``first`` reads."""
        while name in self.private and isinstance(reader := self.readers[name], ir.Reshape):
            name = reader.outputs[0]
        if name not in self.private or not isinstance(reader, ir.Move):
            return False
        return pulled(first, reader.copies[reader.inputs.index(name)]) is not None
