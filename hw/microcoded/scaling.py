"""Requantisation as microprogram: the scaling of a sum, by both roundings."""

from dovetail.hw.microcoded.assembler import Alu, Assembler, If
from dovetail.hw.microcoded.steps import ADC, ADD, AND, OR, SAR, SHL, SHR, SUB, XOR
from dovetail.isa.numerics.multiplier import ONNX_MULT_MASK


def scale_tflite(u: Assembler, to: str) -> None:
    """``value`` scaled, as `isa.numerics.requantise.scale_tflite` does.

    With the product p, r = floor((p + c) / 2^(31 + right)) where c = 2^30 + 2^31 g and g = 2^(right - 1) less 1 for a
    negative value; g = 0 for right = 0.
    """
    u(SHL, "shift", "shift", 26)
    u(SAR, "shift", "shift", 26)
    u(SUB, "right", 0, "shift")
    left, shifted = u.fresh("left"), u.fresh("shifted")
    u(ADD, None, "shift", when=If.NEGATIVE, to=left)
    u(SHL, "value", "value", "shift")
    u(ADD, "right", to=shifted)
    u.label(left)
    u.nop(2)
    u.label(shifted)
    u(AND, "mult", "mult", 0x7FFF_FFFF)
    u(Alu.MULHI, "high", "value", "mult")
    u(Alu.MULLO, "low", "value", "mult")
    u.choose(ADD, "value", 0, If.NEGATIVE, (ADD, "sign", 1), (ADD, "sign"))
    u.choose(ADD, "sign", 0, If.ZERO, (ADD, "high", "high"), (SUB, "high", "high", "mult"))
    u(SUB, "n", "right", 1)
    u(SHL, "half", 1, "n")
    u(SUB, "half", "half", "sign")
    u.choose(ADD, "right", 0, If.ZERO, (ADD, "half"), (ADD, "half", "half"))
    u(ADD, "low", "low", 1 << 30)
    u(ADC, "high", "high")
    u(SHL, "sign", "half", 31)
    u(SHR, "half", "half", 1)
    u(ADD, "low", "low", "sign")
    u(ADC, "high", "high", "half")
    # right = 0: bits 62:31, which clamp as the upper half does where they are not all.
    whole = u.fresh("whole")
    u(ADD, None, "right", when=If.ZERO, to=whole)
    u(SAR, "value", "high", "n")
    u.nop(6, to=to)
    u.label(whole)
    u(SHR, "low", "low", 31)
    u(SHL, "value", "high", 1)
    u(XOR, "n", "value", "high")
    u(OR, "value", "value", "low")
    u.choose(ADD, "n", 0, If.NEGATIVE, (ADD, "value", "high"), (ADD, "value", "value"))
    u(ADD, to=to)


def scale_onnx(u: Assembler) -> None:
    """``value`` scaled, as `isa.numerics.requantise.scale_onnx` does.

    Of the magnitude the 24 upper bits are kept, then of the product: k * 2^-s. With s <= 0 the result clamps, and so
    does k.
    """
    u(SHL, "shift", "shift", 26)
    u(SAR, "shift", "shift", 26)
    u(SUB, "right", 0, "shift")
    u.choose(ADD, "shift", 0, If.NEGATIVE, (ADD, "n"), (ADD, "n", "shift"))
    u.choose(ADD, "shift", 0, If.NEGATIVE, (ADD, "right", "right"), (ADD, "right"))
    u(SAR, "sign", "value", 31)
    u(XOR, "half", "sign", 0x7FFF_FFFF)
    u(SHL, "low", "value", "n")
    u(SAR, "n", "low", "n")
    u.choose(XOR, "n", "value", If.NOT_ZERO, (ADD, "value", "half"), (ADD, "value", "low"))
    u(XOR, "value", "value", "sign")
    u(SUB, "value", "value", "sign")

    for bits in (16, 8, 4, 2, 1):
        low, end = u.fresh("low"), u.fresh("end")
        u(SHR, None, "value", 32 - bits, when=If.ZERO, to=low)
        u.nop(2, to=end)
        u.label(low)
        u(SHL, "value", "value", bits)
        u(ADD, "right", "right", bits)
        u.label(end)
    u(AND, "n", "value", 0xFF)
    u(SHR, "value", "value", 8)
    u(AND, "half", "value", 1)
    u(ADD, "n", "n", "half")
    u(ADD, "n", "n", 0x7F)
    u(SHR, "n", "n", 8)
    u(ADD, "value", "value", "n")

    u(AND, "mult", "mult", ONNX_MULT_MASK)
    u(Alu.MULHI, "high", "value", "mult")
    u(Alu.MULLO, "low", "value", "mult")
    u(SHL, "high", "high", 16)
    u(SHR, "n", "low", 16)
    u(OR, "high", "high", "n")
    u(SHL, "low", "low", 16)
    for bits in (32, 16, 8, 4, 2, 1):
        small, end = u.fresh("small"), u.fresh("end")
        if bits == 32:
            u(ADD, None, "high", when=If.ZERO, to=small)
        else:
            u(SHR, None, "high", 32 - bits, when=If.ZERO, to=small)
        u.nop(5, to=end)
        u.label(small)
        if bits == 32:
            u(ADD, "high", "low")
            u(ADD, "low")
            u.nop(2)
        else:
            u(SHR, "n", "low", 32 - bits)
            u(SHL, "high", "high", bits)
            u(OR, "high", "high", "n")
            u(SHL, "low", "low", bits)
        u(ADD, "right", "right", bits)
        u.label(end)
    u(AND, "n", "high", 0xFF)
    u(SHL, "n", "n", 1)
    u.choose(ADD, "low", 0, If.ZERO, (ADD, "n", "n"), (ADD, "n", "n", 1))
    u(SHR, "value", "high", 8)
    u(AND, "half", "value", 1)
    u(ADD, "n", "n", "half")
    u(ADD, "n", "n", 0xFF)
    u(SHR, "n", "n", 9)
    u(ADD, "value", "value", "n")

    u(SUB, "right", "right", 8)
    u.choose(SUB, 31, "right", If.LESS, (ADD, "right", 31), (ADD, "right", "right"))
    u(SHR, "low", "value", "right")
    u(AND, "low", "low", 1)
    u(SUB, "n", "right", 1)
    u(SHL, "n", 1, "n")
    u(ADD, "n", "n", "low")
    u(SUB, "n", "n", 1)
    u(ADD, "n", "n", "value")
    u(SHR, "n", "n", "right")
    u.choose(SUB, "right", 1, If.LESS, (ADD, "value", "value"), (ADD, "value", "n"))
    u(XOR, "value", "value", "sign")
    u(SUB, "value", "value", "sign")
