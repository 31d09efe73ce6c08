"""NORM and NORM16 of one row in plain integers, written from docs/architecture.md, for models and hardware."""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Any


def row_values(row: Sequence[int], zero: int, epsilon: int, *, rms: bool, bits: int = 8) -> tuple[int, int, int, int]:
    """Of a row of elements of so many bits: the mean's floor less the zero point, N, O, and the right shift."""
    c = [x - zero for x in row]
    n, total = len(c), 0 if rms else sum(c)
    mean, rest = divmod(total, n)
    spread = n * sum(value * value for value in c) - total * total
    if not spread:
        return mean, 0, 0, 0
    wide, pairs = (spread << 2 * (16 - bits)) + epsilon, 0
    while wide < 1 << 56:
        wide, pairs = wide << 2, pairs + 1
    reciprocal = ((1 << 46) - 1) // isqrt(wide >> 10)
    up = 0
    while n << up <= 2048:
        up += 1
    return mean, (n << up) * reciprocal >> 11, (rest << up) * reciprocal >> 11, 7 + bits + up - pairs


def normed(
    row: Sequence[int],
    records: Sequence[tuple[int, int]],
    *,
    zero_in: int,
    zero_out: int,
    lo: int,
    hi: int,
    epsilon: int,
    rms: bool,
    bits: int = 8,
) -> list[int]:
    """A norm of a row; ``records`` are a channel's bias and its other word, both of 32 bits without a sign."""
    mean, factor, offset, right = row_values(row, zero_in, epsilon, rms=rms, bits=bits)
    made = []
    for x, (bias, word) in zip(row, records, strict=True):
        product = (x - zero_in - mean) * factor - offset
        z = (abs(product) + (1 << right >> 1) >> right) * (-1 if product < 0 else 1)
        shift = (word >> 24 & 31) - (word >> 24 & 32)
        total = (z + (bias ^ 1 << 31) - (1 << 31)) * (word % (1 << 24)) * (-1 if word >> 31 else 1)
        unit = 1 << max(abs(total).bit_length() - 24, 0)
        rounded = round(Fraction(total, unit)) * unit
        made.append(max(lo, min(hi, round(Fraction(rounded, 1 << 24 + max(-shift, 0))) + zero_out)))
    return made


def normed16(row: Sequence[int], records: Sequence[tuple[int, int]], *, wide: bool, **rest: Any) -> list[int]:
    """NORM16 of a row of int32; NORM16_WIDE with ``wide``, whatever the zero point and the clamp."""
    if wide:
        rest |= {"zero_out": 0, "lo": -(1 << 15), "hi": (1 << 15) - 1}
    low = [(x & 0xFFFF ^ 0x8000) - 0x8000 for x in row]
    return normed(low, records, **rest | {"zero_in": 0}, bits=16)
