"""The drain: from accumulators through the requantiser to SRAM."""

from collections.abc import Sequence

from amaranth import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array.loops import Stripe
from dovetail.hw.array.multiply_accumulate import SUM
from dovetail.hw.array.passing import pixel_bits
from dovetail.hw.array.registers import ArrayOperation
from dovetail.hw.array.requantiser import Requantiser
from dovetail.hw.array.weights import Record
from dovetail.hw.common.clocking import delayed, stage_clocks
from dovetail.hw.common.ports import SramWrite
from dovetail.hw.common.walk import PixelWalk
from dovetail.isa.common.sizes import INT32_BYTES, ceil_div
from dovetail.isa.config.given import MAX_LANES
from dovetail.isa.config.resolved import RESULT_STEPS, Config
from dovetail.isa.numerics.rounding import INT8_MAX, INT8_MIN
from dovetail.isa.timing.array import DRAIN, REQUANTISE, SETTLE


class Drain(wiring.Component):
    """Drains filled stripes in order, ``requant_lanes`` channels of a pixel per cycle, or those of two pixels.

    Parameters
    ----------
    config
        The accelerator.
    simulation
        For Verilator: stages that no result enters have gated clocks.

    Members
    -------
    operation
        The operation.
    filled
        Pulse: another stripe may be drained from the next cycle on.
    stripes
        The stripes in the buffers; stripe n is in buffer n modulo their number.
    row, accumulators
        Row of the accumulators (group of pixels, then buffer), and what is in it one cycle later.
    record_row, records
        Row of the records, and what is in it two cycles later.
    port
        Write port.
    freed, settled
        Pulses, see :class:`~dovetail.hw.array.loops.ArrayLoops`.
    done
        Pulse in the cycle of the operation's last write.
    awake
        A register of the block may change at the end of the cycle.

    Latency
    -------
    Five cycles and the requantiser's, from a row to its write; int32 values leave earlier.
    """

    def __init__(self, config: Config, *, simulation: bool = False) -> None:
        self.config = config
        self.simulation = simulation
        self.span = config.acc_lanes if config.depth_conv else config.oc_lanes
        self.groups = ceil_div(self.span, config.requant_lanes)
        self.rows = config.record_groups
        super().__init__(
            {
                "operation": In(ArrayOperation(config)),
                "filled": In(1),
                "stripes": In(data.ArrayLayout(Stripe, config.stripe_buffers)),
                "row": Out(7),
                "accumulators": In(SUM * config.acc_lanes),
                "record_row": Out(range(config.stripe_buffers * self.rows)),
                "records": In(data.ArrayLayout(Record, config.requant_lanes)),
                "port": Out(SramWrite(config)),
                "freed": Out(1),
                "settled": Out(1),
                "done": Out(1),
                "awake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operation, regs = self.config, self.operation, self.operation.regs
        lanes = config.requant_lanes
        int32 = regs.MODE.int32
        on_its_way = Signal(REQUANTISE + 6)  # bit n: a result whose row was asked for n + 1 cycles ago
        domains = stage_clocks(m, "array_result", on_its_way[: 3 + REQUANTISE], simulation=self.simulation)
        assert DRAIN == 4 + REQUANTISE and SETTLE == 2 + REQUANTISE

        # A row of accumulators has a pixel per pixel lane, or in a depthwise convolution a weight set: then all of it
        # leaves together, but for int32 values, of which a word has no room for more than a set.
        several = config.pixel_lanes > 1
        depthwise, together, span = Const(0), Const(0), Const(config.oc_lanes)
        if config.depth_conv and several:
            depthwise, together = Signal(name="depthwise"), Signal(name="together")
            span = Mux(together, config.acc_lanes, config.oc_lanes)
            m.d.sync += [depthwise.eq(operation.depthwise), together.eq(operation.depthwise & ~int32)]
        # Of pixels whose results leave together the first one counts. `first`: if the last pixel has this number, it is
        # the first one that leaves, too; `step`, `beyond`: from a pixel to the next one, and to the last one if that is
        # the next.
        width, x_step = regs.TILE.width, regs.OUT_X_STEP
        first: Value | int = 0
        step: Value | int = 1
        beyond: Value | int = 1
        if config.result_pairs:
            apart = Signal.like(operation.apart, name="apart")
            paired = apart.any()
            m.d.sync += apart.eq(operation.apart)
            first, step, beyond = paired, Mux(paired, 2, 1), Mux(paired, 3, 1)
            in_pairs = operation.apart.any()  # in time for the walk's start
            width, x_step = Mux(in_pairs, width[1:], width), Mux(in_pairs, x_step << 1, x_step)

        # 0: loops over pixels and groups. The ends of the loops are known a cycle early, as much else depends on them.
        buffers = config.stripe_buffers
        credits, turn, next_turn = Signal(range(buffers + 1)), Signal(range(buffers)), Signal(range(buffers))
        stripe, upcoming = Signal(Stripe), Signal(Stripe)  # of this group, and of the next one
        pixel = Signal(pixel_bits(config))
        row, set_ = Signal(6), Signal.like(operation.sets)  # of the pixel's first channels; what leaves together
        group, record = Signal(range(max(self.groups, 2))), Signal(range(max(self.rows, 2)))
        left, more = Signal(range(self.span + 1)), Signal(range(MAX_LANES + 1))  # channels from here on; to leave later
        active, ends_set, ends_pixel, ends_stripe, last_group, last_set, last_pixel = (
            Signal(name=name)
            for name in ("active", "ends_set", "ends_pixel", "ends_stripe", "last_group", "last_set", "last_pixel")
        )
        lane_last = Signal()
        lane_bits = len(pixel) - 6
        visit = Mux(together, set_, set_[lane_bits:])
        lane = pixel[:lane_bits] | first if config.result_pairs else pixel[:lane_bits]
        m.d.comb += lane_last.eq(lane.all() | depthwise if several else 1)
        stripes = [self.stripes[n].as_value() for n in range(buffers)]
        m.d.comb += [
            next_turn.eq(turn + ends_stripe),
            # The end of a stripe is known late, so it chooses last.
            upcoming.eq(Mux(ends_stripe, Array([*stripes[1:], stripes[0]])[turn], Array(stripes)[turn])),
            active.eq(credits != 0),
            ends_set.eq(active & last_group),
            ends_pixel.eq(active & last_group & last_set),
            ends_stripe.eq(active & last_group & last_set & last_pixel),
            self.freed.eq(ends_stripe),
            self.row.eq(Cat((row + visit if config.depth_conv else row)[: len(self.row) - len(turn)], turn)),
        ]
        m.d.sync += stripe.eq(upcoming)  # what it has been for long when it is drained
        with m.If(operation.load):
            m.d.sync += [credits.eq(0), turn.eq(0), pixel.eq(0), group.eq(0), record.eq(0), row.eq(0), set_.eq(0)]
        with m.Else():
            m.d.sync += [credits.eq(credits + self.filled - ends_stripe), turn.eq(next_turn)]
            with m.If(ends_pixel):
                m.d.sync += [pixel.eq(Mux(last_pixel, 0, pixel + step)), group.eq(0), record.eq(0), set_.eq(0)]
                with m.If(last_pixel):
                    m.d.sync += row.eq(0)
                with m.Elif(lane_last):
                    m.d.sync += row.eq(row + operation.visits)
            if config.depthwise_sets > 1:
                with m.Elif(ends_set):
                    m.d.sync += [group.eq(0), record.eq(record + 1), set_.eq(set_ + 1)]
            with m.Elif(active):
                m.d.sync += [group.eq(group + 1), record.eq(record + 1)]
        # The next stripe is examined until it may be drained.
        begins, total = ~active | ends_pixel, Signal(range(MAX_LANES + 1))
        m.d.comb += total.eq(Mux(begins, upcoming.channels, more))
        with m.If(begins | ends_set):
            whole = total > span
            m.d.sync += [
                left.eq(Mux(whole, span, total)),
                more.eq(Mux(whole, total - span, 0)),
                last_set.eq(~whole),
                last_group.eq((total <= lanes) | (span <= lanes)),
            ]
        with m.Else():
            m.d.sync += [left.eq(left - lanes), last_group.eq(left <= 2 * lanes)]
        with m.If(~active | ends_stripe):
            m.d.sync += last_pixel.eq(upcoming.pixels == first)
        with m.Elif(ends_pixel):
            m.d.sync += last_pixel.eq(pixel + beyond == stripe.pixels)

        # 1: where the pixel's channels go.
        group_1, record_1, block_1 = Signal(len(group)), Signal(len(record)), Signal(range(buffers))
        lane_1 = Signal(lane_bits)
        valid_1, ends_pixel_1, ends_block_1 = (
            Signal(name=name) for name in ("valid_1", "ends_pixel_1", "ends_block_1")
        )
        size_1 = Signal(len(self.port.size))
        m.d.sync += [
            group_1.eq(group),
            record_1.eq(record),
            lane_1.eq(Mux(together, 0, Mux(depthwise, set_, pixel))),
            block_1.eq(stripe.block),
            valid_1.eq(active),
            ends_pixel_1.eq(ends_pixel),
            ends_block_1.eq(ends_stripe & stripe.ends_block),
            size_1.eq(Mux(last_group, left, lanes)),
        ]
        m.submodules.walk = walk = PixelWalk(quantities={"off": "xy"}, bits=config.offset_bits)
        m.d.comb += [
            walk.width.eq(width),
            walk.off_x_step.eq(x_step),
            walk.off_y_step.eq(regs.OUT_Y_STEP),
            walk.restart.eq(operation.load),
            walk.step.eq(ends_pixel_1),
            walk.home.eq(ends_block_1),
        ]
        scale = Mux(int32, INT32_BYTES.bit_length() - 1, 0)
        bits = config.offset_bits
        channel_off, block_off, next_block = Signal(bits, reset_less=True), Signal(bits), Signal(bits)
        m.d.comb += next_block.eq(block_off + Mux(ends_block_1, operation.channels << scale, 0))
        with m.If(operation.load):
            m.d.sync += [channel_off.eq(0), block_off.eq(0)]
        with m.Elif(ends_pixel_1):
            m.d.sync += [channel_off.eq(next_block), block_off.eq(next_block)]
        with m.Elif(valid_1):
            m.d.sync += channel_off.eq(channel_off + (size_1 << scale))
        picked = self._pick(m, lane_1, group_1, domains[:2])

        # 2: the row of the records; offset.
        valid_2 = Signal()
        size_2 = Signal(len(self.port.size))
        off = Signal(bits, reset_less=True)
        m.d.sync += [valid_2.eq(valid_1), size_2.eq(size_1 << scale), off.eq(walk.off + channel_off)]
        m.d.comb += self.record_row.eq(Cat(block_1, record_1))

        # 3: bias; end of the write, address.
        value, mult, shift = (
            Signal(n * lanes, name=name, reset_less=True) for n, name in ((SUM, "value"), (32, "mult"), (8, "shift"))
        )
        for n in range(lanes):
            record = self.records[n]
            bias = Mux(regs.MODE.accumulate, 0, record.bias)
            m.d[domains[2]] += [
                value.word_select(n, SUM).eq(picked.word_select(n, SUM) + bias),
                mult.word_select(n, 32).eq(record.mult),
                shift.word_select(n, 8).eq(record.shift),
            ]
        valid_3, size_3 = Signal(), Signal(len(self.port.size))
        end = Signal(bits + 1, reset_less=True)
        address = Signal(len(self.port.addr), reset_less=True)
        m.d.sync += [
            valid_3.eq(valid_2),
            size_3.eq(size_2),
            end.eq(off + size_2),
            address.eq(regs.OUT_ADDR + off),
        ]
        names = ("addr", "size", "en", *(("apart", "skips") if config.result_pairs else ()))
        write = Signal(data.StructLayout({name: len(getattr(self.port, name)) for name in names}))
        inside = end <= regs.OUT_BYTES
        m.d.sync += [write.en.eq(valid_3 & inside), write.addr.eq(address), write.size.eq(size_3)]
        if config.result_pairs:
            # Of the second pixel: where its results begin, modulo 2^W, and end.
            place, past = (Signal(bits + 1, name=name, reset_less=True) for name in ("place", "past"))
            m.d.sync += [place.eq(off + regs.OUT_X_STEP[:bits]), past.eq(off + regs.OUT_X_STEP[:bits] + size_2)]
            follows = paired & (Mux(place[-1], past[:bits], past) <= regs.OUT_BYTES)
            m.d.sync += [
                write.en.eq(valid_3 & (inside | follows)),
                write.skips.eq(~inside),
                write.apart.eq(Mux(follows, apart, 0)),
            ]

        # 4: requantisation, or nothing.
        m.submodules.requantiser = requantiser = Requantiser(lanes=lanes, domains=domains[3:])
        m.d.comb += [
            requantiser.acc.eq(value),
            requantiser.mult.eq(mult),
            requantiser.shift.eq(shift),
            requantiser.rounding.eq(regs.MODE.rounding),
            requantiser.zero_point.eq(regs.QUANT.zero_out),
            requantiser.lo.eq(Mux(operation.clamps, regs.QUANT.lo, INT8_MIN)),
            requantiser.hi.eq(Mux(operation.clamps, regs.QUANT.hi, INT8_MAX)),
        ]
        writes = delayed(m, "writes", write.as_value(), REQUANTISE)
        chosen = data.View(write.shape(), Signal(len(write.as_value()), name="chosen"))
        m.d.comb += chosen.eq(Mux(int32, writes[0], writes[-1]))
        result: Value = requantiser.result
        if config.result_pairs:
            one, other = (result[8 * n * config.oc_lanes :][: 8 * config.oc_lanes] for n in range(2))
            both = Cat(one, *[other] * RESULT_STEPS)
            result = both if lanes == 2 * config.oc_lanes else Mux(paired, both, result)
        m.d.sync += [
            self.port.en.eq(chosen.en),
            self.port.addr.eq(chosen.addr),
            self.port.size.eq(chosen.size),
            *([self.port.apart.eq(chosen.apart), self.port.skips.eq(chosen.skips)] if config.result_pairs else []),
            self.port.data.eq(Mux(int32, value, result)),
        ]

        ends = delayed(m, "ends", Cat(ends_stripe, ends_stripe & stripe.ends), REQUANTISE + 5)
        m.d.comb += [self.settled.eq(ends[REQUANTISE + 1][0]), self.done.eq(ends[-1][1])]

        m.d.sync += on_its_way.eq(Cat(active, on_its_way))
        m.d.comb += self.awake.eq(operation.load | self.filled | active | on_its_way.any())
        return m

    def _pick(self, m: Module, lane: Value, group: Value, domains: Sequence[str]) -> Signal:
        """The accumulators of a pixel lane's ``group``, two cycles later. Read data arrive late in the cycle, so they
        go through a register first."""
        config = self.config
        row, of = Signal(len(self.accumulators), reset_less=True), Signal(len(group) + len(lane))
        picked = Signal(SUM * config.requant_lanes, reset_less=True)
        m.d[domains[0]] += [row.eq(self.accumulators), of.eq(Cat(group, lane))]
        # A row that leaves together begins in the first lane.
        choices: dict[int, list[int]] = {}
        alone = ceil_div(config.oc_lanes, config.requant_lanes)
        for pixel in range(config.pixel_lanes):
            for n in range(alone if pixel else self.groups):
                first = pixel * config.oc_lanes + n * config.requant_lanes
                choices.setdefault(first, []).append(n | pixel << len(group))
        with m.Switch(of):
            for first, patterns in choices.items():
                with m.Case(*patterns):
                    m.d[domains[1]] += picked.eq(row[SUM * first :][: len(picked)])
        return picked
