"""Operators of float TFLite networks in ONNX: one function per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from onnx import helper

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Operator, pads_of
from dovetail.sw.frontend.tflite.floats.movement import MOVEMENT

if TYPE_CHECKING:
    from dovetail.sw.frontend.tflite.floats.convert import Writer

_CLAMPS: Mapping[str, tuple[float, float]] = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}
_FUSED: Mapping[int, str] = {
    schema.ActivationFunctionType.RELU: "RELU",
    schema.ActivationFunctionType.RELU6: "RELU6",
    schema.ActivationFunctionType.RELU_N1_TO_1: "RELU_N1_TO_1",
}


def _activated(
    w: Writer, op: Operator, activation: int, kind: str, inputs: Sequence[str], *, image: bool, **attributes: Any
) -> None:
    """A node and the activation fused into its operator."""
    if activation == schema.ActivationFunctionType.NONE:
        w.result(op.outputs[0], kind, inputs, image=image, **attributes)
        return
    if activation not in _FUSED:
        raise NetworkError(f"{op.name}: fused activation must be {', '.join(_FUSED.values())}, not {activation}")
    linear = w.node(f"{w.info(op.outputs[0]).tensor.name}/linear", kind, inputs, **attributes)
    _rectify(w, op, _FUSED[activation], linear, image)


def _rectify(w: Writer, op: Operator, kind: str, value: str, image: bool) -> None:
    """RELU, its clamped kin, or TANH."""
    if kind in _CLAMPS:
        ends = [w.add_constant(f"{op.name}/clamp", np.float32(real)) for real in _CLAMPS[kind]]
        w.result(op.outputs[0], "Clip", [value, *ends], image=image)
    else:
        w.result(op.outputs[0], "Tanh" if kind == "TANH" else "Relu", [value], image=image)


# Windows ---------------------------------------------------------------------------------------


def _window(
    w: Writer, op: Operator, options: Any, kernel: tuple[int, int], dilation: tuple[int, int]
) -> dict[str, Any]:
    stride = options.StrideH(), options.StrideW()
    if min(*kernel, *stride, *dilation) < 1:
        raise NetworkError(
            f"{op.name}: kernel, stride and dilation must be positive, not {kernel}, {stride}, {dilation}"
        )
    ends = w.info(op.inputs[0]).tensor, w.info(op.outputs[0]).tensor
    pads = pads_of(*ends, kernel, stride, dilation, options.Padding())
    return {"kernel_shape": kernel, "strides": stride, "pads": pads}


def conv(w: Writer, op: Operator) -> None:
    """Weights OHWI become OIHW."""
    w.require_float(op)
    options = op.options(schema.Conv2DOptions)
    shape = w.shape(op.inputs[1])
    dilation = options.DilationHFactor(), options.DilationWFactor()
    window = _window(w, op, options, (shape[1], shape[2]), dilation)
    groups = w.shape(op.inputs[0])[3] // shape[3]
    operands = [w.image(op.inputs[0]), w.image(op.inputs[1]), *_bias(w, op, 2)]
    activation = options.FusedActivationFunction()
    _activated(w, op, activation, "Conv", operands, image=True, dilations=dilation, group=groups, **window)


def depthwise(w: Writer, op: Operator) -> None:
    """Weights (1, H, W, C * M) become (C * M, 1, H, W)."""
    w.require_float(op)
    options = op.options(schema.DepthwiseConv2DOptions)
    shape = w.shape(op.inputs[1])
    dilation = options.DilationHFactor(), options.DilationWFactor()
    window = _window(w, op, options, (shape[1], shape[2]), dilation)
    weights = _turned(w, op, op.inputs[1], (3, 0, 1, 2))
    operands = [w.image(op.inputs[0]), weights, *_bias(w, op, 2)]
    groups = w.shape(op.inputs[0])[3]
    activation = options.FusedActivationFunction()
    _activated(w, op, activation, "Conv", operands, image=True, dilations=dilation, group=groups, **window)


def transpose_conv(w: Writer, op: Operator) -> None:
    """Weights OHWI become IOHW; the padding is that of the convolution in the other direction."""
    options = op.options(schema.TransposeConvOptions)
    stride = options.StrideH(), options.StrideW()
    _transposed(w, op, op.inputs[2], 3, stride, options.Padding(), options.FusedActivationFunction())


def mediapipe_transpose_conv(w: Writer, op: Operator) -> None:
    """The same as MediaPipe's custom operator: padding (1: SAME), stride along the width, along the height."""
    padding, width, height = (int(n) for n in np.frombuffer(op.raw.CustomOptionsAsNumpy()[:12], np.int32))
    _transposed(w, op, op.inputs[0], 2, (height, width), padding - 1, 0)


