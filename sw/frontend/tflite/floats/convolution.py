"""Convolutions and matrix products of float TFLite networks in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import MEDIAPIPE_TRANSPOSE_CONV, Operator, Operators, pads_of
from dovetail.sw.frontend.tflite.floats.elementwise import activated
from dovetail.sw.frontend.tflite.floats.writer import Write, Writer

CONVOLUTIONS: Operators[Write] = Operators()


def window_of(
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


@CONVOLUTIONS("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(w: Writer, op: Operator) -> None:
    """Weights OHWI become OIHW; those of a depthwise layer, (1, H, W, C * M), become (C * M, 1, H, W)."""
    w.require_float(op)
    depthwise = op.kind == "DEPTHWISE_CONV_2D"
    options = op.options(schema.DepthwiseConv2DOptions if depthwise else schema.Conv2DOptions)
    _, height, width, depth = w.shape(op.inputs[1])
    dilation = options.DilationHFactor(), options.DilationWFactor()
    window = window_of(w, op, options, (height, width), dilation)
    channels, source = w.shape(op.inputs[0])[3], w.image(op.inputs[0])
    weights = _turned(w, op, op.inputs[1], (3, 0, 1, 2)) if depthwise else w.image(op.inputs[1])
    window |= {"dilations": dilation, "group": channels if depthwise else channels // depth}
    operands = [source, weights, *_bias(w, op, 2)]
    activated(w, op, options.FusedActivationFunction(), "Conv", operands, image=True, **window)


@CONVOLUTIONS("TRANSPOSE_CONV")
def transpose_conv(w: Writer, op: Operator) -> None:
    """Weights OHWI become IOHW; the padding is that of the convolution in the other direction."""
    options = op.options(schema.TransposeConvOptions)
    stride = options.StrideH(), options.StrideW()
    _transposed(w, op, op.inputs[2], 3, stride, options.Padding(), options.FusedActivationFunction())


@CONVOLUTIONS(MEDIAPIPE_TRANSPOSE_CONV)
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
    activated(w, op, activation, "ConvTranspose", operands, image=True, **window)


def _turned(w: Writer, op: Operator, index: int, perm: tuple[int, ...]) -> str:
    name, value = f"{op.name}/weights", w.constant(index)
    if value is not None:
        return w.add_constant(name, np.ascontiguousarray(value.transpose(perm)))
    return w.node(name, "Transpose", [w.value(index)], perm=perm)


def _bias(w: Writer, op: Operator, place: int) -> list[str]:
    return [w.value(op.inputs[place])] if len(op.inputs) > place and op.inputs[place] >= 0 else []


# Products --------------------------------------------------------------------------------------


@CONVOLUTIONS("FULLY_CONNECTED")
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
        activated(w, op, activation, "Gemm", operands, image=False, transB=1)
        return
    product = w.node(f"{op.name}/product", "Gemm", operands, transB=1)
    shape = w.integers(f"{op.name}/shape", out)
    activated(w, op, activation, "Reshape", [product, shape], image=False)


@CONVOLUTIONS("BATCH_MATMUL")
def matmul(w: Writer, op: Operator) -> None:
    w.require_float(op)
    options = op.options(schema.BatchMatMulOptions)
    operands = []
    for place, adjoint in enumerate((options.AdjX(), options.AdjY())):
        value, rank = w.value(op.inputs[place]), len(w.shape(op.inputs[place]))
        if adjoint:
            perm = [*range(rank - 2), rank - 1, rank - 2]
            value = w.node(f"{op.name}/adjoint{place}", "Transpose", [value], perm=perm)
        operands.append(value)
    w.result(op.outputs[0], "MatMul", operands)
