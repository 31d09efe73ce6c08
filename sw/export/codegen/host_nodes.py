"""Calls for the host's own nodes: conversions, and the file's operators for which there is a kernel."""

from __future__ import annotations

from math import frexp, prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dovetail.isa.numerics.softmax import TFLITE_COLUMNS
from dovetail.isa.program import ITEM_BYTES
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.codegen.c_text import Fields
from dovetail.sw.export.codegen.movement import places_of, write_places
from dovetail.sw.export.codegen.recurrent import write_recurrent
from dovetail.sw.export.codegen.writer import Pointer, Writer, pairs_fields
from dovetail.sw.frontend.tflite.operators.elementwise import FUNCTIONS, RECTIFIERS
from dovetail.sw.host import kernels
from dovetail.sw.host.norm import NORMS
from dovetail.sw.host.recurrent import Lstm, Svdf
from dovetail.sw.host.softmax import OnnxSoftmax, TfliteSoftmax, softmax_sizes
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, Shape, as_signed
from dovetail.sw.passes.float.model_proto import opset_of

_ONNX_MOVES = {
    *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
    *("Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose"),
    *("Unsqueeze", "Upsample"),
}
_TFLITE_MOVES = {
    *("batch_to_space_nd", "broadcast_to", "depth_to_space", "expand_dims", "gather", "gather_nd"),
    *("mirror_pad", "reshape", "resize_nearest_neighbor", "reverse_v2", "slice", "space_to_batch_nd"),
    *("space_to_depth", "split", "split_v", "squeeze", "strided_slice", "tile", "transpose", "unpack"),
}
"""Operators that may move data and do nothing else; trying tells."""
_TFLITE_TABLES = {name.lower() for name in (*FUNCTIONS, *RECTIFIERS, "ABS", "LEAKY_RELU")}
"""Functions of one element."""
_COMPARISONS = {
    "Equal": "EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_OR_EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_OR_EQUAL",
}
_NUMBERS = ("int32", "int64", "float32")
"""Element types that can be compared."""
_FLOAT_PAIRS = {"Add": "ADD", "Sub": "SUB", "Mul": "MUL", "Div": "DIV"}


