"""Pass: what is computed twice from the same operands is computed once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dovetail.sw.network import ir
from dovetail.sw.passes.integer.rewrite import rebuilt

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
