"""Pass: copies of copies become one copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.copies import composed, in_place, size, worth
from dovetail.sw.passes.integer.rewrite import makers, rebuilt

Piece = tuple[str, ir.Copy]
"""A copy and the tensor that it reads."""


def join_moves(graph: ir.Graph) -> ir.Graph:
    """Let movement read what the movement before it read: concatenations of concatenations, slices of concatenations
    and transpositions, transpositions there and back.

    Only where the movement before is then needed no more, or where all that is left is the same bytes elsewhere. Flat
    copies do not see reshapes, so these are read through.
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
