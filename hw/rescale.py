"""The arithmetic of pooling and element-wise operations: int8 operands or an int32 sum to int8."""

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.scaler import (
    SCALE_SHARED,
    ScaleKind,
    Scaler,
    lane,
    left_shift_of,
    multiplier_of,
    right_shift_of,
    rounding_to_24,
    shift_left,
    wide_registers,
)
from dovetail.isa.latency import VECTOR_LANE
from dovetail.isa.numerics import ADD_SHIFT_MAX, ADD_SHIFT_MIN, Rounding, VectorOperation

VECTOR_PARAMS = data.StructLayout(
    {
        "operation": VectorOperation,
        "rounding": Rounding,
        "za": signed(8),
        "zb": signed(8),
        "zy": signed(8),
        "lo": signed(8),
        "hi": signed(8),
        "mult_a": 31,
        "shift_a": signed(6),
        "mult_b": 31,
        "shift_b": signed(6),
        "mult_out": 31,
        "shift_out": signed(6),
        "count": 15,
    }
)
"""Parameters of a :class:`VectorLane`, named as in ``isa.numerics.AddParams``.

REQUANTISE uses ``mult_out``, ``shift_out`` and ``zy``; AVERAGE ``mult_out``, ``shift_out`` (both from
``isa.numerics.average_magic``), ``count`` and ``zy``; PASS none of the multipliers and no zero point.
All clamp to ``lo`` .. ``hi``.
"""


