"""What the integers of a 16-bit residual stream reach: where nothing saturates, its sums are exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.isa.numerics.rounding import INT16_MAX, INT16_MIN
from dovetail.sw.network.layout import Array


@dataclass(frozen=True)
class Interval:
    """Integers from the least to the largest that a tensor may hold."""

    low: int
    high: int

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def join(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    @property
    def fits(self) -> bool:
        """Whether 16 bits hold it."""
        return self.low >= INT16_MIN and self.high <= INT16_MAX


@dataclass(frozen=True)
class Join:
    """A node of a stream: its result is the sum of its operands, or else holds elements of them."""

    result: str
    operands: Sequence[str]
    adds: bool


def of_reals(low: float, high: float, step: np.float32) -> Interval:
    """Of float32 reals that are rounded to multiples of a step, as QuantizeLinear does before it saturates."""
    ends = np.rint(np.array([low, high], np.float32) / np.float32(step))
    return Interval(int(ends[0]), int(ends[1]))


def of_norm(gain: Array, offset: Array, step: np.float32) -> Interval:
    """Of the result of a norm over rows of as many elements as there are gains, whatever the row.

    A normalised row of n elements has a mean square of 1 at most, so no element is above the root of n.
    """
    largest = np.max(np.abs(gain.astype(np.float64)) * gain.size**0.5 + np.abs(offset.astype(np.float64)))
    reach = int(np.ceil(largest / float(step))) + 1
    return Interval(-reach, reach)


def intervals(joins: Iterable[Join], known: Mapping[str, Interval]) -> dict[str, Interval]:
    """What every tensor of a stream may hold, in steps of the stream.

    Parameters
    ----------
    joins: the sums, concatenations, moves and cuts of the stream, in order.
    known: of what enters the stream: widened branches, constants (`of_reals`), results of norms (`of_norm`).
    """
    found = dict(known)
    for node in joins:
        total = found[node.operands[0]]
        for name in node.operands[1:]:
            total = total + found[name] if node.adds else total.join(found[name])
        found[node.result] = total
    return found
