"""The numerics against measured vectors, hand-worked values and brute force."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dovetail.isa import numerics
from dovetail.isa.numerics import AddParams, Rounding, VectorOperation
from tests.scaling import corner_arrays

VECTORS = Path(__file__).resolve().parents[3] / "shared/models/requantisation/requant_vectors.npz"

INT32_CORNERS = [
    0,
    1,
    -1,
    2**23,
    2**24 - 1,
    2**24 + 1,
    -(2**24) - 1,
    2**24 + 3,
    2**31 - 1,
    -(2**31) + 1,
    -(2**31),
]


def gemmlowp_scale(acc: int, mult: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier step by step in Python integers, with C's truncating division."""
    a = (acc << max(shift, 0)) & 0xFFFFFFFF
    a -= (a >> 31) << 32
    product = a * mult
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    high = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)
    exponent = max(-shift, 0)
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (high < 0)
    return (high >> exponent) + ((high & mask) > threshold)


def float32_scale(acc: int, mult: int, shift: int) -> int:
    """The ONNX rounding in actual float32 arithmetic."""
    factor = np.float32(np.ldexp(np.float64(mult), shift - 24))
    return int(np.rint(np.float32(acc) * factor))


def random_encoded(rng: np.random.Generator, rounding: Rounding, size: int) -> tuple[Any, Any, Any]:
    """Accumulators of all magnitudes and multipliers that bring most of them near int8."""
    bits = rng.integers(0, 32, size)
    acc = rng.integers(-(2**31), 2**31, size) >> bits
    width = 31 if rounding == Rounding.TFLITE else 24
    mult = rng.integers(1 << (width - 1), 1 << width, size)
    shift = np.clip(bits - 24 + rng.integers(-4, 4, size), -32, 31)
    return acc, mult, shift


# --- building blocks ---


def test_round_half_even_shift_pins() -> None:
    values = np.array([0, 1, 2, 3, 5, 6, 7, -1, -2, -3, -6, 10])
    assert numerics.round_half_even_shift(values, 2).tolist() == [0, 0, 0, 1, 1, 2, 2, 0, 0, -1, -2, 2]
    assert numerics.round_half_even_shift(7, 0) == 7
    assert numerics.round_half_even_shift(-(2**61) - 2**61, 62) == -1


def test_round_half_even_shift_brute_force() -> None:
    values = np.arange(-300, 300)
    for shift in range(12):
        expected = [round(Fraction(int(v), 1 << shift)) for v in values]
        assert numerics.round_half_even_shift(values, shift).tolist() == expected


def test_round_to_24_is_float32() -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(-(2**62), 2**62, 20000) >> rng.integers(0, 62, 20000)
    values = np.concatenate([values, INT32_CORNERS, [2**25 + 2, 2**25 + 6, 2**54 - 1, 2**53 + 1, 2**62 - 1]])
    assert np.array_equal(numerics.round_to_24(values), values.astype(np.float32).astype(np.int64))


def test_round_to_24_pins() -> None:
    assert numerics.round_to_24(2**24 + 1) == 2**24
    assert numerics.round_to_24(2**24 + 3) == 2**24 + 4
    assert numerics.round_to_24(-(2**24) - 3) == -(2**24) - 4
    assert numerics.round_to_24(2**31 - 1) == 2**31


# --- multipliers ---


def test_encode_tflite_pins() -> None:
    mult, shift = numerics.encode_multiplier(np.array([1.0, 0.5, 0.75, 3.0, 0.0]), Rounding.TFLITE)
    assert mult.tolist() == [2**30, 2**30, 3 * 2**29, 3 * 2**29, 0]
    assert shift.tolist() == [1, 0, 0, 2, 0]


def test_encode_tflite_mantissa_that_rounds_up_to_one() -> None:
    mult, shift = numerics.encode_multiplier(1.0 - 2.0**-40, Rounding.TFLITE)
    assert (int(mult), int(shift)) == (2**30, 1)


