"""Integer-only reference of the arithmetic that follows the int32 accumulators.

Every function is exact, works on NumPy arrays (computing in int64) as well as on Python integers, and is
total: it is defined for every value its operands can take in the hardware's registers, legal encoding or not,
so that the model and the RTL agree on every program.

Two roundings exist (:class:`Rounding`). Their formulas were measured on the runtimes they are named after,
see "Integer semantics" in the README of the reference data: TFLite Micro's kernels, and ONNX Runtime's fused
integer kernels (which are the ONNX operator definitions in float32).

The multiplier encoding
-----------------------
A positive real multiplier is held as ``mult`` (unsigned, 31 bits) and ``shift`` (signed, 6 bits):

======  ==========================  ==============================  ==================
        real multiplier             normalised when                 significant bits
======  ==========================  ==============================  ==================
TFLITE  ``mult * 2**(shift - 31)``  ``2**30 <= mult < 2**31``       31
ONNX    ``mult * 2**(shift - 24)``  ``2**23 <= mult < 2**24``       24 (the low 24 of ``mult`` count)
======  ==========================  ==============================  ==================

Zero is ``(0, 0)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = int | np.integer[Any] | npt.NDArray[np.integer[Any]]
Reals: TypeAlias = float | np.floating[Any] | npt.NDArray[np.floating[Any]]
Int8s: TypeAlias = npt.NDArray[np.int8]
Int64s: TypeAlias = npt.NDArray[np.int64]

MULT_BITS = 31
SHIFT_MIN, SHIFT_MAX = -32, 31
INT8_MIN, INT8_MAX = -128, 127
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1

ONNX_MULT_MASK = (1 << 24) - 1
"""The bits of ``mult`` that the ONNX rounding uses: a float32 has 24 significant bits."""

ADD_LEFT_SHIFT = 20
"""Headroom that TFLite's ADD gives its int8 operands before it rescales them."""

ADD_FRACTION = 40
"""Fraction bits of the fixed point in which the ONNX addition is exact."""

ADD_SHIFT_MIN, ADD_SHIFT_MAX = -16, 7
"""Operand shifts that the fixed point of the ONNX addition can hold."""

AVERAGE_COUNT_MAX = (1 << 15) - 1
"""The largest number of elements that an average may have."""

AVERAGE_TIE_BITS = 16
"""An average is a tie when this many fraction bits of its product are zero (see :func:`average_magic`)."""

_BLOCK = 1 << 15
"""Elements per block of a vectorised pass: a block's int64 temporaries stay in a 1 MiB cache."""


class Rounding(IntEnum):
    """Which runtime's rounding an operation reproduces.

    ``TFLITE``: Q31 multiplier, rounded twice, ties away from zero in the second step.
    ``ONNX``: float32 multiplier, product rounded to 24 bits, then ties to even.
    """

    TFLITE = 0
    ONNX = 1


class VectorOperation(IntEnum):
    """What the vector lane (pooling, element-wise) does with its operands."""

    REQUANTISE = 0
    """int32 sum to int8, :func:`requantise`."""

    AVERAGE = 1
    """int32 sum to int8, :func:`average_product`, then clamp."""

    ADD = 2
    """Two int8 operands to int8, :func:`add`; so do the next three."""

    PASS = 3
    """int8 operand a, clamped."""

    SUBTRACT = 4
    MINIMUM = 5
    MAXIMUM = 6

    MULTIPLY = 7
    """Two int8 operands to int8, :func:`multiply`."""

    ABSOLUTE = 8
    """int32 sum, not -2^31, to int8, :func:`requantise` of its magnitude."""

    LEAKY = 9
    """int32 sum to int8, :func:`leaky_relu`."""


# --- building blocks ------------------------------------------------------------------------------


def _int64(value: Integers) -> Int64s:
    return np.asarray(value, dtype=np.int64)


def round_half_even_shift(value: Integers, shift: Integers) -> Int64s:
    """``value / 2**shift`` rounded to an integer, ties to even.

    ``value`` is any int64, ``shift`` is 0..62; they broadcast against each other.
    """
    v, s = _int64(value), _int64(shift)
    quotient = v >> s
    remainder = v - (quotient << s)
    half = (np.int64(1) << s) >> 1
    up = (remainder > half) | ((remainder == half) & (s > 0) & ((quotient & 1) == 1))
    return np.asarray(quotient + up, dtype=np.int64)


