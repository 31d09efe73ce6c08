"""What transformers keep when they are quantised: the host joins as reals what it alone reads."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph, read_float
from dovetail.sw.quantise.parameters import Level, Range, activation, set_apart
from dovetail.sw.quantise.plan import plan
from dovetail.sw.quantise.quality import Comparison
from dovetail.sw.quantise.quantiser import apply, of_softmax
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.quantise.test_quantise import Net, planned, run, scales_of

BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "keyword_transformer.py"))
TOKENS = 20


@pytest.fixture(scope="module", params=[1.0, 0.02], ids=["as large", "small"])
def transformer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FloatGraph:
    """Two blocks; class token and positions as large as the spectra's embeddings, or as ViTs start with."""
    path = tmp_path_factory.mktemp("transformer") / "float.onnx"
    onnx.save(BENCHMARK["keyword_transformer"](2, 32, TOKENS, 12, 8, request.param), path)
    return FloatGraph(read_float(path))


def test_the_default_is_no_worse_than_matrix_products_alone(transformer: FloatGraph) -> None:
    """Within 1 dB. With every sum in integers it was 3 dB below: 34 instead of 41 dB, and 21 instead of 27."""
    calibration = Calibration(transformer, BENCHMARK["spectra"](8, 0, TOKENS, 12))
    others = [node.name for node in transformer.nodes if node.op_type not in ("MatMul", "Gemm", "Reshape", "Transpose")]
    alone = Scheme(keep_float=tuple(others))
    comparison, samples = Comparison(transformer), BENCHMARK["spectra"](8, 100, TOKENS, 12)
    default, products = (
        comparison.quality(apply(calibration, scheme).model, samples).worst for scheme in (Scheme(), alone)
    )
    assert default > products - 1
    (token,) = (transformer.constant(node.input[0]) for node in transformer.nodes if node.op_type == "Concat")
    assert token is not None
    assert default > (38 if np.abs(token).max() > 1 else 25)


def test_the_host_joins_what_it_alone_reads(transformer: FloatGraph) -> None:
    """All sums and the class token's concatenation; normalised results reach sums as they are, not as the matrix
    products' operands."""
    joins = [node.name for node in transformer.nodes if node.op_type in ("Add", "Concat")]
    quantised = apply(Calibration(transformer, BENCHMARK["spectra"](2, 0, TOKENS, 12)), Scheme())
    assert {"classed", "positioned", "block0_sum1", "block1_sum2"} <= set(joins) <= set(quantised.plan.floating)
    (sum2,) = (node for node in quantised.model.graph.node if node.name == "block0_sum2")
    assert "block0_norm1" in sum2.input


def test_outputs_equal_the_integer_kernels(transformer: FloatGraph) -> None:
    quantised = apply(Calibration(transformer, BENCHMARK["spectra"](2, 0, TOKENS, 12)), Scheme()).model
    compiled = compile_network(load(NetworkFile("net", quantised.SerializeToString())), Config())
    for sample in BENCHMARK["spectra"](2, 100, TOKENS, 12):
        (ours,) = compiled.run(sample).outputs.values()
        assert np.array_equal(ours, run(uint8_form(quantised), sample))


@pytest.mark.parametrize(
    ("constant", "made"), [(False, ["Conv", "Conv", "Add", "Conv"]), (True, ["Conv", "Add", "Conv"])]
)
def test_a_sum_that_integers_and_reals_read(constant: bool, made: list[str]) -> None:
    """Is one of integers, but for a constant operand: that would be quantised for this alone."""
    net = Net(1, 4, 6, 6)
    x = net.conv("x", 4, 4)
    both = net.op("Add", x, net.weights(1, 4, 6, 6) if constant else net.conv(x, 4, 4))
    reals = net.op("Softmax", both, axis=1)
    found = planned(net.model(net.op("Add", net.conv(both, 4, 4), reals)))
    assert found == (made, ["Add"] * constant + ["Softmax", "Add"])


def test_sums_of_integers_on_wish() -> None:
    net = Net(1, 4, 6, 6)
    both = net.op("Add", net.conv("x", 4, 4), net.conv("x", 4, 4))
    model = net.model(net.op("Softmax", both, axis=1))
    assert planned(model) == (["Conv", "Conv"], ["Add", "Softmax"])
    assert planned(model, "integer-sums") == (["Conv", "Conv", "Add"], ["Softmax"])


def test_a_sum_that_leaves_the_network_is_one_of_integers() -> None:
    net = Net(1, 4, 6, 6)
    assert planned(net.model(net.op("Add", net.conv("x", 4, 4), net.weights(1, 4, 6, 6))))[1] == []


@pytest.mark.parametrize(
    ("small", "result", "wanted"),
    [
        (0.05, 1.0, 65 / 64),
        (0.05, 0.99, 65 / 64),
        (0.05, 1.5, 1.5),
        (0.5, 1.0, 1.0),  # a branch of many steps moves the sum by itself
    ],
)
def test_a_sum_keeps_a_small_branch_on_average(small: float, result: float, wanted: float) -> None:
    """Its steps are not those of the large operand: what is below half a step would vanish from every sum."""
    net = Net(1, 4, 6, 6)
    one, other = net.conv("x", 4, 4), net.conv("x", 4, 4)
    total = net.op("Add", other, one)
    graph = FloatGraph(net.model(net.conv(total, 4, 4)))
    chosen = plan(graph, Scheme())
    steps = {one: 1.0, other: small, total: result}
    levels = {name: Level(np.float32(steps.get(name, 1.0)), 3, -128, 127) for name in chosen.tensors}
    found = set_apart(graph, chosen, levels)
    assert found == {**levels, total: replace(levels[total], scale=np.float32(wanted))}
    if wanted == 65 / 64:
        sums = [np.mean(np.rint((np.arange(-64, 64) + part) / wanted) * wanted) for part in (0, 0.3)]
        assert sums[1] - sums[0] == pytest.approx(0.3, rel=0.1)


def test_softmax_has_steps_that_the_accelerator_has() -> None:
    """Shares of many elements are small: their steps are as fine as the runtime's kernel bears. Others are as fine as
    shares are small; a whole number is 1, in float32 too, which 409 is not."""
    net = Net(1, 4, 20, 20)
    model = net.model(net.op("MatMul", net.op("Softmax", net.op("MatMul", "x", "x")), "x"))
    graph = FloatGraph(model)
    sample = {"x": np.random.default_rng(2).normal(0, 0.05, (1, 4, 20, 20)).astype(np.float32)}
    (softmax,) = (node.output[0] for node in graph.nodes if node.op_type == "Softmax")
    for text in ("", "integer-sums"):
        found, _ = scales_of(apply(Calibration(graph, [sample]), Scheme.parse(text)).model)[softmax]
        assert np.floor(np.float32(1) / np.float32(found)) == 4096
    steps = {("", 1.0): 256, ("", 0.7): 364, ("", 0.623): 408, ("", 0.06): 4096}
    steps |= {("symmetric", 1.0): 128, ("symmetric", 0.7): 181, ("power-of-two", 0.7): 128, ("power-of-two", 0.3): 256}
    for (text, high), levels in steps.items():
        scheme = Scheme.parse(text)
        scale = activation(scheme, of_softmax(scheme, Range(0.0, high))).scale
        assert np.floor(np.float32(1) / scale) == levels
