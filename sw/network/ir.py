"""The network inside Dovetail: a small typed graph of int8 tensors, NHWC, batch 1.

Front ends build it, passes transform it, the compiler and the reference interpreter read it. Every
node is frozen; a pass returns a new `Graph` and calls `check()` on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.layout import Array, Layout, Shape
from dovetail.sw.network.nodes import (
    FREE,
    AvgPool,
    Constant,
    Conv,
    Copy,
    Depthwise,
    Elementwise,
    Host,
    MatMul,
    MaxPool,
    Mean,
    Move,
    Node,
    Norm,
    Pad,
    Pads,
    Pair,
    Pointwise,
    Requant,
    Rescale,
    Reshape,
    Rows,
    Softmax,
    Table,
    Update,
    int8_terms,
    positions,
)

__all__ = [
    "FREE",
    "AvgPool",
    "Constant",
    "Conv",
    "Copy",
    "Depthwise",
    "Elementwise",
    "Graph",
    "Host",
    "MatMul",
    "MaxPool",
    "Mean",
    "Move",
    "Node",
    "Norm",
    "Pad",
    "Pads",
    "Pair",
    "Pointwise",
    "Port",
    "Requant",
    "Rescale",
    "Reshape",
    "Rows",
    "Softmax",
    "State",
    "Table",
    "Tensor",
    "Update",
    "int8_terms",
    "positions",
    "same_pads",
    "window_size",
]
"""This module is the whole representation: nodes are in a file of their own."""


@dataclass(frozen=True)
class Tensor:
    """A tensor between nodes.

    Parameters
    ----------
    name: unique in the graph.
    shape: sizes in elements, channels last; spatial tensors are (1, H, W, C).
    scale: real value of one step, None where the tensor is not quantised.
    zero_point: the integer that stands for 0.0 (0 where not quantised).
    dtype: NumPy name of the element type: "int8" everywhere the accelerator is meant to touch.
    """

    name: str
    shape: Shape
    scale: np.float32 | None = None
    zero_point: int = 0
    dtype: str = "int8"

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.item_bytes

    @property
    def nhwc(self) -> tuple[int, int, int, int]:
        """The shape seen by spatial nodes: (1, H, W, C), missing leading axes filled with ones."""
        full = (1,) * (4 - len(self.shape)) + self.shape
        if len(full) != 4 or full[0] != 1:
            raise NetworkError(f"tensor {self.name!r} must be (1, H, W, C) or shorter, not {self.shape}")
        return full[0], full[1], full[2], full[3]

    def __str__(self) -> str:
        quant = "" if self.scale is None else f" scale={self.scale:.6g} zero={self.zero_point}"
        return f"{self.name}: {self.dtype}[{'x'.join(map(str, self.shape))}]{quant}"


@dataclass(frozen=True)
class Port:
    """An input or output of the network as its file declares it, and how it maps to a tensor.

    Parameters
    ----------
    name: the file's name for it.
    tensor: the graph tensor behind it.
    dtype: what the user passes or receives.
    scale, zero_point: the file's quantisation (scale None if float).
    layout: the file's shape, and how the tensor's bytes are ordered in it.
    offset: file value minus tensor value: 128 for uint8 files, else 0.
    """

    name: str
    tensor: str
    dtype: str
    scale: np.float32 | None
    zero_point: int
    layout: Layout
    offset: int = 0

    @property
    def shape(self) -> Shape:
        """The file's shape."""
        return self.layout.shape

    def to_tensor(self, value: Array, shape: Shape) -> Array:
        """The tensor of `shape` for the user's array.

        Raises
        ------
        NetworkError: element type or shape differ from the port's (the leading 1 may be left out).
        """
        value = np.asarray(value)
        if value.dtype != np.dtype(self.dtype):
            raise NetworkError(f"input {self.name!r} must be {self.dtype}, not {value.dtype}")
        if value.shape != self.shape and not (self.shape[:1] == (1,) and value.shape == self.shape[1:]):
            raise NetworkError(f"input {self.name!r} must have shape {self.shape}, not {value.shape}")
        return _shift(self.layout.inside(value), -self.offset).reshape(shape)

    def from_tensor(self, value: Array) -> Array:
        """The user's array for a tensor; inverse of `to_tensor`."""
        return _shift(self.layout.outside(value), self.offset).astype(self.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class State:
    """A variable of the network: what one run leaves in it, the next one finds.

    Parameters
    ----------
    name: the file's name for it.
    read: the tensor that holds it when a run begins.
    written: the tensor that holds it when the run has ended, of the same element type and size; ``read`` itself if
        nothing writes it.
    initial: its value before the first run, in the shape of ``read``.
    """

    name: str
    read: str
    written: str
    initial: Array


def _shift(value: Array, offset: int) -> Array:
    """int8 <-> uint8 by adding `offset` (+-128); anything else unchanged."""
    if not offset:
        return value
    target = np.uint8 if offset > 0 else np.int8
    return (value.astype(np.int16) + offset).astype(target)


def window_size(size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> int:
    """Output length of a sliding window over `size` elements with padding."""
    return (size + before + after - (kernel - 1) * dilation - 1) // stride + 1


def same_pads(size: int, reach: int, stride: int) -> tuple[int, int]:
    """Padding before and after ``size`` elements, for size / stride results, rounded up; the smaller half is before.

    ``reach``: elements from the first tap to the last.
    """
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: its ports, tensors by name, and nodes in an order they can be executed in.

    Parameters
    ----------
    inputs, outputs: the file's inputs and outputs.
    tensors: every tensor by name; constants live in the nodes.
    nodes: topologically sorted.
    states: the variables that live between runs.
    left: operators of the file behind what Dovetail does, which are the user's to run, and why.
    source: where it came from: "tflite", "onnx", ...
    name: file stem or zoo name.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tensors: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    source: str
    name: str = "network"
    states: tuple[State, ...] = ()
    left: tuple[str, ...] = ()
    why_left: str = ""

    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes, {self.total_macs:,} MACs>"

    @property
    def given(self) -> tuple[str, ...]:
        """Tensors that are there before the first node: inputs, and states."""
        return tuple(port.tensor for port in self.inputs) + tuple(state.read for state in self.states)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Tensors that must be there after the last node: outputs, and states for the next run."""
        return tuple(port.tensor for port in self.outputs) + tuple(state.written for state in self.states)

    def initial_state(self) -> dict[str, Array]:
        """What the first run finds in the states, by tensor name; :meth:`next_state` gives what the others find."""
        return {state.read: state.initial for state in self.states}

    def next_state(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """What the next run finds in the states, from the tensors of this one, by tensor name."""
        return {
            state.read: tensors[state.written].reshape(self.tensors[state.read].shape).copy() for state in self.states
        }

    def check(self) -> Graph:
        """Verify order, single definition and shapes; returns the graph itself.

        Raises
        ------
        NetworkError: names the node and the rule it breaks.
        """
        defined = set(self.given)
        names: set[str] = set()
        for tensor_name, tensor in self.tensors.items():
            _require(tensor_name == tensor.name, tensor_name, f"table key must be its name, not {tensor.name!r}")
            _require(all(size > 0 for size in tensor.shape), tensor_name, f"shape must be positive, not {tensor.shape}")
            if tensor.dtype == "int8":
                fits = -128 <= tensor.zero_point <= 127
                _require(fits, tensor_name, f"zero point must be -128..127, not {tensor.zero_point}")
        for name in defined:
            _require(name in self.tensors, name, "input tensor must be in the table, not missing")
        for node in self.nodes:
            _require(node.name not in names, node.name, "node name must be unique, not used twice")
            names.add(node.name)
            for name in node.inputs:
                _require(name in defined, node.name, f"input {name!r} must be computed before its use")
            for name in node.outputs:
                _require(name in self.tensors, node.name, f"output {name!r} must be in the tensor table")
                _require(name not in defined, node.name, f"output {name!r} must be written once, not twice")
                defined.add(name)
            self._check_node(node)
        for port in self.outputs:
            _require(port.tensor in defined, port.name, f"output tensor {port.tensor!r} must be computed by a node")
        for state in self.states:
            _require(state.written in defined, state.name, f"state tensor {state.written!r} must be computed by a node")
            before, after = self.tensors[state.read], self.tensors[state.written]
            fits = before.size == after.size and before.dtype == after.dtype
            _require(fits, state.name, f"state must keep its size and element type, not go from {before} to {after}")
            kept = state.initial.shape == before.shape and str(state.initial.dtype) == before.dtype
            _require(
                kept, state.name, f"initial state must be {before}, not {state.initial.dtype}{state.initial.shape}"
            )
        return self

    def _check_node(self, node: Node) -> None:
        if isinstance(node, Host):
            return
        if isinstance(node, Update):
            self._check_update(node)
        ins = [self.tensors[name] for name in node.inputs[: 2 if isinstance(node, Update) else None]]
        out = self.tensors[node.outputs[0]]
        for tensor in [*ins, out]:
            _require(tensor.dtype == "int8", node.name, f"{tensor.name!r} must be int8, not {tensor.dtype}")
        arity = 2 if isinstance(node, Elementwise | MatMul | Update) else 0 if isinstance(node, Constant) else 1
        if isinstance(node, Move):
            arity = len(node.copies)
        _require(len(ins) == arity, node.name, f"{node.op} must have {arity} input(s), not {len(ins)}")
        match node:
            case Reshape():
                _require(
                    ins[0].size == out.size, node.name, f"reshape must keep {ins[0].size} elements, not {out.size}"
                )
                want = node.shape
            case Elementwise():
                shapes = sorted({tensor.shape for tensor in ins})
                want = shapes[0] if len(shapes) == 1 else _broadcast(node, ins, out)
            case Rescale() | Table():
                one = isinstance(node, Table) or not node.absolute or node.below is None
                _require(one, node.name, "a magnitude is never below zero: there must be one multiplier, not two")
                want = ins[0].shape
            case Softmax():
                _require(len(node.exponentials) == 256, node.name, "there must be 256 exponentials")
                want = ins[0].shape
            case Norm():
                count = node.records.mult.size
                fits = ins[0].shape[-1] == count
                _require(fits, node.name, f"rows must have {count} elements, not {ins[0].shape[-1]}")
                want = ins[0].shape
            case Constant():
                want = node.value.shape
            case Update():
                want = ins[0].shape
            case Move():
                self._check_copies(node, ins, out)
                want = out.shape
            case MatMul():
                want = _product_shape(node, ins[0].shape, ins[1].shape)
            case _:
                want = self._expected(node, ins[0])
                _require(out.nhwc == want, node.name, f"output must be {want}, not {out.nhwc}")
                return
        _require(out.shape == want, node.name, f"output must be {want}, not {out.shape}")

    def _check_update(self, node: Update) -> None:
        _require(len(node.inputs) == 3, node.name, f"update must have 3 inputs, not {len(node.inputs)}")
        state, rows, place = (self.tensors[name] for name in node.inputs)
        whole = place.dtype in ("int32", "int64") and place.size == 1
        _require(whole, node.name, f"the place of its rows must be one int32 or int64, not {place}")
        alike = len(state.shape) == len(rows.shape) and 0 <= node.axis < len(rows.shape)
        for k, (size, part) in enumerate(zip(state.shape, rows.shape, strict=False)):
            alike &= size == part or (k == node.axis and size > part)
        _require(alike, node.name, f"rows must be like {state.shape} but along axis {node.axis}, not {rows.shape}")

    @staticmethod
    def _check_copies(node: Move, ins: list[Tensor], out: Tensor) -> None:
        moved = 0
        for copy, tensor in zip(node.copies, ins, strict=True):
            moved += prod(copy.sizes)
            for start, steps, size in (
                (copy.source, copy.source_steps, tensor.size),
                (copy.target, copy.target_steps, out.size),
            ):
                last = start + sum((n - 1) * step for n, step in zip(copy.sizes, steps, strict=True))
                _require(0 <= start <= last < size, node.name, f"copies must stay within {size} elements")
        _require(moved == out.size, node.name, f"copies must fill {out.size} elements, not {moved}")

    @staticmethod
    def _expected(node: Conv | Depthwise | AvgPool | Mean | MaxPool | Pad, source: Tensor) -> Shape:
        """(1, H, W, C) of the output of a spatial node."""
        _, height, width, channels = source.nhwc
        if isinstance(node, Mean):
            return 1, 1, 1, channels
        _require(
            0 <= min(node.pads) <= max(node.pads) <= 65535, node.name, f"padding must be 0..65535, not {node.pads}"
        )
        top, left, bottom, right = node.pads
        if isinstance(node, Pad):
            return 1, height + top + bottom, width + left + right, channels
        out_channels, dilation = channels, (1, 1)
        if isinstance(node, Conv | Depthwise):
            dilation = node.dilation
            clamp = (node.requant.lo, node.requant.hi)
            _require(-128 <= clamp[0] <= clamp[1] <= 127, node.name, f"clamp must be within int8, not {clamp}")
            out_channels = node.weights.shape[0] if isinstance(node, Conv) else node.weights.shape[2]
            if node.rest is not None:
                like = node.rest.dtype == np.int8 and node.rest.shape[1:] == node.weights.shape
                _require(like, node.name, f"rest must be int8 arrays of shape {node.weights.shape}")
            if isinstance(node, Conv):
                seen = node.weights.shape[3] * node.groups
                _require(seen == channels, node.name, f"weights must have {channels} input channels, not {seen}")
                whole = out_channels % node.groups == 0
                _require(whole, node.name, f"{out_channels} output channels must fall into {node.groups} groups")
            else:
                whole = out_channels % channels == 0
                _require(whole, node.name, f"weights must have a multiple of {channels} channels, not {out_channels}")
            _require(
                node.bias.shape == (out_channels,),
                node.name,
                f"bias must have {out_channels} entries, not {node.bias.shape}",
            )
        _require(min(node.stride) > 0, node.name, f"stride must be positive, not {node.stride}")
        return (
            1,
            window_size(height, node.kernel[0], node.stride[0], dilation[0], top, bottom),
            window_size(width, node.kernel[1], node.stride[1], dilation[1], left, right),
            out_channels,
        )

    def macs(self, node: Node) -> int:
        """Multiply-accumulates of a node, padding included; 0 for anything but convolutions, matrix products and
        recurrent layers."""
        if isinstance(node, Host):
            return int(getattr(node.payload, "macs", 0))
        if isinstance(node, MatMul):
            return self.tensors[node.outputs[0]].size * self.tensors[node.inputs[0]].shape[-1]
        if not isinstance(node, Conv | Depthwise):
            return 0
        _, height, width, _ = self.tensors[node.outputs[0]].nhwc
        return height * width * int(node.weights.size)

    @property
    def total_macs(self) -> int:
        """Multiply-accumulates of all nodes."""
        return sum(self.macs(node) for node in self.nodes)

    def producer(self, tensor: str) -> Node | None:
        """The node that writes a tensor; None for network inputs."""
        return next((node for node in self.nodes if tensor in node.outputs), None)

    def consumers(self, tensor: str) -> tuple[Node, ...]:
        """The nodes that read a tensor."""
        return tuple(node for node in self.nodes if tensor in node.inputs)

    def bind(self, inputs: Mapping[str, Array] | Iterable[Array] | Array) -> dict[str, Array]:
        """The user's arrays (by port name, in port order, or a single one) as tensors by tensor name."""
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            arrays = list(inputs)
            if len(arrays) != len(self.inputs):
                raise NetworkError(f"the network must get {len(self.inputs)} input(s), not {len(arrays)}")
            inputs = {port.name: array for port, array in zip(self.inputs, arrays, strict=True)}
        if set(inputs) != {port.name for port in self.inputs}:
            wanted = ", ".join(port.name for port in self.inputs)
            raise NetworkError(f"inputs must be named {wanted}, not {', '.join(sorted(inputs))}")
        return {port.tensor: port.to_tensor(inputs[port.name], self.tensors[port.tensor].shape) for port in self.inputs}

    def unbind(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The network's outputs as its file declares them, by port name, from tensors by tensor name."""
        return {port.name: port.from_tensor(tensors[port.tensor]) for port in self.outputs}

    def __str__(self) -> str:
        lines = [f"{self.source} network {self.name}: {len(self.nodes)} nodes, {self.total_macs:,} MACs"]
        lines += [f"  input  {self.tensors[port.tensor]}" for port in self.inputs]
        lines += [f"  state  {self.tensors[state.read]} <- {state.written}" for state in self.states]
        for node in self.nodes:
            outs = ", ".join(str(self.tensors[name]) for name in node.outputs)
            lines.append(f"  {node.name} = {node.op}({', '.join(node.inputs)}){_details(node)} -> {outs}")
        lines += [f"  output {self.tensors[port.tensor]}" for port in self.outputs]
        lines += [f"  left   {left}" for left in self.left]
        return "\n".join(lines)


def _details(node: Node) -> str:
    if isinstance(node, Conv | Depthwise | AvgPool | MaxPool):
        kernel, stride = (f"{y}x{x}" for y, x in (node.kernel, node.stride))
        text = f" {kernel} stride {stride} pads {','.join(map(str, node.pads))}"
        if isinstance(node, Conv | Depthwise):
            text += f" clamp [{node.requant.lo}, {node.requant.hi}]"
        return text
    return ""


def _broadcast(node: Elementwise, ins: list[Tensor], out: Tensor) -> Shape:
    """The shape of the result where an operand is repeated over rows or columns."""
    a, b = (tensor.nhwc for tensor in ins)
    fits = a[3] == b[3] and all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True))
    _require(fits, node.name, f"operands must have one shape, or one row or column, not {a} and {b}")
    want = tuple(max(m, n) for m, n in zip(a, b, strict=True))
    return out.shape if out.nhwc == want else want


def _product_shape(node: MatMul, a: Shape, b: Shape) -> Shape:
    _require(len(a) >= 2 and len(b) >= 2, node.name, f"operands must be matrices, not {a} and {b}")
    depth, columns = b[:-3:-1] if node.transposed else b[-2:]
    _require(a[-1] == depth, node.name, f"operands must have one inner size, not {a[-1]} and {depth}")
    _require(a[:-2] == b[:-2], node.name, f"operands must be equally many matrices, not {a[:-2]} and {b[:-2]}")
    return (*a[:-1], columns)


def _require(condition: bool, where: str, rule: str) -> None:
    if not condition:
        raise NetworkError(f"{where!r}: {rule}")
