"""The form of an int8 QDQ network with uint8 activations, which ONNX Runtime computes in integers.

For int8 activations it leaves some nodes in float32; for uint8 it fuses all of them to its integer kernels. Every
activation and its zero point are 128 higher, which changes no real number. A ReLU or Clip between an operator and its
QuantizeLinear would keep the operator in float32, too; it gets a pair of its own in front of it, which changes none
either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.host.onnx_session import set_nodes
from dovetail.sw.network.layout import Array, as_unsigned

_MOVES = {
    *("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Slice", "Split", "Gather", "Identity"),
    *("MaxPool", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Clip", "Min", "Max"),
}
"""Operators on integers that work with an offset, too; int8 constants among their operands get it as well."""
_CLAMPS = ("Relu", "Clip")
_VIEWS = ("Transpose", "Reshape", "Identity")
_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def uint8_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with uint8 activations, inputs and outputs; weights stay as they are.

    Networks of QOperators, whose int8 kernels compute in integers too, and networks without int8 activations come back
    as they are.

    Raises
    ------
    NetworkError: an operator on int8 values would compute something else on uint8; the text names it.
    """
    if not has_form(node.op_type for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    _Change(changed).run()
    return changed


def has_form(operators: Iterable[str]) -> bool:
    """Whether the uint8 form of a network of these operators differs from it."""
    kinds = set(operators)
    return "QuantizeLinear" in kinds and not any(kind.startswith(("QLinear", "QGemm")) for kind in kinds)


class _Change:
    """The change of one model, in place."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        self.readers: dict[str, list[tuple[Any, int]]] = {}
        for node in self.graph.node:
            for place, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, place))
        self.shifted: set[str] = set()
        """Names of the file that are uint8 from now on."""
        self.added: dict[str, Array] = {}

    def run(self) -> None:
        for port in self.graph.input:
            self._shift(port)
        for node in self.graph.node:
            if node.op_type == "QuantizeLinear":
                self._quantize(node)
            elif node.op_type == "DequantizeLinear":
                self._dequantize(node)
            elif self.shifted.intersection(node.input):
                self._move(node)
        for port in (*self.graph.output, *self.graph.value_info):
            if port.name in self.shifted:
                port.type.tensor_type.elem_type = TensorProto.UINT8
        self._quantise_before_clamps()
        self._replace_constants()

    def _shift(self, port: onnx.ValueInfoProto) -> None:
        if port.type.tensor_type.elem_type == TensorProto.INT8 and port.name not in self.constants:
            port.type.tensor_type.elem_type = TensorProto.UINT8
            self.shifted.add(port.name)

    def _quantize(self, node: onnx.NodeProto) -> None:
        if self._zero_point(node):
            self.shifted.add(node.output[0])
            for attribute in node.attribute:
                if attribute.name == "output_dtype":
                    attribute.i = TensorProto.UINT8

    def _dequantize(self, node: onnx.NodeProto) -> None:
        name = node.input[0]
        if name in self.shifted:
            if not self._zero_point(node):
                del node.input[2:]
                node.input.append(self._constant(f"{name}/zero", np.array(128, np.uint8)))
        elif name in self.constants and not any(_is_weight(self.readers, name) for name in node.output):
            value = numpy_helper.to_array(self.constants[name])
            if value.dtype == np.int8 and self._zero_point(node):
                node.input[0] = self._constant(f"{name}/uint8", as_unsigned(value))

    def _zero_point(self, node: onnx.NodeProto) -> bool:
        """Raise a node's int8 zero point; False if it has none."""
        if len(node.input) < 3 or node.input[2] not in self.constants:
            return False
        value = numpy_helper.to_array(self.constants[node.input[2]])
        if value.dtype != np.int8:
            return False
        node.input[2] = self._constant(f"{node.input[2]}/uint8", as_unsigned(value))
        return True

    def _move(self, node: onnx.NodeProto) -> None:
        if node.op_type not in _MOVES:
            raise NetworkError(
                f"node {node.name or node.output[0]!r} ({node.op_type}): must not compute on int8 values; put it "
                "between DequantizeLinear and QuantizeLinear"
            )
        for place, name in enumerate(node.input):
            value = numpy_helper.to_array(self.constants[name]) if name in self.constants else None
            if value is not None and value.dtype == np.int8:
                node.input[place] = self._constant(f"{name}/uint8", as_unsigned(value))
        self.shifted.update(node.output)

    def _replace_constants(self) -> None:
        used = {name for node in self.graph.node for name in node.input}
        kept = [tensor for tensor in self.graph.initializer if tensor.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        self.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.added.items())

    def _quantise_before_clamps(self) -> None:
        fusible = self._fusible()
        nodes: list[onnx.NodeProto] = []
        for node in self.graph.node:
            target = self._quantiser(node) if node.op_type in _CLAMPS and node.input[0] in fusible else None
            if target is not None:
                name, parameters = node.input[0], target.input[1:]
                integers, reals = f"{name}/quantised", f"{name}/dequantised"
                nodes.append(helper.make_node("QuantizeLinear", [name, *parameters], [integers], integers))
                nodes.append(helper.make_node("DequantizeLinear", [integers, *parameters], [reals], reals))
                node.input[0] = reals
            nodes.append(node)
        set_nodes(self.graph, nodes)

    def _fusible(self) -> set[str]:
        """Results of operators on dequantised values, clamped or not: with a pair behind them they fuse to an integer
        kernel. What is computed from reals stays as it is."""
        dequantised = {name for node in self.graph.node if node.op_type == "DequantizeLinear" for name in node.output}
        found: set[str] = set()
        for node in self.graph.node:
            operands = [name for name in node.input if name and name not in self.constants]
            known = dequantised | found if node.op_type in _CLAMPS else dequantised
            if operands and node.op_type != "DequantizeLinear" and known.issuperset(operands):
                (dequantised if node.op_type in _VIEWS else found).update(node.output)
        return found

    def _quantiser(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The QuantizeLinear that alone reads a node's result, perhaps behind more clamps."""
        readers = [reader for reader, _ in self.readers.get(node.output[0], [])]
        if len(readers) != 1 or node.output[0] in {port.name for port in self.graph.output}:
            return None
        (reader,) = readers
        if reader.op_type == "QuantizeLinear":
            return reader
        return self._quantiser(reader) if reader.op_type in _CLAMPS else None

    def _constant(self, name: str, value: Array) -> str:
        self.added[name] = value
        return name


def _is_weight(readers: dict[str, list[tuple[Any, int]]], name: str) -> bool:
    """Whether a dequantised constant, perhaps moved, is the weights or bias of something."""
    for node, place in readers.get(name, []):
        if node.op_type in _WEIGHTED and place > 0:
            return True
        if node.op_type in _VIEWS and _is_weight(readers, node.output[0]):
            return True
    return False
