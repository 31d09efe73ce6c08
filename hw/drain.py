"""The drain: from accumulators through the requantiser to SRAM."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array import SUM, word
from dovetail.hw.array_registers import ARRAY_REGISTERS
from dovetail.hw.array_sequencer import BUFFERS, Stripe
from dovetail.hw.array_weights import Record
from dovetail.hw.pipeline import delayed
from dovetail.hw.ports import SramWrite
from dovetail.hw.requantiser import Requantiser
from dovetail.hw.walk import PixelWalk
from dovetail.hw.window import INT32_BYTES
from dovetail.isa.config import Config, ceil_div
from dovetail.isa.latency import REQUANTISE
from dovetail.isa.numerics import INT8_MAX, INT8_MIN
from dovetail.isa.timing.array import DRAIN, SETTLE


class Drain(wiring.Component):
    """Takes ``requant_lanes`` channels per cycle of the stripes that are filled, in order.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    regs, channels, clamps
        Registers and operation, as in :class:`~dovetail.hw.array_registers.ArrayRegisters`.
    load
        Pulse: take the starting values.
    filled
        Pulse: another stripe may be drained from the next cycle on.
    stripes
        The stripes in the buffers; stripe n is in buffer n mod 2.
    row, accumulators
        Row of the accumulators (pixel, then buffer), and what is in it one cycle later.
    record_row, records
        Likewise of the records.
    port
        Write port.
    freed, settled
        Pulses, see :class:`~dovetail.hw.array_sequencer.ArraySequencer`.
    done
        Pulse in the cycle of the operation's last write.
    awake
        A register of the block may change at the end of the cycle.

    Latency
    -------
    Four cycles and the requantiser's, from a row to its write; int32 values leave earlier.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.groups = ceil_div(config.acc_lanes, config.requant)
        super().__init__(
            {
                "regs": In(ARRAY_REGISTERS),
                "channels": In(range(config.acc_lanes + 1)),
                "clamps": In(1),
                "load": In(1),
                "filled": In(1),
                "stripes": In(data.ArrayLayout(Stripe, BUFFERS)),
                "row": Out(7),
                "accumulators": In(SUM * config.acc_lanes),
                "record_row": Out(range(BUFFERS * self.groups)),
                "records": In(data.ArrayLayout(Record, config.requant)),
                "port": Out(SramWrite(config)),
                "freed": Out(1),
                "settled": Out(1),
                "done": Out(1),
                "awake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, regs = self.config, self.regs
        lanes = config.requant
        int32 = regs.MODE.int32
        assert DRAIN == 3 + REQUANTISE and SETTLE == 1 + REQUANTISE

        # 0: loops over pixels and groups.
        credits, turn = Signal(range(BUFFERS + 1)), Signal()
        stripe = Signal(Stripe)
        pixel = Signal(6)
        group = Signal(range(max(self.groups, 2)))
        taken = Signal(range(config.acc_lanes + 1))  # channels of the pixel in earlier groups
        left = Signal(range(config.acc_lanes + 1))
        active, ends_pixel, ends_stripe = Signal(), Signal(), Signal()
        channel_off, block_off = Signal(32, reset_less=True), Signal(32)
        scale = Mux(int32, INT32_BYTES.bit_length() - 1, 0)
        m.d.comb += [
            stripe.eq(self.stripes[turn]),
            active.eq(credits != 0),
            left.eq(stripe.channels - taken),
            ends_pixel.eq(active & (left <= lanes)),
            ends_stripe.eq(ends_pixel & (pixel == stripe.pixels)),
            self.freed.eq(ends_stripe),
            self.row.eq(Cat(pixel, turn)),
        ]
        m.submodules.walk = walk = PixelWalk(names=("off",))
        m.d.comb += [
            walk.width.eq(regs.TILE.width),
            walk.off_x_step.eq(regs.OUT_X_STEP),
            walk.off_y_step.eq(regs.OUT_Y_STEP),
            walk.restart.eq(self.load),
            walk.step.eq(ends_pixel),
            walk.home.eq(ends_stripe & stripe.ends_block),
        ]
        next_block = Signal(32)
        m.d.comb += next_block.eq(block_off + Mux(ends_stripe & stripe.ends_block, self.channels << scale, 0))
        with m.If(self.load):
            m.d.sync += [credits.eq(0), turn.eq(0), channel_off.eq(0), block_off.eq(0)]
            m.d.sync += [pixel.eq(0), group.eq(0), taken.eq(0)]
        with m.Else():
            m.d.sync += credits.eq(credits + self.filled - ends_stripe)
            with m.If(ends_pixel):
                m.d.sync += [
                    pixel.eq(Mux(ends_stripe, 0, pixel + 1)),
                    group.eq(0),
                    taken.eq(0),
                    channel_off.eq(next_block),
                    block_off.eq(next_block),
                ]
                with m.If(ends_stripe):
                    m.d.sync += turn.eq(~turn)
            with m.Elif(active):
                m.d.sync += [
                    group.eq(group + 1),
                    taken.eq(taken + lanes),
                    channel_off.eq(channel_off + (lanes << scale)),
                ]

        # 1: one group of the row; offset.
        group_1, block_1, valid_1, size_1 = Signal(len(group)), Signal(), Signal(), Signal(len(self.port.size))
        off = Signal(32, reset_less=True)
        m.d.sync += [
            group_1.eq(group),
            block_1.eq(stripe.block),
            valid_1.eq(active),
            size_1.eq(Mux(left <= lanes, left, lanes) << scale),
            off.eq(walk.off + channel_off),
        ]
        m.d.comb += self.record_row.eq(Cat(block_1, group_1))
        picked = Signal(SUM * lanes, reset_less=True)
        with m.Switch(group_1):
            for n in range(self.groups):
                with m.Case(n):
                    m.d.sync += picked.eq(self.accumulators[n * SUM * lanes :][: SUM * lanes])

        # 2: bias; end of the write, address.
        value, mult, shift = (
            Signal(n * lanes, name=name, reset_less=True) for n, name in ((SUM, "value"), (32, "mult"), (8, "shift"))
        )
        for n in range(lanes):
            record = self.records[n]
            bias = Mux(regs.MODE.accumulate, 0, record.bias)
            m.d.sync += [
                word(value, n, SUM).eq(word(picked, n, SUM) + bias),
                word(mult, n, 32).eq(record.mult),
                word(shift, n, 8).eq(record.shift),
            ]
        valid_2, size_2 = Signal(), Signal(len(self.port.size))
        end = Signal(33, reset_less=True)
        address = Signal(len(self.port.addr), reset_less=True)
        m.d.sync += [
            valid_2.eq(valid_1),
            size_2.eq(size_1),
            end.eq(off + size_1),
            address.eq(regs.OUT_ADDR + off),
        ]
        write = Signal(data.StructLayout({"addr": len(self.port.addr), "size": len(self.port.size), "en": 1}))
        m.d.sync += [write.en.eq(valid_2 & (end <= regs.OUT_BYTES)), write.addr.eq(address), write.size.eq(size_2)]

        # 3: requantisation, or nothing.
        m.submodules.requantiser = requantiser = Requantiser(lanes=lanes)
        m.d.comb += [
            requantiser.acc.eq(value),
            requantiser.mult.eq(mult),
            requantiser.shift.eq(shift),
            requantiser.rounding.eq(regs.MODE.rounding),
            requantiser.zero_point.eq(regs.QUANT.zero_out),
            requantiser.lo.eq(Mux(self.clamps, regs.QUANT.lo, INT8_MIN)),
            requantiser.hi.eq(Mux(self.clamps, regs.QUANT.hi, INT8_MAX)),
        ]
        writes = delayed(m, "writes", write.as_value(), REQUANTISE)
        chosen = data.View(write.shape(), Signal(len(write.as_value()), name="chosen"))
        m.d.comb += chosen.eq(Mux(int32, writes[0], writes[-1]))
        m.d.sync += [
            self.port.en.eq(chosen.en),
            self.port.addr.eq(chosen.addr),
            self.port.size.eq(chosen.size),
            self.port.data.eq(Mux(int32, value, requantiser.result)),
        ]

        ends = delayed(m, "ends", Cat(ends_stripe, ends_stripe & stripe.ends), REQUANTISE + 4)
        m.d.comb += [self.settled.eq(ends[REQUANTISE][0]), self.done.eq(ends[-1][1])]

        on_its_way = Signal(REQUANTISE + 5)
        m.d.sync += on_its_way.eq(Cat(active, on_its_way))
        m.d.comb += self.awake.eq(self.load | self.filled | active | on_its_way.any())
        return m
