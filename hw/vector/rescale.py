"""The arithmetic of pooling and element-wise operations: int8 operands or an int32 sum to int8."""

from collections.abc import Collection

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.scaler import (
    SCALE_SHARED,
    ScaleKind,
    Scaler,
    left_shift_of,
    magnitude_of,
    multiplier_of,
    right_shift_of,
    rounding_to_24,
    shift_loses,
    wide_registers,
)
from dovetail.isa.instructions.table import SCALING
from dovetail.isa.numerics.add import ADD_SHIFT_MAX, ADD_SHIFT_MIN
from dovetail.isa.numerics.norm import FACTOR_BITS
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorOperation

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
"""Parameters of a :class:`VectorLane`, named as in ``isa.numerics.vector.VectorParameters``.

REQUANTISE, ABSOLUTE and MULTIPLY use ``mult_out``, ``shift_out`` and ``zy``; LEAKY also ``mult_b`` and ``shift_b``,
below zero; AVERAGE ``mult_out``, ``shift_out`` (both from ``average_magic``), ``count`` and ``zy``; PASS
none of the multipliers and no zero point. All clamp to ``lo`` .. ``hi``.
"""


def norm_row(bits: int) -> data.StructLayout:
    """What a norm knows of a row of elements of 8 or 16 ``bits``, named as in ``isa.numerics.norm.NormRows``; ``mean``
    with the zero point in it."""
    right = 5 if bits == 8 else 6
    return data.StructLayout({"mean": signed(bits), "factor": FACTOR_BITS, "offset": FACTOR_BITS, "right": right})


ADDITIONS = frozenset({VectorOperation.ADD, VectorOperation.SUBTRACT, VectorOperation.MINIMUM, VectorOperation.MAXIMUM})
"""Operations that bring two operands to a common scale."""

OF_TWO = ADDITIONS | {VectorOperation.MULTIPLY, VectorOperation.NORM}
"""Operations on two operands; NORM has two in the products of the first pass."""

OF_SUM = frozenset({VectorOperation.REQUANTISE, VectorOperation.ABSOLUTE, VectorOperation.LEAKY})
"""Operations that requantise an int32."""


