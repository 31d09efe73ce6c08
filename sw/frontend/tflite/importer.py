"""TFLite front end: an int8 flatbuffer becomes a `Graph` with TFLite Micro's numerics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from dovetail.isa.numerics.multiplier import mean_multiplier, tflite_dense_multiplier, tflite_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.errors import NetworkError, not_quantised
from dovetail.sw.frontend.tflite.elementwise import ELEMENTWISE, clamp_of, product_of_rows
from dovetail.sw.frontend.tflite.file import Operator, TfliteFile, is_float, pads_of
from dovetail.sw.frontend.tflite.movement import MOVEMENT
from dovetail.sw.frontend.tflite.recurrent import integer_layer
from dovetail.sw.frontend.tflite.remainder import custom_op, split
from dovetail.sw.frontend.tflite.shapes import settle
from dovetail.sw.frontend.tflite.unsigned import SIGNED_ONLY, is_unsigned, signed
from dovetail.sw.frontend.tflite.variables import WALK, Variables
from dovetail.sw.host.kernels import Quantize, TfliteOp
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout, Shape

_CONVERSIONS = {"CAST", "QUANTIZE", "DEQUANTIZE"}
_SPATIAL = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}
_WAY_OUT = "convert the float network again with full-integer int8 quantisation"


def load_tflite(data: bytes, name: str) -> ir.Graph:
    """Read an int8 TFLite network, or a uint8 one, whose tensors are int8 (value - 128) in the graph.

    Raises
    ------
    NetworkError: the file is malformed, or a node is outside what Dovetail runs.
    """
    try:
        file = TfliteFile(data)
        remainder = split(file)
        if remainder is not None:
            file = TfliteFile(remainder.head)
        if is_float(file):
            raise not_quantised(name)
        settle(file)
        graph = Reader(file).read(name)
        if remainder is not None:
            graph = replace(graph, left=remainder.left, why_left=remainder.reason)
    except NetworkError:
        raise
    except Exception as error:  # a malformed flatbuffer fails anywhere in the generated accessors
        raise NetworkError(f"{name}: TFLite file must be complete, not malformed ({type(error).__name__})") from error
    if not any(tensor.dtype == "int8" for tensor in graph.tensors.values()):
        raise NetworkError(f"{name}: activations must be int8 or uint8, not of other types; {_WAY_OUT}")
    return graph.check()


class Reader:
    def __init__(self, file: TfliteFile) -> None:
        self.file = file
        self.unsigned = is_unsigned(file)
        self.infos = [signed(info) for info in file.infos] if self.unsigned else list(file.infos)
        self.nodes: list[ir.Node] = []
        self.tensors: dict[str, ir.Tensor] = {}
        self.variables: Variables = Variables(self)

    def read(self, name: str) -> ir.Graph:
        for index in self.file.inputs:
            self.declare(index)
        for op in self.file.operators:
            self._operator(op)
        return ir.Graph(
            inputs=tuple(self._port(index) for index in self.file.inputs),
            outputs=tuple(self._port(index) for index in self.file.outputs),
            tensors=self.tensors,
            nodes=tuple(self.nodes),
            source="tflite",
            name=name,
            states=self.variables.states(),
        )

    def _port(self, index: int) -> ir.Port:
        tensor = replace(self.file.infos[index].tensor, shape=self.infos[index].tensor.shape)
        return ir.Port(
            name=tensor.name,
            tensor=tensor.name,
            dtype=tensor.dtype,
            scale=tensor.scale,
            zero_point=tensor.zero_point,
            layout=Layout.plain(tensor.shape),
            offset=128 if self.unsigned and tensor.dtype == "uint8" else 0,
        )

    def declare(self, index: int) -> str:
        tensor = self.infos[index].tensor
        self.tensors[tensor.name] = tensor
        return tensor.name

    def _emit(self, node: ir.Node, op: Operator) -> None:
        for index in op.outputs:
            self.declare(index)
        self.nodes.append(node)

    def _operator(self, op: Operator) -> None:
        if op.kind.startswith("CUSTOM "):
            self._emit(self._custom(op), op)
            return
        if op.kind in WALK:
            WALK[op.kind](self, op)
            return
        build = None if self.unsigned and op.kind in SIGNED_ONLY else BUILDERS.get(op.kind)
        node = build(self, op) if build is not None else None
        self._emit(node if node is not None else self._host(op), op)

    def _host(self, op: Operator) -> ir.Host:
        """Leave an operator to LiteRT's reference kernels."""
        self._check_types(op)
        if op.kind == "SOFTMAX":
            self._check_softmax(op)
        dynamic = tuple(i for i in op.inputs if i >= 0 and self.infos[i].value is None)
        variables = tuple(i for i in dynamic if self.infos[i].variable)
        plain = tuple(i for i in dynamic if i not in variables)
        before = self.names(variables)
        payload: Any = integer_layer(self, op) if variables else None
        return ir.Host(
            name=op.name,
            inputs=self.names(plain) + before,
            outputs=self.names(op.outputs) + tuple(self.variables.write(i) for i in variables),
            label=op.kind.lower(),
            payload=payload or TfliteOp(self.file.data, op.index, plain, op.outputs, self.unsigned, variables),
        )

    def _custom(self, op: Operator) -> ir.Host:
        """Leave a custom operator to LiteRT, which also knows what the file may not say: the shapes of its results."""
        payload = custom_op(self.file, op)
        for index, shape in zip(op.outputs, payload.shapes(), strict=True):
            info = self.infos[index]
            self.infos[index] = replace(info, tensor=replace(info.tensor, shape=shape))
        wires = {"inputs": self.names(payload.inputs), "outputs": self.names(op.outputs)}
        payload = replace(payload, unsigned=self.unsigned)
        return ir.Host(name=op.name, **wires, label=op.kind.removeprefix("CUSTOM "), payload=payload)

    def _check_types(self, op: Operator) -> None:
        """LiteRT's kernels take for granted that integers have scales, and that types go together."""
        if op.kind in _CONVERSIONS:
            return
        ends = [[self.infos[i] for i in indices if i >= 0] for indices in (op.inputs, op.outputs)]
        read, made = ({info.tensor.dtype for info in part if info.value is None} for part in ends)
        if ("int8" in read and "float32" in made) or ("float32" in read and "int8" in made):
            raise NetworkError(f"{op.name}: must make what it reads, int8 or float32, not one of the other")
        for info in (*ends[0], *ends[1]):
            scaled = bool(info.scales.size) and bool(np.all(np.isfinite(info.scales) & (info.scales > 0)))
            if info.tensor.dtype == "int8" and not scaled:
                raise NetworkError(f"{op.name}: scales of {info.tensor.name!r} must be positive and finite")

    def _check_softmax(self, op: Operator) -> None:
        """LiteRT's kernel ends the process where this does not hold."""
        beta, scale = op.options(schema.SoftmaxOptions).Beta(), self.infos[op.inputs[0]].tensor.scale or 1.0
        if not 2**-26 < beta * float(scale) < np.inf:
            raise NetworkError(
                f"{op.name}: beta times the input's scale must be above 2**-26, not {beta * float(scale)}"
            )

    def names(self, indices: tuple[int, ...]) -> tuple[str, ...]:
        """Of the tensors that hold the file's tensors now."""
        return tuple(self.variables.read(i) if self.infos[i].variable else self.infos[i].tensor.name for i in indices)

    def ends(self, op: Operator) -> tuple[ir.Tensor, ir.Tensor]:
        return self.infos[op.inputs[0]].tensor, self.infos[op.outputs[0]].tensor

    def wires(self, op: Operator, count: int = 1) -> dict[str, Any]:
        return {
            "name": op.name,
            "inputs": self.names(op.inputs[:count]),
            "outputs": self.names(op.outputs[:1]),
        }

    # Operators ---------------------------------------------------------------------------------

    def conv(self, op: Operator) -> ir.Node | None:
        """CONV_2D: weights OHWI."""
        options = op.options(schema.Conv2DOptions)
        weights = self._weights(op, axis=0)
        return self._convolution(op, options, weights)

    def depthwise(self, op: Operator) -> ir.Node | None:
        """DEPTHWISE_CONV_2D; on one input channel it is a convolution."""
        options = op.options(schema.DepthwiseConv2DOptions)
        weights = self._weights(op, axis=3)
        channels = self.infos[op.inputs[0]].tensor.nhwc[3]
        if channels == 1:
            return self._convolution(op, options, weights.transpose(3, 1, 2, 0))
        return self._convolution(op, options, weights[0])

    def _convolution(self, op: Operator, options: Any, weights: NDArray[np.int16]) -> ir.Node:
        source, out = self.ends(op)
        grouped = weights.ndim == 4
        kernel = (weights.shape[1], weights.shape[2]) if grouped else (weights.shape[0], weights.shape[1])
        channels = weights.shape[0] if grouped else weights.shape[2]
        stride = options.StrideH(), options.StrideW()
        dilation = options.DilationHFactor(), options.DilationWFactor()
        terms = ir.int8_terms(np.ascontiguousarray(weights))
        common: dict[str, Any] = {
            **self.wires(op),
            "weights": terms[0],
            "rest": terms[1],
            "bias": self._bias(op, channels),
            "requant": self._requant(op, channels, options.FusedActivationFunction()),
            "stride": stride,
            "pads": pads_of(source, out, kernel, stride, dilation, options.Padding()),
            "dilation": dilation,
        }
        return ir.Conv(**common, groups=source.nhwc[3] // weights.shape[3]) if grouped else ir.Depthwise(**common)

    def dense(self, op: Operator) -> ir.Node | None:
        """FULLY_CONNECTED as a 1x1 convolution, or as a product where its weights are computed."""
        if self.infos[op.inputs[1]].value is None:
            return product_of_rows(self, op)
        options = op.options(schema.FullyConnectedOptions)
        weights = self._weights(op, axis=0)
        channels, depth = weights.shape
        source, out = self.ends(op)
        wires = self.wires(op)
        rows = source.size // depth
        if source.nhwc != (1, 1, rows, depth):
            view = ir.Tensor(f"{source.name}/rows{op.index}", (1, 1, rows, depth), source.scale, source.zero_point)
            self.tensors[view.name] = view
            self.nodes.append(
                ir.Reshape(name=f"{op.name}/rows", inputs=wires["inputs"], outputs=(view.name,), shape=view.shape)
            )
            wires["inputs"] = (view.name,)
        if out.nhwc != (1, 1, rows, channels):
            raise NetworkError(f"{op.name}: output must have shape {(rows, channels)}, not {out.shape}")
        terms = ir.int8_terms(weights.reshape(channels, 1, 1, depth))
        return ir.Conv(
            **wires,
            weights=terms[0],
            rest=terms[1],
            bias=self._bias(op, channels),
            requant=self._requant(op, channels, options.FusedActivationFunction(), dense=True),
            kind="dense",
        )

    def average_pool(self, op: Operator) -> ir.Node | None:
        """AVERAGE_POOL_2D"""
        window = self._window(op)
        if window is None:
            return None
        # uint8 kernels round ties up, which is away from the least value.
        origin = -128 if self.unsigned else 0
        return ir.AvgPool(**self.wires(op), **window, rounding=Rounding.TFLITE, origin=origin)

    def max_pool(self, op: Operator) -> ir.Node | None:
        """MAX_POOL_2D"""
        window = self._window(op)
        return None if window is None else ir.MaxPool(**self.wires(op), **window)

    def _window(self, op: Operator) -> dict[str, Any] | None:
        source, out = self.ends(op)
        if not self.int8(op) or source.scale != out.scale or source.zero_point != out.zero_point:
            return None
        options = op.options(schema.Pool2DOptions)
        kernel = options.FilterHeight(), options.FilterWidth()
        stride = options.StrideH(), options.StrideW()
        lo, hi = clamp_of(op, out, options.FusedActivationFunction())
        pads = pads_of(source, out, kernel, stride, (1, 1), options.Padding())
        return {"kernel": kernel, "stride": stride, "pads": pads, "lo": lo, "hi": hi}

    def mean(self, op: Operator) -> ir.Node | None:
        """MEAN over height and width."""
        source, out = self.ends(op)
        axes = self.infos[op.inputs[1]].value
        if not self.int8(op) or axes is None or len(source.shape) != 4:
            return None
        if sorted(int(axis) % 4 for axis in axes.ravel()) != [1, 2] or source.shape[0] != 1:
            return None
        assert source.scale is not None and out.scale is not None
        count = source.shape[1] * source.shape[2]
        mult, shift = mean_multiplier(float(source.scale), float(out.scale), count)
        requant = ir.Requant(
            np.array([mult], np.int32),
            np.array([shift], np.int32),
            Rounding.TFLITE,
            source.zero_point,
            out.zero_point,
        )
        return ir.Mean(**self.wires(op), requant=requant)

    def reshape(self, op: Operator) -> ir.Node | None:
        """RESHAPE, SQUEEZE, EXPAND_DIMS of int8 data."""
        source, out = self.ends(op)
        if not self.int8(op):
            return None
        if source.size != out.size:
            raise NetworkError(f"{op.name}: output must have {source.size} elements, not {out.size}")
        return ir.Reshape(**self.wires(op), shape=out.shape)

    def quantize(self, op: Operator) -> ir.Node | None:
        """QUANTIZE: float to int8 on the host, int8 to int8 by rescaling."""
        source, out = self.ends(op)
        if source.dtype == "float32" and out.dtype == "int8" and out.scale is not None:
            payload = Quantize(out.scale, out.zero_point, ties_even=False)
            return ir.Host(**self.wires(op), label="quantize", payload=payload)
        if not self.int8(op):
            return None
        assert source.scale is not None and out.scale is not None
        real = np.array([float(source.scale) / float(out.scale)])
        zeros = source.zero_point, out.zero_point
        requant = ir.Requant.encode(real, Rounding.TFLITE, *zeros, where=op.name)
        return ir.Rescale(**self.wires(op), requant=requant, kind="quantize")

    # Helpers -----------------------------------------------------------------------------------

    def constant(self, index: int) -> Array | None:
        """The value of an operand that does not depend on the network's inputs."""
        return self.infos[index].value if index >= 0 else None

    def operand(self, op: Operator, index: int) -> str | None:
        """An int8 operand, constant or not, as a tensor of the graph; None if it is something else."""
        info = self.infos[index]
        if info.tensor.dtype != "int8" or info.tensor.scale is None:
            return None
        if info.value is not None and info.tensor.name not in self.tensors:
            name = self.declare(index)
            self.nodes.append(ir.Constant(name=f"{op.name}/{name}", inputs=(), outputs=(name,), value=info.value))
        return info.tensor.name

    def view(self, op: Operator, source: str, shape: Shape) -> str:
        """The tensor under another shape."""
        tensor = self.tensors[source]
        if tensor.shape == shape:
            return source
        name = f"{source}/view{op.index}_{len(self.nodes)}"
        self.tensors[name] = replace(tensor, name=name, shape=shape)
        self.nodes.append(ir.Reshape(name=name, inputs=(source,), outputs=(name,), shape=shape))
        return name

    def int8(self, op: Operator) -> bool:
        """Both ends are int8 tensors with one scale."""
        return all(t.dtype == "int8" and t.scale is not None for t in self.ends(op))

    def _weights(self, op: Operator, axis: int) -> NDArray[np.int16]:
        """Weights less their zero point."""
        info = self.infos[op.inputs[1]]
        for tensor in self.ends(op):
            if tensor.dtype != "int8" or tensor.scale is None:
                raise NetworkError(f"{op.name}: activations must be int8, not {tensor.dtype}; {_WAY_OUT}")
        if info.value is None:
            raise NetworkError(f"{op.name}: weights must be a constant, not computed by the network")
        if info.tensor.dtype != "int8":
            raise NetworkError(f"{op.name}: weights must be int8, not {info.tensor.dtype}; {_WAY_OUT}")
        if np.any(info.zero_points) and not self.unsigned:
            raise NetworkError(f"{op.name}: weights must have zero point 0, not an asymmetric one; {_WAY_OUT}")
        if info.scales.size not in (1, info.value.shape[axis]):
            raise NetworkError(f"{op.name}: weights must have one scale per channel, not {info.scales.size}")
        if self.unsigned and info.scales.size != 1:
            raise NetworkError(f"{op.name}: uint8 weights must have one scale, not {info.scales.size}")
        if not -128 <= info.tensor.zero_point <= 127:
            raise NetworkError(
                f"{op.name}: zero point of the weights must be 0..255, not {info.tensor.zero_point + 128}"
            )
        return info.value.astype(np.int16) - np.int16(info.tensor.zero_point)

    def _bias(self, op: Operator, channels: int) -> NDArray[np.int32]:
        if len(op.inputs) < 3 or op.inputs[2] < 0:
            return np.zeros(channels, np.int32)
        info = self.infos[op.inputs[2]]
        if info.value is None or info.tensor.dtype != "int32" or info.value.size != channels:
            raise NetworkError(f"{op.name}: bias must be {channels} int32 constants, not {info.tensor}")
        return info.value.reshape(channels).astype(np.int32)

    def _requant(self, op: Operator, channels: int, activation: int, dense: bool = False) -> ir.Requant:
        source, out = self.ends(op)
        assert source.scale is not None and out.scale is not None
        scales = np.broadcast_to(self.infos[op.inputs[1]].scales, (channels,))
        one_scale = (dense or self.unsigned) and self.infos[op.inputs[1]].scales.size == 1
        form = tflite_dense_multiplier if one_scale else tflite_multiplier
        real = form(np.asarray(source.scale), scales, np.asarray(out.scale))
        clamp = clamp_of(op, out, activation)
        zeros = source.zero_point, out.zero_point
        return ir.Requant.encode(real, Rounding.TFLITE, *zeros, *clamp, where=op.name)


BUILDERS: dict[str, Callable[[Reader, Operator], ir.Node | None]] = {
    "CONV_2D": Reader.conv,
    "DEPTHWISE_CONV_2D": Reader.depthwise,
    "FULLY_CONNECTED": Reader.dense,
    "AVERAGE_POOL_2D": Reader.average_pool,
    "MAX_POOL_2D": Reader.max_pool,
    "MEAN": Reader.mean,
    "RESHAPE": Reader.reshape,
    "SQUEEZE": Reader.reshape,
    "EXPAND_DIMS": Reader.reshape,
    "QUANTIZE": Reader.quantize,
    **ELEMENTWISE,
    **MOVEMENT,
}
