"""Walks over the rows of a DMA transfer: one walker yields its bursts, one its beats."""

from amaranth import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.walk import Place, count_loops, stepped
from dovetail.isa.timing.dma import BOUNDARY, MAX_BURST

PAGE_BITS = exact_log2(BOUNDARY)


class Transfer(data.Struct):
    """What a transfer touches: ``planes`` times ``rows`` rows of ``span`` + 1 bytes in system memory, from
    ``address`` on; ``region_*`` are the same steps in the SRAM region. Stable while the transfer runs."""

    address: unsigned(32)
    row_step: unsigned(32)
    plane_step: unsigned(32)
    region_row_step: unsigned(32)
    region_plane_step: unsigned(32)
    span: unsigned(32)
    rows: unsigned(16)
    planes: unsigned(16)


class Burst(data.Struct):
    """A burst: address of its first beat and beats - 1, as AXI has them."""

    address: unsigned(32)
    length: unsigned(8)


class Beat(data.StructLayout):
    """The bytes of one beat: lanes ``low`` .. ``low + size - 1`` of the bus, from ``offset`` on in the region."""

    def __init__(self, bus_bytes: int, offset_bits: int) -> None:
        super().__init__(
            {
                "low": range(bus_bytes),
                "size": range(bus_bytes + 1),
                "offset": offset_bits,
                "burst_last": 1,
                "last": 1,
            }
        )


def _count_rows(m: Module, t: Transfer, *, load: Value, step: Value) -> tuple[dict[str, Value], Value]:
    """Loops over rows and planes: what comes after this row, and whether it is the last one."""
    level, ends = count_loops(m, {"row": t.rows, "plane": t.planes}, load=load, step=step)
    return {"row": level["row"], "plane": ends["row"]}, ends["plane"]


