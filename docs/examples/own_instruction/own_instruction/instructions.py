"""The operations: opcodes, what they compute, how long their stages take."""

import numpy as np
import numpy.typing as npt

from dovetail.isa.instructions.table import Instruction, Op, Stage, Unit
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import Int8s, int64
from dovetail.isa.numerics.vector import VectorParameters

PRELU = Op.new(0x80, "PRELU")
BIT_AND = Op.new(0x81, "BIT_AND")
BIT_OR = Op.new(0x82, "BIT_OR")
BIT_XOR = Op.new(0x83, "BIT_XOR")

SLOPE = Stage("slope", 10, "PRELU: differences, product, left shift; then seven cycles of scaling.")
BITS = Stage("bits", 1, "BIT_AND, BIT_OR, BIT_XOR: a gate per bit.")

MOST_LEFT = 7
"""The largest left shift: room for multipliers up to 128, and no product of a slope leaves 24 bits."""


def prelu(a: Int8s, b: Int8s, p: VectorParameters) -> Int8s:
    """``a`` from its zero point up, ``a`` times the slope ``b`` below; each by a multiplier of its own.

    ``y = scale(a - za)`` by A_MULT where ``a >= za``, else ``y = scale((a - za) * (b - zb))`` by OUT_MULT. To ``y``
    comes ``zy``, then it is clamped to ``lo .. hi``.
    """
    above = int64(a) - p.za
    below = above * (int64(b) - p.zb)

    def scaled(value: npt.NDArray[np.int64], mult: int, shift: int) -> Int8s:
        return requantise(value, mult, min(shift, MOST_LEFT), p.rounding, p.zy, p.lo, p.hi)

    return np.where(above >= 0, scaled(above, p.mult_a, p.shift_a), scaled(below, p.mult_out, p.shift_out))


def bit_and(a: Int8s, b: Int8s, p: VectorParameters) -> Int8s:
    """``a & b``."""
    return a & b


def bit_or(a: Int8s, b: Int8s, p: VectorParameters) -> Int8s:
    """``a | b``."""
    return a | b


def bit_xor(a: Int8s, b: Int8s, p: VectorParameters) -> Int8s:
    """``a ^ b``."""
    return a ^ b


INSTRUCTIONS = [
    Instruction(
        PRELU,
        Unit.VECTOR,
        "Leaky ReLU with a slope of its own for each element: a tensor, or a channel's repeated.",
        compute=prelu,
        stage=SLOPE,
        shifts=(-11, -7),
        two_operands=True,
    ),
    *(
        Instruction(op, Unit.VECTOR, f"{name} of two int8 tensors.", compute=compute, stage=BITS, two_operands=True)
        for op, name, compute in (
            (BIT_AND, "AND", bit_and),
            (BIT_OR, "OR", bit_or),
            (BIT_XOR, "Exclusive OR", bit_xor),
        )
    ),
]
