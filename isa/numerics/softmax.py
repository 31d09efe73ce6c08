"""Softmax of int8 rows in integers, as the two runtimes compute it.

A row's largest element has the exponential 1. That of any other depends on its distance from the largest alone, so a
table of 256 entries has them all. A row's are summed up, and each is divided by the sum.

TFLite (Micro, and LiteRT's reference kernel): entries have 31 fraction bits; the distance is scaled to 5 integer and 26
fraction bits, and its exponential is a polynomial on (-1/4, 0], times exp(-2^k) for every further bit. The sum has 19
fraction bits; its reciprocal takes three steps of Newton's method.

ONNX Runtime (QLinearSoftmax): entries are float32, and so is the sum, rounded at every element in the row's order. The
quotient is not rounded to float32 before it is rounded to an integer.

Both are total: whatever a table's words are, there is one result. A word's highest bit is ignored. A sum of floats has
no largest exponent. A sum of 0 counts as 1, and as the least float.
"""

from math import exp, floor, frexp, ldexp, log
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.isa.numerics.rounding import (
    INT8_MAX,
    INT8_MIN,
    INT32_MAX,
    INT32_MIN,
    Int8s,
    Int64s,
    Integers,
    clamp_to_int8,
    int64,
)

Words: TypeAlias = npt.NDArray[np.uint32]
Mask: TypeAlias = npt.NDArray[np.bool_] | bool

TFLITE_COLUMNS = 4095
"""Elements of a row whose sum cannot leave 32 bits."""
ONNX_LEVELS = 1 << 24
"""The most levels that may stand for 1 in `softmax_onnx`."""
MAX_LEVELS = (1 << 13) - 1
"""The most that may in the instruction SOFTMAX."""

_FRACTION = 26
_HALF = 1 << 30
_SUM_BITS = 19
_FLOAT_BITS = 23
"""Of a float32's mantissa, the first one left out."""
_LARGE, _LIFT = 128, 64
"""Where a row has an exponent of `_LARGE`, what is up to `_LIFT` is too small to count."""
_FAR = 38
"""A quotient of 24 bits by 24 bits, times `ONNX_LEVELS`, over two to this is below a half."""


def tflite_exponentials(beta: float, scale: float) -> npt.NDArray[np.int32]:
    """int32 [256]: exp(-d * beta * scale) with 31 fraction bits, for d = 0 to 255; 0 where it is too small to count.

    As SOFTMAX's reference kernel computes it: the factor is a 31-bit multiplier, every product is rounded. ``beta *
    scale`` is above 2**-26.
    """
    real = min(beta * scale * (1 << _FRACTION), INT32_MAX)
    mantissa, shift = frexp(real)
    mult = floor(mantissa * (1 << 31) + 0.5)
    if mult == 1 << 31:
        mult, shift = mult // 2, shift + 1
    distances = np.arange(256)
    counts = distances <= floor(ldexp(31 * (1 << _FRACTION), -shift))
    scaled = _product(-np.where(counts, distances, 0) << shift, mult)
    return np.where(counts, _exponential(scaled), 0).astype(np.int32)


def onnx_exponentials(scale: float, count: int) -> npt.NDArray[np.float32]:
    """float32 [256]: exp(-d * scale) for d = 0 to 255, times a factor with which ``count`` of them have a sum in
    float32's range.

    As QLinearSoftmax computes it: the logarithm in float32, the rest in double, rounded once.
    """
    largest = np.float32(log(np.finfo(np.float32).max / np.float32(count)))
    bias = max(0.0, float(largest) - 5) / scale
    return np.array([exp((bias - d) * scale) for d in range(256)]).astype(np.float32)


def softmax_tflite(
    rows: Int8s, exponentials: npt.NDArray[np.int32], zero_point: int = INT8_MIN, counts: Mask = True
) -> Int8s:
    """Softmax along the last axis; the result has scale 1/256.

    Parameters
    ----------
    rows
        int8 [..., n], n up to `TFLITE_COLUMNS`.
    exponentials
        `tflite_exponentials` of the rows' scale, or other words.
    zero_point
        The result's, int8; TFLite's is -128.
    counts
        The elements that count, like rows; others are no part of the sum, and their result is the zero point.
    """
    values = int64(_words(rows, exponentials.view(np.uint32), counts))
    total = _rounded_shift(values, 31 - _SUM_BITS).sum(axis=-1, keepdims=True)
    total = np.maximum(total, 1)
    zeros = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
    shares = _product(values, _reciprocal((total << zeros) - (1 << 31)))
    return clamp_to_int8(_rounded_shift(shares, 31 - _SUM_BITS - zeros + 31 - 8) + zero_point, INT8_MIN, INT8_MAX)


