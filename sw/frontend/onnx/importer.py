"""ONNX front end: QDQ and QOperator networks become a `Graph` with ONNX's own numerics.

The file's nodes are walked once, in order. What a name stands for is in a `Scope`. How an operator becomes a node of
the graph is in `operators`, a file for each family. A float result waits for its QuantizeLinear; if it is wanted as
float after all, ONNX Runtime computes it on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx

from dovetail.sw.errors import NetworkError, not_quantised
from dovetail.sw.frontend.onnx.file import OnnxFile, OnnxInput, OnnxNode, check_valid, is_quantised
from dovetail.sw.frontend.onnx.operators import convolution, elementwise, movement, pooling, stream
from dovetail.sw.frontend.onnx.scope import Scope
from dovetail.sw.frontend.onnx.values import Constant, Target, Value
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Layout

_FAMILIES = (convolution, elementwise, movement, pooling)
NODES: Mapping[str, Callable[[Scope, OnnxNode], bool]] = {
    name: reader for family in _FAMILIES for name, reader in family.NODES.items()
}
"""Operators on integers, or on dequantised tensors and integers alike. False: the node is another case."""
BETWEEN: Mapping[str, Callable[[Scope, OnnxNode, Target], Value | None]] = {
    name: reader for family in _FAMILIES for name, reader in family.BETWEEN.items()
}
"""Operators between DequantizeLinear and QuantizeLinear. None: the node is another case."""
WAITING = {*BETWEEN, *elementwise.COMBINATIONS, *elementwise.FUNCTIONS}
"""Operators whose float results wait for a QuantizeLinear."""


class Importer:
    """Reads one file; its `scope` then says what the file's names are. ``states``: input -> output of its variables."""

    def __init__(self, file: OnnxFile, states: Mapping[str, str] | None = None) -> None:
        self.file = file
        self.states = states or {}
        self.scope = Scope(file, convolution.scaled_sums)
        self.builder = self.scope.builder

    def read(self) -> ir.Graph:
        if not is_quantised(node.op for node in self.file.nodes):
            check_valid(self.file.model, self.file.name)
            raise not_quantised(self.file.name)
        inputs = [self._input(declared) for declared in self.file.inputs]
        for node in self.file.nodes:
            self._node(node)
        written = set(self.states.values())
        outputs = tuple(self._output(name) for name in self.file.outputs if name not in written)
        if not any(tensor.dtype == "int8" for tensor in self.builder.tensors.values()):
            found, way_out = self._other_types() or "float", "quantise them to 8 bits"
            raise NetworkError(f"{self.file.name}: activations must be int8 or uint8, not {found}; {way_out}")
        states = tuple(self._state(port) for port in inputs if port.name in self.states)
        ports = tuple(self._annotated(port) for port in inputs if port.name not in self.states)
        tensors, nodes = self.builder.tensors, tuple(self.builder.nodes)
        return ir.Graph(ports, outputs, tensors, nodes, "onnx", self.file.name, states)

    def _state(self, port: ir.Port) -> ir.State:
        """A variable: real zeros at first. It is written in the order in which it is read."""
        tensor = self.builder.tensors[port.tensor]
        value = self.builder.placed(self.scope.value(self.states[port.name]), port.layout)
        start = tensor.zero_point if tensor.scale is not None else -port.offset
        return ir.State(port.name, port.tensor, value.tensor, np.full(tensor.shape, start, tensor.dtype))

    def _other_types(self) -> str:
        """The element types of quantised tensors besides those of 8 bits."""
        points = (node.input(2) for node in self.file.nodes if node.op == "QuantizeLinear")
        types = {str(self.file.constants[name].dtype) for name in points if name in self.file.constants}
        return " and ".join(sorted(types - {"int8", "uint8"}))

    def _input(self, declared: OnnxInput) -> ir.Port:
        image = len(declared.shape) == 4 and movement.wants_image(self.file, declared.name)
        layout = Layout.image(declared.shape) if image else Layout.plain(declared.shape)
        tensor = self.builder.tensor(declared.name, layout.inner, declared.dtype)
        self.scope.values[declared.name] = Value(tensor, layout, declared.dtype)
        offset = 128 if declared.dtype == "uint8" else 0
        return ir.Port(declared.name, tensor, declared.dtype, None, 0, layout, offset)

    def _annotated(self, port: ir.Port) -> ir.Port:
        """A port with the quantisation its consumers revealed."""
        tensor = self.builder.tensors[port.tensor]
        return replace(port, scale=tensor.scale, zero_point=tensor.zero_point + port.offset if tensor.scale else 0)

    def _output(self, name: str) -> ir.Port:
        value = self.scope.value(name)
        tensor = self.builder.tensors[value.tensor]
        offset = 128 if value.dtype == "uint8" else 0
        zero = tensor.zero_point + offset if tensor.scale else 0
        return ir.Port(name, tensor.name, value.dtype, tensor.scale, zero, value.layout, offset)

    def _node(self, node: OnnxNode) -> None:
        scope = self.scope
        if self._fold(node):
            return
        if node.op == "DequantizeLinear" and self._dequantize(node):
            return
        if node.op == "QuantizeLinear" and self._quantize(node):
            return
        reader = NODES.get(node.op, elementwise.mapped_integers)
        if reader(scope, node):
            return
        if (node.op in WAITING or self.file.mapping(node) is not None) and scope.wait(node):
            return
        if scope.is_normed(node):
            scope.waiting[node.outputs[0]] = node
            return
        scope.host(node)

    def _fold(self, node: OnnxNode) -> bool:
        """Constants of constants; a dequantised constant keeps its integers."""
        scope = self.scope
        names = [name for name in node.inputs if name]
        if node.op == "Transpose" and names[0] in scope.quantised and names[0] not in self.file.constants:
            held = scope.quantised[names[0]]
            perm = node.attributes.get("perm", range(held.values.ndim)[::-1])
            scope.quantised[node.outputs[0]] = held.transposed(tuple(int(p) for p in perm))
            return True
        found = {name: array for name in names if (array := scope.constant(name)) is not None}
        if len(found) < len(set(names)):
            return False
        if node.op == "DequantizeLinear" and "block_size" not in node.attributes:
            values, scale = found[node.inputs[0]], found[node.inputs[1]]
            zero = found.get(node.input(2), np.zeros((), values.dtype))
            axis = int(node.attributes.get("axis", 1)) if scale.size > 1 else 0
            scope.quantised[node.outputs[0]] = Constant(values, scale, zero, axis)
            return True
        results = self.builder.run_constant(node, found)
        scope.constants.update(zip([name for name in node.outputs if name], results, strict=True))
        return True

    def _dequantize(self, node: OnnxNode) -> bool:
        if stream.dequantise(self.scope, node):
            return True
        source = self.scope.operand(node, 0)
        if source is None or source.value.dtype != source.quant.dtype:
            return False
        self.scope.sources[node.outputs[0]] = source
        return True

    def _quantize(self, node: OnnxNode) -> bool:
        scope, name, result = self.scope, node.inputs[0], node.outputs[0]
        signed = node.attributes.get("output_dtype", 0) == onnx.TensorProto.INT8
        quant = scope.quant(node, 1, 2, "int8" if signed else "uint8")
        if quant is None:
            return scope.put(node, stream.quantise(scope, node))
        if name in scope.streams and scope.put(
            node, stream.narrow(scope, scope.streams[name], Target(node.name, result, quant))
        ):
            return True
        source = scope.sources.get(name)
        if source is not None:
            return scope.put(node, elementwise.requantise(scope, source, Target(node.name, result, quant)))
        if name in scope.waiting and scope.put(node, self._fuse(name, Target("", result, quant))):
            return True
        value = scope.value(name)
        if value.dtype != "float32":
            return False
        return scope.put(node, self.builder.quantize(node.name, result, value, quant))

    def _fuse(self, name: str, target: Target) -> Value | None:
        """[operator, activations, QuantizeLinear] as one integer node, or a table; None if they are something else."""
        scope = self.scope
        node, wanted = scope.waiting[name], target
        while node.op in ("Relu", "Clip") and node.inputs[0] in scope.waiting:
            clamped = elementwise.clamped(scope, node, wanted)
            if clamped is None:
                break
            node, wanted = scope.waiting[node.inputs[0]], clamped
        reader = BETWEEN.get(node.op, elementwise.mapped)
        value = reader(scope, node, replace(wanted, node=node.name))
        if value is not None:
            return value
        expression = elementwise.expression(scope, name)
        if expression is None:
            return None
        return elementwise.function(scope, expression, replace(target, node=scope.waiting[name].name))
