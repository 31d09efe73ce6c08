"""Passes on element-wise operators: activations get their names, sums and products their simplest form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import erf
from typing import Any

import numpy as np
import onnx
import onnx_ir as oir
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from dovetail.sw.frontend.onnx.mapping import mappings
from dovetail.sw.frontend.onnx.operators.elementwise import COMBINATIONS, FUNCTIONS
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.edit import Editor, constant, each, is_op, operand, shape_of

Reals = NDArray[np.float64]

_LONGEST = 24
"""Nodes of the longest expression that is searched."""
_POINTS = np.concatenate([np.linspace(-12, 12, 2401), [-80, -40, -20, 20, 40, 80]])
_TOLERANCE = 2e-5
_GELU = {"Gelu": "none", "BiasGelu": "none", "FastGelu": "tanh"}
_OF_TWO = {"Sum": "Add", "Min": "Min", "Max": "Max"}


@dataclass(frozen=True)
class Named:
    """An operator of the standard and what it computes."""

    operator: str
    attributes: Mapping[str, Any]
    function: Callable[[Reals], Reals]


def _sigmoid(x: Reals) -> Reals:
    values: Reals = 1 / (1 + np.exp(-x))
    return values


def _softplus(x: Reals) -> Reals:
    return np.logaddexp(0, x)


def _hard_sigmoid(x: Reals) -> Reals:
    return np.clip(x / 6 + 0.5, 0, 1)


def _gelu(x: Reals) -> Reals:
    return np.array([v * (1 + erf(v / 2**0.5)) / 2 for v in x])


def _gelu_tanh(x: Reals) -> Reals:
    bent: Reals = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))
    return x * (1 + bent) / 2


NAMED = (
    Named("Gelu", {"approximate": "none"}, _gelu),
    Named("Gelu", {"approximate": "tanh"}, _gelu_tanh),
    Named("HardSwish", {}, lambda x: x * _hard_sigmoid(x)),
    Named("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, _hard_sigmoid),
    Named("Sigmoid", {}, _sigmoid),
    Named("Tanh", {}, np.tanh),
    Named("Softplus", {}, _softplus),
    Named("Mish", {}, lambda x: x * np.tanh(_softplus(x))),
)
"""Functions that are recognised."""


def name_activations(model: oir.Model) -> bool:
    """An activation that an exporter spelled out becomes one node: expressions that compute one of `NAMED`.

    A function is recognised by its values, whatever sums and products an exporter chose. The expression is computed
    over the range where the function bends, and compared. Other expressions stay: the quantiser and the front end make
    a table of each.
    """
    changed = False
    for node in reversed(list(model.graph)):
        if node.graph is None:
            continue
        for variable, nodes in _expressions(node):
            found = _recognised(_model(variable, nodes)) if variable.dtype == oir.DataType.FLOAT else None
            if found is not None:
                edit, shape = Editor(node), shape_of(node.outputs[0])
                changed = edit.replace(edit.add(found.operator, [variable], shape, found.attributes))
                break
    return changed


def _expressions(root: oir.Node) -> Iterator[tuple[oir.Value, tuple[oir.Node, ...]]]:
    """Every way to see a node's result as a function of one value: that variable, and the nodes in order."""
    if not _elementwise(root):
        return
    seen: dict[oir.Value, None] = {}
    pending = [root]
    while pending and len(seen) < _LONGEST:
        for value in pending.pop().inputs:
            if value is not None and value not in seen and constant(value) is None:
                seen[value] = None
                producer = value.producer()
                if producer is not None and _elementwise(producer):
                    pending.append(producer)
    for variable in seen:
        nodes = _between(variable, root)
        if nodes is not None and len(nodes) > 1:
            yield variable, nodes


def _elementwise(node: oir.Node) -> bool:
    return is_op(node, *FUNCTIONS, *COMBINATIONS) and len(node.outputs) == 1


def _between(variable: oir.Value, root: oir.Node) -> tuple[oir.Node, ...] | None:
    """The nodes that compute a node's result from a variable; None if it depends on another tensor too."""
    order: dict[oir.Node, None] = {}

    def visit(node: oir.Node) -> bool:
        if node in order:
            return True
        if not _elementwise(node) or len(order) > _LONGEST:
            return False
        for value in node.inputs:
            number = constant(value)
            if value is None or value is variable or (number is not None and number.size == 1):
                continue
            producer = value.producer()
            if number is not None or producer is None or not visit(producer):
                return False
        order[node] = None
        return True

    if not visit(root):
        return None
    for node in order:
        value = node.outputs[0]
        if node is not root and (value.is_graph_output() or any(use.node not in order for use in value.uses())):
            return None
    kept = shape_of(variable)
    return tuple(order) if kept is not None and kept == shape_of(root.outputs[0]) else None


