"""Factors with which the engine's sums and products of two tensors are ONNX Runtime's for every pair of bytes.

QLinearAdd and QLinearMul add the zero point in float32 before they round, the engine adds it afterwards
(`isa.numerics`: `add`, `multiply`). The results differ where that addition moves a value onto a tie or across it: one
pair of bytes in some 10^5. Factors that are off by a few units of their 24th bit move just those values, and are
found by trying. Ties that come from scales of simple ratios stay as they are, and so do pairs of bytes, in one sum of
some 15, whose mirror images want the factor moved the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.numerics import ONNX_MULT_MASK, AddParams, add, multiply
from dovetail.sw.graph import MulParams

REACH = 12
"""Units of a factor's last bit that are tried in both directions."""
MOST = 64
"""Differing pairs of bytes beyond which there are true ties among them: none of which a factor can mend."""
_BYTES = np.arange(-128, 128, dtype=np.int8)
_LEFT, _RIGHT = (part.ravel() for part in np.meshgrid(_BYTES, _BYTES, indexing="ij"))

Params = TypeVar("Params", AddParams, MulParams)
Bytes = NDArray[np.int8]
Reals = NDArray[np.float32]


def fit_sum(params: AddParams, factors: tuple[np.float32, np.float32]) -> AddParams:
    """`params` of a sum whose operands are scaled by `factors`, with the fitting multipliers."""
    steps = sorted(product(range(-REACH, REACH + 1), repeat=2), key=lambda step: (abs(step[0]) + abs(step[1]), step))
    candidates = (
        replace(params, mult_a=params.mult_a + a, mult_b=params.mult_b + b)
        for a, b in steps
        if _encodes(params.mult_a + a) and _encodes(params.mult_b + b)
    )
    left, right = (float(factor) for factor in factors)
    reals = left * (_LEFT.astype(np.float64) - params.za) + right * (_RIGHT.astype(np.float64) - params.zb)
    wanted = _quantised(_runtime_sum(params, factors), params)
    return _fitted(params, candidates, add, reals, wanted, max(left, right))


def sums_equal(params: AddParams, factors: tuple[np.float32, np.float32]) -> bool:
    """Whether a sum by the engine is ONNX Runtime's for every pair of bytes."""
    return np.array_equal(add(_LEFT, _RIGHT, params), _quantised(_runtime_sum(params, factors), params))


def fit_product(params: MulParams, factor: np.float32) -> MulParams:
    """`params` of a product that is scaled by `factor`, with the fitting multiplier."""
    steps = sorted(range(-REACH, REACH + 1), key=abs)
    candidates = (replace(params, mult=params.mult + step) for step in steps if _encodes(params.mult + step))
    reals = _products(params).astype(np.float64) * float(factor)
    return _fitted(params, candidates, _multiplied, reals, _runtime_product(params, factor), 255.0 * float(factor))


def products_equal(params: MulParams, factor: np.float32) -> bool:
    """Whether a product by the engine is ONNX Runtime's for every pair of bytes."""
    return np.array_equal(_multiplied(_LEFT, _RIGHT, params), _runtime_product(params, factor))


def _products(params: MulParams) -> Reals:
    return (_LEFT.astype(np.float32) - params.za) * (_RIGHT.astype(np.float32) - params.zb)


def _runtime_product(params: MulParams, factor: np.float32) -> Bytes:
    """QLinearMul of every pair of bytes."""
    return _quantised(_products(params) * factor + np.float32(params.zy + 128), params)


def _multiplied(a: Bytes, b: Bytes, params: MulParams) -> Bytes:
    """The engine's product."""
    rest = params.rounding, params.zy, params.lo, params.hi
    return multiply(a, b, params.za, params.zb, params.mult, params.shift, *rest)


def _fitted(
    params: Params,
    candidates: Iterable[Params],
    results: Callable[[Bytes, Bytes, Params], Bytes],
    reals: NDArray[np.float64],
    wanted: Bytes,
    largest: float,
) -> Params:
    """The candidate whose results differ from `wanted` least; `largest`: reals per step of an operand."""
    least = int((results(_LEFT, _RIGHT, params) != wanted).sum())
    if not 0 < least <= MOST:
        return params
    near = np.abs(reals - np.floor(reals) - 0.5) < 1e-3 * max(1.0, largest)
    left, right, wanted = _LEFT[near], _RIGHT[near], wanted[near]
    best = params
    for candidate in candidates:
        differing = int((results(left, right, candidate) != wanted).sum())
        if differing < least:
            best, least = candidate, differing
        if not least:
            break
    return best


def _runtime_sum(params: AddParams, factors: tuple[np.float32, np.float32]) -> Reals:
    """QLinearAdd before it rounds, on bytes with their zero points moved to uint8, with fused multiply-adds."""
    (left, right), (za, zb, zy) = factors, (np.float32(z + 128) for z in (params.za, params.zb, params.zy))
    constant = zy - _multiply_add(left, za, right * zb)
    a, b = (part.astype(np.float32) + np.float32(128) for part in (_LEFT, _RIGHT))
    return _multiply_add(left, a, _multiply_add(right, b, constant))


def _multiply_add(a: np.float32, b: Reals | np.float32, c: Reals | np.float32) -> Reals:
    """a * b + c, rounded once: float64 holds the product of a factor and a byte exactly."""
    return np.asarray(np.float64(a) * b.astype(np.float64) + c.astype(np.float64), np.float32)


def _quantised(values: Reals, params: AddParams | MulParams) -> Bytes:
    """Rounded, from uint8 to int8, clamped."""
    return np.asarray(np.clip(np.rint(values) - 128, params.lo, params.hi), np.int8)


def _encodes(mult: int) -> bool:
    return (ONNX_MULT_MASK + 1) // 2 <= mult <= ONNX_MULT_MASK
