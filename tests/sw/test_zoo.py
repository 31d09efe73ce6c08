"""The built-in networks: sizes, determinism, and ONNX Runtime on the same file."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from dovetail.isa.config import Config
from dovetail.sw import graph as ir
from dovetail.sw import reference, zoo
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.network import compile_network

MACS = {
    "mobilenet_v1": 568_741_376,
    "mobilenet_v1?width=0.25&resolution=128": 13_570_304,
    "resnet18?width=0.25&resolution=64": 11_187_200,
    "resnet50?width=0.25&resolution=64": 23_171_072,
    "resnet50?version=1&width=0.25&resolution=64": 21_991_424,
    "resnet8": 12_501_632,
    "dscnn": 2_656_768,
    "autoencoder": 264_192,
    "mobilenet_v2_block": 12 * 12 * (16 * 96 + 9 * 96 + 96 * 16),
    "hard_swish_block": 10 * 10 * (16 * 64 + 9 * 64 + 64 * 16) + 2 * 64 * 16,
    "inception_block": 10 * 10 * (24 * 16 + 24 * 12 + 9 * 12 * 16 + 24 * 6 + 25 * 6 * 8 + 24 * 8),
    "shuffle_block": 10 * 10 * (16 * 8 + 9 * 16 + 16 * 16 + 32 * 32),
    "attention_block": 4 * 16 * 32 * 32 + 2 * 16 * 16 * 32,
}
CONFIGS = {
    "8x8": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB"),
    "3x5": Config(ic_lanes=3, oc_lanes=5, sram="32 KiB", bus=32, stripe=7, vector_lanes=3, depthwise_lanes=7),
    "16x1": Config(ic_lanes=16, oc_lanes=1, sram="32 KiB", banks=4, depthwise="emulated"),
}
BLOCKS = ("mobilenet_v2_block", "hard_swish_block", "inception_block", "shuffle_block", "attention_block")


def unsigned(data: bytes) -> bytes:
    """The same network with uint8 activations, zero points + 128: all of it fuses to integer kernels."""
    model = onnx.load_model_from_string(data)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    zeros = {
        node.input[2]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" or (node.op_type == "DequantizeLinear" and node.input[0] not in constants)
    }
    for name in zeros:
        value = numpy_helper.to_array(constants[name]).astype(np.int16) + 128
        constants[name].CopyFrom(numpy_helper.from_array(value.astype(np.uint8), name))
    for port in [*model.graph.input, *model.graph.output]:
        port.type.tensor_type.elem_type = TensorProto.UINT8
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("name", MACS)
def test_evaluation_equals_onnx_runtime(name: str) -> None:
    graph = load(f"zoo:{name}")
    assert graph.total_macs == MACS[name]
    data = unsigned(zoo.model_bytes(name))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for _ in range(1 if name == "mobilenet_v1" else 3):
        x = rng.integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
        expected = session.run(None, {"input": (x.astype(np.int16) + 128).astype(np.uint8)})[0]
        assert np.array_equal(reference.run(graph, x)["output"], expected.astype(np.int16) - 128)


@pytest.mark.parametrize("name", ["resnet8", "dscnn", "autoencoder", "mobilenet_v1?width=0.25&resolution=128", *BLOCKS])
def test_activations_use_the_int8_range_and_only_a_softmax_needs_the_host(name: str) -> None:
    graph = load(f"zoo:{name}")
    hosted = [node.op for node in graph.nodes if isinstance(node, ir.Host)]
    assert hosted == (["dequantize", "mul", "softmax", "quantize"] if name == "attention_block" else [])
    x = np.random.default_rng(1).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    tensors = reference.evaluate(graph, graph.bind(x), keep_all=True)
    for node in graph.nodes:
        if isinstance(node, ir.Host):
            continue
        result = tensors[node.outputs[0]]
        assert result.std() > 12, node.name
        assert (result == 127).mean() < 0.25, node.name


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("mobilenet_v2_block", {"conv", "depthwise", "add"}),
        ("hard_swish_block", {"conv", "depthwise", "hardswish", "mean", "hardsigmoid", "mul", "add"}),
        ("inception_block", {"conv", "avgpool", "requantise"}),  # the concatenation costs nothing
        ("shuffle_block", {"slice", "conv", "depthwise", "requantise", "transpose"}),
        ("attention_block", {"dense", "transpose", "matmul", "add"}),
    ],
)
@pytest.mark.parametrize("config", CONFIGS)
def test_blocks_compile_to_their_operators_and_run_exactly(name: str, operators: set[str], config: str) -> None:
    compiled = compile_network(f"zoo:{name}", CONFIGS[config])
    assert {layer.kind for layer in compiled.code.layers} == operators
    x = np.random.default_rng(2).integers(-128, 128, compiled.graph.inputs[0].shape).astype(np.int8)
    result = compiled.run(x)
    assert np.array_equal(result.outputs["output"], reference.run(compiled.graph, x)["output"])
    assert result.cycles == compiled.report().cycles


def test_files_are_deterministic_and_valid() -> None:
    data = zoo.model_bytes("resnet8")
    assert data == zoo.model_bytes("resnet8")
    assert data != zoo.model_bytes("resnet8?seed=9")
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("vgg19", "zoo network must be one of mobilenet_v1, resnet8, .*, attention_block, not 'vgg19'"),
        ("resnet8?depth=3", "parameter of zoo:resnet8 must be one of classes, seed, not 'depth'"),
        ("mobilenet_v1?width=wide", "width must be of type float, not 'wide'"),
        ("mobilenet_v1?resolution=7", "resolution must be 32..1024, not 7"),
        ("shuffle_block?channels=30", "channels must be a multiple of 4, not 30"),
        ("attention_block?heads=3", "channels must be a multiple of heads, 3, not 32"),
    ],
)
def test_unknown_names_and_values(name: str, rule: str) -> None:
    with pytest.raises(NetworkError, match=rule):
        load(f"zoo:{name}")
