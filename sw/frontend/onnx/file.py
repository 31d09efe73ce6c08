"""Reading an ONNX file: protobuf to checked Python values, before anything is said about quantisation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, helper, inliner, numpy_helper

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.onnx.contrib import RMS_NORM
from dovetail.sw.frontend.onnx.limits import check_functions, check_text
from dovetail.sw.frontend.onnx.mapping import OnnxMapping, mappings
from dovetail.sw.frontend.onnx.uint8_form import has_form
from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.passes.float.model_proto import fix_inputs

STANDARD_DOMAINS = ("", "ai.onnx")
RUNTIME_DOMAINS = ("com.microsoft", "ai.onnx.ml")
_RUNTIMES_OWN = (RMS_NORM,)
"""Operators of the runtime in the standard's domain."""
_CONTROL_FLOW = ("If", "Loop", "Scan")
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger")


def is_quantised(operators: Iterable[str]) -> bool:
    """Whether any of these operators is one of quantised networks."""
    return any(operator in _QUANTISED or operator.startswith(("QLinear", "QGemm")) for operator in operators)


def check_known(operator: str, domain: str, label: str) -> None:
    """Raises NetworkError for an operator that neither ONNX nor ONNX Runtime has; ``label``: of the node.

    Any operator set: ONNX Runtime knows some operators before the standard takes them in.
    """
    if not isinstance(operator, str) or not isinstance(domain, str):  # bytes that are no text
        raise NetworkError(f"node {label}: operator must be named in UTF-8, not {operator!r} of {domain!r}")
    if domain in RUNTIME_DOMAINS or (
        domain in STANDARD_DOMAINS and (operator in _RUNTIMES_OWN or onnx.defs.has(operator))
    ):
        return
    full = f"{domain}.{operator}" if domain else operator
    raise NetworkError(f"node {label}: operator must be one of ONNX or ONNX Runtime, not {full}; replace it on export")


def check_control_flow(operator: str, domain: str, label: str) -> None:
    """Raises NetworkError for a branch or loop; ``label``: of the node."""
    if operator in _CONTROL_FLOW and domain in STANDARD_DOMAINS:
        raise NetworkError(f"node {label}: the network must be free of control flow; unroll it on export")


@dataclass(frozen=True)
class OnnxNode:
    """One node of the file, with a name that is unique and never empty."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: Any

    @property
    def label(self) -> str:
        """For messages: name and operator."""
        return f"{self.name!r} ({self.op})"

    @property
    def domain(self) -> str:
        """Of the operator; "" of ONNX's own."""
        return str(self.proto.domain)

    def input(self, index: int) -> str:
        """Name of an input, "" if left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(frozen=True)
class OnnxInput:
    """A network input with a fixed shape; of four axes and more the first is the batch, 1."""

    name: str
    shape: Shape
    dtype: str


class OnnxFile:
    """Nodes in order, constants, inputs and outputs of an ONNX network, as `parse_model` gives it.

    Raises
    ------
    NetworkError: batch other than 1, control flow, unknown operators.
    """

    def __init__(self, model: onnx.ModelProto, name: str) -> None:
        self.name = name
        self.model = model
        self.mappings = mappings()
        self.functions = {(function.domain, function.name): function for function in model.functions}
        self.opsets = list(model.opset_import)
        self.ir_version = model.ir_version
        graph = model.graph
        self.constants: dict[str, Array] = {}
        for tensor in graph.initializer:
            self.constants[tensor.name] = _value(tensor)
        self.inputs = [_input(value) for value in graph.input]
        self.outputs = [value.name for value in graph.output]
        self.nodes = list(self._nodes(graph.node))
        self.kernel_types = {"uint8": "uint8", "int8": "uint8" if has_form(node.op for node in self.nodes) else "int8"}
        """In which type ONNX Runtime's kernels have the activations of either type (`sw.frontend.onnx.uint8_form`)."""
        self.consumers: dict[str, list[OnnxNode]] = {}
        for node in self.nodes:
            for tensor_name in node.inputs:
                self.consumers.setdefault(tensor_name, []).append(node)

    def mapping(self, node: OnnxNode) -> OnnxMapping | None:
        """What an extension makes of a node."""
        return self.mappings.get((node.domain, node.op))

    def _nodes(self, protos: Any) -> Iterator[OnnxNode]:
        used: set[str] = set()
        for index, proto in enumerate(protos):
            name = proto.name or (proto.output[0] if proto.output else f"node_{index}")
            while name in used:
                name += f"_{index}"
            used.add(name)
            attributes = {a.name: helper.get_attribute_value(a) for a in proto.attribute}
            node = OnnxNode(name, proto.op_type, tuple(proto.input), tuple(proto.output), attributes, proto)
            check_control_flow(node.op, node.domain, node.label)
            if (node.domain, node.op) not in self.functions:
                check_known(node.op, node.domain, node.label)
            yield node


