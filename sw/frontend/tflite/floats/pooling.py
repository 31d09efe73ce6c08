"""Poolings, resizing and reductions of float TFLite networks in ONNX."""

from __future__ import annotations

from collections.abc import Mapping

from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Operator, Operators
from dovetail.sw.frontend.tflite.floats.convolution import window_of
from dovetail.sw.frontend.tflite.floats.elementwise import activated
from dovetail.sw.frontend.tflite.floats.writer import Write, Writer

POOLINGS: Operators[Write] = Operators()


@POOLINGS("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(w: Writer, op: Operator) -> None:
    """AVERAGE_POOL_2D counts the taps inside the image only."""
    w.require_float(op)
    options = op.options(schema.Pool2DOptions)
    window = window_of(w, op, options, (options.FilterHeight(), options.FilterWidth()), (1, 1))
    kind = "MaxPool" if op.kind == "MAX_POOL_2D" else "AveragePool"
    activated(w, op, options.FusedActivationFunction(), kind, [w.image(op.inputs[0])], image=True, **window)


_RESIZE_MODES: Mapping[tuple[bool, bool], str] = {
    (False, False): "asymmetric",
    (True, False): "align_corners",
    (False, True): "half_pixel",
}


@POOLINGS("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(w: Writer, op: Operator) -> None:
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


_REDUCE: Mapping[str, str] = {
    "MEAN": "ReduceMean",
    "SUM": "ReduceSum",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
}


@POOLINGS(*_REDUCE)
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
