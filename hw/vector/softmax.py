"""SOFTMAX: the largest element of a row, the sum of its exponentials, and each one's share of it.

An exponential is a word of the table. In TFLITE it is an integer, its share the product with the reciprocal of the
sum, which takes three steps of Newton's method on the same multiplier. In ONNX it is a float32, its share the quotient
of its product with the levels and the sum, a bit per stage. A quotient's last bit is a half: rounding looks at what is
left. A quotient of more bits saturates.
"""

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.utils import exact_log2

from dovetail.hw.common.clocking import delayed
from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.hw.vector.stage import VectorStage
from dovetail.isa.instructions.checks import ROW_ELEMENTS
from dovetail.isa.instructions.table import INSTRUCTIONS, SOFTMAX, Op
from dovetail.isa.numerics.rounding import INT8_MAX, INT8_MIN, Rounding
from dovetail.isa.numerics.softmax import MAX_LEVELS
from dovetail.isa.timing.vector import table_lanes

LARGEST, SUM = range(2)
"""The passes; with the sum of a row come the shares of the row before it."""
WORD = 31
"""Bits of a table's word that count."""
MANTISSA = 24
EXPONENT = 9
"""Bits of a sum's exponent: one more than a float32 has, as sums have no largest one."""
QUOTIENT = 10
"""Bits of a share, the half included."""
LEVELS = MAX_LEVELS.bit_length()
FRACTION = MANTISSA + LEVELS + 1
"""Bits of what is divided."""
BEYOND = FRACTION - MANTISSA - QUOTIENT
"""Of these, those that no quotient has which does not saturate."""
FIRST, FIRST_STEP = 1515870810, -1010580540
"""Newton's method begins with 48 / 17 - 32 / 17 * x, with 29 fraction bits."""


class VectorSoftmax(VectorStage):
    """SOFTMAX. Parameters, members and latency are those of a :class:`~dovetail.hw.vector.stage.VectorStage`.

    Several rows at once are a step apart: block after block, row n's bytes come n steps after row 0's.
    """

    LATENCY = SOFTMAX.latency

    def elaborate(self, platform: object) -> Module:
        m = Module()
        row, count, lanes = self.row, self.config.softmax, self.config.vector_lanes
        flags = row.as_value()[: -len(row.counts)]
        results: list[tuple[Value, Value]] = []
        for number, shown in enumerate(delayed(m, "row", flags, count - 1)):
            m.submodules[f"row_{number}"] = one = SoftmaxRow(self.config)
            m.d.comb += [
                one.regs.eq(self.regs),
                one.operation.eq(self.operation),
                one.kind.eq(self.kind),
                one.fill.eq(self.fill),
                one.row.as_value()[: len(flags)].eq(shown),
            ]
            begins = Signal(name=f"begins_{number}")
            if count == 1:
                m.d.comb += [one.a.eq(self.a), one.row.counts.eq(row.counts)]
            else:
                # A block is there for a step.
                kept = Signal(len(self.a) + lanes, name=f"kept_{number}")
                now = Cat(self.a, row.counts)
                m.d.comb += begins.eq(one.row.lane == 0)
                with m.If(begins):
                    m.d.sync += kept.eq(now)
                m.d.comb += Cat(one.a, one.row.counts).eq(Mux(begins | self.fill, now, kept))
                with m.If((one.row.number == LARGEST) & ~begins):
                    m.d.comb += one.row.valid.eq(0)
            ends = delayed(m, f"ends_{number}", one.row.valid & (one.row.lane == lanes - 1), self.LATENCY)[-1]
            results.append((ends, one.result))
        *others, (_, value) = results
        for ends, result in others:
            value = Mux(ends, result, value)
        m.d.comb += self.result.eq(value)
        return m


