"""Element-wise operators of 8-bit TFLite files, as TFLite Micro computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.isa.numerics.add import tflite_sum
from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.multiply import scaled_product
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorParameters
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.repeat import repeated
from dovetail.sw.frontend.tflite.file import Operator, Operators
from dovetail.sw.frontend.tflite.graph_builder import Build, GraphBuilder, are_int8, requant, scales_of
from dovetail.sw.host.kernels import Quantize, TfliteOp
from dovetail.sw.network import ir
from dovetail.sw.network.elementwise import PAIR_OPERATORS

ELEMENTWISE: Operators[Build] = Operators()

_OPTIONS = {"ADD": schema.AddOptions, "SUB": schema.SubOptions, "MUL": schema.MulOptions}
_OPERATIONS = {row.tflite: row.operation for row in PAIR_OPERATORS.values()}

RECTIFIERS: dict[str, tuple[float | None, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}

_FUSED = {
    schema.ActivationFunctionType.NONE: "",
    schema.ActivationFunctionType.RELU: "RELU",
    schema.ActivationFunctionType.RELU6: "RELU6",
    schema.ActivationFunctionType.RELU_N1_TO_1: "RELU_N1_TO_1",
}

FUNCTIONS = (
    "LOGISTIC",
    "TANH",
    "HARD_SWISH",
    "ELU",
    "GELU",
    "EXP",
    "LOG",
    "SQRT",
    "RSQRT",
    "SQUARE",
    "NEG",
    "SIN",
    "COS",
)
"""Functions of one element that become tables of what the runtime's reference kernel makes of each value."""


def _level(out: ir.Tensor, real: float) -> int:
    """The integer that stands for a real value, not clamped."""
    assert out.scale is not None
    ratio = np.float32(real) / out.scale
    return out.zero_point + int(np.trunc(ratio + np.copysign(np.float32(0.5), ratio)))


def fused_activation(op: Operator, code: int) -> str:
    """Its name, empty for none. Raises NetworkError for others."""
    if code not in _FUSED:
        raise NetworkError(f"{op.name}: fused activation must be RELU, RELU6 or RELU_N1_TO_1, not {code}")
    return _FUSED[code]


def clamp_of(op: Operator, out: ir.Tensor, activation: int) -> tuple[int, int]:
    """(lo, hi) of a fused activation, in the output's integers."""
    return _bounds(out, *RECTIFIERS.get(fused_activation(op, activation), (None, None)))


def _bounds(out: ir.Tensor, low: float | None, high: float | None) -> tuple[int, int]:
    lo = -128 if low is None else max(-128, _level(out, low))
    return lo, 127 if high is None else min(127, _level(out, high))


