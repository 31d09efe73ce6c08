"""Sum, difference, minimum and maximum of two int8 tensors of different quantisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.isa.numerics.multiplier import ONNX_MULT_MASK, encode_multiplier
from dovetail.isa.numerics.requantise import requantise, requantise_float32, scale_tflite
from dovetail.isa.numerics.rounding import (
    INT8_MAX,
    INT8_MIN,
    Int8s,
    Int64s,
    Integers,
    Rounding,
    clamp_to_int8,
    int64,
    round_half_even_shift,
    round_to_24,
)
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters

ADD_LEFT_SHIFT = 20
"""Headroom that TFLite's ADD gives its int8 operands before it rescales them."""

ADD_FRACTION = 40
"""Fraction bits of the fixed point in which the ONNX addition is exact."""

ADD_SHIFT_MIN, ADD_SHIFT_MAX = -16, 7
"""Operand shifts that the fixed point of the ONNX addition can hold."""


def tflite_sum(
    sa: float,
    za: int,
    sb: float,
    zb: int,
    sy: float,
    zy: int,
    *,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
    operation: VectorOperation = VectorOperation.ADD,
) -> VectorParameters:
    """Parameters as TFLite Micro's ADD derives them from the float32 scales.

    Raises
    ------
    ValueError
        When a rescaling factor is not in (0, 1), as TFLite Micro demands: no operand's scale may be
        ``2**19`` times the result's.
    """
    a, b, y = (float(np.float32(s)) for s in (sa, sb, sy))
    twice = 2.0 * max(a, b)
    factors: dict[str, Any] = {}
    for side, name, real in (
        ("a", "operand a", a / twice),
        ("b", "operand b", b / twice),
        ("out", "sum", twice / ((1 << 20) * y)),
    ):
        mult, shift = (int(v) for v in encode_multiplier(real, Rounding.TFLITE))
        if not 0.0 < real < 1.0 or shift > 0:
            raise ValueError(f"rescaling factor of the {name} must be in (0, 1), not {real!r}")
        factors |= {f"mult_{side}": mult, f"shift_{side}": shift}
    return VectorParameters(operation=operation, rounding=Rounding.TFLITE, za=za, zb=zb, zy=zy, lo=lo, hi=hi, **factors)


def onnx_sum(
    sa: float,
    za: int,
    sb: float,
    zb: int,
    sy: float,
    zy: int,
    *,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
    operation: VectorOperation = VectorOperation.ADD,
) -> VectorParameters:
    """Parameters of ONNX Runtime's ``QLinearAdd``: the factors ``f32(sa / sy)`` and ``f32(sb / sy)``.

    Raises
    ------
    ValueError
        When a factor is not in [2**-17, 2**7): the exact fixed point of :func:`add` would not hold it.
    """
    factors: dict[str, Any] = {}
    for side, scale in (("a", sa), ("b", sb)):
        real = np.float32(scale) / np.float32(sy)
        mult, shift = (int(v) for v in encode_multiplier(float(real), Rounding.ONNX))
        if not ADD_SHIFT_MIN <= shift <= ADD_SHIFT_MAX or mult == 0:
            raise ValueError(f"rescaling factor of operand {side} must be in [2**-17, 2**7), not {real!r}")
        factors |= {f"mult_{side}": mult, f"shift_{side}": shift}
    return VectorParameters(operation=operation, rounding=Rounding.ONNX, za=za, zb=zb, zy=zy, lo=lo, hi=hi, **factors)


def _add_operand(x: Integers, zero_point: int, mult: int, shift: int, rounding: Rounding) -> Int64s:
    """One rescaled operand of :func:`add`: an integer (TFLITE), fixed point with 40 fraction bits (ONNX)."""
    difference = int64(x) - zero_point
    if rounding == Rounding.TFLITE:
        return scale_tflite(difference << ADD_LEFT_SHIFT, mult, min(shift, 0))
    exponent = min(max(shift, ADD_SHIFT_MIN), ADD_SHIFT_MAX)
    return round_to_24(difference * (mult & ONNX_MULT_MASK)) << (exponent + ADD_FRACTION - 24)


_COMBINE: dict[VectorOperation, Callable[[Any, Any], Any]] = {
    VectorOperation.ADD: np.add,
    VectorOperation.SUBTRACT: np.subtract,
    VectorOperation.MINIMUM: np.minimum,
    VectorOperation.MAXIMUM: np.maximum,
}


def add_integer(a: Integers, b: Integers, params: VectorParameters) -> Int8s:
    """The definition of :func:`add`, by integer arithmetic alone."""
    total = _COMBINE[params.operation](
        _add_operand(a, params.za, params.mult_a, params.shift_a, params.rounding),
        _add_operand(b, params.zb, params.mult_b, params.shift_b, params.rounding),
    )
    if params.rounding == Rounding.TFLITE:
        scaled = scale_tflite(total, params.mult_out, min(params.shift_out, 0))
    else:
        scaled = round_half_even_shift(round_to_24(total), ADD_FRACTION)
    return clamp_to_int8(scaled + params.zy, params.lo, params.hi)


def add(a: Integers, b: Integers, params: VectorParameters) -> Int8s:
    """Add two int8 tensors of different quantisation, or subtract them, or take the lesser or the greater.

    TFLITE, with ``rq`` = :func:`scale_tflite`::

        y = clamp(rq(rq((a - za) << 20) + rq((b - zb) << 20)) + zy)

    ONNX, in exact fixed point with 40 fraction bits (``ma``, ``mb`` are the factors)::

        y = clamp(rint(round24(round24(ma * (a - za)) + round24(mb * (b - zb)))) + zy)

    With another ``operation`` the plus in the middle is a minus, a minimum or a maximum. With equal scales and zero
    points minimum and maximum are those of the bytes, as in TFLite; in ONNX they are those of the rescaled operands
    whatever their scales, since rounding is monotonic.

    Positive shifts act as 0 in TFLITE, operand shifts outside -16..7 as the nearest bound in ONNX;
    :func:`tflite_sum` and :func:`onnx_sum` produce neither.

    ``a`` and ``b`` are int8 arrays that broadcast against each other; the result has the broadcast shape.
    """
    left, right = np.asarray(a, np.int8), np.asarray(b, np.int8)
    combine = _COMBINE[params.operation]
    # An operand has 256 values: tabulate its rescaling, indexed by the bits of the int8.
    codes = np.arange(256, dtype=np.uint8).view(np.int8)
    table_a = _add_operand(codes, params.za, params.mult_a, params.shift_a, params.rounding)
    table_b = _add_operand(codes, params.zb, params.mult_b, params.shift_b, params.rounding)
    if params.rounding == Rounding.TFLITE:
        total = combine(table_a.astype(np.int32)[left.view(np.uint8)], table_b.astype(np.int32)[right.view(np.uint8)])
        return requantise(
            total, params.mult_out, min(params.shift_out, 0), Rounding.TFLITE, params.zy, params.lo, params.hi
        )
    # The operands have 24 significant bits, so float32 holds them and rounds their sum as the definition
    # does.
    unit = np.float32(2.0**-ADD_FRACTION)
    value = combine(
        (table_a.astype(np.float32) * unit)[left.view(np.uint8)],
        (table_b.astype(np.float32) * unit)[right.view(np.uint8)],
    )
    return requantise_float32(value, np.ones((), np.float32), params.zy, params.lo, params.hi)
