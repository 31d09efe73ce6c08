"""Roundings of integers against measured vectors, hand-worked values and brute force."""

from fractions import Fraction

import numpy as np

from dovetail.isa.numerics.rounding import round_half_even_shift, round_to_24
from tests.isa.numerics.by_hand import INT32_CORNERS


def test_round_half_even_shift_pins() -> None:
    values = np.array([0, 1, 2, 3, 5, 6, 7, -1, -2, -3, -6, 10])
    assert round_half_even_shift(values, 2).tolist() == [0, 0, 0, 1, 1, 2, 2, 0, 0, -1, -2, 2]
    assert round_half_even_shift(7, 0) == 7
    assert round_half_even_shift(-(2**61) - 2**61, 62) == -1


def test_round_half_even_shift_brute_force() -> None:
    values = np.arange(-300, 300)
    for shift in range(12):
        expected = [round(Fraction(int(v), 1 << shift)) for v in values]
        assert round_half_even_shift(values, shift).tolist() == expected


def test_round_to_24_is_float32() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-(2**62), 2**62, 20000) >> rng.integers(0, 62, 20000)
    values = np.concatenate([values, INT32_CORNERS, [2**25 + 2, 2**25 + 6, 2**54 - 1, 2**53 + 1, 2**62 - 1]])
    assert np.array_equal(round_to_24(values), values.astype(np.float32).astype(np.int64))


def test_round_to_24_pins() -> None:
    assert round_to_24(2**24 + 1) == 2**24
    assert round_to_24(2**24 + 3) == 2**24 + 4
    assert round_to_24(-(2**24) - 3) == -(2**24) - 4
    assert round_to_24(2**31 - 1) == 2**31
