"""Float networks as exporters write them, quantised: nearly all runs on the accelerator, equal to ONNX Runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.frontend import load
from dovetail.sw.frontend.onnx.operators.fit import is_exact
from dovetail.sw.frontend.onnx.uint8_form import uint8_form
from dovetail.sw.frontend.onnx.values import Quant
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array
from dovetail.sw.passes.float.normalise import normalise
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.parameters import Level, Range, activation, make_exact, upwards
from dovetail.sw.quantise.plan import plan
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.quantise.scheme import Scheme
from tests.sw.passes.test_float import LIGHT, MODELS, Net, gelu_of_erf, hard_sigmoid, hard_swish, needs_models, norm


def weights(net: Net, *shape: int) -> str:
    """Of a spread that keeps the activations' size."""
    return net.constant(net.random.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:])))


def squeeze_and_excite(swish: Callable[[Net, str], str], gate: Callable[[Net, str], str]) -> Net:
    """MobileNetV3's and EfficientNet's block."""
    net = Net(1, 8, 12, 12)
    x = swish(net, norm(net, net.op("Conv", "x", weights(net, 16, 8, 1, 1)), 16))
    x = swish(net, norm(net, net.op("Conv", x, weights(net, 16, 1, 3, 3), group=16, pads=[1, 1, 1, 1]), 16))
    s = net.op("Relu", net.op("Conv", net.op("ReduceMean", x, axes=[2, 3]), weights(net, 4, 16, 1, 1)))
    x = net.op("Mul", x, gate(net, net.op("Conv", s, weights(net, 16, 4, 1, 1), net.weights(16))))
    net.op("Add", norm(net, net.op("Conv", x, weights(net, 8, 16, 1, 1)), 8), "x")
    return net


def mobilenet_v3() -> Net:
    return squeeze_and_excite(hard_swish, hard_sigmoid)


def efficientnet() -> Net:
    def swish(net: Net, x: str) -> str:
        return net.op("Mul", x, net.op("Sigmoid", x))

    return squeeze_and_excite(swish, lambda net, x: net.op("Sigmoid", x))


def shufflenet_v2() -> Net:
    net = Net("n", 16, 8, 8)
    kept, x = net.op("Split", "x", outputs=2, axis=1), "n0_Split_1"
    x = net.op("Relu", norm(net, net.op("Conv", x, weights(net, 8, 8, 1, 1)), 8))
    x = norm(net, net.op("Conv", x, weights(net, 8, 1, 3, 3), group=8, pads=[1, 1, 1, 1]), 8)
    x = net.op("Concat", kept, net.op("Relu", norm(net, net.op("Conv", x, weights(net, 8, 8, 1, 1)), 8)), axis=1)
    x = net.op("Transpose", net.op("Reshape", x, net.integers(-1, 2, 8, 8, 8)), perm=[0, 2, 1, 3, 4])
    x = net.op("AveragePool", net.op("Reshape", x, net.integers(-1, 16, 8, 8)), kernel_shape=[2, 2], strides=[2, 2])
    net.op("Conv", x, weights(net, 4, 16, 1, 1))
    return net


def layer_norm(net: Net, x: str, width: int) -> str:
    centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1], keepdims=1))
    variance = net.op("ReduceMean", net.op("Pow", centred, net.constant(2)), axes=[-1], keepdims=1)
    scaled = net.op("Div", centred, net.op("Sqrt", net.op("Add", variance, net.constant(1e-6))))
    return net.op("Add", net.op("Mul", scaled, net.positive(width)), net.weights(width))


def product(net: Net, x: str, depth: int, channels: int) -> str:
    return net.op("Add", net.op("MatMul", x, weights(net, depth, channels)), net.weights(channels))


