"""What the names of an ONNX file stand for while it is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import OnnxFile, OnnxNode
from dovetail.sw.frontend.onnx.graph_builder import GraphBuilder
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Target, Value
from dovetail.sw.network.layout import Array, Layout

_NORMAL = 2.0**-100
"""Multiples of steps between this and its reciprocal are normal numbers of float32."""

_DEEPEST = 64
"""Float nodes in a row that wait for their QuantizeLinear: longer expressions are left to the host."""


InFloat = Callable[["Scope", OnnxNode], Value | None]
"""What makes a float result of integers where nothing quantises it; None: ONNX Runtime does."""


class Scope:
    """A name is a constant, a graph tensor (`Value`), a dequantised tensor (`Source`), or a float result that waits for
    its QuantizeLinear.

    Members
    -------
    constants, quantised: arrays; those that the file holds quantised.
    values, sources, streams: graph tensors; dequantised ones, of 8 bits and of 16.
    waiting, depths: nodes whose float result waits, and how many wait in a row.
    """

    def __init__(self, file: OnnxFile, in_float: InFloat) -> None:
        self.file = file
        self._in_float = in_float
        self.builder = GraphBuilder(file)
        self.constants: dict[str, Array] = dict(file.constants)
        self.quantised: dict[str, Constant] = {}
        self.values: dict[str, Value] = {}
        self.sources: dict[str, Source] = {}
        self.streams: dict[str, Source] = {}
        self.waiting: dict[str, OnnxNode] = {}
        self.depths: dict[str, int] = {}

    def constant(self, name: str) -> Array | None:
        """The array behind a constant name; dequantised constants become float."""
        if name not in self.constants and name in self.quantised:
            self.constants[name] = self.quantised[name].real()
        return self.constants.get(name)

    def held(self, name: str) -> Value | None:
        """The graph tensor behind a name, dequantised or not; None if there is none yet."""
        source = self.sources.get(name) or self.streams.get(name)
        return source.value if source is not None else self.values.get(name)

    def derive(self, name: str, result: str, value: Value) -> None:
        """Let ``result`` stand for ``value``, dequantised if ``name`` is."""
        for known in (self.sources, self.streams):
            if name in known:
                known[result] = replace(known[name], value=value)
                return
        self.values[result] = value

    def value(self, name: str) -> Value:
        """The name as a graph tensor; emits the host nodes that takes."""
        if name in self.values:
            return self.values[name]
        if name in self.sources:
            self.values[name] = self.builder.dequantize(name, self.sources[name])
        elif name in self.streams:
            source = self.streams[name]
            steps = np.full(1, source.quant.scale, np.float32)
            # In the file's order, in which a norm has rows.
            self.values[name] = self.builder.dequantize_sums(name, self.builder.plain(source.value), steps)
        elif name in self.waiting:
            node = self.waiting[name]
            scaled = self._scaled(node)
            if scaled is not None:
                self.values[name] = self.builder.dequantize(name, scaled)
            elif not self.put(node, self._in_float(self, node)):
                self.host(node)
        if name not in self.values:
            kind = "a constant" if self.constant(name) is not None else "missing"
            raise NetworkError(f"{name!r} must be computed from the network's inputs, not {kind}")
        return self.values[name]

    def quant(self, node: OnnxNode, scale: int, zero: int, dtype: str = "uint8") -> Quant | None:
        """Two inputs of a node as an activation's quantisation; zero point 0 of ``dtype`` where it is left out."""
        zero_point = self.zero(node, zero, dtype)
        if zero_point is None:
            return None
        return Quant.of(self.constant(node.input(scale)), zero_point, f"node {node.label}")

    def zero(self, node: OnnxNode, place: int, dtype: str) -> Array | None:
        """An input of a node as a zero point, 0 where it is left out; None if it is no constant."""
        name = node.input(place)
        return self.constant(name) if name else np.zeros((), dtype)

    def target(self, node: OnnxNode, scale: int, zero: int) -> Target | None:
        """Two inputs of a QOperator node as what its result must be."""
        quant = self.quant(node, scale, zero)
        return None if quant is None else Target(node.name, node.outputs[0], quant)

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

    def known(self, name: str) -> Source | Constant | None:
        """A dequantised tensor, or a constant; None if the name is neither."""
        return self.sources.get(name) or self.quantised.get(name)

    def parts(self, node: OnnxNode) -> list[Source | Constant] | None:
        """Operands that are dequantised tensors or constants; None if any is not."""
        parts = [self.known(name) for name in node.inputs]
        known = [part for part in parts if part is not None and part.quant is not None]
        return known if len(known) == len(parts) else None

    def activation(self, part: Source | Constant, node: OnnxNode) -> Source:
        """A constant as a tensor."""
        if isinstance(part, Source):
            return part
        quant = part.quant
        assert quant is not None
        layout = Layout.plain(part.values.shape)
        return Source(self.builder.constant(f"{node.name}/constant", part.values, quant, layout), quant)

    def bias(self, name: str) -> tuple[bool, Constant | Array | None]:
        """(whether it is known now, the bias or None if the node has none)."""
        if name in self.quantised:
            return True, self.quantised[name]
        constant = self.constant(name) if name else None
        return not name or constant is not None, constant

    def is_of_one_type(self, *ends: Source | Constant | Quant) -> bool:
        """Whether ONNX Runtime fuses what stands between these to an operator on integers."""
        quants = [end if isinstance(end, Quant) else end.quant for end in ends]
        return len({quant and self.file.kernel_types[quant.dtype] for quant in quants} - {None}) == 1

    def put(self, node: OnnxNode, value: Value | None) -> bool:
        """Let ``value`` be a node's result; whether there is one."""
        if value is None:
            return False
        self.values[node.outputs[0]] = value
        return True

    def wait(self, node: OnnxNode) -> bool:
        """Let a float result wait for its QuantizeLinear. Returns whether it can."""
        if not any(name in known for name in node.inputs for known in (self.sources, self.streams, self.waiting)):
            return False
        depth = 1 + max(self.depths.get(name, 0) for name in node.inputs)
        if depth <= _DEEPEST:
            self.waiting[node.outputs[0]], self.depths[node.outputs[0]] = node, depth
        return depth <= _DEEPEST

    def host(self, node: OnnxNode) -> None:
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
                values[name] = self.value(name)
        self.values.update(self.builder.onnx_node(nodes, values, constants))

    def _scaled(self, node: OnnxNode) -> Source | None:
        """A dequantised tensor times a power of two, such as attention's scores: with another scale it is the same, to
        the bit. None if a node is something else."""
        if node.op not in ("Mul", "Div") or len(node.inputs) != 2:
            return None
        name, other = node.inputs if node.op == "Div" or node.inputs[0] in self.sources else node.inputs[::-1]
        source, constant = self.sources.get(name), self.constant(other)
        if source is None or constant is None or constant.dtype != np.float32 or constant.size != 1:
            return None
        factor = float(constant.ravel()[0])
        if math.frexp(factor)[0] != 0.5 or constant.ndim > len(source.value.shape):
            return None
        before = float(source.quant.scale)
        scale = before * (factor if node.op == "Mul" else 1 / factor)
        if not all(_NORMAL <= step <= 1 / _NORMAL for step in (before, scale)):
            return None
        return replace(source, quant=replace(source.quant, scale=np.float32(scale)))

    def is_normed(self, node: OnnxNode, last: bool = False) -> bool:
        """Whether a sum's result goes into a layer norm alone, perhaps by one more sum: a bias, and a residual."""
        users = self.file.consumers.get(node.outputs[0], [])
        if node.op != "Add" or len(users) != 1 or node.outputs[0] in self.file.outputs:
            return False
        (user,) = users
        return user.op == "LayerNormalization" or (not last and self.is_normed(user, last=True))

    def _sums(self, name: str, last: bool = True) -> list[OnnxNode]:
        """The sums, in order, that make a layer norm's operand and nothing else."""
        node = self.waiting.get(name)
        if node is None or name in self.values or not self.is_normed(node, last):
            return []
        before = (self._sums(operand, last=False) for operand in node.inputs) if last else ()
        return [*(each for nodes in before for each in nodes), node]
