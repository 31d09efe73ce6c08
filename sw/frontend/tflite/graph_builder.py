"""Collects the graph of an 8-bit TFLite file, and answers what operators ask about their operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.frontend.tflite.file import Info, Operator, TfliteFile, is_unsigned, signed, signed_ends
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Shape, as_signed
from dovetail.sw.network.names import unused


class GraphBuilder:
    """Tensors, nodes and states of the graph. Tensors are named by their index in the file."""

    def __init__(self, file: TfliteFile) -> None:
        self.file = file
        self.unsigned = is_unsigned(file)
        self.signed = signed_ends(file)
        """The uint8 tensors of the file that are int8 here."""
        self.infos = [signed(info) if index in self.signed else info for index, info in enumerate(file.infos)]
        self.nodes: list[ir.Node] = []
        self.tensors: dict[str, ir.Tensor] = {}
        self.states: dict[int | str, ir.State] = {}
        """In the order of their first use, by tensor index or by the resource's name."""

    # What the file says ------------------------------------------------------------------------

    def tensor(self, index: int) -> ir.Tensor:
        """Its record."""
        return self.infos[index].tensor

    def ends(self, op: Operator) -> tuple[ir.Tensor, ir.Tensor]:
        """An operator's first operand and first result."""
        return self.tensor(op.inputs[0]), self.tensor(op.outputs[0])

    def constant(self, index: int) -> Array | None:
        """The value of an operand that does not depend on the network's inputs."""
        return self.infos[index].value if index >= 0 else None

    def numbers(self, index: int) -> list[int] | None:
        """The integers of a constant operand."""
        value = self.constant(index)
        return None if value is None else [int(v) for v in value.ravel()]

    def int8(self, op: Operator) -> bool:
        """Both ends are int8 tensors with one scale."""
        return are_int8(*self.ends(op))

    # What the graph gets -----------------------------------------------------------------------

    def declare(self, index: int) -> str:
        """Enter one of the file's tensors; its name."""
        tensor = self.tensor(index)
        self.tensors[tensor.name] = tensor
        return tensor.name

    def names(self, indices: Sequence[int]) -> tuple[str, ...]:
        """Of the tensors that hold the file's tensors now."""
        return tuple(self._held(i) if self.infos[i].variable else self.tensor(i).name for i in indices)

    def _held(self, index: int) -> str:
        if index not in self.states:
            name, info = self.declare(index), self.file.infos[index]
            initial = cleared(info)
            if index in self.signed:
                initial = as_signed(initial)
            self.states[index] = ir.State(name, name, name, initial)
        return self.states[index].written

    def write(self, index: int) -> str:
        """A new tensor for what an operator leaves in a variable that it has read."""
        tensor = self.tensor(index)
        name = unused(f"{tensor.name}/next", {*self.tensors, *(info.tensor.name for info in self.infos)})
        self.tensors[name] = replace(tensor, name=name)
        self.states[index] = replace(self.states[index], written=name)
        return name

    def wires(self, op: Operator, count: int = 1) -> dict[str, Any]:
        """Name, first inputs and first output of an operator's node."""
        return {"name": op.name, "inputs": self.names(op.inputs[:count]), "outputs": self.names(op.outputs[:1])}

    def operand(self, op: Operator, index: int) -> str | None:
        """An int8 operand, constant or not, as a tensor of the graph; None if it is something else."""
        info = self.infos[index]
        if not are_int8(info.tensor):
            return None
        if info.value is not None and info.tensor.name not in self.tensors:
            name = self.declare(index)
            self.nodes.append(ir.Constant(name=f"{op.name}/{name}", inputs=(), outputs=(name,), value=info.value))
        return info.tensor.name

    def view(self, op: Operator, source: str, shape: Shape) -> str:
        """The tensor under another shape."""
        tensor = self.tensors[source]
        if tensor.shape == shape:
            return source
        name = f"{source}/view{op.index}_{len(self.nodes)}"
        self.tensors[name] = replace(tensor, name=name, shape=shape)
        self.nodes.append(ir.Reshape(name=name, inputs=(source,), outputs=(name,), shape=shape))
        return name

    def add(self, node: ir.Node, result: ir.Tensor) -> str:
        """Append a node in front of an operator's own; the name of its result."""
        self.tensors[result.name] = result
        self.nodes.append(node)
        return result.name


def are_int8(*tensors: ir.Tensor) -> bool:
    """Whether all are int8 with one scale."""
    return all(tensor.dtype == "int8" and tensor.scale is not None for tensor in tensors)


def scales_of(*tensors: ir.Tensor) -> tuple[np.float32, ...]:
    """Scales of quantised tensors."""
    return tuple(tensor.scale for tensor in tensors if tensor.scale is not None)


def requant(
    op: Operator, real: ArrayLike, source: ir.Tensor, out: ir.Tensor, lo: int = -128, hi: int = 127
) -> ir.Requant:
    """From sums of `source` less its zero point to `out`, by a real factor for each channel or one for all."""
    factors = np.atleast_1d(np.asarray(real, np.float64))
    return ir.Requant.encode(factors, Rounding.TFLITE, source.zero_point, out.zero_point, lo, hi, where=op.name)


def cleared(info: Info, every: bool = False) -> Array:
    """A variable as the runtimes clear it: its zero point in int8 (``every``: in all types, byte by byte), else 0."""
    zero = info.zero_points[0] if info.zero_points.size and (every or info.tensor.dtype == "int8") else 0
    size = info.tensor.bytes
    fill = np.full(size, np.int64(zero).astype(np.int8).view(np.uint8), np.uint8)
    return fill.view(info.tensor.dtype).reshape(info.tensor.shape)


Build = Callable[[GraphBuilder, Operator], ir.Node | None]
"""Makes an operator's own node, after those in front of it; None leaves the operator to the host."""
