"""The array: ic_lanes x oc_lanes multipliers, their adder trees, and the accumulators behind them."""

from collections.abc import Iterable

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from dovetail.hw.array.operands import OPERAND, extended
from dovetail.hw.array.weights import weight_lanes
from dovetail.hw.common.clocking import delayed
from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import RADIX, tree_stages

SUM = 32
"""Bits of a sum. All sums of a stage are in one register: a simulator works on it as on a vector."""


def product_bits(config: Config) -> int:
    """Bits of a product: of two int8, or of two differences of int8 and zero point."""
    return 17 if config.matmul else 16


def _words(values: Signal) -> list[Value]:
    """Its parts of SUM bits."""
    return [values.word_select(n, SUM) for n in range(len(values) // SUM)]


class MultiplierArray(wiring.Component):
    """Multipliers and adder trees, a pipeline without stalls.

    Of each pixel lane, multiplier ``i * oc_lanes + o`` takes weight ``i * oc_lanes + o`` and input lane i, or in a
    depthwise convolution a tap of its own.

    Parameters
    ----------
    config
        The accelerator.
    operand
        OPERAND or WIDE_OPERAND.

    Members
    -------
    depthwise
        Multipliers take ``taps`` instead of ``inputs``; known three cycles before.
    taps
        A byte per multiplier, or where operands have SUM bits that byte as an operand, a cycle after ``inputs``.
    inputs
        Input lanes of every pixel lane, of at most 9 bits, sign-extended to ``operand`` bits.
    weights
        Operands of the multipliers of a pixel lane, or with DEPTH_CONV of each, ``OPERANDS`` cycles after ``inputs``.
    sums
        Per pixel lane and output lane, the sum over the input lanes, SUM bits, ``LATENCY`` cycles after ``inputs``.

    Latency
    -------
    Register stages: inputs as they come, inputs per multiplier, products, one per level of the tree, RADIX values each.
    For Verilator products and the first level are one stage, and the sums have one more.
    """

    OPERANDS = 2
    PRODUCT = OPERANDS + 1

    def __init__(self, config: Config, *, operand: int = OPERAND) -> None:
        self.config = config
        self.operand = operand
        self.tap = SUM if operand == SUM else 8
        self.lanes = config.pixel_lanes * config.ic_lanes
        self.LATENCY = self.PRODUCT + tree_stages(config)
        super().__init__(
            {
                "depthwise": In(1),
                "taps": In(self.tap * config.macs_per_cycle),
                "inputs": In(operand * self.lanes),
                "weights": In(operand * config.weight_bytes * weight_lanes(config)),
                "sums": Out(SUM * config.pixel_lanes * config.oc_lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operand = self.config, self.operand
        inputs = Signal(len(self.inputs), reset_less=True)
        m.d.sync += inputs.eq(self.inputs)
        spread = [n // config.oc_lanes for n in range(config.macs_per_cycle)]  # the input lane of each multiplier
        stages = tree_stages(config)
        if operand == SUM:
            values, terms, waits = self._first_level(m, inputs, spread), RADIX, min(stages, 1)
        else:
            values, terms, waits = self._registered_products(m, inputs, spread), 1, 0
        for stage in range(waits, stages):
            sums = self._level(values, terms)
            level = Signal(SUM * len(sums), name=f"sums_{stage}", reset_less=True)
            m.d.sync += level.eq(Cat(sums))
            values, terms = _words(level), terms * RADIX
        m.d.comb += self.sums.eq(delayed(m, "sums", Cat(values), waits, reset_less=True)[-1])
        return m

    def _registered_products(self, m: Module, inputs: Signal, spread: list[int]) -> list[Value]:
        """For an FPGA: each multiplier has a register for what it takes, and one for its product."""
        config, operand = self.config, self.operand
        values = Signal(SUM * config.macs_per_cycle, name="products_all", reset_less=True)
        if not config.depth_conv:
            shared = Signal.like(inputs)
            products = self._products(shared.word_select(n, operand) for n in spread)
            m.d.sync += [shared.eq(inputs), values.eq(Cat(products))]
        else:
            # Known long before the inputs. The register here keeps the path short.
            depthwise = Signal()
            m.d.sync += depthwise.eq(self.depthwise)
            own = Signal(operand * config.macs_per_cycle, reset_less=True)
            taps = Cat(extended(self.taps, n, operand) for n in range(config.macs_per_cycle))
            products = self._products(own.word_select(n, operand) for n in range(config.macs_per_cycle))
            m.d.sync += [
                own.eq(Mux(depthwise, taps, Cat(inputs.word_select(n, operand) for n in spread))),
                values.eq(Cat(products)),
            ]
        return _words(values)

    def _first_level(self, m: Module, inputs: Signal, spread: list[int]) -> list[Value]:
        """For Verilator: products are added as they are made, and the sums wait a cycle at the end. Products in a
        register would be written to memory and read again.

        Taps and inputs make sums of their own, between which there is a choice. One of what each multiplier takes would
        be a copy of an input lane for every output lane. Two more words are registered behind the sums: Verilator makes
        one number of the last two of a register, and g++ no part of a vector of that.
        """
        shared = Signal.like(inputs)
        m.d.sync += shared.eq(inputs)
        of_inputs = self._level(self._products(shared.word_select(n, SUM) for n in spread), 1)
        level = Signal(SUM * (len(of_inputs) + 2), name="sums_0", reset_less=True)
        if not self.config.depth_conv:
            m.d.sync += level.eq(Cat(of_inputs, shared))
        else:
            taps, depthwise, takes_taps = Signal.like(self.taps, reset_less=True), Signal(), Signal()
            m.d.sync += [depthwise.eq(self.depthwise), takes_taps.eq(depthwise)]
            with m.If(depthwise):
                m.d.sync += taps.eq(self.taps)
            with m.If(takes_taps):
                m.d.sync += level.eq(Cat(self._level(self._products(_words(taps)), 1), taps))
            with m.Else():
                m.d.sync += level.eq(Cat(of_inputs, shared))
        return _words(level)[:-2]

    def _products(self, factors: Iterable[Value]) -> list[Value]:
        """Per multiplier the product of its weight and its factor, SUM bits."""
        operand, weights = self.operand, len(self.weights) // self.operand
        products = []
        for n, x in enumerate(factors):
            w = self.weights.word_select(n % weights, operand)
            products.append((x * w if operand == SUM else x.as_signed() * w.as_signed())[:SUM])
        return products

    def _level(self, values: list[Value], terms: int) -> list[Value]:
        """A level of the trees: of each pixel lane and output lane, sums of up to RADIX values, each a sum of ``terms``
        products."""
        lanes, pixels = self.config.oc_lanes, self.config.pixel_lanes
        rows = len(values) // (pixels * lanes)
        return [
            self._sum([values[(pixel * rows + n) * lanes + lane] for n in range(row, min(row + RADIX, rows))], terms)
            for pixel in range(pixels)
            for row in range(0, rows, RADIX)
            for lane in range(lanes)
        ]

    def _sum(self, values: list[Value], terms: int) -> Value:
        """Sum of values, each a sum of ``terms`` products. On an FPGA only the bits that they have are worth adders and
        registers (what is never read goes); for Verilator whole words, modulo 2^SUM, are quicker."""
        total = values[0]
        if self.operand == SUM:
            for value in values[1:]:
                total = (total + value)[:SUM]
            return total
        bits = product_bits(self.config) + ceil_log2(terms)
        sums = [value[:bits] for value in values]
        if len(sums) > 1:
            sums = [self._plus(sums[n : n + 2]) for n in range(0, len(sums), 2)]
        while len(sums) > 1:
            sums = [self._plus_apart(sums[n : n + 2]) for n in range(0, len(sums), 2)]
        return (sums[0].as_signed() + Const(0, signed(SUM)))[:SUM]

    @staticmethod
    def _plus(values: list[Value]) -> Value:
        """Sum of one or two signed values, a bit wider than they are."""
        wider = [Cat(value, value[-1]) for value in values]
        return sum(wider, Const(0))[: len(wider[0])]

    @staticmethod
    def _plus_apart(values: list[Value]) -> Value:
        """The same of sums. Synthesis would make one sum of all, by carry-save adders, which take two LUTs a bit where
        a carry chain takes one. It does not see sums behind signs that are flipped, which makes them unsigned."""
        if len(values) == 1:
            return MultiplierArray._plus(values)
        one, other = (Cat(value[:-1], ~value[-1]) for value in values)
        return (Cat(one, Const(1, 1)) + other)[: len(one) + 1]


class Accumulator(wiring.Component):
    """Accumulators with a port that adds and one that reads: a row per group of pixels and buffer, an int32 per pixel
    and channel.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    valid, row, first
        Add to a row, or set it if ``first``.
    enters, leaves
        A visit of a row begins or ends. In a visit terms are added in consecutive cycles. From its end to the next
        visit of the row there are at least ACCUMULATE = 3 cycles.
    term, old
        What to add, SUM bits a channel, ``TERM`` cycles later: of each channel one of the two is zero.
    drain_row
        Row to read.
    drained
        The row, one cycle later. It has what was added to it with ``valid`` up to ``VISIBLE`` cycles before.

    Latency
    -------
    Row from memory, its register and that of what to add, addition and write.
    """

    TERM = 1
    VISIBLE = TERM + 2

    def __init__(self, config: Config, *, rows: int) -> None:
        self.config = config
        self.rows = rows
        super().__init__(
            {
                "valid": In(1),
                "row": In(range(rows)),
                "first": In(1),
                "enters": In(1),
                "leaves": In(1),
                "term": In(SUM * config.acc_lanes),
                "old": In(SUM * config.acc_lanes),
                "drain_row": In(range(rows)),
                "drained": Out(SUM * config.acc_lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = SUM * self.config.acc_lanes
        m.submodules.cells = cells = block_ram(width=width, depth=self.rows)
        write = cells.write_port()
        valid = delayed(m, "valid", self.valid, 2)
        row = delayed(m, "row", self.row, 2)
        first, enters = delayed(m, "first", self.first, 1), delayed(m, "enters", self.enters, 1)
        leaves = delayed(m, "leaves", self.leaves, 2)
        held, term, given = (Signal(width, name=name, reset_less=True) for name in ("held", "term_now", "old_now"))
        old = read_row(m, cells, name="old", addr=self.row, en=self.valid, platform=platform)
        sums = Signal(width)
        m.d.comb += sums.eq(
            Cat(
                (held.word_select(n, SUM) + (term.word_select(n, SUM) | given.word_select(n, SUM)))[:SUM]
                for n in range(self.config.acc_lanes)
            )
        )
        begins = Mux(first[1], 0, old)
        if self.config.weight_sets > 1:
            begins = Mux(enters[1], begins, sums)
        with m.If(valid[1]):
            m.d.sync += [held.eq(begins), term.eq(self.term), given.eq(self.old)]
        m.d.comb += [
            write.en.eq(valid[2] & leaves[2] if self.config.weight_sets > 1 else valid[2]),
            write.addr.eq(row[2]),
            write.data.eq(sums),
            self.drained.eq(read_row(m, cells, name="drain", addr=self.drain_row, platform=platform)),
        ]
        return m
