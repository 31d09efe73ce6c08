"""Functions of elements and conversions of float TFLite networks in ONNX, and fused activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Operator, Operators
from dovetail.sw.frontend.tflite.floats.writer import Write, Writer
from dovetail.sw.frontend.tflite.operators.elementwise import RECTIFIERS, fused_activation

ELEMENTWISE: Operators[Write] = Operators()


def activated(
    w: Writer, op: Operator, activation: int, kind: str, inputs: Sequence[str], *, image: bool, **attributes: Any
) -> None:
    """A node and the activation fused into its operator."""
    fused = fused_activation(op, activation)
    if not fused:
        w.result(op.outputs[0], kind, inputs, image=image, **attributes)
        return
    linear = w.node(f"{w.info(op.outputs[0]).tensor.name}/linear", kind, inputs, **attributes)
    _rectify(w, op, fused, linear, image)


def _rectify(w: Writer, op: Operator, kind: str, value: str, image: bool) -> None:
    ends = [w.add_constant(f"{op.name}/clamp", np.float32(v)) for v in RECTIFIERS[kind] if kind != "RELU"]
    w.result(op.outputs[0], "Clip" if ends else "Relu", [value, *ends], image=image)


_BINARY: Mapping[str, tuple[str, Any]] = {
    "ADD": ("Add", schema.AddOptions),
    "SUB": ("Sub", schema.SubOptions),
    "MUL": ("Mul", schema.MulOptions),
    "DIV": ("Div", schema.DivOptions),
}


@ELEMENTWISE(*_BINARY)
def binary(w: Writer, op: Operator) -> None:
    """Two operands of one shape, or of shapes that broadcast."""
    w.require_float(op)
    kind, table = _BINARY[op.kind]
    image, activation = w.is_image(op, op.inputs), op.options(table).FusedActivationFunction()
    activated(w, op, activation, kind, w.operands(op.inputs, image), image=image)


@ELEMENTWISE("SQUARED_DIFFERENCE")
def squared_difference(w: Writer, op: Operator) -> None:
    image = w.is_image(op, op.inputs)
    difference = w.node(f"{op.name}/difference", "Sub", w.operands(op.inputs, image))
    w.result(op.outputs[0], "Mul", [difference, difference], image=image)


_ALIKE: Mapping[str, str] = {
    "MINIMUM": "Min",
    "MAXIMUM": "Max",
    "POW": "Pow",
    "PRELU": "PRelu",
    "LEAKY_RELU": "LeakyRelu",
    "GELU": "Gelu",
    "TANH": "Tanh",
    "LOGISTIC": "Sigmoid",
    "HARD_SWISH": "HardSwish",
    "ELU": "Elu",
    "ABS": "Abs",
    "NEG": "Neg",
    "EXP": "Exp",
    "LOG": "Log",
    "SQRT": "Sqrt",
    "SIN": "Sin",
    "COS": "Cos",
    "FLOOR": "Floor",
    "CEIL": "Ceil",
    "ROUND": "Round",
    "SIGN": "Sign",
    "ADD_N": "Sum",
}


@ELEMENTWISE(*_ALIKE)
def alike(w: Writer, op: Operator) -> None:
    """Operators that ONNX has too."""
    w.require_float(op)
    attributes: dict[str, Any] = {}
    if op.kind == "LEAKY_RELU":
        attributes = {"alpha": op.options(schema.LeakyReluOptions).Alpha()}
    elif op.kind == "GELU":
        attributes = {"approximate": "tanh" if op.options(schema.GeluOptions).Approximate() else "none"}
    w.map(op, _ALIKE[op.kind], **attributes)


_LOGIC: Mapping[str, str] = {
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
    "LOGICAL_NOT": "Not",
    "SELECT_V2": "Where",
}


@ELEMENTWISE(*_LOGIC)
def logic(w: Writer, op: Operator) -> None:
    """Comparisons, of any type, and what follows from them."""
    w.map(op, _LOGIC[op.kind])


@ELEMENTWISE("NOT_EQUAL")
def not_equal(w: Writer, op: Operator) -> None:
    image = w.is_image(op, op.inputs)
    equal = w.node(f"{op.name}/equal", "Equal", w.operands(op.inputs, image))
    w.result(op.outputs[0], "Not", [equal], image=image)


@ELEMENTWISE("SELECT")
def select(w: Writer, op: Operator) -> None:
    """SELECT by a condition for each element, or by one for all."""
    shape, result = w.shape(op.inputs[0]), w.shape(op.outputs[0])
    if shape not in ((), (1,), result):
        raise NetworkError(f"{op.name}: condition must be one, or one for each of {result}, not of {shape}")
    w.map(op, "Where")


@ELEMENTWISE("L2_NORMALIZATION")
def unit_length(w: Writer, op: Operator) -> None:
    w.require_float(op)
    w.result(op.outputs[0], "LpNormalization", [w.value(op.inputs[0])], axis=-1, p=2)


@ELEMENTWISE("ARG_MAX", "ARG_MIN")
def place_of(w: Writer, op: Operator) -> None:
    """ARG_MAX and ARG_MIN along one axis; ONNX counts in int64."""
    (axis,) = w.numbers(op, 1)
    axis = w.axis(op, axis, len(w.shape(op.inputs[0])), image=False)
    kind = "ArgMax" if op.kind == "ARG_MAX" else "ArgMin"
    found = w.node(f"{op.name}/int64", kind, [w.value(op.inputs[0])], axis=axis, keepdims=0)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(w.info(op.outputs[0]).tensor.dtype))
    w.result(op.outputs[0], "Cast", [found], to=to)


@ELEMENTWISE(*RECTIFIERS)
def rectifier(w: Writer, op: Operator) -> None:
    w.require_float(op)
    image = w.is_image(op, op.inputs)
    _rectify(w, op, op.kind, w.operands(op.inputs, image)[0], image)


@ELEMENTWISE("SQUARE", "RSQRT")
def power(w: Writer, op: Operator) -> None:
    image = w.is_image(op, op.inputs)
    (value,) = w.operands(op.inputs, image)
    if op.kind == "SQUARE":
        w.result(op.outputs[0], "Mul", [value, value], image=image)
    else:
        w.result(op.outputs[0], "Reciprocal", [w.node(f"{op.name}/root", "Sqrt", [value])], image=image)


@ELEMENTWISE("SOFTMAX", "LOG_SOFTMAX")
def softmax(w: Writer, op: Operator) -> None:
    """SOFTMAX and LOG_SOFTMAX over the last axis."""
    w.require_float(op)
    value = w.value(op.inputs[0])
    if op.kind == "LOG_SOFTMAX":
        w.result(op.outputs[0], "LogSoftmax", [value], axis=-1)
        return
    beta = op.options(schema.SoftmaxOptions).Beta()
    if beta != 1:
        value = w.node(f"{op.name}/scaled", "Mul", [value, w.add_constant(f"{op.name}/beta", np.float32(beta))])
    w.result(op.outputs[0], "Softmax", [value], axis=-1)


@ELEMENTWISE("CAST")
def cast(w: Writer, op: Operator) -> None:
    """CAST, and DEQUANTIZE of float16 activations."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(w.info(op.outputs[0]).tensor.dtype))
    w.map(op, "Cast", to=to)


