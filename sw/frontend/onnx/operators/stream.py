"""Residual streams: sums of 16 bits, between DequantizeLinear and QuantizeLinear of int16, all with one scale, which is
a power of two.

In the graph they are int32 tensors. Everything here is equal to what the file says in float32, which is checked for
every value; for sums by intervals, which must stay within 16 bits. What is not equal remains float, on the host.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.isa.numerics.multiplier import onnx_multiplier
from dovetail.isa.numerics.rounding import INT16_MAX, INT16_MIN, Rounding
from dovetail.isa.numerics.vector import VectorParameters
from dovetail.sw.frontend.onnx.file import OnnxNode
from dovetail.sw.frontend.onnx.graph_builder import GraphBuilder
from dovetail.sw.frontend.onnx.operators.elementwise import common_layout
from dovetail.sw.frontend.onnx.operators.fit import nearest
from dovetail.sw.frontend.onnx.scope import Scope
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Target, Value
from dovetail.sw.host.kernels import Quantize
from dovetail.sw.host.norm import FloatNorm
from dovetail.sw.network import ir, reference
from dovetail.sw.network.elementwise import BYTES
from dovetail.sw.network.intervals import Interval, of_norm
from dovetail.sw.network.layout import Array, Layout

_WORDS = np.arange(INT16_MIN, INT16_MAX + 1, dtype=np.int32)


def dequantise(scope: Scope, node: OnnxNode) -> bool:
    """DequantizeLinear of a stream's tensor."""
    value, quant = scope.values.get(node.inputs[0]), _quant(scope, node)
    if value is None or quant is None or not scope.builder.is_moved(value):
        return False
    scope.streams[node.outputs[0]] = Source(value, quant)
    return True


def quantise(scope: Scope, node: OnnxNode) -> Value | None:
    """QuantizeLinear whose result is a stream's tensor: only DequantizeLinear with the same scale reads it. None for
    another one."""
    name, result, quant = node.inputs[0], node.outputs[0], _quant(scope, node)
    users = scope.file.consumers.get(result, [])
    same = all(user.op == "DequantizeLinear" and _quant(scope, user) == quant for user in users)
    if quant is None or not users or not same or result in scope.file.outputs:
        return None
    target, found = Target(node.name, result, quant), None
    if name in scope.sources:
        found = _widened(scope, scope.sources[name], target)
    elif name in scope.streams and scope.streams[name].quant == quant:
        found = scope.streams[name].value
    elif name in scope.waiting and scope.waiting[name].op == "Add":
        found = _sum(scope, scope.waiting[name], target)
    if found is None and scope.value(name).dtype == "float32":
        found = scope.builder.quantize(node.name, result, scope.value(name), quant)
    return found


def _quant(scope: Scope, node: OnnxNode) -> Quant | None:
    """The quantisation of a stream that a QuantizeLinear or DequantizeLinear has; None if it is another one."""
    zero = scope.constant(node.input(2)) if node.input(2) else None
    return Quant.of_stream(scope.constant(node.input(1)), zero)


# 8 bits and 16 ---------------------------------------------------------------------------------


def _widened(scope: Scope, source: Source, target: Target) -> Value | None:
    """An int8 tensor in 16 bits; None if the instruction does not give this."""
    quant = source.quant
    real = (BYTES.astype(np.float32) - np.float32(quant.zero_point)) * quant.scale
    (wanted,) = Quantize(target.quant.scale, 0, ties_even=True, wide=True).run([real])
    return _rescaled(scope, source, target, Op.WIDEN, BYTES, wanted)


def narrow(scope: Scope, source: Source, target: Target) -> Value | None:
    """A stream's tensor in 8 bits; None if the instruction does not give this."""
    real = _WORDS.astype(np.float32) * source.quant.scale
    (wanted,) = Quantize(target.quant.scale, target.quant.zero_point, ties_even=True).run([real])
    return _rescaled(scope, source, target, Op.REQUANT, _WORDS, wanted)


def _rescaled(scope: Scope, source: Source, target: Target, op: Op, given: Array, wanted: Array) -> Value | None:
    builder, (before, after) = scope.builder, (source.quant, target.quant)
    factor = onnx_multiplier(before.scale, np.float32(1), after.scale).reshape(1)
    plain = ir.Requant.encode(factor, Rounding.ONNX, before.zero_point, after.zero_point, where=target.node)
    params = VectorParameters(
        rounding=Rounding.ONNX,
        za=before.zero_point,
        zb=0,
        zy=after.zero_point,
        mult_out=int(plain.mult[0]),
        shift_out=int(plain.shift[0]),
    )
    compute = INSTRUCTIONS[op].compute
    params, differing = nearest(lambda tried: compute(given, None, tried), params, wanted)
    if differing:
        many = f"{differing} of {wanted.size} values"
        builder.reasons[target.node] = f"{op.name} is not ONNX Runtime's QuantizeLinear for {many}"
        return None
    requant = replace(plain, mult=np.array([params.mult_out], np.int32))
    shape = builder.tensors[source.value.tensor].shape
    out, name = builder.tensor(target.name, shape, after.inside, after), builder.node_name(target.node)
    builder.nodes.append(ir.Rescale(name=name, inputs=(source.value.tensor,), outputs=(out,), requant=requant, own=op))
    return Value(out, source.value.layout, after.dtype)


