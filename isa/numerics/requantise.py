"""Scaling of int32 accumulators, and requantisation to int8."""

import numpy as np
import numpy.typing as npt

from dovetail.isa.numerics.multiplier import ONNX_MULT_MASK
from dovetail.isa.numerics.rounding import (
    INT8_MAX,
    INT8_MIN,
    INT32_MAX,
    INT32_MIN,
    Int8s,
    Int64s,
    Integers,
    Reals,
    Rounding,
    clamp_to_16,
    clamp_to_int8,
    int64,
    round_half_even_shift,
    round_to_24,
    wrap32,
)

_BLOCK = 1 << 15
"""Elements per block of a vectorised pass: a block's int64 temporaries stay in a 1 MiB cache."""


def scale_tflite(acc: Integers, mult: Integers, shift: Integers) -> Int64s:
    """TFLite's ``MultiplyByQuantizedMultiplier``: int32 times ``mult * 2**(shift - 31)``, rounded twice.

    1. ``a = wrap32(acc << max(shift, 0))``
    2. ``h = floor((a * mult + 2**30) / 2**31)``, the saturating rounding doubling high product
    3. ``r = h / 2**max(-shift, 0)``, ties away from zero
    """
    a, q, e = int64(acc), int64(mult), int64(shift)
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
    a, q, e = int64(acc), int64(mult) & ONNX_MULT_MASK, int64(shift)
    left, right = np.maximum(e, 0), np.maximum(-e, 0)
    a = np.clip(a << left, INT32_MIN, INT32_MAX)
    product = round_to_24(round_to_24(a) * q)
    return round_half_even_shift(product, right + 24)


def requantise_integer(
    acc: Integers, mult: Integers, shift: Integers, rounding: Rounding, zero_point: int, lo: int, hi: int
) -> Int8s:
    """The definition of :func:`requantise`, by integer arithmetic alone."""
    return clamp_to_int8(_scaled(acc, mult, shift, rounding) + zero_point, lo, hi)


def requantise_wide(acc: Integers, mult: Integers, shift: Integers, rounding: Rounding) -> npt.NDArray[np.int32]:
    """:func:`requantise` to 16 bits: without a zero point, clamped to -32768 .. 32767."""
    return clamp_to_16(_scaled(acc, mult, shift, rounding))


def _scaled(acc: Integers, mult: Integers, shift: Integers, rounding: Rounding) -> Int64s:
    scale = scale_tflite if rounding == Rounding.TFLITE else scale_onnx
    return scale(acc, mult, shift)


def requantise_float32(
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
    a, q, e = np.asarray(acc), int64(mult), int64(shift)
    normalised = (q == 0) | ((q >> 23) == 1)
    factor: npt.NDArray[np.float32] | None = None
    if rounding == Rounding.ONNX and bool(normalised.all()):
        factor = np.ldexp(q.astype(np.float32), (e - 24).astype(np.int32)).astype(np.float32)
    if a.ndim == 0 or a.size <= _BLOCK or q.ndim > 1 or e.ndim > 1:
        if factor is not None:
            return requantise_float32(a, factor, zero_point, lo, hi)
        return requantise_integer(a, q, e, rounding, zero_point, lo, hi)
    per_channel = max(q.size, e.size) > 1
    rows = a.reshape(-1, a.shape[-1]) if per_channel else a.reshape(-1)
    out = np.empty(rows.shape, np.int8)
    step = max(1, _BLOCK // rows.shape[-1]) if per_channel else _BLOCK
    for start in range(0, rows.shape[0], step):
        block = slice(start, start + step)
        if factor is not None:
            out[block] = requantise_float32(rows[block], factor, zero_point, lo, hi)
        else:
            out[block] = requantise_integer(rows[block], q, e, rounding, zero_point, lo, hi)
    return out.reshape(a.shape)
