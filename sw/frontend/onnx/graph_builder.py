"""Emits graph nodes for the ONNX front end: names, layouts, host fallback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import OnnxFile, OnnxNode
from dovetail.sw.frontend.onnx.limits import check_results
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Value
from dovetail.sw.host.kernels import Around, Dequantize, DequantizeSums, OnnxOp, Permute, Quantize, Wire
from dovetail.sw.host.norm import as_norm
from dovetail.sw.host.softmax import in_integers
from dovetail.sw.network import ir
from dovetail.sw.network.intervals import Interval
from dovetail.sw.network.layout import Array, Layout, Shape, as_signed, refined
from dovetail.sw.network.names import unused

Axes = tuple[Shape, tuple[int, ...]]
"""A layout's axes in memory and their order in the file."""


class GraphBuilder:
    """Collects tensors and nodes; every method returns where the result is."""

    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self.tensors: dict[str, ir.Tensor] = {}
        self.nodes: list[ir.Node] = []
        self.reasons: dict[str, str] = {}
        """Why a node of the file is on the host, where that is not plain from its operator."""
        self.intervals: dict[str, Interval] = {}
        """What the elements of streams' tensors can be (`operators.stream`)."""
        self._node_names: set[str] = set()
        self._moved: dict[tuple[str, Axes, Axes], str] = {}

    def node_name(self, wanted: str) -> str:
        """A node name nobody has yet."""
        name = unused(wanted, self._node_names)
        self._node_names.add(name)
        return name

    def tensor(self, wanted: str, shape: Shape, dtype: str, quant: Quant | None = None) -> str:
        """Declare a tensor, under a name nobody has yet."""
        name = unused(wanted, self.tensors)
        scale, zero = (quant.scale, quant.zero_point) if quant is not None else (None, 0)
        self.tensors[name] = ir.Tensor(name, shape, scale, zero, _inside(dtype))
        return name

    def integer(self, name: str, layout: Layout, quant: Quant | None) -> Value:
        """Declare the result of an accelerator node, or its int32 sums where there is no quantisation."""
        if quant is None:
            return Value(self.tensor(name, layout.inner, "int32"), layout, "int32")
        return Value(self.tensor(name, layout.inner, quant.inside, quant), layout, quant.dtype)

    def host(self, label: str, name: str, sources: tuple[str, ...], results: tuple[str, ...], payload: Any) -> None:
        """Append a host node."""
        self.nodes.append(
            ir.Host(
                name=self.node_name(name),
                inputs=sources,
                outputs=results,
                label=label,
                payload=payload,
                reason=self.reasons.get(name, ""),
            )
        )

    def annotate(self, value: Value, quant: Quant) -> None:
        """Give a tensor without quantisation the one that a reader of it uses."""
        tensor = self.tensors[value.tensor]
        if tensor.scale is None and tensor.dtype == "int8":
            self.tensors[value.tensor] = replace(tensor, scale=quant.scale, zero_point=quant.zero_point)

    def maker(self, tensor: str) -> ir.Node | None:
        """What makes a tensor; None of an input."""
        return next((node for node in reversed(self.nodes) if tensor in node.outputs), None)

    def nhwc(self, value: Value) -> Shape | None:
        """How a spatial node would see the tensor; None if it could not."""
        shape = self.tensors[value.tensor].shape
        return (1,) * (4 - len(shape)) + shape if len(shape) < 4 or shape[0] == 1 else None

    def is_moved(self, value: Value) -> bool:
        """Whether the accelerator can move a tensor: of integers of 8 bits, or a stream's."""
        tensor = self.tensors[value.tensor]
        return tensor.dtype == "int8" or (tensor.dtype == "int32" and value.dtype == "int16")

    # Layout ------------------------------------------------------------------------------------

    def placed(self, value: Value, layout: Layout) -> Value:
        """The same file array with its bytes as `layout` says; the host moves them if they are not."""
        tensor = self.tensors[value.tensor]
        if value.layout == layout and tensor.shape == layout.inner:
            return value
        # The file's shape says nothing about bytes; how the tensor's axes are seen before and after does.
        key = (value.tensor, (value.layout.inner, value.layout.perm), (layout.inner, layout.perm))
        if key not in self._moved:
            same = value.layout.same_memory(layout)
            if same and tensor.shape == layout.inner:
                return replace(value, layout=layout)
            name = self.tensor(f"{value.tensor}/view", layout.inner, tensor.dtype)
            self.tensors[name] = replace(tensor, name=name, shape=layout.inner)
            if same and self.is_moved(value):
                self.nodes.append(
                    ir.Reshape(
                        name=self.node_name(f"{value.tensor}/reshape"),
                        inputs=(value.tensor,),
                        outputs=(name,),
                        shape=layout.inner,
                    )
                )
            else:
                self._transpose(value, layout, name)
            self._moved[key] = name
        return replace(value, tensor=self._moved[key], layout=layout)

    def _transpose(self, value: Value, layout: Layout, result: str) -> None:
        """Move bytes into the order of another layout."""
        axes = refined(value.layout.axes, layout.axes)
        name = f"{value.tensor}/transpose"
        if axes is None or not self.is_moved(value):
            self.host("transpose", name, (value.tensor,), (result,), Permute(value.layout, layout))
            return
        sizes, source, target = (tuple(axis[k] for axis in axes) for k in range(3))
        self.move(name, (value.tensor,), result, (ir.Copy(sizes, 0, source, 0, target),), "transpose")

    def move(self, name: str, sources: tuple[str, ...], result: str, copies: tuple[ir.Copy, ...], kind: str) -> None:
        """Append data movement."""
        self.nodes.append(
            ir.Move(name=self.node_name(name), inputs=sources, outputs=(result,), copies=copies, kind=kind)
        )

    def direct(self, value: Value) -> Value:
        """A name of the file each of whose axes is an axis of the tensor."""
        if not value.layout.is_direct:
            value = self.image(value) if len(value.shape) == 4 and not value.layout.is_plain else self.plain(value)
        return self.placed(value, value.layout)

    def update(self, node: OnnxNode, state: Value, row: Value, place: Value, quant: Quant) -> Value:
        """A tensor with another row at a place along the node's axis."""
        out = self.integer(node.outputs[0], state.layout, quant)
        axis = int(node.attributes.get("axis", 0)) % len(state.shape)
        inputs = (state.tensor, row.tensor, place.tensor)
        self.nodes.append(ir.Update(name=self.node_name(node.name), inputs=inputs, outputs=(out.tensor,), axis=axis))
        return out

    def cut(self, node_name: str, name: str, value: Value, cuts: tuple[slice, ...]) -> Value | None:
        """A slice along the file's axes; None if it runs backwards."""
        value = self.direct(value)
        layout = value.layout
        inside = tuple(cuts[layout.perm.index(axis)] for axis in range(len(cuts)))
        view = ir.positions(layout.inner)[inside]
        if not view.size:
            raise NetworkError(f"node {node_name!r}: a slice must leave something, not nothing")
        copy = ir.Copy.between(view, ir.positions(view.shape))
        if copy is None:
            return None
        result = Layout(view.shape, layout.perm, tuple(view.shape[p] for p in layout.perm))
        source = self.tensors[value.tensor]
        out = self.tensor(name, view.shape, source.dtype)
        self.tensors[out] = replace(source, name=out, shape=view.shape)
        self.move(node_name, (value.tensor,), out, (copy,), "slice")
        return Value(out, result, value.dtype)

    def enlarge(self, node_name: str, name: str, value: Value, rows: int, columns: int) -> Value:
        """An NCHW name of the file with every pixel repeated down and across: a copy for each repetition."""
        image = self.image(value)
        source = self.tensors[image.tensor]
        _, height, width, channels = source.shape
        shape = (1, height * rows, width * columns, channels)
        places = ir.positions(shape).reshape(height, rows, width, columns, channels)
        reading = ir.positions((height, width, channels))
        copies = [ir.Copy.between(reading, places[:, y, :, x]) for y in range(rows) for x in range(columns)]
        out = self.tensor(name, shape, source.dtype)
        self.tensors[out] = replace(source, name=out, shape=shape)
        forwards = tuple(copy for copy in copies if copy is not None)
        self.move(node_name, (image.tensor,) * len(forwards), out, forwards, "resize")
        return Value(out, Layout.image((1, channels, *shape[1:3])), value.dtype)

    def concat(self, node_name: str, name: str, values: list[Value], axis: int, quant: Quant) -> Value:
        """Join names of the file, all quantised as ``quant``, along one of the file's axes."""
        first = self.direct(values[0])
        perm = first.layout.perm
        shape, parts = list(first.layout.inner), [first]
        inner = perm[axis % len(perm)]
        for value in values[1:]:
            own = tuple(value.shape[perm.index(k)] for k in range(len(perm)))
            parts.append(self.placed(value, Layout(own, perm, value.shape)))
            shape[inner] += own[inner]
        layout = Layout(tuple(shape), perm, tuple(shape[p] for p in perm))
        places, copies, start = ir.positions(layout.inner), [], 0
        for part in parts:
            end = start + part.layout.inner[inner]
            writing = places[(slice(None),) * inner + (slice(start, end),)]
            copy = ir.Copy.between(ir.positions(part.layout.inner), writing)
            assert copy is not None
            copies.append(copy)
            start = end
        out = self.integer(name, layout, quant)
        self.move(node_name, tuple(part.tensor for part in parts), out.tensor, tuple(copies), "concat")
        return out

    def constant(self, name: str, value: Array, quant: Quant, layout: Layout) -> Value:
        """A quantised constant of the file as a tensor."""
        inside = layout.inside(value)
        integers = as_signed(inside) if inside.dtype == np.uint8 else inside.astype(quant.inside)
        out = self.integer(name, layout, quant)
        self.nodes.append(
            ir.Constant(
                name=self.node_name(name), inputs=(), outputs=(out.tensor,), value=np.ascontiguousarray(integers)
            )
        )
        return out

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

    def dequantize_sums(self, name: str, sums: Value, steps: NDArray[np.float32]) -> Value:
        """int32, or 16 bits -> float32 on the host."""
        result = self.tensor(name, self.tensors[sums.tensor].shape, "float32")
        self.host("dequantize_sums", f"{name}/dequantize", (sums.tensor,), (result,), DequantizeSums(steps))
        return Value(result, sums.layout, "float32")

    def around(self, name: str, sums: Value, zero: Value, totals: NDArray[np.int32]) -> Value:
        """int32 sums of integers around 0 as those around a zero point of the run, on the host."""
        result = self.tensor(name, self.tensors[sums.tensor].shape, "int32")
        self.host("zero_point", f"{name}/zero", (sums.tensor, zero.tensor), (result,), Around(totals))
        return Value(result, sums.layout, "int32")

    def quantize(self, node_name: str, name: str, value: Value, quant: Quant) -> Value:
        """float32 -> int8, or 16 bits, on the host."""
        result = self.tensor(name, self.tensors[value.tensor].shape, quant.inside, quant)
        payload = Quantize(quant.scale, quant.zero_point, ties_even=True, wide=quant.is_wide)
        self.host("quantize", node_name, (value.tensor,), (result,), payload)
        return Value(result, value.layout, quant.dtype)

    def pad(self, node_name: str, name: str, source: Source, pads: ir.Pads) -> Value:
        """Frame an NCHW name of the file with real zeros; a pass removes most of these again."""
        image = self.image(source.value)
        _, channels, height, width = image.shape
        layout = Layout.image((1, channels, height + pads[0] + pads[2], width + pads[1] + pads[3]))
        out = self.integer(name, layout, source.quant)
        self.nodes.append(
            ir.Pad(
                name=self.node_name(node_name),
                inputs=(image.tensor,),
                outputs=(out.tensor,),
                pads=pads,
                value=source.quant.zero_point,
            )
        )
        return out

    def pad_channels(self, node_name: str, name: str, source: Source, pads: tuple[int, ...]) -> Value:
        """Channels of real zeros before and behind those of an NCHW name of the file."""
        quant = source.quant
        zero = quant.zero_point + (128 if quant.dtype == "uint8" else 0)

        def zeros(channels: int) -> list[Value]:
            shape = (1, channels, *source.value.shape[2:])
            value = np.full(shape, zero, quant.dtype)
            return [self.constant(f"{node_name}/zeros", value, quant, Layout.image(shape))] if channels else []

        parts = [*zeros(pads[0]), source.value, *zeros(pads[1])]
        return self.concat(node_name, name, parts, 1, quant)

    def run_constant(self, node: OnnxNode, constants: dict[str, Array]) -> list[Array]:
        """Results of a node whose inputs are all constants."""
        outputs = tuple(name for name in node.outputs if name)
        wires = tuple(Wire(name, Layout.plain(())) for name in outputs)
        model = self._model([node], constants, {})
        check_results(model, f"node {node.label}")
        return OnnxOp(model, f"node {node.label}", (), wires).raw({})

    def function(
        self,
        nodes: list[OnnxNode],
        constants: dict[str, Array],
        quantised: dict[str, Constant],
        sources: Sequence[tuple[str, Quant, Array]],
        target: Quant,
    ) -> Array:
        """What ONNX Runtime makes of int8 levels with a chain of element-wise nodes between DequantizeLinear and
        QuantizeLinear: int8, of their shape.

        ``quantised``: constants that are dequantised; ``sources``: the names that the chain reads, what they mean, and
        their levels.
        """
        result = nodes[-1].outputs[0]
        held, chain = dict(constants), list(nodes)
        for name, constant in quantised.items():
            if constant.quant is not None:
                levels = constant.values.astype(np.int16) - (128 if constant.values.dtype == np.uint8 else 0)
                held[f"{name}/levels"] = self._kernel_levels(levels, constant.quant)
                chain.insert(0, self._border("DequantizeLinear", f"{name}/levels", name, constant.quant, held))
        given = {}
        for variable, quant, levels in sources:
            chain.insert(0, self._border("DequantizeLinear", f"{variable}/levels", variable, quant, held))
            given[f"{variable}/levels"] = self._kernel_levels(levels.astype(np.int16), quant)
        chain.append(self._border("QuantizeLinear", result, f"{result}/levels", target, held))
        return self.results(chain, held, given, f"{result}/levels")

    def results(self, nodes: list[OnnxNode], constants: dict[str, Array], given: dict[str, Array], name: str) -> Array:
        """A result of some nodes in ONNX Runtime for 8-bit arrays of one shape, as int8."""
        values = {key: Value(key, Layout.plain(array.shape), str(array.dtype)) for key, array in given.items()}
        wire = Wire(name, next(iter(values.values())).layout)
        payload = OnnxOp(self._model(nodes, constants, values), f"node {nodes[-1].label}", (), (wire,))
        (found,) = payload.raw(given)
        return as_signed(found) if found.dtype == np.uint8 else found

    def kernel(
        self, node: OnnxNode, kind: str, operands: Sequence[Source | Constant], target: Quant, **attributes: Any
    ) -> Value:
        """One of ONNX Runtime's own operators on integers, QLinear..., on the host, in a node's place."""
        inputs: list[str] = []
        values: dict[str, Value] = {}
        constants: dict[str, Array] = {}
        for place, operand in enumerate(operands):
            name, quant = f"{node.name}/operand{place}", operand.quant
            assert quant is not None
            if isinstance(operand, Source):
                values[name] = replace(operand.value, dtype=self.file.kernel_types[quant.dtype])
            else:
                levels = operand.values.astype(np.int16) - (128 if quant.dtype == "uint8" else 0)
                constants[name] = self._kernel_levels(levels, quant)
            inputs += [name, *self._quantisation(name, quant, constants)]
        result = node.outputs[0]
        inputs += self._quantisation(result, target, constants)
        proto = helper.make_node(kind, inputs, [result], node.name, domain="com.microsoft", **attributes)
        own = OnnxNode(node.name, kind, tuple(inputs), (result,), attributes, proto)
        value = self.onnx_node([own], values, constants)[result]
        self.annotate(value, target)
        return replace(value, dtype=target.dtype)

    def _border(self, kind: str, name: str, result: str, quant: Quant, constants: dict[str, Array]) -> OnnxNode:
        """DequantizeLinear or QuantizeLinear."""
        inputs = (name, *self._quantisation(result, quant, constants))
        return OnnxNode(result, kind, inputs, (result,), {}, helper.make_node(kind, inputs, [result], result))

    def _quantisation(self, name: str, quant: Quant, constants: dict[str, Array]) -> tuple[str, str]:
        """Names of new constants: scale and zero point."""
        scale, zero = f"{name}/scale", f"{name}/zero"
        constants[scale] = np.asarray(quant.scale, np.float32)
        constants[zero] = self._kernel_levels(np.asarray(quant.zero_point), quant)
        return scale, zero

    def _kernel_levels(self, levels: Array, quant: Quant) -> Array:
        """int8 levels in the type that ONNX Runtime's kernels have."""
        unsigned = self.file.kernel_types[quant.dtype] == "uint8"
        return (levels + 128).astype(np.uint8) if unsigned else levels.astype(np.int8)

    def onnx_node(
        self, nodes: Sequence[OnnxNode], values: dict[str, Value], constants: dict[str, Array]
    ) -> dict[str, Value]:
        """Leave a node to ONNX Runtime, with those before it that it may fuse with it; returns its outputs by name.

        Shapes and element types of the outputs come from running it once on zeros.
        """
        node = nodes[-1]
        label = f"node {node.label}"
        model = self._model(list(nodes), constants, values)
        names = tuple(name for name in node.outputs if name)
        ins = tuple(Wire(name, value.layout, value.dtype == "uint8") for name, value in values.items())
        probe = OnnxOp(model, label, ins, tuple(Wire(name, Layout.plain(())) for name in names))
        check_results(model, label)
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
        payload = as_norm(in_integers(replace(probe, outputs=outs)))
        sources = tuple(value.tensor for value in values.values())
        self.host(node.op.lower(), node.name, sources, tuple(v.tensor for v in results.values()), payload)
        return results

    def _model(self, nodes: list[OnnxNode], constants: dict[str, Array], values: dict[str, Value]) -> bytes:
        used = dict.fromkeys(name for node in nodes for name in node.inputs if name)
        graph = helper.make_graph(
            [node.proto for node in nodes],
            "part",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)), value.shape)
                for name, value in values.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in nodes[-1].outputs if name],
            [numpy_helper.from_array(constants[name], name) for name in used if name in constants],
        )
        opsets = list(self.file.opsets)
        known = {opset.domain for opset in opsets}
        opsets += [helper.make_opsetid(domain, 1) for domain in {node.proto.domain for node in nodes} - known]
        calls = {(node.domain, node.op) for node in nodes}
        functions = [function for key, function in self.file.functions.items() if key in calls]
        model = helper.make_model(graph, opset_imports=opsets, functions=functions)
        model.ir_version = min(max(self.file.ir_version, 4), 10)
        return bytes(model.SerializeToString())


def _inside(dtype: str) -> str:
    """uint8 names of the file are int8 tensors inside."""
    return "int8" if dtype == "uint8" else dtype
