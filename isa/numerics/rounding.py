"""Roundings of integers, and the types of what is rounded."""

from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = int | np.integer[Any] | npt.NDArray[np.integer[Any]]
Reals: TypeAlias = float | np.floating[Any] | npt.NDArray[np.floating[Any]]
Int8s: TypeAlias = npt.NDArray[np.int8]
Int64s: TypeAlias = npt.NDArray[np.int64]

INT8_MIN, INT8_MAX = -128, 127
INT16_MIN, INT16_MAX = -(1 << 15), (1 << 15) - 1
INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


class Rounding(IntEnum):
    """Which runtime's rounding an operation reproduces.

    ``TFLITE``: Q31 multiplier, rounded twice, ties away from zero in the second step.
    ``ONNX``: float32 multiplier, product rounded to 24 bits, then ties to even.
    """

    TFLITE = 0
    ONNX = 1


def int64(value: Integers) -> Int64s:
    return np.asarray(value, dtype=np.int64)


def round_half_even_shift(value: Integers, shift: Integers) -> Int64s:
    """``value / 2**shift`` rounded to an integer, ties to even.

    ``value`` is any int64, ``shift`` is 0..62; they broadcast against each other.
    """
    v, s = int64(value), int64(shift)
    quotient = v >> s
    remainder = v - (quotient << s)
    half = (np.int64(1) << s) >> 1
    up = (remainder > half) | ((remainder == half) & (s > 0) & ((quotient & 1) == 1))
    return np.asarray(quotient + up, dtype=np.int64)


def round_to_24(value: Integers) -> Int64s:
    """The nearest integer with at most 24 significant bits, ties to even: what float32 makes of an integer.

    ``|value|`` is below ``2**63 - 2**38``, so that the result fits int64.
    """
    v = int64(value)
    magnitude = np.abs(v)
    # The part above 24 bits is below 2**39: exact in float64, so its exponent is its bit length.
    excess = np.frexp((magnitude >> 24).astype(np.float64))[1].astype(np.int64)
    rounded = round_half_even_shift(magnitude, excess) << excess
    return np.asarray(np.where(v < 0, -rounded, rounded), dtype=np.int64)


def int8(value: int) -> int:
    """The low 8 bits as a signed number."""
    return (value & 0xFF ^ 0x80) - 0x80


def int6(value: int) -> int:
    """The low 6 bits as a signed number."""
    return (value & 0x3F ^ 0x20) - 0x20


def wrap32(value: Integers) -> Int64s:
    """The low 32 bits of ``value`` as a signed integer."""
    return int64(value).astype(np.int32).astype(np.int64)


def clamp_to_int8(value: Int64s, lo: int, hi: int) -> Int8s:
    # lo last, as in the hardware: an empty range (lo > hi) gives lo.
    return np.maximum(np.minimum(value, hi), lo).astype(np.int8)


def clamp_to_16(value: Integers | Reals) -> npt.NDArray[np.int32]:
    """int32 words of 16 bits."""
    return np.clip(value, INT16_MIN, INT16_MAX).astype(np.int32)
