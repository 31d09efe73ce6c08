"""The nodes of a network: what each operation is, with its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.instructions.table import Op
from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.norm import NormRecords
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorParameters
from dovetail.sw.errors import NetworkError
from dovetail.sw.network.elementwise import PAIR_OPERATORS
from dovetail.sw.network.layout import Array, Shape

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Padding in pixels: (top, left, bottom, right)."""


@dataclass(frozen=True, eq=False)
class Requant:
    """How an accumulator becomes int8: per-channel multipliers, rounding, offsets and clamp.

    Parameters
    ----------
    mult, shift: int32 arrays, one entry per output channel (or one for all), as `isa.numerics` encodes them.
    rounding: which of the roundings of `isa.numerics`.
    zero_in, zero_out: zero points of input and output.
    lo, hi: clamp of the result, activation folded in.
    """

    mult: NDArray[np.int32]
    shift: NDArray[np.int32]
    rounding: Rounding
    zero_in: int
    zero_out: int
    lo: int = -128
    hi: int = 127

    @classmethod
    def encode(
        cls,
        real: NDArray[np.floating[Any]],
        rounding: Rounding,
        zero_in: int,
        zero_out: int,
        lo: int = -128,
        hi: int = 127,
        *,
        where: str,
    ) -> Requant:
        """From real multipliers, one per channel; `where` names the node in errors.

        Raises
        ------
        NetworkError: a multiplier is not finite, negative, or too large to encode.
        """
        try:
            mult, shift = encode_multiplier(real, rounding)
        except ValueError as error:
            worst = real.flat[np.argmax(np.where(np.isfinite(real) & (real >= 0), real, np.inf))]
            raise NetworkError(f"{where!r}: scales must give multipliers of 0 to 2**31, not {worst}") from error
        return cls(mult.astype(np.int32), shift.astype(np.int32), rounding, zero_in, zero_out, lo, hi)

    @classmethod
    def of_sums(cls, zero_in: int, rounding: Rounding) -> Requant:
        """Of a node whose int32 accumulators are its result: only ``zero_in`` means something."""
        nothing = np.zeros(1, np.int32)
        return cls(nothing, nothing, rounding, zero_in, 0)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Node:
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def op(self) -> str:
        """Label for reports."""
        return type(self).__name__.lower()

    @property
    def weight_bytes(self) -> int:
        """Bytes of weights and biases; 0 where there are none."""
        return 0


@dataclass(frozen=True, eq=False, kw_only=True)
class _Convolution(_Node):
    weights: NDArray[np.int8]
    bias: NDArray[np.int32]
    requant: Requant
    stride: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    @property
    def weight_bytes(self) -> int:
        return self.weights.nbytes + self.bias.nbytes


@dataclass(frozen=True, eq=False, kw_only=True)
class Conv(_Convolution):
    """2-D convolution, and the dense layer as a 1x1 convolution on a (1, 1, rows, IC) view.

    Parameters
    ----------
    weights: int8 [OC, KH, KW, IC / groups], zero point 0.
    rest: int8 [N, *weights.shape], what is added to `weights` where int8 does not hold them; None: nothing. The sums
        span 255 at most.
    bias: int32 [OC], raw (input zero point not folded in).
    stride, dilation: (y, x).
    pads: pixels of input zero point, (top, left, bottom, right).
    groups: output channels, in order, fall into this many groups; each reads its share of the input channels.
    kind: "conv" or "dense", for reports.

    The result is int8, or int32 of a dense layer whose accumulators leave as they are (`Requant.of_sums`).
    """

    groups: int = 1
    kind: str = "conv"
    rest: NDArray[np.int8] | None = None

    @property
    def op(self) -> str:
        return self.kind

    @property
    def kernel(self) -> Pair:
        """(KH, KW)"""
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def whole_weights(self) -> NDArray[np.int16]:
        """The weights, with their rest."""
        return _whole(self.weights, self.rest)


@dataclass(frozen=True, eq=False, kw_only=True)
class Depthwise(_Convolution):
    """Depthwise convolution: output channel k sees input channel k // M, where M is the channel multiplier.

    Parameters
    ----------
    weights: int8 [KH, KW, C * M].
    bias: int32 [C * M].
    rest: as of `Conv`.
    """

    rest: NDArray[np.int8] | None = None

    @property
    def kernel(self) -> Pair:
        """(KH, KW)"""
        return self.weights.shape[0], self.weights.shape[1]

    @property
    def whole_weights(self) -> NDArray[np.int16]:
        """The weights, with their rest."""
        return _whole(self.weights, self.rest)


def _whole(weights: NDArray[np.int8], rest: NDArray[np.int8] | None) -> NDArray[np.int16]:
    whole = weights.astype(np.int16)
    return whole if rest is None else whole + rest.sum(axis=0, dtype=np.int16)


def int8_terms(weights: NDArray[np.int16]) -> tuple[NDArray[np.int8], NDArray[np.int8] | None]:
    """`weights` and `rest` of a convolution: int8 arrays whose sum the given weights are."""
    terms: list[NDArray[np.int8]] = []
    while weights.any() or not terms:
        terms.append(np.clip(weights, -128, 127).astype(np.int8))
        weights = weights - terms[-1]
    return terms[0], np.stack(terms[1:]) if len(terms) > 1 else None