def vision_transformer() -> Net:
    """With a class token, heads from one product, and the shapes that PyTorch computes."""
    net, width, tokens = Net("batch", 3, 16, 16), 16, 17
    x = net.op("Conv", "x", weights(net, width, 3, 4, 4), net.weights(width), strides=[4, 4])
    x = net.op("Transpose", net.op("Reshape", x, net.integers(0, width, -1)), perm=[0, 2, 1])
    batch = net.op("Gather", net.op("Shape", x), net.constant(0, np.int64))
    sizes = net.op("Concat", net.op("Unsqueeze", batch, net.integers(0)), net.integers(-1, -1), axis=0)
    sizes = net.op("Where", net.op("Equal", sizes, net.integers(-1, -1, -1)), net.integers(1, 1, 1), sizes)
    x = net.op("Concat", net.op("Expand", net.weights(1, 1, width), sizes), x, axis=1)
    x = net.op("Add", x, net.weights(1, tokens, width))
    qkv = product(net, layer_norm(net, x, width), width, 3 * width)
    qkv = net.op("Transpose", net.op("Reshape", qkv, net.integers(0, tokens, 3, 2, 8)), perm=[2, 0, 3, 1, 4])
    q, k, v = (net.op("Gather", qkv, net.constant(part, np.int64), axis=0) for part in range(3))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    heads = net.op("MatMul", net.op("Softmax", net.op("Mul", scores, net.constant(0.35)), axis=-1), v)
    heads = net.op("Reshape", net.op("Transpose", heads, perm=[0, 2, 1, 3]), net.integers(0, tokens, width))
    x = net.op("Add", x, product(net, heads, width, width))
    hidden = gelu_of_erf(net, product(net, layer_norm(net, x, width), width, 64))
    x = layer_norm(net, net.op("Add", x, product(net, hidden, 64, width)), width)
    x = net.op("Gather", x, net.constant(0, np.int64), axis=1)
    net.op("Gemm", x, weights(net, 10, width), net.weights(10), transB=1)
    return net


def convnext() -> Net:
    net = Net(1, 8, 12, 12)
    x = net.op("Conv", "x", weights(net, 8, 1, 7, 7), net.weights(8), group=8, pads=[3, 3, 3, 3])
    x = layer_norm(net, net.op("Transpose", x, perm=[0, 2, 3, 1]), 8)
    x = net.op("Mul", product(net, gelu_of_erf(net, product(net, x, 8, 32)), 32, 8), net.weights(8))
    net.op("Add", "x", net.op("Transpose", x, perm=[0, 3, 1, 2]))
    return net


def temporal_convolutions() -> Net:
    net, x = Net(1, 4, 40), "x"
    for dilation in (1, 2, 4):
        padded = net.op("Pad", x, net.integers(0, 0, 2 * dilation, 0, 0, 0))
        x = net.op(
            "Add", x, net.op("Relu", norm(net, net.op("Conv", padded, weights(net, 4, 4, 3), dilations=[dilation]), 4))
        )
    x = net.op("Squeeze", net.op("GlobalAveragePool", x), net.integers(2))
    net.op("Gemm", x, weights(net, 4, 5), net.weights(5))
    return net


def channels_last() -> Net:
    net = Net("b", 12, 12, 3)
    x = net.op("Conv", net.op("Transpose", "x", perm=[0, 3, 1, 2]), weights(net, 8, 3, 3, 3), auto_pad="SAME_UPPER")
    x = net.op("Min", net.op("Max", x, net.constant(0)), net.constant(6))
    x = net.op("Transpose", net.op("Conv", x, weights(net, 8, 1, 3, 3), group=8), perm=[0, 2, 3, 1])
    x = net.op("Relu", net.op("Add", net.op("Mul", x, net.positive(8)), net.weights(8)))
    net.op("Softmax", product(net, net.op("ReduceMean", x, axes=[1, 2], keepdims=0), 8, 5))
    return net


