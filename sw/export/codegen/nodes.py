"""Calls for nodes of the accelerator's kinds that the host runs: the kernels compute what the accelerator would."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.codegen.c_text import Fields
from dovetail.sw.export.codegen.writer import ROUNDINGS, Writer, copy_fields, pairs_fields
from dovetail.sw.network import ir, reference
from dovetail.sw.network.elementwise import BYTES


def _window(
    writer: Writer,
    node: ir.Conv | ir.Depthwise | ir.AvgPool | ir.MaxPool | ir.Pad,
    kernel: ir.Pair = (1, 1),
    stride: ir.Pair = (1, 1),
    dilation: ir.Pair = (1, 1),
) -> Fields:
    _, height, width, channels = writer.graph.tensors[node.inputs[0]].nhwc
    _, out_height, out_width, _ = writer.graph.tensors[node.outputs[0]].nhwc
    pairs = {"kernel": kernel, "stride": stride, "dilation": dilation}
    return {
        "height": height,
        "width": width,
        "channels": channels,
        **{f"{name}_{axis}": value for name, pair in pairs.items() for axis, value in zip("yx", pair, strict=True)},
        "top": node.pads[0],
        "left": node.pads[1],
        "out_height": out_height,
        "out_width": out_width,
    }


def _are_sums(writer: Writer, node: ir.Node) -> int:
    return int(writer.graph.tensors[node.outputs[0]].dtype == "int32")


def _convolution(writer: Writer, node: ir.Conv | ir.Depthwise) -> None:
    terms = node.weights[None] if node.rest is None else np.concatenate([node.weights[None], node.rest])
    fields: Fields = {
        "window": _window(writer, node, node.kernel, node.stride, node.dilation),
        "out_channels": len(node.bias),
        "groups": node.groups if isinstance(node, ir.Conv) else 1,
        "terms": len(terms),
        "sums": _are_sums(writer, node),
        "weights": writer.constants.array(terms.astype(np.int8), f"{node.name}_weights"),
        "bias": writer.constants.array(node.bias.astype(np.int32), f"{node.name}_bias"),
        "requant": writer.requant(node.requant, node.name),
    }
    function = "dovetail_convolve" if isinstance(node, ir.Conv) else "dovetail_convolve_depthwise"
    writer.call(function, writer.constants.struct("dovetail_convolution", fields, node.name), *writer.ends(node))


def _product(writer: Writer, node: ir.MatMul) -> None:
    left, result = (writer.graph.tensors[name] for name in (node.inputs[0], node.outputs[0]))
    fields: Fields = {
        "matrices": prod(left.shape[:-2]),
        "rows": left.shape[-2],
        "depth": left.shape[-1],
        "columns": result.shape[-1],
        "zero_b": node.zero_b,
        "transposed": int(node.transposed),
        "sums": _are_sums(writer, node),
        "requant": writer.requant(node.requant, node.name),
    }
    operands = map(writer.storage.pointer, (*node.inputs, *node.outputs))
    writer.call("dovetail_multiply_matrices", writer.constants.struct("dovetail_product", fields, node.name), *operands)


def _elementwise(writer: Writer, node: ir.Elementwise) -> None:
    if node.own == Op.E32_ADD:
        operands = [writer.storage.pointer(name) for name in (*node.inputs, *node.outputs)]
        writer.call("dovetail_add_words", writer.size(node.outputs[0]), *operands)
        return
    if node.own is not None:
        raise NetworkError(
            f"node {node.name!r}: {node.op} has no C kernel for the host; take a configuration that has it"
        )
    a, b = (writer.graph.tensors[name].shape for name in node.inputs)
    pairs = writer.constants.struct("dovetail_pairs", pairs_fields(a, b, node.name), f"{node.name}_pairs")
    operands = [writer.storage.pointer(name) for name in (*node.inputs, *node.outputs)]
    for operand in operands[:2]:
        writer.storage.may_replace(operands[2], operand)
    p = node.params
    if p.operation == VectorOperation.MULTIPLY:
        mult, shift = np.array([p.mult_out], np.int32), np.array([min(p.shift_out, 0)], np.int32)
        requant = writer.requant(ir.Requant(mult, shift, p.rounding, p.za, p.zy, p.lo, p.hi), node.name)
        rule = writer.constants.struct("dovetail_requant", requant, node.name)
        writer.call("dovetail_multiply", pairs, rule, p.zb, *operands)
        return
    fields: Fields = {
        "rounding": ROUNDINGS[p.rounding],
        "combination": f"DOVETAIL_{p.operation.name}",
        "zero_a": p.za,
        "zero_b": p.zb,
        "zero_out": p.zy,
        "mult_a": p.mult_a,
        "mult_b": p.mult_b,
        "mult_out": p.mult_out,
        "shift_a": p.shift_a,
        "shift_b": p.shift_b,
        "shift_out": p.shift_out,
        "lo": p.lo,
        "hi": p.hi,
    }
    writer.call("dovetail_sum", pairs, writer.constants.struct("dovetail_sum_rule", fields, node.name), *operands)


def _rescale(writer: Writer, node: ir.Rescale) -> None:
    r, count = node.requant, writer.size(node.outputs[0])
    if node.own == Op.WIDEN:
        table = writer.constants.array(reference.rescale(node, BYTES), f"{node.name}_table")
        writer.call("dovetail_widen", table, count, *writer.ends(node))
        return
    if node.own == Op.REQUANT:
        rule = writer.constants.struct("dovetail_requant", writer.requant(r, node.name), node.name)
        writer.call("dovetail_narrow", rule, count, *writer.ends(node))
        return
    mult, shift = (int(r.mult.flat[0]), int(r.shift.flat[0])) if node.below is None else node.below
    fields: Fields = {
        "requant": writer.requant(r, node.name),
        "absolute": int(node.absolute),
        "mult_below": mult,
        "shift_below": shift,
    }
    rule = writer.constants.struct("dovetail_rescale", fields, node.name)
    writer.call("dovetail_rescale", rule, count, *writer.ends(node, in_place=True))


def _table(writer: Writer, node: ir.Table) -> None:
    table = writer.constants.array(node.values.astype(np.int8), f"{node.name}_table")
    writer.call("dovetail_look_up", table, writer.size(node.outputs[0]), *writer.ends(node, in_place=True))


def _average(writer: Writer, node: ir.AvgPool) -> None:
    fields: Fields = {
        "window": _window(writer, node, node.kernel, node.stride),
        "rounding": ROUNDINGS[node.rounding],
        "counts_padding": int(node.counted is not None),
        "fill": node.counted or 0,
        "origin": node.origin,
        "lo": node.lo,
        "hi": node.hi,
    }
    rule = writer.constants.struct("dovetail_average", fields, node.name)
    writer.call("dovetail_pool_average", rule, *writer.ends(node))


def _maximum(writer: Writer, node: ir.MaxPool) -> None:
    window = _window(writer, node, node.kernel, node.stride)
    rule = writer.constants.struct("dovetail_window", window, node.name)
    writer.call("dovetail_pool_maximum", rule, node.lo, node.hi, *writer.ends(node))


def _mean(writer: Writer, node: ir.Mean) -> None:
    _, height, width, channels = writer.graph.tensors[node.inputs[0]].nhwc
    rule = writer.constants.struct("dovetail_requant", writer.requant(node.requant, node.name), node.name)
    writer.call("dovetail_mean", rule, height * width, channels, *writer.ends(node))


def _pad(writer: Writer, node: ir.Pad) -> None:
    window = writer.constants.struct("dovetail_window", _window(writer, node), node.name)
    writer.call("dovetail_pad", window, node.value, *writer.ends(node))


def _move(writer: Writer, node: ir.Move) -> None:
    result = writer.storage.pointer(node.outputs[0])
    for name, copy in zip(node.inputs, node.copies, strict=True):
        writer.move(writer.storage.pointer(name), result, copy, writer.graph.tensors[name].item_bytes, node.name)


def _update(writer: Writer, node: ir.Update) -> None:
    """A state in which the host replaces rows."""
    state, rows, place = node.inputs
    item_bytes = writer.graph.tensors[state].item_bytes
    copy = writer.constants.struct(
        "dovetail_copy", copy_fields(node.copy(writer.graph), item_bytes, node.name), f"{node.name}_copy"
    )
    fields: Fields = {
        "bytes": writer.storage.bytes_of(state),
        "copy": copy,
        "step": node.step(writer.graph) * item_bytes,
        "places": node.places(writer.graph),
        "index_bytes": writer.graph.tensors[place].item_bytes,
    }
    rule = writer.constants.struct("dovetail_update", fields, node.name)
    operands = map(writer.storage.pointer, (place, state, rows, node.outputs[0]))
    writer.checked_call("dovetail_replace_rows", rule, *operands)


WRITERS: dict[type[ir.Node], Callable[[Writer, Any], None]] = {
    ir.Conv: _convolution,
    ir.Depthwise: _convolution,
    ir.MatMul: _product,
    ir.Elementwise: _elementwise,
    ir.Rescale: _rescale,
    ir.Table: _table,
    ir.AvgPool: _average,
    ir.MaxPool: _maximum,
    ir.Mean: _mean,
    ir.Pad: _pad,
    ir.Move: _move,
    ir.Update: _update,
}
"""What writes the calls of a node."""
