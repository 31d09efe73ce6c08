"""Softmax of bytes on the host, in integers and without the runtimes: `dovetail.isa.numerics.softmax`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

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


def in_integers(payload: OnnxOp) -> OnnxOp:
    """The form of QLinearSoftmax that computes in integers, if its quantisation is constant; of others the operator
    itself."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_model_from_string(payload.model)
    node = model.graph.node[-1]
    if (node.domain, node.op_type) != ("com.microsoft", "QLinearSoftmax") or len(payload.inputs) != 1:
        return payload
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    step, scale, zero = (constants.get(node.input[place]) for place in (1, 3, 4))
    shape = payload.outputs[0].layout.shape
    if step is None or scale is None or zero is None or payload.inputs[0].layout.shape != shape:
        return payload
    levels = np.floor(np.float32(1) / np.float32(scale))
    if not 0 <= levels <= ONNX_LEVELS:
        return payload
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    return OnnxSoftmax(
        payload.model,
        payload.label,
        payload.inputs,
        payload.outputs,
        sizes=softmax_sizes(shape, attributes.get("axis", -1), attributes["opset"]),
        scale=float(step),
        levels=int(levels),
        zero_point=int(zero) - (128 if zero.dtype == np.uint8 else 0),
    )


def softmax_sizes(shape: Shape, axis: int, opset: int) -> tuple[int, int, int]:
    """Elements before, along and behind the axis; before operator set 13 it begins a row's axes."""
    axis %= len(shape)
    end = axis + 1 if opset >= 13 else len(shape)
    return prod(shape[:axis]), prod(shape[axis:end]), prod(shape[end:])
