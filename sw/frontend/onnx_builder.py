"""Emits graph nodes for the ONNX front end: names, layouts, host fallback."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dovetail.sw import graph as ir
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx_file import OnnxFile, OnnxNode
from dovetail.sw.frontend.onnx_values import Quant, Source, Value
from dovetail.sw.host import Dequantize, OnnxOp, Pad, Permute, Quantize, Wire
from dovetail.sw.layout import Array, Layout, Shape


class GraphBuilder:
    """Collects tensors and nodes; every method returns where the result is."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self.tensors: dict[str, ir.Tensor] = {}
        self.nodes: list[ir.Node] = []
        self._node_names: set[str] = set()
        self._moved: dict[tuple[str, Layout], str] = {}

    def node_name(self, wanted: str) -> str:
        """A node name nobody has yet."""
        name, count = wanted, 1
        while name in self._node_names:
            count += 1
            name = f"{wanted}_{count}"
        self._node_names.add(name)
        return name

    def tensor(self, wanted: str, shape: Shape, dtype: str, quant: Quant | None = None) -> str:
        """Declare a tensor, under a name nobody has yet."""
        name, count = wanted, 1
        while name in self.tensors:
            count += 1
            name = f"{wanted}_{count}"
        scale, zero = (quant.scale, quant.zero_point) if quant is not None else (None, 0)
        self.tensors[name] = ir.Tensor(name, shape, scale, zero, _inside(dtype))
        return name

    def integer(self, name: str, layout: Layout, quant: Quant) -> Value:
        """Declare the int8 result of an accelerator node."""
        return Value(self.tensor(name, layout.inner, "int8", quant), layout, quant.dtype)

    def host(self, label: str, name: str, sources: tuple[str, ...], results: tuple[str, ...], payload: Any) -> None:
        """Append a host node."""
        self.nodes.append(
            ir.Host(name=self.node_name(name), inputs=sources, outputs=results, label=label, payload=payload)
        )

    def annotate(self, value: Value, quant: Quant) -> None:
        """Write the quantisation that a consumer reveals into a tensor that has none."""
        tensor = self.tensors[value.tensor]
        if tensor.scale is None and tensor.dtype == "int8":
            self.tensors[value.tensor] = replace(tensor, scale=quant.scale, zero_point=quant.zero_point)

    def nhwc(self, value: Value) -> Shape | None:
        """How a spatial node would see the tensor; None if it could not."""
        shape = self.tensors[value.tensor].shape
        return (1,) * (4 - len(shape)) + shape if len(shape) < 4 or shape[0] == 1 else None

    # Layout ------------------------------------------------------------------------------------

    def placed(self, value: Value, layout: Layout) -> Value:
        """The same file array with its bytes as `layout` says; the host moves them if they are not."""
        tensor = self.tensors[value.tensor]
        if value.layout == layout and tensor.shape == layout.inner:
            return value
        key = (value.tensor, layout)
        if key not in self._moved:
            same = value.layout.same_memory(layout)
            if same and tensor.shape == layout.inner:
                return replace(value, layout=layout)
            name = self.tensor(f"{value.tensor}/view", layout.inner, tensor.dtype)
            self.tensors[name] = replace(tensor, name=name, shape=layout.inner)
            if same and tensor.dtype == "int8":
                self.nodes.append(
                    ir.Reshape(
                        name=self.node_name(f"{value.tensor}/reshape"),
                        inputs=(value.tensor,),
                        outputs=(name,),
                        shape=layout.inner,
                    )
                )
            else:
                payload = Permute(value.layout, layout)
                self.host("transpose", f"{value.tensor}/transpose", (value.tensor,), (name,), payload)
            self._moved[key] = name
        return replace(value, tensor=self._moved[key], layout=layout)

    def image(self, value: Value) -> Value:
        """An NCHW name of the file as an NHWC tensor."""
        return self.placed(value, Layout.image(value.shape))

    def plain(self, value: Value) -> Value:
        """A name of the file with its bytes in the file's order."""
        return self.placed(value, Layout.plain(value.shape))

    # Host nodes --------------------------------------------------------------------------------

    def dequantize(self, name: str, source: Source) -> Value:
        """int8 -> float32 on the host."""
        value = source.value
        result = self.tensor(name, self.tensors[value.tensor].shape, "float32")
        payload = Dequantize(source.quant.scale, source.quant.zero_point)
        self.host("dequantize", f"{name}/dequantize", (value.tensor,), (result,), payload)
        return Value(result, value.layout, "float32")

    def quantize(self, node_name: str, name: str, value: Value, quant: Quant) -> Value:
        """float32 -> int8 on the host."""
        result = self.tensor(name, self.tensors[value.tensor].shape, "int8", quant)
        payload = Quantize(quant.scale, quant.zero_point, ties_even=True)
        self.host("quantize", node_name, (value.tensor,), (result,), payload)
        return Value(result, value.layout, quant.dtype)

    def pad(self, node_name: str, name: str, source: Source, pads: ir.Pads) -> Value:
        """Frame an NCHW name of the file with real zeros; `fold_pads` removes most of these again."""
        image = self.image(source.value)
        _, channels, height, width = image.shape
        layout = Layout.image((1, channels, height + pads[0] + pads[2], width + pads[1] + pads[3]))
        out = self.integer(name, layout, source.quant)
        payload = Pad(pads, source.quant.zero_point)
        self.host("pad", node_name, (image.tensor,), (out.tensor,), payload)
        return out

    def run_constant(self, node: OnnxNode, constants: dict[str, Array]) -> list[Array]:
        """Results of a node whose inputs are all constants."""
        outputs = tuple(name for name in node.outputs if name)
        wires = tuple(Wire(name, Layout.plain(())) for name in outputs)
        model = self._model(node, constants, {})
        return OnnxOp(model, f"node {node.label}", (), wires).raw({})

    def onnx_node(self, node: OnnxNode, values: dict[str, Value], constants: dict[str, Array]) -> dict[str, Value]:
        """Leave a node to ONNX Runtime; returns its outputs by name.

        Shapes and element types of the outputs come from running it once on zeros.
        """
        label = f"node {node.label}"
        model = self._model(node, constants, values)
        names = tuple(name for name in node.outputs if name)
        ins = tuple(Wire(name, value.layout, value.dtype == "uint8") for name, value in values.items())
        probe = OnnxOp(model, label, ins, tuple(Wire(name, Layout.plain(())) for name in names))
        zeros = {name: np.zeros(value.shape, value.dtype) for name, value in values.items()}
        images = any(value.layout == Layout.image(value.shape) for value in values.values() if len(value.shape) == 4)
        results: dict[str, Value] = {}
        for name, sample in zip(names, probe.raw(zeros), strict=True):
            shape, dtype = tuple(sample.shape), str(sample.dtype)
            if dtype == "object":
                raise NetworkError(f"{label}: outputs must be numbers, not strings")
            layout = Layout.image(shape) if images and len(shape) == 4 else Layout.plain(shape)
            results[name] = Value(self.tensor(name, layout.inner, dtype), layout, dtype)
        outs = tuple(Wire(name, value.layout, value.dtype == "uint8") for name, value in results.items())
        payload = replace(probe, outputs=outs)
        sources = tuple(value.tensor for value in values.values())
        self.host(node.op.lower(), node.name, sources, tuple(v.tensor for v in results.values()), payload)
        return results

    def _model(self, node: OnnxNode, constants: dict[str, Array], values: dict[str, Value]) -> bytes:
        used = dict.fromkeys(name for name in node.inputs if name)
        graph = helper.make_graph(
            [node.proto],
            "one_node",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), value.shape)
                for name, value in values.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in node.outputs if name],
            [numpy_helper.from_array(constants[name], name) for name in used if name in constants],
        )
        opsets = list(self.file.opsets)
        if node.proto.domain not in {opset.domain for opset in opsets}:
            opsets.append(helper.make_opsetid(node.proto.domain, 1))
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = min(max(self.file.ir_version, 4), 10)
        return bytes(model.SerializeToString())


def _inside(dtype: str) -> str:
    """uint8 names of the file are int8 tensors inside."""
    return "int8" if dtype == "uint8" else dtype
