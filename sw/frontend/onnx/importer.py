"""ONNX front end: QDQ and QOperator networks become a `Graph` with ONNX's own numerics.

The file's nodes are walked once, in order. A name of the file is a constant, a graph tensor (`Value`), a
dequantised tensor (`Source`), or a float result that waits for its QuantizeLinear; a waiting result that is
wanted as float after all is computed by ONNX Runtime on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dovetail.sw.errors import NetworkError, not_quantised
from dovetail.sw.frontend.onnx import movement
from dovetail.sw.frontend.onnx.elementwise import BINARY, COMBINATIONS, FUNCTIONS, ElementwiseOps, Expression
from dovetail.sw.frontend.onnx.file import (
    STANDARD_DOMAINS,
    OnnxFile,
    OnnxInput,
    OnnxNode,
    check_valid,
    is_quantised,
)
from dovetail.sw.frontend.onnx.graph_builder import GraphBuilder
from dovetail.sw.frontend.onnx.integer import FULL, Clamp, IntegerOps
from dovetail.sw.frontend.onnx.qoperator import QOPERATORS
from dovetail.sw.frontend.onnx.remainder import split
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Value
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout

WAITING = {
    *("Conv", "Gemm", "MatMul", "AveragePool", "GlobalAveragePool", "ReduceMean", "Concat", "Softmax"),
    *BINARY,
    *COMBINATIONS,
    *FUNCTIONS,
}
_DEEPEST = 64
"""Float nodes in a row that wait for their QuantizeLinear: longer expressions are left to the host."""


def load_onnx(data: bytes, name: str, folder: Path | None = None) -> ir.Graph:
    """Read a quantised ONNX network; `folder` is where its external data lies.

    Raises
    ------
    NetworkError: the file is malformed or not quantised, or a node is outside what Dovetail runs.
    """
    try:
        remainder = split(data)
        if remainder is None:
            return Importer(OnnxFile(data, name, folder)).read().check()
        graph = Importer(OnnxFile(remainder.head, name, folder)).read().check()
        return replace(graph, left=remainder.left, why_left=remainder.reason)
    except NetworkError:
        raise
    except RecursionError as error:
        raise NetworkError(f"{name}: float parts must be short, not hundreds of nodes deep; quantise them") from error
    except Exception as error:  # a damaged file fails anywhere: in lookups, reshapes, protobuf accessors
        raise NetworkError(f"{name}: ONNX file must be well formed, not damaged ({error!r})") from error


def values_of(data: bytes, name: str, folder: Path | None = None) -> dict[str, Value]:
    """The names of a network file that are tensors of its graph, and how the file sees them. Raises as `load_onnx`."""
    importer = Importer(OnnxFile(data, name, folder))
    importer.read()
    return importer.values


class Importer:
    def __init__(self, file: OnnxFile) -> None:
        self.file = file
        self.builder = GraphBuilder(file)
        self.integer = IntegerOps(self.builder)
        self.elementwise = ElementwiseOps(self.builder)
        self.constants: dict[str, Array] = dict(file.constants)
        self.quantised: dict[str, Constant] = {}
        self.values: dict[str, Value] = {}
        self.sources: dict[str, Source] = {}
        self.waiting: dict[str, OnnxNode] = {}
        self.depths: dict[str, int] = {}

    def read(self) -> ir.Graph:
        if not is_quantised(node.op for node in self.file.nodes):
            check_valid(self.file.model, self.file.name)
            raise not_quantised(self.file.name)
        inputs = [self._input(declared) for declared in self.file.inputs]
        for node in self.file.nodes:
            self._node(node)
        outputs = tuple(self._output(name) for name in self.file.outputs)
        if not any(tensor.dtype == "int8" for tensor in self.builder.tensors.values()):
            found, way_out = self._other_types() or "float", "quantise them to 8 bits"
            raise NetworkError(f"{self.file.name}: activations must be int8 or uint8, not {found}; {way_out}")
        ports = tuple(self._annotated(port) for port in inputs)
        tensors, nodes = self.builder.tensors, tuple(self.builder.nodes)
        return ir.Graph(ports, outputs, tensors, nodes, "onnx", self.file.name)

    def _other_types(self) -> str:
        """The element types of quantised tensors besides those of 8 bits."""
        points = (node.input(2) for node in self.file.nodes if node.op == "QuantizeLinear")
        types = {str(self.file.constants[name].dtype) for name in points if name in self.file.constants}
        return " and ".join(sorted(types - {"int8", "uint8"}))

    # Borders -----------------------------------------------------------------------------------

    def _input(self, declared: OnnxInput) -> ir.Port:
        image = len(declared.shape) == 4 and movement.wants_image(self.file, declared.name)
        layout = Layout.image(declared.shape) if image else Layout.plain(declared.shape)
        tensor = self.builder.tensor(declared.name, layout.inner, declared.dtype)
        self.values[declared.name] = Value(tensor, layout, declared.dtype)
        offset = 128 if declared.dtype == "uint8" else 0
        return ir.Port(declared.name, tensor, declared.dtype, None, 0, layout, offset)

    def _annotated(self, port: ir.Port) -> ir.Port:
        """A port with the quantisation its consumers revealed."""
        tensor = self.builder.tensors[port.tensor]
        return replace(port, scale=tensor.scale, zero_point=tensor.zero_point + port.offset if tensor.scale else 0)

    def _output(self, name: str) -> ir.Port:
        value = self._value(name)
        tensor = self.builder.tensors[value.tensor]
        offset = 128 if value.dtype == "uint8" else 0
        zero = tensor.zero_point + offset if tensor.scale else 0
        return ir.Port(name, tensor.name, value.dtype, tensor.scale, zero, value.layout, offset)

    # What a name is ----------------------------------------------------------------------------

    def constant(self, name: str) -> Array | None:
        """The array behind a constant name; dequantised constants become float."""
        if name not in self.constants and name in self.quantised:
            self.constants[name] = self.quantised[name].real()
        return self.constants.get(name)

    def _value(self, name: str) -> Value:
        """The name as a graph tensor; emits the host nodes that takes."""
        if name in self.values:
            return self.values[name]
        if name in self.sources:
            self.values[name] = self.builder.dequantize(name, self.sources[name])
        elif name in self.waiting:
            self._host(self.waiting[name])
        if name not in self.values:
            kind = "a constant" if self.constant(name) is not None else "missing"
            raise NetworkError(f"{name!r} must be computed from the network's inputs, not {kind}")
        return self.values[name]

    def quant(self, node: OnnxNode, scale: int, zero: int, dtype: str = "uint8") -> Quant | None:
        """Two inputs of a node as an activation's quantisation; zero point 0 of ``dtype`` where it is left out."""
        zero_name = node.input(zero)
        zero_point = self.constant(zero_name) if zero_name else np.zeros((), dtype)
        if zero_point is None:
            return None
        return Quant.of(self.constant(node.input(scale)), zero_point, f"node {node.label}")

    def operand(self, node: OnnxNode, data: int) -> Source | None:
        """Three inputs of a QOperator node (data, scale, zero point) as an activation."""
        value = self.values.get(node.input(data))
        quant = self.quant(node, data + 1, data + 2, value.dtype) if value is not None else None
        if quant is None or value is None:
            return None
        self.builder.annotate(value, quant)
        return Source(value, quant)

    def weight(self, node: OnnxNode, data: int, axis: int) -> Constant | None:
        """Three inputs of a QOperator node as a quantised constant."""
        values, scale = self.constant(node.input(data)), self.constant(node.input(data + 1))
        if values is None or scale is None:
            return None
        zero = self.constant(node.input(data + 2))
        return Constant(values, scale, np.zeros((), values.dtype) if zero is None else zero, axis)

    # The walk ----------------------------------------------------------------------------------

    def _node(self, node: OnnxNode) -> None:
        if self._shape(node) or self._fold(node) or self._move(node):
            return
        if node.op == "DequantizeLinear" and self._dequantize(node):
            return
        if node.op == "QuantizeLinear" and self._quantize(node):
            return
        if node.op == "MaxPool" and self._max_pool(node):
            return
        if node.op == "Pad" and self._pad(node):
            return
        if node.op in movement.CUTS and self._cut(node):
            return
        if node.op == "Resize" and self._enlarge(node):
            return
        if node.op == "Concat" and self._concat(node):
            return
        if node.op == "Relu" and node.inputs[0] in self.sources and not self._only_quantised(node.outputs[0]):
            source = self.sources[node.inputs[0]]
            result = self.integer.relu(node.name, node.outputs[0], source)
            self.sources[node.outputs[0]] = Source(result, source.quant)
            return
        build = QOPERATORS.get(node.op)
        if build is not None:
            value = build(self, node)
            if value is not None:
                self.values[node.outputs[0]] = value
                return
        if node.op in WAITING and any(name in self.sources or name in self.waiting for name in node.inputs):
            depth = 1 + max(self.depths.get(name, 0) for name in node.inputs)
            if depth <= _DEEPEST:
                self.waiting[node.outputs[0]], self.depths[node.outputs[0]] = node, depth
                return
        if node.op == "Add" and self._is_normed(node):
            self.waiting[node.outputs[0]] = node
            return
        self._host(node)

    def _shape(self, node: OnnxNode) -> bool:
        """The sizes of a tensor, which are fixed."""
        if node.op != "Shape":
            return False
        source = self.sources.get(node.inputs[0])
        value = source.value if source is not None else self.values.get(node.inputs[0])
        if value is None:
            return False
        sizes = np.array(value.shape, np.int64)
        start, end = node.attributes.get("start", 0), node.attributes.get("end", len(sizes))
        self.constants[node.outputs[0]] = sizes[start:end]
        return True

    def _fold(self, node: OnnxNode) -> bool:
        """Constants of constants; a dequantised constant keeps its integers."""
        names = [name for name in node.inputs if name]
        if node.op == "Transpose" and names[0] in self.quantised and names[0] not in self.file.constants:
            held = self.quantised[names[0]]
            perm = node.attributes.get("perm", range(held.values.ndim)[::-1])
            self.quantised[node.outputs[0]] = held.transposed(tuple(int(p) for p in perm))
            return True
        found = {name: array for name in names if (array := self.constant(name)) is not None}
        if len(found) < len(set(names)):
            return False
        if node.op == "DequantizeLinear" and "block_size" not in node.attributes:
            values, scale = found[node.inputs[0]], found[node.inputs[1]]
            zero = found.get(node.input(2), np.zeros((), values.dtype))
            axis = int(node.attributes.get("axis", 1)) if scale.size > 1 else 0
            self.quantised[node.outputs[0]] = Constant(values, scale, zero, axis)
            return True
        results = self.builder.run_constant(node, found)
        self.constants.update(zip([name for name in node.outputs if name], results, strict=True))
        return True

    def _move(self, node: OnnxNode) -> bool:
        """Data movement: only the layout changes, of integers and of dequantised names alike."""
        if node.op not in movement.MOVES:
            return False
        name, result = node.inputs[0], node.outputs[0]
        source = self.sources.get(name)
        value = source.value if source is not None else self.values.get(name)
        if value is None:
            return False
        layout = movement.moved(node, value.layout, self.constant)
        if layout is None:
            value = self.builder.plain(value)
            layout = movement.moved(node, value.layout, self.constant)
        if layout is None:
            return False
        value = replace(value, layout=layout)
        if source is not None:
            self.sources[result] = replace(source, value=value)
        else:
            self.values[result] = value
        return True

    def _cut(self, node: OnnxNode) -> bool:
        """Slices: parts of a tensor, dequantised or not."""
        source = self.sources.get(node.inputs[0])
        value = source.value if source is not None else self.values.get(node.inputs[0])
        if value is None or self.builder.tensors[value.tensor].dtype != "int8":
            return False
        parts = movement.cuts(node, value.shape, self.constant)
        if parts is None:
            return False
        for name, part in zip(node.outputs, parts, strict=True):
            piece = self.builder.cut(node.name, name, value, part)
            if piece is None:
                return False
            if source is not None:
                self.sources[name] = replace(source, value=piece)
            else:
                self.values[name] = piece
        return True

    def _enlarge(self, node: OnnxNode) -> bool:
        """Resize that repeats every pixel, of integers and of dequantised names alike: what it does is tried."""
        source = self.sources.get(node.inputs[0])
        value = source.value if source is not None else self.values.get(node.inputs[0])
        if value is None or self.builder.tensors[value.tensor].dtype != "int8" or len(value.shape) != 4:
            return False
        given = {name: array for name in node.inputs[1:] if (array := self.constant(name)) is not None}
        places = np.arange(value.layout.order().size, dtype=np.float32).reshape(value.shape)
        if places.size > 1 << 24 or len(given) < len({name for name in node.inputs[1:] if name}):
            return False
        (enlarged,) = self.builder.run_constant(node, given | {node.inputs[0]: places})
        rows, columns = (enlarged.shape[axis] // value.shape[axis] for axis in (2, 3))
        if not np.array_equal(enlarged, places.repeat(rows, 2).repeat(columns, 3)):
            return False
        result = self.builder.enlarge(node.name, node.outputs[0], value, rows, columns)
        if source is not None:
            self.sources[node.outputs[0]] = replace(source, value=result)
        else:
            self.values[node.outputs[0]] = result
        return True

    def _concat(self, node: OnnxNode) -> bool:
        """Concatenation of dequantised tensors, and constants, with one quantisation."""
        parts = self._parts(node)
        if parts is None or len({part.quant for part in parts}) > 1:
            return False
        quant = parts[0].quant
        assert quant is not None
        values = [self._activation(part, node).value for part in parts]
        result = self.builder.concat(node.name, node.outputs[0], values, int(node.attributes["axis"]), quant)
        self.sources[node.outputs[0]] = Source(result, quant)
        return True

    def _parts(self, node: OnnxNode) -> list[Source | Constant] | None:
        """Operands that are dequantised tensors or constants; None if any is not."""
        parts = [self.sources.get(name) or self.quantised.get(name) for name in node.inputs]
        known = [part for part in parts if part is not None and part.quant is not None]
        return known if len(known) == len(parts) else None

    def _activation(self, part: Source | Constant, node: OnnxNode) -> Source:
        """A constant as a tensor."""
        if isinstance(part, Source):
            return part
        quant = part.quant
        assert quant is not None
        layout = Layout.plain(part.values.shape)
        return Source(self.builder.constant(f"{node.name}/constant", part.values, quant, layout), quant)

    def _only_quantised(self, name: str) -> bool:
        """Whether a float result goes into QuantizeLinear alone."""
        users = self.file.consumers.get(name, [])
        return bool(users) and name not in self.file.outputs and all(user.op == "QuantizeLinear" for user in users)

    def _dequantize(self, node: OnnxNode) -> bool:
        source = self.operand(node, 0)
        if source is None or source.value.dtype != source.quant.dtype:
            return False
        self.sources[node.outputs[0]] = source
        return True

    def _quantize(self, node: OnnxNode) -> bool:
        signed = node.attributes.get("output_dtype", 0) == onnx.TensorProto.INT8
        quant = self.quant(node, 1, 2, "int8" if signed else "uint8")
        name, result = node.inputs[0], node.outputs[0]
        if quant is None:
            return False
        source = self.sources.get(name)
        if source is not None and source.quant == quant:
            self.values[result] = source.value
            return True
        if source is not None:
            self.values[result] = self.elementwise.requantise(node.name, result, source, quant)
            return True
        if name in self.waiting:
            value = self._fuse(result, name, quant)
            expression = self._expression(name) if value is None else None
            if expression is not None:
                value = self.elementwise.function(self.waiting[name].name, result, expression, quant)
            if value is not None:
                self.values[result] = value
                return True
        value = self._value(name)
        if value.dtype != "float32":
            return False
        self.values[result] = self.builder.quantize(node.name, result, value, quant)
        return True

    def _max_pool(self, node: OnnxNode) -> bool:
        name, result = node.inputs[0], node.outputs[0]
        if len(node.outputs) > 1 and node.outputs[1]:
            return False
        source = self.sources.get(name)
        value = source.value if source is not None else self.values.get(name)
        if value is None:
            return False
        tensor = self.builder.tensors[value.tensor]
        quant = source.quant if source is not None else None
        if quant is None and tensor.scale is not None:
            quant = Quant(tensor.scale, tensor.zero_point, value.dtype)
        pooled = self.integer.max_pool(node.name, result, node.attributes, value, quant)
        if pooled is None:
            return False
        if source is not None:
            self.sources[result] = Source(pooled, source.quant)
        else:
            self.values[result] = pooled
        return True

    def _pad(self, node: OnnxNode) -> bool:
        """Padding of height, width and channels with real zero."""
        source, sizes = self.sources.get(node.inputs[0]), self.constant(node.input(1))
        fill = self.constant(node.input(2)) if node.input(2) else np.zeros(1, np.float32)
        plain = node.attributes.get("mode", b"constant") == b"constant" and not node.input(3)
        if source is None or sizes is None or fill is None or not plain or np.any(fill) or sizes.size != 8:
            return False
        numbers = tuple(int(size) for size in sizes)
        if min(numbers) < 0 or numbers[0] or numbers[4] or source.value.shape[0] != 1:
            return False
        pads = (numbers[2], numbers[3], numbers[6], numbers[7])
        result = source.value
        if any(pads):
            result = self.builder.pad(node.name, node.outputs[0], source, pads)
        if numbers[1] or numbers[5]:
            quant = source.quant
            result = self.builder.pad_channels(node.name, node.outputs[0], Source(result, quant), numbers[1::4])
        self.sources[node.outputs[0]] = Source(result, source.quant)
        return True

    def _host(self, node: OnnxNode) -> None:
        """Leave a node to ONNX Runtime; a layer norm with the sums in front of it, with which it is fused."""
        nodes = [*(self._sums(node.inputs[0]) if node.op == "LayerNormalization" else ()), node]
        inside = {name for each in nodes[:-1] for name in each.outputs}
        values: dict[str, Value] = {}
        constants: dict[str, Array] = {}
        for name in dict.fromkeys(name for each in nodes for name in each.inputs if name and name not in inside):
            constant = self.constant(name)
            if constant is not None:
                constants[name] = constant
            else:
                values[name] = self._value(name)
        self.values.update(self.builder.onnx_node(nodes, values, constants))

    def _is_normed(self, node: OnnxNode, last: bool = False) -> bool:
        """Whether a sum's result goes into a layer norm alone, perhaps by one more sum: a bias, and a residual."""
        users = self.file.consumers.get(node.outputs[0], [])
        if len(users) != 1 or node.outputs[0] in self.file.outputs:
            return False
        (user,) = users
        return user.op == "LayerNormalization" or (not last and user.op == "Add" and self._is_normed(user, last=True))

    def _sums(self, name: str, last: bool = True) -> list[OnnxNode]:
        """The sums, in order, that make a layer norm's operand and nothing else."""
        node = self.waiting.get(name)
        if node is None or name in self.values or node.op != "Add" or not self._is_normed(node, last):
            return []
        before = (self._sums(operand, last=False) for operand in node.inputs) if last else ()
        return [*(each for nodes in before for each in nodes), node]

    # QDQ patterns ------------------------------------------------------------------------------

    def _fuse(self, result: str, name: str, target: Quant) -> Value | None:
        """[operator, activations, QuantizeLinear] as one integer node; None if the pattern is another."""
        clamp = FULL
        node = self.waiting[name]
        while node.op in ("Relu", "Clip"):
            bounds = self._bounds(node)
            if bounds is None or node.inputs[0] not in self.waiting:
                return None
            clamp = _tighter(clamp, bounds, target)
            node = self.waiting[node.inputs[0]]
        fuse = _FLOAT_OPERATORS.get(node.op)
        return fuse(self, node, result, target, clamp) if fuse is not None else None

    def _expression(self, name: str) -> Expression | None:
        """The waiting name as a function of one dequantised tensor; None if it is something else."""
        nodes: dict[str, OnnxNode] = {}
        constants: dict[str, Array] = {}
        quantised: dict[str, Constant] = {}
        variables: dict[str, Source] = {}

        def visit(name: str) -> bool:
            if name in self.sources:
                variables[name] = self.sources[name]
                return True
            constant = self.constant(name)
            if constant is not None:
                if name in self.quantised and name not in self.file.constants:
                    quantised[name] = self.quantised[name]
                else:
                    constants[name] = constant
                return constant.size == 1 and constant.ndim <= 1
            node = self.waiting.get(name)
            if node is None or node.op not in (*FUNCTIONS, *COMBINATIONS):
                return False
            if not all(visit(operand) for operand in node.inputs if operand):
                return False
            nodes[node.name] = node
            return True

        if not visit(name) or len(variables) != 1:
            return None
        ((variable, source),) = variables.items()
        return Expression(source, variable, tuple(nodes.values()), constants, quantised)

    def _bounds(self, node: OnnxNode) -> tuple[float, float] | None:
        """Real bounds of an activation."""
        if node.op == "Relu":
            return 0.0, np.inf
        ends = [node.attributes.get("min", -np.inf), node.attributes.get("max", np.inf)]
        for index in (1, 2):
            if node.input(index):
                constant = self.constant(node.input(index))
                if constant is None:
                    return None
                ends[index - 1] = float(constant.ravel()[0])
        return float(ends[0]), float(ends[1])

    def _fuse_conv(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        source, weights = self.sources.get(node.inputs[0]), self.quantised.get(node.inputs[1])
        if source is None or weights is None:
            return None
        known, bias = self._bias(node.input(2))
        if not known:
            return None
        attributes = node.attributes
        return self.integer.conv(node.name, result, attributes, source, weights, bias, target, clamp)

    def _bias(self, name: str) -> tuple[bool, Constant | Array | None]:
        """(whether it is known now, the bias or None if the node has none)."""
        if name in self.quantised:
            return True, self.quantised[name]
        constant = self.constant(name) if name else None
        return not name or constant is not None, constant

    def _fuse_gemm(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        source, weights = self.sources.get(node.inputs[0]), self.quantised.get(node.inputs[1])
        known, bias = self._bias(node.input(2))
        plain = node.attributes.get("alpha", 1.0) == 1.0 and node.attributes.get("beta", 1.0) == 1.0
        plain = plain and not node.attributes.get("transA", 0)
        if source is None or weights is None or not known or not plain:
            return None
        if node.attributes.get("transB", 0):
            weights = weights.transposed((1, 0))
        return self.integer.dense(node.name, result, source, weights, bias, target, clamp)

    def _fuse_matmul(
        self, node: OnnxNode, result: str, target: Quant, clamp: Clamp, bias: Constant | Array | None = None
    ) -> Value | None:
        source, weights = self.sources.get(node.inputs[0]), self.quantised.get(node.inputs[1])
        other = self.sources.get(node.inputs[1])
        if source is not None and other is not None and bias is None:
            return self.integer.matmul(node.name, result, source, other, target, clamp)
        if source is None or weights is None:
            return None
        return self.integer.dense(node.name, result, source, weights, bias, target, clamp)

    def _fuse_binary(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        if len(node.inputs) != 2:
            return None
        left, right = node.inputs
        if self._expression(node.outputs[0]) is None and (left in self.sources or right in self.sources):
            a, b = (self.sources.get(name) or self.quantised.get(name) for name in (left, right))
            if a is not None and b is not None:
                value = self.elementwise.binary(node.name, result, BINARY[node.op], (a, b), target, clamp)
                if value is None and node.op in ("Add", "Mul") and self._is_of_one_type(a, b, target):
                    return self._kernel(node, f"QLinear{node.op}", (a, b), result, target, clamp)
                return value
        return self._fuse_bias(node, result, target, clamp) if node.op == "Add" else None

    def _is_of_one_type(self, *ends: Source | Constant | Quant) -> bool:
        """Whether ONNX Runtime fuses what stands between these to an operator on integers."""
        quants = [end if isinstance(end, Quant) else end.quant for end in ends]
        return len({quant and self.file.kernel_types[quant.dtype] for quant in quants} - {None}) == 1

    def _kernel(
        self,
        node: OnnxNode,
        kind: str,
        operands: Sequence[Source | Constant],
        result: str,
        target: Quant,
        clamp: Clamp,
        **attributes: Any,
    ) -> Value | None:
        """An operator of ONNX Runtime on integers, on the host; where the accelerator does not do what it does."""
        if any(operand.quant is None for operand in operands):
            return None
        value = self.builder.kernel(node, kind, operands, target, **attributes)
        return self.elementwise.requantise(node.name, result, Source(value, target), target, clamp)

    def _fuse_softmax(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        source = self.sources.get(node.inputs[0])
        if source is None or not self._is_of_one_type(source, target):
            return None
        if len(self.file.consumers[node.outputs[0]]) > 1 or node.outputs[0] in self.file.outputs:
            return None
        opset = next(opset.version for opset in self.file.opsets if opset.domain in STANDARD_DOMAINS)
        axis = int(node.attributes.get("axis", -1 if opset >= 13 else 1))
        return self._kernel(node, "QLinearSoftmax", (source,), result, target, clamp, axis=axis, opset=opset)

    def _fuse_bias(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        """MatMul and Add of a constant."""
        left, right = node.inputs
        for data, other in ((left, right), (right, left)):
            _, bias = self._bias(other)
            product = self.waiting.get(data)
            if bias is not None and product is not None and product.op == "MatMul":
                size = bias.values.size if isinstance(bias, Constant) else np.asarray(bias).size
                weights = self.quantised.get(product.inputs[1])
                if weights is not None and size in (1, weights.values.shape[-1]):
                    return self._fuse_matmul(product, result, target, clamp, bias)
        return None

    def _fuse_concat(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        """Parts in different quantisations are brought to the result's first."""
        parts = self._parts(node)
        if parts is None:
            return None
        rescaled = []
        for name, part in zip(node.inputs, parts, strict=True):
            source = self._activation(part, node)
            label = f"{node.name}/{name}"
            rescaled.append(self.elementwise.requantise(label, f"{name}/rescaled", source, target, clamp))
        return self.builder.concat(node.name, result, rescaled, int(node.attributes["axis"]), target)

    def _fuse_average(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        source = self.sources.get(node.inputs[0])
        if source is None:
            return None
        value = self.integer.average_pool(node.name, result, node.attributes, source, target, clamp)
        if value is None and self._is_of_one_type(source, target):
            return self._kernel(node, "QLinearAveragePool", (source,), result, target, clamp, **node.attributes)
        return value

    def _fuse_global(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        source = self.sources.get(node.inputs[0])
        return None if source is None else self.integer.mean(node.name, result, source, target, True, clamp)

    def _fuse_reduce(self, node: OnnxNode, result: str, target: Quant, clamp: Clamp) -> Value | None:
        source = self.sources.get(node.inputs[0])
        axes = node.attributes.get("axes")
        if node.input(1):
            axes = self.constant(node.input(1))
        if source is None or axes is None or len(source.value.shape) != 4:
            return None
        if sorted(int(axis) % 4 for axis in axes) != [2, 3]:
            return None
        keep = bool(node.attributes.get("keepdims", 1))
        return self.integer.mean(node.name, result, source, target, keep, clamp)


_FLOAT_OPERATORS = {
    "Conv": Importer._fuse_conv,
    "Gemm": Importer._fuse_gemm,
    "MatMul": Importer._fuse_matmul,
    **dict.fromkeys(BINARY, Importer._fuse_binary),
    "Concat": Importer._fuse_concat,
    "AveragePool": Importer._fuse_average,
    "GlobalAveragePool": Importer._fuse_global,
    "ReduceMean": Importer._fuse_reduce,
    "Softmax": Importer._fuse_softmax,
}


def _tighter(clamp: Clamp, bounds: tuple[float, float], target: Quant) -> Clamp:
    """The clamp after real bounds: both are quantised as QuantizeLinear would."""

    def level(real: float) -> int:
        if not np.isfinite(real):
            return -128 if real < 0 else 127
        steps = np.rint(np.float32(real) / target.scale)
        return int(np.clip(float(steps) + target.zero_point, -128, 127))

    return max(clamp[0], level(bounds[0])), min(clamp[1], level(bounds[1]))
