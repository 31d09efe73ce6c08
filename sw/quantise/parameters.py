"""Scales and zero points that a scheme makes of ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.network.layout import Array
from dovetail.sw.quantise.scheme import Scheme

_BIAS_LEVELS = 1 << 30
"""A bias takes at most half of an int32 accumulator."""


_OF_NOTHING = np.float32(2**-8)
"""Scale of an activation that is always zero: not far from others', so that the accelerator can add it to them."""


@dataclass(frozen=True)
class Range:
    """Reals that a tensor takes."""

    low: float
    high: float

    def join(self, other: Range) -> Range:
        """The smallest range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class Level:
    """Quantisation of an activation: ``real = scale * (integer - zero_point)``; lowest and highest integer."""

    scale: np.float32
    zero_point: int
    lowest: int
    highest: int

    def of(self, real: float) -> int:
        """The integer that QuantizeLinear makes of a real."""
        if not np.isfinite(real):
            return self.lowest if real < 0 else self.highest
        steps = float(np.rint(np.float32(real) / self.scale)) + self.zero_point
        return int(np.clip(steps, self.lowest, self.highest))


def activation(scheme: Scheme, seen: Range, averaged: bool = False) -> Level:
    """Quantisation of a tensor that takes the reals of a range; zero always has an integer.

    An averaged tensor gets a scale of few bits: ONNX Runtime averages reals, and float32 adds up multiples of such a
    scale without rounding, so that its averages are those of the integers, ties included.
    """
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    lowest, highest = (0, 255) if scheme.unsigned else (-128, 127)
    zero = 128 if scheme.unsigned else 0
    if scheme.activations == "power-of-two":
        scale = _power_of_two(np.asarray(max(-low, high)))
    elif scheme.activations == "asymmetric":
        scale = np.asarray((high - low) / 255, np.float32)
    else:
        scale = np.asarray(max(-low, high) / 127, np.float32)
    scale = _usable(_short(scale) if averaged else scale, _OF_NOTHING)
    if scheme.activations == "asymmetric":
        zero = int(np.clip(np.rint(lowest - low / float(scale)), lowest, highest))
    return Level(np.float32(scale), zero, lowest, highest)


def weights(
    scheme: Scheme, values: Array, axis: int, bias: Array | None, source_scale: np.float32
) -> NDArray[np.float32]:
    """Scales of int8 weights: one for each entry of `axis`, or a single one.

    The product with `source_scale` is the step of the bias, which must fit int32: where it would not, weights that are
    next to nothing beside their bias get a larger scale.
    """
    others = tuple(k for k in range(values.ndim) if k != axis)
    largest = np.abs(values).max(axis=others, initial=0).astype(np.float64)
    needed = np.zeros_like(largest) if bias is None else np.abs(bias.ravel().astype(np.float64)) / float(source_scale)
    if not scheme.per_channel:
        largest, needed = largest.max(keepdims=True), needed.max(keepdims=True)
    else:
        # A channel of zeros takes the scale of the others: it would have none of its own.
        largest = np.where(largest > 0, largest, largest.max(initial=0))
    if scheme.activations == "power-of-two":
        scales = np.maximum(_power_of_two(largest), _power_of_two(needed / (_BIAS_LEVELS / 128)))
    else:
        scales = np.maximum(largest / 127, needed / _BIAS_LEVELS)
    return _usable(scales.astype(np.float32), np.float32(1))


def _short(scale: Array) -> Array:
    """Rounded up to 8 significant bits: sums of up to 256 of its multiples by a byte fit the 24 bits of float32."""
    mantissa, exponent = np.frexp(scale)
    return np.asarray(np.ldexp(np.ceil(mantissa * 256) / 256, exponent))


def _power_of_two(largest: Array) -> Array:
    """The smallest power of two whose 128 steps reach the value; what is in the last step saturates. 0 for 0."""
    steps = np.where(largest > 0, largest, 1) / 128
    return np.where(largest > 0, np.exp2(np.ceil(np.log2(steps))), 0)


def _usable(scales: NDArray[np.float32], otherwise: np.float32) -> NDArray[np.float32]:
    """Scales without those that are 0 or vanish in float32."""
    return np.where(scales >= np.finfo(np.float32).tiny, scales, otherwise).astype(np.float32)
