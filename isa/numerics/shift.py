"""Shift of an int32 tensor."""

import numpy as np

from dovetail.isa.numerics.rounding import Int64s, Integers, Rounding, int64, round_half_even_shift, wrap32


def shift32(value: Integers, shift: int, rounding: Rounding) -> Int64s:
    """``value`` (int32) shifted: to the left modulo 2^32; for a negative ``shift`` (down to -32) to the right, rounded,
    ties away from zero (TFLITE) or to even (ONNX)."""
    v = int64(value)
    if shift >= 0:
        return wrap32(v << shift)
    if rounding == Rounding.ONNX:
        return round_half_even_shift(v, -shift)
    half = np.int64(1) << (-shift - 1)
    return np.asarray((v + half - (v < 0)) >> -shift, dtype=np.int64)
