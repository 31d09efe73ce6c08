"""Passes that any network takes: no node without effect, none twice, none that depends on constants alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.integer.copies import in_place
from dovetail.sw.passes.integer.edit import makers, rebuilt
from dovetail.sw.passes.integer.elementwise import CODES, function_of, range_of

MAX_ELEMENTS = 1 << 20
"""The largest result that becomes a constant of the program: repeating a small one is left to the accelerator."""


def fold_constants(graph: ir.Graph) -> ir.Graph:
    """Replace nodes all of whose operands are constants by their results."""
    known: dict[str, Array] = {}
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        computed = bool(node.inputs) and all(name in known for name in node.inputs)
        fits = graph.tensors[node.outputs[0]].size <= MAX_ELEMENTS
        if computed and fits and not isinstance(node, ir.Host):
            value = reference.execute(graph, node, [known[name] for name in node.inputs])[0]
            node = ir.Constant(name=node.name, inputs=(), outputs=node.outputs, value=value)
        if isinstance(node, ir.Constant):
            known[node.outputs[0]] = node.value
        nodes.append(node)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else rebuilt(graph, nodes)


def drop_dead(graph: ir.Graph) -> ir.Graph:
    """Leave out nodes that no network output and no state depends on."""
    wanted = set(graph.wanted)
    nodes: list[ir.Node] = []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else rebuilt(graph, reversed(nodes))


_LABELS = ("name", "outputs", "kind", "label")


def merge_duplicates(graph: ir.Graph) -> ir.Graph:
    """Leave out nodes that do what an earlier one does: the same parameters, the same operands."""
    seen: dict[tuple[Any, ...], list[ir.Node]] = defaultdict(list)
    renamed: dict[str, str] = {}
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        operands = tuple(renamed.get(name, name) for name in node.inputs)
        shapes = tuple(graph.tensors[name].shape for name in node.outputs)
        earlier = seen[type(node), operands, shapes]
        twin = next((other for other in earlier if _equal(node, other, {*_LABELS, "inputs"})), None)
        if twin is None:
            earlier.append(node)
            nodes.append(node)
        else:
            renamed.update(zip(node.outputs, twin.outputs, strict=True))
    return rebuilt(graph, nodes, renamed) if renamed else graph


def _equal(a: Any, b: Any, apart: set[str] | frozenset[str] = frozenset()) -> bool:
    """Whether two parameters, or all of two nodes' but those named in ``apart``, are equal."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if not is_dataclass(a) or type(a).__eq__ is not object.__eq__:
        return bool(a == b)
    names = (field.name for field in fields(a) if field.name not in apart)
    return all(_equal(getattr(a, name), getattr(b, name)) for name in names)


def drop_identities(graph: ir.Graph) -> ir.Graph:
    """Leave out functions that map every value to itself, padding by nothing, reshapes to the same shape; movement
    that moves nothing becomes a reshape, and a reshape of a reshape one."""
    made = makers(graph)
    renamed: dict[str, str] = {}
    nodes: list[ir.Node] = []
    for node in graph.nodes:
        source = _same_bytes(graph, made, node)
        if source is None:
            nodes.append(node)
            continue
        below = made.get(source)
        if isinstance(below, ir.Reshape):
            source = below.inputs[0]
        out = graph.tensors[node.outputs[0]]
        if graph.tensors[source].shape == out.shape:
            renamed[out.name] = source
        elif isinstance(node, ir.Reshape) and node.inputs == (source,):
            nodes.append(node)
        else:
            nodes.append(ir.Reshape(name=node.name, inputs=(source,), outputs=node.outputs, shape=out.shape))
    same = len(nodes) == len(graph.nodes) and all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    return graph if same else rebuilt(graph, nodes, renamed)


def _same_bytes(graph: ir.Graph, made: dict[str, ir.Node], node: ir.Node) -> str | None:
    """The operand whose bytes a node's result has, all of them in their order; None if it has others."""
    if isinstance(node, ir.Host | ir.Constant):
        return None
    source, out = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    match node:
        case ir.Reshape():
            return source.name
        case ir.Pad() if not any(node.pads):
            return source.name
        case ir.Move():
            alone = set(node.inputs) == {source.name} and source.size == out.size
            return source.name if alone and all(in_place(copy) for copy in node.copies) else None
    values = function_of(graph.tensors, node)
    if values is None:
        return None
    lo, hi = range_of(made.get(source.name))
    part = slice(lo + 128, hi + 129)
    return source.name if np.array_equal(values[part], CODES[part]) else None
