"""Scaling step by step, and what operands are tried."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.numerics.rounding import Rounding

INT32_CORNERS = [
    0,
    1,
    -1,
    2**23,
    2**24 - 1,
    2**24 + 1,
    -(2**24) - 1,
    2**24 + 3,
    2**31 - 1,
    -(2**31) + 1,
    -(2**31),
]


def gemmlowp_scale(acc: int, mult: int, shift: int) -> int:
    """MultiplyByQuantizedMultiplier step by step in Python integers, with C's truncating division."""
    a = (acc << max(shift, 0)) & 0xFFFFFFFF
    a -= (a >> 31) << 32
    product = a * mult
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    high = abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)
    exponent = max(-shift, 0)
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (high < 0)
    return (high >> exponent) + ((high & mask) > threshold)


def float32_scale(acc: int, mult: int, shift: int) -> int:
    """The ONNX rounding in actual float32 arithmetic."""
    factor = np.float32(np.ldexp(np.float64(mult), shift - 24))
    return int(np.rint(np.float32(acc) * factor))


def random_encoded(rng: np.random.Generator, rounding: Rounding, size: int) -> tuple[Any, Any, Any]:
    """Accumulators of all magnitudes and multipliers that bring most of them near int8."""
    bits = rng.integers(0, 32, size)
    acc = rng.integers(-(2**31), 2**31, size) >> bits
    width = 31 if rounding == Rounding.TFLITE else 24
    mult = rng.integers(1 << (width - 1), 1 << width, size)
    shift = np.clip(bits - 24 + rng.integers(-4, 4, size), -32, 31)
    return acc, mult, shift


def all_pairs() -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int8]]:
    codes = np.arange(-128, 128).astype(np.int8)
    return np.repeat(codes, 256), np.tile(codes, 256)
