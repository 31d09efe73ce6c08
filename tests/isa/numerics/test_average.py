"""Averages against measured vectors, hand-worked values and brute force."""

from fractions import Fraction

import numpy as np
import pytest

from dovetail.isa.numerics.average import average, average_magic, average_product
from dovetail.isa.numerics.rounding import Rounding


def test_average_pins() -> None:
    sums = np.array([1, 3, 5, -1, -3, -5, 4, 0])
    assert average(sums, 2, Rounding.TFLITE).tolist() == [1, 2, 3, -1, -2, -3, 2, 0]
    assert average(sums, 2, Rounding.ONNX).tolist() == [0, 2, 2, 0, -2, -2, 2, 0]
    assert average_magic(1) == (2**30, 0)
    assert average_magic(3) == (-(-(2**33) // 6), -2)
    assert average_magic(2**14) == (2**30, -14)
    assert average_magic(2**15 - 1)[1] == -15


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_is_the_quotient(rounding: Rounding) -> None:
    for count in (1, 2, 3, 4, 6, 7, 49):
        sums = np.arange(-128 * count, 128 * count + 1)
        for total, mean in zip(sums.tolist(), average(sums, count, rounding).tolist(), strict=True):
            exact = Fraction(total, count)
            if rounding == Rounding.ONNX:
                assert mean == round(exact) == int(np.rint(np.float32(total) / np.float32(count)))
            else:
                assert mean == (1 if total >= 0 else -1) * int(abs(exact) + Fraction(1, 2))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_by_product_exhaustive(rounding: Rounding) -> None:
    for count in range(1, 130):
        sums = np.arange(-255 * count, 255 * count + 1)
        mult, shift = average_magic(count)
        product = average_product(sums, count, mult, shift, rounding)
        assert np.array_equal(product, average(sums, count, rounding)), count


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_by_product_large_counts(rounding: Rounding) -> None:
    """Around every tie and every integer, where a quotient can go wrong."""
    rng = np.random.default_rng(7)
    counts = [*rng.integers(130, 2**15, 60).tolist(), 2**14 - 1, 2**14, 2**13 + 1, 8191, 2**15 - 1, 2**15 - 2]
    for count in counts:
        near = (np.arange(0, 511)[:, None] * count // 2 + np.arange(-2, 3)).ravel()
        sums = np.concatenate([near, -near, rng.integers(-255 * count, 255 * count + 1, 500)])
        sums = sums[np.abs(sums) <= 255 * count]
        mult, shift = average_magic(count)
        assert mult < 2**31 and -15 <= shift <= 0
        product = average_product(sums, count, mult, shift, rounding)
        assert np.array_equal(product, average(sums, count, rounding)), count


def test_every_count_has_a_proven_magic() -> None:
    for count in range(1, 2**15):
        average_magic(count)


def test_average_magic_refuses() -> None:
    for count in (0, 2**15):
        with pytest.raises(ValueError, match=r"count must be in 1\.\.32767"):
            average_magic(count)
    with pytest.raises(ValueError, match="max_abs_sum must be small enough"):
        average_magic(3, 2**31)