def softmax_onnx(
    rows: Int8s, exponentials: npt.NDArray[np.float32], levels: int, zero_point: int, counts: Mask = True
) -> Int8s:
    """Softmax along the last axis: ``round_half_even(E * levels / sum) + zero_point``, saturating.

    Parameters
    ----------
    rows
        int8 [..., n].
    exponentials
        `onnx_exponentials` of the rows' scale and of n, or other words.
    levels
        What stands for 1, 0 to `ONNX_LEVELS`: the result's ``floor(1 / scale)``.
    zero_point
        The result's, int8.
    counts
        The elements that count, like rows; others are no part of the sum, and their result is the zero point.
    """
    values = _words(rows, exponentials.view(np.uint32), counts)
    (mantissa, power), (whole, whole_power) = _parts(values), _sum(values)
    divisor = np.maximum(whole << np.minimum(whole_power - power, _FAR), 1)
    quotient, rest = np.divmod(mantissa * levels, divisor)
    quotient += (2 * rest > divisor) | ((2 * rest == divisor) & (quotient % 2 == 1))
    return clamp_to_int8(quotient + zero_point, INT8_MIN, INT8_MAX)


def _words(rows: Int8s, table: Words, counts: Mask) -> Words:
    """Each element's word of the table by its distance from the row's largest; 0 of those that do not count."""
    values, counts = int64(rows), np.asarray(counts)
    largest = np.where(counts, values, INT8_MIN).max(axis=-1, keepdims=True)
    words = table[np.where(counts, largest - values, 0)] & np.uint32(INT32_MAX)
    return np.where(counts, words, np.uint32(0))


def _parts(words: Words) -> tuple[Int64s, Int64s]:
    """Mantissa, an integer of 24 bits, and exponent, from 1 on, of positive float32."""
    bits = words.astype(np.int64)
    exponent = bits >> _FLOAT_BITS
    one = 1 << _FLOAT_BITS
    return bits % one + one * (exponent > 0), np.maximum(exponent, 1)


def _sum(words: Words) -> tuple[Int64s, Int64s]:
    """Mantissa and exponent of a row's sum, rounded to float32 at every element; the last axis has length 1.

    Large rows are brought down, so that no sum leaves float32's range.
    """
    lift = np.where(words.max(axis=-1, keepdims=True) >> _FLOAT_BITS >= _LARGE, _LIFT, 0).astype(np.uint32)
    low = np.where((words >> _FLOAT_BITS > lift) | (lift == 0), words - (lift << np.uint32(_FLOAT_BITS)), np.uint32(0))
    total = np.add.accumulate(low.view(np.float32), axis=-1, dtype=np.float32)[..., -1:]
    mantissa, exponent = _parts(total.view(np.uint32))
    return mantissa, exponent + lift


def _reciprocal(x: Int64s) -> Int64s:
    """1 / (1 + x) for x of 0 to 1, both with 31 fraction bits: three steps of Newton's method with 29."""
    half = (x + (1 << 31)) >> 1
    value = 1515870810 + _product(half, -1010580540)  # 48 / 17, -32 / 17
    for _ in range(3):
        value = value + _saturated(_product(value, (1 << 29) - _product(half, value)) << 2)
    return _saturated(value << 1)


def _saturated(value: Int64s) -> Int64s:
    return np.clip(value, INT32_MIN, INT32_MAX)


def _rounded_shift(value: Int64s, shift: Integers) -> Int64s:
    """``value / 2**shift`` rounded, ties up; ``value`` is not negative."""
    return np.asarray((value + ((np.int64(1) << int64(shift)) >> 1)) >> int64(shift))


def _product(a: Int64s, b: Integers) -> Int64s:
    """a * b with 31 fraction bits: the doubled high word, rounded."""
    return np.asarray((a * int64(b) + _HALF) >> 31)


def _exponential(value: Int64s) -> Int64s:
    """exp of a number up to 0 with 26 fraction bits, with 31."""
    quarter = 1 << (_FRACTION - 2)
    near = (value & (quarter - 1)) - quarter
    rest, result = near - value, _near_zero(near << 5)
    for power in range(-2, 5):
        factor = _product(result, _constant(exp(-(2.0**power))))
        result = np.where(rest & (1 << (_FRACTION + power)), factor, result)
    return np.where(value == 0, INT32_MAX, result)


def _near_zero(value: Int64s) -> Int64s:
    """exp of -1/4 to 0, with 31 fraction bits: four terms around -1/8."""
    x = value + (1 << 28)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    tail = _rounded_shift(_product(_rounded_shift(fourth, 2) + cube, _constant(1 / 3)) + square, 1)
    middle = np.int64(_constant(exp(-1 / 8)))
    return middle + _product(x + tail, middle)


def _constant(value: float) -> int:
    return floor(value * (1 << 31) + 0.5)
