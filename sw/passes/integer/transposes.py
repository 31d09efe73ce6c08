"""Pass: transpositions in front of products and element-wise nodes go where they cost less, or away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.copies import simplest
from dovetail.sw.passes.integer.functions import function_of
from dovetail.sw.passes.integer.moves import pulled
from dovetail.sw.passes.integer.rewrite import Names, makers, private, rebuilt


def sink_transposes(graph: ir.Graph) -> ir.Graph:
    """A product takes a transposed second operand as it is; an element-wise node whose operands are all transposed
    alike computes first, where its result is moved again, or where two transpositions become one."""
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
