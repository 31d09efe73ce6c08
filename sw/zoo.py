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

    def finish(self, act: _Act) -> bytes:
        """The file."""
        self.nodes[-1].output[0] = "output"
        output = helper.make_tensor_value_info("output", TensorProto.INT8, act.shape)
        graph = helper.make_graph(self.nodes, self.name, [self.input], [output], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="dovetail")
        model.ir_version = 8
        return bytes(model.SerializeToString(deterministic=True))

    def conv(self, name: str, act: _Act, channels: int, kernel: tuple[int, int], stride: int, result: _Range) -> _Act:
        """Convolution with TensorFlow's SAME padding."""
        return self._convolution(name, act, channels, act.shape[1], kernel, stride, result, groups=1)

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
        weights, bias = self._parameters(name, act, (act.shape[1], channels), 1, result)
        inputs = [self._dequantised(act), weights]
        self.nodes.append(helper.make_node("MatMul", inputs, [f"{name}_product"], name=name))
        self.nodes.append(helper.make_node("Add", [f"{name}_product", bias], [f"{name}_float"], name=f"{name}_bias"))
        return self._activated(name, (1, channels), result)

    def add(self, name: str, a: _Act, b: _Act, result: _Range) -> _Act:
        """Residual sum."""
        inputs = [self._dequantised(a), self._dequantised(b)]
        self.nodes.append(helper.make_node("Add", inputs, [f"{name}_float"], name=name))
        return self._activated(name, a.shape, result)

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


NETWORKS: dict[str, Callable[..., bytes]] = {
    "mobilenet_v1": mobilenet_v1,
    "resnet8": resnet8,
    "dscnn": dscnn,
    "autoencoder": autoencoder,
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
