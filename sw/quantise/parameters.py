"""Scales and zero points that a scheme makes of ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from numpy.typing import NDArray

from dovetail.isa.numerics.vector import VectorOperation
from dovetail.sw.frontend.onnx.operators.fit import is_exact
from dovetail.sw.frontend.onnx.values import Quant
from dovetail.sw.network.layout import Array
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.plan import Plan
from dovetail.sw.quantise.scheme import Scheme

_BIAS_LEVELS = 1 << 30
"""A bias takes at most half of an int32 accumulator."""


_OF_NOTHING = np.float32(2**-8)
"""Scale of an activation that is always zero: close to usual scales, so that the accelerator can add it."""


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

    @property
    def reach(self) -> float:
        """Difference of the largest and the smallest real."""
        return float(self.scale) * (self.highest - self.lowest)

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest real, as DequantizeLinear gives them."""
        low, high = (float(self.scale * np.float32(end - self.zero_point)) for end in (self.lowest, self.highest))
        return low, high

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

    The product with `source_scale` is the step of the bias, which must fit int32. Where it would not, the weights are
    tiny beside their bias, and get a larger scale.
    """
    others = tuple(k for k in range(values.ndim) if k != axis)
    largest = np.abs(values).max(axis=others, initial=0).astype(np.float64)
    needed = np.zeros_like(largest) if bias is None else np.abs(bias.ravel().astype(np.float64)) / float(source_scale)
    if not scheme.per_channel:
        largest, needed = largest.max(keepdims=True), needed.max(keepdims=True)
    else:
        # A channel of zeros has no scale of its own: it takes the largest.
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


def _is_short(scale: np.float32) -> bool:
    """Whether a scale has 8 significant bits."""
    return float(np.frexp(scale)[0]) * 256 % 1 == 0


def _power_of_two(largest: Array) -> Array:
    """The smallest power of two whose 128 steps reach the value; what is in the last step saturates. 0 for 0."""
    steps = np.where(largest > 0, largest, 1) / 128
    return np.where(largest > 0, np.exp2(np.ceil(np.log2(steps))), 0)


def _usable(scales: NDArray[np.float32], otherwise: np.float32) -> NDArray[np.float32]:
    """Scales in which a default replaces those that are 0 or vanish in float32."""
    return np.where(scales >= np.finfo(np.float32).tiny, scales, otherwise).astype(np.float32)


# Sums and products ----------------------------------------------------------------------------

_KINDS = {"Add": VectorOperation.ADD, "Mul": VectorOperation.MULTIPLY}
_TRIES = 24
_ROUNDS = 4
"""Changing a scale may break a sum that was exact, so all sums are checked again."""

_APART = 65 / 64
"""Least factor between a sum's steps and those of a much larger operand."""
_SMALL = 16
"""A summand is small if its range has fewer steps of the sum."""


def set_apart(graph: FloatGraph, chosen: Plan, levels: Mapping[str, Level]) -> dict[str, Level]:
    """Levels in which a sum of a large and a small tensor keeps the small one, on average.

    If the sum's steps are those of the large operand, a summand below half a step vanishes, everywhere and with the
    same sign. A residual stream would lose what its branches add. With other steps the large operand lies at another
    place between two steps each time, and the sum is rounded up as often as the summand's part of a step says.
    """
    found = dict(levels)
    for node in graph.nodes:
        target = _target(graph, chosen, node)
        if node.op_type != "Add" or target is None or any(name not in found for name in (*node.input, target)):
            continue
        small, large = sorted((found[name] for name in node.input), key=lambda level: level.scale)
        group, step = chosen.tensors[target], found[target].scale
        alone = all(chosen.tensors.get(name) != group for name in node.input)
        if alone and 1 / _APART < step / large.scale < _APART and small.reach < _SMALL * step:
            wider = np.asarray(large.scale * _APART)
            scale = np.float32(_short(wider) if _is_short(step) else wider)
            for name in (name for name, first in chosen.tensors.items() if first == group):
                found[name] = replace(found[name], scale=scale)
    return found


def make_exact(graph: FloatGraph, chosen: Plan, levels: Mapping[str, Level]) -> dict[str, Level]:
    """Levels with which sums and products of two tensors are ONNX Runtime's for every pair of bytes, if any are near.

    ONNX Runtime rounds a sum in float32 with its zero point, the accelerator without it. The two may differ at a tie or
    next to one. Whether they do depends on the last bits of the scales (`sw.frontend.onnx.operators.fit`), so a scale
    that is larger by a few millionths removes the difference.
    """
    found = dict(levels)
    nodes = [(node, target) for node in graph.nodes if (target := _target(graph, chosen, node)) is not None]
    for _ in range(_ROUNDS):
        moved = [_settle(node, target, chosen, found) for node, target in nodes]
        if not any(moved):
            break
    return found


def _target(graph: FloatGraph, chosen: Plan, node: onnx.NodeProto) -> str | None:
    """The quantised tensor behind an 8-bit sum or product of two tensors; None for another node."""
    exact = node.output[0] in {name for stream in chosen.streams for name in stream.tensors}
    if node.op_type not in _KINDS or node.name in chosen.floating or len(node.input) != 2 or exact:
        return None
    name = str(node.output[0])
    if name in chosen.tensors:
        return name
    clamps = [chosen.clamps[user.name] for user in graph.consumers.get(name, ()) if user.name in chosen.clamps]
    return clamps[0] if clamps else None


def _settle(node: onnx.NodeProto, target: str, chosen: Plan, levels: dict[str, Level]) -> bool:
    """Move the scale of `target`, and of what shares it, until the node is exact; whether it has moved."""
    if any(name not in levels for name in (*node.input, target)):
        return False
    members = [name for name, first in chosen.tensors.items() if first == chosen.tensors[target]]
    before = {name: levels[name] for name in members}
    for scale in upwards(levels[target].scale):
        levels.update({name: replace(level, scale=scale) for name, level in before.items()})
        a, b, out = (_quant(levels[name]) for name in (*node.input, target))
        if is_exact(_KINDS[node.op_type], a, b, out):
            return bool(scale != before[target].scale)
    levels.update(before)
    return False


def upwards(scale: np.float32) -> Iterator[np.float32]:
    """A scale and those above it. The next one to a scale of 8 bits has 8 bits too (`activation`)."""
    short = _is_short(scale)
    for _ in range(_TRIES):
        yield scale
        mantissa, exponent = np.frexp(scale)
        scale = np.float32(np.ldexp(mantissa + 1 / 256, exponent)) if short else np.nextafter(scale, np.inf)


def _quant(level: Level) -> Quant:
    signed = level.lowest < 0
    return Quant(level.scale, level.zero_point - (0 if signed else 128), "int8" if signed else "uint8")
