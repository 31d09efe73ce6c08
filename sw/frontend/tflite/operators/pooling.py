"""Poolings of 8-bit TFLite files, as TFLite Micro computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.isa.numerics.multiplier import mean_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.frontend.tflite.file import Operator, Operators, pads_of
from dovetail.sw.frontend.tflite.graph_builder import Build, GraphBuilder, scales_of
from dovetail.sw.frontend.tflite.operators.elementwise import clamp_of
from dovetail.sw.network import ir

POOLINGS: Operators[Build] = Operators()


@POOLINGS("AVERAGE_POOL_2D")
def average_pool(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    window = _window(builder, op)
    # uint8 kernels round ties up, which is away from the least value.
    origin = -128 if builder.unsigned else 0
    return None if window is None else ir.AvgPool(**window, rounding=Rounding.TFLITE, origin=origin)


@POOLINGS("MAX_POOL_2D")
def max_pool(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    window = _window(builder, op)
    return None if window is None else ir.MaxPool(**window)


def _window(builder: GraphBuilder, op: Operator) -> dict[str, Any] | None:
    source, out = builder.ends(op)
    if not builder.int8(op) or source.scale != out.scale or source.zero_point != out.zero_point:
        return None
    options = op.options(schema.Pool2DOptions)
    kernel = options.FilterHeight(), options.FilterWidth()
    stride = options.StrideH(), options.StrideW()
    lo, hi = clamp_of(op, out, options.FusedActivationFunction())
    pads = pads_of(source, out, kernel, stride, (1, 1), options.Padding())
    return {**builder.wires(op), "kernel": kernel, "stride": stride, "pads": pads, "lo": lo, "hi": hi}


@POOLINGS("MEAN")
def mean(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """MEAN over height and width."""
    source, out = builder.ends(op)
    axes = builder.numbers(op.inputs[1])
    if not builder.int8(op) or axes is None or len(source.shape) != 4:
        return None
    if sorted(axis % 4 for axis in axes) != [1, 2] or source.shape[0] != 1:
        return None
    scale_in, scale_out = (float(scale) for scale in scales_of(source, out))
    mult, shift = mean_multiplier(scale_in, scale_out, source.shape[1] * source.shape[2])
    zeros = source.zero_point, out.zero_point
    factor = ir.Requant(np.array([mult], np.int32), np.array([shift], np.int32), Rounding.TFLITE, *zeros)
    return ir.Mean(**builder.wires(op), requant=factor)