class VectorLane(wiring.Component):
    """The operations of ``isa.numerics.VectorOperation`` on ``lanes`` values per cycle, a pipeline without stalls.

    Parameters
    ----------
    lanes
        Values per cycle.

    Members
    -------
    a, b
        int8 per lane, lane 0 lowest: operands of ADD; ``a`` also of PASS.
    sum
        int32 per lane: operand of AVERAGE and REQUANTISE.
    params
        :data:`VECTOR_PARAMS`. Must not change while values are in the pipeline: it is not registered.
    result
        int8 per lane.

    Latency
    -------
    ``LATENCY`` cycles (``isa.latency.VECTOR_LANE``), whatever the operation. All of them take the path of operand a;
    only ADD has a second one.

    Raises
    ------
    ValueError
        When ``lanes`` is not positive.
    """

    LATENCY = VECTOR_LANE

    def __init__(self, *, lanes: int) -> None:
        if lanes < 1:
            raise ValueError(f"lanes must be positive, not {lanes!r}")
        self.lanes = lanes
        super().__init__(
            {
                "a": In(8 * lanes),
                "b": In(8 * lanes),
                "sum": In(32 * lanes),
                "params": In(VECTOR_PARAMS),
                "result": Out(8 * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.scaler = scaler = Scaler(lanes=self.lanes)
        assert self.LATENCY == 8 + scaler.LATENCY
        params = self.params
        lanes = self.lanes

        # Decoded once. Registered, because multiplexers in front of a multiplier cost its speed: stage 2 is the first
        # to use them, one cycle after the parameters came with stage 1's operands.
        onnx = Signal()
        adds = Signal()
        adds_onnx = Signal()
        adds_tflite = Signal()
        averages = Signal()
        rounds_24 = Signal()
        onnx_0 = params.rounding == Rounding.ONNX
        adds_0 = params.operation == VectorOperation.ADD
        requantises_0 = params.operation == VectorOperation.REQUANTISE
        averages_0 = params.operation == VectorOperation.AVERAGE
        passes_0 = params.operation == VectorOperation.PASS
        m.d.sync += [
            onnx.eq(onnx_0),
            adds.eq(adds_0),
            adds_onnx.eq(adds_0 & onnx_0),
            adds_tflite.eq(adds_0 & ~onnx_0),
            averages.eq(averages_0),
            rounds_24.eq(onnx_0 & (adds_0 | requantises_0)),
        ]

        # 1: ADD, sign and magnitude of the operands less their zero points; else the operand of the final scaling.
        # PASS doubles its operand, which the product with 2**30 and the binary point at bit 31 make up for.
        a_1 = Signal(16 * lanes, reset_less=True)
        b_1 = Signal(16 * lanes, reset_less=True)
        value_1 = Signal(32 * lanes, reset_less=True)
        left = Mux(requantises_0, left_shift_of(params.shift_out.as_unsigned()), 0)
        for i in range(lanes):
            total = shift_left(lane(self.sum, i, 32), left, onnx_0)
            operand = lane(self.a, i, 8)
            doubled = Cat(Const(0, 1), operand, operand[7].replicate(23))
            m.d.sync += [
                lane(a_1, i, 16).eq(_difference(operand, params.za)),
                lane(b_1, i, 16).eq(_difference(lane(self.b, i, 8), params.zb)),
                lane(value_1, i, 32).eq(Mux(passes_0, doubled, total)),
            ]

        # 2: ADD, products with the low 16 and the high bits of the operands' multipliers; else the magnitude,
        # twice for AVERAGE.
        a_2 = wide_registers("a_2", lanes)
        b_2 = wide_registers("b_2", lanes)
        negative_a_2 = Signal(lanes, reset_less=True)
        negative_b_2 = Signal(lanes, reset_less=True)
        mult_a = Signal(31)
        mult_b = Signal(31)
        m.d.sync += [
            mult_a.eq(Mux(adds_0, Mux(onnx_0, params.mult_a[:24], params.mult_a), 0)),
            mult_b.eq(Mux(adds_0, Mux(onnx_0, params.mult_b[:24], params.mult_b), 0)),
        ]
        for i in range(lanes):
            value = lane(value_1, i, 32)
            a, b = lane(a_1, i, 16), lane(b_1, i, 16)
            magnitude = ((value ^ value[31].replicate(32)) + value[31])[:32]
            magnitude = Mux(averages, Cat(Const(0, 1), magnitude[:31]), magnitude)
            m.d.sync += [
                a_2[i].eq(Cat(Mux(adds, a[:8] * mult_a[:16], magnitude), a[:8] * mult_a[16:])),
                b_2[i].eq(Cat(b[:8] * mult_b[:16], Const(0, 8), b[:8] * mult_b[16:])),
                negative_a_2[i].eq(Mux(adds, a[8], value[31])),
                negative_b_2[i].eq(b[8] & adds),
            ]

        # 3: the products.
        a_3 = wide_registers("a_3", lanes)
        b_3 = wide_registers("b_3", lanes)
        negative_a_3 = Signal(lanes, reset_less=True)
        negative_b_3 = Signal(lanes, reset_less=True)
        m.d.sync += [negative_a_3.eq(negative_a_2), negative_b_3.eq(negative_b_2)]
        for i in range(lanes):
            for source, target in ((a_2, a_3), (b_2, b_3)):
                word = source[i]
                upper = (word[16:32] + word[32:55])[:24]
                m.d.sync += target[i].eq(Cat(word[:16], upper))

        # 4: the first rounding. ADD in TFLITE: to Q31 (operands times 2**20, hence 11 bits); in ONNX and for its
        # requantisation: to 24 bits. AVERAGE: plus the count.
        a_4 = Signal(32 * lanes, reset_less=True)
        b_4 = Signal(32 * lanes, reset_less=True)
        negative_a_4 = Signal(lanes, reset_less=True)
        negative_b_4 = Signal(lanes, reset_less=True)
        m.d.sync += [negative_a_4.eq(negative_a_3), negative_b_4.eq(negative_b_3)]
        for i in range(lanes):
            word = a_3[i]
            addend, mask = rounding_to_24(word[:32], rounds_24)
            q31 = _half_q31(negative_a_3[i], adds_tflite)
            total = (word[:39] + (addend | q31 | Mux(averages, params.count, 0)))[:40]
            m.d.sync += lane(a_4, i, 32).eq(Mux(adds_tflite, total[11:], Cat(total[:8] & ~mask, total[8:32])))

            word = b_3[i]
            addend, mask = rounding_to_24(word[:32], rounds_24)
            q31 = _half_q31(negative_b_3[i], adds_tflite)
            total = (word[:39] + (addend | q31))[:40]
            m.d.sync += lane(b_4, i, 32).eq(Mux(adds_tflite, total[11:], Cat(total[:8] & ~mask, total[8:32])))

        # 5: ADD, operands to a common binary point: bit 32 in TFLITE, 40 in ONNX; else an integer at bit 32.
        a_5 = wide_registers("a_5", lanes)
        b_5 = wide_registers("b_5", lanes)
        negative_a_5 = Signal(lanes, reset_less=True)
        negative_b_5 = Signal(lanes, reset_less=True)
        right_a = Signal(6)
        right_b = Signal(6)
        m.d.sync += [
            right_a.eq(Mux(adds_0, _alignment(params.shift_a, onnx_0), 0)),
            right_b.eq(_alignment(params.shift_b, onnx_0)),
        ]
        m.d.sync += [negative_a_5.eq(negative_a_4), negative_b_5.eq(negative_b_4)]
        for i in range(lanes):
            m.d.sync += [
                a_5[i].eq(Cat(Const(0, 32), lane(a_4, i, 32)) >> right_a),
                b_5[i].eq(Cat(Const(0, 32), lane(b_4, i, 32)) >> right_b),
            ]

        # 6: TFLITE, the second rounding, ties away from zero; an integer stays as it is.
        a_6 = wide_registers("a_6", lanes)
        b_6 = wide_registers("b_6", lanes)
        negative_a_6 = Signal(lanes, reset_less=True)
        negative_b_6 = Signal(lanes, reset_less=True)
        m.d.sync += [negative_a_6.eq(negative_a_5), negative_b_6.eq(negative_b_5)]
        for i in range(lanes):
            for source, target in ((a_5, a_6), (b_5, b_6)):
                word = source[i]
                integer = (word[32:] + word[31])[:32]
                m.d.sync += target[i].eq(Mux(adds_onnx, word[:55], integer))

        # 7: signed sum.
        sum_7 = wide_registers("sum_7", lanes)
        for i in range(lanes):
            sign_a, sign_b = negative_a_6[i], negative_b_6[i]
            a = Cat(a_6[i][:55] ^ sign_a.replicate(55), sign_a).as_signed()
            b = Cat(b_6[i][:55] ^ sign_b.replicate(55), sign_b).as_signed()
            carry = Cat(sign_a ^ sign_b, sign_a & sign_b)
            m.d.sync += sum_7[i].eq(((a + b) + carry)[:57])

        # 8: its sign and magnitude.
        magnitude_8 = wide_registers("magnitude_8", lanes)
        negative_8 = Signal(lanes, reset_less=True)
        for i in range(lanes):
            word = sum_7[i][:57]
            m.d.sync += [
                magnitude_8[i].eq(((word ^ word[56].replicate(57)) + word[56])[:57]),
                negative_8[i].eq(word[56]),
            ]

        mult = Signal(32)
        right = Signal(8)
        shared = Signal(SCALE_SHARED, reset_less=True)
        m.d.sync += [
            mult.eq(multiplier_of(params.mult_out, onnx_0 & requantises_0)),
            right.eq(right_shift_of(params.shift_out.as_unsigned())),
            shared.kind.eq(Mux(onnx_0, ScaleKind.ONNX, ScaleKind.TFLITE)),
            shared.zero_point.eq(params.zy),
            shared.lo.eq(params.lo),
            shared.hi.eq(params.hi),
        ]
        with m.If(adds_0 & onnx_0):
            # The sum has 40 fraction bits, the scaler's product 31.
            m.d.sync += [mult.eq(1), right.eq(9)]
        with m.Elif(averages_0):
            m.d.sync += shared.kind.eq(Mux(onnx_0, ScaleKind.FLOOR_EVEN, ScaleKind.FLOOR))
        with m.Elif(passes_0):
            m.d.sync += [mult.eq(1 << 30), right.eq(0), shared.kind.eq(ScaleKind.FLOOR), shared.zero_point.eq(0)]
        m.d.comb += [
            scaler.negative.eq(negative_8),
            scaler.magnitude.eq(Cat(*magnitude_8)),
            scaler.mult.eq(mult.replicate(lanes)),
            scaler.right.eq(right.replicate(lanes)),
            scaler.shared.eq(shared),
            self.result.eq(scaler.result),
        ]
        return m


def _difference(value: Value, zero_point: Value) -> Value:
    """Magnitude (8 bits) and sign (bit 8) of an int8 less its zero point."""
    difference = value.as_signed() - zero_point
    sign = difference[8]
    return Cat(((difference[:8] ^ sign.replicate(8)) + sign)[:8], sign)


def _half_q31(negative: Value, enable: Value) -> Value:
    """One half at 11 fraction bits, less an infinitesimal for negative values."""
    return Cat((negative & enable).replicate(10), ~negative & enable)


def _alignment(shift: Value, onnx: Value) -> Value:
    """Right shift, 0..32, of an ADD operand that starts at bit 32."""
    fixed = Mux(shift > ADD_SHIFT_MAX, ADD_SHIFT_MAX, Mux(shift < ADD_SHIFT_MIN, ADD_SHIFT_MIN, shift))
    return Mux(onnx, (Const(16, 6) - fixed)[:6], right_shift_of(shift.as_unsigned()))
