"""Product, right shift, rounding and clamp of a magnitude: the back half of every path to int8."""

from collections.abc import Sequence
from enum import IntEnum

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.numerics.rounding import INT16_MAX, INT16_MIN


class ScaleKind(IntEnum):
    """How :class:`Scaler` rounds. The first two are the values of ``isa.numerics.rounding.Rounding``."""

    TFLITE = 0
    """Rounded twice: to Q31 with ties upward, then by the right shift with ties away from zero."""

    ONNX = 1
    """The product rounded to 24 bits, then to an integer, ties to even both times."""

    FLOOR = 2
    """Truncated: for products that already carry their rounding."""

    FLOOR_EVEN = 3
    """Truncated, but one less when odd and the first 16 fraction bits are zero: an average's tie, to even."""


SCALE_SHARED = data.StructLayout({"kind": ScaleKind, "zero_point": signed(8), "lo": signed(8), "hi": signed(8)})
"""What all lanes of a :class:`Scaler` have in common."""


def wide_registers(name: str, lanes: int) -> list[Signal]:
    """One 64-bit register per lane. Not packed: as C++ scalars they simulate a tenth faster than in arrays."""
    return [Signal(64, name=f"{name}_{i}", reset_less=True) for i in range(lanes)]


def words_of(values: Value, bits: int) -> Value:
    """Numbers of so many bits, each in a word of 32."""
    return Cat(Cat(values[n : n + bits], Const(0, 32 - bits)) for n in range(0, len(values), bits))


def either(which: Value, one: Value, other: Value) -> Value:
    """``Mux``, as two of which each is one value or zero. Verilator makes masks of those, where g++ makes a jump of a
    ``Mux``, and no vectors of what stands next to it. To synthesis they are the same."""
    return Mux(which, one, 0) | Mux(which, 0, other)


def left_shift_of(shift: Value) -> Value:
    """``max(shift, 0)`` of a signed 6-bit shift, 5 bits."""
    return Mux(shift[5], 0, shift[:5])


def right_shift_of(shift: Value) -> Value:
    """``max(-shift, 0)`` of a signed 6-bit shift, 0..32 in 6 bits."""
    return Mux(shift[5], (~shift[:6] + 1)[:6], 0)


def magnitude_of(value: Value) -> Value:
    """The magnitude of a signed value, as wide as it is."""
    sign = value[-1]
    return ((value ^ sign.replicate(len(value))) + sign)[: len(value)]


def smeared(value: Value) -> Value:
    """The highest bit that is set, and all below it."""
    for step in (1, 2, 4, 8, 16):
        if step < len(value):
            value = value | (value >> step)
    return value


def shift_loses(value: Value, amount: Value) -> Value:
    """Whether ``value << amount`` overflows 32 bits, signed. ``amount`` has 5 bits."""
    sign = value[31]
    return ((Const(0xFFFF_FFFF, 32) << ~amount)[:31] & (value[:31] ^ sign.replicate(31))).any()


def rounding_to_24(magnitude: Value, enable: Value) -> tuple[Value, Value]:
    """``(addend, mask)``: ``(magnitude + addend) & ~mask`` has 24 significant bits, rounded to even.

    ``magnitude`` has 32 bits, so at most its low 8 are dropped; both results have 8 bits, 0 without
    ``enable``.
    """
    mask = smeared(magnitude[24:32]) & enable.replicate(8)
    highest = mask & ~(mask >> 1)
    odd = (magnitude[1:9] & highest).any()
    return Mux(odd, highest, mask >> 1), mask


