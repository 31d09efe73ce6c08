"""Walks over the rows of a DMA transfer: one walker yields its bursts, one its beats."""

from amaranth import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

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

    def __init__(self, bus_bytes: int) -> None:
        super().__init__(
            {
                "low": range(bus_bytes),
                "size": range(bus_bytes + 1),
                "offset": 32,
                "burst_last": 1,
                "last": 1,
            }
        )


class _Rows:
    """Counts rows and planes; ``row_end`` and ``end`` tell that this row is the last of its plane, of all. The limits
    of the counts are in registers, as they are known long before they are needed."""

    def __init__(self, m: Module, transfer: Transfer) -> None:
        self.transfer = transfer
        self.rows = Signal(16)
        self.planes = Signal(16)
        self.row_end = Signal()
        self.plane_end = Signal()
        self.single = Signal()  # a plane has one row
        self.end = self.row_end & self.plane_end
        m.d.sync += self.single.eq(transfer.rows == 1)

    def begin(self) -> list[object]:
        return [
            self.rows.eq(self.transfer.rows),
            self.planes.eq(self.transfer.planes),
            self.row_end.eq(self.single),
            self.plane_end.eq(self.transfer.planes == 1),
        ]

    def next(self) -> list[object]:
        return [
            self.rows.eq(Mux(self.row_end, self.transfer.rows, self.rows - 1)),
            self.planes.eq(self.planes - self.row_end),
            self.row_end.eq(Mux(self.row_end, self.single, self.rows == 2)),
            self.plane_end.eq(Mux(self.row_end, self.planes == 2, self.plane_end)),
        ]


