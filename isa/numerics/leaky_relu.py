"""Leaky ReLU of an int8 tensor."""

import numpy as np

from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import INT8_MAX, INT8_MIN, Int8s, Integers, Rounding, int64


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
    t = int64(total)
    positive = requantise(t, mult, shift, rounding, zero_point, lo, hi)
    negative = requantise(t, mult_negative, shift_negative, rounding, zero_point, lo, hi)
    return np.where(t < 0, negative, positive).astype(np.int8)
