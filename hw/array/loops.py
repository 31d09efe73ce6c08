"""The array's loops: which pixel meets which weights in which cycle."""

from amaranth import Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array.registers import ArrayOperation
from dovetail.hw.common.walk import PARTS, PixelWalk, Place, Position, count_loops
from dovetail.isa.common.sizes import INT32_BYTES, ceil_div
from dovetail.isa.config.given import MAX_LANES
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.array import ACCUMULATE, matrix_reads

BUFFERS = 2
"""Accumulator buffers: one fills while another drains."""


class Stripe(data.Struct):
    """A stripe, for the drain: ``pixels`` less one, ``channels``, the number of its ``block`` mod 2, which selects the
    records; whether it is the last stripe of the block, and of the operation."""

    pixels: unsigned(6)
    channels: unsigned(MAX_LANES.bit_length())
    block: unsigned(1)
    ends_block: unsigned(1)
    ends: unsigned(1)


class Step(data.Struct):
    """What one pixel does in one cycle. ``pixel`` and ``turn`` select the accumulators; with ``first`` they start from
    zero. ``swap``: the next weights are used from here on. ``old``: word ``word`` of the old int32 values is added, no
    products."""

    valid: unsigned(1)
    old: unsigned(1)
    first: unsigned(1)
    swap: unsigned(1)
    turn: unsigned(1)
    pixel: unsigned(6)
    word: unsigned(5)


class Load(data.Struct):
    """A read of the weight stream or of a matrix: the next ``weights``, or the next ``record``. ``begin`` comes with
    the first read of a window and moves the read position: with ``again`` to the first weights of the block, with
    ``onward`` to those of the next block. With ``enter`` the records of the next block follow."""

    weights: unsigned(1)
    record: unsigned(1)
    begin: unsigned(1)
    again: unsigned(1)
    onward: unsigned(1)
    enter: unsigned(1)


def reads_at_most(config: Config) -> int:
    """Reads of weights per step, at most."""
    matrix = [matrix_reads(config, transposed=transposed) for transposed in (False, True)] if config.matmul else []
    return max(config.weight_rows, *matrix, 1)