@pytest.mark.parametrize(("exponent", "encoded"), [(-32, (2**30, -31)), (-33, (0, 0))])
def test_encode_tflite_flushes_tiny(exponent: int, encoded: tuple[int, int]) -> None:
    mult, shift = numerics.encode_multiplier(2.0**exponent, Rounding.TFLITE)
    assert (int(mult), int(shift)) == encoded


@pytest.mark.parametrize(("exponent", "encoded"), [(-33, (2**23, -32)), (-34, (0, 0)), (-149, (0, 0))])
def test_encode_onnx_flushes_what_cannot_matter(exponent: int, encoded: tuple[int, int]) -> None:
    mult, shift = numerics.encode_multiplier(np.float32(2.0**exponent), Rounding.ONNX)
    assert (int(mult), int(shift)) == encoded
    assert np.rint(np.float32(-(2**31)) * np.float32(2.0**-33)) == 0


def test_encode_onnx_is_exact() -> None:
    values = np.random.default_rng(2).uniform(1e-8, 4, 1000).astype(np.float32)
    mult, shift = numerics.encode_multiplier(values, Rounding.ONNX)
    assert np.array_equal(np.ldexp(mult.astype(np.float64), shift - 24), values.astype(np.float64))
    assert mult.min() >= 2**23 and mult.max() < 2**24


@pytest.mark.parametrize("rounding", list(Rounding))
@pytest.mark.parametrize("value", [2.0**31, -1.0, float("nan"), float("inf")])
def test_encode_refuses(value: float, rounding: Rounding) -> None:
    with pytest.raises(ValueError, match="multiplier must be"):
        numerics.encode_multiplier(value, rounding)


def test_multiplier_order() -> None:
    sx, sw, sy = np.float32(0.1), np.float32(0.3), np.float32(0.7)
    assert numerics.tflite_multiplier(sx, sw, sy) == float(sx) * float(sw) / float(sy)
    assert numerics.tflite_dense_multiplier(sx, sw, sy) == float(sx * sw) / float(sy)
    assert numerics.tflite_dense_multiplier(sx, sw, sy) != numerics.tflite_multiplier(sx, sw, sy)
    assert numerics.onnx_multiplier(sx, sw, sy) == (sx * sw) / sy


# --- requantisation ---


@pytest.mark.parametrize(
    ("acc", "mult", "shift", "result"),
    [
        (100, 2**30, 0, 50),
        (3, 2**30, 0, 2),  # first rounding: 1.5 goes up,
        (-3, 2**30, 0, -1),  # and -1.5 also
        (3, 2**30, -1, 1),  # second rounding: 2 / 2
        (-6, 2**30, -1, -2),  # -1.5, away from zero
        (6, 2**30, -1, 2),
        (-(2**31), 2**31 - 1, -31, -1),
        (2**31 - 1, 2**31 - 1, -31, 1),
        (2**30, 2**30, 1, -128),  # the left shift wraps to -2**31
        (2**30 + 5, 2**30, 2, 10),
        (1, 2**30, 31, -128),
    ],
)
def test_tflite_pins(acc: int, mult: int, shift: int, result: int) -> None:
    assert int(numerics.requantise(acc, mult, shift, Rounding.TFLITE)) == result


@pytest.mark.parametrize(
    ("acc", "mult", "shift", "result"),
    [
        (1, 2**23, 0, 0),  # 0.5
        (3, 2**23, 0, 2),  # 1.5
        (5, 2**23, 0, 2),  # 2.5
        (-5, 2**23, 0, -2),
        (-7, 2**23, 0, -4),
        (2**24 + 1, 2**23, -23, 1),
        (3 * (2**24 + 1), 2**23, -24, 2),  # 1.5 + 2**-24 has 25 significant bits: the float32 is a tie
        (-(2**31), 2**23, -30, -1),
        (-(2**31), 2**23, -31, 0),  # -0.5
        (-(2**31), 2**24 - 1, -32, 0),
        (1, 2**23, 1, 1),
        (1, 2**23, 31, 127),
        (-1, 2**23, 31, -128),
    ],
)
def test_onnx_pins(acc: int, mult: int, shift: int, result: int) -> None:
    assert int(numerics.requantise(acc, mult, shift, Rounding.ONNX)) == result
    assert int(numerics.requantise_integer(acc, mult, shift, Rounding.ONNX, 0, -128, 127)) == result


