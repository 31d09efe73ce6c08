"""Matrix products whose results nothing quantises: int32 sums of the accelerator, times their step on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from dovetail.isa.config.resolved import Config
from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array, as_unsigned
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.frontend.test_onnx_operators import Qdq, agree, kinds

STEP, DEPTH, CHANNELS = 0.037, 21, 13
SUMS = ["dequantize_sums"]


class Product(Qdq):
    """A file with constant weights [DEPTH, CHANNELS] and biases in the sums' steps."""

    def __init__(self, dtype: Any, *, per_channel: bool, unsigned: bool = False, zero: int = 0) -> None:
        super().__init__(dtype)
        random = np.random.default_rng(7)
        kind, self.zero = (np.uint8 if unsigned else np.int8), zero
        info = np.iinfo(kind)
        self.levels: Array = random.integers(info.min, info.max + 1, (DEPTH, CHANNELS)).astype(kind)
        size = CHANNELS if per_channel else ()
        self.steps: Array = random.uniform(0.001, 0.01, size).astype(np.float32)
        self.zeros = np.full(size, zero, kind)
        self.biases = random.integers(-9000, 9000, CHANNELS).astype(np.int32)

    def weights(self, turned: bool = False) -> str:
        values = [self.constant(value) for value in (self.levels.T if turned else self.levels, self.steps, self.zeros)]
        return str(self.op("DequantizeLinear", *values, axis=int(not turned)))

    def bias(self, factor: float = 1.0) -> str:
        steps = (np.float32(STEP) * self.steps * np.float32(factor)).astype(np.float32)
        values = [self.constant(value) for value in (self.biases, steps, np.zeros(steps.shape, np.int32))]
        return str(self.op("DequantizeLinear", *values, axis=0))

    def done(self, result: Any) -> None:
        self.outputs.append(str(result))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", [(1, DEPTH), (5, DEPTH), (1, 5, DEPTH), (1, 2, 3, DEPTH)])
def test_products_without_a_bias(tmp_path: Path, shape: tuple[int, ...], per_channel: bool) -> None:
    net = Product(np.uint8, per_channel=per_channel)
    net.done(net.op("MatMul", net.input(shape, (STEP, 9)), net.weights()))
    assert kinds(agree(net, tmp_path, hosted=SUMS)) == ["dense", *SUMS]


def test_int8_activations(tmp_path: Path) -> None:
    """As in the uint8 form, if the file has one; else ONNX Runtime computes the product in float."""
    net = Product(np.int8, per_channel=True)
    x = net.input((5, DEPTH), (STEP, 9))
    net.done(net.op("MatMul", x, net.weights()))
    assert kinds(agree(net, tmp_path, hosted=["dequantize", "matmul"])) == ["dequantize", "matmul"]
    net.output(net.op("Relu", x), (STEP, -128))
    graph = load_of(net, tmp_path)
    levels = np.random.default_rng(3).integers(-128, 128, (5, DEPTH)).astype(np.int8)
    session = open_session(uint8_form(onnx.load_model_from_string(net.model())).SerializeToString())
    wanted, _ = session.run(net.outputs, {"x0": as_unsigned(levels)})
    np.testing.assert_array_equal(reference.run(graph, levels)[net.outputs[0]], wanted)
    assert "dense" in kinds(graph)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("shape", [(1, DEPTH), (5, DEPTH), (1, 5, DEPTH)])
def test_products_and_their_bias(tmp_path: Path, shape: tuple[int, ...], per_channel: bool) -> None:
    net = Product(np.uint8, per_channel=per_channel)
    net.done(net.op("Add", net.bias(), net.op("MatMul", net.input(shape, (STEP, 9)), net.weights())))
    assert kinds(agree(net, tmp_path, hosted=SUMS)) == ["dense", *SUMS]


@pytest.mark.parametrize("turned", [False, True])
def test_gemm(tmp_path: Path, turned: bool) -> None:
    net = Product(np.uint8, per_channel=True)
    x = net.input((5, DEPTH), (STEP, 9))
    net.done(net.op("Relu", net.op("Gemm", x, net.weights(turned), net.bias(), transB=int(turned))))
    net.done(net.op("Gemm", x, net.weights()))
    assert kinds(agree(net, tmp_path, hosted=[*SUMS, "relu", *SUMS])) == ["dense", *SUMS, "relu", "dense", *SUMS]


def test_products_of_two_tensors(tmp_path: Path) -> None:
    net = Qdq(np.uint8)
    a, b = net.input((1, 3, 5, 8), (0.03, 5)), net.input((1, 3, 8, 6), (0.02, -7))
    net.outputs.append(str(net.op("MatMul", a, b)))
    assert kinds(agree(net, tmp_path, hosted=SUMS)) == ["matmul", *SUMS]


