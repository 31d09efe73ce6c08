"""uint8 TFLite networks: single operators against LiteRT's reference kernels, then compiled and run on the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.parts import folder as partition_export
from dovetail.sw.frontend import load
from dovetail.sw.network import ir, reference
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.frontend.test_tflite_operators import Operator, Spec, network, options, pool
from tests.sw.frontend.tflite_writer import Writer

CONFIGS = [Config(ic_lanes=8, oc_lanes=8, sram="64 KiB"), Config(ic_lanes=3, oc_lanes=5, depthwise="emulated")]


def unsigned(data: bytes) -> bytes:
    """The same file with uint8 in place of int8, everything 128 higher."""
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    for tensor in model.subgraphs[0].tensors:
        if tensor.type == schema.TensorType.INT8:
            tensor.type = schema.TensorType.UINT8
            tensor.quantization.zeroPoint = [int(zero) + 128 for zero in tensor.quantization.zeroPoint]
            if tensor.buffer:
                stored = model.buffers[tensor.buffer]
                stored.data = np.asarray(stored.data, np.uint8) ^ np.uint8(128)
    for code in model.operatorCodes:
        code.version = 1
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def agree(folder: Path, code: int, inputs: Sequence[Spec], output: Spec, form: Any = None) -> ir.Graph:
    """Load, interpret and run an operator on seeded inputs, compare with LiteRT; returns the graph."""
    data = unsigned(network(code, inputs, output, form))
    path = folder / "op.tflite"
    path.write_bytes(data)
    graph = load(path)
    assert {port.dtype for port in (*graph.inputs, *graph.outputs)} == {"uint8"}
    compiled = [compile_network(graph, config) for config in CONFIGS]
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    rng = np.random.default_rng(0)
    for _ in range(3):
        feed = {port.name: rng.integers(0, 256, port.shape).astype(np.uint8) for port in graph.inputs}
        for detail, value in zip(interpreter.get_input_details(), feed.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        expected = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        name = graph.outputs[0].name
        np.testing.assert_array_equal(reference.run(graph, feed)[name], expected)
        for one in compiled:
            np.testing.assert_array_equal(one.run(feed).outputs[name], expected)
    return graph


def weights(zero: int, *shape: int) -> Spec:
    """All of int8, however far from the zero point."""
    return np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8), 0.01, zero


def bias(channels: int) -> Spec:
    return np.random.default_rng(2).integers(-3000, 3000, channels).astype(np.int32)


WINDOW = {"padding": 0, "strideH": 2, "strideW": 2, "dilationHFactor": 1, "dilationWFactor": 1}


@pytest.mark.parametrize(("zero", "terms"), [(0, 0), (60, 1), (127, 1), (-128, 2)])
@pytest.mark.parametrize(("size", "depth"), [(1, 20), (3, 3)])
def test_convolution(tmp_path: Path, zero: int, terms: int, size: int, depth: int) -> None:
    """Weights reach from -255 to 255, which takes up to three int8 arrays."""
    sources: list[Spec] = [((1, 9, 8, depth), 0.05, -20), weights(zero, 12, size, size, depth), bias(12)]
    form = options(schema.Conv2DOptionsT, **WINDOW, fusedActivationFunction=1)
    (node,) = agree(tmp_path, Operator.CONV_2D, sources, ((1, 5, 4, 12), 0.19, -100), form).nodes
    assert isinstance(node, ir.Conv) and (0 if node.rest is None else len(node.rest)) == terms


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("zero", [0, -90])
def test_depthwise(tmp_path: Path, multiplier: int, zero: int) -> None:
    count = 11 * multiplier
    sources: list[Spec] = [((1, 9, 8, 11), 0.05, -20), weights(zero, 1, 3, 3, count), bias(count)]
    form = options(schema.DepthwiseConv2DOptionsT, **WINDOW, depthMultiplier=multiplier, fusedActivationFunction=3)
    (node,) = agree(tmp_path, Operator.DEPTHWISE_CONV_2D, sources, ((1, 5, 4, count), 0.09, -128), form).nodes
    assert isinstance(node, ir.Depthwise) and (node.rest is None) == (zero == 0)


def test_dense(tmp_path: Path) -> None:
    sources: list[Spec] = [((1, 130), 0.05, -20), weights(33, 70, 130), bias(70)]
    form = options(schema.FullyConnectedOptionsT)
    agree(tmp_path, Operator.FULLY_CONNECTED, sources, ((1, 70), 0.19, 4), form)


@pytest.mark.parametrize("kernel", [(2, 2), (4, 3), (3, 3)])
@pytest.mark.parametrize("code", [Operator.MAX_POOL_2D, Operator.AVERAGE_POOL_2D])
def test_pooling(tmp_path: Path, code: int, kernel: tuple[int, int]) -> None:
    source, output = ((1, 7, 6, 5), 0.05, -20), ((1, 7, 6, 5), 0.05, -20)
    (node,) = agree(tmp_path, code, [source], output, pool(0, kernel, 1, 1)).nodes
    assert isinstance(node, ir.MaxPool | ir.AvgPool)


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
def test_arithmetic(tmp_path: Path, op: str) -> None:
    sources: list[Spec] = [((1, 5, 6, 7), 0.05, -20), ((1, 5, 6, 7), 0.03, 70)]
    form = options(getattr(schema, f"{op.capitalize()}OptionsT"), fusedActivationFunction=1)
    (node,) = agree(tmp_path, getattr(Operator, op), sources, ((1, 5, 6, 7), 0.07, 5), form).nodes
    assert isinstance(node, ir.Elementwise)


@pytest.mark.parametrize(
    ("op", "form", "output", "kind"),
    [
        ("RELU6", None, (0.05, -20), ir.Rescale),
        ("LOGISTIC", None, (1 / 256, -128), ir.Table),
        ("QUANTIZE", options(schema.QuantizeOptionsT), (0.09, 11), ir.Rescale),
        ("SOFTMAX", options(schema.SoftmaxOptionsT, beta=1.0), (1 / 256, -128), ir.Host),
    ],
)
def test_functions(tmp_path: Path, op: str, form: Any, output: tuple[float, int], kind: type) -> None:
    graph = agree(tmp_path, getattr(Operator, op), [((1, 4, 5, 6), 0.05, -20)], ((1, 4, 5, 6), *output), form)
    assert [type(node) for node in graph.nodes] == [kind]


def test_concatenation(tmp_path: Path) -> None:
    sources: list[Spec] = [((1, 4, 5, 6), 0.05, -20), ((1, 4, 5, 3), 0.05, -20)]
    form = options(schema.ConcatenationOptionsT, axis=3)
    (node,) = agree(tmp_path, Operator.CONCATENATION, sources, ((1, 4, 5, 9), 0.05, -20), form).nodes
    assert isinstance(node, ir.Move)


def test_concatenation_of_other_scales_runs_on_the_host(tmp_path: Path) -> None:
    sources: list[Spec] = [((1, 4, 5, 6), 0.05, -20), ((1, 4, 5, 3), 0.02, 20)]
    form = options(schema.ConcatenationOptionsT, axis=3)
    (node,) = agree(tmp_path, Operator.CONCATENATION, sources, ((1, 4, 5, 9), 0.05, -20), form).nodes
    assert isinstance(node, ir.Host)


def test_padding(tmp_path: Path) -> None:
    sizes = np.array([[0, 0], [1, 2], [0, 3], [0, 0]], np.int32)
    agree(tmp_path, Operator.PAD, [((1, 4, 5, 6), 0.05, -20), sizes], ((1, 7, 8, 6), 0.05, -20))


def test_exported_parts_take_and_make_what_the_network_does(tmp_path: Path) -> None:
    """A host operator in the middle: the file has uint8, the manifest int8."""
    path = tmp_path / "softmax.tflite"
    form = options(schema.SoftmaxOptionsT, beta=1.0)
    path.write_bytes(unsigned(network(Operator.SOFTMAX, [((1, 30), 0.05, -20)], ((1, 30), 1 / 256, -128), form)))
    graph = load(path)
    inner = replace(graph, inputs=tuple(replace(port, dtype="int8", offset=0) for port in graph.inputs))
    compiled = compile_network(inner, CONFIGS[0])
    x = np.arange(30).astype(np.int8)[None]
    partition_export.export(compiled, tmp_path / "parts")
    parts = partition_export.run_parts(tmp_path / "parts", {inner.inputs[0].name: x})
    for name, value in compiled.run(x).outputs.items():
        np.testing.assert_array_equal(parts[name], value)


def test_exported_convolution(tmp_path: Path) -> None:
    """Weights are uint8 with a zero point again; ONNX Runtime rounds once, so that results are a step off at most."""
    sources: list[Spec] = [((1, 9, 8, 3), 0.05, -20), weights(60, 12, 3, 3, 3), bias(12)]
    form = options(schema.Conv2DOptionsT, **WINDOW)
    path = tmp_path / "conv.tflite"
    path.write_bytes(unsigned(network(Operator.CONV_2D, sources, ((1, 5, 4, 12), 0.19, 4), form)))
    compiled = compile_network(load(path), CONFIGS[0])
    manifest = partition_export.export(compiled, tmp_path / "parts")
    assert [part["exact"] for part in manifest["parts"]] == [False]
    (port,) = compiled.graph.inputs
    inputs = {port.name: np.random.default_rng(0).integers(0, 256, port.shape).astype(np.uint8)}
    for name, value in partition_export.run_parts(tmp_path / "parts", inputs).items():
        assert np.abs(value.astype(int) - compiled.run(inputs).outputs[name]).max() <= 1


@pytest.mark.parametrize("scale", [1 / 128, 0.011])
@pytest.mark.parametrize("read_by_another", [False, True])
def test_int8_between_uint8_ends(read_by_another: bool, scale: float, tmp_path: Path) -> None:
    """As converters write it for users who have uint8: all of it runs on the accelerator. An end that is not only
    rescaled stays uint8, and its operators the host's."""
    w = Writer()
    x = w.tensor((1, 4, 8, 8), "uint8", scale, 100, name="x")
    inside, y = w.tensor((1, 4, 8, 8), scale=scale, zero=-28), w.tensor((1, 4, 8, 8), scale=1 / 256, zero=-128)
    out = w.tensor((1, 4, 8, 8), "uint8", 1 / 256, 0, name="y")
    w.op(Operator.QUANTIZE, [x], [inside])
    w.op(Operator.LOGISTIC, [inside], [y], version=2)
    w.op(Operator.QUANTIZE, [y], [out])
    w.graph.inputs, w.graph.outputs = [x], [out]
    if read_by_another:
        real = w.tensor((1, 4, 8, 8), "float32", None, name="real")
        w.op(Operator.DEQUANTIZE, [x], [real])
        w.graph.outputs = [out, real]
    (tmp_path / "net.tflite").write_bytes(w.data())
    compiled = compile_network(tmp_path / "net.tflite", CONFIGS[0])
    assert bool(compiled.code.host_reasons) == read_by_another
    assert {port.dtype for port in compiled.graph.inputs} == {"uint8"}
    values = np.arange(256).astype(np.uint8).reshape(1, 4, 8, 8)
    interpreter = Interpreter(model_content=w.data(), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values)
    interpreter.invoke()
    results = compiled.run({"x": values}).outputs
    for detail in interpreter.get_output_details():
        np.testing.assert_array_equal(results[detail["name"]], interpreter.get_tensor(detail["index"]))
    if not read_by_another:
        partition_export.export(compiled, tmp_path / "parts")
        parts = partition_export.run_parts(tmp_path / "parts", {"x": values})
        np.testing.assert_array_equal(parts["y"], results["y"])


@pytest.mark.parametrize(
    ("scales", "zeros", "rule"),
    [
        ([0.01] * 12, [128] * 12, "uint8 weights must have one scale, not 12"),
        ([0.01], [300], "zero point of the weights must be 0..255, not 300"),
    ],
)
def test_weights_that_are_refused(tmp_path: Path, scales: list[float], zeros: list[int], rule: str) -> None:
    sources: list[Spec] = [((1, 9, 8, 3), 0.05, -20), weights(0, 12, 3, 3, 3), bias(12)]
    data = unsigned(
        network(Operator.CONV_2D, sources, ((1, 5, 4, 12), 0.19, 4), options(schema.Conv2DOptionsT, **WINDOW))
    )
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    quantization = model.subgraphs[0].tensors[1].quantization
    quantization.scale, quantization.zeroPoint = scales, zeros
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path = tmp_path / "conv.tflite"
    path.write_bytes(builder.Output())
    with pytest.raises(NetworkError, match=rule):
        load(path)
