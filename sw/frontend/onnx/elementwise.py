"""Element-wise operators of the ONNX front end: two tensors by integer arithmetic, functions of one by a table.

A table holds what ONNX Runtime makes of each of the 256 values between DequantizeLinear and QuantizeLinear: in float32,
or in a kernel of its own where it fuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.numerics.add import onnx_sum
from dovetail.isa.numerics.multiplier import encode_multiplier, onnx_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.frontend.onnx.file import OnnxNode
from dovetail.sw.frontend.onnx.fit import fit, plain_fit, runtime_pair, runtime_product, runtime_sum
from dovetail.sw.frontend.onnx.graph_builder import GraphBuilder
from dovetail.sw.frontend.onnx.integer import FULL, Clamp
from dovetail.sw.frontend.onnx.values import Constant, Quant, Source, Value
from dovetail.sw.frontend.repeat import repeated
from dovetail.sw.host.kernels import Quantize
from dovetail.sw.network import ir
from dovetail.sw.network.elementwise import PAIR_OPERATORS
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

LEVELS = np.arange(-128, 128)


@dataclass(frozen=True)
class Expression:
    """Nodes, in order, that make a function of one dequantised tensor; constants are real or dequantised."""

    source: Source
    variable: str
    nodes: tuple[OnnxNode, ...]
    constants: dict[str, Array]
    quantised: dict[str, Constant] = field(default_factory=dict)


class ElementwiseOps:
    """Each method returns the result, or None where the accelerator has no such operator."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder

    def binary(
        self,
        name: str,
        result: str,
        kind: VectorOperation,
        operands: tuple[Source | Constant, Source | Constant],
        target: Quant,
        clamp: Clamp = FULL,
    ) -> Value | None:
        """Two tensors of one shape, or one of them with one row, column or channel, or a constant; None where the
        accelerator cannot, or not as ONNX Runtime does for every pair of bytes."""
        quants = [operand.quant for operand in operands]
        if quants[0] is None or quants[1] is None:
            return None
        offset = 128 if self.builder.file.kernel_types[target.dtype] == "uint8" else 0
        params = _fitted(kind, quants[0], quants[1], target, clamp, offset, _is_swapped(operands))
        placed = self._placed(f"{result}/constant", operands) if params is not None else None
        if params is None or placed is None:
            return None
        left, right, layout = placed
        out = self.builder.integer(result, layout, target)
        self.builder.nodes.append(
            ir.Elementwise(
                name=self.builder.node_name(name),
                inputs=(left, right),
                outputs=(out.tensor,),
                params=params,
            )
        )
        return out

    def _placed(self, name: str, operands: tuple[Source | Constant, ...]) -> tuple[str, str, Layout] | None:
        """Both operands' tensors, bytes in one order, and the layout of the result."""
        shapes = [operand.value.shape if isinstance(operand, Source) else operand.values.shape for operand in operands]
        sources = [operand.value for operand in operands if isinstance(operand, Source)]
        largest = max(sources, key=lambda value: value.layout.order().size)
        if shapes[0] == shapes[1] and len(sources) == 2:
            common = _common_layout([value.layout for value in sources])
            if common is None:
                return None
            left, right = (self.builder.placed(value, common).tensor for value in sources)
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
                tensors.append(self.builder.placed(view, layout).tensor)
            else:
                quant = operand.quant
                assert quant is not None
                tensors.append(self.builder.constant(name, operand.values.reshape(shape), quant, layout).tensor)
        left, right = (self._channels(tensor, max(a[3], b[3])) for tensor in tensors)
        joined = tuple(int(n) for n in np.broadcast_shapes(*shapes))
        return left, right, Layout.image(joined) if image else Layout.plain(joined)

    def _channels(self, tensor: str, channels: int) -> str:
        """A tensor with its one channel repeated, if it has one only."""
        source = self.builder.tensors[tensor]
        if source.shape[-1] == channels:
            return tensor
        out, node = repeated(source, channels, self.builder.node_name(f"{tensor}/channels"))
        self.builder.tensors[out.name] = out
        self.builder.nodes.append(node)
        return out.name

    def function(self, name: str, result: str, expression: Expression, target: Quant, clamp: Clamp = FULL) -> Value:
        """An expression of one tensor as a table."""
        quant = expression.source.quant
        if expression.nodes:
            constants, quantised = expression.constants, expression.quantised
            ends = (expression.variable, quant), target
            levels = self.builder.function(list(expression.nodes), constants, quantised, *ends)
        else:
            real = (LEVELS - quant.zero_point).astype(np.float32) * quant.scale
            levels = Quantize(target.scale, target.zero_point, ties_even=True).run([real])[0]
        ops = [node.op for node in expression.nodes]
        kind = ops[0].lower() if len(ops) == 1 else "function" if ops else "requantise"
        return self._table(name, result, expression.source.value, np.clip(levels, *clamp), target, kind)

    def requantise(self, name: str, result: str, source: Source, target: Quant, clamp: Clamp = FULL) -> Value:
        """The same reals in another quantisation, clamped."""
        if (source.quant, clamp) == (target, FULL):
            return source.value
        return self.function(name, result, Expression(source, "", (), {}), target, clamp)

    def tabulated(
        self, name: str, result: str, source: Source, target: Quant, kind: str, run: Callable[[Array], Array]
    ) -> Value:
        """A function on the file's integers as a table; ``run`` takes and gives 256 of them."""
        unsigned = source.quant.dtype == "uint8"
        levels = run((LEVELS + 128).astype(np.uint8) if unsigned else LEVELS.astype(np.int8))
        values = levels.astype(np.int16) - (128 if target.dtype == "uint8" else 0)
        return self._table(name, result, source.value, values, target, kind)

    def _table(self, name: str, result: str, value: Value, levels: Array, target: Quant, kind: str) -> Value:
        tensor = self.builder.tensors[value.tensor]
        out = self.builder.tensor(result, tensor.shape, "int8", target)
        self.builder.nodes.append(
            ir.Table(
                name=self.builder.node_name(name),
                inputs=(value.tensor,),
                outputs=(out,),
                values=levels.astype(np.int8),
                kind=kind,
            )
        )
        return Value(out, value.layout, target.dtype)