class VectorLane(wiring.Component):
    """The operations of :class:`VectorOperation` on ``lanes`` values per cycle, a pipeline without stalls.

    Parameters
    ----------
    lanes
        Values per cycle.
    operations
        What is built; ``params.operation`` must be one of them.
    bits
        Of a lane's operands, 8 or 16. With 16 the operands of all but NORM are int8 none the less.

    Members
    -------
    a, b
        ``bits`` per lane, signed, lane 0 lowest: operands of ADD, SUBTRACT, MINIMUM, MAXIMUM and MULTIPLY; ``a`` also
        of PASS.
    sum
        int32 per lane: operand of AVERAGE, REQUANTISE, LEAKY and ABSOLUTE, which must not be -2^31.
    params
        :data:`VECTOR_PARAMS`. Must be there ``PARAMS`` cycles before the first operands and not change while values are
        in the pipeline.
    to_wide
        With 16 bits: results have 16 bits, without zero point and clamp; as constant as ``params``.
    result
        ``bits`` per lane, signed.
    products
        With NORM: the product of both operands less their zero points, twice ``bits`` per lane, ``PRODUCTS`` cycles
        after them where ``product`` came with them; it takes no result.
    product, row
        With NORM, otherwise: :func:`norm_row` of the row that ``a`` was of ``ROW`` cycles before.
    bias, words
        With NORM: the two words of the channels' records (``isa.numerics.norm.NormRecords``), 32 bits per lane;
        ``BIAS`` and ``WORDS`` cycles after ``a``.

    Latency
    -------
    ``LATENCY`` cycles (of ``isa.instructions.table.SCALING``), whatever the operation. All of them take the path of
    operand a; only sums and the like have a second one.

    Raises
    ------
    ValueError
        When ``lanes`` is not positive, or there is no operation.
    """

    LATENCY = SCALING.latency
    PARAMS = 1
    PRODUCTS, ROW, BIAS, WORDS = 3, 1, 7, 10

    def __init__(
        self, *, lanes: int, operations: Collection[VectorOperation] = tuple(VectorOperation), bits: int = 8
    ) -> None:
        if lanes < 1:
            raise ValueError(f"lanes must be positive, not {lanes!r}")
        if not operations:
            raise ValueError("operations must name at least one operation")
        self.lanes = lanes
        self.operations = frozenset(operations)
        self.bits = bits
        members = {
            "a": In(bits * lanes),
            "b": In(bits * lanes),
            "sum": In(32 * lanes),
            "params": In(VECTOR_PARAMS),
            "result": Out(bits * lanes),
        }
        if bits > 8:
            members["to_wide"] = In(1)
        if VectorOperation.NORM in self.operations:
            members |= {
                "product": In(1),
                "row": In(norm_row(bits)),
                "bias": In(32 * lanes),
                "words": In(32 * lanes),
                "products": Out(2 * bits * lanes),
            }
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes, bits = self.lanes, self.bits
        m.submodules.scaler = scaler = Scaler(lanes=lanes, wide=bits > 8)
        assert self.LATENCY == 11 + scaler.LATENCY
        params = self.params
        if bits > 8:
            m.d.comb += scaler.to_wide.eq(self.to_wide)
        two_operands = bool(self.operations & OF_TWO)
        leaky, normal = (op in self.operations for op in (VectorOperation.LEAKY, VectorOperation.NORM))

        def does(*operations: VectorOperation) -> Value:
            built = [op for op in operations if op in self.operations]
            return Cat(params.operation == op for op in built).any() if built else Const(0, 1)

        # Decoded once, in registers: what is constant takes no time.
        onnx = Signal()
        adds = Signal()
        adds_onnx = Signal()
        adds_tflite = Signal()
        multiplies = Signal()
        averages = Signal()
        absolute = Signal()
        subtracts = Signal()
        chooses = Signal()
        chooses_greater = Signal()
        rounds_24 = Signal()
        leaks = Signal()
        passes = Signal()
        onnx_0 = params.rounding == Rounding.ONNX
        adds_0 = does(*ADDITIONS)
        of_sum_0 = does(*OF_SUM)
        leaks_0 = does(VectorOperation.LEAKY)
        averages_0 = does(VectorOperation.AVERAGE)
        multiplies_0 = does(VectorOperation.MULTIPLY)
        passes_0 = does(VectorOperation.PASS)
        m.d.sync += [
            onnx.eq(onnx_0),
            adds.eq(adds_0),
            adds_onnx.eq(adds_0 & onnx_0),
            adds_tflite.eq(adds_0 & ~onnx_0),
            multiplies.eq(multiplies_0),
            averages.eq(averages_0),
            absolute.eq(does(VectorOperation.ABSOLUTE)),
            subtracts.eq(does(VectorOperation.SUBTRACT)),
            chooses.eq(does(VectorOperation.MINIMUM, VectorOperation.MAXIMUM)),
            chooses_greater.eq(does(VectorOperation.MAXIMUM)),
            leaks.eq(leaks_0),
            passes.eq(passes_0),
            rounds_24.eq(onnx_0 & (adds_0 | of_sum_0)),
        ]
        norms = Signal() if normal else Const(0, 1)
        norms_0 = does(VectorOperation.NORM)
        if normal:
            m.d.sync += norms.eq(norms_0)
        signs = Cat(self.sum.word_select(i, 32)[31] for i in range(lanes))
        below = delayed(m, "below", signs, 10 if leaky else 2, reset_less=True)

        # 0: an int32 shifted to the left, and whether that loses bits.
        a_0 = Signal(bits * lanes, reset_less=True)
        b_0 = Signal(bits * lanes, reset_less=True)
        shifted_0 = Signal(32 * lanes, reset_less=True)
        lost_0 = Signal(lanes, reset_less=True)
        left_out = Signal(5)
        left_b = Signal(5)
        m.d.sync += [
            a_0.eq(self.a),
            b_0.eq(self.b),
            left_out.eq(Mux(of_sum_0, left_shift_of(params.shift_out.as_unsigned()), 0)),
            left_b.eq(left_shift_of(params.shift_b.as_unsigned())),
        ]
        for i in range(lanes):
            left = Mux(leaks & signs[i], left_b, left_out)
            total = self.sum.word_select(i, 32)
            m.d.sync += [shifted_0.word_select(i, 32).eq(total << left), lost_0[i].eq(shift_loses(total, left) & onnx)]

        # 1: two operands, sign and magnitude of each less its zero point; else the operand of the final scaling. PASS
        # doubles its operand, which the product with 2**30 and the binary point at bit 31 make up for. Where bits were
        # lost, the magnitude is 2^31: in 24 bits the int32 furthest from 0 has that one. What operand a is multiplied
        # with in stage 2: the low bits of its multiplier, or operand b.
        a_1 = Signal(2 * bits * lanes, reset_less=True)
        b_1 = Signal(2 * bits * lanes, reset_less=True)
        factor_1 = Signal(16 * lanes, reset_less=True)
        value_1 = Signal(32 * lanes, reset_less=True)
        sign_1 = Signal(lanes, reset_less=True)
        low_a, zero_a, product = params.mult_a[:16], params.za, multiplies
        if normal:
            multiplies_1 = delayed(m, "product", self.product, 1)[-1]
            offset, right_row = (delayed(m, name, self.row[name], n) for name, n in (("offset", 3), ("right", 4)))
            low_a = Mux(norms, self.row.factor[:16], low_a)
            zero_a = Mux(norms & ~multiplies_1, self.row.mean, zero_a).as_signed()
            product = multiplies | (norms & multiplies_1)
        for i in range(lanes):
            shifted, lost = shifted_0.word_select(i, 32), lost_0[i]
            total = Cat(shifted[:31] & ~lost.replicate(31), shifted[31] | lost)
            operand = a_0.word_select(i, bits)
            doubled = Cat(Const(0, 1), operand, operand[-1].replicate(31 - bits))
            m.d.sync += [
                value_1.word_select(i, 32).eq(Mux(passes, doubled, total)),
                sign_1[i].eq(Mux(passes, operand[-1], Mux(lost, below[1][i], shifted[31]))),
            ]
            if two_operands:
                b = _difference(b_0.word_select(i, bits), params.zb)
                m.d.sync += [
                    a_1.word_select(i, 2 * bits).eq(_difference(operand, zero_a)),
                    b_1.word_select(i, 2 * bits).eq(b),
                    factor_1.word_select(i, 16).eq(Mux(product, b[:bits], low_a)),
                ]

        # 2: two operands, products with the low 16 and the high bits of the operands' multipliers; else the magnitude,
        # twice for AVERAGE. ABSOLUTE: what the left shift made negative is, in TFLITE, whatever its sign was before.
        a_2 = wide_registers("a_2", lanes)
        b_2 = wide_registers("b_2", lanes)
        negative_a_2 = Signal(lanes, reset_less=True)
        negative_b_2 = Signal(lanes, reset_less=True)
        high_a = Signal(15)
        mult_b = Signal(31)
        high = Mux(adds_0, Mux(onnx_0, params.mult_a[16:24], params.mult_a[16:]), 0)
        m.d.sync += [
            high_a.eq(Mux(norms_0, self.row.factor[16:], high) if normal else high),
            mult_b.eq(Mux(adds_0, Mux(onnx_0, params.mult_b[:24], params.mult_b), 0)),
        ]
        for i in range(lanes):
            value = value_1.word_select(i, 32)
            magnitude = magnitude_of(value)
            wrapped = ((value[31] ^ below[2][i]) | magnitude[31]) & ~onnx
            negative = Mux(absolute, wrapped, sign_1[i])
            magnitude = Mux(averages, Cat(Const(0, 1), magnitude[:31]), magnitude)
            if two_operands:
                a, b, factor = a_1.word_select(i, 2 * bits), b_1.word_select(i, 2 * bits), factor_1.word_select(i, 16)
                of_two = adds | multiplies | norms if normal else adds | multiplies
                magnitude = Mux(of_two, a[:bits] * factor, magnitude)
                negative = Mux(of_two, a[bits] ^ (b[bits] & multiplies), negative)
                if normal:
                    # What is up to the mean counts as below it, as something is subtracted yet.
                    negative |= norms & ~a[:bits].any()
                    m.d.comb += self.products.word_select(i, 2 * bits).eq(a_2[i][: 2 * bits])
                m.d.sync += [
                    a_2[i].eq(Cat(magnitude, a[:bits] * high_a)),
                    b_2[i].eq(Cat(b[:8] * mult_b[:16], Const(0, 8), b[:8] * mult_b[16:])),
                    negative_b_2[i].eq(b[bits] & adds),
                ]
            else:
                m.d.sync += a_2[i].eq(magnitude)
            m.d.sync += negative_a_2[i].eq(negative)
        if normal:
            minus_offset = Signal(signed(FACTOR_BITS + 1))
            m.d.sync += minus_offset.eq(-offset[2])
        sides = {"a": (a_2, negative_a_2)} | ({"b": (b_2, negative_b_2)} if two_operands else {})

        # 3: the products. 4: what the first rounding adds. 5: the first rounding: in TFLITE to Q31 (operands times
        # 2**20, hence 11 bits), in ONNX to 24 bits, also that of an int32; AVERAGE adds its count. 6: the common binary
        # point, bit 32 in TFLITE, 40 in ONNX; what is no addition is an integer at bit 32. 7: TFLITE, the second
        # rounding, ties away from zero; the sign. A difference takes the other sign of b, but only now: the first
        # rounding depends on it.
        operands = {}
        for name, (word_2, negative_2) in sides.items():
            negative = delayed(m, f"negative_{name}", negative_2, 3, reset_less=True)
            word_3, word_4, word_6, word_7 = (wide_registers(f"{name}_{stage}", lanes) for stage in (3, 4, 6, 7))
            subtracts_4 = normal and name == "a"
            adds_4 = Signal((32 if subtracts_4 else 16) * lanes, name=f"{name}_adds", reset_less=True)
            mask_4 = Signal(8 * lanes, name=f"{name}_mask", reset_less=True)
            wide = bits > 8 and subtracts_4
            width_5 = 64 if wide else 32  # what counts of it has 40 bits in a wide norm
            word_5 = Signal(width_5 * lanes, name=f"{name}_5", reset_less=True)
            sign = Signal(lanes, name=f"{name}_sign", reset_less=True)
            m.d.sync += sign.eq(negative[3] ^ subtracts.replicate(lanes) if name == "b" else negative[3])
            right = Signal(6, name=f"right_{name}")
            amount = Mux(adds_0, _alignment(params[f"shift_{name}"], onnx_0), 0)
            m.d.sync += right.eq(Mux(norms, right_row[4], amount) if subtracts_4 else amount)
            extra = Mux(averages, params.count, 0) if name == "a" else 0
            for i in range(lanes):
                upper = (word_2[i][16:32] + word_2[i][32 : 47 + bits])[:24]
                m.d.sync += word_3[i].eq(Cat(word_2[i][:16], upper))

                word = word_3[i]
                addend, mask = rounding_to_24(word[:32], rounds_24)
                q31 = _half_q31(negative[1][i], adds_tflite)
                addend = addend | q31 | extra
                if subtracts_4:
                    addend = Mux(norms, Mux(negative[1][i], offset[3], minus_offset), addend)
                m.d.sync += [
                    word_4[i].eq(word[:40]),
                    adds_4.word_select(i, 32 if subtracts_4 else 16).eq(addend),
                    mask_4.word_select(i, 8).eq(mask),
                ]

                mask = mask_4.word_select(i, 8)
                added = adds_4.word_select(i, 32).as_signed() if subtracts_4 else adds_4.word_select(i, 16)
                total = (word_4[i][: 40 if wide else 39] + added)[:40]
                above = total[32:] & norms.replicate(8) if wide else Const(0, 0)
                m.d.sync += word_5.word_select(i, width_5).eq(
                    Mux(adds_tflite, total[11:], Cat(total[:8] & ~mask, total[8:32], above))
                )

                m.d.sync += word_6[i].eq(
                    Cat(Const(0, 32), word_5.word_select(i, width_5)[: 40 if wide else 32]) >> right
                )

                word = word_6[i]
                integer = (word[32:] + word[31])[:32]
                unsigned = Mux(adds_onnx, word[:55], integer)[:55]
                if two_operands:
                    unsigned = unsigned ^ sign[i].replicate(55)
                signed_7 = Cat(unsigned, sign[i])
                if normal and name == "b":
                    signed_7 = Mux(norms, self.bias.word_select(i, 32).as_signed(), signed_7)
                m.d.sync += word_7[i].eq(signed_7)
            operands[name] = word_7

        # 8: signed sum of the two operands, negative ones less 1; which is less. 9: the sum, or one of the two. 10: its
        # sign and magnitude.
        magnitude_10 = wide_registers("magnitude_10", lanes)
        negative_10 = Signal(lanes, reset_less=True)
        sum_8 = wide_registers("sum_8", lanes)
        chosen_9 = wide_registers("chosen_9", lanes)
        for i in range(lanes):
            word = chosen_9[i][:57]
            if not two_operands:
                m.d.sync += [
                    sum_8[i].eq(operands["a"][i][:56]),
                    chosen_9[i].eq(sum_8[i][:56]),
                    magnitude_10[i].eq(word[:55]),
                    negative_10[i].eq(word[55]),
                ]
                continue
            a, b = (operands[name][i][:56].as_signed() for name in ("a", "b"))
            a_8, b_8 = (Signal(64, name=f"{name}_8_{i}", reset_less=True) for name in ("a", "b"))
            less = Signal(name=f"less_{i}", reset_less=True)
            below_b = b[55] & ~norms if normal else b[55]
            carry = Cat(a[55] ^ below_b, a[55] & below_b)
            chosen = Mux(less == chooses_greater, b_8[:56].as_signed(), a_8[:56].as_signed())
            m.d.sync += [
                sum_8[i].eq(((a + b) + carry)[:57]),
                a_8.eq(a[:56].as_unsigned()),
                b_8.eq(b[:56].as_unsigned()),
                less.eq(a < b),
                chosen_9[i].eq(Mux(chooses, chosen, sum_8[i][:57].as_signed())[:57]),
                magnitude_10[i].eq(((word ^ word[56].replicate(57)) + (word[56] & ~chooses))[:57]),
                negative_10[i].eq(word[56] ^ (norms & self.words.word_select(i, 32)[31]) if normal else word[56]),
            ]

        scales = of_sum_0 | multiplies_0
        mult = Signal(32)
        right = Signal(8)
        shared = Signal(SCALE_SHARED, reset_less=True)
        m.d.sync += [
            mult.eq(multiplier_of(params.mult_out, onnx_0 & scales)),
            right.eq(right_shift_of(params.shift_out.as_unsigned())),
            shared.kind.eq(Mux(onnx_0 | norms_0 if normal else onnx_0, ScaleKind.ONNX, ScaleKind.TFLITE)),
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
            scaler.negative.eq(negative_10),
            scaler.magnitude.eq(Cat(*magnitude_10)),
            scaler.shared.eq(shared),
            self.result.eq(scaler.result),
        ]
        if not leaky and not normal:
            m.d.comb += [scaler.mult.eq(mult.replicate(lanes)), scaler.right.eq(right.replicate(lanes))]
            return m

        # LEAKY has two multipliers, NORM one per channel. Every lane keeps its own: a multiplexer would cost the
        # multiplier its speed.
        mult_below = Signal(32)
        right_below = Signal(8)
        mult_10 = Signal(32 * lanes, reset_less=True)
        right_10 = Signal(8 * lanes, reset_less=True)
        m.d.sync += [
            mult_below.eq(multiplier_of(params.mult_b, onnx_0)),
            right_below.eq(right_shift_of(params.shift_b.as_unsigned())),
        ]
        for i in range(lanes):
            mult_i, right_i = mult, right
            if leaky:
                negative = leaks & below[10][i]
                mult_i, right_i = Mux(negative, mult_below, mult), Mux(negative, right_below, right)
            if normal:
                word = self.words.word_select(i, 32)
                mult_i = Mux(norms, Cat(Const(0, 7), word[:24]), mult_i)
                right_i = Mux(norms, right_shift_of(word[24:30]), right_i)
            m.d.sync += [mult_10.word_select(i, 32).eq(mult_i), right_10.word_select(i, 8).eq(right_i)]
        m.d.comb += [scaler.mult.eq(mult_10), scaler.right.eq(right_10)]
        return m


def _difference(value: Value, zero_point: Value) -> Value:
    """Magnitude, as wide as the value, and above it sign of a signed value less its zero point."""
    bits = len(value)
    difference = value.as_signed() - zero_point
    return Cat(magnitude_of(difference)[:bits], difference[bits])


def _half_q31(negative: Value, enable: Value) -> Value:
    """One half at 11 fraction bits, less an infinitesimal for negative values."""
    return Cat((negative & enable).replicate(10), ~negative & enable)


def _alignment(shift: Value, onnx: Value) -> Value:
    """Right shift, 0..32, of an ADD operand that starts at bit 32."""
    fixed = Mux(shift > ADD_SHIFT_MAX, ADD_SHIFT_MAX, Mux(shift < ADD_SHIFT_MIN, ADD_SHIFT_MIN, shift))
    return Mux(onnx, (Const(16, 6) - fixed)[:6], right_shift_of(shift.as_unsigned()))
