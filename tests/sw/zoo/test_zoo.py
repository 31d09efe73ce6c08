"""The built-in networks: sizes, determinism, and ONNX Runtime on the same file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load, parse, read
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir, reference
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.zoo import catalogue
from tests.slow import slow

MACS = {
    "mobilenet_v2?width=0.5&resolution=96": 18_885_440,
    "efficientnet_lite0?width=0.5&depth=0.6&resolution=96": 22_176_272,
    "vit_tiny?depth=2&resolution=64": 17_813_760,
    "bert_tiny?depth=1&tokens=40": 8_273_920,
    "kwt?depth=1": 98 * 40 * 64 + 99 * 12 * 64 * 64 + 2 * 99 * 99 * 64 + 64 * 35,
    "cct?depth=1&resolution=16": 8 * 8 * 147 * 128 + 16 * 6 * 128 * 128 + (2 * 16 + 2) * 16 * 128 + 128 * 10,
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
PUBLISHED = {
    "mobilenet_v2": (300_774_272, 3_504_872),
    "resnet18": (1_814_073_344, 11_689_512),
    "resnet50": (4_089_184_256, 25_557_032),
    "resnet50?version=1": (3_857_973_248, 25_557_032),
    "efficientnet_lite0": (385_187_552, 4_652_008),
    "efficientnet_lite0?depth=1.1&resolution=240": (600_185_232, 5_416_680),
    "efficientnet_lite0?width=1.4&depth=1.8&resolution=300": (2_553_034_336, 13_006_568),
}
"""MACs, and parameters where every convolution has a batch norm: two more for each of its channels, and no bias."""
CONFIGS = {
    "8x8": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB"),
    "3x5": Config(ic_lanes=3, oc_lanes=5, sram="32 KiB", bus=32, stripe=7, vector_lanes=3),
    "16x1": Config(ic_lanes=16, oc_lanes=1, sram="32 KiB", banks=4, depthwise="emulated"),
}
FULL_SIZE = ("mobilenet_v2", "resnet18", "resnet50", "efficientnet_lite0", "bert_tiny")
BLOCKS = ("mobilenet_v2_block", "hard_swish_block", "inception_block", "shuffle_block", "attention_block")


@pytest.mark.parametrize("name", MACS)
def test_evaluation_equals_onnx_runtime(name: str) -> None:
    graph = load(f"zoo:{name}")
    assert graph.total_macs == MACS[name]
    equal_to_onnx_runtime(name, graph, 1 if name == "mobilenet_v1" else 3)


def equal_to_onnx_runtime(name: str, graph: ir.Graph, samples: int) -> None:
    data = uint8_form(onnx.load_model_from_string(catalogue.model_bytes(name))).SerializeToString()
    session = open_session(data)
    rng = np.random.default_rng(0)
    for _ in range(samples):
        x = rng.integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
        expected = session.run(None, {"input": (x.astype(np.int16) + 128).astype(np.uint8)})[0]
        assert np.array_equal(reference.run(graph, x)["output"], expected.astype(np.int16) - 128)


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL_SIZE)
def test_evaluation_equals_onnx_runtime_at_full_size(name: str) -> None:
    equal_to_onnx_runtime(name, load(f"zoo:{name}"), 1)


@pytest.mark.slow
def test_layers_of_vit_equal_onnx_runtime_at_full_size() -> None:
    source = parse(read("zoo:vit_tiny"))
    graph = simplify(source.graph)
    x = np.random.default_rng(0).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    wanted = reference_runtimes.run(graph, source, {"input": x}).tensors
    values = graph.bind(x)
    for node in graph.nodes:
        results = reference.execute(graph, node, [values[tensor] for tensor in node.inputs])
        values.update(zip(node.outputs, results, strict=True))
        for tensor in wanted.keys() & set(node.outputs):
            theirs = wanted[tensor].reshape(graph.tensors[tensor].shape)
            if not isinstance(node, ir.Host):
                assert (theirs == values[tensor]).all(), node.name
            values[tensor] = theirs


@pytest.mark.parametrize("name", [slow(name) if "?" in name else name for name in PUBLISHED])
def test_networks_have_their_published_sizes(name: str) -> None:
    graph = load(f"zoo:{name}")
    layers = [node for node in graph.nodes if isinstance(node, ir.Conv | ir.Depthwise)]
    parameters = sum(node.weights.size + 2 * node.bias.size for node in layers) - layers[-1].bias.size
    assert (graph.total_macs, parameters) == PUBLISHED[name]


def test_transformers_have_their_published_sizes() -> None:
    for name, macs, weights, biases in (
        ("vit_tiny", 1_253_683_200, 5_647_872, 12 * (4 + 5) * 192 + 192 + 1000),
        ("bert_tiny", 58_720_256, 2 * 12 * 128 * 128, 2 * (4 + 5) * 128),
        ("cct", 19_514_624, 147 * 128 + 2 * 6 * 128 * 128 + 128 + 1280, 128 + 2 * 6 * 128 + 1 + 10),
        ("kwt", 73_700_032, 12 * 12 * 64 * 64 + 40 * 64 + 64 * 35, 12 * (4 + 5) * 64 + 64 + 35),
    ):
        graph = load(f"zoo:{name}")
        layers = [node for node in graph.nodes if isinstance(node, ir.Conv)]
        assert graph.total_macs == macs
        assert sum(node.weights.size for node in layers) == weights
        assert sum(node.bias.size for node in layers) == biases


SOFTMAX, NORM = ["qlinearsoftmax"], ["dequantize", "layernormalization", "quantize"]
HOSTED = {
    "attention_block": SOFTMAX,
    "bert_tiny?depth=1&tokens=40": [*SOFTMAX, *NORM, *NORM],
    "kwt?depth=1": [*SOFTMAX, *NORM, *NORM, *NORM],
    "cct?depth=1&resolution=16": [*NORM, *SOFTMAX, *NORM, *NORM, *SOFTMAX],
    "vit_tiny?depth=2&resolution=64": [*2 * [*NORM, *SOFTMAX, *NORM], *NORM],
}


@pytest.mark.parametrize("name", [name for name in MACS if name != "mobilenet_v1"])
def test_activations_use_the_int8_range_and_only_softmax_and_norms_need_the_host(name: str) -> None:
    graph = load(f"zoo:{name}")
    hosted = [node.op for node in graph.nodes if isinstance(node, ir.Host)]
    assert hosted == HOSTED.get(name, [])
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
        ("shuffle_block", {"conv", "depthwise", "requantise"}),  # the shuffle is in the weights behind it
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


@pytest.mark.parametrize(
    "name",
    [
        slow(name) if macs > 18_000_000 else name
        for name, macs in MACS.items()
        if name.partition("?")[0] in (*FULL_SIZE, "vit_tiny")
    ],
)
def test_small_versions_run_exactly(name: str) -> None:
    config = Config(ic_lanes=16, oc_lanes=16, bus=128, sram="64 KiB")
    compiled = compile_network(f"zoo:{name}", config)
    x = np.random.default_rng(4).integers(-128, 128, compiled.graph.inputs[0].shape).astype(np.int8)
    result = compiled.run(x)
    assert np.array_equal(result.outputs["output"], reference.run(compiled.graph, x)["output"])
    assert result.cycles == compiled.report().cycles
    assert compiled.report().host_macs == 0


def test_files_are_deterministic_and_valid() -> None:
    data = catalogue.model_bytes("resnet8")
    assert data == catalogue.model_bytes("resnet8")
    assert data != catalogue.model_bytes("resnet8?seed=9")
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("vgg19", "zoo network must be one of mobilenet_v1, mobilenet_v2, .*, not 'vgg19'"),
        ("resnet8?depth=3", "parameter of zoo:resnet8 must be one of classes, seed, not 'depth'"),
        ("mobilenet_v1?width=wide", "width must be of type float, not 'wide'"),
        ("mobilenet_v1?resolution=7", "resolution must be 32..1024, not 7"),
        ("shuffle_block?channels=30", "channels must be a multiple of 4, not 30"),
        ("resnet50?version=2", "version must be 1 or 1.5, not 2"),
        ("vit_tiny?resolution=100", "resolution must be a multiple of patch, 16, not 100"),
        ("cct?resolution=3", "resolution must be 4..1024, not 3"),
        ("attention_block?heads=3", "channels must be a multiple of heads, 3, not 32"),
        ("decoder_tiny?heads=8&groups=3", "heads must be a multiple of groups, 3, not 8"),
        ("decoder_tiny?channels=72", r"channels must be a multiple of 2 \* heads, 16, not 72"),
        ("decoder_tiny?groups=9", "groups must be 1..8, not 9"),
        ("lstm?units=0", "units must be 1..4096, not 0"),
        ("gru?width=0", "width must be 1..4096, not 0"),
        ("decoder_tiny?length=0", "length must be 1..4096, not 0"),
    ],
)
def test_unknown_names_and_values(name: str, rule: str) -> None:
    with pytest.raises(NetworkError, match=rule):
        load(f"zoo:{name}")
