"""What must hold for each kind of node: number, types and shapes of its operands and results."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from dovetail.isa.instructions.table import INSTRUCTIONS
from dovetail.sw.errors import NetworkError
from dovetail.sw.network.layout import Shape
from dovetail.sw.network.nodes import (
    AvgPool,
    Constant,
    Conv,
    Depthwise,
    Elementwise,
    Host,
    Im2col,
    MatMul,
    MaxPool,
    Mean,
    Move,
    Node,
    Norm,
    Pad,
    Pick,
    Rescale,
    Reshape,
    Softmax,
    Table,
    Update,
)
from dovetail.sw.network.tensor import Tensor


def window_size(size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> int:
    """Output length of a sliding window over `size` elements with padding."""
    return (size + before + after - (kernel - 1) * dilation - 1) // stride + 1


def same_pads(size: int, reach: int, stride: int) -> tuple[int, int]:
    """Padding before and after ``size`` elements, for size / stride results, rounded up; the smaller half is before.

    ``reach``: elements from the first tap to the last.
    """
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def check_node(node: Node, tensors: Mapping[str, Tensor]) -> None:
    """Raise NetworkError where a node's operands and results do not fit it."""
    if isinstance(node, Host):
        return
    if isinstance(node, Update):
        _check_update(node, tensors)
    if isinstance(node, Pick):
        _check_pick(node, tensors)
        return
    ins = [tensors[name] for name in node.inputs[: 2 if isinstance(node, Update) else None]]
    out = tensors[node.outputs[0]]
    _check_types(node, ins, out)
    arity = 2 if isinstance(node, Elementwise | MatMul | Update) else 0 if isinstance(node, Constant) else 1
    if isinstance(node, Move):
        arity = len(node.copies)
    require(len(ins) == arity, node.name, f"{node.op} must have {arity} input(s), not {len(ins)}")
    match node:
        case Reshape():
            require(ins[0].size == out.size, node.name, f"reshape must keep {ins[0].size} elements, not {out.size}")
            want = node.shape
        case Elementwise():
            shapes = sorted({tensor.shape for tensor in ins})
            want = shapes[0] if len(shapes) == 1 else _broadcast(node, ins, out)
        case Rescale() | Table():
            one = isinstance(node, Table) or not node.absolute or node.below is None
            require(one, node.name, "a magnitude is never below zero: there must be one multiplier, not two")
            want = ins[0].shape
        case Softmax():
            require(len(node.exponentials) == 256, node.name, "there must be 256 exponentials")
            want = ins[0].shape
        case Norm():
            count = node.records.mult.size
            fits = ins[0].shape[-1] == count
            require(fits, node.name, f"rows must have {count} elements, not {ins[0].shape[-1]}")
            want = ins[0].shape
        case Constant():
            like = str(node.value.dtype) == out.dtype
            require(like, node.name, f"its value must be {out.dtype}, not {node.value.dtype}")
            want = node.value.shape
        case Update():
            want = ins[0].shape
        case Move():
            _check_copies(node, ins, out)
            want = out.shape
        case MatMul():
            want = _product_shape(node, ins[0].shape, ins[1].shape)
        case _:
            want = _expected(node, ins[0])
            require(out.nhwc == want, node.name, f"output must be {want}, not {out.nhwc}")
            return
    require(out.shape == want, node.name, f"output must be {want}, not {out.shape}")


def _check_types(node: Node, ins: list[Tensor], out: Tensor) -> None:
    """Elements are int8, and int32 where the node says so; those that it only moves are alike."""
    before = after = "int8"
    if isinstance(node, Elementwise | Rescale | Norm):
        row = INSTRUCTIONS[node.instruction]
        before, after = (f"int{8 * size}" for size in (row.input_bytes, row.output_bytes))
    elif out.dtype == "int32" and _may_leave_sums(node):
        after = "int32"
    elif out.dtype == "int32" and isinstance(node, Move | Reshape | Constant):
        before = after = "int32"
    for tensor, dtype in [*((one, before) for one in ins), (out, after)]:
        require(tensor.dtype == dtype, node.name, f"{tensor.name!r} must be {dtype}, not {tensor.dtype}")


def _may_leave_sums(node: Node) -> bool:
    """Whether a node's result may be its int32 accumulators: of dense layers with int8 weights, and of products."""
    return isinstance(node, MatMul) or (isinstance(node, Conv) and node.kind == "dense" and node.rest is None)


def _check_update(node: Update, tensors: Mapping[str, Tensor]) -> None:
    require(len(node.inputs) == 3, node.name, f"update must have 3 inputs, not {len(node.inputs)}")
    state, rows, place = (tensors[name] for name in node.inputs)
    require(_is_whole(place), node.name, f"the place of its rows must be one int32 or int64, not {place}")
    alike = len(state.shape) == len(rows.shape) and 0 <= node.axis < len(rows.shape)
    for k, (size, part) in enumerate(zip(state.shape, rows.shape, strict=False)):
        alike &= size == part or (k == node.axis and size > part)
    require(alike, node.name, f"rows must be like {state.shape} but along axis {node.axis}, not {rows.shape}")


