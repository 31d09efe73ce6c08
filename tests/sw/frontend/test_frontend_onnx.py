"""ONNX networks against ONNX Runtime's integer kernels."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.file import OnnxFile
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array

MODELS = Path(__file__).parents[3].parent / "shared" / "models"
NETWORKS = {
    "mlperf_tiny/ic_resnet8/resnet8": 12_501_632,
    "mlperf_tiny/vww_mobilenet_v1_025/vww": 7_489_664,
    "mlperf_tiny/kws_dscnn/kws": 2_656_768,
    "mlperf_tiny/ad_autoencoder/ad": 264_192,
    "imagenet/mobilenet_v1_0.25_128/mobilenet_v1_0.25_128": 13_570_304,
    "imagenet/mobilenet_v1_1.0_224/mobilenet_v1_1.0_224": 568_741_376,
}

needs_models = pytest.mark.skipif(not MODELS.exists(), reason="reference networks are not here")


def compare(stem: str, samples: slice) -> None:
    graph = load(MODELS / f"{stem}_int8_qdq.onnx")
    assert graph.total_macs == NETWORKS[stem]
    folder = (MODELS / stem).parent
    inputs = np.load(folder / "samples.npz")["x"][samples]
    expected = np.load(folder / "reference.npz")
    key = "ort_u8_logits" if "ort_u8_logits" in expected else "ort_u8_out"
    placed = [node for node in graph.nodes if not isinstance(node, ir.Host)]
    for x, logits in zip(inputs, expected[key][samples], strict=True):
        tensors = reference.evaluate(graph, graph.bind(x), keep_all=True)
        assert np.array_equal(tensors[placed[-1].outputs[0]].ravel(), logits.ravel())


@needs_models
@pytest.mark.parametrize("stem", NETWORKS)
def test_outputs_equal_the_integer_kernels(stem: str) -> None:
    compare(stem, slice(0, 2))


@needs_models
@pytest.mark.slow
@pytest.mark.parametrize("stem", NETWORKS)
def test_all_outputs_equal_the_integer_kernels(stem: str) -> None:
    compare(stem, slice(2, None))


@needs_models
def test_layout_changes_vanish_and_only_the_softmax_stays_on_the_host() -> None:
    graph = load(MODELS / "mlperf_tiny/ic_resnet8/resnet8_int8_qdq.onnx")
    ops = [node.op for node in graph.nodes if not isinstance(node, ir.Conv)]
    assert ops == ["add", "add", "add", "avgpool", "qlinearsoftmax"]
    assert graph.inputs[0].shape == (1, 32, 32, 3)
    assert graph.inputs[0].layout.is_plain
    assert graph.inputs[0].scale == np.float32(1)
    assert graph.inputs[0].zero_point == -128


# Networks made here ------------------------------------------------------------------------------


class Net:
    """Builds a small float network, NCHW, input `x` and output `y`."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.shape = shape
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Array) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weights(self, *shape: int) -> str:
        spread = np.sqrt(2 / prod(shape[1:]))
        return self.constant((self.random.normal(size=shape) * spread).astype(np.float32))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}_{kind}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x: str, channels: int, depth: int, size: int, **attributes: Any) -> str:
        return self.op("Conv", x, self.weights(channels, depth, size, size), self.weights(channels), **attributes)

    def write(self, path: Path, dtype: int = TensorProto.FLOAT) -> Path:
        self.nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", dtype, self.shape)],
            [onnx.ValueInfoProto(name="y")],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        model.ir_version = 8
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Eight seeded inputs."""

    def __init__(self, shape: tuple[int, ...], name: str = "x") -> None:
        rng = np.random.default_rng(1)
        self.name = name
        self.rest: Iterator[Array] = iter([rng.normal(size=shape).astype(np.float32) for _ in range(8)])

    def get_next(self) -> dict[str, Array] | None:
        x = next(self.rest, None)
        return None if x is None else {self.name: x}


def residual() -> Net:
    """Convolutions of every kind, a residual, both poolings, a flattened image into dense layers."""
    net = Net((1, 3, 18, 18))
    stem = net.op("Relu", net.conv("x", 8, 3, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    x = net.conv(stem, 8, 1, 3, pads=[1, 1, 1, 1], group=8)
    x = net.op("Clip", x, net.constant(np.array(0, np.float32)), net.constant(np.array(1.5, np.float32)))
    x = net.conv(x, 8, 8, 1)
    x = net.op("Relu", net.op("Add", stem, x))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    x = net.op("Relu", net.conv(x, 16, 8, 3, pads=[2, 2, 2, 2], dilations=[2, 2]))
    x = net.op("AveragePool", x, kernel_shape=[3, 3], strides=[3, 3])
    x = net.op("Flatten", net.conv(x, 6, 16, 1))
    x = net.op("Relu", net.op("Gemm", x, net.weights(20, 54), net.weights(20), transB=1))
    net.op("MatMul", x, net.weights(20, 7))
    return net


def quantised(net: Net, path: Path, style: QuantFormat, activations: QuantType, per_channel: bool) -> Path:
    source = net.write(path / "float.onnx")
    logging.getLogger().setLevel(logging.ERROR)
    quantize_static(
        source,
        path / "int8.onnx",
        Samples(net.shape),
        quant_format=style,
        activation_type=activations,
        weight_type=QuantType.QInt8,
        per_channel=per_channel,
    )
    return path / "int8.onnx"


def run_both(path: Path, count: int = 10) -> tuple[ir.Graph, list[tuple[Array, Array]]]:
    """(graph, [(ours, ONNX Runtime's) for seeded float inputs])."""
    graph = load(path)
    session = open_session(path.read_bytes())
    rng = np.random.default_rng(2)
    pairs = []
    for _ in range(count):
        x = rng.normal(size=graph.inputs[0].shape).astype(np.float32)
        pairs.append((reference.run(graph, x)["y"], session.run(None, {"x": x})[0]))
    return graph, pairs


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("activations", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("style", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_quantiser_written_files(tmp_path: Path, style: QuantFormat, activations: QuantType, per_channel: bool) -> None:
    path = quantised(residual(), tmp_path, style, activations, per_channel)
    graph, pairs = run_both(path)
    hosted = {node.op for node in graph.nodes if isinstance(node, ir.Host)}
    assert hosted <= {"quantize", "dequantize", "qlinearaveragepool"}
    if style == QuantFormat.QDQ and activations == QuantType.QInt8:
        return  # ONNX Runtime keeps part of these in float32: no integer reference
    for ours, theirs in pairs:
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("style", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_padding_layers_fold_into_convolutions(tmp_path: Path, style: QuantFormat) -> None:
    net = Net((1, 3, 9, 9))
    x = net.op("Pad", net.op("Relu", net.conv("x", 8, 3, 3)), net.constant(np.array([0, 0, 0, 1, 0, 0, 2, 1])))
    net.conv(x, 4, 8, 3, strides=[2, 2], pads=[1, 0, 0, 0])
    graph, pairs = run_both(quantised(net, tmp_path, style, QuantType.QUInt8, False))
    folded = [node for node in graph.nodes if isinstance(node, ir.Conv)][1]
    if style == QuantFormat.QDQ:
        assert folded.pads == (1, 1, 2, 1)
    for ours, theirs in pairs:
        assert np.array_equal(ours, theirs)


def test_nchw_input_is_transposed_at_the_border(tmp_path: Path) -> None:
    path = quantised(residual(), tmp_path, QuantFormat.QDQ, QuantType.QUInt8, False)
    port = load(path).inputs[0]
    assert (port.shape, port.layout.inner, port.dtype) == ((1, 3, 18, 18), (1, 18, 18, 3), "float32")


@pytest.mark.parametrize("style", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_global_average_and_host_operators(tmp_path: Path, style: QuantFormat) -> None:
    net = Net((1, 3, 9, 9))
    x = net.op("Relu", net.conv("x", 8, 3, 3))
    x = net.op("GlobalAveragePool", net.op("Sigmoid", x))
    net.op("Softmax", net.op("Gemm", net.op("Flatten", x), net.weights(5, 8), net.weights(5), transB=1))
    path = quantised(net, tmp_path, style, QuantType.QUInt8, True)
    graph, pairs = run_both(path)
    ops = [node.op for node in graph.nodes]
    assert "mean" in ops
    assert "sigmoid" in ops
    for ours, theirs in pairs:
        # The softmax of a QDQ file runs in float on the host, where ONNX Runtime may fuse it.
        assert np.abs(ours - theirs).max() <= (0 if style == QuantFormat.QOperator else 1 / 128)


def test_rows_and_grouped_convolutions(tmp_path: Path) -> None:
    net = Net((1, 4, 6, 6))
    x = net.conv("x", 8, 2, 3, group=2)
    x = net.op("Transpose", net.op("Reshape", x, net.constant(np.array([1, 8, 16]))), perm=[0, 2, 1])
    net.op("Add", net.op("MatMul", x, net.weights(8, 5)), net.weights(5))
    path = quantised(net, tmp_path, QuantFormat.QOperator, QuantType.QUInt8, False)
    graph, pairs = run_both(path)
    grouped, dense = (node for node in graph.nodes if isinstance(node, ir.Conv))
    assert grouped.groups == 2
    assert graph.tensors[dense.outputs[0]].shape == (1, 1, 16, 5)
    for ours, theirs in pairs:
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("kind", ["Add", "Mul"])
def test_operands_in_two_orders_of_bytes_meet(tmp_path: Path, kind: str, mode: str) -> None:
    net = Net((1, 3, 6, 5))
    up = net.op("DepthToSpace", net.conv("x", 16, 3, 1), blocksize=2, mode=mode)
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    skip = net.op("Resize", net.conv("x", 4, 3, 1), "", scales, mode="nearest")
    other = net.op("DepthToSpace", net.conv("x", 16, 3, 1), blocksize=2, mode=mode)
    net.conv(net.op(kind, net.op(kind, up, skip), net.op(kind, other, up)), 4, 4, 3)
    graph, pairs = run_both(quantised(net, tmp_path, QuantFormat.QDQ, QuantType.QUInt8, True))
    ops = [node.op for node in graph.nodes if isinstance(node, ir.Host)]
    assert ops == ["quantize", "dequantize"]  # of the float borders
    for ours, theirs in pairs:
        assert np.array_equal(ours, theirs)


def test_integer_input_keeps_the_files_type(tmp_path: Path) -> None:
    net = Net((1, 3, 8, 8))
    scale, zero = net.constant(np.array(0.02, np.float32)), net.constant(np.array(130, np.uint8))
    weights = net.constant(net.random.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8))
    steps, level = net.constant(np.full(4, 0.01, np.float32)), net.constant(np.zeros(4, np.int8))
    out, middle = net.constant(np.array(0.1, np.float32)), net.constant(np.array(120, np.uint8))
    net.op("QLinearConv", "x", scale, zero, weights, steps, level, out, middle)
    path = net.write(tmp_path / "net.onnx", TensorProto.UINT8)
    graph = load(path)
    port = graph.inputs[0]
    assert (port.dtype, port.zero_point, graph.tensors["x"].zero_point) == ("uint8", 130, 2)
    session = open_session(path.read_bytes())
    x = np.random.default_rng(3).integers(0, 256, (1, 3, 8, 8)).astype(np.uint8)
    ours = reference.run(graph, x)["y"]
    assert ours.dtype == np.uint8
    assert np.array_equal(ours, session.run(None, {"x": x})[0])


@needs_models
@pytest.mark.slow
@pytest.mark.parametrize("style", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_transformer_runs_with_its_products_on_the_accelerator(tmp_path: Path, style: QuantFormat) -> None:
    source = MODELS / "architectures_only" / "cct_1_32_32_32.onnx"
    path = tmp_path / "int8.onnx"
    samples = Samples((1, 3, 32, 32), "input")
    quantize_static(
        source,
        path,
        samples,
        quant_format=style,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    graph = load(path)
    ops = [node.op for node in graph.nodes]
    assert (ops.count("dense"), ops.count("matmul"), ops.count("gelu")) == (8, 3, 1)
    x = np.random.default_rng(9).normal(size=(1, 3, 32, 32)).astype(np.float32)
    session = open_session(path.read_bytes())
    expected = session.run(None, {"input": x})[0]
    assert np.array_equal(reference.run(graph, x)[graph.outputs[0].name], expected)


# What is refused ---------------------------------------------------------------------------------


def test_float_network_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = residual().write(tmp_path / "float.onnx")
    with pytest.raises(NetworkError, match=r"must be quantised to int8, not float; `dovetail quantise"):
        load(path)


def test_unknown_operator_is_named(tmp_path: Path) -> None:
    net = Net((1, 4))
    net.op("Wobble", "x")
    graph = helper.make_graph(net.nodes, "net", [helper.make_tensor_value_info("x", 1, (1, 4))], [], [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(NetworkError, match=r"n0_Wobble \(Wobble\): an operator that ONNX .* nothing comes before"):
        load(path)


def test_states_of_recurrent_networks_have_no_batch_in_front() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="r")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 1, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 1, 8))],
    )
    found = OnnxFile(helper.make_model(graph), "net")
    assert found.inputs[0].shape == (2, 1, 8)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [((4, 3, 18, 18), "batch must be 1, not 4"), ((1, 3, "h", 18), "axis 2 must have a fixed size")],
)
def test_dynamic_shapes_and_batches_are_refused(tmp_path: Path, shape: tuple[Any, ...], rule: str) -> None:
    net = residual()
    net.shape = shape
    with pytest.raises(NetworkError, match=rule):
        load(net.write(tmp_path / "net.onnx"))


def opened(path: Path, sizes: tuple[Any, ...]) -> Path:
    """The file with an input of these sizes, names where they are open, as an exporter leaves it."""
    model = onnx.load(path)
    for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, sizes, strict=True):
        dim.Clear()
        setattr(dim, "dim_value" if isinstance(size, int) else "dim_param", size)
    stored = path.with_name(f"{'x'.join(map(str, sizes))}.onnx")
    onnx.save(model, stored)
    return stored


@pytest.mark.parametrize("style", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_open_axes_are_fixed_by_shapes(tmp_path: Path, style: QuantFormat) -> None:
    path = quantised(residual(), tmp_path, style, QuantType.QUInt8, True)
    stale = opened(path, ("N", 3, "H", "W"))
    x = np.random.default_rng(0).normal(size=(1, 3, 18, 18)).astype(np.float32)
    fixed = load(stale, {"x": (1, 3, 18, 18)})
    assert fixed.inputs[0].shape == (1, 3, 18, 18)
    assert np.array_equal(reference.run(fixed, x)["y"], reference.run(load(path), x)["y"])
    assert [node.op for node in load(opened(path, ("N", 3, 18, 18))).nodes] == [node.op for node in fixed.nodes]
    with pytest.raises(NetworkError, match=r"axis 2 must have a fixed size, not H; give one: --shape x=1x3x224x224"):
        load(stale)
    with pytest.raises(NetworkError, match="must have 4 axes, not 2"):
        load(stale, {"x": (1, 3)})
    with pytest.raises(NetworkError, match=r"shape of 'z': must be of an input \(x\)"):
        load(stale, {"z": (1, 3)})


def test_sizes_read_from_a_tensor_are_constants(tmp_path: Path) -> None:
    net = Net((1, 3, 6, 6))
    x = net.op("Relu", net.conv("x", 4, 3, 3))
    batch = net.op("Gather", net.op("Shape", x), net.constant(np.array([0])))
    rows = net.op("Reshape", x, net.op("Concat", batch, net.constant(np.array([-1])), axis=0))
    net.op("Gemm", rows, net.weights(64, 5))
    path = quantised(net, tmp_path, QuantFormat.QDQ, QuantType.QUInt8, True)
    graph, pairs = run_both(opened(path, ("N", 3, 6, 6)))
    assert {node.op for node in graph.nodes if isinstance(node, ir.Host)} <= {"quantize", "dequantize"}
    for ours, theirs in pairs:
        assert np.array_equal(ours, theirs)


def test_asymmetric_weights_are_refused(tmp_path: Path) -> None:
    net = Net((1, 3, 8, 8))
    scale, zero = net.constant(np.array(0.02, np.float32)), net.constant(np.array(3, np.int8))
    levels = net.random.integers(0, 256, (4, 3, 3, 3)).astype(np.uint8)
    weights, step = net.constant(levels), net.constant(np.array(0.01, np.float32))
    low, out = net.constant(np.array(10, np.uint8)), net.constant(np.array(0.1, np.float32))
    net.op("QLinearConv", "x", scale, zero, weights, step, low, out, zero)
    with pytest.raises(NetworkError, match=r"node 'n0_QLinearConv': weights must fit int8 .* WeightSymmetric"):
        load(net.write(tmp_path / "net.onnx", TensorProto.INT8))


def test_damaged_files_never_leak_a_traceback(tmp_path: Path) -> None:
    source = quantised(residual(), tmp_path, QuantFormat.QDQ, QuantType.QInt8, True)
    data = source.read_bytes()
    rng = np.random.default_rng(0)
    file = tmp_path / "damaged.onnx"
    refused = 0
    for trial in range(90):
        damaged = bytearray(data[: rng.integers(1, len(data))] if trial % 2 else data)
        for _ in range(8):
            damaged[rng.integers(0, len(damaged))] = rng.integers(0, 256)
        file.write_bytes(damaged)
        try:
            load(file)
        except NetworkError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 45


def test_sixteen_bits_are_named(tmp_path: Path) -> None:
    """Not "float": the network is quantised, to another type."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    constants = [numpy_helper.from_array(np.float32(0.1), "scale"), numpy_helper.from_array(np.int16(0), "zero")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "scale", "zero"], ["xd"]),
        helper.make_node("Relu", ["xd"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["rq"]),
        helper.make_node("DequantizeLinear", ["rq", "scale", "zero"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "net.onnx")
    rule = "net: activations must be int8 or uint8, not int16; quantise them to 8 bits"
    with pytest.raises(NetworkError, match=rule):
        load(tmp_path / "net.onnx")