@ELEMENTWISE(*_OPERATIONS)
def binary(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """Two tensors of one shape; one of them may have a single row, column or channel, or be a constant."""
    constants = [builder.tensor(index) for index in op.inputs if builder.constant(index) is not None]
    if len(constants) == 1 and constants[0].size == 1:
        return function(builder, op)
    a, b, out = (builder.tensor(index) for index in (*op.inputs, op.outputs[0]))
    if not are_int8(a, b, out) or len(constants) == 2 or max(len(t.shape) for t in (a, b)) > 4 or not _fit(a, b):
        return None
    params = _params(op, a, b, out)
    if params is None:
        return None
    left, right = (_channels(builder, op, index, out.shape[-1]) for index in op.inputs)
    return ir.Elementwise(name=op.name, inputs=(left, right), outputs=builder.names(op.outputs[:1]), params=params)


def _channels(builder: GraphBuilder, op: Operator, index: int, channels: int) -> str:
    """An operand, its one channel repeated if it has one only."""
    name = builder.operand(op, index)
    assert name is not None
    if builder.tensors[name].shape[-1:] == (channels,):
        return name
    out, node = repeated(builder.tensors[name], channels, f"{op.name}/channels")
    return builder.add(node, out)


def _fit(a: ir.Tensor, b: ir.Tensor) -> bool:
    """One shape, or one row, column or channel of the other's."""
    if a.shape == b.shape:
        return True
    left, right = ((1,) * (4 - len(tensor.shape)) + tensor.shape for tensor in (a, b))
    return left[0] == right[0] == 1 and all(m == n or 1 in (m, n) for m, n in zip(left, right, strict=True))


def _params(op: Operator, a: ir.Tensor, b: ir.Tensor, out: ir.Tensor) -> VectorParameters | None:
    if op.kind in ("MINIMUM", "MAXIMUM"):
        # They compare integers, whatever the scales.
        return tflite_sum(1.0, 0, 1.0, 0, 1.0, 0, operation=_OPERATIONS[op.kind])
    lo, hi = clamp_of(op, out, op.options(_OPTIONS[op.kind]).FusedActivationFunction())
    scales = [float(scale) for scale in scales_of(a, b, out)]
    zeros = a.zero_point, b.zero_point, out.zero_point
    try:
        if op.kind == "MUL":
            return scaled_product(scales[0] * scales[1] / scales[2], *zeros, Rounding.TFLITE, lo=lo, hi=hi)
        pairs = [value for pair in zip(scales, zeros, strict=True) for value in pair]
        return _add(*pairs, lo=lo, hi=hi, operation=_OPERATIONS[op.kind])
    except ValueError:  # scales too far apart for the fixed point: TFLite Micro refuses them too
        return None


def _add(sa: float, za: float, sb: float, zb: float, sy: float, zy: float, **values: Any) -> VectorParameters:
    return tflite_sum(sa, int(za), sb, int(zb), sy, int(zy), **values)


@ELEMENTWISE(*RECTIFIERS)
def rectifier(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """RELU, RELU6, RELU_N1_TO_1 and RELU_0_TO_1 alone."""
    if not builder.int8(op):
        return None
    source, out = builder.ends(op)
    factor = _requant(op, source, out, *_bounds(out, *RECTIFIERS[op.kind]))
    return ir.Rescale(**builder.wires(op), requant=factor, kind=op.kind.lower())


def _requant(op: Operator, source: ir.Tensor, out: ir.Tensor, *clamp: int) -> ir.Requant:
    """The ratio of the scales, formed in float32."""
    scale_in, scale_out = scales_of(source, out)
    return requant(op, np.float32(scale_in / scale_out), source, out, *clamp)


@ELEMENTWISE("ABS")
def absolute(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    if not builder.int8(op):
        return None
    return ir.Rescale(**builder.wires(op), requant=_requant(op, *builder.ends(op)), absolute=True, kind="abs")


@ELEMENTWISE("LEAKY_RELU")
def leaky(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """LEAKY_RELU with a slope that is not negative."""
    if not builder.int8(op):
        return None
    source, out = builder.ends(op)
    scale_in, scale_out = scales_of(source, out)
    below = np.float32(scale_in * np.float32(op.options(schema.LeakyReluOptions).Alpha())) / scale_out
    if not 0 <= below < 1 << 31:
        return function(builder, op)
    mult, shift = (int(v) for v in encode_multiplier(float(below), Rounding.TFLITE))
    return ir.Rescale(**builder.wires(op), requant=_requant(op, source, out), below=(mult, shift), kind="leaky_relu")


@ELEMENTWISE(*FUNCTIONS)
def function(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """A function of one element as a table."""
    dynamic = tuple(index for index in op.inputs if index >= 0 and builder.constant(index) is None)
    if len(dynamic) != 1 or not builder.int8(op):
        return None
    source, out = builder.tensor(dynamic[0]), builder.tensor(op.outputs[0])
    if not are_int8(source) or source.size != out.size:
        return None
    try:
        values = TfliteOp(builder.file.data, op.index, dynamic, op.outputs, builder.unsigned).table()
    except NetworkError:  # the runtime has no int8 form of it
        return None
    view = builder.view(op, source.name, out.shape)
    return ir.Table(name=op.name, inputs=(view,), outputs=(out.name,), values=values, kind=op.kind.lower())


@ELEMENTWISE("QUANTIZE")
def quantize(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """QUANTIZE: float to int8 on the host, 8 bits to 8 bits by rescaling."""
    source, out = builder.ends(op)
    if source.dtype == "float32" and are_int8(out):
        (scale,) = scales_of(out)
        payload = Quantize(scale, out.zero_point, ties_even=False)
        return ir.Host(**builder.wires(op), label="quantize", payload=payload)
    if not builder.int8(op):
        return None
    scale_in, scale_out = (float(scale) for scale in scales_of(source, out))
    return ir.Rescale(**builder.wires(op), requant=requant(op, scale_in / scale_out, source, out), kind="quantize")