def _transposed(
    w: Writer, op: Operator, index: int, bias: int, stride: tuple[int, int], padding: int, activation: int
) -> None:
    _, height, width, _ = w.shape(op.inputs[1])
    kernel = height, width
    source, out = w.info(index).tensor, w.info(op.outputs[0]).tensor
    pads = pads_of(out, source, kernel, stride, (1, 1), padding)
    reach = [(source.shape[k + 1] - 1) * stride[k] + kernel[k] - pads[k] - pads[k + 2] for k in range(2)]
    missing = [out.shape[k + 1] - reach[k] for k in range(2)]
    weights = _turned(w, op, op.inputs[1], (3, 0, 1, 2))
    operands = [w.image(index), weights, *_bias(w, op, bias)]
    window = {"kernel_shape": kernel, "strides": stride, "pads": pads, "output_padding": missing}
    _activated(w, op, activation, "ConvTranspose", operands, image=True, **window)


def _turned(w: Writer, op: Operator, index: int, perm: tuple[int, ...]) -> str:
    name, value = f"{op.name}/weights", w.constant(index)
    if value is not None:
        return w.add_constant(name, np.ascontiguousarray(value.transpose(perm)))
    return w.node(name, "Transpose", [w.value(index)], perm=perm)


def _bias(w: Writer, op: Operator, place: int) -> list[str]:
    return [w.value(op.inputs[place])] if len(op.inputs) > place and op.inputs[place] >= 0 else []


def pool(w: Writer, op: Operator) -> None:
    """AVERAGE_POOL_2D counts the taps inside the image only."""
    w.require_float(op)
    options = op.options(schema.Pool2DOptions)
    window = _window(w, op, options, (options.FilterHeight(), options.FilterWidth()), (1, 1))
    kind = "MaxPool" if op.kind == "MAX_POOL_2D" else "AveragePool"
    _activated(w, op, options.FusedActivationFunction(), kind, [w.image(op.inputs[0])], image=True, **window)


_RESIZE_MODES: Mapping[tuple[bool, bool], str] = {
    (False, False): "asymmetric",
    (True, False): "align_corners",
    (False, True): "half_pixel",
}


def resize(w: Writer, op: Operator) -> None:
    """RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR"""
    linear = op.kind == "RESIZE_BILINEAR"
    options = op.options(schema.ResizeBilinearOptions if linear else schema.ResizeNearestNeighborOptions)
    corners = bool(options.AlignCorners()), bool(options.HalfPixelCenters())
    if corners not in _RESIZE_MODES:
        raise NetworkError(f"{op.name}: corners must be aligned or pixels centred, not both")
    batch, height, width, channels = w.shape(op.outputs[0])
    sizes = w.integers(f"{op.name}/sizes", [batch, channels, height, width])
    w.result(
        op.outputs[0],
        "Resize",
        [w.image(op.inputs[0]), "", "", sizes],
        image=True,
        mode="linear" if linear else "nearest",
        coordinate_transformation_mode=_RESIZE_MODES[corners],
        nearest_mode="round_prefer_ceil" if any(corners) else "floor",
    )


def blocks(w: Writer, op: Operator) -> None:
    """SPACE_TO_DEPTH and DEPTH_TO_SPACE"""
    down = op.kind == "SPACE_TO_DEPTH"
    size = op.options(schema.SpaceToDepthOptions if down else schema.DepthToSpaceOptions).BlockSize()
    kind = "SpaceToDepth" if down else "DepthToSpace"
    w.result(op.outputs[0], kind, [w.image(op.inputs[0])], image=True, blocksize=size)