@dataclass(frozen=True, eq=False, kw_only=True)
class MatMul(_Node):
    """Product of two tensors, matrix by matrix: [..., M, K] x [..., K, N] -> [..., M, N], int8 or int32 as of `Conv`.

    Parameters
    ----------
    requant: one entry; ``zero_in`` is the first operand's zero point.
    zero_b: the second operand's zero point.
    transposed: the second operand is [..., N, K].
    """

    requant: Requant
    zero_b: int
    transposed: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(_Node):
    """Sum, difference, minimum, maximum or product of two tensors, as `params` says; or what `own` does with them: an
    instruction that a mapping named (`sw.frontend.onnx.mapping`), or E32_ADD of int32 tensors.

    An operand may have one row or one column where the result has more; it is repeated.
    """

    params: VectorParameters
    own: Op | None = None

    @property
    def instruction(self) -> Op:
        """What performs it."""
        return PAIR_OPERATORS[self.params.operation].instruction if self.own is None else self.own

    @property
    def op(self) -> str:
        if self.own is not None:
            return str(self.own.name.lower())
        return PAIR_OPERATORS[self.params.operation].name


@dataclass(frozen=True, eq=False, kw_only=True)
class Rescale(_Node):
    """``requantise(x - zero_in)`` of every element: requantisation, ReLU alone, absolute value, leaky ReLU.

    Parameters
    ----------
    requant: one entry.
    absolute: the magnitude of ``x - zero_in`` is rescaled.
    below: encoded (multiplier, shift) for ``x < zero_in``; None if it is the same as above.
    own: WIDEN, from int8 to 16 bits in int32, or REQUANT, from these to int8; None: int8 to int8.
    kind: for reports.
    """

    requant: Requant
    absolute: bool = False
    below: tuple[int, int] | None = None
    own: Op | None = None
    kind: str = "rescale"

    @property
    def instruction(self) -> Op:
        """What performs it."""
        if self.own is not None:
            return self.own
        return Op.E_ABS if self.absolute else Op.ACT_LRELU if self.below else Op.ACT_RELU

    @property
    def op(self) -> str:
        return self.kind if self.own is None else self.own.name.lower()


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(_Node):
    """Any function of one element: `values` int8 [256], indexed by the element plus 128. ``kind`` is for reports."""

    values: NDArray[np.int8]
    kind: str = "table"

    @property
    def op(self) -> str:
        return self.kind


@dataclass(frozen=True, eq=False, kw_only=True)
class Softmax(_Node):
    """Softmax of int8 rows, along the last axis: `isa.numerics.softmax`.

    Parameters
    ----------
    form: TFLITE, or ONNX for that of QLinearSoftmax.
    exponentials: int32, or in ONNX float32, [256], by an element's distance from its row's largest.
    levels, zero_out: what stands for 1, and for 0; 256 and -128 in TFLITE.
    valid: elements that count in a matrix's first row, and how many more in each next one; the others become
        ``zero_out``. None: all count.
    distance: the result is less than so many steps away from the reals', where these are the file's; None: it is that
        of the runtime.
    """

    form: Rounding
    exponentials: NDArray[np.int32] | NDArray[np.float32]
    levels: int = 256
    zero_out: int = -128
    valid: Pair | None = None
    distance: float | None = None

    @property
    def op(self) -> str:
        return "softmax" if self.form == Rounding.TFLITE else "qlinearsoftmax"


@dataclass(frozen=True, eq=False, kw_only=True)
class Norm(_Node):
    """Layer norm or RMS norm of rows, along the last axis: `isa.numerics.norm`.

    Parameters
    ----------
    rms: the mean stays in.
    epsilon: what is added to the variance, as `norm_epsilon` encodes it.
    records: of the channels.
    zero_in, zero_out: zero points of operand and result; 0 where these have 16 bits.
    distance: the result is less than so many steps away from the reals'.
    instruction: NORM; or NORM16 of rows of 16 bits in int32, or NORM16_WIDE, which makes such.
    """

    rms: bool
    epsilon: int
    records: NormRecords
    zero_in: int
    zero_out: int
    distance: float
    instruction: Op = Op.NORM

    @property
    def op(self) -> str:
        return "rmsnormalization" if self.rms else "layernormalization"

    @property
    def weight_bytes(self) -> int:
        return 8 * self.records.mult.size