class TapWalk(wiring.Component):
    """Walks over the steps (ky, kx, input block) of a stripe, again and again.

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
    tap
        Where the tap is, relative to an output pixel's place in the input. Two cycles after ``advance``.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "operation": In(ArrayOperation(config)),
                "advance": In(1),
                "onward": In(1),
                "last": Out(1),
                "tap": Out(Position(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operation, regs = self.config, self.operation, self.operation.regs
        counts = {
            "channels": Mux(operation.depthwise, 1, regs.KC.blocks) if config.depthwise_lanes else regs.KC.blocks,
            "kx": regs.GEOMETRY.kw,
            "ky": regs.GEOMETRY.kh,
        }
        level, ends = count_loops(m, counts, load=operation.load, step=self.advance)
        level["stripe"] = ends["ky"]
        m.d.comb += self.last.eq(ends["ky"])

        # The next depthwise block reads other channels. The next place takes two cycles to compute: the first selects
        # base and step, the second adds them. Which places move is decided a cycle before they do.
        shift = Mux(self.onward & operation.depthwise, operation.inputs, 0)
        steps: dict[str, tuple[Value | int, ...]] = {
            "off": (config.ic_lanes, regs.KX_STEP, regs.KY_STEP, shift),
            "col": (config.ic_lanes, regs.KX_STEP, 0, shift),
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


class ArrayLoops(wiring.Component):
    """Walks over blocks, stripes, and steps (ky, kx, input block) of a stripe.

    Time is cut into *windows*. In a window the pixels of one step pass while the weights of the following step
    load, the first window apart, which only loads. The next window follows at once when all that is done and at least
    ACCUMULATE cycles have passed; before a stripe it waits for its accumulator buffer. Records of a block load in the
    window of its first step. With ``accumulate``, windows in which old values pass go before the steps of a stripe.

    Parameters
    ----------
    config
        The accelerator.

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

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "operation": In(ArrayOperation(config)),
                "go": In(1),
                "step": Out(Step),
                "pixel": Out(Position(config)),
                "tap": Out(Position(config)),
                "fetch": Out(Load),
                "filled": Out(1),
                "stripes": Out(data.ArrayLayout(Stripe, BUFFERS)),
                "freed": In(1),
                "settled": In(1),
            }
        )

    def _choose(self, conv: int, depth: int) -> Value | int:
        """A constant of the operation."""
        return Mux(self.operation.depthwise, depth, conv) if self.config.depthwise_lanes and depth != conv else conv

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operation, regs = self.config, self.operation, self.operation.regs
        accumulate = regs.MODE.accumulate
        lanes = self._choose(config.oc_lanes, config.depthwise_lanes)
        rows: Value | int = self._choose(config.weight_rows, 1)
        if config.matmul:
            reads = Signal(range(reads_at_most(config) + 1))
            by_row, by_column = (matrix_reads(config, transposed=transposed) for transposed in (False, True))
            with m.If(operation.load):
                m.d.sync += reads.eq(Mux(operation.matrix, Mux(regs.B_FORM.transposed, by_column, by_row), rows))
            rows = reads
        words = self._choose(
            *(ceil_div(INT32_BYTES * n, config.word_bytes) for n in (config.oc_lanes, config.depthwise_lanes or 1))
        )

        # The step whose weights load: one ahead of the one whose pixels pass. It advances in a window's first cycle,
        # and all its values are known two cycles later.
        assert ACCUMULATE >= 3
        advance = Signal()
        live = Signal()
        last_step, first_step, first_stripe = Signal(), Signal(), Signal()
        last_stripe, last_block = Signal(), Signal()
        m.submodules.taps = taps = TapWalk(config)
        wiring.connect(m, wiring.flipped(operation), taps.operation)
        m.d.comb += [taps.advance.eq(advance), taps.onward.eq(last_stripe)]

        left, blocks = Signal(32), Signal(16)
        odd_block = Signal()
        pixels_last = Signal(6)
        old_off = Signal(config.offset_bits)
        m.d.sync += [
            last_stripe.eq(left <= regs.STRIPE.pixels),
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
                left.eq(operation.pixels),
                blocks.eq(regs.BLOCKS.count),
                odd_block.eq(0),
                old_off.eq(0),
                first_step.eq(1),
                first_stripe.eq(1),
            ]
        with m.Elif(advance):
            m.d.sync += first_step.eq(last_step)
            with m.If(last_step):
                m.d.sync += first_stripe.eq(last_stripe)
            with m.If(again):
                m.d.sync += left.eq(left - regs.STRIPE.pixels)
            with m.If(onward):
                m.d.sync += [
                    left.eq(operation.pixels),
                    blocks.eq(blocks - 1),
                    odd_block.eq(~odd_block),
                    old_off.eq(old_off + (operation.channels << INT32_BYTES.bit_length() - 1)),
                ]

        # Windows.
        open_, closes, opens = Signal(), Signal(), Signal()
        passing = Signal()  # the window has a step
        old, word = Signal(), Signal(5)
        old_more = Signal()  # another word of old values follows
        first, last = Signal(), Signal()
        at_end = Signal()  # last stripe of the block
        turn = Signal()
        pixel, pixel_last = Signal(6), Signal(6)
        busy, loading, recording = Signal(), Signal(), Signal()
        row, record = Signal(range(max(reads_at_most(config), 2))), Signal(range(max(config.acc_lanes, 2)))
        age = Signal(range(ACCUMULATE))
        waiting, unsettled = Signal(range(BUFFERS + 1)), Signal(range(BUFFERS + 1))
        next_waiting, next_unsettled = Signal.like(waiting), Signal.like(unsettled)

        # Registered, because much else depends on the end of a window in the same cycle. `passed` and `read` say that
        # the window is at its last pixel or read, or past it. They are valid from the window's second cycle on. `aged`
        # is not set before then, so a window cannot end on a stale value.
        row_last, record_last, pixel_at_last, aged = Signal(), Signal(), Signal(), Signal()
        passed, read = Signal(), Signal()
        m.d.sync += [
            passed.eq(~busy | pixel_at_last | (pixel + 1 == pixel_last)),
            read.eq(
                Mux(
                    loading,
                    Mux(row_last, ~recording | record_last, ~recording & (row + 2 == rows)),
                    ~recording | record_last | (record + 2 == lanes),
                )
            ),
        ]
        next_word = Signal(5)
        m.d.comb += [
            closes.eq(open_ & aged & passed & read),
            self.filled.eq(closes & passing & last & ~old),
            next_word.eq(Mux(old, word + 1, 0)),
        ]
        # A stripe begins with its first step, or with old values.
        begins_old, begins_step, begins_stripe, may_begin = Signal(), Signal(), Signal(), Signal()
        to_old = Signal()
        m.d.comb += [
            begins_stripe.eq(opens & ~old & first_step),
            to_old.eq(old_more | (~old & first_step & accumulate)),
            begins_old.eq(opens & to_old),
            begins_step.eq(opens & ~to_old),
            opens.eq((closes | ~open_) & live & (old | ~first_step | may_begin)),
        ]
        m.d.sync += advance.eq(begins_step)
        more = Signal()  # there is a step after the one that begins to pass
        m.d.comb += more.eq(~(onward & last_block))

        fetch = self.fetch
        m.d.comb += [fetch.weights.eq(loading), fetch.record.eq(~loading & recording)]
        m.d.sync += fetch.begin.eq(opens | self.go)
        with m.If(operation.load):
            m.d.sync += [turn.eq(1), passing.eq(0), live.eq(0), old.eq(0), old_more.eq(0), recording.eq(0), busy.eq(0)]
            m.d.sync += [fetch.onward.eq(0), fetch.enter.eq(0)]  # the first step is where `again` would go
        with m.Else():  # at the load they are 0
            m.d.comb += [
                next_waiting.eq(waiting + begins_stripe - self.freed),
                next_unsettled.eq(unsettled + begins_stripe - self.settled),
            ]
        m.d.sync += [
            waiting.eq(next_waiting),
            unsettled.eq(next_unsettled),
            may_begin.eq(Mux(accumulate, next_unsettled == 0, next_waiting != BUFFERS)),
        ]
        # Inside a window.
        with m.If(open_):
            with m.If(~aged):
                m.d.sync += [age.eq(age + 1), aged.eq(age == ACCUMULATE - 2)]
            with m.If(busy):
                m.d.sync += [
                    pixel.eq(pixel + 1),
                    pixel_at_last.eq(pixel + 1 == pixel_last),
                    busy.eq(~pixel_at_last),
                ]
            with m.If(loading):
                m.d.sync += [row.eq(row + 1), row_last.eq(row + 2 == rows), loading.eq(~row_last)]
            with m.Elif(recording):
                m.d.sync += [
                    record.eq(record + 1),
                    record_last.eq(record + 2 == lanes),
                    recording.eq(~record_last),
                ]
        # Between windows.
        with m.If(closes):
            m.d.sync += [open_.eq(0), passing.eq(0)]
        with m.If(self.go):
            m.d.sync += [live.eq(1), open_.eq(1), loading.eq(1)]
        with m.If(opens):
            m.d.sync += [
                open_.eq(1),
                passing.eq(1),
                busy.eq(1),
                pixel.eq(0),
                pixel_at_last.eq(Mux(begins_stripe, pixels_last == 0, pixel_last == 0)),
            ]
        loaded = Signal()  # for the first window, before `go`, which comes late in its cycle
        m.d.sync += loaded.eq(operation.load)
        with m.If(opens | loaded):
            m.d.sync += [
                age.eq(0),
                aged.eq(0),
                row.eq(0),
                row_last.eq(rows == 1),
                record.eq(0),
                record_last.eq(lanes == 1),
            ]
        began_stripe = Signal()
        m.d.sync += began_stripe.eq(begins_stripe)
        with m.If(begins_stripe):
            m.d.sync += [turn.eq(~turn), pixel_last.eq(pixels_last), at_end.eq(last_stripe)]
        with m.If(began_stripe):
            info = self.stripes[turn]
            m.d.sync += [
                info.pixels.eq(pixels_last),
                info.channels.eq(Mux(last_block, regs.BLOCKS.last, operation.channels)),
                info.block.eq(odd_block),
                info.ends_block.eq(last_stripe),
                info.ends.eq(last_stripe & last_block),
            ]
        with m.If(begins_old):
            m.d.sync += [
                old.eq(1),
                word.eq(next_word),
                old_more.eq(next_word + 1 != words),
                loading.eq(0),
                recording.eq(0),
                self.tap.off.eq(Mux(old, self.tap.off + config.word_bytes, old_off)),
                fetch.again.eq(0),
                fetch.onward.eq(0),
                fetch.enter.eq(0),
            ]
        with m.If(begins_step):
            m.d.sync += [
                old.eq(0),
                old_more.eq(0),
                first.eq(first_step & ~accumulate),
                last.eq(last_step),
                live.eq(more),
                loading.eq(more),
                recording.eq(first_step & first_stripe),
                self.tap.eq(taps.tap),
                fetch.again.eq(again),
                fetch.onward.eq(onward),
                fetch.enter.eq(first_step & first_stripe),
            ]

        # Pixels.
        m.submodules.window_walk = inside = PixelWalk(names=PARTS, bits=config.offset_bits)
        m.submodules.old_walk = outside = PixelWalk(names=("off",), bits=config.offset_bits)
        for walk, passes, ends in ((inside, ~old, last), (outside, old, ~old_more)):
            m.d.comb += [
                walk.width.eq(regs.TILE.width),
                walk.restart.eq(operation.load),
                walk.step.eq(busy & passes),
                walk.rewind.eq(pixel_at_last & ~ends),
                walk.keep.eq(pixel_at_last & ends),
                walk.home.eq(pixel_at_last & ends & at_end),
            ]
        m.d.comb += [
            inside.off_x_step.eq(regs.X_STEP),
            inside.off_y_step.eq(regs.Y_STEP),
            inside.col_x_step.eq(regs.X_STEP),
            inside.row_y_step.eq(regs.GEOMETRY.stride_y),
            outside.off_x_step.eq(regs.OUT_X_STEP),
            outside.off_y_step.eq(regs.OUT_Y_STEP),
        ]
        m.d.comb += [
            self.pixel.off.eq(Mux(old, outside.off, inside.off)),
            self.pixel.col.eq(inside.col),
            self.pixel.row.eq(inside.row),
            self.step.valid.eq(busy),
            self.step.old.eq(busy & old),
            self.step.first.eq(Mux(old, word == 0, first)),
            self.step.swap.eq(busy & ~old & (pixel == 0)),
            self.step.turn.eq(turn),
            self.step.pixel.eq(pixel),
            self.step.word.eq(word),
        ]
        return m