def test_zero_point_then_clamp() -> None:
    acc = np.array([-1000, -10, 0, 10, 1000])
    for rounding, mult, shift in ((Rounding.TFLITE, 2**30, 1), (Rounding.ONNX, 2**23, 1)):
        assert numerics.requantise(acc, mult, shift, rounding, 5, 0, 12).tolist() == [0, 0, 5, 12, 12]
        assert numerics.requantise(acc, mult, shift, rounding, -128).tolist() == [-128, -128, -128, -118, 127]


def test_tflite_against_gemmlowp_steps() -> None:
    rng = np.random.default_rng(3)
    acc, mult, shift = random_encoded(rng, Rounding.TFLITE, 20000)
    got = numerics.scale_tflite(acc, mult, shift)
    expected = [gemmlowp_scale(int(a), int(q), int(e)) for a, q, e in zip(acc, mult, shift, strict=True)]
    assert got.tolist() == expected


@pytest.mark.parametrize("shift", range(-32, 32))
def test_corner_accumulators(shift: int) -> None:
    for mult in (0, 1, 2**30, 2**30 + 1, 2**31 - 1):
        expected = [gemmlowp_scale(a, mult, shift) for a in INT32_CORNERS]
        assert numerics.scale_tflite(np.array(INT32_CORNERS), mult, shift).tolist() == expected
    for mult in (0, 2**23, 2**23 + 1, 2**24 - 1):
        clamped = [max(-128, min(127, float32_scale(a, mult, shift))) for a in INT32_CORNERS]
        exact = numerics.requantise_integer(np.array(INT32_CORNERS), mult, shift, Rounding.ONNX, 0, -128, 127)
        assert exact.tolist() == clamped


@pytest.mark.parametrize("rounding", list(Rounding))
def test_corners_of_scaling(rounding: Rounding) -> None:
    acc, mult, shift, expected = corner_arrays(rounding)
    assert np.array_equal(numerics.requantise_integer(acc, mult, shift, rounding, 0, -128, 127), expected)
    for one in np.unique(mult):
        same = mult == one
        got = numerics.requantise(acc[same], one, shift[same], rounding)
        assert np.array_equal(got, expected[same]), one


def test_onnx_float32_path_is_the_integer_definition() -> None:
    rng = np.random.default_rng(4)
    acc, mult, shift = random_encoded(rng, Rounding.ONNX, 200_000)
    fast = numerics.requantise(acc, mult, shift, Rounding.ONNX, 3, -100, 90)
    assert np.array_equal(fast, numerics.requantise_integer(acc, mult, shift, Rounding.ONNX, 3, -100, 90))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_requantise_blocks_and_channels(rounding: Rounding) -> None:
    rng = np.random.default_rng(5)
    acc = rng.integers(-(2**20), 2**20, (3, 70, 40, 24), dtype=np.int32)
    mult, shift = numerics.encode_multiplier(rng.uniform(1e-5, 1e-3, 24), rounding)
    whole = numerics.requantise(acc, mult, shift, rounding, -7)
    assert whole.dtype == np.int8 and whole.shape == acc.shape
    assert np.array_equal(whole, numerics.requantise_integer(acc, mult, shift, rounding, -7, -128, 127))
    one = numerics.requantise(acc, int(mult[0]), int(shift[0]), rounding, -7)
    assert np.array_equal(one[..., 0], whole[..., 0])


