"""Reading an ONNX file: protobuf to checked Python values, before anything is said about quantisation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, helper, inliner, numpy_helper

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.onnx.limits import check_functions, check_text
from dovetail.sw.frontend.onnx.mapping import OnnxMapping, mappings
from dovetail.sw.frontend.onnx.uint8_form import has_form
from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.passes.float.model_proto import fix_inputs

STANDARD_DOMAINS = ("", "ai.onnx")
RUNTIME_DOMAINS = ("com.microsoft", "ai.onnx.ml")
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
    if domain in RUNTIME_DOMAINS or (domain in STANDARD_DOMAINS and onnx.defs.has(operator)):
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
    """Nodes in order, constants, inputs and outputs of an ONNX network.

    Raises
    ------
    NetworkError: no ONNX network, open axes other than the batch, batch other than 1, control flow, unknown operators.
    """

    def __init__(self, data: bytes, name: str, folder: Path | None) -> None:
        self.name = name
        self.mappings = mappings()
        model = self.model = parse_model(data, name, folder, kept=self.mappings)
        fix_inputs(model, {})
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


def parse_model(data: bytes, name: str, folder: Path | None, kept: Collection[tuple[str, str]] = ()) -> Any:
    """The model with its external data if ``folder`` says where, without local functions but those ``kept``, pairs of
    domain and name. Raises NetworkError."""
    wrong = f"{name}: must be a complete TFLite or ONNX file"
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf raises several classes, none of them public
        raise NetworkError(f"{wrong}, not damaged or of another kind") from error
    if not model.graph.node or not model.opset_import:
        raise NetworkError(f"{wrong}, not one without nodes")
    try:
        check_text(model)
        if folder is not None:
            external_data_helper.load_external_data_for_model(model, str(folder))
        if model.functions:
            check_functions(model)
            model = inliner.inline_selected_functions(model, [*kept], exclude=True)
    except NetworkError as error:
        raise NetworkError(f"{name}: {error}") from None
    except Exception as error:  # as above; also OSError for missing external data
        raise NetworkError(f"{wrong} with all its external data, not: {first_line(error)}") from error
    return model


def check_valid(model: Any, name: str) -> None:
    """Raises NetworkError for a network that breaks ONNX's rules: types, shapes, attributes that do not go together.

    ONNX Runtime may take what ONNX's checker refuses; that passes.
    """
    try:
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True))
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
