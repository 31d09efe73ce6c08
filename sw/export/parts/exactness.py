"""Which nodes ONNX Runtime's kernels compute exactly, and with which scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.numerics.add import add
from dovetail.isa.numerics.multiplier import encode_multiplier, onnx_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.export.parts.part import IR_VERSION, OPSET
from dovetail.sw.host import kernels
from dovetail.sw.network import ir, reference
from dovetail.sw.network.elementwise import BYTES, LEFT, RIGHT
from dovetail.sw.network.layout import Array, Layout, as_unsigned

_SEARCH = 16
"""Units of the last bit by which a weight scale is tried above and below its estimate."""
_NOTHING = 2.0**-40
"""A multiplier that no accumulator lifts to one half."""


@dataclass(frozen=True)
class Scales:
    """Scales of a product: of one operand, of the other (weights, one per output channel) and of the result.

    ``exact``: with them ONNX Runtime's multiplier is the node's, for every channel.
    """

    operand: np.float32
    weights: NDArray[np.float32]
    result: np.float32
    exact: bool


def scales_of(
    requant: ir.Requant, operand: np.float32, weights: np.float32 | None, result: np.float32, channels: int = 1
) -> Scales:
    """The scales with which a product is requantised as ``requant`` says.

    ``operand``, ``result`` and, where they are known, ``weights`` are kept if they will do. Where no weights' scale
    fits the others, as in networks whose multipliers do not come from scales, those are 1.
    """
    if weights is not None:
        mult, shift = encode_multiplier(onnx_multiplier(operand, weights, result), Rounding.ONNX)
        given = int(requant.mult.flat[0]), int(requant.shift.flat[0])
        if requant.rounding == Rounding.ONNX and (int(mult), int(shift)) == given:
            return Scales(operand, np.array([weights], np.float32), result, True)
    found = _searched(requant, operand, result, channels)
    if found.exact or requant.rounding == Rounding.TFLITE:
        return found
    return _searched(requant, np.float32(1), np.float32(1), channels)


def _searched(requant: ir.Requant, operand: np.float32, result: np.float32, channels: int) -> Scales:
    bits = 31 if requant.rounding == Rounding.TFLITE else 24
    mult, shift = (np.broadcast_to(array, (channels,)).astype(np.float64) for array in (requant.mult, requant.shift))
    wanted = np.ldexp(mult, (shift - bits).astype(np.int64))
    guess = (np.where(wanted > 0, wanted, _NOTHING) * np.float64(result) / np.float64(operand)).astype(np.float32)
    best, found = guess.copy(), wanted == 0
    for step in sorted(range(-_SEARCH, _SEARCH + 1), key=abs):
        scales = (guess.view(np.int32) + np.int32(step)).view(np.float32)
        fits = onnx_multiplier(operand, scales, result).astype(np.float64) == wanted
        best = np.where(fits & ~found, scales, best)
        found |= fits
    return Scales(operand, best, result, bool(found.all()) and requant.rounding == Rounding.ONNX)


def runtime_difference(node: ir.Elementwise, kind: str, scales: Sequence[np.float32], zeros: Sequence[int]) -> int:
    """The most by which ONNX Runtime's kernel with these scales and zero points departs from a node's results: near
    ties it may."""
    params, right, zeros = node.params, RIGHT, list(zeros)
    if params.operation == VectorOperation.SUBTRACT:
        right, zeros[1] = ~right, ~zeros[1]
    names = [f"{side}{part}" for side in "abc" for part in ("", "_scale", "_zero")]
    constants: dict[str, np.generic] = {}
    for side, scale, zero in zip("abc", scales, zeros, strict=True):
        constants |= {f"{side}_scale": np.float32(scale), f"{side}_zero": np.uint8(zero + 128)}
    graph = helper.make_graph(
        [helper.make_node(f"QLinear{kind}", [*names[:6], *names[7:]], ["c"], domain="com.microsoft")],
        "pairs",
        [helper.make_tensor_value_info(name, TensorProto.UINT8, [len(LEFT)]) for name in "ab"],
        [helper.make_tensor_value_info("c", TensorProto.UINT8, [len(LEFT)])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION).SerializeToString()
    wires = [kernels.Wire(name, Layout.plain((len(LEFT),))) for name in "abc"]
    kernel = kernels.OnnxOp(data, f"node {node.name!r}", tuple(wires[:2]), tuple(wires[2:]))
    found = kernel.raw({"a": as_unsigned(LEFT), "b": as_unsigned(right)})[0]
    wanted = as_unsigned(reference.elementwise(node, LEFT, RIGHT)).astype(np.int32)
    return int(np.abs(np.clip(found, params.lo + 128, params.hi + 128) - wanted).max())


def rescaled(params: VectorParameters) -> tuple[Array, Array]:
    """What the operands of a minimum or maximum are in the result's quantisation, for every byte: rounding is
    monotonic, so it may come before the comparison."""
    plain = replace(params, operation=VectorOperation.ADD)
    zero_a, zero_b = np.int8(params.za), np.int8(params.zb)
    return add(BYTES, zero_b, plain), add(zero_a, BYTES, plain)
