"""Pass: shapes of all tensors."""

from __future__ import annotations

import onnx
import onnx_ir as oir
import onnx_ir.passes.common as common

from dovetail.sw.errors import NetworkError
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.passes.float.edit import shape_of


def infer_shapes(model: oir.Model) -> bool:
    """Write shape and element type into every value that the standard's rules reach."""
    return bool(common.ShapeInferencePass(check_type=False, strict_mode=False)(model).modified)


def check_shapes(model: oir.Model) -> None:
    """Raises NetworkError for the first node whose results have no known shape, with the reason."""
    read = [value for node in model.graph for value in node.outputs if value.uses() or value.is_graph_output()]
    missing = [value for value in read if shape_of(value) is None or value.dtype is None]
    if not missing:
        return
    _ask_runtime(model, missing)
    for value in missing:
        node = value.producer()
        if shape_of(value) is None and node is not None:
            raise NetworkError(f"node {node.name!r} ({node.op_type}): {_reason(model)}")


def _reason(model: oir.Model) -> str:
    try:
        onnx.shape_inference.infer_shapes(oir.serde.serialize_model(model), strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        return f"shapes must fit, not: {' '.join(str(error).split())}"
    return "result must have a shape that follows from the inputs' shapes, not from their values"


def _ask_runtime(model: oir.Model, values: list[oir.Value]) -> None:
    """Shapes of operators that only ONNX Runtime knows, from its own inference."""
    proto = oir.serde.serialize_model(model)
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in values)
    try:
        session = open_session(proto.SerializeToString(), optimises=False)
    except Exception:  # the runtime raises its own classes; the caller names the node
        return
    for value, found in zip(values, session.get_outputs(), strict=True):
        if all(isinstance(size, int) for size in found.shape):
            value.shape = oir.Shape(found.shape)
            if found.type == "tensor(float)":
                value.dtype = oir.DataType.FLOAT