def _check_pick(node: Pick, tensors: Mapping[str, Tensor]) -> None:
    (number,), (out,) = (tuple(tensors[name] for name in names) for names in (node.inputs, node.outputs))
    require(_is_whole(number), node.name, f"the number of its row must be one int32 or int64, not {number}")
    rows = node.table.dtype == np.int8 and node.table.ndim == 2 and len(node.table)
    require(bool(rows), node.name, f"its table must be rows of int8, not {node.table.dtype}{node.table.shape}")
    fits = out.dtype == "int8" and out.size == node.table.shape[1]
    require(fits, node.name, f"output must be int8 of {node.table.shape[1]} elements, not {out}")


def _is_whole(tensor: Tensor) -> bool:
    return tensor.dtype in ("int32", "int64") and tensor.size == 1


def _check_copies(node: Move, ins: list[Tensor], out: Tensor) -> None:
    moved = 0
    for copy, tensor in zip(node.copies, ins, strict=True):
        moved += prod(copy.sizes)
        for start, steps, size in (
            (copy.source, copy.source_steps, tensor.size),
            (copy.target, copy.target_steps, out.size),
        ):
            last = start + sum((n - 1) * step for n, step in zip(copy.sizes, steps, strict=True))
            require(0 <= start <= last < size, node.name, f"copies must stay within {size} elements")
    require(moved == out.size, node.name, f"copies must fill {out.size} elements, not {moved}")


def _expected(node: Conv | Depthwise | AvgPool | Mean | MaxPool | Pad | Im2col, source: Tensor) -> Shape:
    """(1, H, W, C) of the output of a spatial node."""
    _, height, width, channels = source.nhwc
    if isinstance(node, Mean):
        return 1, 1, 1, channels
    require(0 <= min(node.pads) <= max(node.pads) <= 65535, node.name, f"padding must be 0..65535, not {node.pads}")
    top, left, bottom, right = node.pads
    if isinstance(node, Pad):
        return 1, height + top + bottom, width + left + right, channels
    out_channels, dilation = channels, (1, 1)
    if isinstance(node, Im2col):
        out_channels, dilation = prod(node.kernel) * channels, node.dilation
    if isinstance(node, Conv | Depthwise):
        dilation = node.dilation
        clamp = (node.requant.lo, node.requant.hi)
        require(-128 <= clamp[0] <= clamp[1] <= 127, node.name, f"clamp must be within int8, not {clamp}")
        out_channels = node.weights.shape[0] if isinstance(node, Conv) else node.weights.shape[2]
        if node.rest is not None:
            like = node.rest.dtype == np.int8 and node.rest.shape[1:] == node.weights.shape
            require(like, node.name, f"rest must be int8 arrays of shape {node.weights.shape}")
        if isinstance(node, Conv):
            seen = node.weights.shape[3] * node.groups
            require(seen == channels, node.name, f"weights must have {channels} input channels, not {seen}")
            whole = out_channels % node.groups == 0
            require(whole, node.name, f"{out_channels} output channels must fall into {node.groups} groups")
        else:
            whole = out_channels % channels == 0
            require(whole, node.name, f"weights must have a multiple of {channels} channels, not {out_channels}")
        require(
            node.bias.shape == (out_channels,),
            node.name,
            f"bias must have {out_channels} entries, not {node.bias.shape}",
        )
    require(min(node.stride) > 0, node.name, f"stride must be positive, not {node.stride}")
    return (
        1,
        window_size(height, node.kernel[0], node.stride[0], dilation[0], top, bottom),
        window_size(width, node.kernel[1], node.stride[1], dilation[1], left, right),
        out_channels,
    )


def _broadcast(node: Elementwise, ins: list[Tensor], out: Tensor) -> Shape:
    """The shape of the result where an operand is repeated over rows or columns."""
    a, b = (tensor.nhwc for tensor in ins)
    fits = a[3] == b[3] and all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True))
    require(fits, node.name, f"operands must have one shape, or one row or column, not {a} and {b}")
    want = tuple(max(m, n) for m, n in zip(a, b, strict=True))
    return out.shape if out.nhwc == want else want


def _product_shape(node: MatMul, a: Shape, b: Shape) -> Shape:
    require(len(a) >= 2 and len(b) >= 2, node.name, f"operands must be matrices, not {a} and {b}")
    depth, columns = b[:-3:-1] if node.transposed else b[-2:]
    require(a[-1] == depth, node.name, f"operands must have one inner size, not {a[-1]} and {depth}")
    require(a[:-2] == b[:-2], node.name, f"operands must be equally many matrices, not {a[:-2]} and {b[:-2]}")
    return (*a[:-1], columns)


def require(condition: bool, where: str, rule: str) -> None:
    """Raise NetworkError, which names what breaks a rule, unless a condition holds."""
    if not condition:
        raise NetworkError(f"{where!r}: {rule}")
