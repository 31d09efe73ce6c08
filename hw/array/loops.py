"""The array's loops: which pixel meets which weights in which cycle."""

from amaranth import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.array.depthwise import WordPass
from dovetail.hw.array.passing import PixelPass, WeightLoads, pixel_bits, records_at_most
from dovetail.hw.array.registers import ArrayOperation
from dovetail.hw.common.clocking import gate_clock
from dovetail.hw.common.walk import PARTS, PixelWalk, Place, Position, count_loops
from dovetail.isa.common.sizes import INT32_BYTES, ceil_div
from dovetail.isa.config.given import MAX_LANES, MAX_STRIPE, PIXEL_LANES
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import ACCUMULATE, matrix_reads


class Stripe(data.Struct):
    """A stripe, for the drain: ``pixels`` less one, ``channels``, the number of its ``block`` modulo that of buffers,
    which selects the records; whether it is the last stripe of the block, and of the operation."""

    pixels: unsigned((MAX_STRIPE * PIXEL_LANES[-1] - 1).bit_length())
    channels: unsigned(MAX_LANES.bit_length())
    block: unsigned(2)
    ends_block: unsigned(1)
    ends: unsigned(1)


class Step(data.Struct):
    """What happens in one cycle of the time that a group of ``pixel_lanes`` pixels has .

    ``index`` counts these cycles. With ``reads`` the pixel of that number is read; with ``valid`` the pixels, when all
    are there, meet the weights of the input block of that number. ``old``: word ``word`` of the pixel's old int32
    values is added as it comes, and there are no products. ``group`` and ``turn`` select the accumulators, in a visit
    from ``enters`` to ``leaves``; with ``first`` they start from zero. ``swap``: the next weights are used from here
    on.

    In a depthwise convolution a word is read. With ``token`` those of a group of pixels are all there, or on their way;
    it ``enters`` if it is the window's first group, and is ``valid`` if the line has results. ``swap`` comes with the
    window's first cycle."""

    valid: unsigned(1)
    reads: unsigned(1)
    old: unsigned(1)
    first: unsigned(1)
    swap: unsigned(1)
    enters: unsigned(1)
    leaves: unsigned(1)
    token: unsigned(1)
    turn: unsigned(2)
    group: unsigned(6)
    index: unsigned(4)
    word: unsigned(5)


class Load(data.Struct):
    """A read of the weight stream or of a matrix: the next ``weights``, or the next ``record``. ``begin`` comes with
    the first read of a window and moves the read position: with ``again`` to the first weights of the block, with
    ``onward`` to those of the next block. With ``enter`` the records of the next block follow. ``further``: weights of
    another input block begin in the same window. ``completes``: they are the last ones of an input block."""

    weights: unsigned(1)
    record: unsigned(1)
    begin: unsigned(1)
    further: unsigned(1)
    completes: unsigned(1)
    again: unsigned(1)
    onward: unsigned(1)
    enter: unsigned(1)


def reads_at_most(config: Config) -> int:
    """Reads of weights per input block, at most."""
    matrix = [matrix_reads(config, transposed=transposed) for transposed in (False, True)] if config.matmul else []
    return max(config.weight_rows, *matrix, 1)


