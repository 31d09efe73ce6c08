"""Writers of the host's nodes: conversions of numbers and layouts, and the file's own operators."""

from __future__ import annotations

import onnx
from onnx import numpy_helper, version_converter

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.export.parts.part import OPSET, Part
from dovetail.sw.host import kernels
from dovetail.sw.network import ir


def write_host(part: Part, node: ir.Host) -> None:
    """Append a node of the host. Raises NetworkError where it has no form in ONNX."""
    payload, source, result = node.payload, node.inputs[0] if node.inputs else "", node.outputs[0]
    match payload:
        case kernels.Quantize():
            part.exact &= payload.ties_even
            value = part.plain(source)
            quantised = part.quantised(value, result, payload.scale, payload.zero_point, (-128, 127))
            part.values[result] = _shaped(part, quantised, source, result)
        case kernels.Dequantize():
            real = part.real(part.plain(source), payload.scale, payload.zero_point)
            part.values[result] = _shaped(part, real, source, result)
        case kernels.Permute():
            outside = part.outside(part.plain(source), part.graph.tensors[source].shape, payload.before)
            value = part.inside(outside, payload.after)
            part.values[result] = part.reshaped(value, payload.after.inner, part.graph.tensors[result].shape)
        case kernels.OnnxOp():
            _file_node(part, node, payload)
        case _:
            raise NetworkError(f"{node.name!r}: {node.op} has no form in ONNX")


def _shaped(part: Part, value: str, source: str, result: str) -> str:
    return part.reshaped(value, part.graph.tensors[source].shape, part.graph.tensors[result].shape)


def _file_node(part: Part, node: ir.Host, payload: kernels.OnnxOp) -> None:
    """A node of the network's file, as it is there."""
    model = _current(part, onnx.load_model_from_string(payload.model), payload.label)
    names: dict[str, str] = {"": ""}
    for tensor, wire in zip(node.inputs, payload.inputs, strict=True):
        value = part.plain(tensor)
        if part.is_byte(tensor) and not wire.unsigned:
            value = part.lowered(value)
        names[wire.name] = part.outside(value, part.graph.tensors[tensor].shape, wire.layout)
    for constant in model.graph.initializer:
        names[constant.name] = part.constant(numpy_helper.to_array(constant), constant.name)
    for proto in model.graph.node:
        for name in proto.output:
            names.setdefault(name, part.fresh(name))
        proto.input[:] = [names[name] for name in proto.input]
        proto.output[:] = [names[name] for name in proto.output]
        part.nodes.append(proto)
    for tensor, wire in zip(node.outputs, payload.outputs, strict=True):
        value = part.inside(names[wire.name], wire.layout)
        if part.is_byte(tensor) and not wire.unsigned:
            value = part.raised(value)
        part.values[tensor] = part.reshaped(value, wire.layout.inner, part.graph.tensors[tensor].shape)


def _current(part: Part, model: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """The model in an operator set that this one can have, which is written down."""
    versions = {opset.domain: opset.version for opset in model.opset_import}
    if versions.get("", OPSET) < OPSET:
        try:
            model = version_converter.convert_version(model, OPSET)
        except Exception as error:  # the converter raises several classes, undocumented
            reason = first_line(error)
            raise NetworkError(f"{label}: must have a form in operator set {OPSET}, not: {reason}") from error
        versions[""] = OPSET
    part.opsets |= versions
    return model
