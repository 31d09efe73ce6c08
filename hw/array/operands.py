"""Operands of multipliers."""

from amaranth import Const, Value, signed

OPERAND = 16
"""Bits of a multiplier's operand: an int8, or a difference of two, sign-extended."""
WIDE_OPERAND = 32
"""The same for Verilator: products of 32-bit words modulo 2^32 need no more than the processor's instruction for them,
which works on vectors. Multipliers of an FPGA would be too small for it."""


def extended(values: Value, n: int, width: int, bits: int = 8) -> Value:
    """The n-th signed number of ``values``, ``bits`` wide, sign-extended to ``width`` bits.

    Written as a sum because Amaranth spells an extension bit by bit, which takes tools long for wide arrays.
    """
    return (values[bits * n :][:bits].as_signed() + Const(0, signed(width)))[:width]


def difference(values: Value, n: int, zero: Value, width: int) -> Value:
    """The n-th int8 of ``values`` less the int8 ``zero``, sign-extended to ``width`` bits."""
    return (values[8 * n :][:8].as_signed() - zero.as_signed() + Const(0, signed(width)))[:width]
