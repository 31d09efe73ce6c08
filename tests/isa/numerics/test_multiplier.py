"""Multipliers and their encoding against measured vectors, hand-worked values and brute force."""

import numpy as np
import pytest

from dovetail.isa.numerics.multiplier import (
    encode_multiplier,
    mean_multiplier,
    onnx_multiplier,
    tflite_dense_multiplier,
    tflite_multiplier,
)
from dovetail.isa.numerics.rounding import Rounding


def test_encode_tflite_pins() -> None:
    mult, shift = encode_multiplier(np.array([1.0, 0.5, 0.75, 3.0, 0.0]), Rounding.TFLITE)
    assert mult.tolist() == [2**30, 2**30, 3 * 2**29, 3 * 2**29, 0]
    assert shift.tolist() == [1, 0, 0, 2, 0]


def test_encode_tflite_mantissa_that_rounds_up_to_one() -> None:
    mult, shift = encode_multiplier(1.0 - 2.0**-40, Rounding.TFLITE)
    assert (int(mult), int(shift)) == (2**30, 1)


@pytest.mark.parametrize(("exponent", "encoded"), [(-32, (2**30, -31)), (-33, (0, 0))])
def test_encode_tflite_flushes_tiny(exponent: int, encoded: tuple[int, int]) -> None:
    mult, shift = encode_multiplier(2.0**exponent, Rounding.TFLITE)
    assert (int(mult), int(shift)) == encoded


@pytest.mark.parametrize(("exponent", "encoded"), [(-33, (2**23, -32)), (-34, (0, 0)), (-149, (0, 0))])
def test_encode_onnx_flushes_what_cannot_matter(exponent: int, encoded: tuple[int, int]) -> None:
    mult, shift = encode_multiplier(np.float32(2.0**exponent), Rounding.ONNX)
    assert (int(mult), int(shift)) == encoded
    assert np.rint(np.float32(-(2**31)) * np.float32(2.0**-33)) == 0


def test_encode_onnx_is_exact() -> None:
    values = np.random.default_rng(2).uniform(1e-8, 4, 1000).astype(np.float32)
    mult, shift = encode_multiplier(values, Rounding.ONNX)
    assert np.array_equal(np.ldexp(mult.astype(np.float64), shift - 24), values.astype(np.float64))
    assert mult.min() >= 2**23 and mult.max() < 2**24


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("value", [2.0**31, -1.0, float("nan"), float("inf")])
def test_encode_refuses(value: float, rounding: Rounding) -> None:
    with pytest.raises(ValueError, match="multiplier must be"):
        encode_multiplier(value, rounding)


def test_multiplier_order() -> None:
    sx, sw, sy = np.float32(0.1), np.float32(0.3), np.float32(0.7)
    assert tflite_multiplier(sx, sw, sy) == float(sx) * float(sw) / float(sy)
    assert tflite_dense_multiplier(sx, sw, sy) == float(sx * sw) / float(sy)
    assert tflite_dense_multiplier(sx, sw, sy) != tflite_multiplier(sx, sw, sy)
    assert onnx_multiplier(sx, sw, sy) == (sx * sw) / sy


@pytest.mark.parametrize(("count", "lift"), [(1, 0), (2, 1), (3, 1), (49, 5), (64, 6)])
def test_mean_multiplier(count: int, lift: int) -> None:
    mult, shift = encode_multiplier(0.5, Rounding.TFLITE)
    assert mean_multiplier(0.25, 0.5, count) == ((int(mult) << lift) // count, int(shift) - lift)


def test_mean_multiplier_refuses() -> None:
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        mean_multiplier(1.0, 1.0, 0)
