"""Passes on the protobuf message: fixed shapes of inputs, and one operator set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import defs, version_converter

from dovetail.sw.errors import NetworkError, first_line

OPSET = 21
OLDEST = 6
"""The converter does not know the operators of older sets."""
IR_VERSION = 10
_STANDARD = ("", "ai.onnx")
_PARKED = "dovetail.parked"


def fix_inputs(model: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> bool:
    """Give every input a fixed shape. Drop shapes that depended on open ones, and inputs that are initialisers.

    Parameters
    ----------
    shapes: input name -> sizes. An open first axis is the batch, 1 by default. An axis that the file names has the same
        size in all inputs.

    Returns
    -------
    bool: whether any input had to change its shape.

    Raises
    ------
    NetworkError: an axis stays unknown, or `shapes` names no input or another number of axes.
    """
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    known = [value.name for value in inputs]
    for name in shapes:
        if name not in known:
            raise NetworkError(f"shape of {name!r}: must be of an input ({', '.join(known)}), not of another tensor")
    del graph.input[:]
    graph.input.extend(inputs)
    named = _named_sizes(graph.input, shapes)
    changed = [_fix(value, shapes.get(value.name), named) for value in graph.input]
    if any(changed):
        del graph.value_info[:]
        for output in graph.output:
            output.type.tensor_type.ClearField("shape")
    return any(changed)


def _named_sizes(inputs: Iterable[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Sizes of the axes that the file names, as far as `shapes` or the batch of an input gives them."""
    found: dict[str, int] = {}
    for value in inputs:
        dims = value.type.tensor_type.shape.dim
        given = shapes.get(value.name, [1] if dims and dims[0].dim_param else [])
        found.update((dim.dim_param, size) for dim, size in zip(dims, given, strict=False) if _is_name(dim.dim_param))
    return found


def _is_name(text: str) -> bool:
    """Whether the text names an axis: `height` does, `?` does not."""
    return text.replace("_", "").isalnum()


def _fix(value: onnx.ValueInfoProto, wanted: Sequence[int] | None, named: Mapping[str, int]) -> bool:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise NetworkError(f"input {value.name!r} must be a tensor, not a sequence or map")
    if wanted is not None:
        if min(wanted, default=1) < 1:
            raise NetworkError(f"input {value.name!r}: sizes must be positive, not {tuple(wanted)}")
        if tensor.HasField("shape") and len(tensor.shape.dim) != len(wanted):
            raise NetworkError(f"input {value.name!r}: must have {len(tensor.shape.dim)} axes, not {len(wanted)}")
        tensor.ClearField("shape")
        tensor.shape.SetInParent()
        for size in wanted:
            tensor.shape.dim.add().dim_value = size
        return True
    if not tensor.HasField("shape"):
        raise NetworkError(f"input {value.name!r} must have a shape; give one: --shape {value.name}=1x3x224x224")
    changed = False
    for axis, dim in enumerate(tensor.shape.dim):
        if dim.dim_value > 0:
            continue
        if axis and dim.dim_param not in named:
            text = dim.dim_param or "unknown"
            raise NetworkError(
                f"input {value.name!r}: axis {axis} must have a fixed size, not {text}; "
                f"give one: --shape {value.name}={_example(tensor.shape, named)}"
            )
        size = named.get(dim.dim_param, 1)
        dim.Clear()
        dim.dim_value = size
        changed = True
    return changed


def _example(shape: onnx.TensorShapeProto, named: Mapping[str, int]) -> str:
    open_sizes = [named.get(dim.dim_param, 224 if axis else 1) for axis, dim in enumerate(shape.dim)]
    sizes = [dim.dim_value if dim.dim_value > 0 else size for dim, size in zip(shape.dim, open_sizes, strict=True)]
    return "x".join(map(str, sizes))


def opset_of(model: onnx.ModelProto, default: int = 1) -> int:
    """The version of ONNX's own operators in a model; ``default`` if it names none."""
    return max((opset.version for opset in model.opset_import if opset.domain in _STANDARD), default=default)


def upgrade(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in operator set `OPSET`; one that is newer stays as it is.

    ONNX Runtime knew some operators before the standard did, such as LayerNormalization in operator set 12. They are
    taken as those of the new set.

    Raises
    ------
    NetworkError: older than `OLDEST`, or an operator without a successor.
    """
    version = opset_of(model, OPSET)
    if version < OLDEST:
        raise NetworkError(f"operator set must be {OLDEST} or newer, not {version}; export again with a newer one")
    if version >= OPSET:
        return model
    model.ir_version = max(model.ir_version, 4)
    early = [node for node in model.graph.node if node.domain in _STANDARD and not _known(node.op_type, version)]
    for node in early:
        node.domain = _PARKED
    if early:
        model.opset_import.add(domain=_PARKED, version=1)
    try:
        model = version_converter.convert_version(model, OPSET)
    except Exception as error:  # the C++ converter raises classes of its own
        raise NetworkError(
            f"operator set {version} must convert to {OPSET}; export with that one ({first_line(error)})"
        ) from error
    for node in model.graph.node:
        if node.domain == _PARKED:
            node.domain = ""
    kept = [opset for opset in model.opset_import if opset.domain != _PARKED]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    model.ir_version = IR_VERSION
    return model


def _known(operator: str, version: int) -> bool:
    try:
        defs.get_schema(operator, version)
    except defs.SchemaError:
        return False
    return True