class TapWalk(wiring.Component):
    """Walks over the steps (ky, kx, group of input blocks) of a stripe, again and again.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    operation
        The operation; its ``load`` goes to the first step of the first block.
    advance
        Pulse: go to the next step; at least 3 cycles after ``load`` and the last one.
    onward
        From the ``last`` one ``advance`` goes to the next block of output channels. To be right from the cycle before
        ``advance`` on.
    last
        The step is the last of its stripe.
    blocks, following
        Input blocks of the step, and of the next one. Two cycles after ``advance``.
    tap
        Where the tap is, relative to an output pixel's place in the input. Two cycles after ``advance``.
    awake
        A register of the block may change at the end of the cycle.
    """

    SETTLES = 8
    """Cycles after ``load`` and ``advance`` in which registers may change: these and those of ``onward``, what follows
    from them, and a few to spare."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "operation": In(ArrayOperation(config)),
                "advance": In(1),
                "onward": In(1),
                "last": Out(1),
                "blocks": Out(range(config.most_sets + 1)),
                "following": Out(range(config.most_sets + 1)),
                "tap": Out(Position(config)),
                "awake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operation, regs = self.config, self.operation, self.operation.regs
        settling, moves = Signal(self.SETTLES), operation.load | self.advance
        m.d.sync += settling.eq(Cat(moves, settling))
        m.d.comb += self.awake.eq(moves | settling.any())
        blocks: Value = regs.KC.blocks
        column, columns = regs.KX_STEP, regs.GEOMETRY.kw
        if config.depth_conv:  # a step takes several taps of a kernel row
            blocks = Mux(operation.depthwise, 1, blocks)
            columns = Mux(operation.depthwise, _quotient(columns, config.ic_lanes), columns)
            column = Signal(config.offset_bits, reset_less=True)
            m.d.sync += column.eq(Mux(operation.depthwise, _times(regs.KX_STEP, config.ic_lanes), regs.KX_STEP))
        counts = {"kx": columns, "ky": regs.GEOMETRY.kh}
        group: Value | int = config.ic_lanes  # bytes
        if config.weight_sets == 1:
            level, ends = count_loops(m, {"channels": blocks, **counts}, load=operation.load, step=self.advance)
            m.d.comb += [self.blocks.eq(1), self.following.eq(1)]
        else:
            group = Signal(range(config.weight_sets * config.ic_lanes + 1))
            m.d.sync += group.eq((regs.KC.group + 1) * config.ic_lanes)
            last = self._count_blocks(m, blocks, regs.KC.group + 1)
            outer, inner = count_loops(m, counts, load=operation.load, step=self.advance & last)
            level = {"channels": ~last, **{loop: last & advances for loop, advances in outer.items()}}
            ends = {"channels": last, **{loop: last & end for loop, end in inner.items()}}
        level["stripe"] = ends["ky"]
        m.d.comb += self.last.eq(ends["ky"])

        # The next depthwise block reads other channels. The next place takes two cycles to compute: the first selects
        # base and step, the second adds them. Which places move is decided a cycle before they do.
        shift = Mux(self.onward & operation.depthwise, operation.inputs, 0)
        steps: dict[str, tuple[Value | int, ...]] = {
            "off": (group, column, regs.KY_STEP, shift),
            "col": (group, column, 0, shift),
            "row": (0, 0, regs.GEOMETRY.dilation_y, 0),
        }
        first = {"off": regs.ORIGIN, "col": -regs.PAD_LEFT, "row": -regs.PAD_TOP}
        loaded, advanced = Signal(), Signal()
        moving = {loop: Signal(name=f"moves_{loop}") for loop in level}
        m.d.sync += [loaded.eq(operation.load), advanced.eq(self.advance)]
        m.d.sync += [moving[loop].eq(advances) for loop, advances in level.items()]
        for part in PARTS:
            place = Place(part, dict(zip(level, steps[part], strict=True)), width=config.offset_bits)
            base, step, following = (
                Signal(config.offset_bits, name=f"{part}_{name}", reset_less=True) for name in ("base", "step", "next")
            )
            m.d.sync += [base.eq(place.base(level)), step.eq(place.step(level)), following.eq(base + step)]
            with m.If(loaded):
                m.d.sync += place.begin(first[part])
            with m.Elif(advanced):
                place.move(m, moving, following)
            m.d.comb += self.tap[part].eq(place.here)
        return m

    def _count_blocks(self, m: Module, blocks: Value, group: Value) -> Value:
        """Counts the input blocks of a tap, ``group`` in a step; returns whether the step is the tap's last."""
        left = Signal(16, reset_less=True)
        last, only = Signal(reset_less=True), Signal(reset_less=True)  # `left`, and `blocks`, are no more than a group
        begins = Signal.like(self.blocks)  # blocks of a tap's first step
        m.d.sync += [
            only.eq(blocks <= group),
            begins.eq(Mux(blocks <= group, blocks, group)),
            self.blocks.eq(Mux(last & ~self.operation.depthwise, left, group)),
            self.following.eq(Mux(last, begins, Mux(left <= group << 1, left - group, group))),
        ]
        with m.If(self.operation.depthwise):
            m.d.sync += self.following.eq(group)
        with m.If(self.operation.load):
            m.d.sync += [left.eq(blocks), last.eq(blocks <= group)]
        with m.Elif(self.advance):
            m.d.sync += [left.eq(Mux(last, blocks, left - group)), last.eq(Mux(last, only, left <= group << 1))]
        return last


