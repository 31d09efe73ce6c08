"""Products against measured vectors, hand-worked values and brute force."""

import numpy as np
import pytest

from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.multiply import multiply
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from tests.isa.numerics.by_hand import all_pairs, gemmlowp_scale


@pytest.mark.parametrize(("za", "zb", "zy"), [(0, 0, 0), (-128, 127, -3), (5, -77, 100)])
@pytest.mark.parametrize("real", [0.0039, 0.01171875, 0.4321, 1.0 - 2.0**-20])
def test_multiply(real: float, za: int, zb: int, zy: int) -> None:
    """TFLite's MUL is one MultiplyByQuantizedMultiplier of the product; ONNX Runtime's is in float32."""
    a, b = all_pairs()
    for rounding in Rounding:
        mult, shift = (int(n) for n in encode_multiplier(np.float32(real), rounding))
        got = multiply(a, b, product_of(za, zb, mult, shift, rounding, zy=zy, lo=-100, hi=111))
        for i in range(0, a.size, 97):
            product = (int(a[i]) - za) * (int(b[i]) - zb)
            if rounding == Rounding.TFLITE:
                y = gemmlowp_scale(product, mult, shift)
            else:
                y = int(np.rint(np.float32(product) * np.float32(real)))
            assert got[i] == max(-100, min(111, y + zy))


def product_of(
    za: int, zb: int, mult: int, shift: int, rounding: Rounding, zy: int = 0, lo: int = -128, hi: int = 127
) -> VectorParameters:
    return VectorParameters(
        operation=VectorOperation.MULTIPLY,
        rounding=rounding,
        za=za,
        zb=zb,
        zy=zy,
        mult_out=mult,
        shift_out=shift,
        lo=lo,
        hi=hi,
    )


def test_multiply_pins() -> None:
    half_tflite, half_onnx = (2**30, 0, Rounding.TFLITE), (2**23, 0, Rounding.ONNX)
    assert [int(multiply(a, 1, product_of(0, 0, *half_tflite))) for a in (1, 3, 5, -3, 100)] == [1, 2, 3, -1, 50]
    assert [int(multiply(a, 1, product_of(0, 0, *half_onnx))) for a in (1, 3, 5, -3, 100)] == [0, 2, 2, -2, 50]
    for mult, _, rounding in (half_tflite, half_onnx):  # a positive shift acts as 0
        for shift in (1, 5, 31):
            assert multiply(-128, -128, product_of(127, 0, mult, shift, rounding)) == 127
            assert multiply(7, 6, product_of(0, 0, mult, shift, rounding)) == 21
