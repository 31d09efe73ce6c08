"""QOperator nodes of the ONNX front end: operators that name their quantisation themselves.

Each function returns where the result is, or None if the node must run on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dovetail.sw.frontend.onnx.elementwise import BINARY
from dovetail.sw.frontend.onnx.file import OnnxNode
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Value
from dovetail.sw.network.layout import Array

if TYPE_CHECKING:
    from dovetail.sw.frontend.onnx.importer import Importer


def qlinear_conv(importer: Importer, node: OnnxNode) -> Value | None:
    """QLinearConv."""
    source, weights, target = importer.operand(node, 0), importer.weight(node, 3, 0), importer.quant(node, 6, 7)
    if source is None or weights is None or target is None:
        return None
    bias = importer.constant(node.input(8)) if node.input(8) else None
    return importer.integer.conv(node.name, node.outputs[0], node.attributes, source, weights, bias, target)


def qlinear_matmul(importer: Importer, node: OnnxNode) -> Value | None:
    """QLinearMatMul, with constant weights or of two activations."""
    source, weights, target = importer.operand(node, 0), importer.weight(node, 3, 1), importer.quant(node, 6, 7)
    if source is None or target is None:
        return None
    if weights is None:
        other = importer.operand(node, 3)
        return None if other is None else importer.integer.matmul(node.name, node.outputs[0], source, other, target)
    return importer.integer.dense(node.name, node.outputs[0], source, weights, None, target)


def qgemm(importer: Importer, node: OnnxNode) -> Value | None:
    """QGemm, with constant weights."""
    source, target = importer.operand(node, 0), importer.quant(node, 7, 8)
    turned = bool(node.attributes.get("transB", 0))
    weights = importer.weight(node, 3, 0 if turned else 1)
    plain = node.attributes.get("alpha", 1.0) == 1.0 and not node.attributes.get("transA", 0)
    if source is None or weights is None or target is None or not plain:
        return None
    bias = importer.constant(node.input(6)) if node.input(6) else None
    weights = weights.transposed((1, 0)) if turned else weights
    return importer.integer.dense(node.name, node.outputs[0], source, weights, bias, target)


def qlinear_binary(importer: Importer, node: OnnxNode) -> Value | None:
    """QLinearAdd, QLinearMul; with a constant of one element a function of the other operand."""
    a = importer.operand(node, 0) or importer.weight(node, 0, 0)
    b = importer.operand(node, 3) or importer.weight(node, 3, 0)
    target = importer.quant(node, 6, 7)
    if a is None or b is None or target is None:
        return None
    for data, source, other in ((0, a, b), (3, b, a)):
        if isinstance(source, Source) and isinstance(other, Constant) and other.values.size == 1:
            return _tabulated(importer, node, data, source, target) if other.values.ndim <= 1 else None
    return importer.elementwise.binary(
        node.name, node.outputs[0], BINARY[node.op.removeprefix("QLinear")], (a, b), target
    )


def qlinear_concat(importer: Importer, node: OnnxNode) -> Value | None:
    """QLinearConcat."""
    target = importer.quant(node, 0, 1)
    sources = [importer.operand(node, data) for data in range(2, len(node.inputs), 3)]
    known = [source for source in sources if source is not None]
    if target is None or len(known) < len(sources):
        return None
    parts = [
        importer.elementwise.requantise(f"{node.name}/{k}", f"{node.name}/{k}", source, target)
        for k, source in enumerate(known)
    ]
    return importer.builder.concat(node.name, node.outputs[0], parts, int(node.attributes["axis"]), target)


def qlinear_function(importer: Importer, node: OnnxNode) -> Value | None:
    """A function of one tensor: what ONNX Runtime's integer kernel makes of each value."""
    source, target = importer.operand(node, 0), importer.quant(node, 3, 4)
    return None if source is None or target is None else _tabulated(importer, node, 0, source, target)


def _tabulated(importer: Importer, node: OnnxNode, data: int, source: Source, target: Quant) -> Value:
    """The node as a table; all operands but the one with number ``data`` are constants."""
    constants = {name: importer.constant(name) for name in node.inputs if name}

    def run(levels: Array) -> Array:
        held = {name: value for name, value in constants.items() if value is not None}
        return importer.builder.run_constant(node, held | {node.inputs[data]: levels})[0]

    kind = node.op.removeprefix("QLinear").lower()
    return importer.elementwise.tabulated(node.name, node.outputs[0], source, target, kind, run)


def qlinear_average(importer: Importer, node: OnnxNode) -> Value | None:
    """QLinearAveragePool, channels first."""
    source, target = importer.operand(node, 0), importer.quant(node, 3, 4)
    if source is None or target is None or node.attributes.get("channels_last", 0):
        return None
    return importer.integer.average_pool(node.name, node.outputs[0], node.attributes, source, target)


def qlinear_global(importer: Importer, node: OnnxNode) -> Value | None:
    """QLinearGlobalAveragePool, channels first."""
    source, target = importer.operand(node, 0), importer.quant(node, 3, 4)
    if source is None or target is None or node.attributes.get("channels_last", 0):
        return None
    return importer.integer.mean(node.name, node.outputs[0], source, target)


QOPERATORS: Mapping[str, Callable[[Importer, OnnxNode], Value | None]] = {
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QGemm": qgemm,
    "QLinearAdd": qlinear_binary,
    "QLinearMul": qlinear_binary,
    "QLinearConcat": qlinear_concat,
    "QLinearSigmoid": qlinear_function,
    "QLinearLeakyRelu": qlinear_function,
    "QLinearAveragePool": qlinear_average,
    "QLinearGlobalAveragePool": qlinear_global,
}
