"""Proof of the DMA walkers: bursts within AXI's rules, and beats that are exactly those of the bursts."""

from amaranth import Const, Module, Mux, Signal
from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.cosim.formal.properties import Opened, before, stable
from dovetail.hw.dma.burst import PAGE_BITS, BeatWalker, BurstWalker, Transfer
from dovetail.isa.timing.dma import BOUNDARY, MAX_BURST


class WalkersHarness(wiring.Component):
    """Both walkers over one transfer, any transfer. A burst is taken when the beats of the one before it have been.

    What a walker yields depends on the transfer and on how many it has yielded, not on when: so the agreement that is
    proved here for walkers in step holds for LOAD and STORE, in which one runs ahead of the other.

    Parameters
    ----------
    bus_bytes: bytes of a beat.
    span_bits: bits of a row's bytes.
    offset_bits: bits of an offset in the region.

    Members
    -------
    begin: starts the transfer, unless it is under way. ``room``: a burst may show. ``take``, ``advance``: takes a
        burst, a beat, if it may.
    """

    def __init__(self, *, bus_bytes: int, span_bits: int = 32, offset_bits: int = 17) -> None:
        self.bus_bytes = bus_bytes
        self.span_bits = span_bits
        self.offset_bits = offset_bits
        super().__init__({"begin": In(1), "room": In(1), "take": In(1), "advance": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lane_bits = exact_log2(self.bus_bytes)
        bursts = BurstWalker(bus_bytes=self.bus_bytes)
        beats = BeatWalker(bus_bytes=self.bus_bytes, offset_bits=self.offset_bits)
        m.submodules.bursts = inner = Opened(bursts)
        m.submodules.beats = beat_inner = Opened(beats)
        t = Signal(Transfer)
        burst = bursts.o.payload
        begin = Signal()
        open_ = Signal()  # a burst's beats are due
        ready = Signal()  # the transfer has been the same for a cycle
        m.d.sync += ready.eq(1)
        m.d.comb += [
            t.eq(AnyConst(len(t.as_value()))),
            Assume(t.span >> self.span_bits == 0, f"rows are at most 2^{self.span_bits} bytes"),
            Assume((t.rows != 0) & (t.planes != 0), "no empty transfer (ZERO_SIZE)"),
            Assume(~t.span.all(), "no row of 0 bytes (ZERO_SIZE)"),
            bursts.transfer.eq(t),
            beats.transfer.eq(t),
            begin.eq(self.begin & ready & ~bursts.active & ~beats.active & ~open_),
            bursts.begin.eq(begin),
            bursts.room.eq(self.room),
            beats.begin.eq(begin),
            bursts.o.ready.eq(self.take & ~open_),
            beats.advance.eq(self.advance & open_),
        ]
        taken = Signal()
        m.d.comb += taken.eq(bursts.o.valid & bursts.o.ready)

        # The transfer once more: rows and planes to come, this row's address and region offset, its bytes and beats to
        # come, beats of the open burst to come.
        rows, planes = Signal(16), Signal(16)
        row, plane = Signal(32), Signal(32)
        offset, plane_offset = Signal(self.offset_bits), Signal(self.offset_bits)
        beat = Signal(32 - lane_bits)  # the next burst's first beat
        todo = Signal(34 - lane_bits)  # beats of the row not yet in a burst
        due = Signal(range(MAX_BURST + 1))
        row_taken = Signal()  # the open burst is its row's last
        left = Signal(34)  # bytes of the row
        running = Signal()

        def beats_of(address: Signal) -> Signal:
            return ((address[:lane_bits] + t.span) >> lane_bits) + 1

        def enter(address: Signal) -> list[object]:
            return [beat.eq(address >> lane_bits), todo.eq(beats_of(address)), left.eq(t.span + 1)]

        last_row, last = rows == 1, (rows == 1) & (planes == 1)
        next_plane, next_row = Signal(32), Signal(32)
        next_plane_offset, next_offset = Signal(self.offset_bits), Signal(self.offset_bits)
        m.d.comb += [
            next_plane.eq(plane + t.plane_step),
            next_plane_offset.eq(plane_offset + t.region_plane_step),
            next_row.eq(Mux(last_row, next_plane, row + t.row_step)),
            next_offset.eq(Mux(last_row, next_plane_offset, offset + t.region_row_step)),
        ]

        # The burst walker enters a row as soon as the last burst of the one before is taken.
        ahead = Signal()
        row_ahead = Signal(32)
        beat_ahead, todo_ahead = Signal.like(beat), Signal.like(todo)
        longest = Signal(range(MAX_BURST + 1))
        to_boundary = (BOUNDARY >> lane_bits) - beat_ahead[: PAGE_BITS - lane_bits]
        most = Mux(to_boundary < MAX_BURST, to_boundary, MAX_BURST)
        m.d.comb += [
            ahead.eq(open_ & row_taken),
            row_ahead.eq(Mux(ahead, next_row, row)),
            beat_ahead.eq(Mux(ahead, next_row >> lane_bits, beat)),
            todo_ahead.eq(Mux(ahead, beats_of(next_row), todo)),
            longest.eq(Mux(todo_ahead < most, todo_ahead, most)),
        ]
        with m.If(begin):
            m.d.sync += [running.eq(1), rows.eq(t.rows), planes.eq(t.planes), row.eq(t.address), plane.eq(t.address)]
            m.d.sync += [offset.eq(0), plane_offset.eq(0), *enter(t.address)]
        with m.If(taken):
            m.d.comb += [
                Assert(burst.address == beat << lane_bits, "a burst begins where the one before it ended"),
                Assert(burst.length + 1 == longest, "it ends at its row's end, at 256 beats or at 4 KiB, not before"),
                Assert(
                    (burst.address & (BOUNDARY - 1)) + ((burst.length + 1) << lane_bits) <= BOUNDARY,
                    "no burst crosses 4 KiB",
                ),
                Assert(burst.length < MAX_BURST, "no burst is longer than 256 beats"),
                Cover((burst.length + 1 < todo) & (to_boundary <= MAX_BURST), "a burst that ends at 4 KiB"),
            ]
            m.d.sync += [
                open_.eq(1),
                due.eq(burst.length + 1),
                beat.eq(beat + burst.length + 1),
                todo.eq(todo - burst.length - 1),
                row_taken.eq(burst.length + 1 == todo),
            ]
        stable(m, "bursts", bursts.o.valid, bursts.o.ready, burst.as_value())

        b = beats.beat
        first = left == t.span + 1
        sent = Signal()
        m.d.comb += sent.eq(beats.active & beats.advance)
        row_last = row_taken & (due == 1)
        with m.If(open_):
            m.d.comb += Assert(beats.active, "there is a beat while a burst has one")
        with m.If(sent):
            m.d.comb += [
                Assert(b.burst_last == (due == 1), "burst_last marks exactly the last beat of a burst"),
                Assert(b.last == (row_last & last), "last marks exactly the last beat of the transfer"),
                Assert(b.low == Mux(first, row[:lane_bits], 0), "a beat begins at lane 0, a row at its address"),
                Assert(
                    b.offset == (offset + t.span + 1 - left)[: self.offset_bits],
                    "the region offset counts the row's bytes",
                ),
                Assert(
                    Mux(row_last, b.size == left, b.size == self.bus_bytes - b.low),
                    "only beats at a row's ends are partial, and all beats together are the row's bytes",
                ),
                Cover(row_last & last & (t.rows == 2) & (t.planes == 2), "two planes of two rows end"),
            ]
            m.d.sync += [left.eq(left - b.size), due.eq(due - 1)]
            with m.If(due == 1):
                m.d.sync += open_.eq(0)
                with m.If(row_taken):
                    m.d.sync += [row_taken.eq(0), offset.eq(next_offset), row.eq(next_row), *enter(next_row)]
                    m.d.sync += [rows.eq(Mux(last_row, t.rows, rows - 1)), planes.eq(planes - last_row)]
                    with m.If(last_row):
                        m.d.sync += [plane.eq(next_plane), plane_offset.eq(next_plane_offset)]
                    with m.If(last):
                        m.d.sync += running.eq(0)
        ended = before(m, sent & row_last & last)
        began = before(m, begin)
        m.d.comb += [
            Assert(beats.active == running, "beats are due from the start to the last one"),
            Assert(bursts.active == (running & ~(open_ & row_taken & last)), "bursts are due until the last is taken"),
        ]
        with m.If(ended):
            m.d.comb += Assert(~bursts.active & ~beats.active, "both walkers end together")
        with m.If(began):
            m.d.comb += Assert(bursts.active & beats.active, "both walkers begin together")

        # What the walkers' registers hold.
        one_beat = t.span >> lane_bits == 0
        with m.If(~ready):
            m.d.comb += Assert(~running, "invariant: nothing runs in the first cycle")
        with m.Else():
            m.d.comb += Assert(beat_inner["one_beat"] == one_beat, "invariant: a beat if it does not straddle")
        with m.If(bursts.active):
            m.d.comb += [
                Assert(inner["address_row"] == row_ahead, "invariant: row"),
                Assert(inner["address_plane"] == Mux(ahead & last_row, next_plane, plane), "invariant: plane"),
                Assert(inner["row_left"] == Mux(ahead, Mux(last_row, t.rows, rows - 1), rows), "invariant: rows"),
                Assert(inner["plane_left"] == planes - (ahead & last_row), "invariant: planes"),
                Assert(inner["beat"] == beat_ahead, "invariant: beat"),
                Assert(inner["row_last"] == (inner["row_left"] == 1), "invariant: row_last"),
                Assert(inner["plane_last"] == (inner["plane_left"] == 1), "invariant: plane_last"),
                Assert(todo_ahead != 0, "invariant: something to do"),
                Assert(inner["left"] == todo_ahead - 1, "invariant: beats left"),
            ]
            with m.If(bursts.o.valid):
                m.d.comb += [
                    Assert(inner["length"] == longest - 1, "invariant: length"),
                    Assert(inner["ends_row"] == (longest == todo_ahead), "invariant: ends_row"),
                ]
        m.d.comb += Assert(bursts.active | ~bursts.o.valid, "invariant: bursts while active")
        full_burst = (beat_inner["count"] + due == MAX_BURST) if BOUNDARY >> lane_bits > MAX_BURST else Const(0)
        with m.If(running):
            m.d.comb += [
                Assert((rows != 0) & (planes != 0) & (rows <= t.rows), "invariant: a row to go"),
                Assert(beat_inner["row_left"] == rows, "invariant: rows of beats"),
                Assert(beat_inner["plane_left"] == planes, "invariant: planes of beats"),
                Assert(beat_inner["row_last"] == (rows == 1), "invariant: row_last of beats"),
                Assert(beat_inner["plane_last"] == (planes == 1), "invariant: plane_last of beats"),
                Assert(beat_inner["last_beat"] == (beat_inner["left"] == 0), "invariant: last_beat"),
                Assert(beat_inner["to_next"] == self.bus_bytes - Mux(first, row[:lane_bits], 0), "invariant: to_next"),
                Assert(beat_inner["address_row"] == row[:PAGE_BITS], "invariant: row of beats"),
                Assert(beat_inner["address_plane"] == plane[:PAGE_BITS], "invariant: plane of beats"),
                Assert(beat_inner["offset_row"] == offset, "invariant: row offset"),
                Assert(beat_inner["offset_plane"] == plane_offset, "invariant: plane offset"),
                Assert(beat_inner["offset"] == (offset + t.span + 1 - left)[: self.offset_bits], "invariant: offset"),
                Assert(beat_inner["first"] == first, "invariant: first beat of the row"),
                Assert(beat_inner["low"] == row[:lane_bits], "invariant: low"),
                Assert(beat_inner["high"] == (row + t.span)[:lane_bits], "invariant: high"),
                Assert(beat_inner["left"] == todo + Mux(open_, due, 0) - 1, "invariant: beats left of beats"),
                Assert(
                    beat_inner["in_page"] == (beat - Mux(open_, due, 0))[: PAGE_BITS - lane_bits],
                    "invariant: in_page",
                ),
                Assert((left != 0) & (left <= t.span + 1), "invariant: bytes to go"),
                Assert(
                    left + Mux(first, row[:lane_bits], 0) + Const(self.bus_bytes - 1) - beat_inner["high"]
                    == (todo + Mux(open_, due, 0)) << lane_bits,
                    "invariant: bytes and beats to go",
                ),
                Assert(open_ | (todo != 0), "invariant: a burst to come"),
                Assert(row_taken == (open_ & (todo == 0)), "invariant: row_taken"),
                Assert(~open_ | (due != 0), "invariant: a beat due"),
            ]
            with m.If(open_):
                m.d.comb += [
                    Assert(beat_inner["count"] + due <= MAX_BURST, "invariant: beats of a burst"),
                    Assert(
                        beat_inner["in_page"] + due <= BOUNDARY >> lane_bits, "invariant: beats of a burst within 4 KiB"
                    ),
                    Assert(
                        row_taken | (beat[: PAGE_BITS - lane_bits] == 0) | full_burst, "invariant: why the burst ends"
                    ),
                ]
            with m.Else():
                m.d.comb += Assert(beat_inner["count"] == 0, "invariant: no beat of the next burst")
        with m.Else():
            m.d.comb += Assert(~open_ & ~row_taken, "invariant: nothing is open at rest")
        return m