class BurstWalker(wiring.Component):
    """The bursts of a transfer: INCR, at most 256 beats, none across a 4 KiB boundary.

    Parameters
    ----------
    bus_bytes: bytes of a beat.

    Members
    -------
    begin: pulse; starts a transfer.
    active: high from the cycle after ``begin`` until the last burst has been taken.
    o: the bursts.

    Latency
    -------
    The first burst shows 2 cycles after ``begin``, each other one 2 cycles after the one before it was taken.
    """

    def __init__(self, *, bus_bytes: int) -> None:
        self.bus_bytes = bus_bytes
        super().__init__(
            {"transfer": In(Transfer), "begin": In(1), "active": Out(1), "o": Out(stream.Signature(Burst))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self.transfer
        lane_bits = exact_log2(self.bus_bytes)
        rows = _Rows(m, t)
        row = Signal(32)  # first byte of this row
        plane = Signal(32)  # first byte of this plane
        beat = Signal(32 - lane_bits)  # first beat of the burst
        left = Signal(33 - lane_bits)  # beats - 1 from there to the row's end
        first = Signal()  # `left` must still be taken from the row
        straddles = Signal()  # the row takes a beat more than its bytes would alone
        length = Signal(8)
        ends_row = Signal()
        full = Signal(32 - lane_bits)
        full_1 = Signal(33 - lane_bits)
        full_far = Signal()  # more than any burst
        full_1_far = Signal()
        m.d.comb += full.eq(t.span >> lane_bits)
        m.d.sync += [full_1.eq(full + 1), full_far.eq(full[8:].any()), full_1_far.eq((full + 1)[8:].any())]

        left_now = Signal.like(left)
        far = Signal()
        limit = Signal(8)
        m.d.comb += [
            left_now.eq(Mux(first, Mux(straddles, full_1, full), left)),
            far.eq(Mux(first, Mux(straddles, full_1_far, full_far), left[8:].any())),
        ]

        def beyond(address: Value) -> Value:
            return (address[:lane_bits] + t.span[:lane_bits])[lane_bits]

        in_page = beat[: PAGE_BITS - lane_bits]
        if BOUNDARY >> lane_bits > MAX_BURST:
            to_boundary = (BOUNDARY >> lane_bits) - MAX_BURST
            m.d.comb += limit.eq(Mux(in_page >= to_boundary, ~in_page[:8], MAX_BURST - 1))
        else:
            m.d.comb += limit.eq((~in_page).as_unsigned())
        fits = Signal()
        m.d.comb += fits.eq(~far & (left_now[:8] <= limit))

        next_row = Signal(32)
        next_plane = Signal(32)
        m.d.comb += [
            next_plane.eq(plane + t.plane_step),
            next_row.eq(Mux(rows.row_end, next_plane, row + t.row_step)),
            self.o.payload.address.eq(Cat(Const(0, lane_bits), beat)),
            self.o.payload.length.eq(length),
        ]
        with m.If(self.begin):
            m.d.sync += self.active.eq(1)
        with m.If(~self.active):
            m.d.sync += [
                row.eq(t.address),
                plane.eq(t.address),
                beat.eq(t.address >> lane_bits),
                first.eq(1),
                straddles.eq(beyond(t.address)),
                *rows.begin(),
            ]
        with m.Elif(~self.o.valid):
            m.d.sync += [
                self.o.valid.eq(1),
                length.eq(Mux(fits, left_now[:8], limit)),
                left.eq(left_now),
                ends_row.eq(fits),
            ]
        with m.Elif(self.o.ready):
            m.d.sync += [
                self.o.valid.eq(0),
                left.eq(left + ~Cat(length, Const(0, len(left) - 8))),  # less length + 1
                beat.eq(beat + length + 1),
                first.eq(ends_row),
            ]
            with m.If(ends_row):
                m.d.sync += [
                    self.active.eq(~rows.end),
                    row.eq(next_row),
                    beat.eq(next_row >> lane_bits),
                    straddles.eq(beyond(next_row)),
                    *rows.next(),
                ]
                with m.If(rows.row_end):
                    m.d.sync += plane.eq(next_plane)
        return m


class BeatWalker(wiring.Component):
    """The beats of a transfer.

    Parameters
    ----------
    bus_bytes: bytes of a beat.

    Members
    -------
    begin: pulse; starts a transfer.
    active: high from the cycle after ``begin`` until the last beat has been taken.
    beat: the beat that is due while ``active``.
    advance: takes it; the next one shows in the next cycle.
    """

    def __init__(self, *, bus_bytes: int) -> None:
        self.bus_bytes = bus_bytes
        super().__init__(
            {
                "transfer": In(Transfer),
                "begin": In(1),
                "active": Out(1),
                "beat": Out(Beat(bus_bytes)),
                "advance": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        t = self.transfer
        lane_bits = exact_log2(self.bus_bytes)
        rows = _Rows(m, t)
        row = Signal(PAGE_BITS)  # addresses within 4 KiB
        plane = Signal(PAGE_BITS)
        in_page = Signal(PAGE_BITS - lane_bits)
        count = Signal(8)  # beats of the burst so far
        first = Signal()
        low = Signal(lane_bits)  # first lane of the row
        high = Signal(lane_bits)  # last lane of the row
        left = Signal(33 - lane_bits)
        row_last = Signal()  # none is left
        to_next = Signal(lane_bits + 1)  # bytes from this beat's first one to the next beat
        row_offset = Signal(32)
        plane_offset = Signal(32)
        offset = Signal(32)
        full = Signal(32 - lane_bits)
        full_1 = Signal(33 - lane_bits)
        one_beat = Signal()  # a row that does not straddle has one beat
        m.d.comb += full.eq(t.span >> lane_bits)
        m.d.sync += [full_1.eq(full + 1), one_beat.eq(full == 0)]

        b = self.beat
        first_lane, last_lane = Signal(lane_bits), Signal(lane_bits)
        m.d.comb += [
            first_lane.eq(Mux(first, low, 0)),
            last_lane.eq(Mux(row_last, high, self.bus_bytes - 1)),
            b.low.eq(first_lane),
            b.size.eq(last_lane - first_lane + 1),
            b.offset.eq(offset),
            b.burst_last.eq(row_last | in_page.all()),
            b.last.eq(row_last & rows.end),
        ]
        if BOUNDARY >> lane_bits > MAX_BURST:
            m.d.comb += b.burst_last.eq(row_last | in_page.all() | count.all())

        def enter(address: Signal) -> list[object]:
            """Starts a row."""
            lanes = address[:lane_bits] + t.span[:lane_bits]
            return [
                row.eq(address),
                in_page.eq(address[lane_bits:]),
                count.eq(0),
                first.eq(1),
                low.eq(address[:lane_bits]),
                high.eq(lanes[:lane_bits]),
                left.eq(Mux(lanes[lane_bits], full_1, full)),
                row_last.eq(one_beat & ~lanes[lane_bits]),
                to_next.eq(self.bus_bytes - address[:lane_bits]),
            ]

        next_row, next_plane = Signal(PAGE_BITS), Signal(PAGE_BITS)
        next_row_offset, next_plane_offset = Signal(32), Signal(32)
        m.d.comb += [
            next_plane.eq(plane + t.plane_step),
            next_plane_offset.eq(plane_offset + t.region_plane_step),
            next_row.eq(Mux(rows.row_end, next_plane, row + t.row_step)),
            next_row_offset.eq(Mux(rows.row_end, next_plane_offset, row_offset + t.region_row_step)),
        ]
        with m.If(self.begin):
            m.d.sync += self.active.eq(1)
        with m.If(~self.active):
            m.d.sync += [
                plane.eq(t.address),
                row_offset.eq(0),
                plane_offset.eq(0),
                offset.eq(0),
                *enter(t.address[:PAGE_BITS]),
                *rows.begin(),
            ]
        with m.Elif(self.advance):
            with m.If(row_last):
                m.d.sync += [
                    self.active.eq(~rows.end),
                    row_offset.eq(next_row_offset),
                    offset.eq(next_row_offset),
                    *enter(next_row),
                    *rows.next(),
                ]
                with m.If(rows.row_end):
                    m.d.sync += [plane.eq(next_plane), plane_offset.eq(next_plane_offset)]
            with m.Else():
                m.d.sync += [
                    in_page.eq(in_page + 1),
                    count.eq(Mux(b.burst_last, 0, count + 1)),
                    first.eq(0),
                    left.eq(left - 1),
                    row_last.eq(left == 1),
                    to_next.eq(self.bus_bytes),
                    offset.eq(offset + to_next),
                ]
        return m
