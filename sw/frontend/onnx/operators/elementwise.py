"""Element-wise operators: two tensors by integer arithmetic, functions of one by a table; and ONNX Runtime's kernels.

A table holds what ONNX Runtime makes of each of the 256 values between DequantizeLinear and QuantizeLinear: in float32,
or in a kernel of its own where it fuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dovetail.isa.instructions.table import INSTRUCTIONS
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.frontend.onnx.file import STANDARD_DOMAINS, OnnxNode
from dovetail.sw.frontend.onnx.mapping import OnnxMapping
from dovetail.sw.frontend.onnx.operators.convolution import biased
from dovetail.sw.frontend.onnx.operators.fit import fitted, nearest
from dovetail.sw.frontend.onnx.scope import Scope
from dovetail.sw.frontend.onnx.values import FULL, Constant, Quant, Source, Target, Value, in_file
from dovetail.sw.frontend.repeat import repeated
from dovetail.sw.host.kernels import Quantize
from dovetail.sw.host.softmax import softmax_sizes
from dovetail.sw.network import ir
from dovetail.sw.network.elementwise import BYTES, LEFT, PAIR_OPERATORS, RIGHT
from dovetail.sw.network.layout import Array, Layout

FUNCTIONS = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BiasGelu", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
    "Erf", "Exp", "FastGelu", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg",
    "QuickGelu", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip
"""Functions of one element, tabulated between DequantizeLinear and QuantizeLinear."""

COMBINATIONS = ("Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub")
"""Tabulated too where all operands but one are constants of one element."""

BINARY = {row.onnx: row.operation for row in PAIR_OPERATORS.values()}
"""Operators on two tensors."""

_MOST_AXES = 4
"""Of tensors of which the accelerator moves the axes."""

Operands = tuple[Source | Constant, Source | Constant]


@dataclass(frozen=True)
class Expression:
    """Nodes, in order, that make a function of one dequantised tensor; constants are real or dequantised."""

    source: Source
    variable: str
    nodes: tuple[OnnxNode, ...]
    constants: dict[str, Array]
    quantised: dict[str, Constant] = field(default_factory=dict)


# Two tensors -----------------------------------------------------------------------------------


def _pair(scope: Scope, node: OnnxNode, operands: Operands, target: Target) -> Value | None:
    """Two tensors of one shape, or one of them with one row, column or channel, or a constant; None where the
    accelerator cannot, or not as ONNX Runtime does for every pair of bytes."""
    a, b = (operand.quant for operand in operands)
    if a is None or b is None:
        return None
    offset = 128 if scope.file.kernel_types[target.quant.dtype] == "uint8" else 0
    kind = BINARY[node.op.removeprefix("QLinear")]
    swapped = _is_swapped(operands)
    params = fitted(kind, a, b, target.quant, target.clamp, offset, swapped)
    if params is None and kind in (VectorOperation.MINIMUM, VectorOperation.MAXIMUM):
        # Rounding keeps the order of numbers, so it may come first.
        first, second = operands
        operands = (
            _in_quantisation(scope, first, target, f"{target.name}/left"),
            _in_quantisation(scope, second, target, f"{target.name}/right"),
        )
        params = fitted(kind, target.quant, target.quant, target.quant, target.clamp, offset, swapped)
    return None if params is None else _combined(scope, operands, target, params)


def _in_quantisation(scope: Scope, operand: Source | Constant, target: Target, name: str) -> Source | Constant:
    """An operand in the quantisation of a result."""
    quant = target.quant
    if isinstance(operand, Source):
        return Source(requantise(scope, operand, Target(name, name, quant)), quant)
    (levels,) = Quantize(quant.scale, quant.zero_point, ties_even=True).run([operand.real()])
    return Constant(levels, np.full((), quant.scale, np.float32), np.full((), quant.zero_point, np.int8), 0)


def _combined(
    scope: Scope, operands: Operands, target: Target, params: VectorParameters, mapping: OnnxMapping | None = None
) -> Value | None:
    """The node, if the operands' bytes can be brought into one order."""
    placed = _placed(scope, f"{target.name}/constant", operands)
    if placed is None:
        return None
    left, right, layout = placed
    quant = None if mapping is not None and mapping.integers else target.quant
    out = scope.builder.tensor(target.name, layout.inner, "int8", quant)
    scope.builder.nodes.append(
        ir.Elementwise(
            name=scope.builder.node_name(target.node),
            inputs=(left, right),
            outputs=(out,),
            params=params,
            own=None if mapping is None else mapping.op,
        )
    )
    return Value(out, layout, target.quant.dtype)