# Products --------------------------------------------------------------------------------------


def dense(w: Writer, op: Operator) -> None:
    """FULLY_CONNECTED on the rows of its operand."""
    w.require_float(op)
    options = op.options(schema.FullyConnectedOptions)
    if options.WeightsFormat():
        raise NetworkError(f"{op.name}: weights must be in the default order, not shuffled")
    (_, depth), out = w.shape(op.inputs[1]), w.shape(op.outputs[0])
    rows = w.value(op.inputs[0])
    if len(w.shape(op.inputs[0])) != 2 or w.shape(op.inputs[0])[1] != depth:
        rows = w.node(f"{op.name}/rows", "Reshape", [rows, w.integers(f"{op.name}/depth", [-1, depth])])
    operands = [rows, w.value(op.inputs[1]), *_bias(w, op, 2)]
    activation = options.FusedActivationFunction()
    if len(out) == 2:
        _activated(w, op, activation, "Gemm", operands, image=False, transB=1)
        return
    product = w.node(f"{op.name}/product", "Gemm", operands, transB=1)
    shape = w.integers(f"{op.name}/shape", out)
    _activated(w, op, activation, "Reshape", [product, shape], image=False)


def matmul(w: Writer, op: Operator) -> None:
    """BATCH_MATMUL"""
    w.require_float(op)
    options = op.options(schema.BatchMatMulOptions)
    operands = []
    for place, adjoint in enumerate((options.AdjX(), options.AdjY())):
        value, rank = w.value(op.inputs[place]), len(w.shape(op.inputs[place]))
        if adjoint:
            value = w.node(
                f"{op.name}/adjoint{place}", "Transpose", [value], perm=[*range(rank - 2), rank - 1, rank - 2]
            )
        operands.append(value)
    w.result(op.outputs[0], "MatMul", operands)


# Element by element ----------------------------------------------------------------------------

_BINARY: Mapping[str, tuple[str, Any]] = {
    "ADD": ("Add", schema.AddOptions),
    "SUB": ("Sub", schema.SubOptions),
    "MUL": ("Mul", schema.MulOptions),
    "DIV": ("Div", schema.DivOptions),
    "MINIMUM": ("Min", None),
    "MAXIMUM": ("Max", None),
    "POW": ("Pow", None),
    "PRELU": ("PRelu", None),
}


def binary(w: Writer, op: Operator) -> None:
    """Two operands of one shape, or of shapes that broadcast."""
    w.require_float(op)
    kind, table = _BINARY[op.kind]
    image = w.is_image(op, op.inputs)
    activation = op.options(table).FusedActivationFunction() if table else schema.ActivationFunctionType.NONE
    _activated(w, op, activation, kind, w.operands(op.inputs, image), image=image)


def squared_difference(w: Writer, op: Operator) -> None:
    """SQUARED_DIFFERENCE"""
    image = w.is_image(op, op.inputs)
    difference = w.node(f"{op.name}/difference", "Sub", w.operands(op.inputs, image))
    w.result(op.outputs[0], "Mul", [difference, difference], image=image)


_UNARY: Mapping[str, str] = {
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
}


def unary(w: Writer, op: Operator) -> None:
    """Functions of one element that ONNX has too."""
    w.require_float(op)
    attributes: dict[str, Any] = {}
    kind = _UNARY.get(op.kind, "")
    if op.kind == "LEAKY_RELU":
        kind, attributes = "LeakyRelu", {"alpha": op.options(schema.LeakyReluOptions).Alpha()}
    elif op.kind == "GELU":
        near = op.options(schema.GeluOptions).Approximate()
        kind, attributes = "Gelu", {"approximate": "tanh" if near else "none"}
    image = w.is_image(op, op.inputs)
    w.result(op.outputs[0], kind, w.operands(op.inputs, image), image=image, **attributes)


def rectifier(w: Writer, op: Operator) -> None:
    """RELU and its clamped kin, TANH."""
    w.require_float(op)
    image = w.is_image(op, op.inputs)
    _rectify(w, op, op.kind, w.operands(op.inputs, image)[0], image)


