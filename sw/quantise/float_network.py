"""Float networks as the quantiser sees them: normalised, with producers, consumers, shapes and constants by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw import frontend
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import check_valid, is_quantised
from dovetail.sw.frontend.parsed_file import ParsedFile, Shapes
from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.network.names import unused
from dovetail.sw.passes.float.normalise import normalise


def read_float(path: str | Path, shapes: Shapes | None = None) -> onnx.ModelProto:
    """A float ONNX or TFLite file as a normalised ONNX network.

    Parameters
    ----------
    path: the file.
    shapes: input name -> sizes, for axes that the file leaves open.

    Raises
    ------
    NetworkError: the file cannot be read, or is malformed.
    """
    return float_model(frontend.parse(frontend.read(path), shapes))


def float_model(source: ParsedFile) -> onnx.ModelProto:
    """A float network, normalised. Raises NetworkError."""
    model = source.as_onnx()
    try:
        normalised = normalise(model)
    except NetworkError as error:
        raise NetworkError(f"{source.name}: {error}") from error
    check_valid(model, source.name)
    return normalised


def rest_of(source: ParsedFile, model: onnx.ModelProto) -> bytes:
    """The file of what is behind a float network's cut; ``model``: what `float_model` gave."""
    return source.rest(
        {
            value.name: (
                str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
                tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            )
            for value in onnx.shape_inference.infer_shapes(model).graph.output
        }
    )


@dataclass(frozen=True)
class Input:
    """A network input: its name, fixed shape and element type."""

    name: str
    shape: Shape
    dtype: str


class FloatGraph:
    """Read access to a model; shapes and types are inferred.

    Parameters
    ----------
    model: a float network; nodes get names where they have none, and every constant operand one consumer.
    states: input -> output of its variables.

    Raises
    ------
    NetworkError: the network is quantised already, or a shape cannot be inferred.
    """

    def __init__(self, model: onnx.ModelProto, states: Mapping[str, str] = MappingProxyType({})) -> None:
        self.model, self.states = _prepared(model), states
        self.originals = _unshare(self.model.graph)
        """Of each constant that is a copy, the name of the one that several nodes had."""
        graph = self.model.graph
        self.nodes = list(graph.node)
        self.outputs = {value.name for value in graph.output}
        self._initialisers = {tensor.name: tensor for tensor in graph.initializer}
        infos = [*graph.value_info, *graph.output, *graph.input]
        self._types = {info.name: info.type.tensor_type for info in infos}
        self.producers = {name: node for node in self.nodes for name in node.output if name}

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The network's inputs without those that only name a constant."""
        values = [value for value in self.model.graph.input if value.name not in self._initialisers]
        return tuple(Input(value.name, self.shape(value.name), self._dtype(value.name)) for value in values)

    @cached_property
    def consumers(self) -> Mapping[str, list[onnx.NodeProto]]:
        """Nodes that read a tensor, each once."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.input):
                found.setdefault(name, []).append(node)
        return found

    def shape(self, name: str) -> Shape:
        """Fixed shape of a tensor. Raises NetworkError."""
        if name in self._initialisers:
            return tuple(self._initialisers[name].dims)
        found = self._types.get(name)
        if found is None or not found.HasField("shape"):
            raise NetworkError(f"tensor {name!r} must have a known shape; export with static shapes")
        sizes = tuple(dim.dim_value for dim in found.shape.dim)
        if 0 in sizes:
            raise NetworkError(f"tensor {name!r} must have a fixed shape, not {sizes}; export with static shapes")
        return sizes

    def is_activation(self, name: str) -> bool:
        """Whether a name is a float32 tensor that depends on the network's inputs."""
        found = self._types.get(name)
        return name not in self._initialisers and found is not None and found.elem_type == TensorProto.FLOAT

    def is_constant(self, name: str) -> bool:
        """Whether a name is an initialiser."""
        return name in self._initialisers

    def constant(self, name: str) -> Array | None:
        """The array behind an initialiser."""
        tensor = self._initialisers.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def constants(self, node: onnx.NodeProto) -> list[Array]:
        """The constant operands of a node."""
        return [numpy_helper.to_array(self._initialisers[name]) for name in node.input if name in self._initialisers]

    def activations(self, node: onnx.NodeProto) -> list[str]:
        """The operands of a node that are no constants, each once."""
        return [name for name in dict.fromkeys(node.input) if name and name not in self._initialisers]

    def _dtype(self, name: str) -> str:
        return str(np.dtype(helper.tensor_dtype_to_np_dtype(self._types[name].elem_type)))


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """An attribute of a node, or its default."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in model.graph.node:
        if is_quantised([node.op_type]):
            raise NetworkError(f"node {node.name!r} ({node.op_type}): the network must be float, not quantised already")
    try:
        copy = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # the shape inference raises several classes
        raise NetworkError(f"float network must have consistent shapes: {error}") from error
    used: set[str] = set()
    for index, node in enumerate(copy.graph.node):
        node.name = _taken(node.name or f"{node.op_type}_{index}", used)
    return copy


def _taken(name: str, used: set[str]) -> str:
    found = unused(name, used)
    used.add(found)
    return found


def _unshare(graph: onnx.GraphProto) -> dict[str, str]:
    """Give every reader of a float constant its own copy: each may be quantised in its own way. Copy -> original."""
    initialisers = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT}
    names = {name for node in graph.node for name in (*node.input, *node.output)} | {t.name for t in graph.initializer}
    seen: set[str] = set()
    originals: dict[str, str] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in initialisers and name in seen:
                tensor = graph.initializer.add()
                tensor.CopyFrom(initialisers[name])
                tensor.name = node.input[index] = _taken(name, names)
                originals[tensor.name] = name
            seen.add(name)
    return originals