def samples(model: onnx.ModelProto, count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(3)
    sizes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return [{n: rng.normal(size=s).astype(np.float32) for n, s in sizes.items()} for _ in range(count)]


def on_host(model: onnx.ModelProto, path: Path) -> dict[str, int]:
    """Quantise a normalised network; every integer tensor must be ONNX Runtime's. What is left to the host, counted."""
    feeds = samples(model, 4)
    quantised = uint8_form(quantise(model, feeds[:3]))
    names = [value.name for value in quantised.graph.output]
    # Softmax as an output stays in float32: ONNX Runtime would quantise it in another way.
    watched = [node.output[0] for node in quantised.graph.node if node.op_type in ("QuantizeLinear", "Softmax")]
    quantised.graph.output.extend(onnx.ValueInfoProto(name=name) for name in watched if name not in names)
    onnx.save(quantised, path)
    graph = load(path)
    session = open_session(path.read_bytes())
    ours = reference.run(graph, feeds[3])
    for name, expected in zip(ours, session.run(list(ours), feeds[3]), strict=True):
        np.testing.assert_array_equal(ours[name], expected, err_msg=name)
    hosted = Counter(node.op for node in graph.nodes if isinstance(node, ir.Host))
    return {op: count for op, count in hosted.items() if op not in ("quantize", "dequantize")}


@pytest.mark.parametrize(
    ("build", "hosted"),
    [
        (mobilenet_v3, {}),
        (efficientnet, {}),
        (shufflenet_v2, {}),
        (vision_transformer, {"concat": 1, "add": 2, "layernormalization": 3, "softmax": 1}),
        (convnext, {"layernormalization": 1}),
        (temporal_convolutions, {}),
        (channels_last, {"softmax": 1}),
    ],
)
def test_blocks_of_networks(tmp_path: Path, build: Callable[[], Net], hosted: dict[str, int]) -> None:
    assert on_host(normalise(build().model()), tmp_path / "net.onnx") == hosted


@needs_models
@pytest.mark.parametrize(
    ("stem", "hosted"),
    [
        ("mlperf_tiny/ic_resnet8/resnet8_float", {"softmax": 1}),
        ("mlperf_tiny/kws_dscnn/kws_float", {"softmax": 1}),
        ("mlperf_tiny/ad_autoencoder/ad_float", {}),
        ("architectures_only/cct_1_32_32_32", {"transpose": 1, "add": 1, "layernormalization": 3, "softmax": 2}),
    ],
)
def test_networks(tmp_path: Path, stem: str, hosted: dict[str, int]) -> None:
    assert on_host(normalise(onnx.load(MODELS / f"{stem}.onnx")), tmp_path / "net.onnx") == hosted


def randomised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with random weights: those of the architectures are all alike."""
    rng = np.random.default_rng(0)
    layers = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    kinds: dict[str, Any] = {name: place for node in layers for place, name in enumerate(node.input[1:])}
    for tensor in model.graph.initializer:
        if tensor.name in kinds:
            fan = np.prod(tensor.dims[1:]) if len(tensor.dims) == 4 else tensor.dims[0]
            spread = 0.1 if kinds[tensor.name] else np.sqrt(2 / fan)
            values = (rng.normal(size=tensor.dims) * spread).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hosted"),
    [
        ("squeezenet", {"softmax": 1, "reshape": 1}),  # the view on the softmax of an old operator set
        ("shufflenet", {"softmax": 1}),
        ("inception_v1", {"softmax": 1, "lrn": 2}),
        ("inception_v2", {"softmax": 1}),
        ("densenet121", {}),
    ],
)
def test_architectures(tmp_path: Path, name: str, hosted: dict[str, int]) -> None:
    model = randomised(normalise(onnx.load(LIGHT / f"light_{name}.onnx")))
    assert on_host(model, tmp_path / "net.onnx") == hosted


@pytest.mark.parametrize("seed", [0, 2])
def test_scales_of_sums_and_products_leave_no_ties(seed: int) -> None:
    """Every pair of bytes gives what ONNX Runtime gives; with the ranges as they are, not so in one sum of some 20."""
    net = Net(1, 6)
    x = "x"
    for kind in ("Add", "Add", "Mul") * 15:
        x = net.op(kind, x, net.op("Gemm", x, net.weights(6, 6)))
    model = normalise(net.model())
    graph = FloatGraph(model)
    chosen = plan(graph, Scheme())
    rng = np.random.default_rng(seed)
    spans = {name: rng.uniform(0.5, 2) for name in chosen.tensors}
    levels = {name: activation(Scheme(), Range(-span * rng.uniform(), span)) for name, span in spans.items()}

    def inexact(levels: dict[str, Level]) -> int:
        count = 0
        for node in model.graph.node:
            if node.op_type in ("Add", "Mul"):
                a, b, out = (Quant(levels[n].scale, levels[n].zero_point, "int8") for n in (*node.input, *node.output))
                kind = VectorOperation.ADD if node.op_type == "Add" else VectorOperation.MULTIPLY
                count += not is_exact(kind, a, b, out)
        return count

    assert inexact(levels) > 0
    settled = make_exact(graph, chosen, levels)
    assert inexact(settled) == 0
    assert all(1 <= settled[name].scale / levels[name].scale < 1.00001 for name in levels)


@pytest.mark.parametrize("scale", [254 / 256, 0.3, 2.0**-7])
def test_scales_are_tried_upwards(scale: float) -> None:
    scales = np.array(list(upwards(np.float32(scale))))
    assert scales[0] == np.float32(scale)
    assert np.all(np.diff(scales) > 0)
    assert scales[-1] < 1.2 * scale