class BurstWalker(wiring.Component):
    """The bursts of a transfer: INCR, at most 256 beats, none across a 4 KiB boundary.

    Parameters
    ----------
    bus_bytes: bytes of a beat.

    Members
    -------
    begin: pulse; starts a transfer.
    active: high from the cycle after ``begin`` until the last burst has been taken.
    room: a burst may show in the next cycle.
    o: the bursts; all of it comes from registers.

    Latency
    -------
    With ``room`` the first burst shows 2 cycles after ``begin``, each other one 2 cycles after the one before it was
    taken.
    """

    def __init__(self, *, bus_bytes: int) -> None:
        self.bus_bytes = bus_bytes
        super().__init__(
            {
                "transfer": In(Transfer),
                "begin": In(1),
                "active": Out(1),
                "room": In(1),
                "o": Out(stream.Signature(Burst)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self.transfer
        lane_bits = exact_log2(self.bus_bytes)
        next_row, takes_row = Signal(32), Signal()
        level, last_row = _count_rows(m, t, load=~self.active, step=takes_row)
        row = Place("address", {"row": t.row_step, "plane": t.plane_step}, width=32)
        beat = Signal(32 - lane_bits)  # first beat of the burst
        left = Signal(33 - lane_bits)  # beats - 1 from there to the row's end
        length = Signal(8)
        ends_row = Signal()
        limit = Signal(8)

        in_page = beat[: PAGE_BITS - lane_bits]
        if BOUNDARY >> lane_bits > MAX_BURST:
            to_boundary = (BOUNDARY >> lane_bits) - MAX_BURST
            m.d.comb += limit.eq(Mux(in_page >= to_boundary, ~in_page[:8], MAX_BURST - 1))
        else:
            m.d.comb += limit.eq((~in_page).as_unsigned())
        fits = Signal()
        m.d.comb += fits.eq(~left[8:].any() & (left[:8] <= limit))

        # A row takes a beat more than its bytes would alone if it straddles one.
        enters, address = Signal(), Signal(32)  # a row is entered, which begins there
        straddles = (address[:lane_bits] + t.span[:lane_bits])[lane_bits]
        full = t.span[lane_bits:]
        here = Mux(enters, address[lane_bits:], beat)
        taken = Cat(~length, Const(-1, len(left) - 8)) & ~enters.replicate(len(left))  # less length + 1
        m.d.comb += [
            next_row.eq(row.following(level)),
            takes_row.eq(self.active & self.o.valid & self.o.ready & ends_row),
            enters.eq(~self.active | ends_row),
            address.eq(Mux(self.active, next_row, t.address)),
            self.o.payload.address.eq(Cat(Const(0, lane_bits), beat)),
            self.o.payload.length.eq(length),
        ]
        with m.If(self.begin):
            m.d.sync += self.active.eq(1)
        with m.If(~self.active):
            m.d.sync += row.begin(t.address)
        with m.Elif(~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(self.room),
                length.eq(Mux(fits, left[:8], limit)),
                ends_row.eq(fits),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
            with m.If(ends_row):
                m.d.sync += self.active.eq(~last_row)
                row.move(m, level, next_row)
        with m.If(~self.active | (self.o.valid & self.o.ready)):
            m.d.sync += [
                left.eq((Cat(enters, Mux(enters, full, left)) + Cat(straddles, taken))[1:]),
                beat.eq((Cat(~enters, here) + Cat(~enters, Mux(enters, 0, length)))[1:]),  # and length + 1 more
            ]
        return m


class BeatWalker(wiring.Component):
    """The beats of a transfer.

    Parameters
    ----------
    bus_bytes: bytes of a beat.
    offset_bits: bits of an offset in the region; of the steps there as many count.

    Members
    -------
    begin: pulse; starts a transfer.
    active: high from the cycle after ``begin`` until the last beat has been taken.
    beat: the beat that is due while ``active``.
    advance: takes it; the next one shows in the next cycle.
    """

    def __init__(self, *, bus_bytes: int, offset_bits: int) -> None:
        self.bus_bytes = bus_bytes
        self.offset_bits = offset_bits
        super().__init__(
            {
                "transfer": In(Transfer),
                "begin": In(1),
                "active": Out(1),
                "beat": Out(Beat(bus_bytes, offset_bits)),
                "advance": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self.transfer
        lane_bits = exact_log2(self.bus_bytes)
        last_beat = Signal()  # no beat of the row is left
        level, last_row = _count_rows(m, t, load=~self.active, step=self.active & self.advance & last_beat)
        row = Place("address", {"row": t.row_step, "plane": t.plane_step}, width=PAGE_BITS)  # addresses within 4 KiB
        row_offset = Place("offset", {"row": t.region_row_step, "plane": t.region_plane_step}, width=self.offset_bits)
        in_page = Signal(PAGE_BITS - lane_bits)
        count = Signal(8)  # beats of the burst so far
        first = Signal()
        low = Signal(lane_bits)  # first lane of the row
        high = Signal(lane_bits)  # last lane of the row
        left = Signal(33 - lane_bits)
        to_next = Signal(lane_bits + 1)  # bytes from this beat's first one to the next beat
        offset = Signal(self.offset_bits)
        full = t.span[lane_bits:]
        one_beat = Signal()  # a row that does not straddle has one beat
        m.d.sync += one_beat.eq(full == 0)

        b = self.beat
        first_lane, last_lane = Signal(lane_bits), Signal(lane_bits)
        m.d.comb += [
            first_lane.eq(Mux(first, low, 0)),
            last_lane.eq(Mux(last_beat, high, self.bus_bytes - 1)),
            b.low.eq(first_lane),
            b.size.eq(last_lane - first_lane + 1),
            b.offset.eq(offset),
            b.burst_last.eq(last_beat | in_page.all()),
            b.last.eq(last_beat & last_row),
        ]
        if BOUNDARY >> lane_bits > MAX_BURST:
            m.d.comb += b.burst_last.eq(last_beat | in_page.all() | count.all())

        next_row, next_row_offset = Signal(PAGE_BITS), Signal(self.offset_bits)
        m.d.comb += [
            next_row.eq(row.following(level)),
            next_row_offset.eq(row_offset.following(level)),
        ]
        enters, address = Signal(), Signal(PAGE_BITS)  # a row is entered, which begins there
        lanes = address[:lane_bits] + t.span[:lane_bits]
        straddles = lanes[lane_bits]
        m.d.comb += [enters.eq(~self.active | last_beat), address.eq(Mux(self.active, next_row, t.address))]
        with m.If(self.begin):
            m.d.sync += self.active.eq(1)
        with m.If(~self.active):
            m.d.sync += [*row.begin(t.address), *row_offset.begin(0), offset.eq(0)]
        with m.Elif(self.advance):
            with m.If(last_beat):
                m.d.sync += [self.active.eq(~last_row), offset.eq(next_row_offset)]
                row.move(m, level, next_row)
                row_offset.move(m, level, next_row_offset)
            with m.Else():
                m.d.sync += offset.eq(offset + to_next)
        with m.If(~self.active | self.advance):
            m.d.sync += [
                in_page.eq(stepped(in_page, 1, enters, address[lane_bits:])),
                count.eq(Mux(enters | b.burst_last, 0, count + 1)),
                first.eq(enters),
                left.eq((Cat(enters, Mux(enters, full, left)) + Cat(straddles, ~enters.replicate(len(left))))[1:]),
                last_beat.eq(Mux(enters, one_beat & ~straddles, left == 1)),
                to_next.eq(self.bus_bytes - Mux(enters, address[:lane_bits], 0)),
            ]
            with m.If(enters):
                m.d.sync += [low.eq(address[:lane_bits]), high.eq(lanes[:lane_bits])]
        return m
