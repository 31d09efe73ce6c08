"""A model in the making: names, borders, and what the writers of nodes are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, Shape, as_unsigned
from dovetail.sw.network.names import unused

OPSET, IR_VERSION = 17, 8
"""At least: a file's own operators keep theirs."""


class Part:
    """A model in the making: declare inputs, add nodes in order, declare outputs.

    Parameters
    ----------
    borders: names of the inputs and outputs to come.

    Attributes
    ----------
    exact: whether ONNX Runtime computes the graph's bytes; not where TFLite's roundings have no equal in ONNX.
    values: the name in the model, by tensor, of those that are there in the graph's shape.
    images: of those that are there as (1, C, H, W).
    """

    def __init__(self, graph: ir.Graph, name: str, borders: Iterable[str]) -> None:
        self.graph = graph
        self.name = name
        self.exact = True
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self.opsets: dict[str, int] = {"": OPSET}
        self._used = set(borders)
        self.values: dict[str, str] = {}
        self.images: dict[str, str] = {}

    # --- borders -------------------------------------------------------------------------------------------------

    def input(self, name: str, tensor: str, port: ir.Port | None = None) -> None:
        """Read a tensor under a name, as the graph has it or as a port of the network declares it."""
        shape = self.graph.tensors[tensor].shape
        source = port or self.graph.tensors[tensor]
        self._declare(self._inputs, name, source.dtype, source.shape)
        value = self.raised(name) if source.dtype == "int8" else name
        if port is not None:
            value = self.reshaped(self.inside(value, port.layout), port.layout.inner, shape)
        self.values[tensor] = value

    def output(self, name: str, tensor: str, port: ir.Port | None = None) -> None:
        """Give a tensor a name, as the graph has it or as a port of the network declares it."""
        value = self.plain(tensor)
        source = port or self.graph.tensors[tensor]
        if port is not None:
            value = self.outside(value, self.graph.tensors[tensor].shape, port.layout)
        if source.dtype == "int8":
            value = self.lowered(value)
        self._declare(self._outputs, name, source.dtype, source.shape)
        self.nodes.append(helper.make_node("Identity", [value], [name], f"{name}/out"))

    def model(self) -> onnx.ModelProto:
        """The model, checked. Raises NetworkError."""
        graph = helper.make_graph(self.nodes, self.name, self._inputs, self._outputs, [*self._constants.values()])
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="dovetail")
        model.ir_version = max(IR_VERSION, helper.find_min_ir_version_for(opsets, ignore_unknown=True))
        try:
            onnx.checker.check_model(model, full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise NetworkError(f"{self.name} must be valid ONNX, not: {first_line(error)}") from error
        return model

    def _declare(self, ports: list[onnx.ValueInfoProto], name: str, dtype: str, shape: Shape) -> None:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        ports.append(helper.make_tensor_value_info(name, kind, shape))

    # --- building blocks -----------------------------------------------------------------------------------------

    def fresh(self, name: str) -> str:
        found = unused(name, self._used)
        self._used.add(found)
        return found

    def op(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        result = self.fresh(name)
        self.nodes.append(helper.make_node(kind, inputs, [result], result, **attributes))
        return result

    def constant(self, value: Any, name: str) -> str:
        result = self.fresh(name)
        self._constants[result] = numpy_helper.from_array(np.asarray(value), result)
        return result

    def is_byte(self, tensor: str) -> bool:
        return self.graph.tensors[tensor].dtype == "int8"

    def raised(self, name: str) -> str:
        """int8 to uint8, 128 higher."""
        return self._offset(name, 128, TensorProto.UINT8)

    def lowered(self, name: str) -> str:
        """uint8 to int8, 128 lower."""
        return self._offset(name, -128, TensorProto.INT8)

    def _offset(self, name: str, offset: int, dtype: int) -> str:
        wide = self.op("Cast", [name], f"{name}/int32", to=TensorProto.INT32)
        moved = self.op("Add", [wide, self.constant(np.int32(offset), f"{name}/offset")], f"{name}/moved")
        return self.op("Cast", [moved], f"{name}/byte", to=dtype)

    def reshaped(self, value: str, before: Shape, after: Shape) -> str:
        if before == after:
            return value
        shape = self.constant(np.array(after, np.int64), f"{value}/shape")
        return self.op("Reshape", [value, shape], f"{value}/reshaped")

    def transposed(self, value: str, perm: Sequence[int]) -> str:
        if list(perm) == sorted(perm):
            return value
        return self.op("Transpose", [value], f"{value}/transposed", perm=list(perm))

    def outside(self, value: str, shape: Shape, layout: Layout) -> str:
        """A file's array for a tensor's of a shape: `Layout.outside`."""
        value = self.reshaped(value, shape, layout.inner)
        turned = tuple(layout.inner[p] for p in layout.perm)
        return self.reshaped(self.transposed(value, layout.perm), turned, layout.shape)

    def inside(self, value: str, layout: Layout) -> str:
        """A tensor's array, of the layout's inner shape, for a file's: `Layout.inside`."""
        turned = tuple(layout.inner[p] for p in layout.perm)
        value = self.reshaped(value, layout.shape, turned)
        return self.transposed(value, [int(i) for i in np.argsort(layout.perm)])

    def plain(self, tensor: str) -> str:
        """The value of a tensor in the graph's shape; constants of the graph are read where they are wanted."""
        if tensor not in self.values and tensor in self.images:
            value = self.transposed(self.images[tensor], (0, 2, 3, 1))
            shape = self.graph.tensors[tensor]
            self.values[tensor] = self.reshaped(value, shape.nhwc, shape.shape)
        if tensor not in self.values:
            maker = self.graph.producer(tensor)
            assert isinstance(maker, ir.Constant), tensor
            integers = as_unsigned(maker.value) if self.is_byte(tensor) else maker.value
            self.values[tensor] = self.constant(integers, tensor)
        return self.values[tensor]

    def image(self, tensor: str) -> str:
        """The value of a tensor as (1, C, H, W)."""
        if tensor not in self.images:
            shape = self.graph.tensors[tensor]
            value = self.reshaped(self.plain(tensor), shape.shape, shape.nhwc)
            self.images[tensor] = self.transposed(value, (0, 3, 1, 2))
        return self.images[tensor]

    def scale(self, tensor: str) -> np.float32:
        scale = self.graph.tensors[tensor].scale
        return np.float32(1) if scale is None else np.float32(scale)

    def real(self, value: str, scale: np.float32, zero: int) -> str:
        """DequantizeLinear of bytes; ``zero`` as in the graph."""
        return self.op("DequantizeLinear", [value, *self._quant(value, scale, zero)], f"{value}/real")

    def quantised(self, value: str, name: str, scale: np.float32, zero: int, clamp: tuple[int, int]) -> str:
        """QuantizeLinear to bytes, and the clamp on them."""
        return self.clamped(self.op("QuantizeLinear", [value, *self._quant(name, scale, zero)], name), name, clamp)

    def _quant(self, name: str, scale: np.float32, zero: int) -> list[str]:
        return [self.constant(scale, f"{name}/scale"), self.constant(np.uint8(zero + 128), f"{name}/zero")]

    def clamped(self, value: str, name: str, clamp: tuple[int, int]) -> str:
        if clamp == (-128, 127):
            return value
        bounds = [
            self.constant(np.uint8(bound + 128), f"{name}/{side}")
            for bound, side in zip(clamp, ("low", "high"), strict=True)
        ]
        return self.op("Clip", [value, *bounds], f"{name}/clamped")

    def lookup(self, value: str, levels: Array, name: str) -> str:
        """``levels`` int8 or int32 [256], in the order of the operands -128 .. 127, at every byte."""
        index = self.op("Cast", [value], f"{name}/index", to=TensorProto.INT32)
        table = as_unsigned(levels) if levels.dtype == np.int8 else levels
        return self.op("Gather", [self.constant(table, f"{name}/table"), index], name)
