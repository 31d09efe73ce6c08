"""Averages of int8 values: by division, and by a product with the reciprocal."""

import numpy as np

from dovetail.isa.numerics.multiplier import MULT_BITS
from dovetail.isa.numerics.rounding import Int64s, Integers, Rounding, int64

AVERAGE_COUNT_MAX = (1 << 15) - 1
"""The largest number of elements that an average may have."""

AVERAGE_TIE_BITS = 16
"""An average is a tie when this many fraction bits of its product are zero (see :func:`average_magic`)."""


def average(total: Integers, count: Integers, rounding: Rounding) -> Int64s:
    """``total / count`` rounded to an integer: ties away from zero (TFLITE) or to even (ONNX).

    ``total`` is a sum of ``count`` int8 values, the zero point included.
    """
    t, n = int64(total), int64(count)
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
    t, right = int64(total), np.maximum(-int64(shift), 0)
    twice = (2 * np.abs(t) + int64(count)) & 0xFFFF_FFFF
    aligned = (twice * int64(mult)) >> right
    quotient = aligned >> MULT_BITS
    if rounding == Rounding.ONNX:
        fraction = (aligned >> (MULT_BITS - AVERAGE_TIE_BITS)) & ((1 << AVERAGE_TIE_BITS) - 1)
        quotient = quotient - ((fraction == 0) & ((quotient & 1) == 1))
    return np.asarray(np.where(t < 0, -quotient, quotient), dtype=np.int64)