# Tensors of one scale ----------------------------------------------------------------------------


def _operands(scope: Scope, node: OnnxNode) -> tuple[list[Source | Constant], Quant] | None:
    """A stream's tensors, and constants, and their scale; None if others are among them."""
    found = [scope.streams.get(name) or scope.quantised.get(name) for name in node.inputs]
    known = [one for one in found if one is not None]
    quants = [one.quant if isinstance(one, Source) else one.stream for one in known]
    quant = quants[0] if quants else None
    return (known, quant) if quant and len(known) == len(found) and all(one == quant for one in quants) else None


def _sum(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    """A sum of two tensors of the stream, one of which may be constant; None if it is another one, or may need more
    than 16 bits."""
    found = _operands(scope, node)
    if found is None or found[1] != target.quant:
        return None
    builder, (left, right) = scope.builder, found[0]
    layouts = [one.value.layout for one in (left, right) if isinstance(one, Source)]
    shapes = [layout.shape for layout in layouts]
    shapes += [np.broadcast_shapes(shapes[0], one.values.shape) for one in (left, right) if isinstance(one, Constant)]
    layout = common_layout(layouts) if len(set(shapes)) == 1 else None
    if layout is None:
        return None
    operands = [_tensor(scope, node, one, layout) for one in (left, right)]
    reach = _interval(builder, operands[0]) + _interval(builder, operands[1])
    if not reach.fits:
        builder.reasons[node.name] = f"its sums must fit 16 bits, not reach from {reach.low} to {reach.high}"
        return None
    out, name = builder.tensor(target.name, layout.inner, "int32", target.quant), builder.node_name(node.name)
    plain = VectorParameters(rounding=Rounding.ONNX, za=0, zb=0, zy=0)
    builder.nodes.append(
        ir.Elementwise(name=name, inputs=tuple(operands), outputs=(out,), params=plain, own=Op.E32_ADD)
    )
    return Value(out, layout, target.quant.dtype)


def _tensor(scope: Scope, node: OnnxNode, operand: Source | Constant, layout: Layout) -> str:
    """An operand as a tensor in the order of a layout."""
    if isinstance(operand, Source):
        return scope.builder.placed(operand.value, layout).tensor
    quant = operand.stream
    assert quant is not None
    values = np.broadcast_to(operand.values, layout.shape)
    return scope.builder.constant(f"{node.name}/constant", values, quant, layout).tensor


def concat(scope: Scope, node: OnnxNode) -> bool:
    """Tensors of a stream, and constants, side by side."""
    found = _operands(scope, node)
    if found is None:
        return False
    parts, quant = found
    values = [
        one.value
        if isinstance(one, Source)
        else scope.builder.constant(f"{node.name}/constant", one.values, quant, Layout.plain(one.values.shape))
        for one in parts
    ]
    result = scope.builder.concat(node.name, node.outputs[0], values, int(node.attributes["axis"]), quant)
    scope.streams[node.outputs[0]] = Source(result, quant)
    return True


# What elements can be ----------------------------------------------------------------------------


def _interval(builder: GraphBuilder, tensor: str) -> Interval:
    """Of a stream's tensor, by what makes it."""
    known, pending = builder.intervals, [tensor]
    while pending:  # no recursion: a file may have any number of moves in a row
        node = builder.maker(pending[-1])
        joins = isinstance(node, ir.Move | ir.Reshape) or (isinstance(node, ir.Elementwise) and node.own == Op.E32_ADD)
        missing = [name for name in node.inputs if name not in known] if node and joins else []
        if not missing:
            known[pending.pop()] = _made(builder, node)
        pending += missing
    return known[tensor]


def _made(builder: GraphBuilder, node: ir.Node | None) -> Interval:
    """Of a node's result, where those of the stream's tensors that it reads are known."""
    known = builder.intervals
    match node:
        case ir.Constant():
            return Interval(int(node.value.min()), int(node.value.max()))
        case ir.Rescale(own=Op.WIDEN):
            results = reference.rescale(node, BYTES)
            return Interval(int(results.min()), int(results.max()))
        case ir.Elementwise(own=Op.E32_ADD):
            left, right = (known[name] for name in node.inputs)
            return left + right
        case ir.Move() | ir.Reshape():
            first, *others = (known[name] for name in node.inputs)
            return reduce(Interval.join, others, first)
        case ir.Host(payload=Quantize(wide=True) as quantise):
            maker = builder.maker(node.inputs[0])
            norm = maker.payload if isinstance(maker, ir.Host) else None
            if isinstance(norm, FloatNorm) and np.isfinite([norm.gain, norm.offset]).all():
                found = of_norm(norm.gain, norm.offset, quantise.scale)
                if found.fits:
                    return found
    return Interval(INT16_MIN, INT16_MAX)
