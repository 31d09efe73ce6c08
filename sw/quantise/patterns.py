"""What is looked for in a float network: weights, masked scores, rows picked from a table."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from dovetail.sw.network.layout import Array
from dovetail.sw.quantise.float_network import FloatGraph, attribute

LAYERS = ("Conv", "Gemm", "MatMul")
"""Operators that may have weights."""

_FAR = -1e4
"""A mask's value from which on what it is added to does not matter."""


@dataclass(frozen=True)
class Weight:
    """The constants of a layer: weights with their output channels' axis, and the bias if there is one."""

    node: str
    source: str
    weight: str
    axis: int
    bias: str | None


def is_single(value: Array) -> bool:
    """A constant of one element, which a table can hold."""
    return value.size == 1 and value.ndim <= 1


def next(graph: FloatGraph, name: str) -> str:
    """Name of the only reader of a tensor, "" if there are others."""
    users = graph.consumers.get(name, [])
    return users[0].name if len(users) == 1 else ""


def picks_rows(graph: FloatGraph, node: onnx.NodeProto) -> bool:
    """Whether a node picks rows of a constant table: a position's rotation, a word's embedding. The host picks them in
    float; where they meet integers, they are quantised as inputs are."""
    return node.op_type == "Gather" and graph.is_constant(node.input[0]) and graph.is_activation(node.output[0])


@dataclass(frozen=True)
class Masked:
    """Scores of a softmax, of which a mask hides some: the tensors, and the factor between a product and its scores."""

    scores: str
    mask: str
    result: str
    product: str
    factor: float


def masked(graph: FloatGraph, node: onnx.NodeProto) -> Masked | None:
    """What a sum in front of Softmax adds, if its mask picks one of two constants, 0 and far below it."""
    users = graph.consumers.get(node.output[0], [])
    if node.op_type != "Add" or not users or any(user.op_type != "Softmax" for user in users):
        return None
    for scores, mask in (node.input, node.input[::-1]):
        maker, before = graph.producers.get(mask), graph.producers.get(scores)
        if maker is None or before is None or maker.op_type != "Where" or graph.is_constant(maker.input[0]):
            continue
        ends = [graph.constant(name) for name in maker.input[1:]]
        if any(end is None or end.size != 1 for end in ends) or node.output[0] in graph.outputs:
            continue
        low, high = sorted(float(end.item()) for end in ends if end is not None)
        if low > _FAR or high != 0 or len(graph.consumers[scores]) > 1:
            continue
        product, factor = _factor(graph, before)
        return Masked(scores, mask, node.output[0], product, factor)
    return None


def cell(graph: FloatGraph, node: onnx.NodeProto) -> tuple[str, ...]:
    """The sum and the products that make the new cell of a recurrent layer, ``keep * cell + enter * new``, which leaves
    it through a Tanh; else nothing."""
    makers = [graph.producers.get(name) for name in node.input]
    products = all(maker is not None and maker.op_type == "Mul" and not graph.constants(maker) for maker in makers)
    bent = any(user.op_type == "Tanh" for user in graph.consumers.get(node.output[0], []))
    return (node.output[0], *node.input) if node.op_type == "Add" and products and bent else ()


def _factor(graph: FloatGraph, node: onnx.NodeProto) -> tuple[str, float]:
    """The tensor that a node multiplies by a positive constant for nobody else, and the constant; else its result."""
    values = graph.constants(node)
    if node.op_type in ("Mul", "Div") and len(values) == 1 and is_single(values[0]) and float(values[0].item()) > 0:
        (source,) = graph.activations(node)
        divided = node.op_type == "Div"
        if len(graph.consumers[source]) == 1 and not (divided and graph.is_constant(node.input[0])):
            return source, 1 / float(values[0].item()) if divided else float(values[0].item())
    return node.output[0], 1.0


def has_weights(graph: FloatGraph, node: onnx.NodeProto) -> bool:
    """Whether a node is a layer that the accelerator could do with constant weights."""
    if node.op_type not in LAYERS or not graph.is_constant(node.input[1]) or graph.is_constant(node.input[0]):
        return False
    layer, shape = weight(node), graph.shape(node.input[1])
    if layer.bias is not None and not (
        graph.is_constant(layer.bias) and graph.shape(layer.bias) == shape[layer.axis :][:1]
    ):
        return False
    if node.op_type != "Gemm":
        return len(shape) == (4 if node.op_type == "Conv" else 2)
    plain = attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0
    return plain and not attribute(node, "transA", 0)


def weight(node: onnx.NodeProto) -> Weight:
    turned = node.op_type == "Gemm" and attribute(node, "transB", 0)
    axis = 0 if node.op_type == "Conv" or turned else 1
    bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
    return Weight(node.name, node.input[0], node.input[1], axis, bias)
