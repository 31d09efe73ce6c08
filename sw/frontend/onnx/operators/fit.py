"""Parameters with which the engine's sums and products of two tensors are ONNX Runtime's for every pair of bytes.

QLinearAdd and QLinearMul add the zero point in float32 before they round; the engine adds it afterwards
(`isa.numerics`: `add`, `multiply`). The results differ where that addition moves a value onto a tie or across it. That
happens for about one pair of bytes in 10^5, and for half of all ties if scales have simple ratios and the zero point is
odd. Parameters that restore equality are found by search, simplest first:

- Factors changed by a few units of their 24th bit. This moves near ties and nothing else.
- Other zero points, where the change of the operands' equals a whole number of steps of the result: an odd number
  reverses the direction of ties.
- The same sum in the fixed point of TFLite's additions, whose unit and factors can be chosen. Its roundings decide near
  ties.

Some sums remain for which the search finds nothing: about one in 300 with random scales, and those with ties of ratios
such as 1/6. These do not run on the accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import floor, log2
from random import Random

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.instructions.table import INSTRUCTIONS
from dovetail.isa.numerics.add import onnx_sum
from dovetail.isa.numerics.multiplier import ONNX_MULT_MASK, onnx_multiplier
from dovetail.isa.numerics.multiply import scaled_product
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.frontend.onnx.values import FULL, Clamp, Quant
from dovetail.sw.network.elementwise import LEFT, PAIR_OPERATORS, RIGHT

REACH = 12
"""How many units of a factor's last bit are tried in each direction."""
MOST = 64
"""Above this many differing pairs of bytes some are true ties, which no change of a factor can correct."""
_WHOLE = 1e-4
"""Tolerance, in steps of the result, for a change of the operands' zero points to count as a whole number."""
_ORIGINS = 16
"""How many zero points are tried."""
_TRIES = 5000
"""Further candidates for a sum, after those with other factors. About one in 100 needs them: a third of a second."""
_FINEST, _COARSEST = 20.0, 14.0
"""Fraction bits of TFLite's fixed point."""

Bytes = NDArray[np.int8]
Reals = NDArray[np.float32]
Factors = tuple[np.float32, np.float32]


# What ONNX Runtime computes --------------------------------------------------------------------


def runtime_sum(params: VectorParameters, factors: Factors, offset: int, swapped: bool = False) -> Bytes:
    """QLinearAdd of every pair of bytes; its multiply-adds are fused.

    ``offset``: by how much the file's integers are above int8, 128 for uint8. ``swapped``: the kernel takes the
    operands the other way round, as it does where the first is one value for a run of the second's.
    """
    terms = [
        (factor, np.float32(zero + offset), part.astype(np.float32) + np.float32(offset))
        for factor, zero, part in zip(factors, (params.za, params.zb), (LEFT, RIGHT), strict=True)
    ]
    (left, za, a), (right, zb, b) = reversed(terms) if swapped else terms
    constant = np.float32(params.zy + offset) - _multiply_add(left, za, right * zb)
    return _quantised(_multiply_add(left, a, _multiply_add(right, b, constant)), offset, params)


def runtime_product(params: VectorParameters, factor: np.float32, offset: int) -> Bytes:
    """QLinearMul of every pair of bytes."""
    return _quantised(_products(params) * factor + np.float32(params.zy + offset), offset, params)


def runtime_pair(params: VectorParameters, scales: tuple[np.float32, np.float32, np.float32]) -> Bytes:
    """DequantizeLinear, the operator in float32, QuantizeLinear, of every pair of bytes: Sub, Min and Max, which have
    no kernel of their own."""
    a, b = (
        (part.astype(np.float32) - np.float32(zero)) * scale
        for part, zero, scale in zip((LEFT, RIGHT), (params.za, params.zb), scales, strict=False)
    )
    real = PAIR_OPERATORS[params.operation].real(a, b) / scales[2]
    return np.asarray(np.clip(np.rint(real) + np.float32(params.zy), params.lo, params.hi), np.int8)


def _multiply_add(a: np.float32, b: Reals | np.float32, c: Reals | np.float32) -> Reals:
    """a * b + c, rounded once: float64 holds the product of a factor and a byte exactly."""
    return np.asarray(np.float64(a) * b.astype(np.float64) + c.astype(np.float64), np.float32)


def _quantised(values: Reals, offset: int, params: VectorParameters) -> Bytes:
    """Rounded, brought to int8, clamped."""
    return np.asarray(np.clip(np.rint(values) - offset, params.lo, params.hi), np.int8)


