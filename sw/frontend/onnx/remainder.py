"""An ONNX file in two: what Dovetail and ONNX Runtime know, and the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import check_control_flow, check_known, is_quantised
from dovetail.sw.frontend.parsed_file import Forms, Remainder


def _reason(model: Any, node: Any) -> str:
    """Why a node is not Dovetail's to do; empty if it is."""
    if any((function.domain, function.name) == (node.domain, node.op_type) for function in model.functions):
        return ""
    try:
        if is_quantised(inner.op_type for inner in model.graph.node):  # in float networks some of it folds away later
            check_control_flow(node.op_type, node.domain, "")
    except NetworkError:
        return "the network must be free of control flow up to where Dovetail's part ends"
    try:
        check_known(node.op_type, node.domain, "")
    except NetworkError:
        return "an operator that ONNX and ONNX Runtime do not have"
    return ""


def _read(node: Any) -> set[str]:
    """Names that a node reads, inside its branches too."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            names |= {name for inner in graph.node for name in _read(inner)}
    return names


@dataclass(frozen=True)
class Cut:
    """Nodes of both sides, and why the first of the rest is there."""

    kept: list[Any]
    left: list[Any]
    reason: str

    @property
    def remainder(self) -> Remainder:
        """What of the rest its user should know."""
        return Remainder(tuple(map(_label, self.left)), self.reason)


def cut(model: onnx.ModelProto) -> Cut | None:
    """A model in two; None if all of its operators are known."""
    after: set[str] = set()
    kept: list[Any] = []
    left: list[Any] = []
    first = ""
    for node in model.graph.node:
        behind = bool(after & _read(node))
        reason = "" if behind else _reason(model, node)
        if not behind and not reason:
            kept.append(node)
            continue
        first = first or reason
        left.append(node)
        after.update(node.output)
    return Cut(kept, left, first) if left else None


def _label(node: Any) -> str:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return f"{node.name or next(iter(node.output), '')} ({operator})"


def _made(nodes: list[Any]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def _with(model: onnx.ModelProto, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    """The model with some nodes, and the constants that they read."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    graph = part.graph
    used = {name for node in nodes for name in _read(node)}
    constants = [tensor for tensor in model.graph.initializer if tensor.name in used]
    for field, values in (("node", nodes), ("input", inputs), ("output", outputs), ("initializer", constants)):
        graph.ClearField(field)
        getattr(graph, field).extend(values)
    return part


def head_of(model: onnx.ModelProto, parts: Cut) -> onnx.ModelProto:
    """The model before the cut.

    Raises
    ------
    NetworkError: nothing is left of it.
    """
    made, wanted = _made(parts.kept), {name for node in parts.left for name in _read(node)}
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    outputs = [value for value in model.graph.output if value.name in made]
    names = {value.name for value in outputs}
    outputs += [
        declared.get(name, onnx.ValueInfoProto(name=name)) for name in made if name in wanted and name not in names
    ]
    if not outputs:
        label = _label(parts.left[0])
        raise NetworkError(f"node {label}: {parts.reason}, and nothing comes before it; replace it on export")
    used = {name for node in parts.kept for name in _read(node)}
    return _with(model, parts.kept, [value for value in model.graph.input if value.name in used], outputs)


def rest_of(model: onnx.ModelProto, parts: Cut, forms: Forms) -> bytes:
    """The file of what is behind the cut; ``forms``: of the tensors that go over."""
    used, made = {name for node in parts.left for name in _read(node)}, set(_made(parts.left))
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(forms[name][0])), list(forms[name][1])
        )
        for name in _made(parts.kept)
        if name in used
    ]
    inputs += [value for value in model.graph.input if value.name in used]
    outputs = [value for value in model.graph.output if value.name in made]
    return bytes(_with(model, parts.left, inputs, outputs).SerializeToString(deterministic=True))
