"""Integer layers with a state, as TFLite Micro computes them: UNIDIRECTIONAL_SEQUENCE_LSTM and SVDF on the host.

LiteRT's kernels of both round in other places and give other results. A layer reads its state as
operands after its input, and gives the new state as results after its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.numerics.multiplier import encode_multiplier, tflite_dense_multiplier
from dovetail.isa.numerics.requantise import scale_tflite
from dovetail.isa.numerics.rounding import Rounding, wrap32
from dovetail.sw.network.layout import Array

Int64 = NDArray[np.int64]

_GATE = np.float32(2**-12)
"""Scale of a gate before its function: Q3.12."""
_UNIT = 2.0**-15
"""Scale of what sigmoid and tanh give: Q0.15."""
_STEPS = 24
"""Entries of the table of the sigmoid per unit of its argument."""


@dataclass(frozen=True)
class Multiplier:
    """A real number as TFLite encodes it."""

    mult: int
    shift: int

    @classmethod
    def of(cls, real: float) -> Multiplier:
        """Raises ValueError where it is not finite, negative, or too large."""
        mult, shift = encode_multiplier(np.float64(real), Rounding.TFLITE)
        return cls(int(mult), int(shift))

    def times(self, value: Int64) -> Int64:
        """int32 times the number, rounded."""
        return scale_tflite(value, self.mult, self.shift)


def _saturated(value: Int64, bits: int) -> Int64:
    return np.clip(value, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_HIGHER = (
    *(4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43, 44, 45),
    *(46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255),
)
"""Entries that TFLite has one above the rounded sigmoid: all 65,536 results of its kernels say so."""


def _table() -> Int64:
    table = np.rint(65536 / (1 + np.exp(-np.arange(257) / _STEPS))).astype(np.int64)
    table[list(_HIGHER)] += 1
    return table


_SIGMOID = _table()


def _interpolated(magnitude: Int64, bits: int) -> Int64:
    """The sigmoid at ``magnitude / (24 * 2**bits)``, in units of ``2**-(16 + bits)``; 1 from entry 255 on."""
    place = np.minimum(magnitude >> bits, 255)
    low, high = _SIGMOID[place], _SIGMOID[place + 1]
    return np.where(place >= 255, 0, (low << bits) + (magnitude & ((1 << bits) - 1)) * (high - low))


def sigmoid(value: Int64) -> Int64:
    """int16 Q3.12 -> int16 Q0.15, by a table with interpolation."""
    scaled = value * 3
    magnitude = np.abs(scaled)
    above = np.where(magnitude >> 9 >= 255, 0x7FFF << 10, _interpolated(magnitude, 9))
    result = np.where(scaled >= 0, above + (1 << 9), (1 << 25) - above + (1 << 9) - 1)
    return result >> 10


def tanh(value: Int64, power: int) -> Int64:
    """int16 in units of ``2**power`` -> int16 Q0.15: twice the sigmoid of twice the argument, less one."""
    left = 15 + power - 3
    scaled = (value * 3 << left) if left >= 0 else (value * 3 + (1 << (-left - 1))) >> -left
    magnitude = np.abs(scaled)
    above = np.where(magnitude >> 8 >= 255, 0xFFFF << 8, _interpolated(magnitude, 8))
    result = np.where(scaled >= 0, above - (1 << 23) + (1 << 7), -above + (1 << 23) + (1 << 7) - 1)
    return result >> 8


@dataclass(frozen=True, eq=False)
class Gate:
    """A gate's two products.

    Parameters
    ----------
    weights, recurrent: int8 [units, inputs], [units, units].
    bias: int32 [units].
    scale, recurrent_scale: of each product to Q3.12.
    """

    weights: NDArray[np.int8]
    recurrent: NDArray[np.int8]
    bias: NDArray[np.int32]
    scale: Multiplier
    recurrent_scale: Multiplier

    @classmethod
    def of(
        cls,
        weights: tuple[Array, np.float32],
        recurrent: tuple[Array, np.float32],
        bias: Array,
        scale_in: np.float32,
        scale_hidden: np.float32,
    ) -> Gate:
        """From the file's constants and their scales. Raises ValueError for scales that cannot be encoded."""
        forms = [
            Multiplier.of(float(tflite_dense_multiplier(source, constant[1], _GATE)))
            for source, constant in ((scale_in, weights), (scale_hidden, recurrent))
        ]
        return cls(weights[0], recurrent[0], bias, *forms)

    def value(self, source: Int64, hidden: Int64) -> Int64:
        """Input and hidden state, less their zero points, [batch, ...] -> int16 Q3.12 [batch, units]."""
        products = (
            self.scale.times(wrap32(source @ self.weights.T.astype(np.int64) + self.bias)),
            self.recurrent_scale.times(hidden @ self.recurrent.T.astype(np.int64)),
        )
        return _saturated(_saturated(products[0], 16) + _saturated(products[1], 16), 16)


