"""Layer norm and RMS norm in float, and what of them the accelerator can take: rows of one length, constant gains."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.host.kernels import OnnxOp

NORMS = {"LayerNormalization": False, "RMSNormalization": True, "SimplifiedLayerNormalization": True}
"""Operators, and whether they leave the mean in."""
_EPSILON = 1e-5
"""What all of them add to the variance where the file does not say."""


@dataclass(frozen=True, kw_only=True)
class FloatNorm(OnnxOp):
    """``(x - mean) / sqrt(variance + epsilon) * gain + offset`` of float rows, which lie in one piece in memory, in
    ONNX Runtime.

    Parameters
    ----------
    rms: the mean stays in, and the variance is the mean of squares.
    gain, offset: float32 [n].
    epsilon: real.
    """

    rms: bool
    gain: NDArray[np.float32] = field(compare=False, repr=False)
    offset: NDArray[np.float32] = field(compare=False, repr=False)
    epsilon: float


def as_norm(payload: OnnxOp) -> OnnxOp:
    """The form that says what it computes of an operator in :data:`NORMS`; others as they are."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load_model_from_string(payload.model)
    node, *others = model.graph.node
    if others or node.op_type not in NORMS or len(payload.inputs) != 1 or len(payload.outputs) != 1:
        return payload
    (before,), (after,) = payload.inputs, payload.outputs
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    shape = before.layout.shape
    count = prod(shape[int(attributes.get("axis", -1)) % len(shape) :])
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    gain, *offset = (constants.get(name) for name in node.input[1:] if name)
    parameters = [part for part in (gain, *offset) if part is not None]
    known = len(parameters) == 1 + len(offset) and {(part.size, part.dtype.name) for part in parameters} == {
        (count, "float32")
    }
    if (
        not known
        or not before.layout.has_rows((prod(shape) // count, count, 1))
        or not after.layout.same_memory(before.layout)
    ):
        return payload
    return FloatNorm(
        payload.model,
        payload.label,
        payload.inputs,
        payload.outputs,
        payload.apart,
        rms=NORMS[node.op_type],
        gain=parameters[0].ravel(),
        offset=parameters[1].ravel() if offset else np.zeros(count, np.float32),
        epsilon=float(attributes.get("epsilon", _EPSILON)),
    )
