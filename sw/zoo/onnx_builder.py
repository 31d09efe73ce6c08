"""Writes quantised ONNX files layer by layer, with seeded weights, for the built-in networks.

Scales come from propagating variances, so that activations use the int8 range without the network being run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.operators.fit import is_exact
from dovetail.sw.frontend.onnx.operators.window import window_of
from dovetail.sw.frontend.onnx.values import Quant

Pads = tuple[int, int, int, int]


@dataclass(frozen=True)
class Act:
    """An int8 activation being built: its name, NCHW or NC shape, quantisation, and expected rms in reals."""

    name: str
    shape: tuple[int, ...]
    scale: float
    zero: int
    rms: float


@dataclass(frozen=True)
class Range:
    """What a layer's result looks like: activation, bounds of the reals, their expected rms.

    `spread` is the standard deviation before the activation.
    """

    activation: str
    low: float
    high: float
    spread: float
    rms: float

    @property
    def quant(self) -> tuple[float, int]:
        """Scale and zero point."""
        scale = (self.high - self.low) / 255
        return scale, int(np.rint(-128 - self.low / scale))

    def times(self, factor: float) -> Range:
        """The same levels for reals of another size."""
        reals = (factor * real for real in (self.low, self.high, self.spread, self.rms))
        return Range(self.activation, *reals)


RELU = Range("Relu", 0.0, 6.0, 2.0, 1.4)
RELU6 = Range("Clip", 0.0, 6.0, 2.0, 1.4)
LINEAR = Range("", -6.4, 5.6, 2.0, 2.0)
HARD_SWISH = Range("", -0.424, 5.6, 2.0, 1.3)
UNIT = Range("", 0.0, 255 / 256, 0.3, 0.6)

_TRIES = 24
_NEXT = 1 + 2**-22
"""The factor from a scale to the next one that is tried: one or two steps of float32."""


class Builder:
    """Writes a QDQ network layer by layer."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.input: Any = None

    def start(self, shape: tuple[int, ...], scale: float, zero: int) -> Act:
        """The network's int8 input, expected to be spread over the int8 range."""
        self.input = helper.make_tensor_value_info("input", TensorProto.INT8, shape)
        return Act("input", shape, scale, zero, scale * 74.0)

    def finish(self, act: Act, opset: int = 13) -> bytes:
        """The file."""
        self.nodes[-1].output[0] = "output"
        output = helper.make_tensor_value_info("output", TensorProto.INT8, act.shape)
        return self.written([self.input], [output], opset, ir_version=8)

    def written(self, inputs: Sequence[Any], outputs: Sequence[Any], opset: int, ir_version: int) -> bytes:
        """The file with these inputs and outputs."""
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.initializers)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="dovetail")
        return bytes(model.SerializeToString(deterministic=True))

    def conv(
        self,
        name: str,
        act: Act,
        channels: int,
        kernel: tuple[int, int],
        stride: int,
        result: Range,
        groups: int = 1,
        centred: bool = False,
    ) -> Act:
        """Convolution with TensorFlow's SAME padding, or `centred`: with PyTorch's, kernel // 2 all around."""
        strides = [stride, stride]
        padding = {"pads": _centred(kernel)} if centred else {"auto_pad": b"SAME_UPPER"}
        placed = window_of({"strides": strides, **padding}, act.shape, kernel)
        weights, bias = self._parameters(name, act, (channels, act.shape[1] // groups, *kernel), 0, result)
        window = {"kernel_shape": kernel, "strides": strides, "pads": placed.pads, "group": groups}
        self._node("Conv", [self.dequantised(act), weights, bias], name, **window)
        return self.activated(name, (1, channels, placed.rows, placed.cols), result)

    def depthwise(self, name: str, act: Act, stride: int, result: Range, size: int = 3, centred: bool = False) -> Act:
        """Depthwise convolution, `size` x `size`; padding as that of `conv`."""
        channels = act.shape[1]
        return self.conv(name, act, channels, (size, size), stride, result, groups=channels, centred=centred)

    def dense(self, name: str, act: Act, channels: int, result: Range) -> Act:
        """Gemm with bias."""
        weights, bias = self._parameters(name, act, (channels, act.shape[1]), 0, result)
        self._node("Gemm", [self.dequantised(act), weights, bias], name, transB=1)
        return self.activated(name, (1, channels), result)

    def matmul(self, name: str, act: Act, channels: int, result: Range) -> Act:
        """MatMul and Add, as TensorFlow exports a dense layer."""
        weights, bias = self._parameters(name, act, (act.shape[-1], channels), 1, result)
        inputs = [self.dequantised(act), weights]
        self.nodes.append(helper.make_node("MatMul", inputs, [f"{name}_product"], name=name))
        self.nodes.append(helper.make_node("Add", [f"{name}_product", bias], [f"{name}_float"], name=f"{name}_bias"))
        return self.activated(name, (*act.shape[:-1], channels), result)

    def add(self, name: str, a: Act, b: Act, result: Range) -> Act:
        """Residual sum."""
        return self.operator("Add", name, [a, b], a.shape, result)

    def residual(self, name: str, a: Act, b: Act, activation: str = "") -> Act:
        """Residual sum in a range that grows with its operands, so that a chain of them does not saturate.

        Its sums are exact, see `exact_sum`.
        """
        spread = float(np.hypot(a.rms, b.rms))
        if activation:
            result = Range(activation, 0.0, 2.71828 * spread, spread, 0.7 * spread)
        else:
            result = Range("", -3.17 * spread, 3.17 * spread, spread, spread)
        return self.add(name, a, b, self.exact_sum(a, b, result))

    def exact_sum(self, a: Act, b: Act, result: Range) -> Range:
        """The first range from there on in which the accelerator's sums are ONNX Runtime's for every pair of bytes."""
        first, second = (Quant(np.float32(act.scale), act.zero, "int8") for act in (a, b))
        for _ in range(_TRIES):
            scale, zero = result.quant
            if is_exact(VectorOperation.ADD, first, second, Quant(np.float32(scale), zero, "int8")):
                break
            result = replace(result, low=result.low * _NEXT, high=result.high * _NEXT)
        return result

    def multiply(self, name: str, a: Act, b: Act, result: Range) -> Act:
        """Product, of a tensor and a value per channel, too."""
        return self.operator("Mul", name, [a, b], a.shape, result)

    def function(self, name: str, op: str, act: Act, result: Range, **attributes: float) -> Act:
        """A function of every element."""
        return self.operator(op, name, [act], act.shape, result, **attributes)

    def operator(
        self, op: str, name: str, acts: list[Act], shape: tuple[int, ...], result: Range, **attributes: Any
    ) -> Act:
        """Any operator of activations."""
        self._node(op, [self.dequantised(act) for act in acts], name, **attributes)
        return self.activated(name, shape, result)

    def concat(self, name: str, *acts: Act, axis: int = 1) -> Act:
        """Concatenation; the result is quantised as the last part."""
        shape = list(acts[0].shape)
        shape[axis] = sum(act.shape[axis] for act in acts)
        self._node("Concat", [self.dequantised(act) for act in acts], name, axis=axis)
        last = acts[-1]
        return self.quantised(name, tuple(shape), last.scale, last.zero, last.rms)

    def parts(self, name: str, act: Act, count: int) -> list[Act]:
        """Channels in equal parts."""
        names = [f"{name}_{k}_float" for k in range(count)]
        self.nodes.append(helper.make_node("Split", [self.dequantised(act)], names, name=name, axis=1))
        shape = (act.shape[0], act.shape[1] // count, *act.shape[2:])
        return [self.quantised(f"{name}_{k}", shape, act.scale, act.zero, act.rms) for k in range(count)]

    def shuffle(self, name: str, act: Act, groups: int) -> Act:
        """Channel shuffle: channel j of group i becomes channel i of group j."""
        batch, channels, rows, cols = act.shape
        apart = self.reshape(f"{name}_apart", act, (batch, groups, channels // groups, rows, cols))
        return self.reshape(f"{name}_joined", self.transpose(name, apart, (0, 2, 1, 3, 4)), act.shape)

    def reshape(self, name: str, act: Act, shape: tuple[int, ...]) -> Act:
        """The same elements in another shape."""
        return self.kept("Reshape", name, act, shape, [self.constant(f"{name}_shape", np.array(shape, np.int64))])

    def transpose(self, name: str, act: Act, perm: tuple[int, ...]) -> Act:
        """Axes in another order."""
        return self.kept("Transpose", name, act, tuple(act.shape[p] for p in perm), perm=perm)

    def smooth(self, name: str, act: Act) -> Act:
        """3x3 average with padding that does not count, stride 1."""
        window: dict[str, Any] = {"kernel_shape": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}
        return self.kept("AveragePool", name, act, act.shape, rms=0.8, **window)

    def max_pool(self, name: str, act: Act, size: int, stride: int) -> Act:
        """Maximum of `size` x `size` pixels, padded by size // 2, quantisation kept."""
        window: dict[str, Any] = {"kernel_shape": (size, size), "strides": (stride, stride)}
        window["pads"] = _centred((size, size))
        placed = window_of(window, act.shape, None)
        return self.kept("MaxPool", name, act, (1, act.shape[1], placed.rows, placed.cols), rms=1.5, **window)

    def average(self, name: str, act: Act) -> Act:
        """Average over all pixels as a pooling window, quantisation kept."""
        kernel = act.shape[2:]
        return self.kept(
            "AveragePool", name, act, (1, act.shape[1], 1, 1), rms=0.6, kernel_shape=kernel, strides=kernel
        )

    def global_average(self, name: str, act: Act) -> Act:
        """GlobalAveragePool with a finer scale of its own."""
        return self.kept("GlobalAveragePool", name, act, (1, act.shape[1], 1, 1), scale=0.75, rms=0.7)

    def flatten(self, name: str, act: Act) -> Act:
        """(1, C, 1, 1) -> (1, C)"""
        return self.kept("Flatten", name, act, (1, int(np.prod(act.shape[1:]))))

    # Pieces ------------------------------------------------------------------------------------

    def _node(self, op: str, inputs: list[str], name: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}_float"], name=name, **attributes))

    def kept(
        self,
        op: str,
        name: str,
        act: Act,
        shape: tuple[int, ...],
        more: Sequence[str] = (),
        *,
        scale: float = 1.0,
        rms: float = 1.0,
        **attributes: Any,
    ) -> Act:
        """An operator that keeps the quantisation of its operand, but for factors of scale and rms."""
        self._node(op, [self.dequantised(act), *more], name, **attributes)
        return self.quantised(name, shape, act.scale * scale, act.zero, act.rms * rms)

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Adds an initialiser; returns its name."""
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def _parameters(self, name: str, act: Act, shape: tuple[int, ...], axis: int, result: Range) -> tuple[str, str]:
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
            self.constant(name, levels),
            self.constant(f"{name}_scale", steps),
            self.constant(f"{name}_zero", np.zeros(steps.shape, levels.dtype)),
        ]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_real"], axis=axis))
        return f"{name}_real"

    def _scales(self, name: str, scale: float, zero: int) -> list[str]:
        return [
            self.constant(f"{name}_scale", np.array(scale, np.float32)),
            self.constant(f"{name}_zero", np.array(zero, np.int8)),
        ]

    def dequantised(self, act: Act) -> str:
        """The float name of an activation, a DequantizeLinear of its own for each use."""
        index = len(self.nodes)
        inputs = [act.name, *self._scales(f"{act.name}_{index}", act.scale, act.zero)]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{act.name}_{index}_real"]))
        return f"{act.name}_{index}_real"

    def activated(self, name: str, shape: tuple[int, ...], result: Range) -> Act:
        """`{name}_float`, after the range's activation, quantised to the range."""
        if result.activation:
            last = f"{name}_float"
            inputs = [last]
            if result.activation == "Clip":
                inputs += [
                    self.constant(f"{name}_low", np.array(result.low, np.float32)),
                    self.constant(f"{name}_high", np.array(result.high, np.float32)),
                ]
            self.nodes.append(
                helper.make_node(result.activation, inputs, [f"{name}_active"], name=f"{name}_{result.activation}")
            )
        scale, zero = result.quant
        source = f"{name}_active" if result.activation else f"{name}_float"
        return self.quantised(name, shape, scale, zero, result.rms, source)

    def quantised(
        self, name: str, shape: tuple[int, ...], scale: float, zero: int, rms: float, source: str = ""
    ) -> Act:
        """`source`, by default `{name}_float`, quantised."""
        inputs = [source or f"{name}_float", *self._scales(f"{name}_out", scale, zero)]
        self.nodes.append(helper.make_node("QuantizeLinear", inputs, [f"{name}_out"], name=f"{name}_quantize"))
        return Act(f"{name}_out", shape, float(np.float32(scale)), zero, rms)


def in_range(name: str, value: float, low: float, high: float) -> None:
    """Raises NetworkError for a parameter of a network outside low..high."""
    if not low <= value <= high:
        raise NetworkError(f"{name} must be {low}..{high}, not {value}")


def _centred(kernel: tuple[int, int]) -> Pads:
    return kernel[0] // 2, kernel[1] // 2, kernel[0] // 2, kernel[1] // 2
