"""Data movement: transpositions and reshapes, which change the layout only; slices, concatenation, padding, resize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import OnnxFile, OnnxNode
from dovetail.sw.frontend.onnx.operators import stream
from dovetail.sw.frontend.onnx.operators.elementwise import requantise
from dovetail.sw.frontend.onnx.scope import Scope
from dovetail.sw.frontend.onnx.values import Source, Target, Value
from dovetail.sw.network.layout import Array, Layout, Shape

BLOCKS = ("DepthToSpace", "SpaceToDepth")
MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", *BLOCKS)
"""Operators that neither compute nor drop an element."""

CUTS = ("Slice", "Split")
"""Operators that keep a part of the elements."""

_PASS = (
    "QuantizeLinear",
    "DequantizeLinear",
    "Identity",
    "Relu",
    "Clip",
    "Add",
    "Sub",
    "Mul",
    "Softmax",
    "Cast",
    "ScatterElements",
)
_ROWS = ("Transpose", "Reshape", "Flatten", "MatMul", "Gemm", "QLinearMatMul", "QGemm")


def wants_image(file: OnnxFile, name: str) -> bool:
    """Whether the first consumers of a 4-D input read it as NCHW."""
    pending, seen = [name], {name}
    while pending:
        for node in file.consumers.get(pending.pop(), ()):
            if node.op in _ROWS:
                return False
            if node.op in _PASS:
                fresh = [output for output in node.outputs if output not in seen]
                pending += fresh
                seen.update(fresh)
    return True


def _moved(node: OnnxNode, layout: Layout, constant: Callable[[str], Array | None]) -> Layout | None:
    """The layout after a movement node; None if its bytes must be moved to plain order first.

    Raises
    ------
    NetworkError: the node's target shape is not constant or does not fit.
    """
    shape = layout.shape
    if node.op in ("Identity", "Dropout"):
        return layout
    if node.op == "Transpose":
        perm = node.attributes.get("perm", range(len(shape))[::-1])
        return layout.transposed(tuple(int(p) for p in perm))
    if node.op in BLOCKS:
        return _blocks(node, layout)
    if node.op == "Flatten":
        axis = int(node.attributes.get("axis", 1))
        axis += len(shape) if axis < 0 else 0
        return layout.reshaped((prod(shape[:axis]), prod(shape[axis:])))
    parameter = constant(node.input(1)) if node.input(1) else None
    if node.op == "Reshape":
        if parameter is None:
            raise NetworkError(f"node {node.label}: target shape must be constant; export with static shapes")
        return layout.reshaped(_target(node, shape, [int(size) for size in parameter.ravel()]))
    axes = node.attributes.get("axes") if parameter is None else parameter.ravel()
    numbers = [int(axis) for axis in axes] if axes is not None else [i for i, size in enumerate(shape) if size == 1]
    if node.op == "Squeeze":
        dropped = {axis % len(shape) for axis in numbers}
        return layout.reshaped(tuple(size for i, size in enumerate(shape) if i not in dropped))
    rank = len(shape) + len(numbers)
    added = {axis % rank for axis in numbers}
    rest = iter(shape)
    return layout.reshaped(tuple(1 if i in added else next(rest) for i in range(rank)))


def _blocks(node: OnnxNode, layout: Layout) -> Layout | None:
    """Channels that become pixels of a block, or the other way round."""
    batch, channels, height, width = layout.shape
    size = int(node.attributes["blocksize"])
    split: Shape
    if node.op == "SpaceToDepth":
        split, perm = (batch, channels, height // size, size, width // size, size), (0, 3, 5, 1, 2, 4)
        result: Shape = (batch, channels * size * size, height // size, width // size)
    else:
        depth = channels // (size * size)
        if node.attributes.get("mode", b"DCR") == b"CRD":
            split, perm = (batch, depth, size, size, height, width), (0, 1, 4, 2, 5, 3)
        else:
            split, perm = (batch, size, size, depth, height, width), (0, 3, 4, 1, 5, 2)
        result = (batch, depth, height * size, width * size)
    moved = layout.reshaped(split).transposed(perm)
    return None if moved is None else moved.reshaped(result)


def _cuts(node: OnnxNode, shape: Shape, constant: Callable[[str], Array | None]) -> list[tuple[slice, ...]] | None:
    """What each output of a Slice or Split keeps, one slice per axis; None if the parameters are not constant."""

    def numbers(index: int, attribute: str, default: list[int]) -> list[int] | None:
        if node.input(index):
            array = constant(node.input(index))
            return None if array is None else [int(v) for v in array.ravel()]
        return [int(v) for v in node.attributes.get(attribute, default)]

    whole = tuple(slice(0, size, 1) for size in shape)
    if node.op == "Split":
        axis = int(node.attributes.get("axis", 0)) % len(shape)
        parts = len(node.outputs)
        each = -(-shape[axis] // parts)
        sizes = numbers(1, "split", [min(each, shape[axis] - k * each) for k in range(parts)])
        if sizes is None:
            return None
        ends = [sum(sizes[: k + 1]) for k in range(parts)]
        pairs = zip([0, *ends], ends, strict=False)
        return [(*whole[:axis], slice(begin, end, 1), *whole[axis + 1 :]) for begin, end in pairs]
    starts, ends_given = numbers(1, "starts", []), numbers(2, "ends", [])
    if starts is None or ends_given is None:
        return None
    axes, steps = numbers(3, "axes", list(range(len(starts)))), numbers(4, "steps", [1] * len(starts))
    if axes is None or steps is None or min(steps) < 1:
        return None
    found = list(whole)
    for axis, begin, end, step in zip(axes, starts, ends_given, steps, strict=True):
        found[axis] = slice(*slice(begin, end, step).indices(shape[axis]))
    return [tuple(found)]


def _target(node: OnnxNode, shape: Shape, wanted: list[int]) -> Shape:
    """Reshape's rule: 0 copies, -1 is what is left."""
    if not node.attributes.get("allowzero", 0):
        wanted = [shape[i] if size == 0 and i < len(shape) else size for i, size in enumerate(wanted)]
    known = prod(size for size in wanted if size != -1)
    target = tuple(prod(shape) // max(known, 1) if size == -1 else size for size in wanted)
    if prod(target) != prod(shape):
        raise NetworkError(f"node {node.label}: target must have {prod(shape)} elements, not {target}")
    return target


def _shape(scope: Scope, node: OnnxNode) -> bool:
    """The sizes of a tensor, which are fixed."""
    value = scope.held(node.inputs[0])
    if value is None:
        return False
    sizes = np.array(value.shape, np.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end", len(sizes))
    scope.constants[node.outputs[0]] = sizes[start:end]
    return True


def _move(scope: Scope, node: OnnxNode) -> bool:
    """Only the layout changes, of integers and of dequantised names alike."""
    value = scope.held(node.inputs[0])
    if value is None:
        return False
    layout = _moved(node, value.layout, scope.constant)
    if layout is None:
        value = scope.builder.plain(value)
        layout = _moved(node, value.layout, scope.constant)
    if layout is None:
        return False
    scope.derive(node.inputs[0], node.outputs[0], replace(value, layout=layout))
    return True


def _cut(scope: Scope, node: OnnxNode) -> bool:
    """Parts of a tensor, dequantised or not."""
    value = scope.held(node.inputs[0])
    if value is None or not scope.builder.is_moved(value):
        return False
    parts = _cuts(node, value.shape, scope.constant)
    if parts is None:
        return False
    for name, part in zip(node.outputs, parts, strict=True):
        piece = scope.builder.cut(node.name, name, value, part)
        if piece is None:
            return False
        scope.derive(node.inputs[0], name, piece)
    return True


def _enlarge(scope: Scope, node: OnnxNode) -> bool:
    """Resize that repeats every pixel, of integers and of dequantised names alike. What it does is found by running
    it."""
    value = scope.held(node.inputs[0])
    if value is None or scope.builder.tensors[value.tensor].dtype != "int8" or len(value.shape) != 4:
        return False
    given = {name: array for name in node.inputs[1:] if (array := scope.constant(name)) is not None}
    places = np.arange(value.layout.order().size, dtype=np.float32).reshape(value.shape)
    if places.size > 1 << 24 or len(given) < len({name for name in node.inputs[1:] if name}):
        return False
    (enlarged,) = scope.builder.run_constant(node, given | {node.inputs[0]: places})
    rows, columns = (enlarged.shape[axis] // value.shape[axis] for axis in (2, 3))
    if not np.array_equal(enlarged, places.repeat(rows, 2).repeat(columns, 3)):
        return False
    result = scope.builder.enlarge(node.name, node.outputs[0], value, rows, columns)
    scope.derive(node.inputs[0], node.outputs[0], result)
    return True


def _concat(scope: Scope, node: OnnxNode) -> bool:
    """Dequantised tensors, and constants, with one quantisation."""
    if any(name in scope.streams for name in node.inputs):
        return stream.concat(scope, node)
    parts = scope.parts(node)
    if parts is None or len({part.quant for part in parts}) > 1:
        return False
    quant = parts[0].quant
    assert quant is not None
    values = [scope.activation(part, node).value for part in parts]
    result = scope.builder.concat(node.name, node.outputs[0], values, int(node.attributes["axis"]), quant)
    scope.sources[node.outputs[0]] = Source(result, quant)
    return True


def _scatter(scope: Scope, node: OnnxNode) -> bool:
    """Rows in place of others, of one quantisation."""
    ends = [scope.sources.get(node.inputs[0]), scope.sources.get(node.inputs[2])]
    known = [end for end in ends if end is not None]
    if len(known) < 2 or known[0].quant != known[1].quant or node.attributes.get("reduction", b"none") != b"none":
        return False
    quant = known[0].quant
    state, rows = (scope.builder.plain(end.value) for end in known)
    place = _place(scope, node, rows)
    if place is not None:
        value = scope.builder.update(node, state, rows, place, quant)
    else:
        values = {node.inputs[0]: state, node.inputs[2]: rows}
        places, constants = scope.constant(node.inputs[1]), dict[str, Array]()
        if places is None:
            values[node.inputs[1]] = scope.value(node.inputs[1])
        else:
            constants[node.inputs[1]] = places
        value = scope.builder.onnx_node([node], values, constants)[node.outputs[0]]
        scope.builder.annotate(value, quant)
    scope.sources[node.outputs[0]] = Source(value, quant)
    return True


def _place(scope: Scope, node: OnnxNode, rows: Value) -> Value | None:
    """The number of the one row that a ScatterElements replaces; None if it does something else: its indices must be
    one whole number, expanded."""
    expand = next((n for n in scope.file.nodes if node.inputs[1] in n.outputs and n.op == "Expand"), None)
    if expand is None or rows.shape[int(node.attributes.get("axis", 0))] != 1:
        return None
    place = scope.values.get(expand.inputs[0])
    sizes = scope.constant(expand.inputs[1])
    if place is None or place.dtype not in ("int32", "int64") or scope.builder.tensors[place.tensor].size != 1:
        return None
    return place if sizes is not None and tuple(sizes.tolist()) == rows.shape else None


def _pad(scope: Scope, node: OnnxNode) -> bool:
    """Padding of height, width and channels with real zero."""
    source, sizes = scope.sources.get(node.inputs[0]), scope.constant(node.input(1))
    fill = scope.constant(node.input(2)) if node.input(2) else np.zeros(1, np.float32)
    plain = node.attributes.get("mode", b"constant") == b"constant" and not node.input(3)
    if source is None or sizes is None or fill is None or not plain or np.any(fill) or sizes.size != 8:
        return False
    numbers = tuple(int(size) for size in sizes)
    if min(numbers) < 0 or numbers[0] or numbers[4] or source.value.shape[0] != 1:
        return False
    pads = (numbers[2], numbers[3], numbers[6], numbers[7])
    result = source.value
    if any(pads):
        result = scope.builder.pad(node.name, node.outputs[0], source, pads)
    if numbers[1] or numbers[5]:
        quant = source.quant
        result = scope.builder.pad_channels(node.name, node.outputs[0], Source(result, quant), numbers[1::4])
    scope.sources[node.outputs[0]] = Source(result, source.quant)
    return True


def _joined(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    """Parts in different quantisations are brought to the result's first."""
    parts = scope.parts(node)
    if parts is None:
        return None
    rescaled = []
    for name, part in zip(node.inputs, parts, strict=True):
        goal = replace(target, node=f"{node.name}/{name}", name=f"{name}/rescaled")
        rescaled.append(requantise(scope, scope.activation(part, node), goal))
    return scope.builder.concat(node.name, target.name, rescaled, int(node.attributes["axis"]), target.quant)


def _qlinear_concat(scope: Scope, node: OnnxNode) -> bool:
    target = scope.target(node, 0, 1)
    sources = [scope.operand(node, data) for data in range(2, len(node.inputs), 3)]
    known = [source for source in sources if source is not None]
    if target is None or len(known) < len(sources):
        return False
    labels = [f"{node.name}/{number}" for number in range(len(known))]
    parts = [
        requantise(scope, source, replace(target, node=label, name=label))
        for source, label in zip(known, labels, strict=True)
    ]
    axis = int(node.attributes["axis"])
    return scope.put(node, scope.builder.concat(node.name, target.name, parts, axis, target.quant))


NODES = {
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(CUTS, _cut),
    "Concat": _concat,
    "Pad": _pad,
    "QLinearConcat": _qlinear_concat,
    "Resize": _enlarge,
    "ScatterElements": _scatter,
    "Shape": _shape,
}
BETWEEN = {"Concat": _joined}
