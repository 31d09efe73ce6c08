"""Convolutions and matrix products of 8-bit TFLite files, as TFLite Micro computes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from dovetail.isa.numerics.multiplier import tflite_dense_multiplier, tflite_multiplier
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Operator, Operators, pads_of
from dovetail.sw.frontend.tflite.graph_builder import Build, GraphBuilder, are_int8, requant, scales_of
from dovetail.sw.frontend.tflite.operators.elementwise import clamp_of
from dovetail.sw.network import ir

CONVOLUTIONS: Operators[Build] = Operators()

WAY_OUT = "convert the float network again with full-integer int8 quantisation"


@CONVOLUTIONS("CONV_2D")
def conv(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """CONV_2D: weights OHWI."""
    return _convolution(builder, op, op.options(schema.Conv2DOptions), _weights(builder, op, axis=0))


@CONVOLUTIONS("DEPTHWISE_CONV_2D")
def depthwise(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """DEPTHWISE_CONV_2D; on one input channel it is a convolution."""
    options = op.options(schema.DepthwiseConv2DOptions)
    weights = _weights(builder, op, axis=3)
    one_channel = builder.tensor(op.inputs[0]).nhwc[3] == 1
    return _convolution(builder, op, options, weights.transpose(3, 1, 2, 0) if one_channel else weights[0])


def _convolution(builder: GraphBuilder, op: Operator, options: Any, weights: NDArray[np.int16]) -> ir.Node:
    """By weights OHWI, or HWC for a depthwise layer."""
    source, out = builder.ends(op)
    grouped = weights.ndim == 4
    kernel = (weights.shape[1], weights.shape[2]) if grouped else (weights.shape[0], weights.shape[1])
    channels = weights.shape[0] if grouped else weights.shape[2]
    stride = options.StrideH(), options.StrideW()
    dilation = options.DilationHFactor(), options.DilationWFactor()
    terms = ir.int8_terms(np.ascontiguousarray(weights))
    common: dict[str, Any] = {
        **builder.wires(op),
        "weights": terms[0],
        "rest": terms[1],
        "bias": _bias(builder, op, channels),
        "requant": _requant(builder, op, channels, options.FusedActivationFunction()),
        "stride": stride,
        "pads": pads_of(source, out, kernel, stride, dilation, options.Padding()),
        "dilation": dilation,
    }
    return ir.Conv(**common, groups=source.nhwc[3] // weights.shape[3]) if grouped else ir.Depthwise(**common)


@CONVOLUTIONS("FULLY_CONNECTED")
def dense(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """FULLY_CONNECTED as a 1x1 convolution, or as a product where its weights are computed."""
    if builder.constant(op.inputs[1]) is None:
        return _product_of_rows(builder, op)
    options = op.options(schema.FullyConnectedOptions)
    weights = _weights(builder, op, axis=0)
    channels, depth = weights.shape
    source, out = builder.ends(op)
    wires = builder.wires(op)
    rows = source.size // depth
    if source.nhwc != (1, 1, rows, depth):
        view = replace(source, name=f"{source.name}/rows{op.index}", shape=(1, 1, rows, depth))
        node = ir.Reshape(name=f"{op.name}/rows", inputs=wires["inputs"], outputs=(view.name,), shape=view.shape)
        wires["inputs"] = (builder.add(node, view),)
    if out.nhwc != (1, 1, rows, channels):
        raise NetworkError(f"{op.name}: output must have shape {(rows, channels)}, not {out.shape}")
    terms = ir.int8_terms(weights.reshape(channels, 1, 1, depth))
    return ir.Conv(
        **wires,
        weights=terms[0],
        rest=terms[1],
        bias=_bias(builder, op, channels),
        requant=_requant(builder, op, channels, options.FusedActivationFunction(), dense=True),
        kind="dense",
    )


def _weights(builder: GraphBuilder, op: Operator, axis: int) -> NDArray[np.int16]:
    """Weights less their zero point."""
    info = builder.infos[op.inputs[1]]
    for tensor in builder.ends(op):
        if not are_int8(tensor):
            raise NetworkError(f"{op.name}: activations must be int8, not {tensor.dtype}; {WAY_OUT}")
    if info.value is None:
        raise NetworkError(f"{op.name}: weights must be a constant, not computed by the network")
    if info.tensor.dtype != "int8":
        raise NetworkError(f"{op.name}: weights must be int8, not {info.tensor.dtype}; {WAY_OUT}")
    if np.any(info.zero_points) and not builder.unsigned:
        raise NetworkError(f"{op.name}: weights must have zero point 0, not an asymmetric one; {WAY_OUT}")
    if info.scales.size not in (1, info.value.shape[axis]):
        raise NetworkError(f"{op.name}: weights must have one scale per channel, not {info.scales.size}")
    if builder.unsigned and info.scales.size != 1:
        raise NetworkError(f"{op.name}: uint8 weights must have one scale, not {info.scales.size}")
    if not -128 <= info.tensor.zero_point <= 127:
        raise NetworkError(f"{op.name}: zero point of the weights must be 0..255, not {info.tensor.zero_point + 128}")
    return info.value.astype(np.int16) - np.int16(info.tensor.zero_point)


def _bias(builder: GraphBuilder, op: Operator, channels: int) -> NDArray[np.int32]:
    if len(op.inputs) < 3 or op.inputs[2] < 0:
        return np.zeros(channels, np.int32)
    info = builder.infos[op.inputs[2]]
    if info.value is None or info.tensor.dtype != "int32" or info.value.size != channels:
        raise NetworkError(f"{op.name}: bias must be {channels} int32 constants, not {info.tensor}")
    return info.value.reshape(channels).astype(np.int32)


def _requant(builder: GraphBuilder, op: Operator, channels: int, activation: int, dense: bool = False) -> ir.Requant:
    source, out = builder.ends(op)
    scales = builder.infos[op.inputs[1]].scales
    form = tflite_dense_multiplier if (dense or builder.unsigned) and scales.size == 1 else tflite_multiplier
    scale_in, scale_out = scales_of(source, out)
    real = form(np.asarray(scale_in), np.broadcast_to(scales, (channels,)), np.asarray(scale_out))
    return requant(op, real, source, out, *clamp_of(op, out, activation))


# Products of two activations -------------------------------------------------------------------


@CONVOLUTIONS("BATCH_MATMUL")
def matmul(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """BATCH_MATMUL of two activations."""
    options = op.options(schema.BatchMatMulOptions)
    a, b, out = (builder.tensor(index) for index in (*op.inputs, op.outputs[0]))
    if not are_int8(a, b, out) or min(len(a.shape), len(b.shape)) < 2:
        return None
    if not a.shape[:-2] == b.shape[:-2] == out.shape[:-2]:
        return None
    left, right = (builder.operand(op, index) for index in op.inputs)
    assert left is not None and right is not None
    if options.AdjX():
        turned = np.swapaxes(ir.positions(a.shape), -1, -2)
        copy = ir.Copy.between(turned, ir.positions(turned.shape))
        assert copy is not None
        result = replace(a, name=f"{op.name}/turned", shape=turned.shape)
        move = ir.Move(name=result.name, inputs=(left,), outputs=(result.name,), copies=(copy,), kind="transpose")
        left = builder.add(move, result)
    return ir.MatMul(
        name=op.name,
        inputs=(left, right),
        outputs=builder.names(op.outputs),
        requant=_product(op, a, b, out),
        zero_b=b.zero_point,
        transposed=bool(options.AdjY()),
    )


def _product_of_rows(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """FULLY_CONNECTED with computed weights [N, K] and no bias: rows of K elements with each row of the weights."""
    a, b, out = (builder.tensor(index) for index in (*op.inputs[:2], op.outputs[0]))
    biased = any(index >= 0 for index in op.inputs[2:])
    if biased or len(b.shape) != 2 or not are_int8(a, b, out):
        return None
    channels, depth = b.shape
    rows = a.size // depth
    if out.size != rows * channels:
        raise NetworkError(f"{op.name}: output must have shape {(rows, channels)}, not {out.shape}")
    left = builder.operand(op, op.inputs[0])
    assert left is not None
    activation = op.options(schema.FullyConnectedOptions).FusedActivationFunction()
    product = replace(out, name=f"{op.name}/product", shape=(rows, channels))
    node = ir.MatMul(
        name=product.name,
        inputs=(builder.view(op, left, (rows, depth)), b.name),
        outputs=(product.name,),
        requant=_product(op, a, b, out, *clamp_of(op, out, activation)),
        zero_b=b.zero_point,
        transposed=True,
    )
    builder.add(node, product)
    return ir.Reshape(name=op.name, inputs=node.outputs, outputs=builder.names(op.outputs), shape=out.shape)


def _product(op: Operator, a: ir.Tensor, b: ir.Tensor, out: ir.Tensor, *clamp: int) -> ir.Requant:
    return requant(op, tflite_dense_multiplier(*(np.asarray(scale) for scale in scales_of(a, b, out))), a, out, *clamp)
