"""Element-wise operators of the TFLite front end, and products of two activations, as TFLite Micro computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.isa.numerics.add import tflite_sum
from dovetail.isa.numerics.multiplier import encode_multiplier, tflite_dense_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.repeat import repeated
from dovetail.sw.host.kernels import TfliteOp
from dovetail.sw.network import ir
from dovetail.sw.network.elementwise import PAIR_OPERATORS

if TYPE_CHECKING:
    from dovetail.sw.frontend.tflite.file import Operator
    from dovetail.sw.frontend.tflite.importer import Reader

_OPTIONS = {"ADD": schema.AddOptions, "SUB": schema.SubOptions, "MUL": schema.MulOptions}
_OPERATIONS = {row.tflite: row.operation for row in PAIR_OPERATORS.values()}

RECTIFIERS: dict[str, tuple[float | None, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}

_FUSED: dict[int, tuple[float | None, float | None]] = {
    schema.ActivationFunctionType.NONE: (None, None),
    schema.ActivationFunctionType.RELU: (0.0, None),
    schema.ActivationFunctionType.RELU6: (0.0, 6.0),
    schema.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
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


def clamp_of(op: Operator, out: ir.Tensor, activation: int) -> tuple[int, int]:
    """(lo, hi) of a fused activation, in the output's integers."""
    if activation not in _FUSED:
        raise NetworkError(f"{op.name}: fused activation must be RELU, RELU6 or RELU_N1_TO_1, not {activation}")
    return _bounds(out, *_FUSED[activation])


def _bounds(out: ir.Tensor, low: float | None, high: float | None) -> tuple[int, int]:
    lo = -128 if low is None else max(-128, _level(out, low))
    return lo, 127 if high is None else min(127, _level(out, high))


def binary(reader: Reader, op: Operator) -> ir.Node | None:
    """ADD, SUB, MUL, MINIMUM, MAXIMUM of tensors of one shape, or with one row, column or channel, or of a constant."""
    infos = [reader.infos[index] for index in op.inputs]
    constants = [info for info in infos if info.value is not None]
    if len(constants) == 1 and constants[0].tensor.size == 1:
        return function(reader, op)
    a, b = (info.tensor for info in infos)
    out = reader.infos[op.outputs[0]].tensor
    if not all(tensor.dtype == "int8" and tensor.scale is not None for tensor in (a, b, out)):
        return None
    if len(constants) == 2 or max(len(t.shape) for t in (a, b)) > 4 or not _fit(a, b):
        return None
    params = _params(op, a, b, out)
    if params is None:
        return None
    left, right = (_channels(reader, op, index, out.shape[-1]) for index in op.inputs)
    return ir.Elementwise(name=op.name, inputs=(left, right), outputs=reader.names(op.outputs[:1]), params=params)


def _channels(reader: Reader, op: Operator, index: int, channels: int) -> str:
    """An operand, its one channel repeated if it has one only."""
    name = reader.operand(op, index)
    assert name is not None
    if reader.tensors[name].shape[-1:] == (channels,):
        return name
    out, node = repeated(reader.tensors[name], channels, f"{op.name}/channels")
    reader.tensors[out.name] = out
    reader.nodes.append(node)
    return out.name


def _fit(a: ir.Tensor, b: ir.Tensor) -> bool:
    """One shape, or one row, column or channel of the other's."""
    if a.shape == b.shape:
        return True
    left, right = ((1,) * (4 - len(tensor.shape)) + tensor.shape for tensor in (a, b))
    return left[0] == right[0] == 1 and all(m == n or 1 in (m, n) for m, n in zip(left, right, strict=True))


