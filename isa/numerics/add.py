"""Sum, difference, minimum and maximum of two int8 tensors of different quantisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.isa.numerics.multiplier import ONNX_MULT_MASK, encode_multiplier
from dovetail.isa.numerics.operation import VectorOperation
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

ADD_LEFT_SHIFT = 20
"""Headroom that TFLite's ADD gives its int8 operands before it rescales them."""

ADD_FRACTION = 40
"""Fraction bits of the fixed point in which the ONNX addition is exact."""

ADD_SHIFT_MIN, ADD_SHIFT_MAX = -16, 7
"""Operand shifts that the fixed point of the ONNX addition can hold."""


@dataclass(frozen=True, kw_only=True)
class AddParams:
    """Everything that an addition of two int8 tensors needs, or a difference, minimum or maximum; one per instruction.

    Attributes
    ----------
    rounding
        :class:`Rounding`.
    za, zb, zy
        Zero points of the operands and the result, int8.
    mult_a, shift_a, mult_b, shift_b
        Encoded multipliers of the operands.
    mult_out, shift_out
        Encoded multiplier of the sum, TFLITE only.
    lo, hi
        Clamping range of the result, int8.
    combine
        ADD, SUBTRACT (a less b), MINIMUM or MAXIMUM of the rescaled operands.
    """

    rounding: Rounding
    za: int
    zb: int
    zy: int
    mult_a: int
    shift_a: int
    mult_b: int
    shift_b: int
    mult_out: int = 0
    shift_out: int = 0
    lo: int = INT8_MIN
    hi: int = INT8_MAX
    combine: VectorOperation = VectorOperation.ADD

    @classmethod
    def tflite(
        cls,
        sa: float,
        za: int,
        sb: float,
        zb: int,
        sy: float,
        zy: int,
        *,
        lo: int = INT8_MIN,
        hi: int = INT8_MAX,
        combine: VectorOperation = VectorOperation.ADD,
    ) -> AddParams:
        """Parameters as TFLite Micro's ADD derives them from the float32 scales.

        Raises
        ------
        ValueError
            When a rescaling factor is not in (0, 1), as TFLite Micro demands: no operand's scale may be
            ``2**19`` times the result's.
        """
        a, b, y = (float(np.float32(s)) for s in (sa, sb, sy))
        twice = 2.0 * max(a, b)
        encoded = []
        for name, real in (
            ("operand a", a / twice),
            ("operand b", b / twice),
            ("sum", twice / ((1 << 20) * y)),
        ):
            mult, shift = (int(v) for v in encode_multiplier(real, Rounding.TFLITE))
            if not 0.0 < real < 1.0 or shift > 0:
                raise ValueError(f"rescaling factor of the {name} must be in (0, 1), not {real!r}")
            encoded.append((mult, shift))
        (qa, ea), (qb, eb), (qy, ey) = encoded
        return cls(
            rounding=Rounding.TFLITE,
            za=za,
            zb=zb,
            zy=zy,
            mult_a=qa,
            shift_a=ea,
            mult_b=qb,
            shift_b=eb,
            mult_out=qy,
            shift_out=ey,
            lo=lo,
            hi=hi,
            combine=combine,
        )

    @classmethod
    def onnx(
        cls,
        sa: float,
        za: int,
        sb: float,
        zb: int,
        sy: float,
        zy: int,
        *,
        lo: int = INT8_MIN,
        hi: int = INT8_MAX,
        combine: VectorOperation = VectorOperation.ADD,
    ) -> AddParams:
        """Parameters of ONNX Runtime's ``QLinearAdd``: the factors ``f32(sa / sy)`` and ``f32(sb / sy)``.

        Raises
        ------
        ValueError
            When a factor is not in [2**-17, 2**7): the exact fixed point of :func:`add` would not hold it.
        """
        encoded = []
        for name, scale in (("a", sa), ("b", sb)):
            real = np.float32(scale) / np.float32(sy)
            mult, shift = (int(v) for v in encode_multiplier(float(real), Rounding.ONNX))
            if not ADD_SHIFT_MIN <= shift <= ADD_SHIFT_MAX or mult == 0:
                raise ValueError(f"rescaling factor of operand {name} must be in [2**-17, 2**7), not {real!r}")
            encoded.append((mult, shift))
        (qa, ea), (qb, eb) = encoded
        return cls(
            rounding=Rounding.ONNX,
            za=za,
            zb=zb,
            zy=zy,
            mult_a=qa,
            shift_a=ea,
            mult_b=qb,
            shift_b=eb,
            lo=lo,
            hi=hi,
            combine=combine,
        )


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


def add_integer(a: Integers, b: Integers, params: AddParams) -> Int8s:
    """The definition of :func:`add`, by integer arithmetic alone."""
    total = _COMBINE[params.combine](
        _add_operand(a, params.za, params.mult_a, params.shift_a, params.rounding),
        _add_operand(b, params.zb, params.mult_b, params.shift_b, params.rounding),
    )
    if params.rounding == Rounding.TFLITE:
        scaled = scale_tflite(total, params.mult_out, min(params.shift_out, 0))
    else:
        scaled = round_half_even_shift(round_to_24(total), ADD_FRACTION)
    return clamp_to_int8(scaled + params.zy, params.lo, params.hi)


def add(a: Integers, b: Integers, params: AddParams) -> Int8s:
    """Add two int8 tensors of different quantisation, or subtract them, or take the lesser or the greater.

    TFLITE, with ``rq`` = :func:`scale_tflite`::

        y = clamp(rq(rq((a - za) << 20) + rq((b - zb) << 20)) + zy)

    ONNX, in exact fixed point with 40 fraction bits (``ma``, ``mb`` are the factors)::

        y = clamp(rint(round24(round24(ma * (a - za)) + round24(mb * (b - zb)))) + zy)

    With another ``combine`` the plus in the middle is a minus, a minimum or a maximum. With equal scales and zero
    points minimum and maximum are those of the bytes, as in TFLite; in ONNX they are those of the rescaled operands
    whatever their scales, since rounding is monotonic.

    Positive shifts act as 0 in TFLITE, operand shifts outside -16..7 as the nearest bound in ONNX;
    :class:`AddParams`' constructors produce neither.

    ``a`` and ``b`` are int8 arrays that broadcast against each other; the result has the broadcast shape.
    """
    left, right = np.asarray(a, np.int8), np.asarray(b, np.int8)
    combine = _COMBINE[params.combine]
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
