"""Scaling and requantisation against measured vectors, hand-worked values and brute force."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dovetail.isa.numerics.multiplier import (
    encode_multiplier,
    onnx_multiplier,
    tflite_multiplier,
)
from dovetail.isa.numerics.requantise import requantise, requantise_integer, scale_tflite
from dovetail.isa.numerics.rounding import Rounding
from tests.isa.numerics.by_hand import INT32_CORNERS, float32_scale, gemmlowp_scale, random_encoded
from tests.scaling import corner_arrays

VECTORS = Path(__file__).resolve().parents[4] / "shared/models/requantisation/requant_vectors.npz"


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
    assert int(requantise(acc, mult, shift, Rounding.TFLITE)) == result


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
    assert int(requantise(acc, mult, shift, Rounding.ONNX)) == result
    assert int(requantise_integer(acc, mult, shift, Rounding.ONNX, 0, -128, 127)) == result


def test_zero_point_then_clamp() -> None:
    acc = np.array([-1000, -10, 0, 10, 1000])
    for rounding, mult, shift in ((Rounding.TFLITE, 2**30, 1), (Rounding.ONNX, 2**23, 1)):
        assert requantise(acc, mult, shift, rounding, 5, 0, 12).tolist() == [0, 0, 5, 12, 12]
        assert requantise(acc, mult, shift, rounding, -128).tolist() == [-128, -128, -128, -118, 127]


def test_tflite_against_gemmlowp_steps() -> None:
    rng = np.random.default_rng(3)
    acc, mult, shift = random_encoded(rng, Rounding.TFLITE, 20000)
    got = scale_tflite(acc, mult, shift)
    expected = [gemmlowp_scale(int(a), int(q), int(e)) for a, q, e in zip(acc, mult, shift, strict=True)]
    assert got.tolist() == expected


@pytest.mark.parametrize("shift", range(-32, 32))
def test_corner_accumulators(shift: int) -> None:
    for mult in (0, 1, 2**30, 2**30 + 1, 2**31 - 1):
        expected = [gemmlowp_scale(a, mult, shift) for a in INT32_CORNERS]
        assert scale_tflite(np.array(INT32_CORNERS), mult, shift).tolist() == expected
    for mult in (0, 2**23, 2**23 + 1, 2**24 - 1):
        clamped = [max(-128, min(127, float32_scale(a, mult, shift))) for a in INT32_CORNERS]
        exact = requantise_integer(np.array(INT32_CORNERS), mult, shift, Rounding.ONNX, 0, -128, 127)
        assert exact.tolist() == clamped


@pytest.mark.parametrize("rounding", list(Rounding))
def test_corners_of_scaling(rounding: Rounding) -> None:
    acc, mult, shift, expected = corner_arrays(rounding)
    assert np.array_equal(requantise_integer(acc, mult, shift, rounding, 0, -128, 127), expected)
    for one in np.unique(mult):
        same = mult == one
        got = requantise(acc[same], one, shift[same], rounding)
        assert np.array_equal(got, expected[same]), one


def test_onnx_float32_path_is_the_integer_definition() -> None:
    rng = np.random.default_rng(4)
    acc, mult, shift = random_encoded(rng, Rounding.ONNX, 200_000)
    fast = requantise(acc, mult, shift, Rounding.ONNX, 3, -100, 90)
    assert np.array_equal(fast, requantise_integer(acc, mult, shift, Rounding.ONNX, 3, -100, 90))


@pytest.mark.parametrize("rounding", list(Rounding))
def test_requantise_blocks_and_channels(rounding: Rounding) -> None:
    rng = np.random.default_rng(5)
    acc = rng.integers(-(2**20), 2**20, (3, 70, 40, 24), dtype=np.int32)
    mult, shift = encode_multiplier(rng.uniform(1e-5, 1e-3, 24), rounding)
    whole = requantise(acc, mult, shift, rounding, -7)
    assert whole.dtype == np.int8 and whole.shape == acc.shape
    assert np.array_equal(whole, requantise_integer(acc, mult, shift, rounding, -7, -128, 127))
    one = requantise(acc, int(mult[0]), int(shift[0]), rounding, -7)
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
        mult, shift = encode_multiplier(tflite_multiplier(*scales), rounding)
        assert np.array_equal(mult, v["q31_multiplier"]) and np.array_equal(shift, v["q31_shift"])
    else:
        factor = onnx_multiplier(*scales)
        assert np.array_equal(factor, v["f32_multiplier"])
        mult, shift = encode_multiplier(factor, rounding)
    assert len(v["acc"]) == 14_200 and set(v["zero_point"]) == {3}
    assert np.array_equal(requantise(v["acc"], mult, shift, rounding, 3), v[column])
    assert np.array_equal(requantise_integer(v["acc"], mult, shift, rounding, 3, -128, 127), v[column])