def _times(value: Value, factor: int) -> Value:
    """A value times a constant, by adders: as a product it would take a multiplier of the FPGA."""
    total: Value = Const(0)
    for bit in range(factor.bit_length()):
        if factor >> bit & 1:
            total = total + (value << bit)
    return total


def _quotient(count: Value, divisor: int) -> Value:
    """A count of 8 bits over a constant, rounded up."""
    bits = 9 + divisor.bit_length()
    return (((count + (divisor - 1)) * ceil_div(1 << bits, divisor)) >> bits)[:8]


class ArrayLoops(wiring.Component):
    """Walks over blocks, stripes, and steps (ky, kx, input block) of a stripe.

    Time is cut into *windows*. In a window the pixels of one step pass, ``pixel_lanes`` together, while the weights of
    the following step load, the first window apart, which only loads. Such a group of pixels takes a cycle for each
    pixel or each input block of the step, whichever are more: see :class:`Step`. The next window follows at once when
    all that is done and the accumulators can be visited again (ACCUMULATE); before a stripe it waits for its
    accumulator buffer. Records of a block load in the window of its first step; so the first line of a block waits for
    a buffer even where it has no results, as only then the records that these replace have been used. With
    ``accumulate``, windows in which old values pass go before the steps of a stripe.

    Parameters
    ----------
    config
        The accelerator.
    simulation
        For Verilator: the clocks of blocks that rest are gated (:mod:`dovetail.hw.common.clocking`).

    Members
    -------
    operation
        The operation.
    go
        Pulse: the first window begins in the next cycle.
    step, pixel, tap
        What passes in this cycle, and where in the input (or the output, for old values): the sum of the two places.
    fetch
        What loads in this cycle.
    filled
        Pulse in the last cycle of a stripe's last window.
    stripes
        Of the two buffers.
    freed
        Pulse: the drain has taken the last accumulators of a stripe.
    settled
        Pulse: reads from the next window on see what it wrote.
    """

    def __init__(self, config: Config, *, simulation: bool = False) -> None:
        self.config = config
        self.simulation = simulation
        super().__init__(
            {
                "operation": In(ArrayOperation(config)),
                "go": In(1),
                "step": Out(Step),
                "pixel": Out(Position(config)),
                "tap": Out(Position(config)),
                "fetch": Out(Load),
                "filled": Out(1),
                "stripes": Out(data.ArrayLayout(Stripe, config.stripe_buffers)),
                "freed": In(1),
                "settled": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operation, regs = self.config, self.operation, self.operation.regs
        buffers, accumulate = config.stripe_buffers, regs.MODE.accumulate
        rows: Value | int = operation.rows
        if config.matmul:
            reads = Signal(range(reads_at_most(config) + 1))
            by_row, by_column = (matrix_reads(config, transposed=transposed) for transposed in (False, True))
            with m.If(operation.load):
                m.d.sync += reads.eq(Mux(operation.matrix, Mux(regs.B_FORM.transposed, by_column, by_row), rows))
            rows = reads
        words = ceil_div(INT32_BYTES * config.oc_lanes, config.word_bytes)
        lanes = Signal(range(records_at_most(config) + 1))
        m.d.sync += lanes.eq(config.oc_lanes // config.records_at_once * operation.sets)

        # The step whose weights load: one ahead of the one whose pixels pass. It advances in a window's first cycle,
        # and all its values are known two cycles later.
        assert ACCUMULATE >= 3
        advance = Signal()
        live = Signal()
        last_step, first_step, first_stripe = Signal(), Signal(), Signal()
        last_stripe, last_block = Signal(), Signal()
        taps = TapWalk(config)
        m.submodules.taps = gate_clock(m, taps, awake=taps.awake, name="array_taps", simulation=self.simulation)
        wiring.connect(m, wiring.flipped(operation), taps.operation)
        m.d.comb += [taps.advance.eq(advance), taps.onward.eq(last_stripe)]

        # A stripe of a depthwise convolution lies within a row of pixels: a line. Others have all pixels in one.
        left, blocks = Signal(32), Signal(16)
        turn, block = Signal(range(buffers)), Signal(range(buffers))  # of the stripe, and of its block
        line = Mux(operation.depthwise, regs.TILE.width, operation.pixels) if config.depth_conv else operation.pixels
        last_line, ends_line = Signal(init=1), Signal()
        dry, dry_now = Signal(), Signal()  # the line has no results: that of the step, and of the window under way
        if config.depth_conv:
            lines = Signal(16)
            with m.If(operation.load):
                m.d.sync += lines.eq(regs.TILE.height)
            with m.Elif(advance & last_step & ends_line & ~dry):
                m.d.sync += lines.eq(Mux(last_line, regs.TILE.height, lines - 1))
            m.d.comb += last_line.eq(~operation.depthwise | (lines == 1) & ~dry)
        if config.kernel_rows > 1:
            dry_left = Signal.like(regs.MODE.rows)  # dry lines up to the next one with results
            with m.If(operation.load):
                m.d.sync += dry_left.eq(Mux(operation.depthwise, regs.MODE.rows, 0))
            with m.Elif(advance & last_step & operation.depthwise):
                following = Mux(last_line, regs.MODE.rows, regs.MODE.skip)
                m.d.sync += dry_left.eq(Mux(dry, dry_left - 1, following))
            m.d.comb += dry.eq(dry_left.any())
        pixels_last = Signal(pixel_bits(config))
        old_off = Signal(config.offset_bits)
        m.d.sync += [
            ends_line.eq(left <= regs.STRIPE.pixels),
            last_stripe.eq((left <= regs.STRIPE.pixels) & last_line),
            pixels_last.eq(Mux(left <= regs.STRIPE.pixels, left, regs.STRIPE.pixels) - 1),
            last_step.eq(taps.last),
            last_block.eq(blocks == 1),
        ]
        again, onward = Signal(), Signal()
        m.d.comb += [
            again.eq(last_step & ~last_stripe),
            onward.eq(last_step & last_stripe),
        ]
        with m.If(operation.load):
            m.d.sync += [
                left.eq(line),
                blocks.eq(regs.BLOCKS.count),
                block.eq(0),
                old_off.eq(0),
                first_step.eq(1),
                first_stripe.eq(1),
            ]
        with m.Elif(advance):
            m.d.sync += first_step.eq(last_step)
            with m.If(last_step):
                m.d.sync += first_stripe.eq(last_stripe)
            with m.If(again):
                m.d.sync += left.eq(Mux(ends_line, line, left - regs.STRIPE.pixels))
            with m.If(onward):
                m.d.sync += [
                    left.eq(line),
                    blocks.eq(blocks - 1),
                    block.eq(block + 1),
                    old_off.eq(old_off + (operation.channels << INT32_BYTES.bit_length() - 1)),
                ]

        # Windows.
        words_passed = Signal(init=1)
        m.submodules.passing = passing = PixelPass(config)
        m.submodules.loads = loads = WeightLoads(config, most=reads_at_most(config))
        open_, closes, opens = Signal(), Signal(), Signal()
        passes = Signal()  # the window has a step
        old, word = Signal(), Signal(5)
        old_more = Signal()  # another word of old values follows
        first, last = Signal(), Signal()
        at_end = Signal()  # last stripe of the block
        begins, leaves, goes_home = Signal(), Signal(), Signal()  # the step is its stripe's first; the window its last
        alone = Signal()  # no more pixels than pass at once: their accumulators are visited once
        pixel_last = Signal(pixel_bits(config))
        age = Signal(range(ACCUMULATE - 1 + passing.most))
        waiting, unsettled = Signal(range(buffers + 1)), Signal(range(buffers + 1))
        next_waiting, next_unsettled = Signal.like(waiting), Signal.like(unsettled)

        # Registered, because much else depends on the end of a window in the same cycle. `passed` and `read` are valid
        # from the window's second cycle on. `aged` is not set before then, so a window cannot end on a stale value.
        aged = Signal()
        next_word, ends_set, next_set = Signal(5), Signal(), Signal.like(operation.sets)
        old_set = Signal.like(operation.sets)
        m.d.comb += [
            closes.eq(open_ & aged & passing.passed & loads.read & words_passed),
            self.filled.eq(closes & passes & last & ~old & ~dry_now),
            ends_set.eq(word + 1 == words),
            next_word.eq(Mux(old & ~ends_set, word + 1, 0)),
            next_set.eq(Mux(old, old_set + ends_set, 0)),
        ]
        # A stripe begins with its first step, or with old values.
        begins_old, begins_step, may_begin = Signal(), Signal(), Signal()
        begins_line, begins_stripe = Signal(), Signal()  # the first is also set where it is dry
        to_old = Signal()
        free = dry & ~first_stripe if config.kernel_rows > 1 else dry  # needs no buffer
        m.d.comb += [
            begins_line.eq(opens & ~old & first_step),
            begins_stripe.eq(begins_line & ~dry),
            to_old.eq(old_more | (~old & first_step & accumulate)),
            begins_old.eq(opens & to_old),
            begins_step.eq(opens & ~to_old),
            opens.eq((closes | ~open_) & live & (old | ~first_step | may_begin | free)),
        ]
        m.d.sync += advance.eq(begins_step)
        more = Signal()  # there is a step after the one that begins to pass
        m.d.comb += more.eq(~(onward & last_block))

        fetch = self.fetch
        reads_last = Mux(begins_line, pixels_last, pixel_last)
        width: Value = regs.TILE.width
        if config.pixel_lanes > 1:  # of pixels, or of pairs
            reads_last = Mux(operation.pairs, reads_last[1:], reads_last)
            width = Mux(operation.pairs, width[1:], width)
        m.d.comb += [
            passing.clear.eq(operation.load),
            passing.begin.eq(opens & (to_old | ~operation.depthwise)),
            passing.last.eq(reads_last),
            passing.pairs.eq(operation.pairs),
            passing.visits.eq(Mux(to_old, config.pixel_lanes, taps.blocks)),
            loads.clear.eq(operation.load),
            loads.start.eq(self.go),
            loads.begin.eq(opens),
            loads.weights.eq(~to_old & more),
            loads.records.eq(~to_old & first_step & first_stripe),
            loads.blocks.eq(Mux(live, taps.following, taps.blocks)),
            loads.rows.eq(rows),
            loads.lanes.eq(lanes),
            fetch.weights.eq(loads.loading),
            fetch.record.eq(loads.recording),
            fetch.further.eq(loads.further),
            fetch.completes.eq(loads.completes),
        ]
        m.d.sync += fetch.begin.eq(opens | self.go)
        with m.If(operation.load):
            m.d.sync += [turn.eq(buffers - 1), passes.eq(0), live.eq(0), old.eq(0), old_more.eq(0)]
            m.d.sync += [fetch.onward.eq(0), fetch.enter.eq(0)]  # the first step is where `again` would go
        with m.Else():  # at the load they are 0
            m.d.comb += [
                next_waiting.eq(waiting + begins_stripe - self.freed),
                next_unsettled.eq(unsettled + begins_stripe - self.settled),
            ]
        m.d.sync += [
            waiting.eq(next_waiting),
            unsettled.eq(next_unsettled),
            may_begin.eq(Mux(accumulate, next_unsettled == 0, next_waiting != buffers)),
        ]
        # Inside a window.
        visit = Mux(operation.depthwise & ~old, 1, passing.visit) if config.depth_conv else passing.visit
        least = Mux(alone & ~old, Mux(visit < ACCUMULATE, 1, visit - (ACCUMULATE - 1)), visit)
        with m.If(open_ & ~aged):
            m.d.sync += [age.eq(age + 1), aged.eq(age == least[: len(passing.visit)])]
        # Between windows.
        with m.If(closes):
            m.d.sync += [open_.eq(0), passes.eq(0)]
        with m.If(self.go):
            m.d.sync += [live.eq(1), open_.eq(1)]
        with m.If(opens):
            m.d.sync += [open_.eq(1), passes.eq(1)]
        loaded = Signal()  # for the first window, before `go`, which comes late in its cycle
        m.d.sync += loaded.eq(operation.load)
        with m.If(opens | loaded):
            m.d.sync += [age.eq(0), aged.eq(0)]
        began_stripe = Signal()
        m.d.sync += began_stripe.eq(begins_stripe)
        with m.If(begins_stripe):
            m.d.sync += turn.eq(turn + 1)
        with m.If(begins_line):
            m.d.sync += [pixel_last.eq(pixels_last), at_end.eq(last_stripe)]
            if config.pixel_lanes > 1:
                m.d.sync += alone.eq(~operation.depthwise & (pixels_last < config.pixel_lanes))
        with m.If(began_stripe):
            info = self.stripes[turn]
            m.d.sync += [
                info.pixels.eq(pixels_last),
                info.channels.eq(Mux(last_block, regs.BLOCKS.last, operation.channels)),
                info.block.eq(block),
                info.ends_block.eq(last_stripe),
                info.ends.eq(last_stripe & last_block),
            ]
        with m.If(begins_old):
            set_off = Signal(config.offset_bits, reset_less=True)  # where the values of the next set begin
            with m.If(~old | ends_set):
                m.d.sync += set_off.eq(Mux(old, set_off, old_off) + INT32_BYTES * config.oc_lanes)
            m.d.sync += [
                old.eq(1),
                leaves.eq(0),
                goes_home.eq(0),
                word.eq(next_word),
                old_set.eq(next_set),
                old_more.eq((next_word + 1 != words) | (next_set + 1 != operation.sets)),
                self.tap.off.eq(Mux(old, Mux(ends_set, set_off, self.tap.off + config.word_bytes), old_off)),
                fetch.again.eq(0),
                fetch.onward.eq(0),
                fetch.enter.eq(0),
            ]
        with m.If(begins_step):
            m.d.sync += [
                old.eq(0),
                old_more.eq(0),
                first.eq(first_step & ~accumulate),
                begins.eq(first_step),
                last.eq(last_step),
                leaves.eq(last_step),
                goes_home.eq(last_step & Mux(begins_line, last_stripe, at_end)),
                dry_now.eq(dry),
                live.eq(more),
                self.tap.eq(taps.tap),
                fetch.again.eq(again),
                fetch.onward.eq(onward),
                fetch.enter.eq(first_step & first_stripe),
            ]

        # Pixels. A stripe's old values and each of its steps begin where it does, the next stripe after the last step.
        quantities = {"off": "xy", "col": "x", "row": "y", "old_off": "xy"}
        m.submodules.walk = walk = PixelWalk(quantities=quantities, bits=config.offset_bits)
        moves, at_last = passing.reads, passing.at_last
        x_step: Value = regs.X_STEP
        old_row: Value = passing.group
        if config.pixel_lanes > 1 or config.depth_conv:
            x_step = Signal(config.offset_bits, reset_less=True)
            step = regs.X_STEP
            if config.pixel_lanes > 1:
                step = Mux(operation.pairs, step << 1, step)
            if config.depth_conv:
                slid = regs.KX_STEP << (regs.MODE.slide == 2)
                step = Mux(operation.depthwise & operation.slides, slid, step)
            m.d.sync += x_step.eq(step)
        if config.depth_conv:
            slots = WordPass(config)
            awake = operation.load | operation.depthwise | ~slots.passed
            m.submodules.words = gate_clock(m, slots, awake=awake, name="array_words", simulation=self.simulation)
            wiring.connect(m, wiring.flipped(operation), slots.operation)
            m.d.comb += [
                slots.begin.eq(opens & ~to_old & operation.depthwise),
                slots.last.eq(passing.last),
                slots.pixel.eq(Cat(walk.off, walk.col, walk.row)),
                words_passed.eq(slots.passed),
            ]
            moves, at_last = moves | slots.moves, at_last | slots.at_last
            # Rows of accumulators: one per visit of a pixel, a set per pixel lane.
            rows_before = Signal(6)
            old_lane = old_set[: exact_log2(config.pixel_lanes)]
            with m.If(begins_old):
                m.d.sync += rows_before.eq(next_set[len(old_lane) :])
            with m.Elif(passing.reads):
                m.d.sync += rows_before.eq(rows_before + operation.visits)
            old_row = Mux(operation.depthwise & old, rows_before, passing.group)
        m.d.comb += [
            walk.width.eq(width),
            walk.restart.eq(operation.load),
            walk.step.eq(moves),
            walk.rewind.eq(at_last & ~leaves),
            walk.keep.eq(at_last & leaves),
            walk.home.eq(at_last & goes_home),
            walk.off_x_step.eq(x_step),
            walk.off_y_step.eq(regs.Y_STEP),
            walk.col_x_step.eq(x_step),
            walk.row_y_step.eq(regs.GEOMETRY.stride_y),
            walk.old_off_x_step.eq(regs.OUT_X_STEP),
            walk.old_off_y_step.eq(regs.OUT_Y_STEP),
        ]
        enters, here = Signal(), Signal(Position(config))
        m.d.comb += [
            enters.eq(passing.index == 0),
            here.eq(Cat(walk.off, walk.col, walk.row)),
            self.pixel.off.eq(Mux(old, walk.old_off, here.off)),
            self.pixel.col.eq(here.col),
            self.pixel.row.eq(here.row),
            self.step.valid.eq(passing.steps),
            self.step.reads.eq(passing.reads),
            self.step.old.eq(passing.busy & old),
            self.step.first.eq(Mux(old, word == 0, first)),
            self.step.swap.eq(passing.busy & ~old & (passing.group == 0) & enters),
            self.step.enters.eq(enters & (~alone | begins | old)),
            self.step.leaves.eq((passing.index + 1 == passing.visit) & (~alone | last | old)),
            self.step.turn.eq(turn),
            self.step.group.eq(old_row),
            self.step.index.eq(passing.index),
            self.step.word.eq(word),
        ]
        if config.depth_conv:
            with m.If(operation.depthwise):
                m.d.comb += [
                    here.eq(slots.word),
                    self.step.reads.eq(passing.reads | slots.reads),
                    self.step.token.eq(slots.token),
                    self.step.valid.eq(slots.token & ~dry_now),
                    self.step.swap.eq(advance),
                ]
            with m.If(operation.depthwise & ~old):
                m.d.comb += self.step.enters.eq(slots.first)
            with m.If(operation.depthwise & old):
                m.d.comb += [
                    self.step.valid.eq(passing.reads),
                    self.step.first.eq((word == 0) & (old_lane == 0)),
                    self.step.enters.eq(1),
                    self.step.leaves.eq(1),
                    self.step.index.eq(old_lane),
                ]
        return m
