"""Softmax on bytes: the exponentials of which the C kernels have a table.

ONNX Runtime's are floats. TFLite's are in fixed point:

An element's distance from its row's maximum is scaled to 5 integer and 26 fraction bits. Its exponential is a
polynomial on (-1/4, 0], times exp(-2^k) for every further bit of the distance.
"""

from __future__ import annotations

from math import exp, floor, frexp, ldexp, log

import numpy as np
from numpy.typing import NDArray

MOST_COLUMNS = 4095
"""Elements of a row whose sum cannot leave 32 bits."""

_FRACTION = 26
_ONE = (1 << 31) - 1
_HALF = 1 << 30


def exponentials(beta: float, scale: float) -> NDArray[np.int32]:
    """exp(-d * beta * scale) for d = 0 to 255, with 31 fraction bits; 0 where it is too small to count.

    As the reference kernel of SOFTMAX computes it: the factor is a 31-bit multiplier, every product is rounded.
    """
    real = min(beta * scale * (1 << _FRACTION), _ONE)
    mantissa, shift = frexp(real)
    mult = floor(mantissa * (1 << 31) + 0.5)
    if mult == 1 << 31:
        mult, shift = mult // 2, shift + 1
    farthest = floor(ldexp(31 * (1 << _FRACTION), -shift))
    return np.array(
        [_exponential(_product(-d << shift, mult)) if d <= farthest else 0 for d in range(256)], dtype=np.int32
    )


def float_exponentials(scale: float, count: int) -> NDArray[np.float32]:
    """exp(-d * scale) for d = 0 to 255, times a factor with which ``count`` of them have a sum in float32's range.

    As ONNX Runtime's QLinearSoftmax computes it: the logarithm in float32, the rest in double, rounded once.
    """
    largest = np.float32(log(np.finfo(np.float32).max / np.float32(count)))
    bias = max(0.0, float(largest) - 5) / scale
    return np.array([exp((bias - d) * scale) for d in range(256)]).astype(np.float32)


def _exponential(value: int) -> int:
    """exp of a negative number with 26 fraction bits, with 31."""
    if value == 0:
        return _ONE
    quarter = 1 << (_FRACTION - 2)
    near = (value & (quarter - 1)) - quarter
    rest, result = near - value, _near_zero(near << 5)
    for power in range(-2, 5):
        if rest & (1 << (_FRACTION + power)):
            result = _product(result, _constant(exp(-(2.0**power))))
    return result


def _near_zero(value: int) -> int:
    """exp of -1/4 to 0, with 31 fraction bits: four terms around -1/8."""
    x = value + (1 << 28)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    tail = _halved(_product(_halved(_halved(fourth)) + cube, _constant(1 / 3)) + square)
    middle = _constant(exp(-1 / 8))
    return middle + _product(middle, x + tail)


def _constant(value: float) -> int:
    return floor(value * (1 << 31) + 0.5)


def _product(a: int, b: int) -> int:
    """a * b with 31 fraction bits: the doubled high word, rounded."""
    product = a * b
    return (product + _HALF) >> 31 if product >= 0 else -((-product - 1 + _HALF) >> 31)


def _halved(value: int) -> int:
    return (value + 1) >> 1 if value >= 0 else -((-value + 1) >> 1)