def power(w: Writer, op: Operator) -> None:
    """SQUARE and RSQRT"""
    image = w.is_image(op, op.inputs)
    (value,) = w.operands(op.inputs, image)
    if op.kind == "SQUARE":
        w.result(op.outputs[0], "Mul", [value, value], image=image)
    else:
        w.result(op.outputs[0], "Reciprocal", [w.node(f"{op.name}/root", "Sqrt", [value])], image=image)


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


def cast(w: Writer, op: Operator) -> None:
    """CAST, and DEQUANTIZE of float16 activations."""
    to = helper.np_dtype_to_tensor_dtype(np.dtype(w.info(op.outputs[0]).tensor.dtype))
    image = w.is_image(op, op.inputs)
    w.result(op.outputs[0], "Cast", w.operands(op.inputs, image), image=image, to=to)


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
    image = w.is_image(op, op.inputs)
    operands = [
        *w.operands(op.inputs, image),
        w.add_constant(f"{op.name}/scale", np.float32(integer.scale)),
        w.add_constant(f"{op.name}/zero", np.array(integer.zero_point, integer.dtype)),
    ]
    w.result(op.outputs[0], "QuantizeLinear" if down else "DequantizeLinear", operands, image=image)


def densify(w: Writer, op: Operator) -> None:
    """DENSIFY of a constant, which is whole already."""
    value = w.constant(op.inputs[0])
    if value is None:
        raise NetworkError(f"{op.name}: operand must be a sparse constant, not computed by the network")
    w.keep(op.outputs[0], value)


# Reductions ------------------------------------------------------------------------------------

_REDUCE: Mapping[str, str] = {
    "MEAN": "ReduceMean",
    "SUM": "ReduceSum",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
}


def reduce(w: Writer, op: Operator) -> None:
    """Reductions over constant axes."""
    keep = bool(op.options(schema.ReducerOptions).KeepDims())
    source = op.inputs[0]
    rank, axes = len(w.shape(source)), set(w.numbers(op, 1))
    pixels = rank == 4 and {axis % 4 for axis in axes} == {1, 2}
    image = pixels and w.only_image(source)
    axes_name = w.integers(f"{op.name}/axes", sorted(w.axis(op, axis, rank, image) for axis in axes))
    w.result(
        op.outputs[0],
        _REDUCE[op.kind],
        [w.operands([source], image)[0], axes_name],
        image=image and keep,
        keepdims=int(keep),
    )


def concatenation(w: Writer, op: Operator) -> None:
    """CONCATENATION"""
    options = op.options(schema.ConcatenationOptions)
    image = w.is_image(op, op.inputs)
    axis = w.axis(op, options.Axis(), len(w.shape(op.outputs[0])), image)
    activation = options.FusedActivationFunction()
    _activated(w, op, activation, "Concat", w.operands(op.inputs, image), image=image, axis=axis)


OPERATORS: Mapping[str, Callable[[Writer, Operator], None]] = {
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "TRANSPOSE_CONV": transpose_conv,
    "CUSTOM Convolution2DTransposeBias": mediapipe_transpose_conv,
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), pool),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), resize),
    **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE"), blocks),
    "FULLY_CONNECTED": dense,
    "BATCH_MATMUL": matmul,
    **dict.fromkeys(_BINARY, binary),
    "SQUARED_DIFFERENCE": squared_difference,
    **dict.fromkeys((*_UNARY, "LEAKY_RELU", "GELU"), unary),
    **dict.fromkeys(("RELU", *_CLAMPS, "TANH"), rectifier),
    **dict.fromkeys(("SQUARE", "RSQRT"), power),
    **dict.fromkeys(("SOFTMAX", "LOG_SOFTMAX"), softmax),
    "CAST": cast,
    **dict.fromkeys(("QUANTIZE", "DEQUANTIZE"), quantize),
    "DENSIFY": densify,
    **dict.fromkeys(_REDUCE, reduce),
    "CONCATENATION": concatenation,
    **MOVEMENT,
}
"""How each operator is written."""