def _products(params: VectorParameters) -> Reals:
    return (LEFT.astype(np.float32) - params.za) * (RIGHT.astype(np.float32) - params.zb)


# What the engine computes ----------------------------------------------------------------------


def results(params: VectorParameters, a: Bytes = LEFT, b: Bytes = RIGHT) -> Bytes:
    """The engine's sums or products; of every pair of bytes if none are given."""
    return np.asarray(INSTRUCTIONS[PAIR_OPERATORS[params.operation].instruction].compute(a, b, params))


def _is_product(params: VectorParameters) -> bool:
    return params.operation == VectorOperation.MULTIPLY


def plain_fit(params: VectorParameters, wanted: Bytes) -> VectorParameters | None:
    """With other factors alone: the parameters whose results are ``wanted`` for every pair of bytes, if there are."""
    search = _Search(params, wanted)
    return search.first(_stepped(params)) if search.differing <= MOST else None


def nearest(
    compute: Callable[[VectorParameters], Bytes], params: VectorParameters, wanted: Bytes
) -> tuple[VectorParameters, int]:
    """Parameters of any operation, with multipliers changed by a few units of their last bit, one after the other, so
    that ``compute`` gives ``wanted`` for as many pairs of bytes as can be; and for how many it does not."""
    best = int((compute(params) != wanted).sum())
    for name in ("mult_a", "mult_b", "mult_out"):
        for step in sorted(range(-REACH, REACH + 1), key=abs):
            mult = getattr(params, name) + step
            if best == 0:
                return params, 0
            if not _encodes(mult):
                continue
            tried = replace(params, **{name: mult})
            differing = int((compute(tried) != wanted).sum())
            if differing < best:
                params, best = tried, differing
    return params, best


def fit(params: VectorParameters, wanted: Bytes) -> VectorParameters | None:
    """The simplest parameters whose results are ``wanted`` for every pair of bytes; None if none are found."""
    search = _Search(params, wanted)
    if _is_product(params):
        return search.first(_stepped(params))
    origins = list(_origins(params))
    if search.differing > MOST:
        return search.first(iter(origins))
    return search.first(_stepped(params)) or search.first(iter(origins)) or search.first(_varied(params, origins))


class _Search:
    """For parameters whose results are ``wanted``. Pairs of bytes next to a tie are looked at first."""

    def __init__(self, params: VectorParameters, wanted: Bytes) -> None:
        self.params, self.wanted = params, wanted
        self.differing = int((results(params) != wanted).sum())
        if self.differing:
            reals, largest = _reals(params)
            near = np.abs(reals - np.floor(reals) - 0.5) < 1e-3 * max(1.0, largest)
            self.left, self.right, self.target = LEFT[near], RIGHT[near], wanted[near]

    def first(self, candidates: Iterator[VectorParameters]) -> VectorParameters | None:
        if not self.differing:
            return self.params
        for candidate in candidates:
            fits = np.array_equal(results(candidate, self.left, self.right), self.target)
            if fits and np.array_equal(results(candidate), self.wanted):
                return candidate
        return None


def _reals(params: VectorParameters) -> tuple[NDArray[np.float64], float]:
    """Exact results before rounding, and reals per step of an operand."""
    if _is_product(params):
        factor = float(np.ldexp(params.mult_out, params.shift_out - 24))
        return _products(params).astype(np.float64) * factor, 255.0 * factor
    left, right = _factors(params)
    a, b = left * (LEFT.astype(np.float64) - params.za), right * (RIGHT.astype(np.float64) - params.zb)
    return np.asarray(PAIR_OPERATORS[params.operation].real(a, b)), max(left, right)


def _factors(params: VectorParameters) -> tuple[float, float]:
    left, right = (params.mult_a, params.shift_a), (params.mult_b, params.shift_b)
    first, second = (float(np.ldexp(mult, shift - 24)) for mult, shift in (left, right))
    return first, second


# Candidates ------------------------------------------------------------------------------------


def _stepped(params: VectorParameters) -> Iterator[VectorParameters]:
    """With factors that are off by some units of their last bit, the least change first."""
    if _is_product(params):
        for step in sorted(range(-REACH, REACH + 1), key=abs):
            if _encodes(params.mult_out + step):
                yield replace(params, mult_out=params.mult_out + step)
        return
    steps = sorted(product(range(-REACH, REACH + 1), repeat=2), key=lambda step: (abs(step[0]) + abs(step[1]), step))
    for a, b in steps:
        if _encodes(params.mult_a + a) and _encodes(params.mult_b + b):
            yield replace(params, mult_a=params.mult_a + a, mult_b=params.mult_b + b)