def _model(variable: oir.Value, nodes: tuple[oir.Node, ...]) -> bytes:
    """The nodes as a network with names of its own, so that equal expressions give equal bytes."""
    operands = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    constants = [(value, array) for value in operands if (array := constant(value)) is not None]
    names = {variable.name: "x"} | {value.name: f"constant{k}" for k, (value, _) in enumerate(constants)}
    names |= {node.outputs[0].name: f"result{k}" for k, node in enumerate(nodes)}
    parts = [oir.serde.serialize_node(node) for node in nodes]
    for k, part in enumerate(parts):
        part.name = f"node{k}"
        del part.metadata_props[:]
        for ends in (part.input, part.output):
            ends[:] = [names.get(name, name) for name in ends]
    graph = helper.make_graph(
        parts,
        "expression",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, _POINTS.shape)],
        [helper.make_tensor_value_info(parts[-1].output[0], onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.reshape(()), names[value.name]) for value, array in constants],
    )
    owner = nodes[0].graph
    assert owner is not None
    opsets = [helper.make_opsetid(domain, version) for domain, version in sorted(owner.opset_imports.items())]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(deterministic=True))


@lru_cache(4096)
def _recognised(model: bytes) -> Named | None:
    """The function that a network of `_model` computes."""
    values = _evaluate(model)
    if values is not None:
        for named, wanted in _wanted():
            if np.all(np.abs(values - wanted) <= _TOLERANCE * (1 + np.abs(wanted))):
                return named
    return None


@cache
def _wanted() -> tuple[tuple[Named, Reals], ...]:
    return tuple((named, named.function(_POINTS)) for named in NAMED)


def _evaluate(model: bytes) -> Array | None:
    """What ONNX Runtime computes of `_POINTS` with a network of `_model`; None if it cannot run it."""
    try:
        return np.asarray(open_session(model).run(None, {"x": _POINTS.astype(np.float32)})[0], np.float64)
    except Exception:  # the runtime raises its own classes; an expression without values has no name
        return None


def standardise(model: oir.Model) -> None:
    """Gelu, BiasGelu and FastGelu of ONNX Runtime's own domain, which transformer optimisers write, become Gelu."""
    for node in list(model.graph):
        if node.domain != "com.microsoft" or node.op_type not in _GELU:
            continue
        edit = Editor(node)
        data, bias = node.inputs[0], operand(node, 1)
        shape = shape_of(data)
        if bias is not None:
            data = edit.add("Add", [data, bias], shape)
        edit.replace(edit.add("Gelu", [data], shape, {"approximate": _GELU[node.op_type]}))


@each("PRelu")
def spell_out_prelus(node: oir.Node) -> bool:
    """PRelu with a slope for each channel becomes products, maxima and minima, which the accelerator has.

    It is max(x, slope * x) for slopes up to 1, and the minimum for larger ones. Where both occur, one follows the
    other. PRelu with a single slope stays: a function of one element is a table. It also stays if an extension has an
    instruction for it.
    """
    if ("", "PRelu") in mappings():
        return False
    value, slopes, shape = node.inputs[0], constant(node.inputs[1]), shape_of(node.outputs[0])
    if value is None or slopes is None or shape is None or slopes.size == 1 or not np.all(np.isfinite(slopes)):
        return False
    edit = Editor(node)
    for kind, any_slope, bound in (("Max", slopes < 1, np.minimum), ("Min", slopes > 1, np.maximum)):
        if np.any(any_slope):
            scaled = edit.add("Mul", [value, edit.constant(bound(slopes, 1), "slopes")], shape)
            value = edit.add(kind, [value, scaled], shape)
    return edit.replace(value)


@each(*_OF_TWO)
def split_sums(node: oir.Node) -> bool:
    """Sums, minima and maxima of many tensors become chains of two operands. A Sum of one tensor is removed."""
    total = node.inputs[0]
    if total is None or (len(node.inputs) == 2 and node.op_type != "Sum"):
        return False
    edit = Editor(node)
    for value in node.inputs[1:]:
        shape = shape_of(total) if shape_of(total) == shape_of(value) else None
        total = edit.add(_OF_TWO[node.op_type], [total, value], shape)
    return edit.replace(total)


@each("Add", "Sub", "Mul", "Div")
def shrink_operands(node: oir.Node) -> bool:
    """A constant operand that repeats itself along an axis keeps one entry of it, but for the last axis.

    A constant of one element becomes a scalar.
    """
    changed = False
    for index, value in enumerate(node.inputs):
        array, other = constant(value), node.inputs[1 - index]
        if array is None or constant(other) is not None or shape_of(other) != shape_of(node.outputs[0]):
            continue
        smaller = _shrunk(array)
        if smaller.shape != array.shape:
            node.replace_input_with(index, Editor(node).constant(smaller, "operand"))
            changed = True
    return changed


def _shrunk(array: Array) -> Array:
    for axis in range(array.ndim - 1):
        first = array.take([0], axis)
        if array.shape[axis] > 1 and np.array_equal(array, np.broadcast_to(first, array.shape)):
            array = first
    return array.reshape(()) if array.size == 1 else array
