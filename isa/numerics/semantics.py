"""What each operation of the vector unit computes: one function each, for the model, networks' reference and tests.

A function takes operand ``a``, operand ``b`` or None, and :class:`~dovetail.isa.numerics.vector.VectorParameters`.
Operands are int8 or int32 arrays of one shape; of ACT_LUT and SOFTMAX ``b`` is the table, of NORM its records; of POOL
``a`` is the largest tap, or for averages the sum of all taps. Results are int8 or int32. Every function is total, see
:mod:`dovetail.isa.numerics`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.isa.numerics.average import average_product
from dovetail.isa.numerics.leaky_relu import leaky_relu
from dovetail.isa.numerics.norm import NormRecords, norm, norm16, norm16_wide
from dovetail.isa.numerics.requantise import requantise_wide
from dovetail.isa.numerics.rounding import Int8s, Rounding, clamp_to_int8, int64
from dovetail.isa.numerics.shift import shift32
from dovetail.isa.numerics.softmax import MAX_LEVELS, softmax_onnx, softmax_tflite
from dovetail.isa.numerics.vector import VectorParameters

Array: TypeAlias = npt.NDArray[Any]


Semantics: TypeAlias = Callable[[Array, Any, VectorParameters], Array]


def undefined(a: Array, b: Any, p: VectorParameters) -> Array:
    """What is no operation of the vector unit."""
    raise NotImplementedError("only operations of the vector unit are defined here")


def pooled(a: Array, b: None, p: VectorParameters) -> Int8s:
    """POOL."""
    if not p.average:
        return np.maximum(np.minimum(a, np.int8(p.hi)), np.int8(p.lo))
    total = p.with_bias(a)
    if p.requantise:
        return p.scaled(total)
    return clamp_to_int8(average_product(total, p.count, p.magic, p.magic_shift, p.rounding) + p.zy, p.lo, p.hi)


def magnitude(a: Array, b: None, p: VectorParameters) -> Int8s:
    """E_ABS."""
    return p.scaled(np.abs(int64(a) - p.za))


def rescaled(a: Array, b: None, p: VectorParameters) -> Int8s:
    """ACT_RELU."""
    return p.scaled(int64(a) - p.za)


def widened(a: Array, b: None, p: VectorParameters) -> Array:
    """WIDEN."""
    return requantise_wide(int64(a) - p.za, p.mult_out, p.shift_out, p.rounding)


def leaky(a: Array, b: None, p: VectorParameters) -> Int8s:
    """ACT_LRELU."""
    below = p.mult_b, p.shift_b
    return leaky_relu(int64(a) - p.za, p.mult_out, p.shift_out, *below, p.rounding, p.zy, p.lo, p.hi)


def looked_up(a: Array, table: Array, p: VectorParameters) -> Array:
    """ACT_LUT."""
    return np.asarray(table[a.view(np.uint8)])


def copied(a: Array, b: None, p: VectorParameters) -> Array:
    """MOV."""
    return a


def sum32(a: Array, b: Array, p: VectorParameters) -> Array:
    """E32_ADD."""
    return p.with_bias(int64(a) + b).astype(np.int32)


def shifted32(a: Array, b: None, p: VectorParameters) -> Array:
    """E32_SHIFT."""
    return shift32(p.with_bias(a), p.shift_out, p.rounding).astype(np.int32)


LEVELS = MAX_LEVELS + 1
"""One more than the most levels that may stand for 1 in SOFTMAX."""
VALID = 1 << 16
"""Elements of a row that count are modulo this."""


def softmaxed(a: Array, table: Array, p: VectorParameters) -> Int8s:
    """SOFTMAX of the last axis: int8 [height, width, n], and the 1,024 bytes of a table.

    Of the pixel at ``y``, ``x`` the first ``count + y * count_y + x * count_x`` elements count, modulo 2^16.
    ``softmax_tflite`` or ``softmax_onnx`` with ``mult_out`` levels, modulo 8192; the zero point is ``zy``.
    """
    height, width, n = a.shape
    valid = p.count + np.arange(height)[:, None, None] * p.count_y + np.arange(width)[:, None] * p.count_x
    counts = np.arange(n) < valid % VALID
    if p.rounding == Rounding.ONNX:
        return softmax_onnx(a, table.view("<f4"), p.mult_out % LEVELS, p.zy, counts)
    return softmax_tflite(a, table.view("<i4"), p.zy, counts)


def normed(a: Array, records: Array, p: VectorParameters) -> Int8s:
    """NORM of the last axis: int8 [height, width, n], and int32 [2, n], biases and other words."""
    of_channels = NormRecords.unpack(records[0], records[1])
    return norm(a, p.za, p.epsilon, of_channels, p.zy, p.lo, p.hi, rms=p.rms)


def normed16(a: Array, records: Array, p: VectorParameters) -> Int8s:
    """NORM16, as :func:`normed`, but of int32 whose low 16 bits count."""
    return norm16(a, p.epsilon, NormRecords.unpack(records[0], records[1]), p.zy, p.lo, p.hi, rms=p.rms)


def normed16_wide(a: Array, records: Array, p: VectorParameters) -> Array:
    """NORM16_WIDE, as :func:`normed16`, but with results of 16 bits in int32."""
    return norm16_wide(a, p.epsilon, NormRecords.unpack(records[0], records[1]), rms=p.rms)


def requantised(a: Array, b: None, p: VectorParameters) -> Int8s:
    """REQUANT."""
    return p.scaled(p.with_bias(a))
