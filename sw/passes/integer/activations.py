"""Pass: functions of one element are done by what computes their operand."""

from __future__ import annotations

from dataclasses import replace

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.functions import Values, applied, clamp_within, clamps, function_of, range_of
from dovetail.sw.passes.integer.rewrite import Names, makers, private, rebuilt


def fuse_activations(graph: ir.Graph) -> ir.Graph:
    """Leave out functions of one element (activations, requantisations, tables) that what comes before can do.

    A clamp becomes the clamp of a convolution, product, sum or pooling, and a function behind a function makes one
    table. Both also through movement: where every part of a concatenation can do it, every part does. Only where nobody
    else reads what is in between.
    """
    fusion = _Fusion(graph)
    for node in graph.nodes:
        fusion.visit(node)
    return rebuilt(graph, fusion.made.values(), added=fusion.tensors.values()) if fusion.changed else graph


Edits = dict[str, ir.Node]
"""By the tensor that it writes: the node that does so in future."""


class _Fusion:
    """The graph while it changes; ``made`` holds its nodes by the first tensor that they wrote at the beginning."""

    def __init__(self, graph: ir.Graph) -> None:
        self.tensors = dict(graph.tensors)
        self.names = Names(graph)
        self.private = private(graph)
        self.makers = makers(graph)
        self.made = {node.name: node for node in graph.nodes}
        self.changed = False

    def visit(self, node: ir.Node) -> None:
        """Fuse a node if it is a function."""
        node = self.made[node.name]
        values = function_of(self.tensors, node)
        edits = None if values is None else self._absorbed(node.inputs[0], values)
        if edits is not None:
            self._commit(node, edits)

    def _absorbed(self, name: str, values: Values) -> Edits | None:
        """The edits after which a tensor holds a function of what it holds now; None if there are none."""
        node = self.makers.get(name)
        if node is None or name not in self.private:
            return None
        match node:
            case ir.Constant():
                return {name: replace(node, value=applied(values, node.value))}
            case ir.Reshape() | ir.Move() | ir.Pad():
                return self._moved(name, node, values)
        bounds = clamp_within(values, *range_of(node)) if clamps(node) else None
        if bounds is not None:
            return {name: _clamped(node, *bounds)}
        inner = function_of(self.tensors, node)
        if inner is None:
            return None
        table = applied(values, inner)
        return {name: ir.Table(name=node.name, inputs=node.inputs, outputs=node.outputs, values=table, kind=node.op)}

    def _moved(self, name: str, node: ir.Reshape | ir.Move | ir.Pad, values: Values) -> Edits | None:
        if isinstance(node, ir.Pad):
            node = replace(node, value=int(values[node.value + 128]))
        edits: Edits = {name: node}
        for operand in node.inputs:
            more = self._absorbed(operand, values)
            if more is None:
                return None
            edits |= more
        return edits

    def _commit(self, function: ir.Node, edits: Edits) -> None:
        """Put the edits into force. What the function read takes its result's name, other tensors whose bytes change
        get names of their own, so that a name stands for one content."""
        self.changed = True
        out = self.tensors[function.outputs[0]]
        renamed = {function.inputs[0]: out.name}
        for name in edits:
            if name not in renamed:
                tensor = self.names.like(out, self.tensors[name].shape, f"{name}/{function.name}")
                self.tensors[tensor.name] = tensor
                self.private.add(tensor.name)
                renamed[name] = tensor.name
        del self.made[function.name]
        for old, node in edits.items():
            inputs = tuple(renamed.get(name, name) for name in node.inputs)
            edited = replace(node, inputs=inputs, outputs=(renamed[old],))
            self.made[node.name] = self.makers[renamed[old]] = edited


def _clamped(node: ir.Node, lo: int, hi: int) -> ir.Node:
    match node:
        case ir.Conv() | ir.Depthwise() | ir.MatMul() | ir.Mean() | ir.Rescale():
            return replace(node, requant=replace(node.requant, lo=lo, hi=hi))
        case ir.Elementwise():
            return replace(node, params=replace(node.params, lo=lo, hi=hi))
        case ir.AvgPool() | ir.MaxPool():
            return replace(node, lo=lo, hi=hi)
    raise AssertionError(f"{node.name}: {node.op} has no clamp")
