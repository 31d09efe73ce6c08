"""Leaky ReLU against measured vectors, hand-worked values and brute force."""

import numpy as np
import pytest

from dovetail.isa.numerics.leaky_relu import leaky_relu
from dovetail.isa.numerics.multiplier import (
    encode_multiplier,
)
from dovetail.isa.numerics.rounding import Rounding
from tests.isa.numerics.by_hand import float32_scale, gemmlowp_scale


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 2.5])
@pytest.mark.parametrize(("zx", "zy"), [(0, 0), (-128, -128), (127, -7)])
def test_leaky_relu(alpha: float, zx: int, zy: int) -> None:
    total = np.arange(-128, 128) - zx
    real = 0.0321 / 0.0457
    for rounding in Rounding:
        q, e = (int(n) for n in encode_multiplier(np.float32(real), rounding))
        below, shift = (int(n) for n in encode_multiplier(np.float32(alpha * real), rounding))
        got = leaky_relu(total, q, e, below, shift, rounding, zy, -120, 119)
        scale = gemmlowp_scale if rounding == Rounding.TFLITE else float32_scale
        expected = [(scale(t, below, shift) if t < 0 else scale(t, q, e)) + zy for t in total.tolist()]
        assert got.tolist() == [max(-120, min(119, y)) for y in expected]
        assert got.dtype == np.int8


def test_leaky_relu_by_hand() -> None:
    total = np.array([-100, -3, -1, 0, 1, 3, 100])
    for rounding, bits in ((Rounding.TFLITE, 31), (Rounding.ONNX, 24)):
        one, quarter = (1 << bits - 1, 1), (1 << bits - 1, -1)
        assert leaky_relu(total, *one, *quarter, rounding, 2).tolist() == [-23, 1, 2, 2, 3, 5, 102]
        assert leaky_relu(total, *one, 0, 0, rounding).tolist() == [0, 0, 0, 0, 1, 3, 100]