def parse_model(
    data: bytes, name: str, folder: Path | None, shapes: Mapping[str, Sequence[int]] | None
) -> tuple[onnx.ModelProto, bool]:
    """The model without local functions but those that an instruction does, with inputs of fixed shapes and with its
    external data.

    Parameters
    ----------
    folder: where external data lie.
    shapes: input name -> sizes; see `fix_inputs`.

    Returns
    -------
    model, changed: whether it now holds what the file does not: external data or shapes.

    Raises
    ------
    NetworkError: no ONNX network, missing external data, or an axis other than the batch stays open.
    """
    wrong = f"{name}: must be a complete TFLite or ONNX file"
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf raises several classes, none of them public
        raise NetworkError(f"{wrong}, not damaged or of another kind") from error
    if not model.graph.node or not model.opset_import:
        raise NetworkError(f"{wrong}, not one without nodes")
    try:
        check_text(model)
        apart = folder is not None and any(map(external_data_helper.uses_external_data, _tensors(model)))
        if apart:
            _load_external_data(model, folder)
        if model.functions:
            check_functions(model)
            model = inliner.inline_selected_functions(model, [*mappings()], exclude=True)
    except NetworkError as error:
        raise NetworkError(f"{name}: {error}") from None
    except Exception as error:  # as above
        raise NetworkError(f"{wrong}, not damaged ({first_line(error)})") from error
    try:
        return model, fix_inputs(model, shapes or {}) or apart
    except NetworkError:
        raise
    except Exception as error:  # a damaged file fails anywhere in protobuf's accessors
        raise NetworkError(f"{name}: ONNX file must be well formed, not damaged ({error!r})") from error


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def _load_external_data(model: onnx.ModelProto, folder: Path | None) -> None:
    try:
        external_data_helper.load_external_data_for_model(model, str(folder))
    except Exception as error:  # protobuf's classes, and OSError for missing data
        raise NetworkError(f"external data must be beside the file and below 2 GB, not: {first_line(error)}") from error


def check_valid(model: Any, name: str) -> None:
    """Raises NetworkError for a network that breaks ONNX's rules: types, shapes, attributes that do not go together.

    ONNX Runtime may take what ONNX's checker refuses; that passes.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        # What `fix_inputs` takes away is no mistake of the file: shapes of outputs, and inputs that are constants.
        inferred.ir_version = max(inferred.ir_version, 4)
        for value in inferred.graph.output:
            value.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(inferred)
    except Exception as error:  # the checker and the shape inference have classes of their own
        reason = " ".join(str(error).split("==>")[0].split())
    else:
        return
    # Imported late: valid networks do not need it here.
    from dovetail.sw.host.onnx_session import open_session

    try:
        open_session(model.SerializeToString())
    except Exception as error:  # the runtime raises its own classes
        raise NetworkError(f"{name}: must be a valid ONNX network, not one that breaks its rules: {reason}") from error


def _value(tensor: Any) -> Array:
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # sizes, types, places: anything may be wrong
        reason = first_line(error)
        raise NetworkError(f"constant {tensor.name!r} must hold what its shape and type say, not: {reason}") from error


def _input(value: Any) -> OnnxInput:
    tensor = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    if len(shape) > 3 and shape[0] != 1:  # with fewer axes the first may be time, rows, layers of a recurrent network
        raise NetworkError(f"input {value.name!r}: batch must be 1, not {shape[0]}; export with batch 1")
    dtype = str(np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
    return OnnxInput(value.name, shape, dtype)
