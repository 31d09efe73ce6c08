"""Scaling by the runtimes' own steps in Python integers and fractions, and the values at which scalers go wrong.

Nothing here comes from ``isa.numerics`` or from hardware: blocks and numerics are held against it alike.
"""

import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dovetail.isa.numerics.rounding import Rounding

Ints = npt.NDArray[np.int64]

SHIFTS = range(-32, 32)

MULTIPLIERS = {
    Rounding.TFLITE: (2**30, 2**30 + 1, 2**30 + 2**29, 2**31 - 1, 2**29, 2**16, 2**15 + 1, 1, 0),
    Rounding.ONNX: (2**23, 2**23 + 1, 2**23 + 2**22, 2**24 - 1, 2**22, 2**16, 1, 0),
}
"""Powers of two, which make ties; their neighbours; the largest; some that are not normalised."""


def int32(value: int) -> int:
    """The low 32 bits as a signed integer."""
    return (value + 2**31) % 2**32 - 2**31


def nearest_away(value: Fraction) -> int:
    """The nearest integer, ties away from zero."""
    return (1 if value >= 0 else -1) * int(abs(value) + Fraction(1, 2))


def tflite_scale(acc: int, mult: int, shift: int) -> int:
    """gemmlowp's MultiplyByQuantizedMultiplier: the doubling high product, ties upward; then ties away from zero."""
    high: int = (2 * int32(acc << max(shift, 0)) * mult + 2**31) // 2**32
    return nearest_away(Fraction(high, 2 ** max(-shift, 0)))


def float32(value: Fraction) -> Fraction:
    """The nearest number of 24 significant bits, ties to even."""
    unit = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - 24)
    if abs(value) >= 2**24 * unit:
        unit *= 2
    return round(value / unit) * unit


def onnx_scale(acc: int, mult: int, shift: int) -> int:
    """float32 of the accumulator times a float32, to the nearest integer, ties to even. What is shifted to the left is
    kept in int32 first."""
    value = max(-(2**31), min(2**31 - 1, acc << max(shift, 0)))
    product = float32(float32(Fraction(value)) * Fraction(mult % 2**24))
    return round(product / Fraction(2 ** (24 + max(-shift, 0))))


SCALE = {Rounding.TFLITE: tflite_scale, Rounding.ONNX: onnx_scale}


Operand = tuple[int, int, int]
"""An int8 less its zero point, multiplier, shift."""


def sum_of(rounding: Rounding, sign: int, a: Operand, b: Operand, out: tuple[int, int]) -> int:
    """a + b, or a - b for a ``sign`` of -1: in TFLite's fixed point, with 20 bits of headroom and a last scaling by
    ``out``, or in ONNX Runtime's float32."""
    if rounding == Rounding.TFLITE:
        left, right = (tflite_scale(value << 20, mult, min(shift, 0)) for value, mult, shift in (a, b))
        return tflite_scale(left + sign * right, out[0], min(out[1], 0))
    x, y = (float32(Fraction(value * (mult % 2**24))) * Fraction(2) ** (shift - 24) for value, mult, shift in (a, b))
    return round(float32(x + sign * y))


def to_int8(scaled: int, zero_point: int = 0, lo: int = -128, hi: int = 127) -> int:
    """Zero point and clamp; an empty range gives ``lo``."""
    return max(lo, min(hi, scaled + zero_point))


def accumulators(mult: int, shift: int, rounding: Rounding) -> list[int]:
    """Where a scaler with this multiplier goes wrong: small values, ends of int32, and what lands on, just below and
    just above ties and the ends of int8, of both signs."""
    found = {*range(-7, 8), 2**24 - 1, 2**24 + 1, 2**24 + 3, 3 * (2**24 + 1), 2**30, 2**31 - 1, 2**31}
    if mult:
        factor = mult * Fraction(2) ** (shift - (31 if rounding == Rounding.TFLITE else 24))
        for twice in (1, 2, 3, 5, 7, 11, 126, 127, 253, 255, 256, 257):
            value = int(Fraction(twice, 2) / factor)
            found |= {value - 1, value, value + 1}
    values = (sign * value for value in found for sign in (-1, 1))
    return sorted({value for value in values if -(2**31) <= value < 2**31})


def past_double_ties() -> Iterator[tuple[int, int, int]]:
    """Accumulator, multiplier and shift of ONNX whose product has 48 bits and lies past the point that is half a unit
    of 24 bits from a tie, by so little that only the last bits tell: it is not rounded to the tie."""
    rng = random.Random(1)
    for whole in (1, 2, 3, 4, 7, 10, 13, 20):
        fraction = 48 - whole.bit_length()  # bits of the product behind the binary point
        side = 1 if whole % 2 == 0 else -1  # where the tie would go to the other side
        target = (2 * whole + 1 << fraction - 1) + side * 2**23
        while True:
            acc = rng.randrange(2**23, 2**24)
            mult = -(-target // acc) if side > 0 else target // acc
            if 2**23 <= mult < 2**24 and 0 < abs(acc * mult - target) < 2 ** (17 - whole.bit_length()):
                break
        yield from ((sign * acc, mult, 24 - fraction) for sign in (1, -1))


def corners(rounding: Rounding) -> Iterator[tuple[int, int, int]]:
    """Accumulator, multiplier and shift: every shift with every multiplier of :data:`MULTIPLIERS`, and double ties."""
    if rounding == Rounding.ONNX:
        yield from past_double_ties()
    for mult in MULTIPLIERS[rounding]:
        for shift in SHIFTS:
            for acc in accumulators(mult, shift, rounding):
                yield acc, mult, shift


def corner_arrays(rounding: Rounding, lanes: int = 1) -> tuple[Ints, Ints, Ints, Ints]:
    """:func:`corners` as arrays, a multiple of ``lanes`` long, and what each is scaled to, as int8."""
    rows = list(corners(rounding))
    rows += rows[: -len(rows) % lanes]
    acc, mult, shift = np.array(rows).T
    expected = np.array([to_int8(SCALE[rounding](*row)) for row in rows])
    return acc, mult, shift, expected
