"""What NORM has beside the lanes of the vector unit: the sums of a row, and what follows from them."""

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.scaler import magnitude_of
from dovetail.isa.numerics.norm import (
    COUNT_BITS,
    EPSILON_BITS,
    EPSILON_FRACTION,
    FACTOR_BITS,
    RECIPROCAL_BITS,
    ROOT_BITS,
    WIDE_BITS,
)

SUM = signed(COUNT_BITS + 8)
"""A row's sum of up to 2^12 int8."""
SQUARES = unsigned(COUNT_BITS + 16)
"""A row's sum of squares of up to 255."""

_SUM_BITS = SUM.width
_MEAN_BITS = 8
_GROUP = 4
_PHASES = (_SUM_BITS, 1, 5, 3, ROOT_BITS, RECIPROCAL_BITS)


class RowSum(wiring.Component):
    """The sums of rows, whose elements come in turns.

    Parameters
    ----------
    lanes
        Elements per cycle, up to 16.
    rows
        How many take turns.
    element, total
        Shapes of an element and of a sum.

    Members
    -------
    valid, first
        There are elements, of the row after that of the ones before; they are the first of their row.
    elements
        One per lane, lane 0 lowest.
    totals
        Per row the sum of all from the first ones on, after elements of the last row; stay until the next ones are
        there.

    Latency
    -------
    ``LATENCY`` cycles: sums of four lanes each, their sum, the row's.
    """

    LATENCY = 3

    def __init__(self, *, lanes: int, rows: int = 1, element: Shape, total: Shape) -> None:
        if not 1 <= lanes <= _GROUP**2:
            raise ValueError(f"lanes must be 1..{_GROUP**2}, not {lanes!r}")
        self.lanes = lanes
        self.rows = rows
        self.element = element
        totals = data.ArrayLayout(total, rows)
        super().__init__({"valid": In(1), "first": In(1), "elements": In(element.width * lanes), "totals": Out(totals)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        elements = [self.elements.word_select(i, self.element.width) for i in range(self.lanes)]
        values: list[Value] = [value.as_signed() if self.element.signed else value for value in elements]
        for level in range(self.LATENCY - 1):
            sums = [_tree(values[i : i + _GROUP]) for i in range(0, len(values), _GROUP)]
            values = []
            for i, total in enumerate(sums):
                register = Signal(total.shape(), name=f"sum_{level}_{i}", reset_less=True)
                m.d.sync += register.eq(total)
                values.append(register)
        (row,) = values
        step = delayed(m, "step", Cat(self.valid, self.first), self.LATENCY - 1)[-1]
        *others, newest = totals = [self.totals[n] for n in range(self.rows)]
        with m.If(step[0]):
            m.d.sync += newest.eq(Mux(step[1], 0, totals[0]) + row)
            m.d.sync += [total.eq(after) for total, after in zip(others, totals[1:], strict=True)]
        return m


def _tree(values: list[Value]) -> Value:
    while len(values) > 1:
        values = [pair[0] + pair[-1] if len(pair) > 1 else pair[0] for pair in (values[:2], values[2:]) if pair]
    return values[0]


class RowRoot(wiring.Component):
    """The mean of a row and the reciprocal of its root, digit by digit: ``isa.numerics.norm.NormRows``.

    Members
    -------
    start
        Pulse: the sums are there. They, ``count``, ``epsilon`` and ``rms`` stay until the results are there.
    sum, squares
        Sums of the elements and of their squares; of an RMS norm the latter ones less the zero point.
    count
        Elements, 1 to 4,096.
    epsilon
        The term of eps.
    rms
        RMS norm.
    mean
        int8, the mean's floor; of an RMS norm 0.
    factor, offset, right
        What elements less ``mean`` are multiplied with, what is subtracted then, and the right shift after it. They and
        ``mean`` stay until the next ``start``.

    Latency
    -------
    ``LATENCY`` cycles from ``start``: magnitude of the sum, 20 digits of the variance (the mean is there sooner), eps,
    8 steps of the left shift, 24 digits of the root, 23 of the reciprocal.
    """

    LATENCY = 1 + sum(_PHASES)

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "sum": In(SUM),
                "squares": In(SQUARES),
                "count": In(COUNT_BITS + 1),
                "epsilon": In(EPSILON_BITS),
                "rms": In(1),
                "mean": Out(signed(_MEAN_BITS)),
                "factor": Out(FACTOR_BITS),
                "offset": Out(FACTOR_BITS),
                "right": Out(5),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # What is done, phase by phase; the last cycle of each.
        active = Signal(len(_PHASES))
        left = Signal(range(max(_PHASES)))
        spread, adds, coarse, fine, rooting, dividing = active
        last = Signal()
        m.d.comb += last.eq(left == 0)
        m.d.sync += left.eq(left - 1)
        with m.If(self.start | last):
            m.d.sync += active.eq(Cat(self.start, active))
            for phase, cycles in zip((self.start, *active), _PHASES, strict=False):
                with m.If(phase):
                    m.d.sync += left.eq(cycles - 1)
        count = self.count

        # The variance times count^2: count * squares - sum^2, the highest digits first.
        sum_ = Signal(SUM)
        size, digits, counts = (Signal(_SUM_BITS, name=name, reset_less=True) for name in ("size", "digits", "counts"))
        wide = Signal(WIDE_BITS, reset_less=True)
        whole = wide[EPSILON_FRACTION:]
        m.d.comb += sum_.eq(Mux(self.rms, 0, self.sum))
        multiple = Mux(counts[-1], self.squares, 0) - Mux(digits[-1], size, 0)
        flat = Signal(reset_less=True)
        right = Signal(5, reset_less=True)
        with m.If(self.start):
            m.d.sync += [
                size.eq(magnitude_of(sum_)),
                digits.eq(magnitude_of(sum_)),
                counts.eq(count),
                wide.eq(0),
                right.eq(15),
            ]
        with m.If(spread):
            m.d.sync += [
                wide.eq(Cat(Const(0, EPSILON_FRACTION), ((whole << 1) + multiple)[: len(whole)])),
                digits.eq(digits << 1),
                counts.eq(counts << 1),
            ]
        with m.If(adds):
            m.d.sync += [wide.eq(wide + self.epsilon), flat.eq(~whole.any())]
        # To the left by pairs of bits, as far as there are none. What is not 0 has one of its highest 42 bits.
        for phase, pairs in ((coarse, 4), (fine, 1)):
            with m.If(phase & ~wide[-2 * pairs :].any()):
                m.d.sync += [wide.eq(wide << 2 * pairs), right.eq(right - pairs)]

        # The mean is a quotient of 8 digits, of elements from -128 on.
        rest = Signal(COUNT_BITS + 1, reset_less=True)
        quotient = Signal(_MEAN_BITS, reset_less=True)
        m.d.comb += self.mean.eq(quotient ^ (1 << _MEAN_BITS - 1))
        below = sum_ + (count << _MEAN_BITS - 1)
        shifted = Cat(quotient[-1], rest)
        excess = shifted - count
        digits_left = Signal(range(_MEAN_BITS + 1))
        with m.If(self.start):
            m.d.sync += [quotient.eq(below), rest.eq(below[_MEAN_BITS:]), digits_left.eq(_MEAN_BITS)]
        with m.If(digits_left.any()):
            m.d.sync += [
                digits_left.eq(digits_left - 1),
                quotient.eq(Cat(~excess[-1], quotient)),
                rest.eq(Mux(excess[-1], shifted, excess)),
            ]

        # Count and rest to the left, until the count is above 2^11. The root and the reciprocal, by one subtraction.
        units = Signal(COUNT_BITS + 1, reset_less=True)
        remainder = Signal(ROOT_BITS + 1, reset_less=True)
        root = Signal(ROOT_BITS, reset_less=True)
        factor, offset = (Signal(FACTOR_BITS + COUNT_BITS - 1, name=name, reset_less=True) for name in ("n", "r"))
        drawn = Mux(rooting, Cat(wide[-2:], remainder), Cat(Const(1, 1), remainder))
        difference = drawn - Mux(rooting, Cat(Const(1, 2), root), root)
        digit = ~difference[-1]
        with m.If(adds):
            m.d.sync += [units.eq(count), remainder.eq(0), root.eq(0), factor.eq(0), offset.eq(0)]
        with m.If(rooting | dividing):
            m.d.sync += remainder.eq(Mux(digit, difference, drawn))
        with m.If(rooting):
            m.d.sync += [wide.eq(wide << 2), root.eq(Cat(digit, root))]
            with m.If(~units[-1] & ~(units[-2] & units[:-2].any())):
                m.d.sync += [units.eq(units << 1), rest.eq(rest << 1), right.eq(right + 1)]
        with m.If(rooting & last):
            m.d.sync += remainder.eq((1 << RECIPROCAL_BITS) - 1)
        with m.If(dividing):
            counts_ = digit & ~flat
            m.d.sync += [
                factor.eq((factor << 1) + Mux(counts_, units, 0)),
                offset.eq((offset << 1) + Mux(counts_, rest, 0)),
            ]
        m.d.comb += [
            self.factor.eq(factor[COUNT_BITS - 1 :]),
            self.offset.eq(offset[COUNT_BITS - 1 :]),
            self.right.eq(right),
        ]
        return m
