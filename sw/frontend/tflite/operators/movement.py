"""Data movement in TFLite files: concatenation, padding, slices, transpositions. Bytes stay what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Operator, Operators
from dovetail.sw.frontend.tflite.graph_builder import Build, GraphBuilder
from dovetail.sw.network import ir

MOVEMENT: Operators[Build] = Operators()

Positions = NDArray[np.int64]


def _kept(builder: GraphBuilder, op: Operator, inputs: Sequence[int]) -> bool:
    """Whether all operands and results are int8 with one quantisation."""
    tensors = [builder.tensor(index) for index in (*inputs, *op.outputs)]
    quants = {(tensor.scale, tensor.zero_point, tensor.dtype) for tensor in tensors}
    return len(quants) == 1 and tensors[0].dtype == "int8"


def _taken(builder: GraphBuilder, op: Operator, source: int, view: Positions | None) -> ir.Node | None:
    """The one result of an operator: a view of one tensor."""
    if view is None or not _kept(builder, op, [source]):
        return None
    copy = ir.Copy.between(view, ir.positions(view.shape))
    if copy is None:
        return None
    return _move(builder, op, builder.names((source,)), [copy], op.kind.lower())


def _move(builder: GraphBuilder, op: Operator, inputs: Sequence[str], copies: Sequence[ir.Copy], kind: str) -> ir.Move:
    outputs = builder.names(op.outputs)
    return ir.Move(name=op.name, inputs=tuple(inputs), outputs=outputs, copies=tuple(copies), kind=kind)


@MOVEMENT("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def reshape(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """RESHAPE, SQUEEZE, EXPAND_DIMS of int8 data."""
    source, out = builder.ends(op)
    if not builder.int8(op):
        return None
    if source.size != out.size:
        raise NetworkError(f"{op.name}: output must have {source.size} elements, not {out.size}")
    return ir.Reshape(**builder.wires(op), shape=out.shape)


@MOVEMENT("CONCATENATION")
def concatenation(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """CONCATENATION, also of constants."""
    options = op.options(schema.ConcatenationOptions)
    if options.FusedActivationFunction() or not _kept(builder, op, op.inputs):
        return None
    out = builder.tensor(op.outputs[0])
    axis = options.Axis() % len(out.shape)
    places, copies, start = ir.positions(out.shape), [], 0
    for index in op.inputs:
        shape = builder.tensor(index).shape
        writing = places[(slice(None),) * axis + (slice(start, start + shape[axis]),)]
        copy = ir.Copy.between(ir.positions(shape), writing)
        assert copy is not None
        copies.append(copy)
        start += shape[axis]
    names = [name for index in op.inputs if (name := builder.operand(op, index)) is not None]
    return _move(builder, op, names, copies, "concatenation")


@MOVEMENT("PAD", "PADV2")
def pad(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """PAD with the zero point, PADV2 with a constant; axes other than height and width one after the other."""
    source, out = builder.ends(op)
    numbers = builder.numbers(op.inputs[1])
    if numbers is None or not _kept(builder, op, op.inputs[:1]) or min(numbers) < 0:
        return None
    value = out.zero_point
    if op.kind == "PADV2":
        given = builder.numbers(op.inputs[2])
        if given is None:
            return None
        value = given[0]
    sizes = np.array(numbers).reshape(-1, 2)
    if len(source.shape) == 4 and source.shape[0] == 1 and not sizes[[0, 3]].any():
        (top, bottom), (left, right) = (tuple(int(n) for n in row) for row in sizes[1:3])
        return ir.Pad(**builder.wires(op), pads=(top, left, bottom, right), value=value)
    name, shape = source.name, list(source.shape)
    for axis, (before, after) in enumerate(sizes.tolist()):
        if not before and not after:
            continue
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        view = builder.view(op, name, (1, outer, shape[axis], inner))
        shape[axis] += before + after
        result = replace(source, name=f"{op.name}/axis{axis}", shape=(1, outer, shape[axis], inner))
        node = ir.Pad(name=result.name, inputs=(view,), outputs=(result.name,), pads=(0, before, 0, after), value=value)
        name = builder.add(node, result)
    return ir.Reshape(name=op.name, inputs=(name,), outputs=builder.names(op.outputs), shape=out.shape)


@MOVEMENT("SLICE")
def cut(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """SLICE with constant begin and size."""
    shape = builder.tensor(op.inputs[0]).shape
    begins, sizes = builder.numbers(op.inputs[1]), builder.numbers(op.inputs[2])
    if begins is None or sizes is None:
        return None
    cuts = tuple(
        slice(begin, length if size < 0 else begin + size)
        for begin, size, length in zip(begins, sizes, shape, strict=True)
    )
    return _taken(builder, op, op.inputs[0], ir.positions(shape)[cuts])


@MOVEMENT("STRIDED_SLICE")
def strided_slice(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """STRIDED_SLICE with constant bounds and positive strides."""
    shape = builder.tensor(op.inputs[0]).shape
    parameters = [builder.numbers(index) for index in op.inputs[1:4]]
    known = [numbers for numbers in parameters if numbers is not None]
    cuts = cuts_of(op, *known) if len(known) == 3 else None
    return None if cuts is None else _taken(builder, op, op.inputs[0], np.asarray(ir.positions(shape)[cuts]))


def cuts_of(
    op: Operator, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> tuple[slice | int, ...] | None:
    """What STRIDED_SLICE takes of each axis, an index where the axis vanishes; None if it adds axes or skips some."""
    options = op.options(schema.StridedSliceOptions)
    if options.EllipsisMask() or options.NewAxisMask() or options.Offset():
        return None
    cuts: list[slice | int] = []
    for axis, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        first = None if options.BeginMask() >> axis & 1 else begin
        last = None if options.EndMask() >> axis & 1 else end
        cuts.append(begin if options.ShrinkAxisMask() >> axis & 1 else slice(first, last, step))
    return tuple(cuts)


@MOVEMENT("TRANSPOSE")
def transpose(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """TRANSPOSE by a constant permutation."""
    shape = builder.tensor(op.inputs[0]).shape
    perm = builder.numbers(op.inputs[1])
    return _taken(builder, op, op.inputs[0], None if perm is None else ir.positions(shape).transpose(perm))


@MOVEMENT("SPLIT", "SPLIT_V")
def split(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """SPLIT and SPLIT_V; all results but the last are appended here."""
    if op.kind == "SPLIT":
        source, axes, sizes = op.inputs[1], builder.numbers(op.inputs[0]), None
    else:
        source, sizes, axes = op.inputs[0], builder.numbers(op.inputs[1]), builder.numbers(op.inputs[2])
    if axes is None or not _kept(builder, op, [source]):
        return None
    shape = builder.tensor(source).shape
    axis = axes[0] % len(shape)
    lengths = [builder.tensor(index).shape[axis] for index in op.outputs]
    if sizes is not None and len(sizes) != len(lengths):
        return None
    start = 0
    for number, (index, length) in enumerate(zip(op.outputs, lengths, strict=True)):
        view = ir.positions(shape)[(slice(None),) * axis + (slice(start, start + length),)]
        copy = ir.Copy.between(view, ir.positions(view.shape))
        assert copy is not None
        start += length
        last = number == len(lengths) - 1
        node = ir.Move(
            name=op.name if last else f"{op.name}/{number}",
            inputs=builder.names((source,)),
            outputs=builder.names((index,)),
            copies=(copy,),
            kind="split",
        )
        if last:
            return node
        builder.declare(index)
        builder.nodes.append(node)
    return None


@MOVEMENT("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def blocks(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    table = schema.SpaceToDepthOptions if op.kind == "SPACE_TO_DEPTH" else schema.DepthToSpaceOptions
    size = op.options(table).BlockSize()
    batch, height, width, channels = builder.tensor(op.inputs[0]).shape
    places = ir.positions((batch, height, width, channels))
    if op.kind == "SPACE_TO_DEPTH":
        places = places.reshape(batch, height // size, size, width // size, size, channels).transpose(0, 1, 3, 2, 4, 5)
    else:
        places = places.reshape(batch, height, width, size, size, -1).transpose(0, 1, 3, 2, 4, 5)
    return _taken(builder, op, op.inputs[0], places)


@MOVEMENT("RESIZE_NEAREST_NEIGHBOR")
def nearest(builder: GraphBuilder, op: Operator) -> ir.Node | None:
    """RESIZE_NEAREST_NEIGHBOR by whole factors: a copy for each repetition of a pixel."""
    options = op.options(schema.ResizeNearestNeighborOptions)
    source, out = builder.ends(op)
    if (
        not _kept(builder, op, op.inputs[:1])
        or options.AlignCorners()
        or len(source.shape) != 4
        or source.shape[0] != 1
    ):
        return None
    _, height, width, channels = source.shape
    if out.shape[1] % height or out.shape[2] % width:
        return None
    rows, columns = out.shape[1] // height, out.shape[2] // width
    places = ir.positions(out.shape).reshape(height, rows, width, columns, channels)
    reading = ir.positions((height, width, channels))
    found = [ir.Copy.between(reading, places[:, y, :, x]) for y in range(rows) for x in range(columns)]
    copies = [copy for copy in found if copy is not None]
    return _move(builder, op, builder.names((op.inputs[0],) * len(copies)), copies, "resize")