def round_to_24(value: Integers) -> Int64s:
    """The nearest integer with at most 24 significant bits, ties to even: what float32 makes of an integer.

    ``|value|`` is below ``2**63 - 2**38``, so that the result fits int64.
    """
    v = _int64(value)
    magnitude = np.abs(v)
    # The part above 24 bits is below 2**39: exact in float64, so its exponent is its bit length.
    excess = np.frexp((magnitude >> 24).astype(np.float64))[1].astype(np.int64)
    rounded = round_half_even_shift(magnitude, excess) << excess
    return np.asarray(np.where(v < 0, -rounded, rounded), dtype=np.int64)


def wrap32(value: Integers) -> Int64s:
    """The low 32 bits of ``value`` as a signed integer."""
    return _int64(value).astype(np.int32).astype(np.int64)


def _clamp_to_int8(value: Int64s, lo: int, hi: int) -> Int8s:
    # lo last, as in the hardware: an empty range (lo > hi) gives lo.
    return np.maximum(np.minimum(value, hi), lo).astype(np.int8)


# --- multipliers ----------------------------------------------------------------------------------


def tflite_multiplier(input_scale: Reals, weight_scale: Reals, output_scale: Reals) -> npt.NDArray[np.float64]:
    """Real multiplier of a TFLite convolution, depthwise convolution or per-channel dense layer.

    Float32 scales, converted to float64 first: ``(double)sx * (double)sw / (double)sy``, the order of
    TFLite's ``PopulateConvolutionQuantizationParams``.
    """
    sx, sw, sy = (np.asarray(s, np.float32).astype(np.float64) for s in (input_scale, weight_scale, output_scale))
    return np.asarray(sx * sw / sy, dtype=np.float64)


def tflite_dense_multiplier(input_scale: Reals, weight_scale: Reals, output_scale: Reals) -> npt.NDArray[np.float64]:
    """Real multiplier of a TFLite layer with one weight scale for all channels, as FULLY_CONNECTED forms it.

    The product is made in float32: ``(double)(sx * sw) / (double)sy``, TFLite's
    ``GetQuantizedConvolutionMultipler``.
    """
    product = np.asarray(input_scale, np.float32) * np.asarray(weight_scale, np.float32)
    return np.asarray(product.astype(np.float64) / np.asarray(output_scale, np.float32).astype(np.float64))


def onnx_multiplier(input_scale: Reals, weight_scale: Reals, output_scale: Reals) -> npt.NDArray[np.float32]:
    """Multiplier of an ONNX convolution or matrix product: ``f32(f32(sx * sw) / sy)``, in this order."""
    sx, sw, sy = (np.asarray(s, np.float32) for s in (input_scale, weight_scale, output_scale))
    return np.asarray(sx * sw / sy, dtype=np.float32)


def encode_multiplier(real: Reals, rounding: Rounding) -> tuple[Int64s, Int64s]:
    """Encode real multipliers as ``(mult, shift)``, arrays of the shape of ``real``.

    TFLITE takes float64 and follows TFLite's ``QuantizeMultiplier``: the mantissa rounded to 31 bits, ties
    away from zero; shifts below -31 become zero. ONNX takes float32, which it encodes exactly; shifts below
    -32, which no accumulator can lift to one half, become zero.

    Raises
    ------
    ValueError
        When a multiplier is negative, not finite, or 2**31 and more.
    """
    values = np.asarray(real, np.float64 if rounding == Rounding.TFLITE else np.float32).astype(np.float64)
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError(f"multiplier must be finite and not negative, not {real!r}")
    mantissa, exponent = np.frexp(values)
    shift = exponent.astype(np.int64)
    bits, smallest = (MULT_BITS, -31) if rounding == Rounding.TFLITE else (24, -32)
    mult = np.floor(mantissa * (1 << bits) + 0.5).astype(np.int64)
    carry = mult == 1 << bits
    mult = np.where(carry, mult >> 1, mult)
    shift = shift + carry
    zero = (mult == 0) | (shift < smallest)
    mult, shift = np.where(zero, 0, mult), np.where(zero, 0, shift)
    if np.any(shift > SHIFT_MAX):
        raise ValueError(f"multiplier must be below 2**{SHIFT_MAX}, not {real!r}")
    return mult, shift