@dataclass(frozen=True)
class Copy:
    """A strided copy between dense tensors: element (i, j, ...) of ``sizes`` goes from ``source + i * source_steps[0] +
    j * source_steps[1] + ...`` to ``target + ...``, all counted in elements."""

    sizes: Shape
    source: int
    source_steps: Shape
    target: int
    target_steps: Shape

    @classmethod
    def between(cls, reading: NDArray[np.int64], writing: NDArray[np.int64]) -> Copy | None:
        """The copy from one view of :func:`positions` to another of the same shape; None if it runs backwards."""
        if reading.shape != writing.shape:
            raise ValueError(f"views must have one shape, not {reading.shape} and {writing.shape}")
        steps = [
            tuple(step // view.itemsize if size > 1 else 0 for step, size in zip(view.strides, view.shape, strict=True))
            for view in (reading, writing)
        ]
        if min((*steps[0], *steps[1]), default=0) < 0:
            return None
        return cls(reading.shape, int(reading.flat[0]), steps[0], int(writing.flat[0]), steps[1])


def positions(shape: Shape) -> NDArray[np.int64]:
    """Where each element of a dense tensor lies; slices and transpositions of it describe a `Copy`."""
    return np.arange(prod(shape), dtype=np.int64).reshape(shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Move(_Node):
    """Data movement: concatenation, slice, split, transposition. Every byte of the result comes from one copy.

    Parameters
    ----------
    copies: one per input, in order.
    kind: for reports.
    """

    copies: tuple[Copy, ...]
    kind: str = "move"

    @property
    def op(self) -> str:
        return self.kind


@dataclass(frozen=True, eq=False, kw_only=True)
class Update(_Node):
    """A state with some rows replaced. Inputs are the state, the rows, and the number of the first row that is
    replaced: a whole number that the host has, from 0 on. Both tensors have the same sizes but along ``axis``."""

    axis: int

    def places(self, graph: Any) -> int:
        """How many numbers the first row may have."""
        state, rows = (graph.tensors[name].shape for name in self.inputs[:2])
        return int(state[self.axis] - rows[self.axis] + 1)

    def step(self, graph: Any) -> int:
        """Elements of the state from one row to the next."""
        return prod(graph.tensors[self.inputs[0]].shape[self.axis :][1:])

    def copy(self, graph: Any) -> Copy:
        """The copy of the rows to place 0."""
        state, rows = (graph.tensors[name].shape for name in self.inputs[:2])
        where = tuple(slice(0, size) for size in rows)
        found = Copy.between(positions(rows), positions(state)[where])
        assert found
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Pad(_Node):
    """A frame of `value` around a (1, H, W, C) tensor; pixels as (top, left, bottom, right)."""

    pads: Pads
    value: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Im2col(_Node):
    """The pixels of each window of a (1, H, W, C) tensor side by side, row by row, as the channels of one pixel ->
    (1, OH, OW, KH * KW * C). Padding reads as `value`. Made by the compiler; no file has it."""

    kernel: Pair
    stride: Pair
    dilation: Pair
    pads: Pads
    value: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(_Node):
    """A tensor, int8 or int32, that does not depend on the network's inputs; costs nothing but its memory."""

    value: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Pick(_Node):
    """A row of a constant table, which a run picks: the input is the row's number, a whole number that the host has.
    What reads the row finds it in the table, so it costs nothing but the table's memory.

    ``table``: int8 [rows, elements of the result].
    """

    table: NDArray[np.int8]


@dataclass(frozen=True, eq=False, kw_only=True)
class AvgPool(_Node):
    """Average over a window, of the integers with their zero point; input and output quantisation are equal.

    `counted` is what padding reads as where it counts as taps; None: only taps inside the image count. `origin` is the
    integer that ties are rounded away from.
    """

    kernel: Pair
    stride: Pair
    pads: Pads
    rounding: Rounding
    lo: int = -128
    hi: int = 127
    counted: int | None = None
    origin: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Mean(_Node):
    """Mean over all pixels of a (1, H, W, C) tensor -> C values, requantised from the plain sum.

    `requant` (one entry) already holds the division: result = requantise(sum(x - zero_in)).
    """

    requant: Requant


@dataclass(frozen=True, eq=False, kw_only=True)
class MaxPool(_Node):
    """Maximum over the valid taps of a window, then a clamp; kernel (1, 1) is a clamp alone."""

    kernel: Pair
    stride: Pair
    pads: Pads
    lo: int = -128
    hi: int = 127


@dataclass(frozen=True, eq=False, kw_only=True)
class Reshape(_Node):
    """The same bytes under another shape; costs nothing."""

    shape: Shape


@dataclass(frozen=True, eq=False, kw_only=True)
class Host(_Node):
    """Anything the accelerator does not do: `payload` (see `sw.host.kernels`) runs it with the reference runtime.
    ``reason``: why, where that is not plain from the operator."""

    label: str
    payload: Any
    reason: str = ""

    @property
    def op(self) -> str:
        return self.label


Node = (
    Conv
    | Depthwise
    | MatMul
    | Elementwise
    | Rescale
    | Table
    | Softmax
    | Norm
    | AvgPool
    | Mean
    | MaxPool
    | Pad
    | Im2col
    | Move
    | Update
    | Reshape
    | Constant
    | Pick
    | Host
)

Pointwise = Elementwise | Rescale | Table
"""Nodes that compute each element from those in its place."""

Rows = Softmax | Norm
"""Nodes that compute each row of their operand from all of it."""

FREE = (Reshape, Constant, Pick)
"""Nodes that neither accelerator nor host has work with."""
