"""Data movement of float TFLite networks in ONNX: shapes, slices, frames."""

from __future__ import annotations

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Operator, Operators
from dovetail.sw.frontend.tflite.floats.elementwise import activated
from dovetail.sw.frontend.tflite.floats.writer import Write, Writer
from dovetail.sw.frontend.tflite.operators.movement import cuts_of

MOVEMENT: Operators[Write] = Operators()


@MOVEMENT("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def reshape(w: Writer, op: Operator) -> None:
    """RESHAPE, SQUEEZE, EXPAND_DIMS: the file says what comes out."""
    shape = w.integers(f"{op.name}/shape", w.shape(op.outputs[0]))
    w.result(op.outputs[0], "Reshape", [w.value(op.inputs[0]), shape])


@MOVEMENT("SHAPE")
def shape_of(w: Writer, op: Operator) -> None:
    """SHAPE: known, since the file's shapes are fixed."""
    w.keep(op.outputs[0], np.array(w.shape(op.inputs[0]), w.info(op.outputs[0]).tensor.dtype))


@MOVEMENT("TILE")
def tile(w: Writer, op: Operator) -> None:
    w.result(op.outputs[0], "Tile", [w.value(op.inputs[0]), w.integers(f"{op.name}/times", w.numbers(op, 1))])


@MOVEMENT("BROADCAST_TO")
def broadcast(w: Writer, op: Operator) -> None:
    shape = w.integers(f"{op.name}/shape", w.shape(op.outputs[0]))
    w.result(op.outputs[0], "Expand", [w.value(op.inputs[0]), shape])


@MOVEMENT("TRANSPOSE")
def transpose(w: Writer, op: Operator) -> None:
    w.result(op.outputs[0], "Transpose", [w.value(op.inputs[0])], perm=w.numbers(op, 1))


_MIRRORS = ("reflect", "edge")


@MOVEMENT("PAD", "PADV2", "MIRROR_PAD")
def pad(w: Writer, op: Operator) -> None:
    """PAD, PADV2, MIRROR_PAD; a symmetric frame of one element is ONNX's "edge"."""
    mode, extra = "constant", []
    source = op.inputs[0]
    rank, table = len(w.shape(source)), np.array(w.numbers(op, 1)).reshape(-1, 2)
    if op.kind == "MIRROR_PAD":
        symmetric = op.options(schema.MirrorPadOptions).Mode() == schema.MirrorPadMode.SYMMETRIC
        mode = _MIRRORS[symmetric]
        if symmetric and table.max() > 1:
            raise NetworkError(f"{op.name}: symmetric padding must be at most 1, not {table.max()}")
    elif op.kind == "PADV2":
        extra = [w.value(op.inputs[2])]
    if table.shape != (rank, 2) or table.min() < 0:
        raise NetworkError(f"{op.name}: padding must be {rank} pairs, none negative, not {table.tolist()}")
    image = w.is_image(op, [source])
    order = sorted(range(rank), key=lambda axis: w.axis(op, axis, rank, image))
    pads = w.integers(f"{op.name}/pads", [*table[order, 0], *table[order, 1]])
    w.result(op.outputs[0], "Pad", [w.operands([source], image)[0], pads, *extra], image=image, mode=mode)


@MOVEMENT("SLICE")
def cut(w: Writer, op: Operator) -> None:
    shape, begins, sizes = w.shape(op.inputs[0]), w.numbers(op, 1), w.numbers(op, 2)
    ends = [length if size < 0 else begin + size for begin, size, length in zip(begins, sizes, shape, strict=True)]
    _sliced(w, op, begins, ends, [1] * len(shape))


@MOVEMENT("STRIDED_SLICE")
def strided_slice(w: Writer, op: Operator) -> None:
    """STRIDED_SLICE; an axis that shrinks is one element long."""
    cuts = cuts_of(op, *(w.numbers(op, place) for place in (1, 2, 3)))
    if cuts is None:
        raise NetworkError(f"{op.name}: must be without ellipsis, new axes and offsets")
    bounds: list[tuple[int, int, int]] = []
    for taken, length in zip(cuts, w.shape(op.inputs[0]), strict=False):
        if isinstance(taken, int):
            bounds.append((taken % length, taken % length + 1, 1))
        else:
            start, stop, step = taken.indices(length)
            bounds.append((start, stop if stop >= 0 else -length - 1, step))
    starts, ends, steps = (list(numbers) for numbers in zip(*bounds, strict=True))
    _sliced(w, op, starts, ends, steps)


def _sliced(w: Writer, op: Operator, starts: list[int], ends: list[int], steps: list[int]) -> None:
    parameters = {"starts": starts, "ends": ends, "axes": list(range(len(starts))), "steps": steps}
    operands = [w.integers(f"{op.name}/{name}", numbers) for name, numbers in parameters.items()]
    piece = w.node(f"{op.name}/piece", "Slice", [w.value(op.inputs[0]), *operands])
    shape = w.integers(f"{op.name}/shape", w.shape(op.outputs[0]))
    w.result(op.outputs[0], "Reshape", [piece, shape])


@MOVEMENT("SPLIT", "SPLIT_V")
def split(w: Writer, op: Operator) -> None:
    source, place = (op.inputs[1], 0) if op.kind == "SPLIT" else (op.inputs[0], 2)
    image = w.is_image(op, [source])
    rank, (given,) = len(w.shape(source)), w.numbers(op, place)
    sizes = [w.shape(index)[given] for index in op.outputs]
    lengths = w.integers(f"{op.name}/sizes", sizes)
    axis = w.axis(op, given, rank, image)
    w.results(op.outputs, "Split", [*w.operands([source], image), lengths], image=image, axis=axis)


@MOVEMENT("PACK")
def pack(w: Writer, op: Operator) -> None:
    """PACK: a new axis"""
    axis = op.options(schema.PackOptions).Axis()
    where = w.integers(f"{op.name}/axis", [axis])
    parts = [
        w.node(f"{op.name}/part{place}", "Unsqueeze", [w.value(index), where]) for place, index in enumerate(op.inputs)
    ]
    w.result(op.outputs[0], "Concat", parts, axis=axis)


@MOVEMENT("UNPACK")
def unpack(w: Writer, op: Operator) -> None:
    """UNPACK: one slice per result"""
    axis = op.options(schema.UnpackOptions).Axis()
    source = w.value(op.inputs[0])
    for place, index in enumerate(op.outputs):
        number = w.add_constant(f"{op.name}/place{place}", np.int64(place))
        w.result(index, "Gather", [source, number], axis=axis)


@MOVEMENT("GATHER")
def gather(w: Writer, op: Operator) -> None:
    """GATHER without batch axes"""
    options = op.options(schema.GatherOptions)
    if options.BatchDims():
        raise NetworkError(f"{op.name}: must be without batch axes, not {options.BatchDims()}")
    w.result(op.outputs[0], "Gather", [w.value(index) for index in op.inputs], axis=options.Axis())


@MOVEMENT("CONCATENATION")
def concatenation(w: Writer, op: Operator) -> None:
    options = op.options(schema.ConcatenationOptions)
    image = w.is_image(op, op.inputs)
    axis = w.axis(op, options.Axis(), len(w.shape(op.outputs[0])), image)
    activation = options.FusedActivationFunction()
    activated(w, op, activation, "Concat", w.operands(op.inputs, image), image=image, axis=axis)


@MOVEMENT("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def blocks(w: Writer, op: Operator) -> None:
    down = op.kind == "SPACE_TO_DEPTH"
    size = op.options(schema.SpaceToDepthOptions if down else schema.DepthToSpaceOptions).BlockSize()
    kind = "SpaceToDepth" if down else "DepthToSpace"
    w.result(op.outputs[0], kind, [w.image(op.inputs[0])], image=True, blocksize=size)
