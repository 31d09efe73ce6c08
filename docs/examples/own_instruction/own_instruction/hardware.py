"""The hardware: one pipeline for each stage, beside the vector unit's own."""

from amaranth import Module, Mux, Signal, signed

from dovetail.hw.common.scaler import SCALE_SHARED, ScaleKind, Scaler, left_shift_of, multiplier_of, right_shift_of
from dovetail.hw.vector.stage import VectorStage
from dovetail.isa.numerics.rounding import Rounding
from own_instruction.instructions import BIT_AND, BIT_OR, BITS, MOST_LEFT, SLOPE


class Slope(VectorStage):
    """PRELU. What is constant during an operation is in registers: multipliers, shifts, zero points."""

    LATENCY = 3 + Scaler.LATENCY

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs, lanes = self.regs, self.config.vector_lanes
        m.submodules.scaler = scaler = Scaler(lanes=lanes)

        onnx = regs.MODE.rounding == Rounding.ONNX
        shared = Signal(SCALE_SHARED)
        factors = []
        for name, mult, shift in (("above", regs.A_MULT, regs.SHIFTS.a), ("below", regs.OUT_MULT, regs.SHIFTS.out)):
            left, right, factor = Signal(3, name=f"left_{name}"), Signal(8, name=f"right_{name}"), Signal(32, name=name)
            wanted = left_shift_of(shift)
            m.d.sync += [
                left.eq(Mux(wanted > MOST_LEFT, MOST_LEFT, wanted)),
                right.eq(right_shift_of(shift)),
                factor.eq(multiplier_of(mult.mult, onnx)),
            ]
            factors.append((left, right, factor))
        m.d.sync += [
            shared.kind.eq(Mux(onnx, ScaleKind.ONNX, ScaleKind.TFLITE)),
            shared.zero_point.eq(regs.QUANT.zero_out),
            shared.lo.eq(regs.QUANT.lo),
            shared.hi.eq(regs.QUANT.hi),
        ]
        m.d.comb += [scaler.shared.eq(shared), self.result.eq(scaler.result)]

        for i in range(lanes):
            # 1: both operands less their zero points. 2: the product, or the first operand.
            a, b = Signal(signed(9), name=f"a_{i}"), Signal(signed(9), name=f"b_{i}")
            value, below = Signal(signed(18), name=f"value_{i}"), Signal(name=f"below_{i}")
            m.d.sync += [
                a.eq(self.a.word_select(i, 8).as_signed() - regs.QUANT.zero_in.as_signed()),
                b.eq(self.b.word_select(i, 8).as_signed() - regs.B_ZERO.zero_b.as_signed()),
                value.eq(Mux(a < 0, a * b, a)),
                below.eq(a < 0),
            ]
            # 3: sign and magnitude, shifted to the left, and the multiplier of this side.
            negative, magnitude = Signal(name=f"negative_{i}"), Signal(32, name=f"magnitude_{i}")
            mult, right = Signal(32, name=f"mult_{i}"), Signal(8, name=f"right_{i}")
            above_side, below_side = factors
            left_, right_, mult_ = (Mux(below, low, high) for high, low in zip(above_side, below_side, strict=True))
            m.d.sync += [
                negative.eq(value < 0),
                magnitude.eq(abs(value)[:17] << left_),
                mult.eq(mult_),
                right.eq(right_),
            ]
            m.d.comb += [
                scaler.negative[i].eq(negative),
                scaler.magnitude.word_select(i, 64).eq(magnitude),
                scaler.mult.word_select(i, 32).eq(mult),
                scaler.right.word_select(i, 8).eq(right),
            ]
        return m


class Bits(VectorStage):
    """BIT_AND, BIT_OR and BIT_XOR."""

    LATENCY = 1

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b = self.a, self.b
        either = Mux(self.operation == BIT_OR, a | b, a ^ b)
        m.d.sync += self.result.eq(Mux(self.operation == BIT_AND, a & b, either))
        return m


STAGES = {SLOPE.name: Slope, BITS.name: Bits}
