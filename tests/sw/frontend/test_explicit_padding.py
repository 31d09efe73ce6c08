"""Padding layers of their own, and convolutions that see padding alone: the bytes of the file's runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.passes.float.normalise import normalise
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.sw.frontend.tflite_writer import Operator, Writer, options
from tests.sw.quantise.test_quantise import Net, run, samples_of

SQUARE = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
PADS = [(1, 1, 1, 1), (2, 0, 1, 3), (4, 4, 4, 4)]
"""Top, left, bottom, right: around, uneven, wider than any kernel here."""


def equal(path: Path, samples: list[Sample]) -> CompiledNetwork:
    """Compiled without a layer of padding, and run to the bytes of the runtime."""
    graph = frontend.load(path)
    compiled = compile_network(graph, SQUARE)
    hosted = list(compiled.code.nodes_on(HOST))
    layers = list(compiled.code.nodes_on(ACCELERATOR))
    assert not any(isinstance(node, ir.Pad) for node in (*hosted, *layers))
    assert not any(isinstance(node, ir.Conv | ir.Depthwise) for node in hosted)
    assert any(isinstance(node, ir.Conv | ir.Depthwise) for node in layers)
    for sample in samples:
        (ours,) = compiled.run(sample).outputs.values()
        np.testing.assert_array_equal(ours, runtime(path, graph, sample))
    return compiled


def runtime(path: Path, graph: ir.Graph, sample: Sample) -> Array:
    """The output in ONNX Runtime's integer kernels, or in TFLite Micro's or LiteRT's."""
    if path.suffix == ".onnx":
        return run(uint8_form(onnx.load(path)), sample)
    return reference_runtimes.run(graph, frontend.parse(frontend.read(path)), sample).tensors[graph.outputs[0].tensor]


# ONNX ------------------------------------------------------------------------------------------


def saved(net: Net, y: str, path: Path) -> tuple[Path, list[Sample]]:
    """Quantised as it is: its padding layers stay."""
    model = net.model(y)
    samples = samples_of(model)
    onnx.save(quantise(model, samples), path)
    return path, samples[:2]


@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize(("size", "group"), [(1, 1), (3, 1), (3, 8)], ids=["1x1", "3x3", "depthwise"])
def test_onnx_padding_in_front_of_convolutions(tmp_path: Path, pads: ir.Pads, size: int, group: int) -> None:
    net = Net(1, 8, 6, 7)
    sizes = net.constant(np.array([0, 0, *pads[:2], 0, 0, *pads[2:]]))
    x = net.conv(net.op("Pad", "x", sizes), 8, 8 // group, size, group=group, pads=[0, 0, 0, 0])
    sizes = net.constant(np.array([0, 0, *pads[2:], 0, 0, *pads[:2]]))
    path, samples = saved(net, net.conv(net.op("Pad", x, sizes), 4, 8, size), tmp_path / "net.onnx")
    assert [node.op_type for node in onnx.load(path).graph.node].count("Pad") == 2
    equal(path, samples)


def squeeze_net() -> tuple[Net, str]:
    """SqueezeNet 1.x with fewer channels: fires, and a classifier of 1 x 1 with padding 1."""
    net = Net(1, 3, 33, 33)

    def fire(x: str, depth: int, squeezed: int, wide: int) -> str:
        x = net.op("Relu", net.conv(x, squeezed, depth, 1))
        parts = [net.op("Relu", net.conv(x, wide, squeezed, size)) for size in (1, 3)]
        return net.op("Concat", *parts, axis=1)

    x = net.op("Relu", net.conv("x", 16, 3, 3, strides=[2, 2], pads=[0, 0, 0, 0]))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = fire(fire(x, 16, 4, 8), 16, 4, 8)
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = net.op("Dropout", fire(x, 16, 8, 16))
    x = net.op("Relu", net.conv(x, 20, 32, 1, pads=[1, 1, 1, 1]))
    return net, net.op("Softmax", net.op("Flatten", net.op("GlobalAveragePool", x)), axis=1)


def test_the_classifier_of_squeezenet(tmp_path: Path) -> None:
    net, y = squeeze_net()
    model = normalise(net.model(y))
    samples = samples_of(model)
    onnx.save(quantise(model, samples), tmp_path / "squeezenet.onnx")
    compiled = equal(tmp_path / "squeezenet.onnx", samples)
    nodes = list(compiled.code.nodes_on(ACCELERATOR))
    *_, classifier = (node for node in nodes if isinstance(node, ir.Conv))
    assert (classifier.pads, compiled.graph.tensors[classifier.outputs[0]].shape) == ((1, 1, 1, 1), (1, 5, 5, 20))
    hosted = {node.op for node in compiled.code.nodes_on(HOST)}
    assert hosted == {"quantize", "dequantize", "softmax"}


# TFLite ----------------------------------------------------------------------------------------


def padded_tflite(pads: ir.Pads, size: int, depthwise: bool) -> bytes:
    """PAD, and a convolution without padding behind it."""
    net, random = Writer(), np.random.default_rng(size)
    rows, columns, channels = 6 + pads[0] + pads[2], 7 + pads[1] + pads[3], 8
    x, padded = net.tensor((1, 6, 7, 8), zero=-20), net.tensor((1, rows, columns, 8), zero=-20)
    y = net.tensor((1, rows - size + 1, columns - size + 1, channels), scale=0.3, zero=7)
    frame = net.constant(np.array([[0, 0], pads[::2], pads[1::2], [0, 0]], np.int32))
    shape = (1, size, size, channels) if depthwise else (channels, size, size, 8)
    scales = [0.01 + 0.001 * channel for channel in range(channels)]
    weights = net.constant(random.integers(-127, 128, shape).astype(np.int8), scales)
    net.graph.tensors[weights].quantization.quantizedDimension = 3 if depthwise else 0
    bias = net.constant(random.integers(-3000, 3000, channels).astype(np.int32), [0.05 * scale for scale in scales])
    net.op(Operator.PAD, [x, frame], [padded], options("PadOptions"))
    same = {"padding": schema.Padding.VALID, "strideW": 1, "strideH": 1}
    if depthwise:
        convolution = Operator.DEPTHWISE_CONV_2D, options("DepthwiseConv2DOptions", depthMultiplier=1, **same)
    else:
        convolution = Operator.CONV_2D, options("Conv2DOptions", **same)
    net.op(convolution[0], [padded, weights, bias], [y], convolution[1], version=3)
    net.graph.inputs, net.graph.outputs = [x], [y]
    return net.data()


@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize(("size", "depthwise"), [(1, False), (3, False), (3, True)], ids=["1x1", "3x3", "depthwise"])
def test_tflite_padding_in_front_of_convolutions(tmp_path: Path, pads: ir.Pads, size: int, depthwise: bool) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(padded_tflite(pads, size, depthwise))
    random = np.random.default_rng(1)
    levels: list[Array] = [random.integers(-128, 128, (1, 6, 7, 8)).astype(np.int8) for _ in range(2)]
    (port,) = frontend.load(path).inputs
    equal(path, [{port.name: value} for value in levels])