def test_unsigned_weights(tmp_path: Path) -> None:
    """Those that fit int8 around their zero point; the host has the others."""
    net = Product(np.uint8, per_channel=False, unsigned=True, zero=128)
    net.done(net.op("MatMul", net.input((5, DEPTH), (STEP, 9)), net.weights()))
    assert kinds(agree(net, tmp_path, hosted=SUMS)) == ["dense", *SUMS]
    net = Product(np.uint8, per_channel=False, unsigned=True, zero=100)
    net.done(net.op("MatMul", net.input((5, DEPTH), (STEP, 9)), net.weights()))
    assert kinds(load_of(net, tmp_path)) == ["dequantize", "matmul"]


@pytest.mark.parametrize("factor", [0, 3])
def test_biases_that_are_no_integers_are_the_hosts(tmp_path: Path, factor: float) -> None:
    """Floats, and integers of other steps."""
    net = Product(np.uint8, per_channel=True)
    product = net.op("MatMul", net.input((5, DEPTH), (STEP, 9)), net.weights())
    bias = net.bias(factor) if factor else net.constant(net.biases.astype(np.float32))
    net.done(net.op("Add", product, bias))
    assert kinds(load_of(net, tmp_path)) == ["dense", *SUMS, "add"]


def test_a_product_that_others_read_keeps_its_bias_apart(tmp_path: Path) -> None:
    net = Product(np.uint8, per_channel=True)
    product = net.op("MatMul", net.input((5, DEPTH), (STEP, 9)), net.weights())
    net.done(net.op("Add", product, net.bias()))
    net.done(net.op("Relu", product))
    assert kinds(agree(net, tmp_path, hosted=[*SUMS, "add", "relu"])) == ["dense", *SUMS, "add", "relu"]


def test_qgemm_without_a_scale(tmp_path: Path) -> None:
    net = Product(np.uint8, per_channel=True)
    net.inputs.append(("x", (5, DEPTH)))
    source = ["x", *net.scales((STEP, 9))]
    weights = [net.constant(value) for value in (net.levels, net.steps, net.zeros)]
    net.done(net.op("QGemm", *source, *weights, net.constant(net.biases), domain="com.microsoft"))
    assert kinds(agree(net, tmp_path, hosted=SUMS)) == ["dense", *SUMS]


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_integer_products(tmp_path: Path, dtype: Any, unsigned: bool) -> None:
    """MatMulInteger, whose sums are an output of the network."""
    net = Product(dtype, per_channel=False, unsigned=unsigned, zero=128 * unsigned)
    net.inputs.append(("x", (1, 5, DEPTH)))
    zeros = [net.constant(value) for value in (dtype(7), net.zeros)]
    net.done(net.op("MatMulInteger", "x", net.constant(net.levels), *zeros))
    assert kinds(agree(net, tmp_path)) == ["dense"]
    assert [port.dtype for port in load(tmp_path / "op.onnx").outputs] == ["int32"]


@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_quantisation(tmp_path: Path, per_channel: bool) -> None:
    """Scale and zero point come from the run; the accelerator has the products, whose sums are around 0."""
    net = Product(np.uint8, per_channel=per_channel)
    real = net.input((1, 5, DEPTH), (STEP, 9))
    levels, step, zero = net.op("DynamicQuantizeLinear", real, outputs=3)
    sums = net.op("MatMulInteger", levels, net.constant(net.levels), zero, net.constant(net.zeros))
    steps = net.op("Mul", step, net.constant(net.steps))
    net.done(net.op("Mul", net.op("Cast", sums, to=TensorProto.FLOAT), steps))
    around = ["dequantize", "dynamicquantizelinear"]
    graph = agree(net, tmp_path, hosted=[*around, "zero_point", "mul", "cast", "mul"])
    assert kinds(graph) == [*around, "dense", "zero_point", "mul", "cast", "mul"]


@pytest.mark.parametrize("sram", ["32 KiB", "256 KiB"])
def test_sums_of_many_tiles_and_passes(tmp_path: Path, sram: str) -> None:
    """Of several channels of output at a time, and of input; the report counts the sums' bytes."""
    net, random = Qdq(np.uint8), np.random.default_rng(1)
    weights = random.integers(-127, 128, (700, 300)).astype(np.int8)
    values = [net.constant(value) for value in (weights, np.float32(0.01), np.int8(0))]
    net.outputs.append(str(net.op("MatMul", net.input((40, 700), (STEP, 9)), net.op("DequantizeLinear", *values))))
    path = tmp_path / "net.onnx"
    path.write_bytes(net.model())
    compiled = compile_network(path, Config(ic_lanes=8, oc_lanes=8, sram=sram))
    x = {"x0": random.integers(0, 256, (40, 700)).astype(np.uint8)}
    wanted = (x["x0"].astype(np.int64) - 137) @ weights.astype(np.int64)
    sums = next(node for node in compiled.graph.nodes if isinstance(node, ir.Conv))
    np.testing.assert_array_equal(compiled.run(x).tensors[sums.outputs[0]].reshape(40, 300), wanted)
    assert compiled.report().least_bytes == 40 * 700 + 4 * 40 * 300 + sums.weight_bytes


def load_of(net: Qdq, folder: Path) -> ir.Graph:
    path = folder / "op.onnx"
    path.write_bytes(net.model())
    return load(path)