def mean_multiplier(input_scale: float, output_scale: float, count: int) -> tuple[int, int]:
    """``(mult, shift)`` of TFLite's MEAN over ``count`` elements; requantise ``sum(x) - zx * count`` with it.

    The reciprocal of ``count`` is folded into the multiplier of ``sx / sy`` with truncation, as TFLite Micro
    does, so ``mult`` may have one bit less than a normalised one.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count!r}")
    real = np.float64(np.float32(input_scale)) / np.float64(np.float32(output_scale))
    mult_array, shift_array = encode_multiplier(np.asarray(real), Rounding.TFLITE)
    mult, shift = int(mult_array), int(shift_array)
    lift = min(count.bit_length() - 1, 32, 31 + shift)
    return (mult << lift) // count, shift - lift


# --- requantisation -------------------------------------------------------------------------------


def scale_tflite(acc: Integers, mult: Integers, shift: Integers) -> Int64s:
    """TFLite's ``MultiplyByQuantizedMultiplier``: int32 times ``mult * 2**(shift - 31)``, rounded twice.

    1. ``a = wrap32(acc << max(shift, 0))``
    2. ``h = floor((a * mult + 2**30) / 2**31)``, the saturating rounding doubling high product
    3. ``r = h / 2**max(-shift, 0)``, ties away from zero
    """
    a, q, e = _int64(acc), _int64(mult), _int64(shift)
    left, right = np.maximum(e, 0), np.maximum(-e, 0)
    if left.any():
        a = wrap32(a << left)
    # Steps 2 and 3 are two floors, hence one: floor((h + half - [h < 0]) / 2**right). The sign of a may stand
    # for that of h: they differ only where h is 0, which both constants round to 0.
    half = (np.int64(1) << right) >> 1
    above = np.asarray((half << 31) + (1 << 30), dtype=np.int64)
    below = np.asarray(above - ((right > 0).astype(np.int64) << 31), dtype=np.int64)
    product = np.asarray(a * q, dtype=np.int64)
    product += np.where(a < 0, below, above)
    product >>= right + 31
    return product


def scale_onnx(acc: Integers, mult: Integers, shift: Integers) -> Int64s:
    """``rint(f32(f32(acc) * m))`` in integers, ``m = mult * 2**(shift - 24)``.

    1. ``a = acc << max(shift, 0)``, clamped to int32 (the result of a normalised multiplier is then far out
       of int8)
    2. ``p = round_to_24(round_to_24(a) * mult)``
    3. ``r = p / 2**(24 + max(-shift, 0))``, ties to even
    """
    a, q, e = _int64(acc), _int64(mult) & ONNX_MULT_MASK, _int64(shift)
    left, right = np.maximum(e, 0), np.maximum(-e, 0)
    a = np.clip(a << left, INT32_MIN, INT32_MAX)
    product = round_to_24(round_to_24(a) * q)
    return round_half_even_shift(product, right + 24)


def requantise_integer(
    acc: Integers, mult: Integers, shift: Integers, rounding: Rounding, zero_point: int, lo: int, hi: int
) -> Int8s:
    """The definition of :func:`requantise`, by integer arithmetic alone."""
    scale = scale_tflite if rounding == Rounding.TFLITE else scale_onnx
    return _clamp_to_int8(scale(acc, mult, shift) + zero_point, lo, hi)


def _requantise_float32(
    acc: Integers | Reals, factor: npt.NDArray[np.float32], zero_point: int, lo: int, hi: int
) -> Int8s:
    """:func:`requantise` with the ONNX rounding for normalised multipliers, in float32."""
    value = np.asarray(np.asarray(acc).astype(np.float32) * factor, dtype=np.float32)
    np.rint(value, out=value)
    # Clamp before adding the zero point: the sum is then exact.
    np.minimum(value, np.float32(hi - zero_point), out=value)
    np.maximum(value, np.float32(lo - zero_point), out=value)
    value += np.float32(zero_point)
    return value.astype(np.int8)


def requantise(
    acc: Integers,
    mult: Integers,
    shift: Integers,
    rounding: Rounding,
    zero_point: int = 0,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
) -> Int8s:
    """Scale int32 accumulators to int8.

    Parameters
    ----------
    acc
        Values in the int32 range, of any shape and integer type; channels last.
    mult, shift
        Encoded multiplier, one for all or one per channel (the last axis).
    rounding
        :class:`Rounding`.
    zero_point, lo, hi
        Added after scaling; then the result is clamped to ``lo..hi``, int8 all three.

    Returns
    -------
    int8 array of the shape of ``acc``.

    Notes
    -----
    Large arrays are worked through in blocks that stay in the cache. ONNX with normalised multipliers uses
    float32 arithmetic, which is the same function (:func:`requantise_integer`) because IEEE 754
    multiplication and ``rint`` round to nearest, ties to even.
    """
    a, q, e = np.asarray(acc), _int64(mult), _int64(shift)
    normalised = (q == 0) | ((q >> 23) == 1)
    factor: npt.NDArray[np.float32] | None = None
    if rounding == Rounding.ONNX and bool(normalised.all()):
        factor = np.ldexp(q.astype(np.float32), (e - 24).astype(np.int32)).astype(np.float32)
    if a.ndim == 0 or a.size <= _BLOCK or q.ndim > 1 or e.ndim > 1:
        if factor is not None:
            return _requantise_float32(a, factor, zero_point, lo, hi)
        return requantise_integer(a, q, e, rounding, zero_point, lo, hi)
    per_channel = max(q.size, e.size) > 1
    rows = a.reshape(-1, a.shape[-1]) if per_channel else a.reshape(-1)
    out = np.empty(rows.shape, np.int8)
    step = max(1, _BLOCK // rows.shape[-1]) if per_channel else _BLOCK
    for start in range(0, rows.shape[0], step):
        block = slice(start, start + step)
        if factor is not None:
            out[block] = _requantise_float32(rows[block], factor, zero_point, lo, hi)
        else:
            out[block] = requantise_integer(rows[block], q, e, rounding, zero_point, lo, hi)
    return out.reshape(a.shape)


# --- residual addition ----------------------------------------------------------------------------


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
    difference = _int64(x) - zero_point
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
    return _clamp_to_int8(scaled + params.zy, params.lo, params.hi)


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
    return _requantise_float32(value, np.ones((), np.float32), params.zy, params.lo, params.hi)


# --- products, activations, 32 bits ----------------------------------------------------------------


def multiply(
    a: Integers,
    b: Integers,
    za: int,
    zb: int,
    mult: int,
    shift: int,
    rounding: Rounding,
    zero_point: int = 0,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
) -> Int8s:
    """Product of two int8 tensors: :func:`requantise` of ``(a - za) * (b - zb)``; a positive shift acts as 0.

    The multiplier is ``sa * sb / sy``: in float64 for TFLite's MUL, for ONNX's ``QLinearMul``
    :func:`onnx_multiplier`. ``a`` and ``b`` broadcast against each other.
    """
    product = (_int64(a) - za) * (_int64(b) - zb)
    return requantise(product, mult, min(shift, 0), rounding, zero_point, lo, hi)


def leaky_relu(
    total: Integers,
    mult: int,
    shift: int,
    mult_negative: int,
    shift_negative: int,
    rounding: Rounding,
    zero_point: int = 0,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
) -> Int8s:
    """:func:`requantise` of ``total = x - zx`` with one multiplier where it is not negative and another where it is:
    ``sx / sy`` and ``alpha * sx / sy``, as TFLite's LEAKY_RELU does."""
    t = _int64(total)
    positive = requantise(t, mult, shift, rounding, zero_point, lo, hi)
    negative = requantise(t, mult_negative, shift_negative, rounding, zero_point, lo, hi)
    return np.where(t < 0, negative, positive).astype(np.int8)