class Scaler(wiring.Component):
    """``clamp(round(+-magnitude * mult / 2**(31 + right)) + zero_point, lo, hi)``, a pipeline without stalls.

    Parameters
    ----------
    lanes
        Values per cycle.
    wide
        Whether results may have 16 bits.
    domains
        Clock domain of each stage.

    Members
    -------
    negative
        Sign, one bit per lane.
    magnitude
        64 bits per lane, of which 57 count. Either it has no more than 32 bits, or ``mult`` is 1.
    mult
        32 bits per lane, of which 31 count.
    right
        8 bits per lane, of which 6 count, 0..32.
    shared
        :data:`SCALE_SHARED`. All inputs are sampled together.
    to_wide
        With ``wide``: results have 16 bits, no zero point, and clamp to what 16 bits can be.
    result
        int8 per lane; with ``wide`` of 16 bits each.

    Latency
    -------
    ``LATENCY`` cycles: outer products, inner one, product, right shift, rounding, zero point, clamp.

    Raises
    ------
    ValueError
        When ``lanes`` is not positive.
    """

    LATENCY = 7

    def __init__(self, *, lanes: int, wide: bool = False, domains: Sequence[str] = ("sync",) * LATENCY) -> None:
        if lanes < 1:
            raise ValueError(f"lanes must be positive, not {lanes!r}")
        self.lanes = lanes
        self.domains = domains
        self.wide = wide
        self.result_bits = 16 if wide else 8
        super().__init__(
            {
                "negative": In(lanes),
                "magnitude": In(64 * lanes),
                "mult": In(32 * lanes),
                "right": In(8 * lanes),
                "shared": In(SCALE_SHARED),
                **({"to_wide": In(1)} if wide else {}),
                "result": Out(self.result_bits * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        stages = [m.d[domain] for domain in self.domains]
        # One packed register per quantity and stage, with a word per lane: a simulator then works on vectors. None is
        # reset: nothing reads a result before LATENCY cycles.
        shared = [self.shared]
        negative = [words_of(self.negative, 1)]
        for stage in range(1, self.LATENCY):
            shared.append(Signal(SCALE_SHARED, name=f"shared_{stage}", reset_less=True))
            stages[stage - 1] += shared[stage].eq(shared[stage - 1])
        for stage in range(1, 5):
            negative.append(Signal(32 * self.lanes, name=f"negative_{stage}", reset_less=True))
            stages[stage - 1] += negative[stage].eq(negative[stage - 1])

        # 1: the product of the low halves and that of the high ones, one DSP multiplier each, nothing behind them but a
        # register; the sum of the halves of either factor. What a magnitude has above them `mult` leaves as it is.
        outer_1 = wide_registers("outer_1", self.lanes)
        halves_1 = wide_registers("halves_1", self.lanes)
        above_1 = Signal(32 * self.lanes, reset_less=True)
        right_1 = Signal(32 * self.lanes, reset_less=True)
        stages[0] += right_1.eq(words_of(self.right, 8))
        for i in range(self.lanes):
            magnitude, mult = self.magnitude.word_select(i, 64), self.mult.word_select(i, 32)
            (low, high), (mult_low, mult_high) = (magnitude[:16], magnitude[16:32]), (mult[:16], mult[16:31])
            stages[0] += [
                outer_1[i].eq(Cat(low * mult_low, high * mult_high)),
                halves_1[i].eq(Cat(low + high, Const(0, 15), mult_low + mult_high)),
                above_1.word_select(i, 32).eq(magnitude[32:57]),
            ]

        # 2: the product of these sums, and what it has too much of: three multipliers instead of four (Karatsuba).
        outer_2 = wide_registers("outer_2", self.lanes)
        crossed_2 = wide_registers("crossed_2", self.lanes)
        excess_2 = wide_registers("excess_2", self.lanes)
        right_2 = Signal(32 * self.lanes, reset_less=True)
        stages[1] += right_2.eq(right_1)
        for i in range(self.lanes):
            low, high = outer_1[i][:32], outer_1[i][32:]
            stages[1] += [
                outer_2[i].eq(Cat(low, high | above_1.word_select(i, 32))),
                crossed_2[i].eq(halves_1[i][:17] * halves_1[i][32:49]),
                excess_2[i].eq(low + high),
            ]

        # 3: the product. Bit n of `below` says that n is less than the right shift.
        product = wide_registers("product", self.lanes)
        right_3 = Signal(32 * self.lanes, reset_less=True)
        below_3 = Signal(32 * self.lanes, reset_less=True)
        stages[2] += right_3.eq(right_2)
        for i in range(self.lanes):
            right = right_2.word_select(i, 32)[:6]
            stages[2] += [
                product[i].eq(outer_2[i][:63] + Cat(Const(0, 16), (crossed_2[i][:34] - excess_2[i][:33])[:33])),
                below_3.word_select(i, 32).eq(~(Const(0xFFFF_FFFF, 32) << right)),
            ]

        # 4: binary point to bit 31. Bits 5 to 40 are shifted; what lies below and above them is one bit each, 4 and 41.
        # TFLITE rounds twice, first at bit 31 of the product, with ties upward: of negative values, towards 0. What
        # that adds reaches the integer through ones only: bit 42. Of 16-bit results it is 8 bits more.
        top = 31 + self.result_bits + 2
        aligned = wide_registers("aligned", self.lanes)
        twice = shared[3].kind == ScaleKind.TFLITE
        for i in range(self.lanes):
            right, below = right_3.word_select(i, 32)[:6], below_3.word_select(i, 32)
            word = product[i]
            # In two shifts: as few bits are read, less logic is left of the second one.
            shifted = ((word >> Cat(Const(0, 3), right[3:])) >> right[:3])[:top]
            sticky = word[:5].any() | (word[5:37] & below).any()
            large = (word[top:64] & ~below[: 64 - top]).any()
            first = word[30] & (word[:30].any() | ~negative[3][32 * i])
            ones = (word[31:62] | ~below[1:]).all()
            half = shifted[30] & (right.any() | ~twice)
            stages[3] += aligned[i].eq(
                Cat(Const(0, 4), sticky, shifted[5:30], half, shifted[31:top], large, first & ones & twice)
            )

        # 5: integer part (10 bits, or 18, saturated), and what rounding adds to it: c = -1 .. 2 with the sign's
        # carry in it.
        bits = top - 31
        integer = Signal(32 * self.lanes, reset_less=True)
        for i in range(self.lanes):
            up, down = self._rounding(aligned[i][: top + 2], shared[4].kind)
            sign = negative[4][32 * i]
            magnitude = aligned[i][31:top] | aligned[i][top].replicate(bits)
            # negative: -(v + up - down) = ~v + (1 - up + down); never both up and down
            correction = Cat((up | down) ^ sign, down, down & ~sign)
            signed_magnitude = Cat(magnitude ^ sign.replicate(bits), sign)
            stages[4] += integer.word_select(i, 32).eq(Cat(signed_magnitude, Const(0, 1), correction))

        # 6: zero point.
        offset = Signal(32 * self.lanes, reset_less=True)
        zero_point = Mux(self.to_wide, 0, shared[5].zero_point) if self.wide else shared[5].zero_point
        for i in range(self.lanes):
            word = integer.word_select(i, 32)
            value, correction = word[: bits + 1].as_signed(), word[bits + 2 : bits + 5].as_signed()
            stages[5] += offset.word_select(i, 32).eq((value + correction) + zero_point)

        # 7: clamp; lo wins over hi.
        result = Signal(self.result_bits * self.lanes, reset_less=True)
        lo, hi = shared[6].lo, shared[6].hi
        if self.wide:
            lo, hi = (Signal(signed(16), name=name, reset_less=True) for name in ("lo", "hi"))
            stages[5] += [
                lo.eq(Mux(self.to_wide, INT16_MIN, shared[5].lo)),
                hi.eq(Mux(self.to_wide, INT16_MAX, shared[5].hi)),
            ]
        empty = Signal()
        m.d.comb += empty.eq(hi < lo)
        for i in range(self.lanes):
            value = offset.word_select(i, 32)[: bits + 3].as_signed()
            byte, least, most = (Cat(bound)[: self.result_bits] for bound in (value, lo, hi))
            clamped = either((value < lo) | empty, least, either(value > hi, most, byte))
            stages[6] += result.word_select(i, self.result_bits).eq(clamped)
        m.d.comb += self.result.eq(result)
        return m

    @staticmethod
    def _rounding(word: Value, kind: Value) -> tuple[Value, Value]:
        """``(up, down)``: what to add to the integer part of ``word``, whose binary point is at bit 31.

        ONNX: the value becomes a tie when the rounding to 24 bits makes it one, that is when it is no further
        than half a unit in the last place of 24 bits from it. Its leading one at bit 29 + j puts half that
        unit at bit 5 + j.
        """
        odd, half = word[31], word[30]
        smear = smeared(word[29:-2])
        unit = smear & ~(smear >> 1)
        distance = ~(word[5:30] ^ half.replicate(25))
        exact = ~word[4]
        # Below a power of two are those without a bit from it on: no carry chain.
        below = smear[0] & ~(distance & ~(smear >> 1 | Const(0, 25))).any()
        tie = below | (half & exact & (distance == unit))
        onnx = either(tie, odd, half)
        up = word[-1] | (kind == ScaleKind.TFLITE) & half | (kind == ScaleKind.ONNX) & onnx
        down = (kind == ScaleKind.FLOOR_EVEN) & odd & ~word[15:31].any()
        return up, down


def multiplier_of(mult: Value, onnx: Value) -> Value:
    """The 31-bit multiplier of the TFLITE encoding that equals ``mult`` in either encoding."""
    return Mux(onnx, Cat(Const(0, 7), mult[:24]), mult[:31])
