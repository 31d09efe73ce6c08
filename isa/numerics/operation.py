"""What the vector lane does."""

from enum import IntEnum


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
