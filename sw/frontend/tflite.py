"""TFLite front end: an int8 flatbuffer becomes a `Graph` with TFLite Micro's numerics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from numpy.typing import NDArray

from dovetail.isa import numerics
from dovetail.isa.numerics import AddParams, Rounding
from dovetail.sw import graph as ir
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.fold_pads import fold_pads
from dovetail.sw.host import Quantize, TfliteOp
from dovetail.sw.layout import Array, Layout

_DTYPES = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"}
_OP_NAMES = {
    value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int) and name.isupper()
}
_STATEFUL = {"IF", "WHILE", "CALL", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CUSTOM"}
_SPATIAL = {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}
_WAY_OUT = "convert the float network again with full-integer int8 quantisation"


def is_tflite(data: bytes) -> bool:
    """Whether the bytes carry the TFLite file identifier."""
    return data[4:8] == b"TFL3"


def load_tflite(data: bytes, name: str) -> ir.Graph:
    """Read an int8 TFLite network.

    Raises
    ------
    NetworkError: the file is malformed, or a node is outside what Dovetail runs.
    """
    try:
        reader = _Reader(data)
        graph = reader.read(name)
    except NetworkError:
        raise
    except Exception as error:  # a malformed flatbuffer fails anywhere in the generated accessors
        raise NetworkError(f"{name}: TFLite file must be complete, not malformed ({type(error).__name__})") from error
    if not any(tensor.dtype == "int8" for tensor in graph.tensors.values()):
        raise NetworkError(f"{name}: activations must be int8, not float; {_WAY_OUT}")
    return fold_pads(graph.check()).check()


@dataclass(frozen=True)
class _Info:
    """One tensor of the file: its record plus the value if it is a constant."""

    tensor: ir.Tensor
    scales: NDArray[np.float32]
    zero_points: NDArray[np.int64]
    value: Array | None


@dataclass(frozen=True)
class _Op:
    """One operator of the file."""

    index: int
    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    raw: Any

    def options(self, table: Any) -> Any:
        """The builtin options, read as generated class `table`."""
        raw = self.raw.BuiltinOptions()
        if raw is None:
            raise NetworkError(f"{self.name}: options must be present, not missing")
        options = table()
        options.Init(raw.Bytes, raw.Pos)
        return options


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.model = tflite.Model.GetRootAsModel(data, 0)
        if self.model.SubgraphsLength() != 1:
            raise NetworkError(f"the file must hold one subgraph, not {self.model.SubgraphsLength()}")
        self.subgraph = self.model.Subgraphs(0)
        self.nodes: list[ir.Node] = []
        self.infos: list[_Info] = []
        self.used: set[str] = set()
        self.tensors: dict[str, ir.Tensor] = {}

    def read(self, name: str) -> ir.Graph:
        graph = self.subgraph
        self._bounded(graph.TensorsLength(), graph.OperatorsLength())
        self.infos = [self._tensor(index) for index in range(graph.TensorsLength())]
        inputs = [int(i) for i in graph.InputsAsNumpy()]
        outputs = [int(i) for i in graph.OutputsAsNumpy()]
        for index in inputs:
            self._declare(index)
        for index in range(graph.OperatorsLength()):
            self._operator(self._op(index))
        return ir.Graph(
            inputs=tuple(self._port(index) for index in inputs),
            outputs=tuple(self._port(index) for index in outputs),
            tensors=self.tensors,
            nodes=tuple(self.nodes),
            source="tflite",
            name=name,
        )

    def _bounded(self, *lengths: int) -> None:
        """A vector cannot have more entries than the file has words; keeps damaged files from looping."""
        for length in lengths:
            if not 0 < length <= len(self.data) // 4:
                raise NetworkError(f"a table must have 1 to {len(self.data) // 4} entries, not {length}")

    def _tensor(self, index: int) -> _Info:
        raw = self.subgraph.Tensors(index)
        dtype = _DTYPES.get(raw.Type())
        name = (raw.Name() or b"").decode(errors="replace") or f"tensor_{index}"
        while name in self.used:
            name += f"_{index}"
        self.used.add(name)
        if dtype is None:
            raise NetworkError(f"tensor {name!r}: element type must be a plain number, not code {raw.Type()}")
        self._bounded(raw.ShapeLength() + 1)
        shape = tuple(int(raw.Shape(i)) for i in range(raw.ShapeLength()))
        quant = raw.Quantization()
        scales, zeros = np.zeros(0, np.float32), np.zeros(0, np.int64)
        if quant is not None and quant.ScaleLength():
            scales = np.array(quant.ScaleAsNumpy(), np.float32)
            zeros = np.array(quant.ZeroPointAsNumpy(), np.int64) if quant.ZeroPointLength() else zeros
        value = None
        buffer = self.model.Buffers(raw.Buffer())
        if buffer.DataLength():
            value = np.frombuffer(np.array(buffer.DataAsNumpy(), np.uint8).tobytes(), dtype).reshape(shape)
        scale = scales[0] if scales.size == 1 else None
        zero = int(zeros[0]) if scales.size == 1 and zeros.size else 0
        return _Info(ir.Tensor(name, shape, scale, zero, dtype), scales, zeros, value)

    def _op(self, index: int) -> _Op:
        raw = self.subgraph.Operators(index)
        code = self.model.OperatorCodes(raw.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        kind = _OP_NAMES.get(number, f"operator {number}")
        ins = tuple(int(raw.Inputs(i)) for i in range(raw.InputsLength()))
        outs = tuple(int(raw.Outputs(i)) for i in range(raw.OutputsLength()))
        return _Op(index, kind, f"{index:02d}_{kind}", ins, outs, raw)

    def _port(self, index: int) -> ir.Port:
        tensor = self.infos[index].tensor
        return ir.Port(
            name=tensor.name,
            tensor=tensor.name,
            dtype=tensor.dtype,
            scale=tensor.scale,
            zero_point=tensor.zero_point,
            layout=Layout.plain(tensor.shape),
        )

    def _declare(self, index: int) -> str:
        tensor = self.infos[index].tensor
        self.tensors[tensor.name] = tensor
        return tensor.name

    def _emit(self, node: ir.Node, op: _Op) -> None:
        for index in op.outputs:
            self._declare(index)
        self.nodes.append(node)

    def _operator(self, op: _Op) -> None:
        if op.kind in _STATEFUL or op.kind.startswith("operator"):
            raise NetworkError(f"{op.name}: operator must be a TFLite builtin without state, not {op.kind}")
        build = _BUILDERS.get(op.kind)
        node = build(self, op) if build is not None else None
        self._emit(node if node is not None else self._host(op), op)

    def _host(self, op: _Op) -> ir.Host:
        """Leave an operator to LiteRT's reference kernels."""
        dynamic = tuple(i for i in op.inputs if i >= 0 and self.infos[i].value is None)
        return ir.Host(
            name=op.name,
            inputs=self._names(dynamic),
            outputs=self._names(op.outputs),
            label=op.kind.lower(),
            payload=TfliteOp(self.data, op.index, dynamic, op.outputs),
        )

    def _names(self, indices: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.infos[i].tensor.name for i in indices)

    def _ends(self, op: _Op) -> tuple[ir.Tensor, ir.Tensor]:
        return self.infos[op.inputs[0]].tensor, self.infos[op.outputs[0]].tensor

    def _wires(self, op: _Op, count: int = 1) -> dict[str, Any]:
        return {
            "name": op.name,
            "inputs": self._names(op.inputs[:count]),
            "outputs": self._names(op.outputs[:1]),
        }

    # Operators ---------------------------------------------------------------------------------

    def conv(self, op: _Op) -> ir.Node | None:
        """CONV_2D: weights OHWI."""
        options = op.options(tflite.Conv2DOptions)
        weights = self._weights(op, axis=0)
        return self._convolution(op, options, weights)

    def depthwise(self, op: _Op) -> ir.Node | None:
        """DEPTHWISE_CONV_2D with multiplier 1, or any multiplier on one input channel."""
        options = op.options(tflite.DepthwiseConv2DOptions)
        weights = self._weights(op, axis=3)
        channels = self.infos[op.inputs[0]].tensor.nhwc[3]
        if channels == 1:
            return self._convolution(op, options, weights.transpose(3, 1, 2, 0))
        if weights.shape[3] != channels:
            return None
        return self._convolution(op, options, weights[0])

    def _convolution(self, op: _Op, options: Any, weights: NDArray[np.int8]) -> ir.Node:
        source, out = self._ends(op)
        kernel = (weights.shape[0], weights.shape[1]) if weights.ndim == 3 else (weights.shape[1], weights.shape[2])
        stride = options.StrideH(), options.StrideW()
        dilation = options.DilationHFactor(), options.DilationWFactor()
        table = ir.Depthwise if weights.ndim == 3 else ir.Conv
        channels = weights.shape[2] if weights.ndim == 3 else weights.shape[0]
        return table(
            **self._wires(op),
            weights=np.ascontiguousarray(weights),
            bias=self._bias(op, channels),
            requant=self._requant(op, channels, options.FusedActivationFunction()),
            stride=stride,
            pads=_pads(source, out, kernel, stride, dilation, options.Padding()),
            dilation=dilation,
        )

    def dense(self, op: _Op) -> ir.Node | None:
        """FULLY_CONNECTED as a 1x1 convolution."""
        options = op.options(tflite.FullyConnectedOptions)
        weights = self._weights(op, axis=0)
        channels, depth = weights.shape
        source, out = self._ends(op)
        wires = self._wires(op)
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
        return ir.Conv(
            **wires,
            weights=np.ascontiguousarray(weights.reshape(channels, 1, 1, depth)),
            bias=self._bias(op, channels),
            requant=self._requant(op, channels, options.FusedActivationFunction(), dense=True),
            kind="dense",
        )

    def add(self, op: _Op) -> ir.Node | None:
        """ADD of two activations of one shape."""
        left, right = (self.infos[i] for i in op.inputs)
        out = self.infos[op.outputs[0]].tensor
        if left.value is not None or right.value is not None or left.tensor.shape != right.tensor.shape:
            return None
        if not self._int8(op):
            return None
        a, b = left.tensor, right.tensor
        lo, hi = _clamp(op, out, op.options(tflite.AddOptions).FusedActivationFunction())
        assert a.scale is not None and b.scale is not None and out.scale is not None
        sa, sb, sy = float(a.scale), float(b.scale), float(out.scale)
        try:
            params = AddParams.tflite(sa, a.zero_point, sb, b.zero_point, sy, out.zero_point, lo=lo, hi=hi)
        except ValueError:  # scales too far apart for the fixed point: TFLite Micro refuses them too
            return None
        return ir.Elementwise(**self._wires(op, 2), params=params)

    def average_pool(self, op: _Op) -> ir.Node | None:
        """AVERAGE_POOL_2D"""
        window = self._window(op)
        if window is None:
            return None
        return ir.AvgPool(**self._wires(op), **window, rounding=Rounding.TFLITE)

    def max_pool(self, op: _Op) -> ir.Node | None:
        """MAX_POOL_2D"""
        window = self._window(op)
        return None if window is None else ir.MaxPool(**self._wires(op), **window)

    def _window(self, op: _Op) -> dict[str, Any] | None:
        source, out = self._ends(op)
        if not self._int8(op) or source.scale != out.scale or source.zero_point != out.zero_point:
            return None
        options = op.options(tflite.Pool2DOptions)
        kernel = options.FilterHeight(), options.FilterWidth()
        stride = options.StrideH(), options.StrideW()
        lo, hi = _clamp(op, out, options.FusedActivationFunction())
        pads = _pads(source, out, kernel, stride, (1, 1), options.Padding())
        return {"kernel": kernel, "stride": stride, "pads": pads, "lo": lo, "hi": hi}

    def mean(self, op: _Op) -> ir.Node | None:
        """MEAN over height and width."""
        source, out = self._ends(op)
        axes = self.infos[op.inputs[1]].value
        if not self._int8(op) or axes is None or len(source.shape) != 4:
            return None
        if sorted(int(axis) % 4 for axis in axes.ravel()) != [1, 2] or source.shape[0] != 1:
            return None
        assert source.scale is not None and out.scale is not None
        count = source.shape[1] * source.shape[2]
        mult, shift = numerics.mean_multiplier(float(source.scale), float(out.scale), count)
        requant = ir.Requant(
            np.array([mult], np.int32),
            np.array([shift], np.int32),
            Rounding.TFLITE,
            source.zero_point,
            out.zero_point,
        )
        return ir.Mean(**self._wires(op), requant=requant)

    def reshape(self, op: _Op) -> ir.Node | None:
        """RESHAPE, SQUEEZE, EXPAND_DIMS of int8 data."""
        source, out = self._ends(op)
        if not self._int8(op):
            return None
        if source.size != out.size:
            raise NetworkError(f"{op.name}: output must have {source.size} elements, not {out.size}")
        return ir.Reshape(**self._wires(op), shape=out.shape)

    def quantize(self, op: _Op) -> ir.Node | None:
        """QUANTIZE: float to int8 on the host; int8 to int8 as a depthwise 1x1 with weight one."""
        source, out = self._ends(op)
        if source.dtype == "float32" and out.dtype == "int8" and out.scale is not None:
            payload = Quantize(out.scale, out.zero_point, ties_even=False)
            return ir.Host(**self._wires(op), label="quantize", payload=payload)
        if not self._int8(op):
            return None
        assert source.scale is not None and out.scale is not None
        channels = source.nhwc[3]
        real = np.full(channels, float(source.scale) / float(out.scale))
        requant = ir.Requant.encode(real, Rounding.TFLITE, source.zero_point, out.zero_point, where=op.name)
        ones = np.ones((1, 1, channels), np.int8)
        return ir.Depthwise(**self._wires(op), weights=ones, bias=np.zeros(channels, np.int32), requant=requant)

    def pad(self, op: _Op) -> ir.Node | None:
        """PAD of height and width with the zero point."""
        source, _ = self._ends(op)
        sizes = self.infos[op.inputs[1]].value
        if not self._int8(op) or sizes is None or sizes.shape != (4, 2) or source.nhwc != source.shape:
            return None
        if np.any(sizes[[0, 3]]) or np.any(sizes < 0):
            return None
        (top, bottom), (left, right) = (tuple(int(size) for size in row) for row in sizes[1:3])
        pads = (top, left, bottom, right)
        return ir.Pad(**self._wires(op), pads=pads, value=source.zero_point)

    # Helpers -----------------------------------------------------------------------------------

    def _int8(self, op: _Op) -> bool:
        """Both ends are int8 tensors with one scale."""
        return all(t.dtype == "int8" and t.scale is not None for t in self._ends(op))

    def _weights(self, op: _Op, axis: int) -> NDArray[np.int8]:
        info = self.infos[op.inputs[1]]
        for tensor in self._ends(op):
            if tensor.dtype != "int8" or tensor.scale is None:
                raise NetworkError(f"{op.name}: activations must be int8, not {tensor.dtype}; {_WAY_OUT}")
        if info.value is None:
            raise NetworkError(f"{op.name}: weights must be a constant, not computed by the network")
        if info.tensor.dtype != "int8":
            raise NetworkError(f"{op.name}: weights must be int8, not {info.tensor.dtype}; {_WAY_OUT}")
        if np.any(info.zero_points):
            raise NetworkError(f"{op.name}: weights must have zero point 0, not an asymmetric one; {_WAY_OUT}")
        if info.scales.size not in (1, info.value.shape[axis]):
            raise NetworkError(f"{op.name}: weights must have one scale per channel, not {info.scales.size}")
        return info.value.astype(np.int8)

    def _bias(self, op: _Op, channels: int) -> NDArray[np.int32]:
        if len(op.inputs) < 3 or op.inputs[2] < 0:
            return np.zeros(channels, np.int32)
        info = self.infos[op.inputs[2]]
        if info.value is None or info.tensor.dtype != "int32" or info.value.size != channels:
            raise NetworkError(f"{op.name}: bias must be {channels} int32 constants, not {info.tensor}")
        return info.value.reshape(channels).astype(np.int32)

    def _requant(self, op: _Op, channels: int, activation: int, dense: bool = False) -> ir.Requant:
        source, out = self._ends(op)
        assert source.scale is not None and out.scale is not None
        scales = np.broadcast_to(self.infos[op.inputs[1]].scales, (channels,))
        one_scale = dense and self.infos[op.inputs[1]].scales.size == 1
        form = numerics.tflite_dense_multiplier if one_scale else numerics.tflite_multiplier
        real = form(np.asarray(source.scale), scales, np.asarray(out.scale))
        clamp = _clamp(op, out, activation)
        zeros = source.zero_point, out.zero_point
        return ir.Requant.encode(real, Rounding.TFLITE, *zeros, *clamp, where=op.name)


