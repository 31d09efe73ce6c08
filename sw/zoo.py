"""The built-in networks: quantised ONNX files made on the spot, with seeded weights.

They stand for their architectures: every size, stride and padding is right, the weights are random.
Scales come from propagating variances, so that activations use the int8 range without the network being
run. Files are QDQ, opset 13, int8 activations in and out, int8 weights with a scale per output channel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.errors import NetworkError

Pads = tuple[int, int, int, int]


@dataclass(frozen=True)
class _Act:
    """An int8 activation being built: its name, NCHW or NC shape, quantisation, and expected rms in reals."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    rms: float


@dataclass(frozen=True)
class _Range:
    """What a layer's result looks like: activation, bounds of the reals, their expected rms.

    `spread` is the standard deviation before the activation.
    """

    activation: str
    low: float
    high: float
    spread: float
    rms: float


RELU = _Range("Relu", 0.0, 6.0, 2.0, 1.4)
RELU6 = _Range("Clip", 0.0, 6.0, 2.0, 1.4)
LINEAR = _Range("", -6.4, 5.6, 2.0, 2.0)
HARD_SWISH = _Range("", -0.424, 5.6, 2.0, 1.3)
UNIT = _Range("", 0.0, 255 / 256, 0.3, 0.6)


class _Builder:
    """Writes a QDQ network layer by layer."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.input: Any = None

    def start(self, shape: tuple[int, ...], scale: float, zero: int) -> _Act:
        """The network's int8 input, expected to be spread over the int8 range."""
        self.input = helper.make_tensor_value_info("input", TensorProto.INT8, shape)
        return _Act("input", shape, scale, zero, scale * 74.0)

    def finish(self, act: _Act, opset: int = 13) -> bytes:
        """The file."""
        self.nodes[-1].output[0] = "output"
        output = helper.make_tensor_value_info("output", TensorProto.INT8, act.shape)
        graph = helper.make_graph(self.nodes, self.name, [self.input], [output], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="dovetail")
        model.ir_version = 8
        return bytes(model.SerializeToString(deterministic=True))

    def conv(
        self,
        name: str,
        act: _Act,
        channels: int,
        kernel: tuple[int, int],
        stride: int,
        result: _Range,
        groups: int = 1,
    ) -> _Act:
        """Convolution with TensorFlow's SAME padding."""
        return self._convolution(name, act, channels, act.shape[1] // groups, kernel, stride, result, groups=groups)

    def depthwise(self, name: str, act: _Act, stride: int, result: _Range) -> _Act:
        """3x3 depthwise convolution with SAME padding."""
        channels = act.shape[1]
        return self._convolution(name, act, channels, 1, (3, 3), stride, result, groups=channels)

    def _convolution(
        self,
        name: str,
        act: _Act,
        channels: int,
        depth: int,
        kernel: tuple[int, int],
        stride: int,
        result: _Range,
        groups: int,
    ) -> _Act:
        pads = _same(act.shape[2:], kernel, stride)
        rows, cols = (-(-size // stride) for size in act.shape[2:])
        weights, bias = self._parameters(name, act, (channels, depth, *kernel), 0, result)
        node = helper.make_node(
            "Conv",
            [self._dequantised(act), weights, bias],
            [f"{name}_float"],
            name=name,
            kernel_shape=kernel,
            strides=[stride, stride],
            pads=pads,
            group=groups,
        )
        self.nodes.append(node)
        return self._activated(name, (1, channels, rows, cols), result)

    def dense(self, name: str, act: _Act, channels: int, result: _Range) -> _Act:
        """Gemm with bias."""
        weights, bias = self._parameters(name, act, (channels, act.shape[1]), 0, result)
        inputs = [self._dequantised(act), weights, bias]
        self.nodes.append(helper.make_node("Gemm", inputs, [f"{name}_float"], name=name, transB=1))
        return self._activated(name, (1, channels), result)

    def matmul(self, name: str, act: _Act, channels: int, result: _Range) -> _Act:
        """MatMul and Add, as TensorFlow exports a dense layer."""
        weights, bias = self._parameters(name, act, (act.shape[-1], channels), 1, result)
        inputs = [self._dequantised(act), weights]
        self.nodes.append(helper.make_node("MatMul", inputs, [f"{name}_product"], name=name))
        self.nodes.append(helper.make_node("Add", [f"{name}_product", bias], [f"{name}_float"], name=f"{name}_bias"))
        return self._activated(name, (*act.shape[:-1], channels), result)

    def add(self, name: str, a: _Act, b: _Act, result: _Range) -> _Act:
        """Residual sum."""
        return self._operator("Add", name, [a, b], a.shape, result)

    def multiply(self, name: str, a: _Act, b: _Act, result: _Range) -> _Act:
        """Product, of a tensor and a value per channel, too."""
        return self._operator("Mul", name, [a, b], a.shape, result)

    def function(self, name: str, op: str, act: _Act, result: _Range, **attributes: float) -> _Act:
        """A function of every element."""
        return self._operator(op, name, [act], act.shape, result, **attributes)

    def product(self, name: str, a: _Act, b: _Act, result: _Range) -> _Act:
        """Matrix product of two activations."""
        return self._operator("MatMul", name, [a, b], (*a.shape[:-1], b.shape[-1]), result)

    def _operator(
        self, op: str, name: str, acts: list[_Act], shape: tuple[int, ...], result: _Range, **attributes: Any
    ) -> _Act:
        inputs = [self._dequantised(act) for act in acts]
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_float"], name=name, **attributes))
        return self._activated(name, shape, result)

    def concat(self, name: str, *acts: _Act, axis: int = 1) -> _Act:
        """Concatenation; the result is quantised as the last part."""
        shape = list(acts[0].shape)
        shape[axis] = sum(act.shape[axis] for act in acts)
        inputs = [self._dequantised(act) for act in acts]
        self.nodes.append(helper.make_node("Concat", inputs, [f"{name}_float"], name=name, axis=axis))
        last = acts[-1]
        return self._quantised(name, tuple(shape), last.scale, last.zero, last.rms)

    def halves(self, name: str, act: _Act) -> tuple[_Act, _Act]:
        """The channels' first and second half."""
        names = [f"{name}_{k}_float" for k in range(2)]
        self.nodes.append(helper.make_node("Split", [self._dequantised(act)], names, name=name, axis=1))
        shape = (act.shape[0], act.shape[1] // 2, *act.shape[2:])
        first, second = (self._quantised(f"{name}_{k}", shape, act.scale, act.zero, act.rms) for k in range(2))
        return first, second

    def shuffle(self, name: str, act: _Act, groups: int) -> _Act:
        """Channel shuffle: channel j of group i becomes channel i of group j."""
        batch, channels, rows, cols = act.shape
        apart = self.reshape(f"{name}_apart", act, (batch, groups, channels // groups, rows, cols))
        return self.reshape(f"{name}_joined", self.transpose(name, apart, (0, 2, 1, 3, 4)), act.shape)

    def reshape(self, name: str, act: _Act, shape: tuple[int, ...]) -> _Act:
        """The same elements in another shape."""
        target = self._constant(f"{name}_shape", np.array(shape, np.int64))
        self.nodes.append(helper.make_node("Reshape", [self._dequantised(act), target], [f"{name}_float"], name=name))
        return self._quantised(name, shape, act.scale, act.zero, act.rms)

    def transpose(self, name: str, act: _Act, perm: tuple[int, ...]) -> _Act:
        """Axes in another order."""
        node = helper.make_node("Transpose", [self._dequantised(act)], [f"{name}_float"], name=name, perm=perm)
        self.nodes.append(node)
        return self._quantised(name, tuple(act.shape[p] for p in perm), act.scale, act.zero, act.rms)

    def smooth(self, name: str, act: _Act) -> _Act:
        """3x3 average with padding that does not count, stride 1."""
        window = {"kernel_shape": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}
        node = helper.make_node("AveragePool", [self._dequantised(act)], [f"{name}_float"], name=name, **window)
        self.nodes.append(node)
        return self._quantised(name, act.shape, act.scale, act.zero, act.rms * 0.8)

    def softmax(self, name: str, act: _Act, factor: float) -> _Act:
        """Softmax of `factor` times the input along the last axis, in float."""
        inputs = [self._dequantised(act), self._constant(f"{name}_factor", np.array(factor, np.float32))]
        self.nodes.append(helper.make_node("Mul", inputs, [f"{name}_scaled"], name=f"{name}_scale"))
        self.nodes.append(helper.make_node("Softmax", [f"{name}_scaled"], [f"{name}_float"], name=name, axis=-1))
        return self._quantised(name, act.shape, 1 / 256, -128, 0.2)

    def average(self, name: str, act: _Act) -> _Act:
        """Average over all pixels as a pooling window, quantisation kept."""
        shape = (1, act.shape[1], 1, 1)
        kernel = act.shape[2:]
        node = helper.make_node(
            "AveragePool",
            [self._dequantised(act)],
            [f"{name}_float"],
            name=name,
            kernel_shape=kernel,
            strides=kernel,
        )
        self.nodes.append(node)
        return self._quantised(name, shape, act.scale, act.zero, act.rms * 0.6)

    def global_average(self, name: str, act: _Act) -> _Act:
        """GlobalAveragePool with a finer scale of its own."""
        shape = (1, act.shape[1], 1, 1)
        node = helper.make_node("GlobalAveragePool", [self._dequantised(act)], [f"{name}_float"], name=name)
        self.nodes.append(node)
        return self._quantised(name, shape, act.scale * 0.75, act.zero, act.rms * 0.7)

    def flatten(self, name: str, act: _Act) -> _Act:
        """(1, C, 1, 1) -> (1, C)"""
        self.nodes.append(helper.make_node("Flatten", [self._dequantised(act)], [f"{name}_float"], name=name))
        shape = (1, int(np.prod(act.shape[1:])))
        return self._quantised(name, shape, act.scale, act.zero, act.rms)

    # Pieces ------------------------------------------------------------------------------------

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def _parameters(self, name: str, act: _Act, shape: tuple[int, ...], axis: int, result: _Range) -> tuple[str, str]:
        """Names of the dequantised weights and bias; scaled to give `result.spread`."""
        channels = shape[axis]
        others = tuple(i for i in range(len(shape)) if i != axis)
        fan_in = int(np.prod([shape[i] for i in others]))
        real = self.random.standard_normal(shape, dtype=np.float32)
        if fan_in > 9:
            real -= real.mean(axis=others, keepdims=True)
        real *= np.float32(result.spread / (np.sqrt(fan_in) * act.rms))
        steps = (np.abs(real).max(axis=others) / 127).astype(np.float32)
        steps = np.maximum(steps, np.float32(1e-6))
        spread = steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        levels = np.rint(real / spread).astype(np.int8)
        weights = self._dequantised_constant(f"{name}_weights", levels, steps, axis)
        bias_steps = np.float32(act.scale) * steps
        offset = 0.2 * result.spread * self.random.standard_normal(channels)
        offset = offset + (0.2 * result.spread if result.low == 0.0 else 0.0)
        bias = np.rint(offset / bias_steps).astype(np.int32)
        return weights, self._dequantised_constant(f"{name}_bias", bias, bias_steps, 0)

    def _dequantised_constant(self, name: str, levels: NDArray[Any], steps: NDArray[np.float32], axis: int) -> str:
        inputs = [
            self._constant(name, levels),
            self._constant(f"{name}_scale", steps),
            self._constant(f"{name}_zero", np.zeros(steps.shape, levels.dtype)),
        ]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_real"], axis=axis))
        return f"{name}_real"

    def _scales(self, name: str, scale: float, zero: int) -> list[str]:
        return [
            self._constant(f"{name}_scale", np.array(scale, np.float32)),
            self._constant(f"{name}_zero", np.array(zero, np.int8)),
        ]

    def _dequantised(self, act: _Act) -> str:
        """The float name of an activation, a DequantizeLinear of its own for each use."""
        index = len(self.nodes)
        inputs = [act.name, *self._scales(f"{act.name}_{index}", act.scale, act.zero)]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{act.name}_{index}_real"]))
        return f"{act.name}_{index}_real"

    def _activated(self, name: str, shape: tuple[int, ...], result: _Range) -> _Act:
        if result.activation:
            last = f"{name}_float"
            inputs = [last]
            if result.activation == "Clip":
                inputs += [
                    self._constant(f"{name}_low", np.array(result.low, np.float32)),
                    self._constant(f"{name}_high", np.array(result.high, np.float32)),
                ]
            self.nodes.append(
                helper.make_node(result.activation, inputs, [f"{name}_active"], name=f"{name}_{result.activation}")
            )
        scale = (result.high - result.low) / 255
        zero = int(np.rint(-128 - result.low / scale))
        source = f"{name}_active" if result.activation else f"{name}_float"
        return self._quantised(name, shape, scale, zero, result.rms, source)

    def _quantised(
        self, name: str, shape: tuple[int, ...], scale: float, zero: int, rms: float, source: str = ""
    ) -> _Act:
        inputs = [source or f"{name}_float", *self._scales(f"{name}_out", scale, zero)]
        self.nodes.append(helper.make_node("QuantizeLinear", inputs, [f"{name}_out"], name=f"{name}_quantize"))
        return _Act(f"{name}_out", shape, float(np.float32(scale)), zero, rms)


def _same(size: tuple[int, ...], kernel: tuple[int, int], stride: int) -> Pads:
    """TensorFlow's SAME padding as ONNX pads (top, left, bottom, right)."""
    before, after = [], []
    for length, taps in zip(size, kernel, strict=True):
        total = max((-(-length // stride) - 1) * stride + taps - length, 0)
        before.append(total // 2)
        after.append(total - total // 2)
    return before[0], before[1], after[0], after[1]


def mobilenet_v1(width: float = 1.0, resolution: int = 224, classes: int = 1001, seed: int = 1) -> bytes:
    """MobileNetV1: ImageNet classification; input (1, 3, resolution, resolution), 568.7 M MACs."""
    _in_range("width", width, 0.05, 2.0)
    _in_range("resolution", resolution, 32, 1024)
    _in_range("classes", classes, 1, 100_000)
    build = _Builder("mobilenet_v1", seed)
    act = build.start((1, 3, resolution, resolution), 1 / 128, 0)

    def scaled(channels: int) -> int:
        return max(8, int(channels * width))

    act = build.conv("conv0", act, scaled(32), (3, 3), 2, RELU6)
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)]
    plan += [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    for index, (channels, stride) in enumerate(plan, 1):
        act = build.depthwise(f"depthwise{index}", act, stride, RELU6)
        act = build.conv(f"pointwise{index}", act, scaled(channels), (1, 1), 1, RELU6)
    act = build.global_average("pool", act)
    act = build.flatten("flatten", act)
    return build.finish(build.dense("logits", act, classes, LINEAR))


def resnet8(classes: int = 10, seed: int = 2) -> bytes:
    """ResNet-8 of MLPerf Tiny: CIFAR-10 classification; input (1, 3, 32, 32), 12.5 M MACs."""
    _in_range("classes", classes, 1, 100_000)
    build = _Builder("resnet8", seed)
    act = build.start((1, 3, 32, 32), 1 / 128, 0)
    act = build.conv("conv0", act, 16, (3, 3), 1, RELU)
    for index, (channels, stride) in enumerate([(16, 1), (32, 2), (64, 2)], 1):
        inner = build.conv(f"stack{index}_conv1", act, channels, (3, 3), stride, RELU)
        inner = build.conv(f"stack{index}_conv2", inner, channels, (3, 3), 1, LINEAR)
        shortcut = act
        if stride == 2:
            shortcut = build.conv(f"stack{index}_shortcut", act, channels, (1, 1), 2, LINEAR)
        act = build.add(f"stack{index}_add", shortcut, inner, RELU)
    act = build.average("pool", act)
    act = build.flatten("flatten", act)
    return build.finish(build.dense("logits", act, classes, LINEAR))


def dscnn(classes: int = 12, seed: int = 3) -> bytes:
    """DS-CNN of MLPerf Tiny: keyword spotting; input (1, 1, 49, 10), 2.66 M MACs."""
    _in_range("classes", classes, 1, 100_000)
    build = _Builder("dscnn", seed)
    act = build.start((1, 1, 49, 10), 0.05, 3)
    act = build.conv("conv0", act, 64, (10, 4), 2, RELU)
    for index in range(1, 5):
        act = build.depthwise(f"depthwise{index}", act, 1, RELU)
        act = build.conv(f"pointwise{index}", act, 64, (1, 1), 1, RELU)
    act = build.average("pool", act)
    act = build.flatten("flatten", act)
    return build.finish(build.dense("logits", act, classes, LINEAR))


def autoencoder(seed: int = 4) -> bytes:
    """Dense autoencoder of MLPerf Tiny: anomaly detection; input (1, 640), 264 k MACs."""
    build = _Builder("autoencoder", seed)
    act = build.start((1, 640), 0.05, 10)
    for index, channels in enumerate([128, 128, 128, 128, 8, 128, 128, 128, 128]):
        act = build.matmul(f"dense{index}", act, channels, RELU)
    return build.finish(build.matmul("dense9", act, 640, LINEAR))


def mobilenet_v2_block(channels: int = 16, resolution: int = 12, seed: int = 5) -> bytes:
    """Inverted residual of MobileNetV2; input (1, channels, resolution, resolution)."""
    _in_range("channels", channels, 1, 1024)
    _in_range("resolution", resolution, 1, 1024)
    build = _Builder("mobilenet_v2_block", seed)
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    act = build.conv("expand", start, 6 * channels, (1, 1), 1, RELU6)
    act = build.depthwise("depthwise", act, 1, RELU6)
    act = build.conv("project", act, channels, (1, 1), 1, LINEAR)
    return build.finish(build.add("residual", start, act, LINEAR))


def hard_swish_block(channels: int = 16, resolution: int = 10, seed: int = 6) -> bytes:
    """Inverted residual of MobileNetV3 with hard-swish, and squeeze and excitation with hard-sigmoid; input (1,
    channels, resolution, resolution)."""
    _in_range("channels", channels, 1, 1024)
    _in_range("resolution", resolution, 1, 255)
    build = _Builder("hard_swish_block", seed)
    wide = 4 * channels
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    act = build.conv("expand", start, wide, (1, 1), 1, LINEAR)
    act = build.function("expand_swish", "HardSwish", act, HARD_SWISH)
    act = build.depthwise("depthwise", act, 1, LINEAR)
    act = build.function("depthwise_swish", "HardSwish", act, HARD_SWISH)
    squeezed = build.global_average("squeeze", act)
    squeezed = build.conv("reduce", squeezed, max(channels, 4), (1, 1), 1, RELU)
    squeezed = build.conv("restore", squeezed, wide, (1, 1), 1, LINEAR)
    gate = build.function("gate", "HardSigmoid", squeezed, UNIT, alpha=1 / 6, beta=0.5)
    act = build.multiply("excite", act, gate, HARD_SWISH)
    act = build.conv("project", act, channels, (1, 1), 1, LINEAR)
    return build.finish(build.add("residual", start, act, LINEAR), opset=14)


def inception_block(channels: int = 24, resolution: int = 10, seed: int = 7) -> bytes:
    """Inception block: four branches, one of them a padded average, side by side; input (1, channels, resolution,
    resolution)."""
    _in_range("channels", channels, 1, 1024)
    _in_range("resolution", resolution, 3, 1024)
    build = _Builder("inception_block", seed)
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    one = build.conv("one", start, 16, (1, 1), 1, RELU)
    three = build.conv("three", build.conv("three_reduce", start, 12, (1, 1), 1, RELU), 16, (3, 3), 1, RELU)
    five = build.conv("five", build.conv("five_reduce", start, 6, (1, 1), 1, RELU), 8, (5, 5), 1, LINEAR)
    pool = build.conv("pool", build.smooth("average", start), 8, (1, 1), 1, RELU)
    return build.finish(build.concat("concat", one, three, five, pool))


def shuffle_block(channels: int = 32, resolution: int = 10, seed: int = 8) -> bytes:
    """Unit of ShuffleNetV2, its first convolution in two groups: split, one half convolved, concatenated, shuffled; and
    the convolution after it; input (1, channels, resolution, resolution)."""
    _in_range("channels", channels, 4, 1024)
    _in_range("resolution", resolution, 1, 1024)
    if channels % 4:
        raise NetworkError(f"channels must be a multiple of 4, not {channels}")
    build = _Builder("shuffle_block", seed)
    start = build.start((1, channels, resolution, resolution), 1 / 32, 0)
    kept, act = build.halves("split", start)
    act = build.conv("grouped", act, channels // 2, (1, 1), 1, RELU, groups=2)
    act = build.depthwise("depthwise", act, 1, LINEAR)
    act = build.conv("pointwise", act, channels // 2, (1, 1), 1, RELU)
    act = build.shuffle("shuffle", build.concat("concat", kept, act), 2)
    return build.finish(build.conv("next", act, channels, (1, 1), 1, LINEAR))


def attention_block(tokens: int = 16, channels: int = 32, heads: int = 2, seed: int = 9) -> bytes:
    """Self-attention with a residual, its softmax in float; input (1, tokens, channels)."""
    _in_range("tokens", tokens, 1, 4096)
    _in_range("heads", heads, 1, 64)
    _in_range("channels", channels, heads, 4096)
    if channels % heads:
        raise NetworkError(f"channels must be a multiple of heads, {heads}, not {channels}")
    build = _Builder("attention_block", seed)
    start = build.start((1, tokens, channels), 1 / 32, 0)
    depth = channels // heads

    def part(name: str, perm: tuple[int, ...]) -> _Act:
        act = build.matmul(name, start, channels, LINEAR)
        return build.transpose(f"{name}_turned", build.reshape(f"{name}_heads", act, (1, tokens, heads, depth)), perm)

    query, key, value = part("query", (0, 2, 1, 3)), part("key", (0, 2, 3, 1)), part("value", (0, 2, 1, 3))
    wide = 4.0 * depth**0.5
    scores = build.product("scores", query, key, _Range("", -3 * wide, 3 * wide, wide, wide))
    weights = build.softmax("softmax", scores, 0.5 / depth**0.5)
    act = build.product("mix", weights, value, LINEAR)
    act = build.reshape("mix_joined", build.transpose("mix_turned", act, (0, 2, 1, 3)), (1, tokens, channels))
    return build.finish(build.add("residual", start, build.matmul("output_dense", act, channels, LINEAR), LINEAR))


NETWORKS: dict[str, Callable[..., bytes]] = {
    "mobilenet_v1": mobilenet_v1,
    "resnet8": resnet8,
    "dscnn": dscnn,
    "autoencoder": autoencoder,
    "mobilenet_v2_block": mobilenet_v2_block,
    "hard_swish_block": hard_swish_block,
    "inception_block": inception_block,
    "shuffle_block": shuffle_block,
    "attention_block": attention_block,
}


def model_bytes(name: str) -> bytes:
    """The ONNX file of `name` or `name?parameter=value&...`.

    Raises
    ------
    NetworkError: unknown network or parameter, or a value out of range.
    """
    stem, _, query = name.partition("?")
    build = NETWORKS.get(stem)
    if build is None:
        raise NetworkError(f"zoo network must be one of {', '.join(NETWORKS)}, not {stem!r}")
    known = inspect.signature(build).parameters
    arguments: dict[str, int | float] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in known:
            raise NetworkError(f"parameter of zoo:{stem} must be one of {', '.join(known)}, not {key!r}")
        kind = type(known[key].default)
        try:
            arguments[key] = kind(text)
        except ValueError as error:
            raise NetworkError(f"zoo:{stem}: {key} must be of type {kind.__name__}, not {text!r}") from error
    return build(**arguments)


def _in_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise NetworkError(f"{name} must be {low}..{high}, not {value}")
