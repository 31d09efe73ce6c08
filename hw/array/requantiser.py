"""Requantiser: int32 accumulators to int8, per-channel multipliers, both roundings."""

from collections.abc import Sequence

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.scaler import (
    SCALE_SHARED,
    ScaleKind,
    Scaler,
    either,
    left_shift_of,
    magnitude_of,
    multiplier_of,
    right_shift_of,
    rounding_to_24,
    shift_loses,
)
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.timing.array import REQUANTISE


class Requantiser(wiring.Component):
    """``isa.numerics.requantise`` for ``lanes`` values per cycle, a pipeline without stalls.

    All inputs are sampled together and travel with their values, so each cycle may have its own.

    Parameters
    ----------
    lanes
        Values per cycle.
    domains
        Clock domain of each stage.

    Members
    -------
    acc
        int32 per lane, lane 0 lowest.
    mult
        Multiplier, 32 bits per lane, of which the low 31 count.
    shift
        Its shift, signed, 8 bits per lane, of which the low 6 count.
    rounding
        ``isa.numerics.rounding.Rounding``, one bit.
    zero_point, lo, hi
        int8: added after scaling, and the clamping range.
    result
        int8 per lane.

    Latency
    -------
    ``LATENCY`` cycles (``isa.timing.array.REQUANTISE``).

    Raises
    ------
    ValueError
        When ``lanes`` is not positive.
    """

    LATENCY = REQUANTISE

    def __init__(self, *, lanes: int, domains: Sequence[str] = ("sync",) * LATENCY) -> None:
        if lanes < 1:
            raise ValueError(f"lanes must be positive, not {lanes!r}")
        self.lanes = lanes
        self.domains = domains
        super().__init__(
            {
                "acc": In(32 * lanes),
                "mult": In(32 * lanes),
                "shift": In(8 * lanes),
                "rounding": In(1),
                "zero_point": In(signed(8)),
                "lo": In(signed(8)),
                "hi": In(signed(8)),
                "result": Out(8 * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.scaler = scaler = Scaler(lanes=self.lanes, domains=self.domains[3:])
        stages = [m.d[domain] for domain in self.domains[:3]]
        assert self.LATENCY == 3 + scaler.LATENCY
        onnx = self.rounding == Rounding.ONNX

        shared_1 = Signal(SCALE_SHARED, reset_less=True)
        shared_2 = Signal(SCALE_SHARED, reset_less=True)
        shared_3 = Signal(SCALE_SHARED, reset_less=True)
        stages[0] += [
            shared_1.kind.eq(Mux(onnx, ScaleKind.ONNX, ScaleKind.TFLITE)),
            shared_1.zero_point.eq(self.zero_point),
            shared_1.lo.eq(self.lo),
            shared_1.hi.eq(self.hi),
        ]
        stages[1] += shared_2.eq(shared_1)
        stages[2] += shared_3.eq(shared_2)

        # 1: left shift, and whether it saturates; the multiplier in one encoding.
        shifted = Signal(32 * self.lanes, reset_less=True)
        sign_1, saturates = (Signal(32 * self.lanes, name=name, reset_less=True) for name in ("sign_1", "saturates"))
        mult_1 = Signal(32 * self.lanes, reset_less=True)
        right_1 = Signal(32 * self.lanes, reset_less=True)
        for i in range(self.lanes):
            shift = self.shift.word_select(i, 8)[:6]
            value, left = self.acc.word_select(i, 32), left_shift_of(shift)
            stages[0] += [
                shifted.word_select(i, 32).eq(value << left),
                sign_1.word_select(i, 32).eq(value[31]),
                saturates.word_select(i, 32).eq(onnx & shift_loses(value, left)),
                mult_1.word_select(i, 32).eq(multiplier_of(self.mult.word_select(i, 32), onnx)),
                right_1.word_select(i, 32).eq(right_shift_of(shift)),
            ]

        # 2: sign and magnitude. The one nearest to what saturates is 2^31 in 24 bits, of either sign.
        magnitude = Signal(32 * self.lanes, reset_less=True)
        negative_2 = Signal(32 * self.lanes, reset_less=True)
        mult_2 = Signal(32 * self.lanes, reset_less=True)
        right_2 = Signal(32 * self.lanes, reset_less=True)
        stages[1] += [mult_2.eq(mult_1), right_2.eq(right_1)]
        for i in range(self.lanes):
            value, lost, sign = shifted.word_select(i, 32), saturates[32 * i], sign_1[32 * i]
            stages[1] += [
                negative_2.word_select(i, 32).eq(either(lost, sign, value[31])),
                magnitude.word_select(i, 32).eq(either(lost, Const(1 << 31, 32), magnitude_of(value))),
            ]

        # 3: ONNX, float32 of the accumulator.
        rounded = Signal(32 * self.lanes, reset_less=True)
        negative_3 = Signal(32 * self.lanes, reset_less=True)
        mult_3 = Signal(32 * self.lanes, reset_less=True)
        right_3 = Signal(32 * self.lanes, reset_less=True)
        stages[2] += [mult_3.eq(mult_2), right_3.eq(right_2), negative_3.eq(negative_2)]
        for i in range(self.lanes):
            value = magnitude.word_select(i, 32)
            addend, mask = rounding_to_24(value, shared_2.kind == ScaleKind.ONNX)
            total = (value + addend)[:32]
            stages[2] += rounded.word_select(i, 32).eq(Cat(total[:8] & ~mask, total[8:]))

        m.d.comb += [
            scaler.negative.eq(Cat(negative_3[32 * i] for i in range(self.lanes))),
            scaler.mult.eq(mult_3),
            scaler.right.eq(Cat(right_3.word_select(i, 32)[:8] for i in range(self.lanes))),
            scaler.shared.eq(shared_3),
            self.result.eq(scaler.result),
        ]
        for i in range(self.lanes):
            m.d.comb += scaler.magnitude.word_select(i, 64).eq(rounded.word_select(i, 32))
        return m
