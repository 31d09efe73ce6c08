"""Caches that grow by a row in each run become caches of a fixed length, whose rows count up to the position.

A decoder appends a row to what came in: ``present = Concat(past, new)``. An accelerator's tensors have fixed sizes, so
the length that the user gives to ``past`` is the cache's, and the new row takes the place that the position says:
``present = ScatterElements(past, position, new)``. Rows behind it count for nothing: -1e9 is added to their scores in
front of Softmax. The sum of shares is over other rows in another order, but every share and every product is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.states import States
from dovetail.sw.host.onnx_session import set_nodes
from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.network.names import unused
from dovetail.sw.passes.float.model_proto import opset_of

POSITION = "position"
"""The input that a network gets if it has none for the number of a run's row."""
_SAME = ("QuantizeLinear", "DequantizeLinear", "Identity")
_ELEMENTWISE = (*_SAME, "Cast", "Mul", "Div", "Add", "Sub", "Where", "Tanh", "Clip")
_PLACES = ("pos", "seqlens_k")
"""What the input that says a run's row has in its name; the second is ONNX Runtime's."""
_MASK = {"hidden": -1e9, "seen": 0.0}
"""What is added to scores of rows behind the position, and of those up to it."""


def settle(model: onnx.ModelProto, states: States) -> bool:
    """Give every cache that grows a fixed length, in place; returns whether there was one.

    Parameters
    ----------
    model: with fixed sizes of its inputs; those of the caches are their lengths.
    states: input -> output of its variables.

    Raises
    ------
    NetworkError: a cache is read elsewhere, grows by more than one row, or goes where its rows cannot be hidden.
    """
    change = _Settling(model)
    grown = {output: node for name, output in states.items() if (node := change.appends(name, output)) is not None}
    if not grown:
        return False
    change.run(grown)
    return True


