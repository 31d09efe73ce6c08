"""What NORM has beside the lanes of the vector unit: the sums of a row, and what follows from them."""

from amaranth import Cat, Const, Module, Mux, Shape, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.scaler import magnitude_of
from dovetail.hw.vector.rescale import norm_row
from dovetail.isa.numerics.norm import (
    COUNT_BITS,
    EPSILON_BITS,
    EPSILON_FRACTION,
    FACTOR_BITS,
    RECIPROCAL_BITS,
    ROOT_BITS,
    WIDE_BITS,
    WIDE_SHIFT,
)

_GROUP = 4


def row_sum(bits: int) -> Shape:
    """Of a row's sum of up to 2^12 elements of so many bits."""
    return signed(COUNT_BITS + bits)


def row_squares(bits: int) -> Shape:
    """Of a row's sum of squares of elements less a zero point."""
    return unsigned(COUNT_BITS + 2 * bits)


def _phases(bits: int) -> tuple[int, ...]:
    coarse = 5 if bits == 8 else 7
    return row_sum(bits).width, 1, coarse, 3, ROOT_BITS, RECIPROCAL_BITS


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

    Parameters
    ----------
    bits
        Of an element, 8 or 16.

    Members
    -------
    start
        Pulse: the sums are there. They, ``count``, ``epsilon``, ``rms`` and ``wide`` stay until the results are there.
    sum, squares
        Sums of the elements and of their squares; of an RMS norm the latter ones less the zero point.
    count
        Elements, 1 to 4,096.
    epsilon
        The term of eps.
    rms
        RMS norm.
    wide
        With 16 ``bits``: the row's elements have 16 bits, not 8.
    mean
        Signed, of ``bits``: the mean's floor; of an RMS norm 0.
    factor, offset, right
        What elements less ``mean`` are multiplied with, what is subtracted then, and the right shift after it. They and
        ``mean`` stay until the next ``start``.

    Latency
    -------
    ``latency`` cycles from ``start``: magnitude of the sum, 20 digits of the variance (28 of 16-bit elements; the mean
    is there sooner), eps, 8 (10) steps of the left shift, 24 digits of the root, 23 of the reciprocal.
    """

    def __init__(self, bits: int = 8) -> None:
        self.bits = bits
        row = norm_row(bits).members
        super().__init__(
            {
                "start": In(1),
                "sum": In(row_sum(bits)),
                "squares": In(row_squares(bits)),
                "count": In(COUNT_BITS + 1),
                "epsilon": In(EPSILON_BITS),
                "rms": In(1),
                **({"wide": In(1)} if bits > 8 else {}),
                **{name: Out(shape) for name, shape in row.items()},
            }
        )

    @staticmethod
    def latency(bits: int) -> int:
        """Cycles from ``start`` to the results, of elements of so many bits."""
        return 1 + sum(_phases(bits))

    def elaborate(self, platform: object) -> Module:
        m = Module()

        def choose(of_8: int, of_16: int) -> Value | int:
            """What belongs to elements of the row's bits."""
            return Mux(self.wide, of_16, of_8) if self.bits > 8 else of_8

        def narrower(value: Value, shift: int) -> Value:
            """A value of 8-bit elements so far to the left, where there are 16-bit ones too."""
            return Mux(self.wide, value, value << shift) if self.bits > 8 else value

        # What is done, phase by phase; the last cycle of each.
        phases = _phases(self.bits)
        active = Signal(len(phases))
        left = Signal(range(max(phases)))
        spread, adds, coarse, fine, rooting, dividing = active
        last = Signal()
        m.d.comb += last.eq(left == 0)
        m.d.sync += left.eq(left - 1)
        with m.If(self.start | last):
            m.d.sync += active.eq(Cat(self.start, active))
            for phase, of_8, of_16 in zip((self.start, *active), _phases(8), _phases(16), strict=False):
                with m.If(phase):
                    m.d.sync += left.eq(choose(of_8 - 1, of_16 - 1))
        count = self.count

        # The variance times count^2: count * squares - sum^2, the highest digits first.
        sum_ = Signal(self.sum.shape())
        size, digits, counts = (Signal(len(sum_), name=name, reset_less=True) for name in ("size", "digits", "counts"))
        wide = Signal(WIDE_BITS, reset_less=True)
        least = EPSILON_FRACTION if self.bits == 8 else 0
        whole = wide[least:]
        m.d.comb += sum_.eq(Mux(self.rms, 0, self.sum))
        multiple = Mux(counts[-1], self.squares, 0) - Mux(digits[-1], size, 0)
        flat = Signal(reset_less=True)
        right = Signal(len(self.right), reset_less=True)
        unused = self.bits - 8  # digits that a sum of 8-bit elements does not have
        with m.If(self.start):
            m.d.sync += [
                size.eq(magnitude_of(sum_)),
                digits.eq(narrower(magnitude_of(sum_), unused)),
                counts.eq(narrower(count, unused)),
                wide.eq(0),
                right.eq(choose(15, 15 + WIDE_SHIFT)),
            ]
        with m.If(spread):
            gained = narrower(multiple, EPSILON_FRACTION)
            m.d.sync += [
                wide.eq(Cat(Const(0, least), ((whole << 1) + gained)[: len(whole)])),
                digits.eq(digits << 1),
                counts.eq(counts << 1),
            ]
        with m.If(adds):
            m.d.sync += [wide.eq(wide + self.epsilon), flat.eq(~whole.any())]
        # To the left by pairs of bits, as far as there are none. What is not 0 has one of its highest 42 bits, or of
        # 16-bit elements of all.
        for phase, pairs in ((coarse, 4), (fine, 1)):
            with m.If(phase & ~wide[-2 * pairs :].any()):
                m.d.sync += [wide.eq(wide << 2 * pairs), right.eq(right - pairs)]

        # The mean is a quotient of as many digits as an element has, from the least element on.
        rest = Signal(COUNT_BITS + 1, reset_less=True)
        quotient = Signal(self.bits, reset_less=True)
        m.d.comb += self.mean.eq(quotient ^ (1 << self.bits - 1))
        below = sum_ + (count << self.bits - 1)
        shifted = Cat(quotient[-1], rest)
        excess = shifted - count
        digits_left = Signal(range(self.bits + 1))
        with m.If(self.start):
            m.d.sync += [quotient.eq(below), rest.eq(below[self.bits :]), digits_left.eq(self.bits)]
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