def measured() -> dict[str, npt.NDArray[Any]]:
    if not VECTORS.exists():
        pytest.skip("the trained networks are not beside the project")
    with np.load(VECTORS) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize(("rounding", "column"), [(Rounding.TFLITE, "tflm_conv"), (Rounding.ONNX, "ort_qlinearconv")])
def test_measured_vectors(rounding: Rounding, column: str) -> None:
    v = measured()
    scales = v["in_scale"], v["w_scale"], v["out_scale"]
    if rounding == Rounding.TFLITE:
        mult, shift = numerics.encode_multiplier(numerics.tflite_multiplier(*scales), rounding)
        assert np.array_equal(mult, v["q31_multiplier"]) and np.array_equal(shift, v["q31_shift"])
    else:
        factor = numerics.onnx_multiplier(*scales)
        assert np.array_equal(factor, v["f32_multiplier"])
        mult, shift = numerics.encode_multiplier(factor, rounding)
    assert len(v["acc"]) == 14_200 and set(v["zero_point"]) == {3}
    assert np.array_equal(numerics.requantise(v["acc"], mult, shift, rounding, 3), v[column])
    assert np.array_equal(numerics.requantise_integer(v["acc"], mult, shift, rounding, 3, -128, 127), v[column])


# --- addition ---


def all_pairs() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    codes = np.arange(-128, 128).astype(np.int8)
    return np.repeat(codes, 256), np.tile(codes, 256)


ADD_SCALES = [
    (0.0235, 0.0235, 0.0235, 0, 0, 0),
    (0.1, 0.05, 0.12, -128, -3, 7),
    (1.0, 2.0**-12, 0.9, 127, -128, -128),
    (2.0**-9, 0.3, 0.0042, 5, -77, 100),
]


@pytest.mark.parametrize(("sa", "sb", "sy", "za", "zb", "zy"), ADD_SCALES)
def test_add_tflite(sa: float, sb: float, sy: float, za: int, zb: int, zy: int) -> None:
    params = AddParams.tflite(sa, za, sb, zb, sy, zy, lo=-120)
    a, b = all_pairs()
    got = numerics.add(a, b, params)
    assert np.array_equal(got, numerics.add_integer(a, b, params))
    for i in range(0, a.size, 97):
        u = gemmlowp_scale((int(a[i]) - za) << 20, params.mult_a, params.shift_a)
        v = gemmlowp_scale((int(b[i]) - zb) << 20, params.mult_b, params.shift_b)
        y = gemmlowp_scale(u + v, params.mult_out, params.shift_out) + zy
        assert got[i] == max(-120, min(127, y))


@pytest.mark.parametrize(("sa", "sb", "sy", "za", "zb", "zy"), ADD_SCALES)
def test_add_onnx(sa: float, sb: float, sy: float, za: int, zb: int, zy: int) -> None:
    params = AddParams.onnx(sa, za, sb, zb, sy, zy, hi=101)
    a, b = all_pairs()
    ma, mb = np.float32(sa) / np.float32(sy), np.float32(sb) / np.float32(sy)
    v = ma * (a.astype(np.float32) - np.float32(za)) + mb * (b.astype(np.float32) - np.float32(zb))
    expected = np.clip(np.rint(v) + zy, -128, 101).astype(np.int8)
    assert v.dtype == np.float32
    assert np.array_equal(numerics.add(a, b, params), expected)
    assert np.array_equal(numerics.add_integer(a, b, params), expected)


