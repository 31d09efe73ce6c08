"""What the vector lane does, and with what."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from dovetail.isa.numerics.norm import EPSILON_BITS
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import (
    INT8_MAX,
    INT8_MIN,
    Int8s,
    Int64s,
    Integers,
    Rounding,
    int6,
    int8,
    int64,
    wrap32,
)


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

    NORM = 10
    """int8 operand a, its row and channels to int8, :func:`norm`."""


class Registers(Protocol):
    """Registers of the vector unit, as :class:`~dovetail.isa.instructions.checks.View` reads them."""

    def __getitem__(self, key: str | tuple[str, str]) -> int:
        """A register, or a field of one, unsigned."""


@dataclass(frozen=True, kw_only=True)
class VectorParameters:
    """Everything that an operation of the vector unit needs beside its operands; one per instruction.

    Attributes
    ----------
    operation
        What the vector lane does. Of two operands: ADD, SUBTRACT (a less b), MINIMUM, MAXIMUM or MULTIPLY.
    rounding
        :class:`Rounding`.
    za, zb, zy
        Zero points of the operands and the result, int8.
    mult_a, shift_a, mult_b, shift_b
        Encoded multipliers of the operands; not of a product's. LEAKY has the second one below the zero point.
    mult_out, shift_out
        Encoded multiplier of the result; of a sum in TFLITE only.
    lo, hi
        Clamping range of the result, int8.
    bias
        int32 that is added to int32 operands and to a window's sum.
    average, requantise
        POOL: an average instead of the maximum; by requantisation instead of division.
    count, magic, magic_shift
        Taps of an average, and their reciprocal (``average_magic``). SOFTMAX: ``count`` elements of the first pixel
        count.
    count_x, count_y
        SOFTMAX: how many more elements count in the next pixel and in the next row.
    epsilon, rms
        NORM: the term of eps (``norm_epsilon``); whether it is an RMS norm.
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
    bias: int = 0
    average: bool = False
    requantise: bool = False
    count: int = 0
    magic: int = 0
    magic_shift: int = 0
    count_x: int = 0
    count_y: int = 0
    epsilon: int = 0
    rms: bool = False

    @classmethod
    def read(cls, registers: Registers, operation: VectorOperation | None) -> "VectorParameters":
        """The parameters in the registers; ``operation`` is that of the instruction's row."""
        r = registers
        operation = VectorOperation.ADD if operation is None else operation
        if operation == VectorOperation.ADD and r["MODE", "subtract"]:
            operation = VectorOperation.SUBTRACT
        return cls(
            operation=operation,
            rounding=Rounding(r["MODE", "rounding"]),
            za=int8(r["QUANT", "zero_in"]),
            zb=int8(r["B_ZERO", "zero_b"]),
            zy=int8(r["QUANT", "zero_out"]),
            mult_a=r["A_MULT", "mult"],
            shift_a=int6(r["SHIFTS", "a"]),
            mult_b=r["B_MULT", "mult"],
            shift_b=int6(r["SHIFTS", "b"]),
            mult_out=r["OUT_MULT", "mult"],
            shift_out=int6(r["SHIFTS", "out"]),
            lo=int8(r["QUANT", "lo"]),
            hi=int8(r["QUANT", "hi"]),
            bias=int(wrap32(r["SUM_BIAS"])),
            average=bool(r["MODE", "average"]),
            requantise=bool(r["MODE", "requantise"]),
            count=r["POOL_COUNT", "count"],
            magic=r["POOL_MAGIC", "mult"],
            magic_shift=int6(r["POOL_SHIFT", "shift"]),
            count_x=r["B_X_STEP"],
            count_y=r["B_Y_STEP"],
            epsilon=r["SUM_BIAS"] | r["B_MULT", "mult"] % (1 << EPSILON_BITS - 32) << 32,
            rms=not r["MODE", "subtract"],
        )

    def scaled(self, total: Int64s) -> Int8s:
        """int32 to int8 by the result's multiplier."""
        return requantise(total, self.mult_out, self.shift_out, self.rounding, self.zy, self.lo, self.hi)

    def with_bias(self, value: Integers) -> Int64s:
        """int32 plus ``bias``, modulo 2^32."""
        return wrap32(int64(value) + self.bias)