def _placed(scope: Scope, name: str, operands: tuple[Source | Constant, ...]) -> tuple[str, str, Layout] | None:
    """Both operands' tensors, bytes in one order, and the layout of the result."""
    builder = scope.builder
    shapes = [operand.value.shape if isinstance(operand, Source) else operand.values.shape for operand in operands]
    sources = [operand.value for operand in operands if isinstance(operand, Source)]
    largest = max(sources, key=lambda value: value.layout.order().size)
    if shapes[0] == shapes[1] and len(sources) == 2:
        common = common_layout([value.layout for value in sources])
        if common is None:
            return None
        left, right = (builder.placed(value, common).tensor for value in sources)
        return left, right, common
    rank = max(map(len, shapes))
    image = rank == 4 and not largest.layout.is_plain
    if rank > 4:
        return None
    full = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    seen = [(1,) * (4 - rank) + ((s[0], s[2], s[3], s[1]) if image else s) for s in full]
    a, b = seen
    if not a[0] == b[0] == 1 or not all(m == n or 1 in (m, n) for m, n in zip(a, b, strict=True)):
        return None
    tensors = []
    for operand, shape in zip(operands, full, strict=True):
        layout = Layout.image(shape) if image else Layout.plain(shape)
        if isinstance(operand, Source):
            view = replace(operand.value, layout=operand.value.layout.reshaped(shape))
            tensors.append(builder.placed(view, layout).tensor)
        else:
            quant = operand.quant
            assert quant is not None
            tensors.append(builder.constant(name, operand.values.reshape(shape), quant, layout).tensor)
    left, right = (_channels(scope, tensor, max(a[3], b[3])) for tensor in tensors)
    joined = tuple(int(n) for n in np.broadcast_shapes(*shapes))
    return left, right, Layout.image(joined) if image else Layout.plain(joined)


def _channels(scope: Scope, tensor: str, channels: int) -> str:
    """A tensor with its one channel repeated, if it has one only."""
    builder = scope.builder
    source = builder.tensors[tensor]
    if source.shape[-1] == channels:
        return tensor
    out, node = repeated(source, channels, builder.node_name(f"{tensor}/channels"))
    builder.tensors[out.name] = out
    builder.nodes.append(node)
    return out.name


def common_layout(layouts: list[Layout]) -> Layout | None:
    """An order of bytes, of at most four axes, for tensors of one shape; None if there is none.

    Channels come last if one of them is not in the file's order: what follows wants them there, too.
    """
    moved = [layout for layout in layouts if not layout.is_plain]
    shape = layouts[0].shape
    images = [Layout.image(shape)] if moved and len(shape) == 4 else []
    return next((layout for layout in (*moved, *images, *layouts) if len(layout.inner) <= 4), None)


def _is_swapped(operands: tuple[Source | Constant, ...]) -> bool:
    """Whether the first is one value for each run of the second's: ONNX Runtime then swaps them."""
    shapes = [operand.value.shape if isinstance(operand, Source) else operand.values.shape for operand in operands]
    rank = max(map(len, shapes))
    a, b = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    runs = [(m, n) for m, n in zip(a, b, strict=True) if (m, n) != (1, 1)]
    return not runs or (runs[-1][0] == 1)