def test_add_pins() -> None:
    equal = AddParams.tflite(0.5, 0, 0.5, 0, 0.5, 0)
    assert (equal.mult_a, equal.shift_a, equal.mult_out, equal.shift_out) == (2**30, 0, 2**30, -18)
    assert numerics.add(3, 4, equal) == 7
    halves = AddParams.onnx(0.5, 0, 0.5, 0, 1.0, 0)
    assert [int(numerics.add(a, 0, halves)) for a in (1, 3, 5, -3)] == [0, 2, 2, -2]
    tflite = AddParams.tflite(0.5, 0, 0.5, 0, 1.0, 0)
    assert [int(numerics.add(a, 0, tflite)) for a in (1, 3, 5, -3)] == [1, 2, 3, -2]


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
    params = AddParams.tflite(sa, za, sb, zb, sy, zy, hi=120, combine=combine)
    a, b = all_pairs()
    got = numerics.add(a, b, params)
    assert np.array_equal(got, numerics.add_integer(a, b, params))
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
    params = AddParams.onnx(sa, za, sb, zb, sy, zy, lo=-99, combine=combine)
    a, b = all_pairs()
    got = numerics.add(a, b, params)
    assert np.array_equal(got, numerics.add_integer(a, b, params))
    ma, mb = np.float32(sa) / np.float32(sy), np.float32(sb) / np.float32(sy)
    for i in range(0, a.size, 97):
        u, v = ma * np.float32(int(a[i]) - za), mb * np.float32(int(b[i]) - zb)
        y = COMBINE[combine](u, v)
        assert y.dtype == np.float32
        assert got[i] == max(-99, min(127, int(np.rint(y)) + zy))


@pytest.mark.parametrize("zero_point", [-128, -5, 0, 127])
@pytest.mark.parametrize("scale", [2.0**-7, 0.0235, 3.7])
@pytest.mark.parametrize("make", [AddParams.tflite, AddParams.onnx])
def test_minimum_and_maximum_with_equal_scales_are_those_of_the_bytes(
    make: Callable[..., AddParams], scale: float, zero_point: int
) -> None:
    a, b = all_pairs()
    same = (scale, zero_point) * 3
    assert np.array_equal(numerics.add(a, b, make(*same, combine=VectorOperation.MINIMUM)), np.minimum(a, b))
    assert np.array_equal(numerics.add(a, b, make(*same, combine=VectorOperation.MAXIMUM)), np.maximum(a, b))


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("rounding", list(Rounding))
def test_add_is_total(rounding: Rounding, combine: VectorOperation) -> None:
    rng = np.random.default_rng(6)
    a, b = rng.integers(-128, 128, (2, 500)).astype(np.int8)
    for _ in range(200):
        q, e = rng.integers(0, 2**31, 3).tolist(), rng.integers(-32, 32, 3).tolist()
        za, zb, zy, lo, hi = rng.integers(-128, 128, 5).tolist()
        params = AddParams(
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
            combine=combine,
        )
        assert np.array_equal(numerics.add(a, b, params), numerics.add_integer(a, b, params))


def test_add_refuses_scales() -> None:
    with pytest.raises(ValueError, match=r"factor of the sum must be in \(0, 1\)"):
        AddParams.tflite(1.0, 0, 1.0, 0, 2.0**-19, 0)
    with pytest.raises(ValueError, match=r"operand a must be in \[2\*\*-17, 2\*\*7\)"):
        AddParams.onnx(128.0, 0, 1.0, 0, 1.0, 0)
    with pytest.raises(ValueError, match=r"operand b must be in \[2\*\*-17, 2\*\*7\)"):
        AddParams.onnx(1.0, 0, 2.0**-18, 0, 1.0, 0)
    assert AddParams.onnx(127.99, 0, 2.0**-17, 0, 1.0, 0).shift_a == 7


# --- products, activations, 32 bits ---


