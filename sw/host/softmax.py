"""Softmax of bytes on the host, in integers and without the runtimes: `dovetail.isa.numerics.softmax`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.numerics.softmax import (
    ONNX_LEVELS,
    onnx_exponentials,
    softmax_onnx,
    softmax_tflite,
    tflite_exponentials,
)
from dovetail.sw.host.kernels import OnnxOp, TfliteOp
from dovetail.sw.network.layout import Array, Shape

WHOLE = 2.0**-12
"""How far the number of levels may be from a whole one, in steps of the result."""


@dataclass(frozen=True, kw_only=True)
class TfliteSoftmax(TfliteOp):
    """SOFTMAX of int8 rows, of at most `TFLITE_COLUMNS` elements.

    Parameters
    ----------
    beta: the operator's factor.
    scale: the operand's.
    """

    beta: float
    scale: float

    @cached_property
    def exponentials(self) -> NDArray[np.int32]:
        """By an element's distance from its row's largest."""
        return tflite_exponentials(self.beta, self.scale)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        return [softmax_tflite(inputs[0], self.exponentials)]


@dataclass(frozen=True, kw_only=True)
class OnnxSoftmax(OnnxOp):
    """ONNX Runtime's QLinearSoftmax.

    Parameters
    ----------
    sizes: elements before, along and behind the axis.
    scale: the operand's.
    levels, zero_point: what stands for 1, and the result's zero point as int8.
    """

    sizes: tuple[int, int, int]
    scale: float
    levels: int
    zero_point: int

    @cached_property
    def exponentials(self) -> NDArray[np.float32]:
        """By an element's distance from its row's largest."""
        return onnx_exponentials(self.scale, self.sizes[1])

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        (before,), (after,) = self.inputs, self.outputs
        rows = before.layout.outside(inputs[0]).reshape(self.sizes).swapaxes(1, 2)
        shares = softmax_onnx(rows, self.exponentials, self.levels, self.zero_point).swapaxes(1, 2)
        return [after.layout.inside(shares.reshape(after.layout.shape))]


@dataclass(frozen=True, kw_only=True)
class FloatSoftmax(OnnxOp):
    """Softmax of ``factor`` times its float operand, in ONNX Runtime.

    Parameters
    ----------
    sizes: elements before, along and behind the axis.
    factor: by which the file multiplies before.
    valid: elements that count in a matrix's first row, and how many more in each next one; None: all.
    """

    sizes: tuple[int, int, int]
    factor: float = 1.0
    valid: tuple[int, int] | None = None

    def levels(self, scale: np.float32) -> int | None:
        """What stands for 1 in a result of this scale; None if that is no whole number, or too large."""
        real = 1 / float(scale)
        whole = round(real)
        return whole if 0 < whole <= ONNX_LEVELS and abs(real - whole) < WHOLE else None


def in_integers(payload: OnnxOp) -> OnnxOp:
    """The form of QLinearSoftmax that computes in integers, if its quantisation is constant, and that of a float
    Softmax that says what it computes; of others the operator itself."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_model_from_string(payload.model)
    node = model.graph.node[-1]
    attributes: dict[str, Any] = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    if len(payload.inputs) != 1 or payload.inputs[0].layout.shape != (shape := payload.outputs[0].layout.shape):
        return payload
    plain = payload.model, payload.label, payload.inputs, payload.outputs, payload.apart
    if (node.domain, node.op_type) == ("", "Softmax") and len(model.graph.node) == 1:
        opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
        sizes = softmax_sizes(shape, attributes.get("axis", -1 if opset >= 13 else 1), opset)
        return FloatSoftmax(*plain, sizes=sizes)
    if (node.domain, node.op_type) != ("com.microsoft", "QLinearSoftmax"):
        return payload
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    step, scale, zero = (constants.get(node.input[place]) for place in (1, 3, 4))
    if step is None or scale is None or zero is None:
        return payload
    levels = np.floor(np.float32(1) / np.float32(scale))
    if not 0 <= levels <= ONNX_LEVELS:
        return payload
    return OnnxSoftmax(
        *plain,
        sizes=softmax_sizes(shape, attributes.get("axis", -1), attributes["opset"]),
        scale=float(step),
        levels=int(levels),
        zero_point=int(zero) - (128 if zero.dtype == np.uint8 else 0),
    )


def factor_of(payload: OnnxOp) -> float | None:
    """The constant by which an operator multiplies its one operand; None if that is not what it does."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load_model_from_string(payload.model).graph
    node, *others = graph.node
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    given = [constants[name] for name in node.input if name in constants]
    if others or node.op_type not in ("Mul", "Div") or len(payload.inputs) != 1 or len(given) != 1:
        return None
    if given[0].size != 1 or (node.op_type == "Div" and node.input[0] in constants):
        return None
    factor = float(given[0].ravel()[0])
    return factor if node.op_type == "Mul" else 1 / factor if factor else None


def softmax_sizes(shape: Shape, axis: int, opset: int) -> tuple[int, int, int]:
    """Elements before, along and behind the axis; before operator set 13 it begins a row's axes."""
    axis %= len(shape)
    end = axis + 1 if opset >= 13 else len(shape)
    return prod(shape[:axis]), prod(shape[axis:end]), prod(shape[end:])
