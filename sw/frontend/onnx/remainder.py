"""An ONNX file in two: what Dovetail and ONNX Runtime know, and the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import check_control_flow, check_known, is_quantised
from dovetail.sw.frontend.onnx.limits import check_text
from dovetail.sw.frontend.remainder import Forms, Remainder


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


def _cut(model: Any) -> tuple[list[Any], list[Any], str]:
    """Nodes of both sides, and why the first of the rest is there."""
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
    return kept, left, first


def _label(node: Any) -> str:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return f"{node.name or next(iter(node.output), '')} ({operator})"


def _made(nodes: list[Any]) -> list[str]:
    return [name for node in nodes for name in node.output if name]


def _with(model: Any, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> bytes:
    """The model with some nodes, and the constants that they read."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    used = {name for node in nodes for name in _read(node)}
    constants = [tensor for tensor in graph.initializer if tensor.name in used]
    for field, values in (("node", nodes), ("input", inputs), ("output", outputs), ("initializer", constants)):
        kept = [type(value).FromString(value.SerializeToString()) for value in values]
        graph.ClearField(field)
        getattr(graph, field).extend(kept)
    return bytes(copy.SerializeToString(deterministic=True))


def split_model(model: Any) -> tuple[Any, Remainder] | None:
    """The head of a model, which holds all its constants or says where they are, and what is known of the rest."""
    check_text(model)
    kept, left, reason = _cut(model)
    if not left:
        return None
    made, wanted = _made(kept), {name for node in left for name in _read(node)}
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    outputs = [value for value in model.graph.output if value.name in made]
    names = {value.name for value in outputs}
    outputs += [
        declared.get(name, onnx.ValueInfoProto(name=name)) for name in made if name in wanted and name not in names
    ]
    if not outputs:
        raise NetworkError(f"node {_label(left[0])}: {reason}, and nothing comes before it; replace it on export")
    used = {name for node in kept for name in _read(node)}
    head = _with(model, kept, [value for value in model.graph.input if value.name in used], outputs)
    return onnx.load_model_from_string(head), Remainder(head, tuple(map(_label, left)), reason)


def split(data: bytes) -> Remainder | None:
    """See `dovetail.sw.frontend.remainder.remainder_of`."""
    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # the front end says what is wrong
        return None
    found = split_model(model)
    return None if found is None else found[1]


def rest(data: bytes, forms: Forms) -> bytes:
    """See `dovetail.sw.frontend.remainder.rest_of`."""
    model = onnx.load_model_from_string(data)
    kept, left, _ = _cut(model)
    used, made = {name for node in left for name in _read(node)}, set(_made(left))
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(forms[name][0])), list(forms[name][1])
        )
        for name in _made(kept)
        if name in used
    ]
    inputs += [value for value in model.graph.input if value.name in used]
    return _with(model, left, inputs, [value for value in model.graph.output if value.name in made])