@pytest.mark.parametrize(("za", "zb", "zy"), [(0, 0, 0), (-128, 127, -3), (5, -77, 100)])
@pytest.mark.parametrize("real", [0.0039, 0.01171875, 0.4321, 1.0 - 2.0**-20])
def test_multiply(real: float, za: int, zb: int, zy: int) -> None:
    """TFLite's MUL is one MultiplyByQuantizedMultiplier of the product; ONNX Runtime's is in float32."""
    a, b = all_pairs()
    for rounding in Rounding:
        mult, shift = (int(n) for n in numerics.encode_multiplier(np.float32(real), rounding))
        got = numerics.multiply(a, b, za, zb, mult, shift, rounding, zy, -100, 111)
        for i in range(0, a.size, 97):
            product = (int(a[i]) - za) * (int(b[i]) - zb)
            if rounding == Rounding.TFLITE:
                y = gemmlowp_scale(product, mult, shift)
            else:
                y = int(np.rint(np.float32(product) * np.float32(real)))
            assert got[i] == max(-100, min(111, y + zy))


def test_multiply_pins() -> None:
    half_tflite, half_onnx = (2**30, 0, Rounding.TFLITE), (2**23, 0, Rounding.ONNX)
    assert [int(numerics.multiply(a, 1, 0, 0, *half_tflite)) for a in (1, 3, 5, -3, 100)] == [1, 2, 3, -1, 50]
    assert [int(numerics.multiply(a, 1, 0, 0, *half_onnx)) for a in (1, 3, 5, -3, 100)] == [0, 2, 2, -2, 50]
    for mult, _, rounding in (half_tflite, half_onnx):  # a positive shift acts as 0
        for shift in (1, 5, 31):
            assert numerics.multiply(-128, -128, 127, 0, mult, shift, rounding) == 127
            assert numerics.multiply(7, 6, 0, 0, mult, shift, rounding) == 21


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 2.5])
@pytest.mark.parametrize(("zx", "zy"), [(0, 0), (-128, -128), (127, -7)])
def test_leaky_relu(alpha: float, zx: int, zy: int) -> None:
    total = np.arange(-128, 128) - zx
    real = 0.0321 / 0.0457
    for rounding in Rounding:
        q, e = (int(n) for n in numerics.encode_multiplier(np.float32(real), rounding))
        below, shift = (int(n) for n in numerics.encode_multiplier(np.float32(alpha * real), rounding))
        got = numerics.leaky_relu(total, q, e, below, shift, rounding, zy, -120, 119)
        scale = gemmlowp_scale if rounding == Rounding.TFLITE else float32_scale
        expected = [(scale(t, below, shift) if t < 0 else scale(t, q, e)) + zy for t in total.tolist()]
        assert got.tolist() == [max(-120, min(119, y)) for y in expected]
        assert got.dtype == np.int8


def test_leaky_relu_by_hand() -> None:
    total = np.array([-100, -3, -1, 0, 1, 3, 100])
    for rounding, bits in ((Rounding.TFLITE, 31), (Rounding.ONNX, 24)):
        one, quarter = (1 << bits - 1, 1), (1 << bits - 1, -1)
        assert numerics.leaky_relu(total, *one, *quarter, rounding, 2).tolist() == [-23, 1, 2, 2, 3, 5, 102]
        assert numerics.leaky_relu(total, *one, 0, 0, rounding).tolist() == [0, 0, 0, 0, 1, 3, 100]


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
    for shift in range(numerics.SHIFT_MIN, numerics.SHIFT_MAX + 1):
        got = numerics.shift32(np.array(values), shift, rounding).tolist()
        assert got == [exact_shift(v, shift, rounding) for v in values], shift


def test_shift32_pins() -> None:
    values = np.array([5, 6, 7, -5, -6, -7])
    assert numerics.shift32(values, -2, Rounding.TFLITE).tolist() == [1, 2, 2, -1, -2, -2]
    assert numerics.shift32(values, -2, Rounding.ONNX).tolist() == [1, 2, 2, -1, -2, -2]
    assert numerics.shift32(np.array([2, -2, 10]), -2, Rounding.TFLITE).tolist() == [1, -1, 3]
    assert numerics.shift32(np.array([2, -2, 10]), -2, Rounding.ONNX).tolist() == [0, 0, 2]
    assert [int(numerics.shift32(v, 31, Rounding.ONNX)) for v in (1, 2, 3)] == [-(2**31), 0, -(2**31)]
    assert [int(numerics.shift32(-(2**31), -32, r)) for r in Rounding] == [-1, 0]