class _Settling:
    """The change of one model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.graph = model, model.graph
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)
        self.names = {*self.makers, *(value.name for value in self.graph.input)}
        self.names |= {tensor.name for tensor in self.graph.initializer}
        self.first: list[onnx.NodeProto] = []
        """New nodes before all others."""
        self.places: dict[Shape, str] = {}

    # Which caches grow -----------------------------------------------------------------------------

    def appends(self, name: str, output: str) -> onnx.NodeProto | None:
        """The Concat of a variable's input and something behind it that makes its output; None if another node does."""
        node = self.makers.get(self._origin(output))
        if node is None or node.op_type != "Concat" or len(node.input) != 2 or self._origin(node.input[0]) != name:
            return None
        for one in self._readers_of(name):
            if one is not node:
                label = one.name or one.output[0]
                raise NetworkError(
                    f"state {name!r}: a cache that grows must be read by one Concat alone, not by {label!r} "
                    f"({one.op_type}) too; export with a cache of fixed length"
                )
        return node

    def _origin(self, name: str) -> str:
        """Where a tensor comes from that only its quantisation separates from this one."""
        while (maker := self.makers.get(name)) is not None and maker.op_type in _SAME:
            name = maker.input[0]
        return name

    def _readers_of(self, name: str) -> list[onnx.NodeProto]:
        found: list[onnx.NodeProto] = []
        pending = [name]
        while pending:
            for node in self.readers.get(pending.pop(), ()):
                if node.op_type in _SAME:
                    pending.append(node.output[0])
                else:
                    found.append(node)
        return found

    # The change ------------------------------------------------------------------------------------

    def run(self, grown: Mapping[str, onnx.NodeProto]) -> None:
        before = self._shapes()
        position, kind = self._position()
        starts: list[tuple[str, int]] = []
        for node in grown.values():
            past, new = (before.get(name) for name in node.input)
            axis = next(a.i for a in node.attribute if a.name == "axis")
            if not past or not new:
                raise NetworkError(f"node {node.name!r} (Concat): sizes must be known; export with static shapes")
            axis %= len(past)
            if new[axis] != 1:
                raise NetworkError(
                    f"node {node.name!r} (Concat): a cache that grows must grow by one row in each run, not "
                    f"{new[axis]}; export a step of one token"
                )
            inputs = [node.input[0], self._place(position, new), node.input[1]]
            node.CopyFrom(helper.make_node("ScatterElements", inputs, [*node.output], node.name, axis=axis))
            starts.append((node.output[0], axis))
        self._forget_sizes([*grown])
        shapes = self._shapes()
        lengths = {shapes[name][axis] for name, axis in starts}
        masks = {length: self._mask(position, kind, length) for length in lengths}
        for name, axis in starts:
            self._hide(name, axis, masks[shapes[name][axis]], shapes)
        set_nodes(self.graph, [*self.first, *self.graph.node])

    def _forget_sizes(self, outputs: list[str]) -> None:
        del self.graph.value_info[:]
        for value in self.graph.output:
            if value.name in outputs:
                value.type.tensor_type.ClearField("shape")

    def _shapes(self) -> dict[str, Shape]:
        """Sizes of all tensors that are known."""
        inferred = onnx.shape_inference.infer_shapes(self.model, data_prop=True).graph
        values = [*inferred.value_info, *inferred.input, *inferred.output]
        found = {v.name: tuple(dim.dim_value for dim in v.type.tensor_type.shape.dim) for v in values}
        found |= {tensor.name: tuple(tensor.dims) for tensor in inferred.initializer}
        return {name: shape for name, shape in found.items() if all(shape)}

    def _position(self) -> tuple[str, np.dtype[Any]]:
        """The input that says the number of a run's row, and its type; a new one if there is not one."""
        kinds: dict[int, np.dtype[Any]] = {TensorProto.INT64: np.dtype(np.int64), TensorProto.INT32: np.dtype(np.int32)}
        found = [
            value
            for value in self.graph.input
            if any(word in value.name.lower() for word in _PLACES)
            and value.type.tensor_type.elem_type in kinds
            and prod(dim.dim_value for dim in value.type.tensor_type.shape.dim) == 1
        ]
        if len(found) == 1:
            return found[0].name, kinds[found[0].type.tensor_type.elem_type]
        name = self._name(POSITION)
        self.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, [1]))
        return name, np.dtype(np.int64)

    def _name(self, wanted: str) -> str:
        name = unused(wanted, self.names)
        self.names.add(name)
        return name

    def _constant(self, wanted: str, value: Array) -> str:
        name = self._name(wanted)
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def _before(self, kind: str, result: str, *inputs: str) -> str:
        """A node before all others."""
        name = self._name(result)
        self.first.append(helper.make_node(kind, inputs, [name], name))
        return name

    def _place(self, position: str, rows: Shape) -> str:
        """The position, for each element of a row."""
        if rows not in self.places:
            sizes = self._constant(f"{position}/sizes", np.array(rows, np.int64))
            self.places[rows] = self._before("Expand", f"{position}/place", position, sizes)
        return self.places[rows]

    def _mask(self, position: str, kind: np.dtype[Any], length: int) -> str:
        """What is added to a row's scores: 0 up to the position, -1e9 behind it."""
        flat = self._before(
            "Reshape", f"{position}/flat", position, self._constant(f"{position}/one", np.array([1], np.int64))
        )
        rows = self._constant(f"{position}/rows", np.arange(length, dtype=kind))
        behind = self._before("Greater", f"{position}/behind", rows, flat)
        ends = [self._constant(f"{position}/{name}", np.array(value, np.float32)) for name, value in _MASK.items()]
        return self._before("Where", f"{position}/mask", behind, *ends)

    # Where rows go ---------------------------------------------------------------------------------

    def _hide(self, name: str, axis: int, mask: str, shapes: Mapping[str, Shape]) -> None:
        """Add the mask in front of every Softmax over the rows along an axis of a tensor."""
        pending, outputs = [(name, axis)], {value.name for value in self.graph.output}
        seen: set[str] = set()
        while pending:
            name, axis = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            for node in self.readers.get(name, ()):
                if node.op_type == "Softmax":
                    self._mask_softmax(node, name, axis, mask, shapes)
                    continue
                result, label = node.output[0], f"node {node.name or node.output[0]!r} ({node.op_type})"
                if name not in shapes or result not in shapes:
                    raise NetworkError(f"{label}: sizes must be known; export with static shapes")
                after = _axis_behind(node, name, axis, shapes)
                if after is None or (after >= 0 and result in outputs and node.op_type not in _SAME):
                    raise NetworkError(
                        f"{label}: rows of a cache that grows must go by products to one Softmax over them, not here; "
                        "export with a cache of fixed length and a mask"
                    )
                if after >= 0:
                    pending.append((result, after))

    def _mask_softmax(self, node: onnx.NodeProto, name: str, axis: int, mask: str, shapes: Mapping[str, Shape]) -> None:
        rank = len(shapes[name])
        default = -1 if opset_of(self.model) >= 13 else 1
        over = next((a.i for a in node.attribute if a.name == "axis"), default) % rank
        if axis != rank - 1 or over != axis:
            raise NetworkError(
                f"node {node.name or node.output[0]!r} (Softmax): must be over the last axis, the rows of a cache that "
                f"grows, not axis {over} with rows along axis {axis}; export with a cache of fixed length and a mask"
            )
        masked = self._name(f"{name}/masked")
        index = [*self.graph.node].index(node)
        node.input[0] = masked
        self.graph.node.insert(index, helper.make_node("Add", [name, mask], [masked], masked))


def _axis_behind(node: onnx.NodeProto, name: str, axis: int, shapes: Mapping[str, Shape]) -> int | None:
    """The axis of a node's result along which the rows lie that lie along ``axis`` of operand ``name``; -1 if it sums
    over them, None if they are nowhere."""
    shape, result = shapes[name], shapes[node.output[0]]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    length, place = shape[axis], None
    if node.op_type == "Transpose":
        place = list(attributes.get("perm", range(len(shape))[::-1])).index(axis)
    elif node.op_type in (*_ELEMENTWISE, "Expand"):
        place = axis + len(result) - len(shape)
    elif node.op_type in ("Reshape", "Unsqueeze", "Squeeze", "Flatten"):
        before = prod(shape[:axis])
        places = [k for k, size in enumerate(result) if size == length and prod(result[:k]) == before]
        place = places[0] if places else None
    elif node.op_type == "MatMul":
        from_end = len(shape) - axis
        if from_end == (1 if node.input[0] == name else 2):
            return -1
        place = len(result) - from_end
    return place if place is not None and result[place] == length else None
