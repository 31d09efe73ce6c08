"""The network inside Dovetail: a small typed graph of int8 tensors, NHWC, batch 1.

Front ends build it, passes transform it, the compiler and the reference interpreter read it. Every
node is frozen; a pass returns a new `Graph` and calls `check()` on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.layout import Array, Layout, Shape
from dovetail.sw.network.node_checks import check_node, require, same_pads, window_size
from dovetail.sw.network.nodes import (
    FREE,
    AvgPool,
    Constant,
    Conv,
    Copy,
    Depthwise,
    Elementwise,
    Host,
    Im2col,
    MatMul,
    MaxPool,
    Mean,
    Move,
    Node,
    Norm,
    Pad,
    Pads,
    Pair,
    Pick,
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
from dovetail.sw.network.tensor import Tensor

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
    "Im2col",
    "MatMul",
    "MaxPool",
    "Mean",
    "Move",
    "Node",
    "Norm",
    "Pad",
    "Pads",
    "Pair",
    "Pick",
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
            require(tensor_name == tensor.name, tensor_name, f"table key must be its name, not {tensor.name!r}")
            require(all(size > 0 for size in tensor.shape), tensor_name, f"shape must be positive, not {tensor.shape}")
            if tensor.dtype == "int8":
                fits = -128 <= tensor.zero_point <= 127
                require(fits, tensor_name, f"zero point must be -128..127, not {tensor.zero_point}")
        for name in defined:
            require(name in self.tensors, name, "input tensor must be in the table, not missing")
        for node in self.nodes:
            require(node.name not in names, node.name, "node name must be unique, not used twice")
            names.add(node.name)
            for name in node.inputs:
                require(name in defined, node.name, f"input {name!r} must be computed before its use")
            for name in node.outputs:
                require(name in self.tensors, node.name, f"output {name!r} must be in the tensor table")
                require(name not in defined, node.name, f"output {name!r} must be written once, not twice")
                defined.add(name)
            check_node(node, self.tensors)
        for port in self.outputs:
            require(port.tensor in defined, port.name, f"output tensor {port.tensor!r} must be computed by a node")
        for state in self.states:
            require(state.written in defined, state.name, f"state tensor {state.written!r} must be computed by a node")
            before, after = self.tensors[state.read], self.tensors[state.written]
            fits = before.size == after.size and before.dtype == after.dtype
            require(fits, state.name, f"state must keep its size and element type, not go from {before} to {after}")
            kept = state.initial.shape == before.shape and str(state.initial.dtype) == before.dtype
            require(kept, state.name, f"initial state must be {before}, not {state.initial.dtype}{state.initial.shape}")
        return self

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
    if isinstance(node, Conv | Depthwise | AvgPool | MaxPool | Im2col):
        kernel, stride = (f"{y}x{x}" for y, x in (node.kernel, node.stride))
        text = f" {kernel} stride {stride} pads {','.join(map(str, node.pads))}"
        if isinstance(node, Conv | Depthwise):
            text += f" clamp [{node.requant.lo}, {node.requant.hi}]"
        return text
    return ""