def write_host(writer: Writer, node: ir.Host) -> None:
    """Append the calls of a node of the host. Raises NetworkError where there is no kernel."""
    payload = node.payload
    match payload:
        case kernels.Quantize(wide=True):
            power, count = frexp(float(payload.scale))[1] - 1, writer.size(node.outputs[0])
            writer.call("dovetail_quantise_wide", power, count, *_typed(writer, node, "float32", "int32"))
        case kernels.Quantize():
            ends, count = _typed(writer, node, "float32", "int8"), writer.size(node.outputs[0])
            edges = writer.constants.array(payload.edges(), f"{node.name}_edges")
            of_nan = payload.run([np.full(1, np.nan, np.float32)])[0].item()
            writer.call("dovetail_quantise", edges, of_nan, count, *ends)
        case kernels.Dequantize():
            ends, count = _typed(writer, node, "int8", "float32"), writer.size(node.outputs[0])
            table = writer.constants.array(payload.table(), f"{node.name}_table")
            writer.call("dovetail_dequantise", table, count, *ends)
        case kernels.DequantizeSums():
            sums = writer.graph.tensors[node.inputs[0]]
            columns, ends = sums.shape[-1], _typed(writer, node, "int32", "float32")
            steps = writer.constants.array(np.resize(payload.steps, columns), f"{node.name}_steps")
            writer.call("dovetail_dequantise_sums", steps, sums.size // columns, columns, *ends)
        case kernels.Permute():
            order = payload.after.inside(payload.before.order().reshape(payload.before.shape)).ravel()
            item_bytes = writer.graph.tensors[node.inputs[0]].item_bytes
            write_places(writer, *writer.ends(node), order, item_bytes, node.name)
        case Lstm() | Svdf():
            write_recurrent(writer, node, payload)
        case kernels.OnnxOp():
            _OnnxNode(writer, node, payload).write()
        case kernels.TfliteOp():
            _write_tflite(writer, node, payload)
        case _:
            raise _refused(node)


def _refused(node: ir.Node, why: str = "") -> NetworkError:
    return NetworkError(
        f"node {node.name!r} ({node.op}): generated C has no kernel for it{why and ', ' + why}; `dovetail export`"
        " writes it as a file for a runtime on the host"
    )


def _typed(writer: Writer, node: ir.Host, before: str, after: str) -> tuple[Pointer, Pointer]:
    """Operand and result of these element types."""
    tensors = [writer.graph.tensors[name] for name in (*node.inputs[:1], *node.outputs[:1])]
    if [tensor.dtype for tensor in tensors] != [before, after]:
        raise _refused(node, f"which must make {after} of {before}")
    return writer.ends(node, in_place=True)


def _write_moves(writer: Writer, node: ir.Host) -> None:
    """Append what an operator turns out to move."""
    found = None
    if len(node.inputs) == 1:
        found = places_of(node.payload, writer.graph.tensors[node.inputs[0]])
    if found is None:
        raise _refused(node, "as it does more than move the elements of one tensor")
    item_bytes = writer.graph.tensors[node.inputs[0]].item_bytes
    for name, places in zip(node.outputs, found, strict=True):
        source, result = map(writer.storage.pointer, (node.inputs[0], name))
        write_places(writer, source, result, places, item_bytes, node.name)


# --- TFLite -------------------------------------------------------------------------------------------------------


def _write_tflite(writer: Writer, node: ir.Host, payload: kernels.TfliteOp) -> None:
    if isinstance(payload, TfliteSoftmax):
        source = writer.graph.tensors[node.inputs[0]]
        table = writer.constants.array(payload.exponentials, f"{node.name}_exps")
        sizes = source.size // source.shape[-1], source.shape[-1]
        writer.call("dovetail_softmax", table, *sizes, *_typed(writer, node, "int8", "int8"))
    elif node.label == "softmax":
        raise _refused(node, f"which must be of int8 and have at most {TFLITE_COLUMNS} elements in a row")
    elif node.label in _TFLITE_TABLES and len(node.inputs) == 1:
        ends = _typed(writer, node, "int8", "int8")
        table = writer.constants.array(payload.table().astype(np.int8), f"{node.name}_table")
        writer.call("dovetail_look_up", table, writer.size(node.outputs[0]), *ends)
    elif node.label in _TFLITE_MOVES:
        _write_moves(writer, node)
    else:
        raise _refused(node)


# --- ONNX ---------------------------------------------------------------------------------------------------------


class _OnnxNode:
    """One operator of an ONNX file; its operands and results are in the file's order while it computes."""

    def __init__(self, writer: Writer, node: ir.Host, payload: kernels.OnnxOp) -> None:
        self.writer = writer
        self.node = node
        self.payload = payload
        model = onnx.load_model_from_string(payload.model)
        *self.sums, self.proto = model.graph.node
        self.is_plain = all(part.domain in ("", "ai.onnx") for part in model.graph.node)
        self.opset = opset_of(model)
        self.attributes: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in self.proto.attribute}
        self.values: dict[str, Array] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.wires = {wire.name: (wire, name) for wire, name in zip(payload.inputs, node.inputs, strict=True)}
        self.made: dict[str, tuple[Pointer, Shape]] = {}

    def write(self) -> None:
        kind = self.proto.op_type
        if isinstance(self.payload, OnnxSoftmax):
            self._integer_softmax(self.payload)
            return
        if not self.is_plain or (self.sums and kind not in NORMS):
            raise _refused(self.node)
        if kind == "Gather" and self.proto.input[1] not in self.values:
            self._pick()
        elif kind in _COMPARISONS:
            self._compare(_COMPARISONS[kind])
        elif kind == "Where":
            self._choose()
        elif kind in _ONNX_MOVES and not (kind == "Concat" and len(self.proto.input) > 1):
            _write_moves(self.writer, self.node)
        elif kind in (*_FLOAT_PAIRS, "Concat", "Softmax", *NORMS):
            self._check_types()
            self._compute(kind)
        else:
            raise _refused(self.node)

    def _pick(self) -> None:
        """Rows that numbers of a run choose."""
        writer, layout = self.writer, self.payload.outputs[0].layout
        (data, shape), (indices, count) = map(self._operand, self.proto.input)
        axis = self.attributes.get("axis", 0) % len(shape)
        fields: Fields = {
            "outer": prod(shape[:axis]),
            "rows": shape[axis],
            "run": prod(shape[axis + 1 :]) * writer.graph.tensors[self.node.outputs[0]].item_bytes,
            "count": prod(count),
            "index_bytes": writer.graph.tensors[self.wires[self.proto.input[1]][1]].item_bytes,
        }
        rule = writer.constants.struct("dovetail_pick", fields, f"{self.node.name}_pick")
        result = self._ordered(layout, self.node.outputs[0])
        writer.checked_call("dovetail_pick_rows", rule, data, indices, result)
        self._settle(layout, result)

    def _compare(self, comparison: str) -> None:
        """Truth values of two tensors of numbers."""
        types = {self._dtype(name) for name in self.proto.input}
        if len(types) > 1 or not types <= set(_NUMBERS):
            raise _refused(self.node, f"which must compare two tensors of {', '.join(_NUMBERS)}")
        (a, left), (b, right) = map(self._operand, self.proto.input)
        pairs = self.writer.constants.struct(
            "dovetail_pairs", pairs_fields(left, right, self.node.name), f"{self.node.name}_pairs"
        )
        layout = self.payload.outputs[0].layout
        result = self._ordered(layout, self.node.outputs[0])
        self.writer.call(
            "dovetail_compare", f"DOVETAIL_{comparison}", f"DOVETAIL_{types.pop().upper()}", pairs, a, b, result
        )
        self._settle(layout, result)

    def _choose(self) -> None:
        """Elements of one operand or the other one."""
        layout = self.payload.outputs[0].layout
        (condition, given), *ends = map(self._operand, self.proto.input)
        result = self._ordered(layout, self.node.outputs[0])
        item_bytes = self.writer.graph.tensors[self.node.outputs[0]].item_bytes
        for wanted, (source, shape) in zip((1, 0), ends, strict=True):
            fields = pairs_fields(given, shape, self.node.name, layout.shape)
            pairs = self.writer.constants.struct("dovetail_pairs", fields, f"{self.node.name}_pairs")
            self.writer.call("dovetail_choose", pairs, wanted, item_bytes, condition, source, result)
        self._settle(layout, result)

    def _dtype(self, name: str) -> str:
        """Element type of an operand."""
        known = self.values.get(name)
        return known.dtype.name if known is not None else self.writer.graph.tensors[self.wires[name][1]].dtype

    def _check_types(self) -> None:
        tensors = [self.writer.graph.tensors[name].dtype for name in (*self.node.inputs, *self.node.outputs)]
        constants = [value.dtype.name for value in self.values.values()]
        if {*tensors, *constants} != {"float32"} or len(self.node.outputs) != 1:
            raise _refused(self.node, "which must make one float32 tensor of float32 ones")

    def _compute(self, kind: str) -> None:
        writer = self.writer
        wire = self.payload.outputs[0]
        result = self._ordered(wire.layout, self.node.outputs[0])
        for part in self.sums:
            self._sum_in_front(part)
        operands = [self._operand(name) for name in self.proto.input if name]
        for pointer, _ in operands if kind != "Concat" else ():
            if isinstance(pointer, Pointer):
                writer.storage.may_replace(result, pointer)
        shape = operands[0][1]
        if kind in _FLOAT_PAIRS:
            self._pairs(kind, operands, self.node.name, result)
        elif kind == "Concat":
            self._joined(operands, wire.layout.shape, result)
        elif kind == "Softmax":
            self._softmax(operands[0][0], shape, result)
        else:
            self._norm([pointer for pointer, _ in operands], shape, result, rms=NORMS[kind])
        self._settle(wire.layout, result)

    def _sum_in_front(self, part: onnx.NodeProto) -> None:
        """A sum that is computed together with the node that reads it."""
        if part.op_type not in _FLOAT_PAIRS:
            raise _refused(self.node)
        operands = [self._operand(name) for name in part.input]
        shape = tuple(int(size) for size in np.broadcast_shapes(*(shape for _, shape in operands)))
        result = self.writer.storage.temporary(ITEM_BYTES["float32"] * prod(shape))
        self._pairs(part.op_type, operands, f"{self.node.name}_{part.output[0]}", result)
        self.made[part.output[0]] = result, shape

    def _pairs(self, kind: str, operands: list[tuple[str | Pointer, Shape]], name: str, result: Pointer) -> None:
        (a, left), (b, right) = operands
        pairs = self.writer.constants.struct("dovetail_pairs", pairs_fields(left, right, name), f"{name}_pairs")
        self.writer.call("dovetail_float_pairs", f"DOVETAIL_FLOAT_{_FLOAT_PAIRS[kind]}", pairs, a, b, result)

    def _joined(self, operands: list[tuple[str | Pointer, Shape]], shape: Shape, result: Pointer) -> None:
        """Tensors one after the other along an axis: a copy of each."""
        axis = self.attributes["axis"] % len(shape)
        rows, row, place = prod(shape[:axis]), prod(shape[axis:]), 0
        for source, part in operands:
            count = prod(part[axis:])
            copy = ir.Copy((rows, count), 0, (count, 1), place, (row, 1))
            self.writer.move(source, result, copy, ITEM_BYTES["float32"], self.node.name)
            place += count

    def _integer_softmax(self, payload: OnnxSoftmax) -> None:
        """ONNX Runtime's QLinearSoftmax: a float table, and a division."""
        writer, node = self.writer, self.node
        _typed(writer, node, "int8", "int8")
        fields: Fields = {
            "exps": writer.constants.array(payload.exponentials, f"{node.name}_exps"),
            "levels": payload.levels,
            "zero_point": payload.zero_point,
        }
        rule = writer.constants.struct("dovetail_softmax_rule", fields, f"{node.name}_rule")
        source, _ = self._operand(self.proto.input[0])
        layout = payload.outputs[0].layout
        result = self._ordered(layout, node.outputs[0])
        writer.call("dovetail_softmax_table", rule, *payload.sizes, source, result)
        self._settle(layout, result)

    def _softmax(self, source: str | Pointer, shape: Shape, result: Pointer) -> None:
        sizes = softmax_sizes(shape, self.attributes.get("axis", -1 if self.opset >= 13 else 1), self.opset)
        self.writer.call("dovetail_softmax_float", *sizes, source, result)
        self.writer.inexact.append(self.node.name)

    def _norm(self, operands: list[str | Pointer], shape: Shape, result: Pointer, *, rms: bool) -> None:
        columns = prod(shape[self.attributes.get("axis", -1) % len(shape) :])
        names = [name for name in self.proto.input if name]
        if any(name not in self.values or self.values[name].size != columns for name in names[1:]):
            raise _refused(self.node, "which must have a constant gain and offset for every element of a row")
        source, gain, *offset = operands
        epsilon = np.float32(self.attributes.get("epsilon", 1e-5))
        sizes = prod(shape) // columns, columns
        if rms:
            self.writer.call("dovetail_rms_norm", epsilon, gain, *sizes, source, result)
        else:
            self.writer.call(
                "dovetail_layer_norm", epsilon, gain, offset[0] if offset else "NULL", *sizes, source, result
            )
        self.writer.inexact.append(self.node.name)

    def _operand(self, name: str) -> tuple[str | Pointer, Shape]:
        """A constant, or a tensor in the file's order."""
        if name in self.made:
            return self.made[name]
        if name in self.values:
            value = self.values[name]
            if value.dtype == np.uint8 and self.payload.outputs[0].unsigned:
                value = as_signed(value)
            return self.writer.constants.array(value, f"{self.node.name}_{name}"), value.shape
        wire, tensor = self.wires[name]
        pointer = self.writer.storage.pointer(tensor)
        if wire.layout.is_plain:
            return pointer, wire.layout.shape
        ordered = self._ordered(wire.layout, tensor)
        write_places(
            self.writer,
            pointer,
            ordered,
            wire.layout.order(),
            self.writer.graph.tensors[tensor].item_bytes,
            self.node.name,
        )
        return ordered, wire.layout.shape

    def _settle(self, layout: Layout, result: Pointer) -> None:
        """Move the result from the file's order to its own."""
        if not layout.is_plain:
            (tensor,) = self.node.outputs
            order = layout.inside(np.arange(prod(layout.shape)).reshape(layout.shape)).ravel()
            pointer, item_bytes = self.writer.storage.pointer(tensor), self.writer.graph.tensors[tensor].item_bytes
            write_places(self.writer, result, pointer, order, item_bytes, self.node.name)

    def _ordered(self, layout: Layout, tensor: str) -> Pointer:
        """Where a tensor is in the file's order: its own place if that is how it lies there."""
        storage = self.writer.storage
        return storage.pointer(tensor) if layout.is_plain else storage.temporary(storage.bytes_of(tensor))
