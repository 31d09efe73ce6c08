"""Sums, differences, minima and maxima against measured vectors, hand-worked values and brute force."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.isa.numerics.add import add, add_integer, onnx_sum, tflite_sum
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from tests.isa.numerics.by_hand import all_pairs, gemmlowp_scale

ADD_SCALES = [
    (0.0235, 0.0235, 0.0235, 0, 0, 0),
    (0.1, 0.05, 0.12, -128, -3, 7),
    (1.0, 2.0**-12, 0.9, 127, -128, -128),
    (2.0**-9, 0.3, 0.0042, 5, -77, 100),
]


@pytest.mark.parametrize(("sa", "sb", "sy", "za", "zb", "zy"), ADD_SCALES)
def test_add_tflite(sa: float, sb: float, sy: float, za: int, zb: int, zy: int) -> None:
    params = tflite_sum(sa, za, sb, zb, sy, zy, lo=-120)
    a, b = all_pairs()
    got = add(a, b, params)
    assert np.array_equal(got, add_integer(a, b, params))
    for i in range(0, a.size, 97):
        u = gemmlowp_scale((int(a[i]) - za) << 20, params.mult_a, params.shift_a)
        v = gemmlowp_scale((int(b[i]) - zb) << 20, params.mult_b, params.shift_b)
        y = gemmlowp_scale(u + v, params.mult_out, params.shift_out) + zy
        assert got[i] == max(-120, min(127, y))


@pytest.mark.parametrize(("sa", "sb", "sy", "za", "zb", "zy"), ADD_SCALES)
def test_add_onnx(sa: float, sb: float, sy: float, za: int, zb: int, zy: int) -> None:
    params = onnx_sum(sa, za, sb, zb, sy, zy, hi=101)
    a, b = all_pairs()
    ma, mb = np.float32(sa) / np.float32(sy), np.float32(sb) / np.float32(sy)
    v = ma * (a.astype(np.float32) - np.float32(za)) + mb * (b.astype(np.float32) - np.float32(zb))
    expected = np.clip(np.rint(v) + zy, -128, 101).astype(np.int8)
    assert v.dtype == np.float32
    assert np.array_equal(add(a, b, params), expected)
    assert np.array_equal(add_integer(a, b, params), expected)


def test_add_pins() -> None:
    equal = tflite_sum(0.5, 0, 0.5, 0, 0.5, 0)
    assert (equal.mult_a, equal.shift_a, equal.mult_out, equal.shift_out) == (2**30, 0, 2**30, -18)
    assert add(3, 4, equal) == 7
    halves = onnx_sum(0.5, 0, 0.5, 0, 1.0, 0)
    assert [int(add(a, 0, halves)) for a in (1, 3, 5, -3)] == [0, 2, 2, -2]
    tflite = tflite_sum(0.5, 0, 0.5, 0, 1.0, 0)
    assert [int(add(a, 0, tflite)) for a in (1, 3, 5, -3)] == [1, 2, 3, -2]


COMBINE: dict[VectorOperation, Callable[[Any, Any], Any]] = {
    VectorOperation.ADD: lambda a, b: a + b,
    VectorOperation.SUBTRACT: lambda a, b: a - b,
    VectorOperation.MINIMUM: min,
    VectorOperation.MAXIMUM: max,
}


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize(("sa", "sb", "sy", "za", "zb", "zy"), ADD_SCALES)
def test_combinations_tflite(
    sa: float, sb: float, sy: float, za: int, zb: int, zy: int, combine: VectorOperation
) -> None:
    """TFLite's SUB is its ADD with a minus between the rescaled operands; so are the minimum and maximum."""
    params = tflite_sum(sa, za, sb, zb, sy, zy, hi=120, operation=combine)
    a, b = all_pairs()
    got = add(a, b, params)
    assert np.array_equal(got, add_integer(a, b, params))
    for i in range(0, a.size, 97):
        u = gemmlowp_scale((int(a[i]) - za) << 20, params.mult_a, params.shift_a)
        v = gemmlowp_scale((int(b[i]) - zb) << 20, params.mult_b, params.shift_b)
        y = gemmlowp_scale(COMBINE[combine](u, v), params.mult_out, params.shift_out) + zy
        assert got[i] == max(-128, min(120, y))


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize(("sa", "sb", "sy", "za", "zb", "zy"), ADD_SCALES)
def test_combinations_onnx(
    sa: float, sb: float, sy: float, za: int, zb: int, zy: int, combine: VectorOperation
) -> None:
    params = onnx_sum(sa, za, sb, zb, sy, zy, lo=-99, operation=combine)
    a, b = all_pairs()
    got = add(a, b, params)
    assert np.array_equal(got, add_integer(a, b, params))
    ma, mb = np.float32(sa) / np.float32(sy), np.float32(sb) / np.float32(sy)
    for i in range(0, a.size, 97):
        u, v = ma * np.float32(int(a[i]) - za), mb * np.float32(int(b[i]) - zb)
        y = COMBINE[combine](u, v)
        assert y.dtype == np.float32
        assert got[i] == max(-99, min(127, int(np.rint(y)) + zy))


@pytest.mark.parametrize("zero_point", [-128, -5, 0, 127])
@pytest.mark.parametrize("scale", [2.0**-7, 0.0235, 3.7])
@pytest.mark.parametrize("make", [tflite_sum, onnx_sum])
def test_minimum_and_maximum_with_equal_scales_are_those_of_the_bytes(
    make: Callable[..., VectorParameters], scale: float, zero_point: int
) -> None:
    a, b = all_pairs()
    same = (scale, zero_point) * 3
    assert np.array_equal(add(a, b, make(*same, operation=VectorOperation.MINIMUM)), np.minimum(a, b))
    assert np.array_equal(add(a, b, make(*same, operation=VectorOperation.MAXIMUM)), np.maximum(a, b))


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("rounding", list(Rounding))
def test_add_is_total(rounding: Rounding, combine: VectorOperation) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.integers(-128, 128, (2, 500)).astype(np.int8)
    for _ in range(200):
        q, e = rng.integers(0, 2**31, 3).tolist(), rng.integers(-32, 32, 3).tolist()
        za, zb, zy, lo, hi = rng.integers(-128, 128, 5).tolist()
        params = VectorParameters(
            rounding=rounding,
            za=za,
            zb=zb,
            zy=zy,
            mult_a=q[0],
            shift_a=e[0],
            mult_b=q[1],
            shift_b=e[1],
            mult_out=q[2],
            shift_out=e[2],
            lo=lo,
            hi=hi,
            operation=combine,
        )
        assert np.array_equal(add(a, b, params), add_integer(a, b, params))


def test_add_refuses_scales() -> None:
    with pytest.raises(ValueError, match=r"factor of the sum must be in \(0, 1\)"):
        tflite_sum(1.0, 0, 1.0, 0, 2.0**-19, 0)
    with pytest.raises(ValueError, match=r"operand a must be in \[2\*\*-17, 2\*\*7\)"):
        onnx_sum(128.0, 0, 1.0, 0, 1.0, 0)
    with pytest.raises(ValueError, match=r"operand b must be in \[2\*\*-17, 2\*\*7\)"):
        onnx_sum(1.0, 0, 2.0**-18, 0, 1.0, 0)
    assert onnx_sum(127.99, 0, 2.0**-17, 0, 1.0, 0).shift_a == 7