# --- averages ---


def test_average_pins() -> None:
    sums = np.array([1, 3, 5, -1, -3, -5, 4, 0])
    assert numerics.average(sums, 2, Rounding.TFLITE).tolist() == [1, 2, 3, -1, -2, -3, 2, 0]
    assert numerics.average(sums, 2, Rounding.ONNX).tolist() == [0, 2, 2, 0, -2, -2, 2, 0]
    assert numerics.average_magic(1) == (2**30, 0)
    assert numerics.average_magic(3) == (-(-(2**33) // 6), -2)
    assert numerics.average_magic(2**14) == (2**30, -14)
    assert numerics.average_magic(2**15 - 1)[1] == -15


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_is_the_quotient(rounding: Rounding) -> None:
    for count in (1, 2, 3, 4, 6, 7, 49):
        sums = np.arange(-128 * count, 128 * count + 1)
        for total, mean in zip(sums.tolist(), numerics.average(sums, count, rounding).tolist(), strict=True):
            exact = Fraction(total, count)
            if rounding == Rounding.ONNX:
                assert mean == round(exact) == int(np.rint(np.float32(total) / np.float32(count)))
            else:
                assert mean == (1 if total >= 0 else -1) * int(abs(exact) + Fraction(1, 2))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_by_product_exhaustive(rounding: Rounding) -> None:
    for count in range(1, 130):
        sums = np.arange(-255 * count, 255 * count + 1)
        mult, shift = numerics.average_magic(count)
        product = numerics.average_product(sums, count, mult, shift, rounding)
        assert np.array_equal(product, numerics.average(sums, count, rounding)), count


@pytest.mark.parametrize("rounding", list(Rounding))
def test_average_by_product_large_counts(rounding: Rounding) -> None:
    """Around every tie and every integer, where a quotient can go wrong."""
    rng = np.random.default_rng(7)
    counts = [*rng.integers(130, 2**15, 60).tolist(), 2**14 - 1, 2**14, 2**13 + 1, 8191, 2**15 - 1, 2**15 - 2]
    for count in counts:
        near = (np.arange(0, 511)[:, None] * count // 2 + np.arange(-2, 3)).ravel()
        sums = np.concatenate([near, -near, rng.integers(-255 * count, 255 * count + 1, 500)])
        sums = sums[np.abs(sums) <= 255 * count]
        mult, shift = numerics.average_magic(count)
        assert mult < 2**31 and -15 <= shift <= 0
        product = numerics.average_product(sums, count, mult, shift, rounding)
        assert np.array_equal(product, numerics.average(sums, count, rounding)), count


def test_every_count_has_a_proven_magic() -> None:
    for count in range(1, 2**15):
        numerics.average_magic(count)


def test_average_magic_refuses() -> None:
    for count in (0, 2**15):
        with pytest.raises(ValueError, match=r"count must be in 1\.\.32767"):
            numerics.average_magic(count)
    with pytest.raises(ValueError, match="max_abs_sum must be small enough"):
        numerics.average_magic(3, 2**31)


@pytest.mark.parametrize(("count", "lift"), [(1, 0), (2, 1), (3, 1), (49, 5), (64, 6)])
def test_mean_multiplier(count: int, lift: int) -> None:
    mult, shift = numerics.encode_multiplier(0.5, Rounding.TFLITE)
    assert numerics.mean_multiplier(0.25, 0.5, count) == ((int(mult) << lift) // count, int(shift) - lift)


def test_mean_multiplier_refuses() -> None:
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        numerics.mean_multiplier(1.0, 1.0, 0)