@dataclass(frozen=True, eq=False)
class Lstm:
    """A whole sequence through an LSTM layer without peepholes and projection.

    Parameters
    ----------
    gates: input, forget, cell, output.
    zero_in, zero_hidden: zero points of input, and of output and hidden state.
    scale_hidden: of output and hidden state.
    power: the cell state is int16 in units of ``2**power``.
    clip: the largest magnitude of the cell state, in reals; 0: none.
    time_major: input and output are [time, batch, ...], not [batch, time, ...].
    steps: time steps of all sequences, for `macs`.
    """

    gates: tuple[Gate, Gate, Gate, Gate]
    zero_in: int
    zero_hidden: int
    scale_hidden: np.float32
    power: int
    clip: float
    time_major: bool
    steps: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a run."""
        return self.steps * sum(gate.weights.size + gate.recurrent.size for gate in self.gates)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Input int8, hidden state int8, cell state int16 -> output, hidden state, cell state."""
        source, hidden, cell = (value.astype(np.int64) for value in inputs)
        steps = source - self.zero_in
        if not self.time_major:
            steps = steps.swapaxes(0, 1)
        units = len(self.gates[0].bias)
        hidden, cell = hidden.reshape(-1, units), cell.reshape(-1, units)
        made = []
        for step in steps:
            hidden, cell = self._step(step, hidden, cell)
            made.append(hidden)
        output = np.stack(made) if self.time_major else np.stack(made, axis=1)
        results = output.astype(np.int8), hidden.astype(np.int8), cell.astype(np.int16)
        return [results[0], results[1].reshape(inputs[1].shape), results[2].reshape(inputs[2].shape)]

    @property
    def most(self) -> int | None:
        """The largest magnitude of the cell state, in its units; None: whatever int16 holds."""
        return int(min(self.clip / 2.0**self.power, 32767.0)) if self.clip > 0 else None

    @property
    def factors(self) -> tuple[Multiplier, Multiplier, Multiplier]:
        """Of what the cell keeps, of what is added to it, and of the hidden state."""
        reals = _UNIT, _UNIT * _UNIT / 2.0**self.power, _UNIT * _UNIT / float(self.scale_hidden)
        kept, added, made = map(Multiplier.of, reals)
        return kept, added, made

    def _step(self, source: Int64, hidden: Int64, cell: Int64) -> tuple[Int64, Int64]:
        factors = self.factors
        values = [gate.value(source, hidden - self.zero_hidden) for gate in self.gates]
        enter, forget, output = (sigmoid(values[n]) for n in (0, 1, 3))
        kept = _saturated(factors[0].times(forget * cell), 16)
        added = _saturated(factors[1].times(enter * tanh(values[2], -12)), 16)
        cell = _saturated(kept + added, 16)
        if self.most is not None:
            cell = np.clip(cell, -self.most, self.most)
        product = tanh(cell, self.power) * output
        return _saturated(factors[2].times(product) + self.zero_hidden, 8), cell


@dataclass(frozen=True, eq=False)
class Svdf:
    """A dense layer of rank-one filters, each over the input and over its last results in time.

    Parameters
    ----------
    feature: int8 [filters, inputs].
    time: int8 or int16 [filters, memory].
    bias: int32 [units]; every unit sums `rank` filters.
    zero_in, zero_state, zero_out: zero points.
    scale_state, scale_out: of the first product to the state, of the second to the output.
    batch: inputs of a run, for `macs`.
    """

    feature: NDArray[np.int8]
    time: Array
    bias: NDArray[np.int32]
    rank: int
    zero_in: int
    zero_state: int
    zero_out: int
    scale_state: Multiplier
    scale_out: Multiplier
    batch: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a run."""
        return self.batch * (self.feature.size + self.time.size)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Input int8 [batch, inputs], state [batch, filters * memory] -> output int8 [batch, units], state."""
        source, state = inputs
        filters, memory = self.time.shape
        product = (source.astype(np.int64) - self.zero_in) @ self.feature.T.astype(np.int64)
        bits = 8 * self.time.itemsize
        newest = _saturated(self.scale_state.times(product), bits) + self.zero_state
        newest = newest.astype(self.time.dtype).astype(
            np.int64
        )  # with a zero point it wraps around, as the kernel does
        held = state.reshape(-1, filters, memory).astype(np.int64)
        held = np.concatenate([held[:, :, 1:], newest[:, :, None]], axis=2)
        filtered = wrap32(((held - self.zero_state) * self.time.astype(np.int64)).sum(axis=2))
        total = wrap32(filtered.reshape(len(held), -1, self.rank).sum(axis=2) + self.bias)
        output = _saturated(self.scale_out.times(total) + self.zero_out, 8)
        return [output.astype(np.int8), held.astype(state.dtype).reshape(state.shape)]