def _params(op: Operator, a: ir.Tensor, b: ir.Tensor, out: ir.Tensor) -> VectorParameters | None:
    assert a.scale is not None and b.scale is not None and out.scale is not None
    if op.kind in ("MINIMUM", "MAXIMUM"):
        # Of the integers, whatever their scales.
        return tflite_sum(1.0, 0, 1.0, 0, 1.0, 0, operation=_OPERATIONS[op.kind])
    lo, hi = clamp_of(op, out, op.options(_OPTIONS[op.kind]).FusedActivationFunction())
    scales = float(a.scale), float(b.scale), float(out.scale)
    zeros = a.zero_point, b.zero_point, out.zero_point
    try:
        if op.kind == "MUL":
            real = scales[0] * scales[1] / scales[2]
            mult, shift = (int(v) for v in encode_multiplier(real, Rounding.TFLITE))
            za, zb, zy = zeros
            return VectorParameters(
                operation=VectorOperation.MULTIPLY,
                rounding=Rounding.TFLITE,
                za=za,
                zb=zb,
                zy=zy,
                mult_out=mult,
                shift_out=shift,
                lo=lo,
                hi=hi,
            )
        pairs = [value for pair in zip(scales, zeros, strict=True) for value in pair]
        return _add(*pairs, lo=lo, hi=hi, operation=_OPERATIONS[op.kind])
    except ValueError:  # scales too far apart for the fixed point: TFLite Micro refuses them too
        return None


def _add(sa: float, za: float, sb: float, zb: float, sy: float, zy: float, **values: Any) -> VectorParameters:
    return tflite_sum(sa, int(za), sb, int(zb), sy, int(zy), **values)


def rectifier(reader: Reader, op: Operator) -> ir.Node | None:
    """RELU, RELU6, RELU_N1_TO_1 and RELU_0_TO_1 alone."""
    if not reader.int8(op):
        return None
    source, out = reader.ends(op)
    requant = _requant(op, source, out, *_bounds(out, *RECTIFIERS[op.kind]))
    return ir.Rescale(**reader.wires(op), requant=requant, kind=op.kind.lower())


def _requant(op: Operator, source: ir.Tensor, out: ir.Tensor, lo: int = -128, hi: int = 127) -> ir.Requant:
    """The ratio of the scales, formed in float32."""
    assert source.scale is not None and out.scale is not None
    real = np.array([source.scale / out.scale], np.float32).astype(np.float64)
    return ir.Requant.encode(real, Rounding.TFLITE, source.zero_point, out.zero_point, lo, hi, where=op.name)


def absolute(reader: Reader, op: Operator) -> ir.Node | None:
    """ABS"""
    if not reader.int8(op):
        return None
    requant = _requant(op, *reader.ends(op))
    return ir.Rescale(**reader.wires(op), requant=requant, absolute=True, kind="abs")


def leaky(reader: Reader, op: Operator) -> ir.Node | None:
    """LEAKY_RELU with a slope that is not negative."""
    if not reader.int8(op):
        return None
    source, out = reader.ends(op)
    assert source.scale is not None and out.scale is not None
    alpha = np.float32(op.options(schema.LeakyReluOptions).Alpha())
    below = np.float32(source.scale * alpha) / out.scale
    if not 0 <= below < 1 << 31:
        return function(reader, op)
    mult, shift = (int(v) for v in encode_multiplier(float(below), Rounding.TFLITE))
    return ir.Rescale(**reader.wires(op), requant=_requant(op, source, out), below=(mult, shift), kind="leaky_relu")


def function(reader: Reader, op: Operator) -> ir.Node | None:
    """A function of one element as a table."""
    dynamic = tuple(index for index in op.inputs if index >= 0 and reader.constant(index) is None)
    if len(dynamic) != 1 or not reader.int8(op):
        return None
    source, out = reader.infos[dynamic[0]].tensor, reader.infos[op.outputs[0]].tensor
    if source.dtype != "int8" or source.size != out.size:
        return None
    try:
        values = TfliteOp(reader.file.data, op.index, dynamic, op.outputs, reader.unsigned).table()
    except NetworkError:  # the runtime has no int8 form of it
        return None
    view = reader.view(op, source.name, out.shape)
    return ir.Table(name=op.name, inputs=(view,), outputs=(out.name,), values=values, kind=op.kind.lower())


