"""Registers of the array unit, the checks of an operation and the banks it claims."""

from functools import reduce
from operator import or_

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.utils import exact_log2

from dovetail.hw.common.ports import Check
from dovetail.hw.common.regions import Region, hold_registers, is_any, register_layout
from dovetail.isa.config.given import MAX_LANES
from dovetail.isa.config.resolved import COLUMN_TAPS, RESULT_STEPS, ROW_KERNELS, ROW_STEPS, Config
from dovetail.isa.instructions.checks import MAX_SLIDE, built, longest_line
from dovetail.isa.instructions.table import Cause, Unit
from dovetail.isa.timing.depthwise import WORDS_OF_COLUMNS
from dovetail.isa.timing.sequencer import CHECK

MULTIPLIERS = 8
"""Channel multipliers that MODE.extra can hold, from 1 on."""

WIDE = 3
"""In place of a power of two: a word has two columns that fill the pixel lanes, and each pixel begins in its own."""

ARRAY_REGISTERS = register_layout(Unit.ARRAY)
"""The array unit's registers by name, packed into one word: a simulator then holds them in one variable."""


def most_visits(config: Config) -> int:
    """Rows of accumulators per pixel of a depthwise convolution, at most."""
    return config.depthwise_visits(config.depthwise_sets)


class ArrayOperation(wiring.Signature):
    """What the array's blocks must know of an operation, constant from a cycle after its start until the next one.

    Members
    -------
    regs
        :data:`ARRAY_REGISTERS`.
    depthwise, matrix, clamps
        The operation is depthwise; it takes the weights from a matrix; it clamps to QUANT.lo and QUANT.hi.
    pixels
        Output pixels.
    channels
        Output channels of a block.
    inputs
        Of a depthwise convolution, input channels of a block.
    sets
        Weight sets of a block of a depthwise convolution; 1 of others.
    visits
        Rows of accumulators per pixel of a depthwise convolution: so many visits for its sets.
    taps
        Taps that a depthwise convolution takes at once.
    words
        Words of the input that hold those of a kernel row.
    rows_apart
        Kernel columns of a depthwise convolution that takes several kernel rows at once; 0 of others.
    rows
        Words of a weight set.
    slides
        The pixels of a depthwise convolution share words.
    columns
        Columns of the input that a word of a depthwise convolution has, as a power of two; WIDE: two of one pixel.
    pairs
        A read has the input of two pixels.
    apart
        If the results of two pixels leave together, the blocks of output channels from one to the next; else 0. Only
        where there are requantiser lanes for that (``Config.result_pairs``).
    load
        Pulse in the first of these cycles: take the starting values. At least two cycles before the operation works.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "regs": Out(ARRAY_REGISTERS),
                "depthwise": Out(1),
                "matrix": Out(1),
                "clamps": Out(1),
                "pixels": Out(32),
                "channels": Out(range(MAX_LANES + 1)),
                "inputs": Out(range(MAX_LANES + 1)),
                "sets": Out(range(config.most_sets + 1)),
                "visits": Out(range(most_visits(config) + 1)),
                "taps": Out(range(config.ic_lanes + 1)),
                "words": Out(range(max(config.ic_lanes, WORDS_OF_COLUMNS) + 1)),
                "rows_apart": Out(range(ROW_KERNELS[-1] + 1)),
                "rows": Out(range(config.weight_rows + 1)),
                "slides": Out(1),
                "columns": Out(2),
                "pairs": Out(1),
                **({"apart": Out(range(RESULT_STEPS + 1))} if config.result_pairs else {}),
                "load": Out(1),
            }
        )


class ArrayRegisters(wiring.Component):
    """Registers and checks of the array unit.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    cfg .. target
        See :class:`~dovetail.hw.common.ports.Check`.
    operation
        What the other blocks must know of it.
    streams
        Banks whose read port is for weights and matrix; of the others that the operation reads it is for the input.
    awake
        Something is about to change.

    Latency
    -------
    ``cause`` and ``streams`` are valid CHECK = 3 cycles after ``start``, until the next one; ``reads``, ``writes``,
    ``sources`` and ``target`` are a cycle earlier.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                **Check(config).flip().members,
                "operation": Out(ArrayOperation(config)),
                "streams": Out(config.banks),
                "awake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        operation, regs = self.operation, self.operation.regs
        rows = built(config, Unit.ARRAY)
        assert CHECK == 3, "sums, comparisons, decision: one cycle each"

        hold_registers(m, self.cfg, Unit.ARRAY, regs)

        depthwise, matrix = Signal(), Signal()
        compare, decide = Signal(), Signal()
        m.d.comb += [
            depthwise.eq(is_any(self.op, [row for row in rows if row.depthwise])),
            matrix.eq(is_any(self.op, [row for row in rows if row.matrix])),
            operation.load.eq(compare),
            self.awake.eq(self.cfg.clear | self.cfg.due | self.start | compare | decide),
        ]
        m.d.sync += [compare.eq(self.start), decide.eq(compare)]

        # Channels of a block: with a channel multiplier, whole input channels.
        channels, inputs = Signal.like(operation.channels), Signal.like(operation.inputs)
        sets, taps = Signal.like(operation.sets, init=1), Signal.like(operation.taps, init=1)
        visits = Signal.like(operation.visits, init=1)
        set_rows = Signal.like(operation.rows)
        most_sets = Signal.like(operation.sets)
        most_pixels = Signal(range(config.stripe + 1))  # of a stripe
        m.d.comb += [
            channels.eq(config.oc_lanes),
            sets.eq(1),
            visits.eq(1),
            set_rows.eq(config.weight_rows),
            most_sets.eq(config.weight_sets),
            most_pixels.eq(config.stripe),
        ]
        slides, columns = Signal(), Signal.like(operation.columns)
        words, rows_apart = Signal.like(operation.words), Signal.like(operation.rows_apart)
        if config.depth_conv:
            kw = regs.GEOMETRY.kw
            across = Mux(kw < config.ic_lanes, kw, config.ic_lanes)
            m.d.comb += [taps.eq(across), words.eq(across), slides.eq(regs.MODE.slide.any())]
            with m.Switch(regs.MODE.rows):
                for more in range(1, config.kernel_rows):
                    with m.Case(more):
                        # By adders: a product would take a multiplier of the FPGA.
                        m.d.comb += [taps.eq(sum([across] * more, across)), rows_apart.eq(kw)]
            with m.If(depthwise):
                m.d.comb += sets.eq(regs.KC.group + 1)
                with m.Switch(taps):
                    for n in range(1, config.ic_lanes + 1):
                        with m.Case(n):
                            m.d.comb += set_rows.eq(config.depthwise_rows(n))
                with m.Switch(regs.KC.group):
                    for n in range(1, config.depthwise_sets + 1):
                        of_pixel = config.depthwise_visits(n)
                        with m.Case(n - 1):
                            m.d.comb += [visits.eq(of_pixel), most_pixels.eq(config.depthwise_pixels(n))]
                with m.Switch(regs.MODE.extra):
                    with m.Case(0):
                        whole = config.oc_lanes * (regs.KC.group + 1)
                        m.d.comb += [channels.eq(whole), inputs.eq(whole), most_sets.eq(config.depthwise_sets)]
                    for multiplier in range(2, config.oc_lanes + 1)[: MULTIPLIERS - 1]:
                        with m.Case(multiplier - 1):
                            whole = config.oc_lanes // multiplier
                            m.d.comb += [channels.eq(whole * multiplier), inputs.eq(whole), most_sets.eq(1)]
                    if config.oc_lanes < MULTIPLIERS:
                        with m.Default():
                            m.d.comb += [channels.eq(0), most_sets.eq(0)]
                with m.If(regs.MODE.slide > MAX_SLIDE):
                    m.d.comb += most_sets.eq(0)
                if config.pixel_lanes > 1:
                    wide = (config.acc_lanes != regs.KX_STEP) & regs.MODE.columns.any()
                    m.d.comb += columns.eq(Mux(wide, WIDE, regs.MODE.columns))
                    with m.If(regs.MODE.columns.any()):
                        m.d.comb += [
                            most_sets.eq(Mux(self._has_columns(), config.pixel_lanes, 0)),
                            words.eq(WORDS_OF_COLUMNS),
                        ]
                with m.If(~self._has_rows()):
                    m.d.comb += most_sets.eq(0)
        pairs = Signal()
        if config.pixel_lanes > 1:
            parted = regs.TILE.width[0] | regs.STRIPE.pixels[0] | regs.MODE.accumulate
            m.d.comb += pairs.eq(regs.MODE.pairs & ~depthwise)
            with m.If(pairs):
                m.d.comb += most_sets.eq(Mux(parted | (config.pair_step < regs.X_STEP), 0, config.pair_sets))

        # 1: ends of the regions; sizes and their limits.
        regions = {name: Region(config, regs, name) for name in ("IN", "W", *["B"] * config.matmul, "OUT")}
        *read, output = regions.values()
        present = [1] * len(regions)  # whether the operation has the region
        if config.matmul:
            present[-2] = operation.matrix
        zero, large, misaligned = Signal(), Signal(), Signal()
        sets_limit, pixels_limit = Signal.like(most_sets), Signal.like(most_pixels)
        sizes: list[Value] = [
            *(region.size.any() for name, region in regions.items() if name != "B"),
            *(region.size.any() | ~matrix for name, region in regions.items() if name == "B"),
            regs.GEOMETRY.kh.any(),
            regs.GEOMETRY.kw.any(),
            regs.TILE.height.any(),
            regs.TILE.width.any(),
            regs.BLOCKS.count.any(),
            regs.BLOCKS.last.any(),
            regs.STRIPE.pixels.any(),
            regs.KC.blocks.any() | depthwise,
        ]
        low = exact_log2(config.word_bytes)
        with m.If(self.start):
            m.d.sync += [
                *(region.end.eq(region.sum()) for region in regions.values()),
                operation.depthwise.eq(depthwise),
                operation.matrix.eq(matrix),
                operation.channels.eq(channels),
                operation.inputs.eq(inputs),
                operation.sets.eq(sets),
                operation.visits.eq(visits),
                operation.taps.eq(taps),
                operation.words.eq(words),
                operation.rows_apart.eq(rows_apart),
                operation.rows.eq(set_rows),
                operation.slides.eq(slides),
                operation.columns.eq(columns),
                operation.pairs.eq(pairs),
                operation.clamps.eq(~is_any(self.op, [row for row in rows if row.full_range])),
                operation.pixels.eq(regs.TILE.height * regs.TILE.width),
                *([operation.apart.eq(self._apart(pairs))] if config.result_pairs else []),
                sets_limit.eq(most_sets),
                pixels_limit.eq(most_pixels),
                zero.eq(~Cat(sizes).all()),
                misaligned.eq(regs.W_ADDR[:low].any() | regs.W_BYTES[:low].any()),
            ]

        # 2: comparisons and banks.
        outside, overlaps = Signal(), Signal()
        with m.If(compare):
            m.d.sync += [
                *(region.touched() for region in regions.values()),
                large.eq(
                    (regs.BLOCKS.last > operation.channels)
                    | (regs.STRIPE.pixels > pixels_limit)
                    | (regs.KC.group >= sets_limit)
                ),
                outside.eq(
                    Cat(region.outside() & has for region, has in zip(regions.values(), present, strict=True)).any()
                ),
                overlaps.eq(
                    Cat(region.overlaps(output) & has for region, has in zip(read, present, strict=False)).any()
                ),
            ]
        m.d.comb += output.show(self.target)
        for region, source, has in zip(read, self.sources, present, strict=False):
            m.d.comb += region.show(source, has)

        # 3: the decision.
        old = regs.MODE.accumulate.replicate(config.banks)
        banks = {name: region.banks for name, region in regions.items()}
        streams, others = Signal(config.banks), Signal(config.banks)
        m.d.comb += [streams.eq(banks["W"]), others.eq(banks["IN"] | banks["OUT"] & old)]
        if config.matmul:
            with m.If(operation.matrix):
                m.d.comb += streams.eq(banks["W"] | banks["B"])
        m.d.comb += [self.reads.eq(streams | others), self.writes.eq(output.banks)]
        twice = (streams & others).any()
        with m.If(decide):
            m.d.sync += self.streams.eq(streams)
            for failed, cause in (
                (1, Cause.NONE),
                (twice | overlaps, Cause.BANK_CONFLICT),
                (outside, Cause.SRAM_RANGE),
                (misaligned, Cause.ALIGNMENT),
                (large, Cause.TOO_LARGE),
                (zero, Cause.ZERO_SIZE),
            ):
                with m.If(failed):
                    m.d.sync += self.cause.eq(cause)
        return m

    def _apart(self, pairs: Value) -> Value:
        """Blocks of output channels from a pixel's results to those that leave with them; 0: none does."""
        regs, config = self.operation.regs, self.config
        together = pairs & ~regs.MODE.int32
        of = [Mux(n * config.oc_lanes == regs.OUT_X_STEP, n, 0) for n in range(1, RESULT_STEPS + 1)]
        return Mux(together, reduce(or_, of), 0)

    def _has_rows(self) -> Value:
        """Whether the kernel rows of a step can be together, see `isa.instructions.checks`."""
        config, regs = self.config, self.operation.regs
        mode, kw, width = regs.MODE, regs.GEOMETRY.kw, regs.TILE.width
        alone = ~(mode.rows | mode.skip | mode.chain).any()
        if config.kernel_rows == 1:
            return alone
        fits = Cat(
            (mode.rows == more) & (kw == columns)
            for more in range(1, config.kernel_rows)
            for columns in config.row_kernels(more + 1)
        ).any()
        together = Cat(
            fits,
            mode.slide.any(),
            ~mode.accumulate,
            mode.extra == 0,
            regs.GEOMETRY.kh <= ROW_STEPS,
            width <= regs.STRIPE.pixels,
            (mode.slide == 1) | (width <= longest_line(config, MAX_SLIDE)),
        )
        return alone | together.all()

    def _has_columns(self) -> Value:
        """Whether a word can have columns beside each other: they fill it, and each pixel begins in the next word."""
        config, regs = self.config, self.operation.regs
        if config.word_columns == 1:
            return Const(0)
        full = config.acc_lanes == regs.KX_STEP
        if config.has_wide_words:
            full |= (2 * config.acc_lanes == regs.KX_STEP) & (regs.MODE.columns == 1)
        return Cat(
            regs.MODE.columns <= exact_log2(config.word_columns),
            full,
            regs.MODE.slide == 1,
            regs.MODE.extra == 0,
            regs.KC.group == config.pixel_lanes - 1,
            regs.GEOMETRY.kw == COLUMN_TAPS,
        ).all()
