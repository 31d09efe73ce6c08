"""Factors of sums and products, against ONNX Runtime's integer kernels on every pair of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.numerics import AddParams, Rounding, add, encode_multiplier, multiply, onnx_multiplier
from dovetail.sw.frontend.onnx_fit import fit_product, fit_sum
from dovetail.sw.graph import MulParams

A, B = (part.ravel() for part in np.meshgrid(*2 * [np.arange(-128, 128, dtype=np.int8)], indexing="ij"))


def runtime(op: str, scales: NDArray[np.float32], zeros: list[int]) -> NDArray[Any]:
    """What ONNX Runtime makes of every pair of bytes."""
    names = [f"{name}{kind}" for name in "aby" for kind in ("_scale", "_zero")]
    constants = [
        numpy_helper.from_array(np.array(value, dtype), name)
        for k, name in enumerate(names)
        for value, dtype in [(scales[k // 2], np.float32) if k % 2 == 0 else (zeros[k // 2] + 128, np.uint8)]
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.UINT8, [A.size]) for name in "aby"]
    node = helper.make_node(op, ["a", *names[:2], "b", *names[2:]], ["y"], domain="com.microsoft")
    graph = helper.make_graph([node], op, ports[:2], ports[2:], constants)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (result,) = session.run(
        None, {name: (x.astype(np.int16) + 128).astype(np.uint8) for name, x in (("a", A), ("b", B))}
    )
    return np.asarray(result, np.int16) - 128


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(5)


def quantisations(random: np.random.Generator) -> tuple[NDArray[np.float32], list[int]]:
    scales = (0.05 * np.exp(random.uniform(-1, 1, 3))).astype(np.float32)
    return scales, [int(zero) for zero in random.integers(-128, 128, 3)]


def test_most_sums_are_those_of_onnx_runtime(random: np.random.Generator) -> None:
    differing = []
    for _ in range(60):
        scales, zeros = quantisations(random)
        wanted = runtime("QLinearAdd", scales, zeros)
        (sa, sb, sy), (za, zb, zy) = (float(scale) for scale in scales), zeros
        plain = AddParams.onnx(sa, za, sb, zb, sy, zy)
        fitted = fit_sum(plain, (scales[0] / scales[2], scales[1] / scales[2]))
        differing.append([int((add(A, B, params) != wanted).sum()) for params in (plain, fitted)])
    before, after = np.array(differing).T
    assert (after <= before).all()
    assert (before > 0).sum() >= 10
    assert (after > 0).sum() <= 6


def test_products_are_those_of_onnx_runtime(random: np.random.Generator) -> None:
    for _ in range(60):
        scales, zeros = quantisations(random)
        wanted = runtime("QLinearMul", scales, zeros)
        factor = np.float32(onnx_multiplier(*scales))
        mult, shift = (int(value) for value in encode_multiplier(factor, Rounding.ONNX))
        params = fit_product(MulParams(Rounding.ONNX, zeros[0], zeros[1], zeros[2], mult, shift, -128, 127), factor)
        result = multiply(A, B, params.za, params.zb, params.mult, params.shift, Rounding.ONNX, params.zy)
        assert np.array_equal(result, wanted)


def test_true_ties_stay_as_they_are() -> None:
    params = AddParams.onnx(0.5, 0, 0.5, 0, 1.0, 1)
    assert fit_sum(params, (np.float32(0.5), np.float32(0.5))) == params