@ELEMENTWISE("QUANTIZE", "DEQUANTIZE")
def quantize(w: Writer, op: Operator) -> None:
    """QUANTIZE of float32 and DEQUANTIZE; a constant is dequantised here."""
    value = w.constant(op.inputs[0])
    if value is not None:
        w.keep(op.outputs[0], value)
        return
    down = op.kind == "QUANTIZE"
    source, out = w.info(op.inputs[0]).tensor, w.info(op.outputs[0]).tensor
    real, integer = (source, out) if down else (out, source)
    if source.dtype == "float16":
        cast(w, op)
        return
    if real.dtype != "float32" or integer.dtype not in ("int8", "uint8") or integer.scale is None:
        raise NetworkError(f"{op.name}: must be float32 to or from 8 bits with one scale, not {source} to {out}")
    scale = w.add_constant(f"{op.name}/scale", np.float32(integer.scale))
    zero = w.add_constant(f"{op.name}/zero", np.array(integer.zero_point, integer.dtype))
    w.map(op, "QuantizeLinear" if down else "DequantizeLinear", [scale, zero])


@ELEMENTWISE("DENSIFY")
def densify(w: Writer, op: Operator) -> None:
    """DENSIFY of a constant, which is whole already."""
    value = w.constant(op.inputs[0])
    if value is None:
        raise NetworkError(f"{op.name}: operand must be a sparse constant, not computed by the network")
    w.keep(op.outputs[0], value)
