"""Integer operators of the ONNX front end: operands and quantisation in, graph nodes out.

Both dialects end here: QOperator nodes name these operands themselves, QDQ patterns are matched first.
The arithmetic is the operators' definition as ONNX Runtime's integer kernels compute it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.numerics.multiplier import onnx_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.graph_builder import GraphBuilder
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Value
from dovetail.sw.frontend.onnx.window_attributes import window_of
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, Shape

Clamp = tuple[int, int]
FULL: Clamp = (-128, 127)


class IntegerOps:
    """Each method returns the result, or None where the accelerator has no such operator."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def conv(
        self,
        name: str,
        result: str,
        attributes: Mapping[str, Any],
        source: Source,
        weights: Constant,
        bias: Constant | Array | None,
        target: Quant,
        clamp: Clamp = FULL,
    ) -> Value | None:
        """Convolution, grouped or not: weights OIHW. With one input channel per group it is depthwise."""
        shape = source.value.shape
        if len(shape) != 4 or shape[0] != 1 or weights.values.ndim != 4:
            return None
        channels, depth, *kernel = weights.values.shape
        groups = int(attributes.get("group", 1))
        if depth * groups != shape[1]:
            raise NetworkError(f"node {name!r}: weights must have {shape[1]} input channels, not {depth * groups}")
        depthwise = groups > 1 and depth == 1
        window = window_of(attributes, shape, (kernel[0], kernel[1]))
        image = self.builder.image(source.value)
        integers, scales = weights.weights(0, f"node {name!r}")
        levels = self._bias(name, bias, source.quant, scales)
        layout = Layout.image((1, channels, window.rows, window.cols))
        out = self.builder.integer(result, layout, target)
        wires: dict[str, Any] = {
            "name": self.builder.node_name(name),
            "inputs": (image.tensor,),
            "outputs": (out.tensor,),
            "bias": levels,
            "requant": _requant(name, source.quant, scales, target, clamp),
            "stride": window.stride,
            "pads": window.pads,
            "dilation": window.dilation,
        }
        ordered = np.ascontiguousarray(integers.transpose(2, 3, 0, 1)[..., 0] if depthwise else _ohwi(integers))
        if depthwise:
            self.builder.nodes.append(ir.Depthwise(**wires, weights=ordered))
        else:
            self.builder.nodes.append(ir.Conv(**wires, weights=ordered, groups=groups))
        return out

    def dense(
        self,
        name: str,
        result: str,
        source: Source,
        weights: Constant,
        bias: Constant | Array | None,
        target: Quant,
        clamp: Clamp = FULL,
    ) -> Value | None:
        """Matrix product with constant weights [K, N] as a 1x1 convolution over the rows."""
        shape = source.value.shape
        if weights.values.ndim != 2 or len(shape) < 2:
            return None
        depth, channels = weights.values.shape
        if shape[-1] != depth:
            raise NetworkError(f"node {name!r}: weights must have {shape[-1]} rows, not {depth}")
        rows = int(np.prod(shape[:-1]))
        integers, scales = weights.weights(1, f"node {name!r}")
        matrix = integers.T
        value = source.value
        if rows == 1 and not value.layout.is_plain:
            # A flattened image: reorder the weights' columns once instead of the activations every time.
            reordered = np.empty_like(matrix)
            reordered[:, value.layout.order()] = matrix
            matrix = reordered
            value = Value(value.tensor, Layout.plain(value.shape), value.dtype)
        inner = (1, 1, rows, depth)
        if not value.layout.is_plain or self.builder.nhwc(value) != inner:
            value = self.builder.placed(value, Layout(inner, (0, 1, 2, 3), value.shape))
        layout = Layout((1, 1, rows, channels), (0, 1, 2, 3), (*shape[:-1], channels))
        levels = self._bias(name, bias, source.quant, scales)
        out = self.builder.integer(result, layout, target)
        self.builder.nodes.append(
            ir.Conv(
                name=self.builder.node_name(name),
                inputs=(value.tensor,),
                outputs=(out.tensor,),
                weights=np.ascontiguousarray(matrix.reshape(channels, 1, 1, depth)),
                bias=levels,
                requant=_requant(name, source.quant, scales, target, clamp),
                kind="dense",
            )
        )
        return out

    def matmul(self, name: str, result: str, a: Source, b: Source, target: Quant, clamp: Clamp = FULL) -> Value | None:
        """Matrix product of two activations: one matrix each, or equally many."""
        left, right = a.value.shape, b.value.shape
        if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
            return None
        rows: Shape
        if len(right) == 2:
            rows = (int(np.prod(left[:-1])), left[-1])
        elif left[:-2] == right[:-2]:
            rows = left
        else:
            return None
        first = self.builder.placed(a.value, Layout(rows, tuple(range(len(rows))), left))
        # Where the matrix lies column by column already, it is taken so.
        swap = (*range(len(right) - 2), len(right) - 1, len(right) - 2)
        turned = tuple(right[k] for k in swap)
        transposed = _fastest(b.value.layout) == len(right) - 2
        second = self.builder.placed(b.value, Layout(turned, swap, right) if transposed else Layout.plain(right))
        inner = (*rows[:-1], right[-1])
        out = self.builder.integer(result, Layout(inner, tuple(range(len(inner))), (*left[:-1], right[-1])), target)
        self.builder.nodes.append(
            ir.MatMul(
                name=self.builder.node_name(name),
                inputs=(first.tensor, second.tensor),
                outputs=(out.tensor,),
                requant=_requant(name, a.quant, np.array([b.quant.scale], np.float32), target, clamp),
                zero_b=b.quant.zero_point,
                transposed=transposed,
            )
        )
        return out

    def average_pool(
        self,
        name: str,
        result: str,
        attributes: Mapping[str, Any],
        source: Source,
        target: Quant,
        clamp: Clamp = FULL,
    ) -> Value | None:
        """Windowed average; input and output quantisation must be equal.

        As ONNX Runtime's integer kernel: the mean of the integers with their zero point, ties to even. In float, which
        it uses at lower optimisation, ties of windows with an even number of taps may go the other way.
        """
        shape = source.value.shape
        if len(shape) != 4 or (source.quant.scale, source.quant.zero_point) != (
            target.scale,
            target.zero_point,
        ):
            return None
        window = window_of(attributes, shape, None)
        counted = bool(attributes.get("count_include_pad", 0)) and any(window.pads)
        # What ceil_mode adds at the end never counts.
        if window.dilation != (1, 1) or (counted and attributes.get("ceil_mode", 0)):
            return None
        image = self.builder.image(source.value)
        out = self.builder.integer(result, Layout.image((1, shape[1], window.rows, window.cols)), target)
        self.builder.nodes.append(
            ir.AvgPool(
                name=self.builder.node_name(name),
                inputs=(image.tensor,),
                outputs=(out.tensor,),
                kernel=window.kernel,
                stride=window.stride,
                pads=window.pads,
                rounding=Rounding.ONNX,
                lo=clamp[0],
                hi=clamp[1],
                counted=target.zero_point if counted else None,
            )
        )
        return out

    def mean(
        self, name: str, result: str, source: Source, target: Quant, keep: bool = True, clamp: Clamp = FULL
    ) -> Value | None:
        """Average over all pixels, requantised from the sum."""
        shape = source.value.shape
        if len(shape) != 4:
            return None
        image = self.builder.image(source.value)
        count = shape[2] * shape[3]
        real = source.quant.scale / (target.scale * np.float32(count))
        layout = Layout.image((1, shape[1], 1, 1))
        out = self.builder.integer(result, layout, target)
        zeros = (source.quant.zero_point, target.zero_point)
        requant = ir.Requant.encode(np.array([real], np.float32), Rounding.ONNX, *zeros, *clamp, where=name)
        self.builder.nodes.append(
            ir.Mean(
                name=self.builder.node_name(name),
                inputs=(image.tensor,),
                outputs=(out.tensor,),
                requant=requant,
            )
        )
        return out if keep else Value(out.tensor, layout.reshaped((1, shape[1])), out.dtype)

    def max_pool(
        self, name: str, result: str, attributes: Mapping[str, Any], value: Value, quant: Quant | None
    ) -> Value | None:
        """Maximum over windows: the same in integers as in reals."""
        shape = value.shape
        if len(shape) != 4 or shape[0] != 1 or value.dtype not in ("int8", "uint8"):
            return None
        window = window_of(attributes, shape, None)
        if window.dilation != (1, 1) or attributes.get("storage_order", 0):
            return None
        image = self.builder.image(value)
        layout = Layout.image((1, shape[1], window.rows, window.cols))
        out = Value(self.builder.tensor(result, layout.inner, "int8", quant), layout, value.dtype)
        self.builder.nodes.append(
            ir.MaxPool(
                name=self.builder.node_name(name),
                inputs=(image.tensor,),
                outputs=(out.tensor,),
                kernel=window.kernel,
                stride=window.stride,
                pads=window.pads,
            )
        )
        return out

    def relu(self, name: str, result: str, source: Source) -> Value:
        """A rectifier alone, as a 1x1 maximum with a clamp."""
        value = source.value
        layout = value.layout
        if self.builder.tensors[value.tensor].shape != layout.inner or len(layout.inner) > 4:
            flat = Layout((value.layout.order().size,), (0,), value.shape)
            value = self.builder.plain(value) if not layout.is_plain else value
            value = self.builder.placed(value, flat)
            layout = flat
        out = self.builder.integer(result, layout, source.quant)
        self.builder.nodes.append(
            ir.MaxPool(
                name=self.builder.node_name(name),
                inputs=(value.tensor,),
                outputs=(out.tensor,),
                kernel=(1, 1),
                stride=(1, 1),
                pads=(0, 0, 0, 0),
                lo=source.quant.zero_point,
            )
        )
        return out

    @staticmethod
    def _bias(
        name: str, bias: Constant | Array | None, source: Quant, scales: NDArray[np.float32]
    ) -> NDArray[np.int32]:
        """int32 levels of the accumulator's scale; a bias kept as float is rounded to them."""
        steps = np.float64(source.scale) * scales.astype(np.float64)
        if bias is None:
            return np.zeros(scales.size, np.int32)
        if isinstance(bias, Constant):
            levels = bias.values.ravel()
            given = np.broadcast_to(bias.scale.ravel(), scales.shape).astype(np.float64)
            if levels.dtype == np.int32 and levels.size == scales.size and not np.any(bias.zero_point):
                if np.allclose(given, steps, rtol=1e-3, atol=1e-30):
                    return np.ascontiguousarray(levels)
                raise NetworkError(f"node {name!r}: bias scale must be input scale times weight scale")
            bias = bias.real()
        if bias.dtype == np.int32:
            return np.ascontiguousarray(bias.ravel())
        real = np.broadcast_to(bias.ravel() if bias.size > 1 else bias.reshape(()), scales.shape)
        rounded = np.rint(real.astype(np.float64) / steps)
        return np.clip(rounded, -(2**31), 2**31 - 1).astype(np.int32)


def _fastest(layout: Layout) -> int:
    """The axis in the file along which neighbours are neighbours in memory; the last if there is none."""
    if not layout.is_direct:
        return len(layout.shape) - 1
    moving = [axis for axis in range(len(layout.inner)) if layout.inner[axis] != 1]
    return layout.perm.index(moving[-1]) if moving else len(layout.shape) - 1


def _ohwi(weights: NDArray[np.int8]) -> NDArray[np.int8]:
    return weights.transpose(0, 2, 3, 1)


def _requant(name: str, source: Quant, scales: NDArray[np.float32], target: Quant, clamp: Clamp) -> ir.Requant:
    real = onnx_multiplier(np.asarray(source.scale), scales, np.asarray(target.scale))
    zeros = source.zero_point, target.zero_point
    return ir.Requant.encode(real, Rounding.ONNX, *zeros, *clamp, where=name)
