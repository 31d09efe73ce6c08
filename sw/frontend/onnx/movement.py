"""Data movement in ONNX files: what Transpose, Reshape and friends do to a layout."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.onnx.file import OnnxFile, OnnxNode
from dovetail.sw.network.layout import Array, Layout, Shape

BLOCKS = ("DepthToSpace", "SpaceToDepth")
MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", *BLOCKS)
"""Operators that neither compute nor drop an element."""

CUTS = ("Slice", "Split")
"""Operators that keep a part of the elements."""

_PASS = ("QuantizeLinear", "DequantizeLinear", "Identity", "Relu", "Clip", "Add", "Cast")
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


def moved(node: OnnxNode, layout: Layout, constant: Callable[[str], Array | None]) -> Layout | None:
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


def cuts(node: OnnxNode, shape: Shape, constant: Callable[[str], Array | None]) -> list[tuple[slice, ...]] | None:
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