class SoftmaxRow(VectorStage):
    """One row after another. Parameters, members and latency are those of a
    :class:`~dovetail.hw.vector.stage.VectorStage`.

    The waits of the instruction's passes are what the results of the pass before need: the largest element is there
    three cycles after its operands, and a sum's element uses it after one; a sum is there five cycles after its last
    element, the reciprocal 26 later, and a share uses them after four; the last share before them uses the divisor for
    twelve cycles more.
    """

    LATENCY = SOFTMAX.latency

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs, row = self.regs, self.row
        own = Signal()
        onnx = Signal()
        levels = Signal(LEVELS)
        m.d.sync += [
            own.eq(self.operation == int(Op.SOFTMAX)),
            onnx.eq(regs.MODE.rounding == Rounding.ONNX),
            levels.eq(regs.OUT_MULT.mult),
        ]

        def at(number: int) -> Value:
            return row.valid & own & (row.number == number)

        in_sum = delayed(m, "in_sum", at(SUM), 4)
        in_share = delayed(m, "in_share", row.valid & own & row.results, self.LATENCY - 1)
        first, last = delayed(m, "first", row.first, 4), delayed(m, "last", row.last, 4)

        counted = row.counts.bit_select(row.lane, 1)
        distance = self._distance(m, at(LARGEST))
        element = Cat(distance, delayed(m, "counted", counted, 2)[-1])
        before = self._row_before(m, element, in_sum[2], row.valid & own & (row.number != LARGEST), platform)
        word, share_word = self._words(m, (element, before), own, platform)

        # 4: the sum. A float's parts; zero has no one in front.
        total, total_mantissa, total_exponent = Signal(32), Signal(MANTISSA), Signal(EXPONENT)
        begins = first[4]
        floats = added(m, Mux(begins, 0, total_mantissa), Mux(begins, 1, total_exponent), *_parts(word))
        with m.If(in_sum[4]):
            m.d.sync += [
                total.eq(Mux(begins, 0, total) + word[12:] + word[11]),
                Cat(total_mantissa, total_exponent).eq(floats),
            ]

        # 4: what is multiplied. 5: parts of the product; the divisor, of which a sum of 0 is the least. 6: the product.
        product = Signal(64)
        newton = _Newton(m, in_sum[4] & last[4] & ~onnx, total, product)
        mantissa, exponent = _parts(share_word)
        divisor, divisor_exponent = Signal(MANTISSA), Signal(EXPONENT)
        reciprocal, zeros = Signal(WORD), Signal(5)
        with m.If(in_share[4] & begins):
            some = Cat(total_mantissa[0] | ~total_mantissa.any(), total_mantissa[1:])
            m.d.sync += [divisor.eq(Mux(onnx, some, 1)), divisor_exponent.eq(total_exponent)]
            m.d.sync += [reciprocal.eq(newton.reciprocal), zeros.eq(newton.zeros)]
        left, right = Signal(signed(32)), Signal(signed(32))
        m.d.comb += [
            left.eq(Mux(newton.runs, newton.left, Mux(onnx, mantissa, share_word))),
            right.eq(Mux(newton.runs, newton.right, Mux(onnx, levels, Mux(begins, newton.reciprocal, reciprocal)))),
        ]
        _multiply(m, left, right, Mux(onnx, 0, 1 << 30), product)

        # 7: what is divided, twice as large: ONNX, by the difference of the exponents; TFLITE, the share but for a bit.
        exponents = delayed(m, "exponent", exponent, 2)
        below = divisor_exponent - exponents[2]
        places = Signal(range(FRACTION + 1))
        m.d.comb += places.eq(Mux(onnx, Mux(below > FRACTION, FRACTION, below), FRACTION - BEYOND - zeros))
        doubled = Signal(FRACTION)
        m.d.comb += doubled.eq(Mux(onnx, product << 1, product[31:62]))
        wide = Cat(Const(0, FRACTION), doubled) >> places
        rest, bits, inexact, beyond = Signal(MANTISSA), Signal(QUOTIENT), Signal(), Signal(BEYOND)
        m.d.sync += [Cat(bits, rest, beyond).eq(wide[FRACTION:]), inexact.eq(wide[:FRACTION].any())]
        large = delayed(m, "large", beyond.any(), QUOTIENT)[-1]

        # 8 to 17: a bit of the quotient each. TFLITE divides by 1. A rest that is not below the divisor makes the first
        # bit 1, so that the share saturates, too.
        for n in range(8, 8 + QUOTIENT):
            more = Cat(bits[-1], rest)
            fits = more >= divisor
            following = Signal(MANTISSA + QUOTIENT + 1, name=f"divided_{n}", reset_less=True)
            m.d.sync += following.eq(Cat(inexact, fits, bits[:-1], Mux(fits, more - divisor, more)[:MANTISSA]))
            inexact, bits, rest = following[0], following[1 : 1 + QUOTIENT], following[1 + QUOTIENT :]

        # 18: rounding, ties to even in ONNX and up in TFLITE; the byte behind those of the lanes before it.
        up = bits[0] & (~onnx | inexact | rest.any() | bits[1])
        share = Signal(signed(12))
        m.d.comb += share.eq(bits[1:] + up + regs.QUANT.zero_out.as_signed())
        made = Signal(8 * self.config.vector_lanes)
        with m.If(in_share[-1]):
            m.d.sync += made.eq(Cat(made, Mux(large | (share > INT8_MAX), INT8_MAX, share[:8])[:8])[8:])
        m.d.comb += self.result.eq(made)
        return m

    def _distance(self, m: Module, compares: Value) -> Value:
        """Stage 2: how far an element is below the largest, 0 to 255."""
        row, lanes = self.row, self.config.vector_lanes
        # 1, 2: the largest of four lanes, and of four such. 3: the row's.
        values = [Mux(row.counts[i], self.a.word_select(i, 8).as_signed(), INT8_MIN) for i in range(lanes)]
        for stage in (1, 2):
            groups = [values[i : i + 4] for i in range(0, len(values), 4)]
            values = [Signal(signed(8), name=f"largest_{stage}_{i}") for i in range(len(groups))]
            m.d.sync += [value.eq(_largest(group)) for value, group in zip(values, groups, strict=True)]
        compared = delayed(m, "compared", Cat(compares, row.first), 2)[-1]
        top = Signal(signed(8))
        with m.If(compared[0]):
            m.d.sync += top.eq(Mux(compared[1], values[0], _largest([top, values[0]])))

        value, distance = Signal(8), Signal(8)
        m.d.sync += [value.eq(self.a.word_select(row.lane, 8)), distance.eq(top - value)]
        return distance

    def _row_before(self, m: Module, element: Value, keeps: Value, takes: Value, platform: object) -> Value:
        """Stage 2: an element of the row before, while one of this row takes its place."""
        m.submodules.elements = cells = block_ram(width=len(element), depth=ROW_ELEMENTS)
        place, following = Signal(range(ROW_ELEMENTS)), Signal(range(ROW_ELEMENTS))
        m.d.comb += place.eq(Mux(self.row.first, 0, following))
        with m.If(takes):
            m.d.sync += following.eq(place + 1)
        write = cells.write_port()
        m.d.comb += [
            write.addr.eq(delayed(m, "place", place, 2)[-1]),
            write.data.eq(element),
            write.en.eq(keeps),
        ]
        kept = read_row(m, cells, name="kept", addr=place, platform=platform)
        before = Signal(len(element), name="before")
        m.d.sync += before.eq(kept)
        return before

    def _words(self, m: Module, elements: tuple[Value, Value], own: Value, platform: object) -> list[Value]:
        """Stage 4: the table's words at distances, 0 of elements that do not count (bit 8)."""
        lanes = table_lanes(self.config)
        width = max(32, 8 * lanes)
        table_bytes = INSTRUCTIONS[Op.SOFTMAX].table_bytes
        m.submodules.table = cells = block_ram(width=width, depth=8 * table_bytes // width)
        parts = width // (8 * lanes)  # writes to a row
        place = Signal(range(table_bytes // lanes))  # back at 0 when the table is full
        write = cells.write_port(granularity=8 * lanes)
        fills = self.fill & own
        part = place[: exact_log2(parts)]
        m.d.comb += [
            write.addr.eq(place >> exact_log2(parts)),
            write.data.eq(self.a[: 8 * lanes].replicate(parts)),
            write.en.eq(Cat(fills & (part == n) for n in range(parts))),
        ]
        with m.If(fills):
            m.d.sync += place.eq(place + 1)
        words = exact_log2(width // 32)
        made = []
        for name, element in zip(("this", "before"), elements, strict=True):
            found = read_row(m, cells, name=f"found_{name}", addr=element[:8] >> words, platform=platform)
            which = Signal(words + 1, name=f"which_{name}")  # and whether it counts
            word = Signal(WORD, name=f"word_{name}")
            m.d.sync += [
                which.eq(Cat(element[:words], element[8])),
                word.eq(Mux(which[-1], found.word_select(which[:-1], 32), 0)),
            ]
            made.append(word)
        return made


class _Newton:
    """The reciprocal of a sum, by three steps of Newton's method, from the cycle after ``begins`` on.

    Members: ``left`` and ``right``, what is to be multiplied while it ``runs``; ``product`` is theirs two cycles later.
    In the end ``reciprocal``, with 31 fraction bits, of the sum without the ``zeros`` in front of it.
    """

    def __init__(self, m: Module, begins: Value, total: Value, product: Value) -> None:
        cycle = Signal(5)  # since the last element's operands; 0: none
        with m.If(begins):
            m.d.sync += cycle.eq(5)
        with m.Elif(cycle == 30):
            m.d.sync += cycle.eq(0)
        with m.Elif(cycle.any()):
            m.d.sync += cycle.eq(cycle + 1)

        # 5 to 9: the sum from its first one on, which is there even if the sum is 0.
        whole, self.zeros = Signal(32), Signal(5)
        for n, shift in enumerate((16, 8, 4, 2, 1)):
            here = total if n == 0 else whole
            some = here[32 - shift :].any()
            with m.If(cycle == 5 + n):
                m.d.sync += [whole.eq(Mux(some, here, here << shift)), self.zeros[4 - n].eq(~some)]
        half = Cat(whole[1:31], Const(1, 1))

        # 10: the first guess. 13, 19, 25: its product with the sum; 16, 22, 28: with what that lacks.
        guess, lacks = Signal(signed(32)), Signal(signed(32))
        rounded = product[31:63].as_signed()
        self.runs = Signal()
        self.left, self.right = Signal(signed(32), name="newton_left"), Signal(signed(32), name="newton_right")
        m.d.comb += [self.runs.eq(cycle >= 10), self.left.eq(half), self.right.eq(guess)]
        with m.Switch(cycle):
            with m.Case(10):
                m.d.comb += self.right.eq(FIRST_STEP)
            with m.Case(12):
                m.d.sync += guess.eq(FIRST + rounded)
            with m.Case(15, 21, 27):
                m.d.sync += lacks.eq((1 << 29) - rounded)
            with m.Case(16, 22, 28):
                m.d.comb += [self.left.eq(guess), self.right.eq(lacks)]
            with m.Case(18, 24, 30):
                m.d.sync += guess.eq(guess + (rounded << 2))
        self.reciprocal = Mux(guess[30], (1 << 31) - 1, guess[:30] << 1)


def _parts(word: Value) -> tuple[Value, Value]:
    """Mantissa and exponent of a float; what has the smallest exponent has no one in front."""
    normal = word[23:].any()
    return Cat(word[:23], normal), Mux(normal, word[23:], 1)


def _largest(values: list[Value]) -> Value:
    first, *others = values
    for other in others:
        first = Mux(other > first, other, first)
    return first


def _multiply(m: Module, left: Value, right: Value, addend: Value, product: Value) -> None:
    """``product`` is that of two int32 two cycles ago, and ``addend``."""
    halves = [(Cat(value[:16], Const(0, 1)).as_signed(), value[16:].as_signed()) for value in (left, right)]
    parts = []
    for i, a in enumerate(halves[0]):
        for j, b in enumerate(halves[1]):
            part = Signal(signed(34), name=f"part_{i}{j}")
            m.d.sync += part.eq(a * b)
            parts.append(part)
    low, *middle, high = parts
    m.d.sync += product.eq((high << 32) + ((middle[0] + middle[1]) << 16) + low + addend)


def added(m: Module, mantissa: Value, exponent: Value, other: Value, other_exponent: Value) -> Value:
    """Mantissa, 24 bits, and exponent of the sum of two floats that are not negative, rounded to the nearest, ties to
    even. What has the smallest exponent may have no one in front."""
    less = Signal(name="less")
    ahead, behind = exponent - other_exponent, other_exponent - exponent
    places = Signal(5)
    large, small = Signal(MANTISSA), Signal(MANTISSA)
    distance = Mux(less, behind, ahead)[:EXPONENT]
    m.d.comb += [
        less.eq(exponent < other_exponent),
        places.eq(Mux(distance > 31, 31, distance)),
        large.eq(Mux(less, other, mantissa)),
        small.eq(Mux(less, mantissa, other)),
    ]
    # The smaller one with a bit of fraction, behind which only matters whether there is something.
    wide = (Cat(Const(0, 31), small) >> places)[: 31 + MANTISSA]
    lost = wide[:30].any()
    total = Signal(MANTISSA + 2)
    m.d.comb += total.eq(Cat(Const(0, 1), large) + wide[30:])
    carry = total[-1]
    kept = Mux(carry, total[2:], total[1:-1])
    half, rest = Mux(carry, total[1], total[0]), lost | carry & total[0]
    rounded = Signal(MANTISSA + 1)
    m.d.comb += rounded.eq(kept + (half & (rest | kept[0])))
    result = Signal(MANTISSA + EXPONENT)
    up = rounded[-1]
    m.d.comb += result.eq(
        Cat(Mux(up, rounded[1:], rounded[:-1]), (Mux(less, other_exponent, exponent) + carry + up)[:EXPONENT])
    )
    return result
