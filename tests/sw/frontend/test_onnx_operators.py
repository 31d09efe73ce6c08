"""Single ONNX operators between DequantizeLinear and QuantizeLinear, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.partition.host_cost import default_host
from dovetail.sw.frontend import load
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array
from dovetail.sw.runtime.compiled_network import compile_network

Quant = tuple[float, int]
"""Scale and int8 zero point."""


class Qdq:
    """Builds a QDQ file; int8 or uint8 activations."""

    def __init__(self, dtype: type[np.int8] | type[np.uint8] = np.int8, opset: int = 20) -> None:
        self.dtype, self.opset = dtype, opset
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[tuple[str, tuple[int, ...]]] = []
        self.outputs: list[str] = []

    def constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def scales(self, quant: Quant) -> list[str]:
        zero = quant[1] + (128 if self.dtype == np.uint8 else 0)
        return [self.constant(np.float32(quant[0])), self.constant(self.dtype(zero))]

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        names = [f"n{len(self.nodes)}_{kind}_{k}" for k in range(outputs)]
        node = helper.make_node(kind, inputs, names, name=f"n{len(self.nodes)}_{kind}", domain=domain, **attributes)
        self.nodes.append(node)
        return names[0] if outputs == 1 else names

    def input(self, shape: tuple[int, ...], quant: Quant) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append((name, shape))
        return str(self.op("DequantizeLinear", name, *self.scales(quant)))

    def dequantised(self, value: Array, quant: Quant) -> str:
        shifted = value if self.dtype == np.int8 else (value ^ np.int8(-128)).view(np.uint8)
        return str(self.op("DequantizeLinear", self.constant(shifted), *self.scales(quant)))

    def output(self, value: str, quant: Quant) -> str:
        """Quantise; a DequantizeLinear after it when used on."""
        self.outputs.append(str(self.op("QuantizeLinear", value, *self.scales(quant))))
        return self.outputs[-1]

    def requantised(self, value: str, quant: Quant) -> str:
        quantised = self.op("QuantizeLinear", value, *self.scales(quant))
        return str(self.op("DequantizeLinear", quantised, *self.scales(quant)))

    def model(self) -> bytes:
        kind = TensorProto.INT8 if self.dtype == np.int8 else TensorProto.UINT8
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info(name, kind, shape) for name, shape in self.inputs],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 9
        return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


def agree(net: Qdq, folder: Path, levels: Sequence[Array] = (), hosted: Sequence[str] = ()) -> ir.Graph:
    """Load, run on seeded inputs (or `levels`), compare with ONNX Runtime's default session; returns the graph, all of
    it integer but for the `hosted` nodes."""
    path = folder / "op.onnx"
    path.write_bytes(net.model())
    graph = load(path)
    session = open_session(path.read_bytes())
    rng = np.random.default_rng(0)
    info = np.iinfo(net.dtype)
    for _ in range(3):
        values = list(levels) or [
            rng.integers(info.min, info.max + 1, port.shape).astype(net.dtype) for port in graph.inputs
        ]
        feed = {port.name: value for port, value in zip(graph.inputs, values, strict=True)}
        ours = reference.run(graph, feed)
        for name, expected in zip(net.outputs, session.run(net.outputs, feed), strict=True):
            assert ours[name].dtype == expected.dtype
            np.testing.assert_array_equal(ours[name], expected)
    assert [node.op for node in graph.nodes if isinstance(node, ir.Host)] == list(hosted)
    return graph


def kinds(graph: ir.Graph) -> list[str]:
    return [node.op for node in graph.nodes if not isinstance(node, ir.FREE)]


EVERY = np.arange(-128, 128).astype(np.int8).reshape(1, 256)


def conv(net: Qdq, x: str, depth: int, channels: int) -> str:
    """A 1x1 convolution."""
    weights = np.random.default_rng(3).integers(-127, 128, (channels, depth, 1, 1)).astype(np.int8)
    step, zero = net.constant(np.float32(0.01)), net.constant(np.int8(0))
    return str(net.op("Conv", x, net.op("DequantizeLinear", net.constant(weights), step, zero)))


@pytest.mark.parametrize("quant", [(0.05, -20), (0.013, 77)])
@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("HardSwish", {}),
        ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
        ("LeakyRelu", {"alpha": 0.1}),
        ("Elu", {"alpha": 0.7}),
        ("Selu", {}),
        ("Gelu", {}),
        ("Exp", {}),
        ("Erf", {}),
        ("Abs", {}),
        ("Relu", {}),
        ("Neg", {}),
        ("Softplus", {}),
        ("Sin", {}),
    ],
)
def test_functions_of_one_tensor(tmp_path: Path, op: str, attributes: dict[str, Any], quant: Quant) -> None:
    net = Qdq()
    net.output(net.op(op, net.input((1, 256), quant), **attributes), (0.021, -11))
    graph = agree(net, tmp_path, [EVERY])
    assert kinds(graph) == [op.lower()]


def test_expressions_of_one_tensor_become_one_table(tmp_path: Path) -> None:
    """GELU as exporters spell it, and a clamp; SiLU of one tensor."""
    net = Qdq()
    x = net.input((1, 256), (0.03, 5))
    inner = net.op("Erf", net.op("Div", x, net.constant(np.float32(2**0.5))))
    inner = net.op("Mul", x, net.op("Add", inner, net.constant(np.float32(1))))
    gelu = net.op("Mul", inner, net.constant(np.float32(0.5)))
    net.output(net.op("Clip", gelu, net.constant(np.float32(-0.1)), net.constant(np.float32(2.5))), (0.015, -90))
    net.output(net.op("Mul", x, net.op("Sigmoid", x)), (0.02, -100))
    assert kinds(agree(net, tmp_path, [EVERY])) == ["function", "function"]


def test_long_float_parts_run_on_the_host(tmp_path: Path) -> None:
    net = Qdq()
    x = net.input((1, 256), (0.03, 5))
    for _ in range(80):
        x = net.op("Add", x, net.constant(np.float32(0.001)))
    net.outputs.append(x)
    path = tmp_path / "op.onnx"
    path.write_bytes(net.model())
    session = open_session(path.read_bytes())
    (ours,) = reference.run(load(path), EVERY).values()
    np.testing.assert_array_equal(ours, session.run(None, {"x0": EVERY})[0])


def test_requantisation_is_a_table(tmp_path: Path) -> None:
    net = Qdq()
    net.output(net.input((1, 256), (0.03, 5)), (0.041, -7))
    assert kinds(agree(net, tmp_path, [EVERY])) == ["requantise"]


@pytest.mark.parametrize("shapes", [((1, 5, 6, 4), (1, 5, 6, 4)), ((1, 5, 6, 4), (1, 5, 1, 1)), ((1, 7, 9), (9,))])
@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_sums_and_products(tmp_path: Path, op: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """With uint8 ONNX Runtime computes them in its integer kernels."""
    net = Qdq(np.uint8)
    shorter = (1,) * (len(shapes[0]) - len(shapes[1])) + shapes[1]
    a, b = net.input(shapes[0], (0.0314159, 5)), net.input(shorter, (0.0217183, -30))
    net.output(net.op(op, a, b), (0.0527113, 11))
    assert kinds(agree(net, tmp_path)) == [op.lower()]


@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_constant_operands(tmp_path: Path, op: str) -> None:
    net = Qdq(np.uint8)
    weights = np.random.default_rng(3).integers(-128, 128, (1, 5, 1, 1)).astype(np.int8)
    net.output(
        net.op(op, net.input((1, 5, 6, 4), (0.0314159, 5)), net.dequantised(weights, (0.0217183, -30))), (0.0527113, 11)
    )
    assert kinds(agree(net, tmp_path)) == [op.lower()]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("clamped", [False, True])
def test_products_with_ties_that_the_accelerator_rounds_otherwise(
    tmp_path: Path, constant: bool, clamped: bool
) -> None:
    """An odd zero point and ties: ONNX Runtime's own kernel on the host."""
    net = Qdq(np.uint8)
    a = net.input((1, 256, 256), (0.25, 5))
    every = EVERY.reshape(1, 1, 256)
    b = net.dequantised(every, (0.5, -30)) if constant else net.input((1, 1, 256), (0.5, -30))
    result = net.op("Mul", a, b)
    net.output(net.op("Relu", net.requantised(result, (0.5, -11))) if clamped else result, (0.5, -11))
    levels = [(EVERY.reshape(1, 256, 1) + np.zeros((1, 1, 256), np.int16) + 128).astype(np.uint8)]
    if not constant:
        levels.append((every.astype(np.int16) + 128).astype(np.uint8))
    agree(net, tmp_path, levels, ["qlinearmul"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("quant", [(1 / 256, -128), (1 / 255, -128), (0.0039, -100), (0.001, 3)])
def test_softmax_between_integers(tmp_path: Path, dtype: Any, axis: int, quant: Quant) -> None:
    """Fused, as ONNX Runtime's default session does: not what its float Softmax gives. SOFTMAX takes the rows of any
    axis, which lie beside each other."""
    net = Qdq(dtype)
    net.output(net.op("Softmax", net.input((1, 4, 6, 9), (0.07, 5)), axis=axis), quant)
    graph = agree(net, tmp_path, hosted=["qlinearsoftmax"])
    compiled = compile_network(graph, Config(softmax=1), host=replace(default_host(), round_trip=0))
    assert not compiled.code.host_reasons
    levels = np.random.default_rng(1).integers(0, 256, (1, 4, 6, 9)).astype(np.uint8).view(dtype)
    feed = {graph.inputs[0].name: levels}
    (found,), (wanted,) = compiled.run(feed).outputs.values(), reference.run(graph, feed).values()
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("op", "factor", "first", "hosted"),
    [
        ("Mul", 0.125, False, ["dequantize", "softmax", "quantize"]),
        ("Mul", 4.0, True, ["dequantize", "softmax", "quantize"]),
        ("Div", 8.0, False, ["dequantize", "softmax", "quantize"]),
        ("Mul", 0.1, False, ["dequantize", "mul", "softmax", "quantize"]),
        ("Mul", -0.5, False, ["dequantize", "mul", "softmax", "quantize"]),
        ("Mul", 2.0**-126, False, ["dequantize", "mul", "softmax", "quantize"]),
        ("Div", 8.0, True, ["dequantize", "div", "softmax", "quantize"]),
    ],
)
def test_scores_times_a_power_of_two(tmp_path: Path, op: str, factor: float, first: bool, hosted: list[str]) -> None:
    """Is a matter of their scale, to the bit."""
    net = Qdq(np.int8)
    ends = [net.input((1, 4, 6, 9), (0.07, 5)), net.constant(np.float32(factor))]
    net.output(net.op("Softmax", net.op(op, *(ends[::-1] if first else ends)), axis=-1), (1 / 256, -128))
    agree(net, tmp_path, hosted=hosted)


def test_softmax_that_is_float_too(tmp_path: Path) -> None:
    net = Qdq(np.uint8)
    shares = net.op("Softmax", net.input((1, 4, 6, 9), (0.07, 5)), axis=3)
    net.output(shares, (1 / 255, -128))
    net.output(net.op("Add", shares, net.constant(np.float32(0.1))), (1 / 255, -128))
    agree(net, tmp_path, hosted=["dequantize", "softmax", "quantize", "add", "quantize"])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_constants_of_one_element_of_qoperators(tmp_path: Path, op: str, first: bool) -> None:
    """A table of what the integer kernel makes of each value, ties at odd zero points included."""
    net = Qdq(np.uint8)
    net.inputs.append(("x0", (1, 256)))
    operands = [["x0", *net.scales((0.03125, 5))], [net.constant(np.uint8(200)), *net.scales((0.015625, -30))]]
    a, b = operands if first else operands[::-1]
    net.outputs.append(net.op(op, *a, *b, *net.scales((0.0625, 11)), domain="com.microsoft"))
    graph = agree(net, tmp_path, [np.arange(256).astype(np.uint8).reshape(1, 256)])
    assert kinds(graph) == [op.removeprefix("QLinear").lower()]


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_constant_operands_of_qoperators(tmp_path: Path, op: str) -> None:
    net = Qdq(np.uint8)
    net.inputs.append(("x0", (1, 5, 6, 4)))
    weights = np.random.default_rng(3).integers(0, 256, (1, 5, 1, 1)).astype(np.uint8)
    operands = ["x0", *net.scales((0.0314159, 5)), net.constant(weights), *net.scales((0.0217183, -30))]
    net.outputs.append(net.op(op, *operands, *net.scales((0.0527113, 11)), domain="com.microsoft"))
    assert kinds(agree(net, tmp_path)) == [op.removeprefix("QLinear").lower()]


def test_difference_is_the_sum_with_the_negative(tmp_path: Path) -> None:
    """ONNX Runtime has no integer kernel for Sub: its QLinearAdd of the mirrored operand is the reference."""
    net = Qdq(np.uint8)
    a, b = net.input((1, 9, 30), (0.03, 5)), net.input((1, 9, 30), (0.02, -30))
    net.output(net.op("Sub", a, b), (0.05, 11))
    path = tmp_path / "op.onnx"
    path.write_bytes(net.model())
    other = Qdq(np.uint8)
    other.inputs = net.inputs
    ins = [
        x
        for name, quant in zip(("x0", "x1"), ((0.03, 5), (0.02, 29)), strict=True)
        for x in (name, *other.scales(quant))
    ]
    other.outputs = [other.op("QLinearAdd", *ins, *other.scales((0.05, 11)), domain="com.microsoft")]
    session = open_session(other.model())
    rng = np.random.default_rng(1)
    a_value, b_value = rng.integers(0, 256, (2, 1, 9, 30)).astype(np.uint8)
    graph = load(path)
    (ours,) = reference.run(graph, {"x0": a_value, "x1": b_value}).values()
    (theirs,) = session.run(None, {"x0": a_value, "x1": 255 - b_value})
    np.testing.assert_array_equal(ours, theirs)
    assert kinds(graph) == ["sub"]


@pytest.mark.parametrize("op", ["Min", "Max"])
def test_minimum_and_maximum(tmp_path: Path, op: str) -> None:
    net = Qdq()
    quant = (0.03125, 5)
    net.output(net.op(op, net.input((1, 5, 6, 4), quant), net.input((1, 5, 6, 4), quant)), quant)
    assert kinds(agree(net, tmp_path)) == [op.lower()]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("op", ["Min", "Max"])
def test_minimum_and_maximum_at_near_ties(tmp_path: Path, op: str, constant: bool) -> None:
    """Of quantisations for which no parameters give ONNX Runtime's bytes: operands get the result's first."""
    net, shape = Qdq(), (1, 5, 6, 4)
    a, b = (0.2711721360683441, 58), (0.10667146742343903, 8)
    x, levels = net.input(shape, a), np.random.default_rng(2).integers(-128, 128, shape).astype(np.int8)
    other = net.op("DequantizeLinear", net.constant(levels), *net.scales(b)) if constant else net.input(shape, b)
    net.output(net.op(op, x, other), (0.1306169480085373, -17))
    assert kinds(agree(net, tmp_path)) == ["requantise"] * (2 - constant) + [op.lower()]


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_concatenation_rescales_its_parts(tmp_path: Path, axis: int) -> None:
    net = Qdq(np.uint8)
    shape = [1, 3, 4, 5]
    other = [7 if k == axis else n for k, n in enumerate(shape)]
    parts = [net.input(tuple(shape), (0.03, 5)), net.input(tuple(other), (0.05, 11))]
    net.output(net.op("Concat", *parts, axis=axis), (0.05, 11))
    assert kinds(agree(net, tmp_path)) == ["requantise", "concat"]


def test_slices_and_splits(tmp_path: Path) -> None:
    net = Qdq()
    x = net.input((1, 8, 9, 10), (0.03, 5))
    numbers = [net.constant(np.array(v, np.int64)) for v in ([1, -3], [9, 2**40], [2, 1], [3, 1])]
    first, second = net.op(
        "Split", net.op("Slice", x, *numbers), net.constant(np.array([1, 2], np.int64)), axis=2, outputs=2
    )
    net.output(first, (0.03, 5))
    net.output(second, (0.03, 5))
    assert kinds(agree(net, tmp_path)) == ["slice", "slice"]


@pytest.mark.parametrize("groups", [2, 4])
def test_channel_shuffle_is_free_between_convolutions(tmp_path: Path, groups: int) -> None:
    """It goes into the weights."""
    net = Qdq(np.uint8)
    x = net.requantised(conv(net, net.input((1, 8, 5, 6), (0.03, 5)), 8, 8), (0.05, 3))
    x = net.op("Reshape", x, net.constant(np.array([1, groups, 8 // groups, 5, 6])))
    x = net.op("Transpose", x, perm=[0, 2, 1, 3, 4])
    x = net.op("Reshape", x, net.constant(np.array([1, 8, 5, 6])))
    net.output(conv(net, x, 8, 8), (0.05, 3))
    assert kinds(agree(net, tmp_path)) == ["conv", "conv"]


@pytest.mark.parametrize("quant", [(0.03, 5), (0.017, -22)])
@pytest.mark.parametrize("counted", [0, 1])
def test_average_with_padding(tmp_path: Path, counted: int, quant: Quant) -> None:
    net = Qdq(np.uint8)
    window: dict[str, Any] = {
        "kernel_shape": [3, 2],
        "strides": [2, 1],
        "pads": [1, 1, 1, 0],
        "count_include_pad": counted,
    }
    net.output(net.op("AveragePool", net.input((1, 3, 7, 6), quant), **window), quant)
    assert kinds(agree(net, tmp_path)) == ["avgpool"]


@pytest.mark.parametrize(("channels", "groups"), [(6, 6), (18, 6), (12, 3), (4, 2)])
def test_grouped_convolutions(tmp_path: Path, channels: int, groups: int) -> None:
    net = Qdq(np.uint8)
    weights = np.random.default_rng(3).integers(-127, 128, (channels, 6 // groups, 3, 3)).astype(np.int8)
    constant = net.op(
        "DequantizeLinear", net.constant(weights), net.constant(np.float32(0.01)), net.constant(np.int8(0))
    )
    x = net.input((1, 6, 7, 8), (0.03, 5))
    net.output(net.op("Conv", x, constant, group=groups, pads=[1, 1, 1, 1]), (0.05, 3))
    assert kinds(agree(net, tmp_path)) == ["depthwise" if groups == 6 else "conv"]


def test_products_of_two_tensors(tmp_path: Path) -> None:
    """Attention's two products: heads apart, keys transposed; what moves stays whole along the head."""
    net = Qdq(np.uint8)
    heads = net.constant(np.array([1, 7, 2, 6]))

    def split(perm: list[int]) -> str:
        x = net.input((1, 7, 12), (0.03, 5))
        return str(net.op("Transpose", net.op("Reshape", x, heads), perm=perm))

    query, key, value = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
    scores = net.requantised(net.op("MatMul", query, key), (0.06, 10))
    net.output(net.op("MatMul", scores, value), (0.2, -3))
    graph = agree(net, tmp_path)
    products = [node for node in graph.nodes if isinstance(node, ir.MatMul)]
    assert [node.transposed for node in products] == [True, False]
    assert sorted(kinds(graph)) == ["matmul", "matmul", "transpose", "transpose", "transpose"]
    for node in graph.nodes:
        if isinstance(node, ir.Move):
            (copy,) = node.copies
            assert (6, 1, 1) in zip(copy.sizes, copy.source_steps, copy.target_steps, strict=True)


def test_matrix_for_several_rows_of_matrices(tmp_path: Path) -> None:
    net = Qdq(np.uint8)
    a, b = net.input((1, 3, 5, 8), (0.03, 5)), net.input((1, 8, 4), (0.02, 1))
    net.output(net.op("MatMul", a, net.op("Reshape", b, net.constant(np.array([8, 4])))), (0.06, 10))
    assert kinds(agree(net, tmp_path)) == ["matmul"]


@pytest.mark.parametrize("shapes", [((1, 3, 4, 5), (1, 1, 4, 5)), ((1, 1, 4, 1), (1, 3, 1, 5)), ((1, 6, 3), (1, 6, 1))])
@pytest.mark.parametrize("op", ["Add", "Mul"])
def test_one_channel_for_all(tmp_path: Path, op: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    net = Qdq(np.uint8)
    a, b = net.input(shapes[0], (0.0314159, 4)), net.input(shapes[1], (0.0217183, -11))
    net.output(net.op(op, a, b), (0.0527113, 6))
    assert kinds(agree(net, tmp_path)) == ["repeat", op.lower()]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_padding_of_channels(tmp_path: Path, dtype: type[np.int8] | type[np.uint8]) -> None:
    net = Qdq(dtype)
    x = net.input((1, 3, 4, 5), (0.03, 5))
    net.output(net.op("Pad", x, net.constant(np.array([0, 2, 1, 0, 0, 3, 0, 1]))), (0.03, 5))
    assert kinds(agree(net, tmp_path)) == ["pad", "concat"]


def test_padding_alone(tmp_path: Path) -> None:
    net = Qdq()
    x = net.input((1, 3, 4, 5), (0.03, 5))
    net.output(net.op("Pad", x, net.constant(np.array([0, 0, 1, 2, 0, 0, 3, 0]))), (0.03, 5))
    assert kinds(agree(net, tmp_path)) == ["pad"]


@pytest.mark.parametrize(
    ("op", "attributes", "shape"),
    [
        ("DepthToSpace", {"mode": "DCR"}, (1, 12, 4, 5)),
        ("DepthToSpace", {"mode": "CRD"}, (1, 12, 4, 5)),
        ("SpaceToDepth", {}, (1, 3, 8, 10)),
    ],
)
def test_blocks(tmp_path: Path, op: str, attributes: dict[str, Any], shape: tuple[int, ...]) -> None:
    """In front of a convolution, which wants channels last."""
    net = Qdq(np.uint8)
    x = net.requantised(net.op(op, net.input(shape, (0.03, 5)), blocksize=2, **attributes), (0.03, 5))
    net.output(conv(net, x, 12 if op == "SpaceToDepth" else 3, 4), (0.05, 3))
    assert kinds(agree(net, tmp_path)) == ["transpose", "conv"]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_zero_points_left_out(tmp_path: Path, dtype: type[np.int8] | type[np.uint8]) -> None:
    """Zero of the operand's type; of what QuantizeLinear names, else of uint8."""
    net = Qdq(dtype, opset=21)
    net.inputs.append(("x0", (1, 256)))
    x = net.op("Softplus", net.op("DequantizeLinear", "x0", net.constant(np.float32(0.03))))
    kind = {"output_dtype": TensorProto.INT8} if dtype == np.int8 else {}
    net.outputs.append(net.op("QuantizeLinear", x, net.constant(np.float32(0.02)), **kind))
    assert kinds(agree(net, tmp_path, [EVERY.view(dtype)])) == ["softplus"]


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_averages_of_short_scales_tie_as_the_runtimes(tmp_path: Path, pads: tuple[int, ...]) -> None:
    """Behind a rectifier the zero point is 0: in ONNX Runtime nothing hides how float32 rounds a sum."""
    net, quant = Qdq(np.uint8), (0.046630859375, -128)
    net.output(net.op("AveragePool", net.input((1, 16, 24, 24), quant), kernel_shape=[3, 2], pads=list(pads)), quant)
    assert kinds(agree(net, tmp_path)) == ["avgpool"]


def dense(net: Qdq, x: str, depth: int, channels: int) -> str:
    """A product with constant weights."""
    weights = np.random.default_rng(depth).integers(-127, 128, (depth, channels)).astype(np.int8)
    step, zero = net.constant(np.float32(0.01)), net.constant(np.int8(0))
    return str(net.op("MatMul", x, net.op("DequantizeLinear", net.constant(weights), step, zero)))


def test_transpositions_of_a_cube(tmp_path: Path) -> None:
    """Views of one tensor that want the same order of bytes, but not the same bytes."""
    net = Qdq(np.uint8)
    x = net.input((1, 6, 6, 6), (0.03, 5))
    for channels, perm in ((5, [0, 2, 1, 3]), (7, [0, 3, 2, 1]), (4, [0, 3, 1, 2])):
        turned = net.requantised(net.op("Transpose", x, perm=perm), (0.03, 5))
        net.output(dense(net, turned, 6, channels), (0.05, 3))
    assert kinds(agree(net, tmp_path)).count("dense") == 3


def test_sums_of_signals_stay_channels_last(tmp_path: Path) -> None:
    """One dimension as two of height one: nothing moves between convolutions and sums, whatever order operands have."""
    net, quant = Qdq(np.uint8), (0.05, 3)
    signal = net.input((1, 8, 20), quant)
    flat, image = (net.constant(np.array(shape)) for shape in ([1, 8, 20], [1, 8, 1, 20]))
    for _ in range(3):
        y = net.requantised(net.op("Reshape", signal, image), quant)
        y = net.requantised(net.op("Reshape", net.requantised(conv(net, y, 8, 8), quant), flat), quant)
        signal = net.requantised(net.op("Add", signal, y), quant)
    net.output(conv(net, net.requantised(net.op("Reshape", signal, image), quant), 8, 4), (0.05, 3))
    assert sorted(kinds(agree(net, tmp_path))) == ["add"] * 3 + ["conv"] * 4 + ["transpose"]


@pytest.mark.parametrize(
    "attributes",
    [
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"},
    ],
)
def test_enlargement_repeats_pixels(tmp_path: Path, attributes: dict[str, Any]) -> None:
    net, quant = Qdq(np.uint8), (0.05, 3)
    x = net.requantised(conv(net, net.input((1, 3, 4, 5), (0.03, 5)), 3, 6), quant)
    scales = net.constant(np.array([1, 1, 2, 3], np.float32))
    net.output(net.op("Resize", x, "", scales, mode="nearest", **attributes), quant)
    assert kinds(agree(net, tmp_path)) == ["conv", "resize"]


def test_enlargement_by_other_factors_stays_on_the_host(tmp_path: Path) -> None:
    net, quant = Qdq(np.uint8), (0.05, 3)
    x = net.input((1, 3, 4, 6), quant)
    for mode, factor in (("nearest", 1.5), ("linear", 2.0)):
        net.output(net.op("Resize", x, "", net.constant(np.array([1, 1, 1, factor], np.float32)), mode=mode), quant)
    path = tmp_path / "op.onnx"
    path.write_bytes(net.model())
    assert [node.op for node in load(path).nodes if isinstance(node, ir.Host)].count("resize") == 2


@pytest.mark.parametrize("biased", [False, True])
def test_layer_norms_with_the_sums_in_front_of_them(tmp_path: Path, biased: bool) -> None:
    """ONNX Runtime fuses them, and adds up in another order than it does one by one: to the last bit of the reals."""
    rng = np.random.default_rng(1)
    net = Qdq(np.uint8, opset=17)
    x = net.input((1, 40, 64), (0.0314159, 5))
    weights = net.constant(rng.integers(-127, 128, (64, 64)).astype(np.int8))
    step, zero = net.constant(np.float32(0.003)), net.constant(np.int8(0))
    product = net.op("MatMul", x, net.op("DequantizeLinear", weights, step, zero))
    real = net.requantised(product, (0.0217183, -30))
    gain, offset, bias = (net.constant(rng.normal(size=64).astype(np.float32)) for _ in range(3))
    if biased:
        real = net.op("Add", bias, real)
    net.outputs.append(net.op("LayerNormalization", net.op("Add", real, x), gain, offset, axis=-1))
    agree(net, tmp_path, hosted=["dequantize", "dequantize", "layernormalization"])