def _common_layout(layouts: list[Layout]) -> Layout | None:
    """An order of bytes, of at most four axes, for tensors of one shape; None if there is none.

    Channels last if one of them is not in the file's order: what follows wants them so as well.
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


def is_exact(kind: VectorOperation, a: Quant, b: Quant, target: Quant) -> bool:
    """Whether the engine's sum or product of two tensors is ONNX Runtime's for every pair of bytes, with at most the
    last bits of its factors changed."""
    params = _params(kind, a, b, target, FULL)
    return params is not None and plain_fit(params, _wanted(kind, params, a, b, target, 128, False)) is not None


@lru_cache(maxsize=256)
def _fitted(
    kind: VectorOperation, a: Quant, b: Quant, target: Quant, clamp: Clamp, offset: int, swapped: bool
) -> VectorParameters | None:
    """What gives ONNX Runtime's results for every pair of bytes."""
    params = _params(kind, a, b, target, clamp)
    return None if params is None else fit(params, _wanted(kind, params, a, b, target, offset, swapped))


def _params(kind: VectorOperation, a: Quant, b: Quant, target: Quant, clamp: Clamp) -> VectorParameters | None:
    """As the scales say; None if they are too far apart for the engine."""
    zeros = a.zero_point, b.zero_point, target.zero_point
    try:
        if kind == VectorOperation.MULTIPLY:
            real = onnx_multiplier(a.scale, b.scale, target.scale)
            mult, shift = (int(v) for v in encode_multiplier(real, Rounding.ONNX))
            za, zb, zy = zeros
            return VectorParameters(
                operation=kind,
                rounding=Rounding.ONNX,
                za=za,
                zb=zb,
                zy=zy,
                mult_out=mult,
                shift_out=shift,
                lo=clamp[0],
                hi=clamp[1],
            )
        scales = float(a.scale), float(b.scale), float(target.scale)
        return onnx_sum(
            scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2], lo=clamp[0], hi=clamp[1], operation=kind
        )
    except ValueError:
        return None


def _wanted(
    kind: VectorOperation,
    params: VectorParameters,
    a: Quant,
    b: Quant,
    target: Quant,
    offset: int,
    swapped: bool,
) -> NDArray[np.int8]:
    """ONNX Runtime's results for every pair of bytes."""
    if kind == VectorOperation.MULTIPLY:
        return runtime_product(params, np.float32(onnx_multiplier(a.scale, b.scale, target.scale)), offset)
    if kind == VectorOperation.ADD:
        return runtime_sum(params, (a.scale / target.scale, b.scale / target.scale), offset, swapped)
    return runtime_pair(params, (a.scale, b.scale, target.scale))
