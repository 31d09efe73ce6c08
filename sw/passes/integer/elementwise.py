"""Functions of one element: as tables of 256 values, and done by what computes their operand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.network import ir, reference
from dovetail.sw.network.elementwise import BYTES
from dovetail.sw.passes.integer.edit import Names, makers, private, rebuilt

Values = NDArray[np.int8]

CODES: Values = BYTES
"""Every value of an element, in the order of a table."""


def clamps(node: ir.Node) -> bool:
    """Whether a node clamps its result at no cost. What an extension's instruction does with bounds is its own."""
    if isinstance(node, ir.Elementwise):
        return node.own is None
    return isinstance(node, ir.Conv | ir.Depthwise | ir.MatMul | ir.Rescale | ir.AvgPool | ir.MaxPool | ir.Mean)


def applied(values: Values, to: Values) -> Values:
    """A table's results for an array of elements."""
    result: Values = values[to.astype(np.int16) + 128]
    return result


def function_of(tensors: Mapping[str, ir.Tensor], node: ir.Node) -> Values | None:
    """The table of a node that is a function of one element and keeps its operand's shape; None for other nodes."""
    match node:
        case ir.Table():
            return node.values
        case ir.Rescale(own=None):
            return reference.rescale(node, CODES)
        case ir.MaxPool() | ir.AvgPool() if node.kernel == node.stride == (1, 1) and not any(node.pads):
            if tensors[node.inputs[0]].shape == tensors[node.outputs[0]].shape:
                return np.clip(CODES, node.lo, node.hi)
    return None


def range_of(node: ir.Node | None) -> tuple[int, int]:
    """The clamp of a node's result."""
    match node:
        case ir.Conv() | ir.Depthwise() | ir.MatMul() | ir.Mean() | ir.Rescale():
            return node.requant.lo, node.requant.hi
        case ir.Elementwise(own=None):
            return node.params.lo, node.params.hi
        case ir.AvgPool() | ir.MaxPool():
            return node.lo, node.hi
    return -128, 127


def clamp_within(values: Values, lo: int, hi: int) -> tuple[int, int] | None:
    """The bounds to which a function clamps elements of ``lo..hi``; None if it does anything else with them."""
    part = values[lo + 128 : hi + 129]
    if not part.size:
        return None
    bounds = int(part[0]), int(part[-1])
    clamped = bounds[0] <= bounds[1] and np.array_equal(part, np.clip(CODES[lo + 128 : hi + 129], *bounds))
    return bounds if clamped else None


def tabulate(graph: ir.Graph) -> ir.Graph:
    """Turn an element-wise node whose operands are functions of one tensor into a table of that tensor.

    ``x * sigmoid(x)`` is one, and so is a sum with a constant all of whose elements are equal. One operand is read in
    place of two, and the functions are dropped if nothing else reads them.
    """
    made = makers(graph)
    nodes = [_tabulated(graph, made, node) if isinstance(node, ir.Elementwise) else node for node in graph.nodes]
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else rebuilt(graph, nodes)


def _tabulated(graph: ir.Graph, made: dict[str, ir.Node], node: ir.Elementwise) -> ir.Node:
    (a, left), (b, right) = (_expressed(graph, made, name) for name in node.inputs)
    out = graph.tensors[node.outputs[0]]
    shape, variable = out.shape, a or b
    if out.dtype != "int8" or variable is None or b not in (None, variable) or graph.tensors[variable].shape != shape:
        return node
    values = reference.elementwise(node, left, right)
    return ir.Table(name=node.name, inputs=(variable,), outputs=node.outputs, values=values, kind=node.op)


def _expressed(graph: ir.Graph, made: dict[str, ir.Node], name: str) -> tuple[str | None, Values]:
    """(tensor, table) with which a tensor is a function of another; the tensor is None if it is one constant."""
    node = made.get(name)
    if isinstance(node, ir.Constant) and np.all(node.value == node.value.flat[0]):
        return None, np.full(len(CODES), node.value.flat[0])
    values = None if node is None else function_of(graph.tensors, node)
    if node is None or values is None:
        return name, CODES
    variable, inner = _expressed(graph, made, node.inputs[0])
    return variable, applied(values, inner)


def fuse_activations(graph: ir.Graph) -> ir.Graph:
    """Leave out functions of one element (activations, requantisations, tables) that what comes before can do.

    A clamp becomes the clamp of a convolution, product, sum or pooling, and a function behind a function makes one
    table. Both work through movement, too: if every part of a concatenation can do it, every part does. Only if
    nothing else reads the tensors in between.
    """
    fusion = _Fusion(graph)
    for node in graph.nodes:
        fusion.visit(node)
    return rebuilt(graph, fusion.made.values(), added=fusion.tensors.values()) if fusion.changed else graph


Edits = dict[str, ir.Node]
"""The new node that writes a tensor, by the tensor's name."""


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
        """Apply the edits. What the function read takes its result's name. Other tensors whose bytes change get
        names of their own, so that a name stands for one content."""
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