def _origins(params: VectorParameters) -> Iterator[VectorParameters]:
    """With other zero points of (nearly) the same meaning, the nearest first: the given ones lead."""
    yield params
    if params.operation not in (VectorOperation.ADD, VectorOperation.SUBTRACT):
        return
    left, right = _factors(params)
    right = -right if params.operation == VectorOperation.SUBTRACT else right
    moves_a, moves_b = (np.arange(-128 - zero, 128 - zero) for zero in (params.za, params.zb))
    change = left * moves_a[:, None] + right * moves_b
    whole = np.rint(change)
    off = np.abs(change - whole)
    held = (params.zy + whole >= -128) & (params.zy + whole <= 127) & (off < _WHOLE)
    held &= (moves_a != 0)[:, None] | (moves_b != 0)
    places = np.argwhere(held)
    far = np.abs(moves_a)[places[:, 0]] + np.abs(moves_b)[places[:, 1]]
    order = np.lexsort((far, whole[held] % 2 == 0, np.round(off[held], 12)))
    for row, column in places[order][: _ORIGINS - 1]:
        a, b, y = int(moves_a[row]), int(moves_b[column]), int(whole[row, column])
        yield replace(params, za=params.za + a, zb=params.zb + b, zy=params.zy + y)


def _varied(params: VectorParameters, origins: list[VectorParameters]) -> Iterator[VectorParameters]:
    """Sums around any of the zero points: with other factors, and in TFLite's fixed point."""
    random = Random(0)
    left, right = _factors(params)
    # Operands are int8 with 20 fraction bits, and their factors below one.
    finest = min(_FINEST, 20 - log2(max(left, right)) - 2**-20)
    coarsest = min(_COARSEST, finest - 4)

    def spread(reach: float) -> float:
        return (2 * random.random() - 1) * reach

    for turn in range(_TRIES):
        origin = origins[floor(random.random() * len(origins))]
        if turn % 2:
            a, b = (round(spread(6.0 * (1 + turn // 2 % 4))) for _ in range(2))
            if _encodes(origin.mult_a + a) and _encodes(origin.mult_b + b):
                yield replace(origin, mult_a=origin.mult_a + a, mult_b=origin.mult_b + b)
            continue
        unit = 2 ** (coarsest + (finest - coarsest) * random.random())
        drift = 0.02 / unit * (0.1, 0.3, 1, 3)[turn // 2 % 4]
        mult_a, mult_b = (round(factor * (1 + spread(drift)) * unit * 2**11) for factor in (left, right))
        bits = floor(log2(unit))
        mult_out = min(round(2.0 ** (31 + bits) / unit), 2**31 - 1)
        if max(mult_a, mult_b) < 2**31:
            yield replace(
                origin,
                rounding=Rounding.TFLITE,
                mult_a=mult_a,
                shift_a=0,
                mult_b=mult_b,
                shift_b=0,
                mult_out=mult_out,
                shift_out=-bits,
            )


def _encodes(mult: int) -> bool:
    return (ONNX_MULT_MASK + 1) // 2 <= mult <= ONNX_MULT_MASK


# From scales -----------------------------------------------------------------------------------


def is_exact(kind: VectorOperation, a: Quant, b: Quant, target: Quant) -> bool:
    """Whether the accelerator's sum or product of two tensors is ONNX Runtime's for every pair of bytes, with at most
    the last bits of its factors changed."""
    params = _params(kind, a, b, target, FULL)
    return params is not None and plain_fit(params, _wanted(kind, params, a, b, target, 128, False)) is not None


@lru_cache(maxsize=256)
def fitted(
    kind: VectorOperation, a: Quant, b: Quant, target: Quant, clamp: Clamp, offset: int, swapped: bool
) -> VectorParameters | None:
    """What gives ONNX Runtime's results for every pair of bytes."""
    params = _params(kind, a, b, target, clamp)
    return None if params is None else fit(params, _wanted(kind, params, a, b, target, offset, swapped))


def _params(kind: VectorOperation, a: Quant, b: Quant, target: Quant, clamp: Clamp) -> VectorParameters | None:
    """As the scales say; None if they are too far apart for the accelerator."""
    zeros = a.zero_point, b.zero_point, target.zero_point
    try:
        if kind == VectorOperation.MULTIPLY:
            real = onnx_multiplier(a.scale, b.scale, target.scale)
            return scaled_product(float(real), *zeros, Rounding.ONNX, lo=clamp[0], hi=clamp[1])
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
