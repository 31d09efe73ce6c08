"""Shifts against measured vectors, hand-worked values and brute force."""

from fractions import Fraction

import numpy as np
import pytest

from dovetail.isa.numerics.multiplier import (
    SHIFT_MAX,
    SHIFT_MIN,
)
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.shift import shift32
from tests.isa.numerics.by_hand import INT32_CORNERS


def exact_shift(value: int, shift: int, rounding: Rounding) -> int:
    """In fractions: to the left modulo 2^32, to the right to the nearest integer."""
    exact = Fraction(value) * Fraction(2) ** shift
    if shift >= 0:
        return (int(exact) + 2**31) % 2**32 - 2**31
    if rounding == Rounding.ONNX:
        return round(exact)
    return (1 if exact >= 0 else -1) * int(abs(exact) + Fraction(1, 2))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_shift32(rounding: Rounding) -> None:
    random = np.random.default_rng(8).integers(-(2**31), 2**31, 200).tolist()
    values = [*range(-40, 41), *INT32_CORNERS, *(s * 2**n + d for n in range(31) for s in (-1, 1) for d in (-1, 0, 1))]
    values += random
    for shift in range(SHIFT_MIN, SHIFT_MAX + 1):
        got = shift32(np.array(values), shift, rounding).tolist()
        assert got == [exact_shift(v, shift, rounding) for v in values], shift


def test_shift32_pins() -> None:
    values = np.array([5, 6, 7, -5, -6, -7])
    assert shift32(values, -2, Rounding.TFLITE).tolist() == [1, 2, 2, -1, -2, -2]
    assert shift32(values, -2, Rounding.ONNX).tolist() == [1, 2, 2, -1, -2, -2]
    assert shift32(np.array([2, -2, 10]), -2, Rounding.TFLITE).tolist() == [1, -1, 3]
    assert shift32(np.array([2, -2, 10]), -2, Rounding.ONNX).tolist() == [0, 0, 2]
    assert [int(shift32(v, 31, Rounding.ONNX)) for v in (1, 2, 3)] == [-(2**31), 0, -(2**31)]
    assert [int(shift32(-(2**31), -32, r)) for r in Rounding] == [-1, 0]