_BUILDERS: dict[str, Callable[[_Reader, _Op], ir.Node | None]] = {
    "CONV_2D": _Reader.conv,
    "DEPTHWISE_CONV_2D": _Reader.depthwise,
    "FULLY_CONNECTED": _Reader.dense,
    "ADD": _Reader.add,
    "AVERAGE_POOL_2D": _Reader.average_pool,
    "MAX_POOL_2D": _Reader.max_pool,
    "MEAN": _Reader.mean,
    "RESHAPE": _Reader.reshape,
    "SQUEEZE": _Reader.reshape,
    "EXPAND_DIMS": _Reader.reshape,
    "QUANTIZE": _Reader.quantize,
    "PAD": _Reader.pad,
}


def _clamp(op: _Op, out: ir.Tensor, activation: int) -> tuple[int, int]:
    """(lo, hi) of a fused activation, in the output's integers."""
    bounds = {
        tflite.ActivationFunctionType.NONE: (None, None),
        tflite.ActivationFunctionType.RELU: (0.0, None),
        tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
        tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
    }
    if activation not in bounds:
        raise NetworkError(f"{op.name}: fused activation must be RELU, RELU6 or RELU_N1_TO_1, not {activation}")
    scale = out.scale
    assert scale is not None

    def level(value: float) -> int:
        ratio = np.float32(value) / scale
        return out.zero_point + int(np.trunc(ratio + np.copysign(np.float32(0.5), ratio)))

    low, high = bounds[activation]
    lo = -128 if low is None else max(-128, level(low))
    return lo, 127 if high is None else min(127, level(high))


def _pads(
    source: ir.Tensor, out: ir.Tensor, kernel: ir.Pair, stride: ir.Pair, dilation: ir.Pair, padding: int
) -> ir.Pads:
    """TFLite's padding: SAME puts the smaller half before."""
    if padding == tflite.Padding.VALID:
        return 0, 0, 0, 0
    before, after = [], []
    for axis in range(2):
        reach = (out.nhwc[axis + 1] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        total = max(reach - source.nhwc[axis + 1], 0)
        before.append(total // 2)
        after.append(total - total // 2)
    return before[0], before[1], after[0], after[1]
