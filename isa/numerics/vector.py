"""What the vector lane does, and with what."""

from dataclasses import dataclass
from enum import IntEnum

from dovetail.isa.numerics.rounding import INT8_MAX, INT8_MIN, Rounding


class VectorOperation(IntEnum):
    """What the vector lane (pooling, element-wise) does with its operands."""

    REQUANTISE = 0
    """int32 sum to int8, :func:`requantise`."""

    AVERAGE = 1
    """int32 sum to int8, :func:`average_product`, then clamp."""

    ADD = 2
    """Two int8 operands to int8, :func:`add`; so do the next three."""

    PASS = 3
    """int8 operand a, clamped."""

    SUBTRACT = 4
    MINIMUM = 5
    MAXIMUM = 6

    MULTIPLY = 7
    """Two int8 operands to int8, :func:`multiply`."""

    ABSOLUTE = 8
    """int32 sum, not -2^31, to int8, :func:`requantise` of its magnitude."""

    LEAKY = 9
    """int32 sum to int8, :func:`leaky_relu`."""


@dataclass(frozen=True, kw_only=True)
class VectorParameters:
    """Everything that an element-wise operation on two int8 tensors needs; one per instruction.

    Attributes
    ----------
    operation
        ADD, SUBTRACT (a less b), MINIMUM, MAXIMUM or MULTIPLY.
    rounding
        :class:`Rounding`.
    za, zb, zy
        Zero points of the operands and the result, int8.
    mult_a, shift_a, mult_b, shift_b
        Encoded multipliers of the operands; not of a product's.
    mult_out, shift_out
        Encoded multiplier of the product, or of the sum, there in TFLITE only.
    lo, hi
        Clamping range of the result, int8.
    """

    operation: VectorOperation = VectorOperation.ADD
    rounding: Rounding
    za: int
    zb: int
    zy: int
    mult_a: int = 0
    shift_a: int = 0
    mult_b: int = 0
    shift_b: int = 0
    mult_out: int = 0
    shift_out: int = 0
    lo: int = INT8_MIN
    hi: int = INT8_MAX