def shift32(value: Integers, shift: int, rounding: Rounding) -> Int64s:
    """``value`` (int32) shifted: to the left modulo 2^32; for a negative ``shift`` (down to -32) to the right, rounded,
    ties away from zero (TFLITE) or to even (ONNX)."""
    v = _int64(value)
    if shift >= 0:
        return wrap32(v << shift)
    if rounding == Rounding.ONNX:
        return round_half_even_shift(v, -shift)
    half = np.int64(1) << (-shift - 1)
    return np.asarray((v + half - (v < 0)) >> -shift, dtype=np.int64)


# --- averages -------------------------------------------------------------------------------------


def average(total: Integers, count: Integers, rounding: Rounding) -> Int64s:
    """``total / count`` rounded to an integer: ties away from zero (TFLITE) or to even (ONNX).

    ``total`` is a sum of ``count`` int8 values, the zero point included.
    """
    t, n = _int64(total), _int64(count)
    twice = 2 * np.abs(t) + n
    quotient = twice // (2 * n)
    if rounding == Rounding.ONNX:
        tie = quotient * (2 * n) == twice
        quotient = quotient - (tie & ((quotient & 1) == 1))
    return np.asarray(np.where(t < 0, -quotient, quotient), dtype=np.int64)


def average_magic(count: int, max_abs_sum: int | None = None) -> tuple[int, int]:
    """``(mult, shift)`` with which :func:`average_product` divides by ``count`` exactly.

    With ``d = 2 * count``, ``s = 30 + ceil(log2(d))`` and ``mult = ceil(2**s / d)`` (so ``2**29 < mult <=
    2**30``), the quotient of ``n2 = 2 * |sum| + count`` by ``d`` is ``n2 * mult >> s``, and ``shift = 31 -
    s`` says so in the encoding of the TFLITE multipliers. Proof, with ``error = mult * d - 2**s``, ``0 <=
    error < d``, and ``n2 = k * d + r``: ``n2 * mult = k * 2**s + (k * error + r * mult)``, and

    - ``n2 * error < 2**s`` for the largest ``n2`` keeps the bracket below ``2**s``, so the quotient is ``k``;
    - the sum is a tie exactly when ``r = 0``; the bracket is then ``k * error < 2**(s - 16)``, and else at
      least ``mult >= 2**s / d >= 2**(s - 16)``: a tie shows as 16 zero bits below the binary point.

    Both conditions are checked here for the given count, and ``d <= 2**16``.

    Parameters
    ----------
    count
        Number of elements, 1..2**15 - 1.
    max_abs_sum
        Largest ``|sum|``; when left out that of int8 elements less a zero point, ``255 * count``.

    Raises
    ------
    ValueError
        When ``count`` is out of range or ``max_abs_sum`` too large for an exact result.
    """
    if not 1 <= count <= AVERAGE_COUNT_MAX:
        raise ValueError(f"count must be in 1..{AVERAGE_COUNT_MAX}, not {count!r}")
    largest = 2 * (255 * count if max_abs_sum is None else max_abs_sum) + count
    divisor = 2 * count
    s = 30 + (divisor - 1).bit_length()
    mult = -(-(1 << s) // divisor)
    error = mult * divisor - (1 << s)
    if largest * error >= 1 << s or (largest // divisor) * error >= 1 << (s - AVERAGE_TIE_BITS) or largest >> 32:
        raise ValueError(f"max_abs_sum must be small enough to divide by {count} exactly, not {max_abs_sum!r}")
    return mult, MULT_BITS - s


def average_product(total: Integers, count: Integers, mult: Integers, shift: Integers, rounding: Rounding) -> Int64s:
    """:func:`average` as the hardware computes it, by a product with the reciprocal from
    :func:`average_magic`.

    1. ``p = ((2 * |total| + count) mod 2**32) * mult``
    2. ``q = floor(p / 2**(31 + max(-shift, 0)))``
    3. ONNX: one less when ``q`` is odd and its first 16 fraction bits are zero (a tie)
    4. the sign of ``total``
    """
    t, right = _int64(total), np.maximum(-_int64(shift), 0)
    twice = (2 * np.abs(t) + _int64(count)) & 0xFFFF_FFFF
    aligned = (twice * _int64(mult)) >> right
    quotient = aligned >> MULT_BITS
    if rounding == Rounding.ONNX:
        fraction = (aligned >> (MULT_BITS - AVERAGE_TIE_BITS)) & ((1 << AVERAGE_TIE_BITS) - 1)
        quotient = quotient - ((fraction == 0) & ((quotient & 1) == 1))
    return np.asarray(np.where(t < 0, -quotient, quotient), dtype=np.int64)
