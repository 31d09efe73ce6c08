"""Sums and products of two tensors, against ONNX Runtime on every pair of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from dovetail.isa.numerics.add import onnx_sum
from dovetail.isa.numerics.multiplier import encode_multiplier, onnx_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.frontend.onnx.operators.fit import (
    fit,
    plain_fit,
    results,
    runtime_pair,
    runtime_product,
    runtime_sum,
)
from dovetail.sw.host.onnx_session import open_session

LEVELS = np.arange(-128, 128)
A, B = (part.ravel() for part in np.meshgrid(LEVELS, LEVELS, indexing="ij"))

Scales = NDArray[np.float32]


def runtime(
    op: str, scales: Scales, zeros: list[int], kind: type[np.integer[Any]] = np.uint8, pairs: Any = (A, B)
) -> NDArray[Any]:
    """What ONNX Runtime makes of pairs of int8 (every one, if none are given) in the type ``kind``."""
    offset = 128 if kind is np.uint8 else 0
    names = [f"{name}{part}" for name in "aby" for part in ("_scale", "_zero")]
    constants = [
        numpy_helper.from_array(np.array(value, dtype), name)
        for k, name in enumerate(names)
        for value, dtype in [(scales[k // 2], np.float32) if k % 2 == 0 else (zeros[k // 2] + offset, kind)]
    ]
    levels = [(side + offset).astype(kind) for side in pairs]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    ports = [helper.make_tensor_value_info(n, element, x.shape) for n, x in zip("ab", levels, strict=True)]
    if op.startswith("QLinear"):
        nodes = [helper.make_node(op, ["a", *names[:2], "b", *names[2:]], ["y"], domain="com.microsoft")]
    else:
        nodes = [helper.make_node("DequantizeLinear", [n, f"{n}_scale", f"{n}_zero"], [f"{n}r"]) for n in "ab"]
        nodes.append(helper.make_node(op, ["ar", "br"], ["yr"]))
        nodes.append(helper.make_node("QuantizeLinear", ["yr", *names[4:]], ["y"]))
    result = helper.make_tensor_value_info("y", element, None)
    graph = helper.make_graph(nodes, op, ports, [result], constants)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (found,) = open_session(model.SerializeToString()).run(None, dict(zip("ab", levels, strict=True)))
    return np.asarray(found, np.int16) - offset


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(5)


def quantisations(random: np.random.Generator) -> tuple[Scales, list[int]]:
    scales = (0.05 * np.exp(random.uniform(-1, 1, 3))).astype(np.float32)
    return scales, [int(zero) for zero in random.integers(-128, 128, 3)]


def sum_of(scales: Scales, zeros: list[int], kind: VectorOperation = VectorOperation.ADD) -> VectorParameters:
    (sa, sb, sy), (za, zb, zy) = (float(scale) for scale in scales), zeros
    return onnx_sum(sa, za, sb, zb, sy, zy, operation=kind)


def factors(scales: Scales) -> tuple[np.float32, np.float32]:
    return scales[0] / scales[2], scales[1] / scales[2]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_sums_are_those_of_onnx_runtime(random: np.random.Generator, kind: type[np.integer[Any]]) -> None:
    """Every one of 60; a fifth of them are not with the factors that their scales say."""
    plain = 0
    for _ in range(60):
        scales, zeros = quantisations(random)
        params = sum_of(scales, zeros)
        wanted = runtime("QLinearAdd", scales, zeros, kind)
        assert np.array_equal(runtime_sum(params, factors(scales), 128 if kind is np.uint8 else 0), wanted)
        fitted = fit(params, wanted.astype(np.int8))
        assert fitted is not None
        assert np.array_equal(results(fitted), wanted)
        plain += fitted == params
    assert plain < 55


@pytest.mark.parametrize(
    ("scales", "zeros", "kind"),
    [
        # Mirror images of which only one is a tie in float32, which no factor can tell apart.
        ([0.07213914394378662, 0.08878492563962936, 0.026984307914972305], [14, 77, -37], np.int8),
        ([0.06890534609556198, 0.030057961121201515, 0.08554623275995255], [99, -74, 95], np.uint8),
        ([0.03465842455625534, 0.032226547598838806, 0.12033551186323166], [-16, 1, -98], np.int8),
        ([0.040129583328962326, 0.05110064521431923, 0.023111023008823395], [54, 16, -74], np.uint8),
    ],
)
def test_sums_that_factors_alone_do_not_mend(scales: list[float], zeros: list[int], kind: Any) -> None:
    steps = np.array(scales, np.float32)
    params, wanted = sum_of(steps, zeros), runtime("QLinearAdd", steps, zeros, kind).astype(np.int8)
    fitted = fit(params, wanted)
    assert plain_fit(params, wanted) is None
    assert fitted is not None
    assert np.array_equal(results(fitted), wanted)


@pytest.mark.parametrize("scales", [(0.5, 0.5, 1.0), (0.25, 0.5, 1.0), (0.125, 1.0, 0.5), (0.375, 0.25, 0.5)])
@pytest.mark.parametrize("zero", [1, -37, 127, -128])
def test_ties_with_an_odd_zero_point(scales: tuple[float, float, float], zero: int) -> None:
    steps, zeros = np.array(scales, np.float32), [3, -4, zero]
    params, wanted = sum_of(steps, zeros), runtime("QLinearAdd", steps, zeros).astype(np.int8)
    fitted = fit(params, wanted)
    assert fitted is not None
    assert np.array_equal(results(fitted), wanted)
    assert (plain_fit(params, wanted) is None) == bool(zero % 2)


def test_what_has_no_fit_is_left_to_the_host() -> None:
    """Ties at sixths, which float32 does not hold: no sum of the accelerator has all of them."""
    steps, zeros = np.array([0.046875, 0.0625, 0.1875], np.float32), [117, 81, 49]
    assert fit(sum_of(steps, zeros), runtime("QLinearAdd", steps, zeros).astype(np.int8)) is None


def product_of(zeros: list[int], mult: int, shift: int) -> VectorParameters:
    za, zb, zy = zeros
    rounding, operation = Rounding.ONNX, VectorOperation.MULTIPLY
    return VectorParameters(operation=operation, rounding=rounding, za=za, zb=zb, zy=zy, mult_out=mult, shift_out=shift)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_products_are_those_of_onnx_runtime(random: np.random.Generator, kind: type[np.integer[Any]]) -> None:
    for _ in range(30):
        scales, zeros = quantisations(random)
        wanted = runtime("QLinearMul", scales, zeros, kind)
        factor = np.float32(onnx_multiplier(*scales))
        mult, shift = (int(value) for value in encode_multiplier(factor, Rounding.ONNX))
        params = product_of(zeros, mult, shift)
        assert np.array_equal(runtime_product(params, factor, 128 if kind is np.uint8 else 0), wanted)
        fitted = fit(params, wanted.astype(np.int8))
        assert fitted is not None
        assert np.array_equal(results(fitted), wanted)


def test_how_many_of_decimal_scales_fit(random: np.random.Generator) -> None:
    """Ties are many there, and ONNX Runtime decides them with the zero point in 24 bits; `dovetail docs operators`."""
    sums = products = 0
    for _ in range(40):
        scales = (random.integers(5, 100, 3) / 1000).astype(np.float32)
        zeros = [int(zero) for zero in random.integers(-128, 128, 3)]
        params = sum_of(scales, zeros)
        sums += fit(params, runtime_sum(params, factors(scales), 128)) is not None
        factor = np.float32(onnx_multiplier(*scales))
        mult, shift = (int(value) for value in encode_multiplier(factor, Rounding.ONNX))
        product = product_of(zeros, mult, shift)
        products += fit(product, runtime_product(product, factor, 128)) is not None
    assert sums >= 27
    assert products >= 36


@pytest.mark.parametrize(
    ("op", "kind"),
    [("Sub", VectorOperation.SUBTRACT), ("Min", VectorOperation.MINIMUM), ("Max", VectorOperation.MAXIMUM)],
)
def test_pairs_without_a_kernel(random: np.random.Generator, op: str, kind: VectorOperation) -> None:
    for _ in range(15):
        scales, zeros = quantisations(random)
        params, wanted = sum_of(scales, zeros, kind), runtime(op, scales, zeros)
        assert np.array_equal(runtime_pair(params, (scales[0], scales[1], scales[2])), wanted)
        fitted = fit(params, wanted.astype(np.int8))
        assert fitted is not None
        assert np.array_equal(results(fitted), wanted)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_a_result_depends_on_its_bytes_and_not_on_its_place(
    random: np.random.Generator, op: str, kind: type[np.integer[Any]]
) -> None:
    """Bodies and tails of ONNX Runtime's vectors alike: pairs next to a tie at every place of tensors of 2 to 67."""
    scales, zeros = quantisations(random)
    every = runtime(op, scales, zeros, kind).reshape(256, 256)
    real = (A - zeros[0]) * scales[0].astype(np.float64)
    other = (B - zeros[1]) * scales[1].astype(np.float64)
    exact = (real + other if op == "QLinearAdd" else real * other) / scales[2]
    near = np.argsort(np.abs(exact - np.floor(exact) - 0.5) + (np.abs(exact + zeros[2]) > 127))[:4]
    for length in (2, 7, 16, 31, 33, 67):
        for pair in near:
            sides = (np.full(length, A[pair]), np.full(length, B[pair]))
            found = runtime(op, scales, zeros, kind, sides)
            assert (found == every.ravel()[pair]).all()


@pytest.mark.parametrize("first", [True, False])
def test_an_operand_of_one_value_for_a_run_is_the_second(random: np.random.Generator, first: bool) -> None:
    for _ in range(10):
        scales, zeros = quantisations(random)
        rows = LEVELS[:, None] + np.zeros((1, 256), int)
        sides = (LEVELS.reshape(256, 1), rows.T) if first else (rows.T, LEVELS.reshape(256, 1))
        found = runtime("QLinearAdd", scales, zeros, np.uint8, sides)
        every = runtime_sum(sum_of(scales, zeros), factors(scales), 128, swapped=first).reshape(256, 256)
        assert np.array_equal(found, every if first else every.T)