def matmul(reader: Reader, op: Operator) -> ir.Node | None:
    """BATCH_MATMUL of two activations."""
    options = op.options(schema.BatchMatMulOptions)
    tensors = [reader.infos[index].tensor for index in op.inputs]
    a, b = tensors
    out = reader.infos[op.outputs[0]].tensor
    if not all(t.dtype == "int8" and t.scale is not None for t in (a, b, out)) or min(len(a.shape), len(b.shape)) < 2:
        return None
    matching = a.shape[:-2] == b.shape[:-2] and out.shape[:-2] == a.shape[:-2]
    if not matching:
        return None
    names = [reader.operand(op, index) for index in op.inputs]
    assert names[0] is not None and names[1] is not None and out.scale is not None
    left = names[0]
    if options.AdjX():
        turned = np.swapaxes(ir.positions(a.shape), -1, -2)
        copy = ir.Copy.between(turned, ir.positions(turned.shape))
        assert copy is not None
        left = f"{op.name}/turned"
        reader.tensors[left] = ir.Tensor(left, turned.shape, a.scale, a.zero_point)
        reader.nodes.append(ir.Move(name=left, inputs=(names[0],), outputs=(left,), copies=(copy,), kind="transpose"))
    real = tflite_dense_multiplier(np.asarray(a.scale), np.array([b.scale]), np.asarray(out.scale))
    return ir.MatMul(
        name=op.name,
        inputs=(left, names[1]),
        outputs=reader.names(op.outputs),
        requant=ir.Requant.encode(real, Rounding.TFLITE, a.zero_point, out.zero_point, where=op.name),
        zero_b=b.zero_point,
        transposed=bool(options.AdjY()),
    )


def product_of_rows(reader: Reader, op: Operator) -> ir.Node | None:
    """FULLY_CONNECTED with computed weights [N, K] and no bias: rows of K elements with each row of the weights."""
    a, b = (reader.infos[index].tensor for index in op.inputs[:2])
    out = reader.infos[op.outputs[0]].tensor
    biased = any(index >= 0 for index in op.inputs[2:])
    if biased or len(b.shape) != 2 or not all(t.dtype == "int8" and t.scale is not None for t in (a, b, out)):
        return None
    assert a.scale is not None and b.scale is not None and out.scale is not None
    channels, depth = b.shape
    rows = a.size // depth
    if out.size != rows * channels:
        raise NetworkError(f"{op.name}: output must have shape {(rows, channels)}, not {out.shape}")
    left = reader.operand(op, op.inputs[0])
    assert left is not None
    product = f"{op.name}/product"
    reader.tensors[product] = replace(out, name=product, shape=(rows, channels))
    clamp = clamp_of(op, out, op.options(schema.FullyConnectedOptions).FusedActivationFunction())
    real = tflite_dense_multiplier(np.asarray(a.scale), np.array([b.scale]), np.asarray(out.scale))
    reader.nodes.append(
        ir.MatMul(
            name=product,
            inputs=(reader.view(op, left, (rows, depth)), b.name),
            outputs=(product,),
            requant=ir.Requant.encode(real, Rounding.TFLITE, a.zero_point, out.zero_point, *clamp, where=op.name),
            zero_b=b.zero_point,
            transposed=True,
        )
    )
    return ir.Reshape(name=op.name, inputs=(product,), outputs=reader.names(op.outputs), shape=out.shape)


ELEMENTWISE: Mapping[str, Callable[[Reader, Operator], ir.Node | None]] = {
    **dict.fromkeys(_OPERATIONS, binary),
    **dict.fromkeys(RECTIFIERS, rectifier),
    **dict.fromkeys(FUNCTIONS, function),
    "ABS": absolute,
    "LEAKY_RELU": leaky,
    "BATCH_MATMUL": matmul,
}
