"""Limits of what a small ONNX file may expand to, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

import onnx

from dovetail.sw.errors import NetworkError

MOST_ELEMENTS = 1 << 27
"""Of a tensor that operators make: 512 MiB of float32. The largest layer of VGG-19 has 98 Mi of weights."""
MOST_NODES = 100_000
"""Of a network when its local functions have taken the place of their calls."""


def check_text(model: onnx.ModelProto) -> None:
    """Raises NetworkError for a name that is no UTF-8, which protobuf hands out as bytes."""
    waiting = [model.graph, *model.functions]
    while waiting:
        part = waiting.pop()
        for node in part.node:
            names = [node.op_type, node.domain, node.name, *node.input, *node.output]
            for attribute in node.attribute:
                names.append(attribute.name)
                waiting += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
            _check_names(names)
        _check_names([part.name])
        if isinstance(part, onnx.GraphProto):
            _check_names(value.name for value in (*part.input, *part.output, *part.value_info, *part.initializer))


def _check_names(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise NetworkError(f"names and operators must be in UTF-8, not {name!s:.60}")


def check_functions(model: onnx.ModelProto) -> None:
    """Raises NetworkError where local functions call themselves, or expand to more nodes than `MOST_NODES`."""
    functions = {(function.domain, function.name): function for function in model.functions}
    if not functions:
        return
    sizes: dict[tuple[str, str], int] = {}
    open_calls: dict[tuple[str, str], None] = {}
    waiting = list(functions)
    while waiting:  # no recursion: calls may be nested as deeply as the file is long
        key = waiting[-1]
        calls = {(node.domain, node.op_type) for node in functions[key].node}
        missing = [call for call in calls if call in functions and call not in sizes]
        if not missing:
            sizes[waiting.pop()] = _size(functions[key].node, sizes)
            open_calls.pop(key, None)
        elif any(call in open_calls for call in (key, *missing)):
            raise NetworkError(f"function {key[1]!r} must not call itself")
        else:
            open_calls[key] = None
            waiting += missing
    total = _size(model.graph.node, sizes)
    if total > MOST_NODES:
        raise NetworkError(
            f"local functions must expand to at most {MOST_NODES} nodes, not {_told(total)} (`dovetail docs limits`)"
        )


def _size(nodes: Iterable[onnx.NodeProto], sizes: Mapping[tuple[str, str], int]) -> int:
    return sum(sizes.get((node.domain, node.op_type), 1) for node in nodes)


def _told(count: int) -> str:
    return str(count) if count < 10**12 else f"about 10**{len(str(count)) - 1}"


def check_results(model: bytes, label: str) -> None:
    """Raises NetworkError where a model's results would have more than `MOST_ELEMENTS` elements, as far as shapes and
    constants tell; ``label`` names it."""
    try:
        inferred = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(model), data_prop=True)
    except Exception:  # what is wrong with the model is for the runtime to say
        return
    for value in inferred.graph.output:
        check_size(label, [dim.dim_value for dim in value.type.tensor_type.shape.dim])


def check_size(label: str, sizes: Iterable[int]) -> None:
    """Raises NetworkError for a tensor of too many elements; ``label`` names the node that makes it."""
    shape = tuple(sizes)
    if prod(shape) > MOST_ELEMENTS:
        raise NetworkError(f"{label}: a tensor must have at most 2**27 elements, not {shape} (`dovetail docs limits`)")
