"""Softmax in integers against measured vectors of both runtimes, float32 arithmetic and hand-worked values."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest

from dovetail.isa.numerics.softmax import onnx_exponentials, softmax_onnx, softmax_tflite, tflite_exponentials
from tests.softmax import measured


def test_every_vector_of_tflite_micro() -> None:
    for x, y, given in measured("tflm_"):
        np.testing.assert_array_equal(softmax_tflite(x, tflite_exponentials(1.0, given["x_scale"])), y)


@pytest.mark.parametrize("prefix", ["ort_s8_", "ort_u8_"])
def test_every_vector_of_onnx_runtime(prefix: str) -> None:
    for x, y, given in measured(prefix):
        levels = int(np.floor(np.float32(1) / np.float32(given["y_scale"])))
        table = onnx_exponentials(given["x_scale"], len(x))
        np.testing.assert_array_equal(softmax_onnx(x, table, levels, given["y_zp"]), y)


def nearest_24(value: Fraction) -> Fraction:
    """With 24 significant bits, ties to even."""
    if not value:
        return value
    bits = value.numerator.bit_length() - value.denominator.bit_length()
    bits += value >= Fraction(2) ** bits
    step = Fraction(2) ** (bits - 24)
    return round(value / step) * step


@pytest.mark.parametrize("columns", [1, 2, 3, 40, 301])
def test_sums_have_24_bits_and_quotients_are_exact(columns: int) -> None:
    rng = np.random.default_rng(columns)
    for scale in (1e-5, 0.002, 0.03, 0.4, 3.0):
        rows = rng.integers(-128, 128, (4, columns)).astype(np.int8)
        table = onnx_exponentials(scale, columns)
        made = {levels: softmax_onnx(rows, table, levels, -7) for levels in (0, 1, 254, 256, 4096, 1 << 24)}
        for index, row in enumerate(rows.tolist()):
            values = [Fraction(table[max(row) - x].item()) for x in row]
            total = Fraction(0)
            for value in values:
                total = nearest_24(total + value)
            for levels, found in made.items():
                expected = [min(round(value * levels / total) - 7, 127) for value in values]
                assert found[index].tolist() == expected


def test_exponentials_that_are_zero_and_tiny() -> None:
    table = np.zeros(256, np.float32)
    table[:4] = 3e-39, 2e-39, 1e-45, 0  # all below float32's normal numbers
    rows = np.array([[100, 101, 102, 103], [0, 5, 5, 0]], np.int8)
    total = sum(map(Fraction, table[:4].tolist()))
    third = [round(Fraction(value) * 256 / total) - 128 for value in table[[3, 2, 1, 0]].tolist()]
    assert softmax_onnx(rows, table, 256, -128).tolist() == [third, [-128, 0, 0, -128]]


def test_by_hand() -> None:
    """Two equal elements share; ties go to the even level."""
    rows = np.array([[5, 5], [-128, 127]], np.int8)
    assert softmax_tflite(rows, tflite_exponentials(1.0, 1.0)).tolist() == [[0, 0], [-128, 127]]
    equal = np.ones(256, np.float32)
    assert softmax_onnx(rows[:1], equal, 256, -128).tolist() == [[0, 0]]
    assert softmax_onnx(rows[:1], equal, 5, 0).tolist() == [[2, 2]]  # 2.5
    assert softmax_onnx(rows[:1], equal, 7, 0).tolist() == [[4, 4]]  # 3.5


@pytest.mark.parametrize(("beta", "scale"), [(1.0, 0.1), (0.5, 0.25), (2.0, 3.0)])
def test_exponentials_of_tflite(beta: float, scale: float) -> None:
    reals = [exp(-distance * beta * scale) for distance in range(256)]
    np.testing.assert_allclose(tflite_exponentials(beta, scale) / 2**31, reals, rtol=0, atol=1e-6)
    assert tflite_exponentials(beta, 100.0).tolist() == [2**31 - 1] + [0] * 255


@pytest.mark.parametrize("scale", [1e-4, 0.1, 0.3])
def test_exponentials_of_onnx_runtime(scale: float) -> None:
    reals = [exp(-distance * scale) for distance in range(256)]
    table = onnx_exponentials(scale, 100).astype(np.float64)
    np.testing.assert_allclose(table / table[0], reals, rtol=1e-7)
    assert table.max() * 100 < np.finfo(np.float32).max
