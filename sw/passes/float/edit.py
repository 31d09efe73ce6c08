"""Helpers of the passes: visit nodes, look at constants and shapes, replace a node by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeGuard

import numpy as np
import onnx_ir as oir

from dovetail.sw.network.layout import Array, Shape
from dovetail.sw.network.names import unused

Pass = Callable[[oir.Model], bool]
"""Changes a network, and says whether it did."""


def each(*operators: str) -> Callable[[Callable[[oir.Node], bool]], Pass]:
    """A pass from a function that changes one node of these standard operators, and says whether it did."""

    def to_pass(change: Callable[[oir.Node], bool]) -> Pass:
        @wraps(change)
        def run(model: oir.Model) -> bool:
            nodes = list(model.graph)
            changes = [change(node) for node in nodes if node.graph is not None and is_op(node, *operators)]
            return any(changes)

        return run

    return to_pass


def is_op(node: oir.Node | None, *operators: str) -> TypeGuard[oir.Node]:
    """Whether a node is one of these standard operators."""
    return node is not None and node.domain == "" and node.op_type in operators


def constant(value: oir.Value | None) -> Array | None:
    """The array of an initialiser; None for anything else."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def operand(node: oir.Node, index: int) -> oir.Value | None:
    """An input, None if it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def numbers(node: oir.Node, index: int, attribute: str = "") -> list[int] | None:
    """Integers that an operator takes as an input or, in older operator sets, as an attribute; None if it has none."""
    given = operand(node, index)
    if given is not None:
        array = constant(given)
        return None if array is None else [int(v) for v in array.ravel()]
    held = node.attributes.get(attribute)
    return None if held is None else [int(v) for v in held.as_ints()]


def shape_of(value: oir.Value | None) -> Shape | None:
    """Sizes of all axes; None if one is unknown."""
    if value is None or value.shape is None:
        return None
    sizes = tuple(size for size in value.shape if isinstance(size, int))
    return sizes if len(sizes) == len(value.shape) else None


def only_user(value: oir.Value) -> oir.Node | None:
    """The only reader of a value; None if there are others, or if it is an output of the network."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


class Editor:
    """Inserts nodes before one node, then replaces it by the last of them."""

    def __init__(self, node: oir.Node) -> None:
        assert node.graph is not None
        self.node, self.graph = node, node.graph
        self.count = 0

    def constant(self, array: Array, role: str) -> oir.Value:
        """A new initialiser named after the node's output and its role."""
        name = unused(f"{self.node.outputs[0].name}/{role}", self.graph.initializers)
        tensor = oir.tensor(np.asarray(array, order="C"), name=name)
        value = oir.Value(name=name, shape=oir.Shape(array.shape), type=oir.TensorType(tensor.dtype))
        value.const_value = tensor
        self.graph.register_initializer(value)
        return value

    def add(
        self,
        operator: str,
        inputs: Sequence[oir.Value | None],
        shape: Shape | None,
        attributes: Mapping[str, Any] | None = None,
    ) -> oir.Value:
        """A new node with one output, of the element type of the replaced node's."""
        self.count += 1
        name = f"{self.node.name}/{operator.lower()}_{self.count}"
        out = oir.Value(name=name, type=self.node.outputs[0].type, shape=None if shape is None else oir.Shape(shape))
        self.graph.insert_before(self.node, oir.node(operator, inputs, attributes, outputs=[out], name=name))
        return out

    def cut(
        self, value: oir.Value, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], step: int | None = None
    ) -> oir.Value:
        """A Slice along some axes, from `starts` to before `ends`."""
        bounds = {"starts": starts, "ends": ends, "axes": axes} | ({} if step is None else {"steps": [step]})
        parameters = [self.constant(np.array(values, np.int64), role) for role, values in bounds.items()]
        shape = list(shape_of(value) or ())
        for axis, start, end in zip(axes, starts, ends, strict=True):
            shape[axis] = -(-(end - start) // (step or 1))
        return self.add("Slice", [value, *parameters], tuple(shape))

    def reshape(self, value: oir.Value, shape: Shape) -> oir.Value:
        """A Reshape to known sizes; the value itself if it has them."""
        if shape_of(value) == shape:
            return value
        return self.add("Reshape", [value, self.constant(np.array(shape, np.int64), "shape")], shape)

    def replace(self, value: oir.Value) -> bool:
        """`value` takes the place of the node's only output."""
        redirect(self.node.outputs[0], value)
        self.graph.remove(self.node, safe=True)
        return True


def redirect(old: oir.Value, new: oir.Value) -> None:
    """All readers of `old` read `new`; outputs of the network keep their names."""
    producer = old.producer()
    assert producer is not None and producer.graph is not None
    if old.is_graph_output() and (new.producer() is None or new.is_graph_output()):
        copy = oir.Value(name=f"{old.name}/copy", type=old.type, shape=old.shape)
        producer.graph.insert_before(producer, oir.node("Identity", [new], outputs=[copy], name=f"{old.name}/copy"))
        new = copy
    name, was_output = old.name, old.is_graph_output()
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if was_output:
        old.name, new.name = f"{name}/before", name