def _binary(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    operands = _operands(scope, node)
    if operands is not None:
        value = _pair(scope, node, operands, target)
        if value is None and node.op in ("Add", "Mul") and scope.is_of_one_type(*operands, target.quant):
            return kernel(scope, node, f"QLinear{node.op}", operands, target)
        return value
    return biased(scope, node, target) if node.op == "Add" and len(node.inputs) == 2 else None


def _operands(scope: Scope, node: OnnxNode) -> Operands | None:
    """Two dequantised tensors, one of them perhaps constant; None for a function of one tensor, or something else."""
    if len(node.inputs) != 2 or not any(name in scope.sources for name in node.inputs):
        return None
    a, b = map(scope.known, node.inputs)
    return None if a is None or b is None or expression(scope, node.outputs[0]) is not None else (a, b)


def _qlinear_binary(scope: Scope, node: OnnxNode) -> bool:
    """With a constant of one element a function of the other operand."""
    a = scope.operand(node, 0) or scope.weight(node, 0, 0)
    b = scope.operand(node, 3) or scope.weight(node, 3, 0)
    target = scope.target(node, 6, 7)
    if a is None or b is None or target is None:
        return False
    for data, source, other in ((0, a, b), (3, b, a)):
        if isinstance(source, Source) and isinstance(other, Constant) and other.values.size == 1:
            return other.values.ndim <= 1 and scope.put(node, _tabulated(scope, node, data, source, target))
    return scope.put(node, _pair(scope, node, (a, b), target))


# Instructions of extensions --------------------------------------------------------------------


def mapped(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    """An operator between dequantised tensors for which an extension has an instruction."""
    mapping, operands = scope.file.mapping(node), _operands(scope, node)
    if mapping is None or mapping.integers or operands is None:
        return None
    return _instruction(scope, node, mapping, operands, target)


def mapped_integers(scope: Scope, node: OnnxNode) -> bool:
    """The same on 8-bit integers."""
    mapping = scope.file.mapping(node)
    if mapping is None or not mapping.integers:
        return False
    a, b = (_integers(scope, name) for name in node.inputs)
    if a is None or b is None or a.quant is None:
        return False
    return scope.put(node, _instruction(scope, node, mapping, (a, b), Target(node.name, node.outputs[0], a.quant)))


def _integers(scope: Scope, name: str) -> Source | Constant | None:
    """A name that is 8-bit integers, with the quantisation of plain integers."""
    value, constant = scope.values.get(name), scope.constant(name)
    if value is not None and value.dtype in ("int8", "uint8"):
        return Source(value, Quant(np.float32(1), 0, value.dtype))
    if constant is not None and constant.dtype in (np.int8, np.uint8):
        zero = np.full((), 128 if constant.dtype == np.uint8 else 0, constant.dtype)
        return Constant(constant, np.ones((), np.float32), zero, 0)
    return None


def _instruction(
    scope: Scope, node: OnnxNode, mapping: OnnxMapping, operands: Operands, target: Target
) -> Value | None:
    """None where the instruction does not give what ONNX Runtime computes, for every pair of bytes."""
    (a, b), names, why = (operand.quant for operand in operands), node.inputs, scope.builder.reasons
    if a is None or b is None:
        return None
    params = mapping.parameters(a, b, target.quant, node.attributes)
    if params is None:
        why[node.name] = f"{mapping.op.name} cannot be told to do this"
        return None
    if mapping.integers:
        given = {name: in_file(side, quant) for name, side, quant in zip(names, (LEFT, RIGHT), (a, b), strict=True)}
        wanted = scope.builder.results([node], {}, given, node.outputs[0])
    else:
        sources = [*zip(names, (a, b), (LEFT, RIGHT), strict=True)]
        low, high = target.clamp
        wanted = np.clip(scope.builder.function([node], {}, {}, sources, target.quant), low, high)
        params = replace(params, lo=max(params.lo, low), hi=min(params.hi, high))
    compute = INSTRUCTIONS[mapping.op].compute
    params, differing = nearest(lambda tried: compute(LEFT, RIGHT, tried), params, wanted)
    if differing:
        pairs = f"{differing} of {wanted.size} pairs of bytes"
        why[node.name] = f"{mapping.op.name} is not ONNX Runtime's {node.op} for {pairs}"
        return None
    return _combined(scope, operands, target, params, mapping)


# One tensor ------------------------------------------------------------------------------------


def expression(scope: Scope, name: str) -> Expression | None:
    """The waiting name as a function of one dequantised tensor; None if it is something else."""
    nodes: dict[str, OnnxNode] = {}
    constants: dict[str, Array] = {}
    quantised: dict[str, Constant] = {}
    variables: dict[str, Source] = {}

    def visit(name: str) -> bool:
        if name in scope.sources:
            variables[name] = scope.sources[name]
            return True
        constant = scope.constant(name)
        if constant is not None:
            if name in scope.quantised and name not in scope.file.constants:
                quantised[name] = scope.quantised[name]
            else:
                constants[name] = constant
            return constant.size == 1 and constant.ndim <= 1
        node = scope.waiting.get(name)
        if node is None or node.op not in (*FUNCTIONS, *COMBINATIONS):
            return False
        if not all(visit(operand) for operand in node.inputs if operand):
            return False
        nodes[node.name] = node
        return True

    if not visit(name) or len(variables) != 1:
        return None
    ((variable, source),) = variables.items()
    return Expression(source, variable, tuple(nodes.values()), constants, quantised)


def function(scope: Scope, found: Expression, target: Target) -> Value:
    """An expression of one tensor as a table."""
    quant = found.source.quant
    if found.nodes:
        sources = [(found.variable, quant, BYTES)]
        levels = scope.builder.function(list(found.nodes), found.constants, found.quantised, sources, target.quant)
    else:
        real = (BYTES.astype(np.int16) - quant.zero_point).astype(np.float32) * quant.scale
        levels = Quantize(target.quant.scale, target.quant.zero_point, ties_even=True).run([real])[0]
    ops = [node.op for node in found.nodes]
    kind = ops[0].lower() if len(ops) == 1 else "function" if ops else "requantise"
    return _table(scope, found.source.value, np.clip(levels, *target.clamp), target, kind)


def requantise(scope: Scope, source: Source, target: Target) -> Value:
    """The same reals in another quantisation, clamped."""
    if (source.quant, target.clamp) == (target.quant, FULL):
        return source.value
    return function(scope, Expression(source, "", (), {}), target)


def _qlinear_function(scope: Scope, node: OnnxNode) -> bool:
    source, target = scope.operand(node, 0), scope.target(node, 3, 4)
    return source is not None and target is not None and scope.put(node, _tabulated(scope, node, 0, source, target))


def _tabulated(scope: Scope, node: OnnxNode, data: int, source: Source, target: Target) -> Value:
    """What ONNX Runtime's integer kernel makes of each value of the operand with number ``data``; the others are
    constants."""
    constants = {name: value for name in node.inputs if name and (value := scope.constant(name)) is not None}
    levels = scope.builder.run_constant(node, constants | {node.inputs[data]: in_file(BYTES, source.quant)})[0]
    values = levels.astype(np.int16) - (128 if target.quant.dtype == "uint8" else 0)
    return _table(scope, source.value, values, target, node.op.removeprefix("QLinear").lower())


def _table(scope: Scope, value: Value, levels: Array, target: Target, kind: str) -> Value:
    out = scope.builder.tensor(target.name, scope.builder.tensors[value.tensor].shape, "int8", target.quant)
    scope.builder.nodes.append(
        ir.Table(
            name=scope.builder.node_name(target.node),
            inputs=(value.tensor,),
            outputs=(out,),
            values=levels.astype(np.int8),
            kind=kind,
        )
    )
    return Value(out, value.layout, target.quant.dtype)


# Clamps, and kernels of ONNX Runtime -------------------------------------------------------------


def clamped(scope: Scope, node: OnnxNode, target: Target) -> Target | None:
    """What is wanted in front of a Relu or Clip; None if its bounds are not known."""
    bounds = _bounds(scope, node)
    return None if bounds is None else _tighter(target, bounds)


def _bounds(scope: Scope, node: OnnxNode) -> tuple[float, float] | None:
    """Real bounds of an activation."""
    if node.op == "Relu":
        return 0.0, np.inf
    ends = [node.attributes.get("min", -np.inf), node.attributes.get("max", np.inf)]
    for index in (1, 2):
        if node.input(index):
            constant = scope.constant(node.input(index))
            if constant is None:
                return None
            ends[index - 1] = float(constant.ravel()[0])
    return float(ends[0]), float(ends[1])


def _tighter(target: Target, bounds: tuple[float, float]) -> Target:
    """The target with real bounds, which are quantised as QuantizeLinear would."""

    def level(real: float) -> int:
        if not np.isfinite(real):
            return -128 if real < 0 else 127
        steps = np.rint(np.float32(real) / target.quant.scale)
        return int(np.clip(float(steps) + target.quant.zero_point, -128, 127))

    clamp = max(target.clamp[0], level(bounds[0])), min(target.clamp[1], level(bounds[1]))
    return replace(target, clamp=clamp)


def kernel(
    scope: Scope, node: OnnxNode, kind: str, operands: Sequence[Source | Constant], target: Target, **attributes: Any
) -> Value | None:
    """An integer operator of ONNX Runtime on the host, for what the accelerator cannot do."""
    if any(operand.quant is None for operand in operands):
        return None
    value = scope.builder.kernel(node, kind, operands, target.quant, **attributes)
    return requantise(scope, Source(value, target.quant), target)


def _softmax(scope: Scope, node: OnnxNode, target: Target) -> Value | None:
    source = scope.sources.get(node.inputs[0])
    if source is None or not scope.is_of_one_type(source, target.quant):
        return None
    if len(scope.file.consumers[node.outputs[0]]) > 1 or node.outputs[0] in scope.file.outputs:
        return None
    opset = next(opset.version for opset in scope.file.opsets if opset.domain in STANDARD_DOMAINS)
    axis = int(node.attributes.get("axis", -1 if opset >= 13 else 1))
    shape = source.value.shape
    sizes = softmax_sizes(shape, axis, opset)
    if len(shape) > _MOST_AXES or source.value.layout.has_rows(sizes):
        return kernel(scope, node, "QLinearSoftmax", (source,), target, axis=axis, opset=opset)
    # Rows in one piece, along the last axis of what is in memory.
    layout = Layout.plain(shape) if sizes[2] == 1 else Layout.rows(shape, axis % len(shape))
    value = replace(scope.builder.placed(source.value, layout), layout=Layout.plain(layout.inner))
    axis = axis if sizes[2] == 1 else -1
    shares = kernel(scope, node, "QLinearSoftmax", (replace(source, value=value),), target, axis=axis, opset=opset)
    return None if shares is None else replace(shares, layout=layout)


NODES = {
    "QLinearAdd": _qlinear_binary,
    "QLinearLeakyRelu": _qlinear_function,
    "QLinearMul": _qlinear_binary,
    "QLinearSigmoid": _qlinear_function,
}
BETWEEN = {**dict.fromkeys(BINARY, _binary), "Softmax": _softmax}
