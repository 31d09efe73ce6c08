"""System memory in single-data-rate SDRAM, such as the IS42S16160 of a ULX3S."""

from dataclasses import dataclass

from amaranth import Cat, ClockDomain, ClockSignal, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.board.ports import SystemMemory, beats_of
from dovetail.hw.common.clocking import delayed
from dovetail.isa.host import DECERR, OKAY
from dovetail.isa.timing.memories.sdram import LATENCY, MODE_CYCLES, NANOSECONDS, REFRESHES, RETURN, cycles_of

BANK_BITS = 2
MODE = LATENCY << 4
"""Mode register: bursts of one column."""
LINK_BITS = 32
"""Of a word of the link."""
FASTEST = 100_000_000
"""Hz of the fastest clock with that latency."""


@dataclass(frozen=True)
class Chip:
    """A chip of 4 banks. ``width``: bits of a column, 16 or 32; ``row_bits``, ``column_bits``: of their numbers."""

    width: int
    row_bits: int
    column_bits: int

    @property
    def bytes(self) -> int:
        """What it holds."""
        return self.width // 8 << BANK_BITS + self.row_bits + self.column_bits


CHIPS = {"sdram": Chip(16, 13, 9), "sdram32": Chip(32, 11, 8)}
"""By kind of memory: the IS42S16160 of a ULX3S, 32 MiB; what a GW2AR-18 has beside it in its package, 8 MiB."""


class Command(enum.Enum, shape=3):
    """RAS, CAS and WE, from the lowest bit on, high when asserted."""

    NOP = 0b000
    ACTIVATE = 0b001
    READ = 0b010
    REFRESH = 0b011
    WRITE = 0b110
    PRECHARGE = 0b101
    MODE = 0b111


class SdramPins(wiring.Signature):
    """Pins of the chip, seen from the controller; all high when asserted. The chip's clock is the inverse of ``sync``,
    its CKE and CS are always asserted."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        super().__init__(
            {
                "ras": Out(1),
                "cas": Out(1),
                "we": Out(1),
                "ba": Out(BANK_BITS),
                "a": Out(chip.row_bits),
                "dqm": Out(chip.width // 8),
                "dq_o": Out(chip.width),
                "dq_oe": Out(1),
                "dq_i": In(chip.width),
            }
        )


class SdramMemory(wiring.Component):
    """A controller with one row open at a time, and a column per cycle in it.

    Directions take turns by bursts; the link comes between beats. Chosen accesses wait for the chip in one of two
    buffers, so no combinational path leads from the chip to the bus.

    Parameters
    ----------
    chip: its shape.
    bus: data bits of AXI4.
    memory_bytes: bytes, a multiple of 4096, at most what the chip holds.
    outstanding: bursts taken per direction before the first is done.
    clock_hz: frequency of ``sync``, at most 100 MHz.

    Members
    -------
    port: see :class:`~dovetail.hw.board.ports.SystemMemory`.
    pins: the chip's.

    Latency
    -------
    Depends on rows and refreshes, see `dovetail.isa.timing.memories.sdram`; in an open row a read takes 9 cycles and
    ``bus / width`` per beat. Nothing is done in the first 200 microseconds (``power_up``).
    """

    def __init__(self, chip: Chip, *, bus: int, memory_bytes: int, outstanding: int, clock_hz: int) -> None:
        if memory_bytes > chip.bytes:
            raise ValueError(f"memory must be at most {chip.bytes} bytes of SDRAM, not {memory_bytes}")
        if clock_hz > FASTEST:
            raise ValueError(f"clock must be at most {FASTEST} Hz with SDRAM, not {clock_hz}")
        self.chip = chip
        self.bus = bus
        self.memory_bytes = memory_bytes
        self.outstanding = outstanding
        self.clock_hz = clock_hz
        self.nanoseconds = NANOSECONDS
        super().__init__({"port": In(SystemMemory(bus, memory_bytes)), "pins": Out(SdramPins(chip))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        # Two buffers alternate. A free buffer is known a cycle later, which is early enough even where a beat is one
        # column.
        layout = _access(self.chip, self.bus)
        offered, offers, room = Signal(layout), Signal(), Signal()
        access, waits = Signal(layout), Signal()
        columns, link_columns = self.bus // self.chip.width, LINK_BITS // self.chip.width
        column = Signal(exact_log2(columns))
        last_column = column == Mux(access.tag.link, link_columns - 1, columns - 1)
        taken = Signal()
        places = Signal(data.ArrayLayout(layout, 2))
        filled, fill, drain = Signal(2), Signal(), Signal()
        m.d.comb += [
            room.eq(~filled.bit_select(fill, 1)),
            waits.eq(filled.bit_select(drain, 1)),
            access.eq(places[drain]),
        ]
        with m.If(room):
            m.d.sync += places[fill].eq(offered)
            with m.If(offers):
                m.d.sync += [filled.bit_select(fill, 1).eq(1), fill.eq(~fill)]
        with m.If(taken):
            m.d.sync += column.eq(Mux(last_column, 0, column + 1))
            with m.If(last_column):
                m.d.sync += [filled.bit_select(drain, 1).eq(0), drain.eq(~drain)]
        self._choose(m, offered, offers, room)
        self._command(m, waits, access, column, taken, last_column)
        self._answer(m, taken & ~access.write, last_column, access.tag)
        return m

    def _choose(self, m: Module, access: data.View, offers: Signal, room: Signal) -> None:
        """Offers what is next, the link's word or a beat; it is taken if there is ``room``."""
        read, write, link = self.port.read, self.port.write, self.port.link
        chip = self.chip
        lane_bits = exact_log2(self.bus // chip.width)
        writes_next = Signal()  # after a burst the other direction is preferred
        asked = Signal()  # the link waits
        for_write = Signal()
        row = Signal(BANK_BITS + chip.row_bits)  # of the access before
        reads = beats_of(m, self, read, "ar")
        writes = beats_of(m, self, write, "aw")
        m.d.comb += [
            for_write.eq(writes.o.valid & write.wvalid & (writes_next | ~reads.o.valid)),
            access.follows.eq(access.address[chip.column_bits :] == row),
        ]
        m.d.sync += [
            asked.eq(link.valid & ~link.ready & ~(asked & room)),
            link.ready.eq(asked & room),
            write.bvalid.eq(0),
        ]
        with m.If(asked):
            m.d.comb += [
                offers.eq(1),
                access.write.eq(link.write),
                access.address.eq(link.address << exact_log2(LINK_BITS // chip.width)),
                access.data.eq(link.data),
                access.tag.link.eq(1),
            ]
        with m.Elif(for_write):
            m.d.comb += [
                offers.eq(1),
                access.write.eq(1),
                access.address.eq(writes.o.payload.row << lane_bits),
                access.data.eq(write.wdata),
                access.mask.eq(~(write.wstrb & writes.o.payload.inside.replicate(len(write.wstrb)))),
                write.wready.eq(room),
                writes.o.ready.eq(room),
            ]
        with m.Else():
            m.d.comb += [
                offers.eq(reads.o.valid),
                access.address.eq(reads.o.payload.row << lane_bits),
                reads.o.ready.eq(room),
                access.tag.last.eq(reads.o.payload.last),
                access.tag.inside.eq(reads.o.payload.inside),
            ]
        with m.If(offers & room):
            m.d.sync += row.eq(access.address[chip.column_bits :])
            with m.If(~asked):
                m.d.sync += [
                    writes_next.eq(for_write ^ Mux(for_write, writes.o.payload.last, reads.o.payload.last)),
                    write.bvalid.eq(for_write & writes.o.payload.last),
                    write.bresp.eq(Mux(writes.o.payload.inside, OKAY, DECERR)),
                ]

    def _command(
        self, m: Module, waits: Value, access: data.View, part: Signal, taken: Signal, last_part: Value
    ) -> None:
        """Commands to the chip: power-up, then refreshes, rows and columns. If an access ``waits``, it is its column
        number ``part`` that is due."""

        cycles = cycles_of(self.nanoseconds, self.clock_hz)
        pins, chip, link = self.pins, self.chip, self.port.link
        command = Signal(Command)
        address = access.address | part
        column, bank = address[: chip.column_bits], address[chip.column_bits :][:BANK_BITS]
        row = address[chip.column_bits + BANK_BITS :]
        all_banks = Const(1 << 10, chip.row_bits)
        a = Signal(chip.row_bits)
        m.d.sync += [
            Cat(pins.ras, pins.cas, pins.we).eq(command),
            pins.ba.eq(Mux(command == Command.MODE, 0, bank)),
            pins.a.eq(a),
            pins.dqm.eq(Mux(access.write, access.mask.word_select(part, chip.width // 8), 0)),
            pins.dq_o.eq(access.data.word_select(part, chip.width)),
            pins.dq_oe.eq(command == Command.WRITE),
        ]
        pause, pauses = Signal(range(cycles["power_up"]), init=cycles["power_up"] - 1), Signal(init=1)
        held = Signal(range(max(cycles["ras"], cycles["wr"] + 1)))  # the open row must stay open
        until_refresh = Signal(range(cycles["refresh_interval"]))
        due, refresh = Signal(), Signal()
        m.d.comb += refresh.eq(due | (link.settle & ~link.settled))
        is_open, opened = Signal(), Signal()  # a row is; and just now, for the access that waits
        bus_taken = Signal(RETURN)  # by data of a read
        m.d.sync += bus_taken.eq(bus_taken << 1 | (command == Command.READ))
        with m.If(held.any()):
            m.d.sync += held.eq(held - 1)
        m.d.sync += until_refresh.eq(Mux(until_refresh.any(), until_refresh - 1, cycles["refresh_interval"] - 1))
        with m.If(~until_refresh.any()):
            m.d.sync += due.eq(1)
        m.d.sync += link.settled.eq(0)

        def issue(what: object, wait: str | int) -> None:
            m.d.comb += command.eq(what)
            last = (cycles[wait] if isinstance(wait, str) else wait) - 1
            m.d.sync += [pause.eq(last), pauses.eq(last != 0)]

        left = Signal(4, init=REFRESHES)
        with m.If(pauses):
            m.d.sync += [pause.eq(pause - 1), pauses.eq(pause[1:].any())]
        with m.Else(), m.FSM():
            with m.State("PRECHARGE"):
                issue(Command.PRECHARGE, "rp")
                m.d.comb += a.eq(all_banks)
                m.next = "REFRESH"
            with m.State("REFRESH"):
                issue(Command.REFRESH, "rfc")
                m.d.sync += left.eq(left - 1)
                with m.If(left == 1):
                    m.next = "MODE"
            with m.State("MODE"):
                issue(Command.MODE, MODE_CYCLES)
                m.d.comb += a.eq(MODE)
                m.next = "RUN"
            with m.State("RUN"):
                hit = opened | access.follows
                with m.If(is_open & (refresh | (waits & ~hit))), m.If(~held.any()):
                    issue(Command.PRECHARGE, "rp")
                    m.d.comb += a.eq(all_banks)
                    m.d.sync += is_open.eq(0)
                with m.Elif(refresh):
                    issue(Command.REFRESH, "rfc")
                    m.d.sync += due.eq(0)
                    with m.If(link.settle):
                        m.d.sync += [link.settled.eq(1), until_refresh.eq(cycles["refresh_interval"] - 1)]
                with m.Elif(waits & ~is_open):
                    issue(Command.ACTIVATE, "rcd")
                    m.d.comb += a.eq(row)
                    m.d.sync += [is_open.eq(1), opened.eq(1), held.eq(cycles["ras"] - 1)]
                with m.Elif(waits & access.write & ~bus_taken.any()):
                    m.d.comb += [command.eq(Command.WRITE), a.eq(column), taken.eq(1)]
                    m.d.sync += opened.eq(~last_part)
                    with m.If(held < cycles["wr"]):
                        m.d.sync += held.eq(cycles["wr"])
                with m.Elif(waits & ~access.write):
                    m.d.comb += [command.eq(Command.READ), a.eq(column), taken.eq(1)]
                    m.d.sync += opened.eq(~last_part)

    def _answer(self, m: Module, reads: Value, last_column: Value, asked: data.View) -> None:
        """Data of reads, as they come back. ``reads``: the chip is told to read what has the tag ``asked``, its
        ``last_column`` or another."""
        read, link = self.port.read, self.port.link
        m.domains += ClockDomain("chip", local=True, reset_less=True, clk_edge="neg")
        m.d.comb += ClockSignal("chip").eq(ClockSignal())
        width = self.chip.width
        taken = Signal(width)
        m.d.chip += taken.eq(self.pins.dq_i)
        column = Signal(width)
        m.d.sync += column.eq(taken)
        valid, last = delayed(m, "reads", Cat(reads, last_column), RETURN)[-1]
        tag = data.View(_TAG, delayed(m, "tags", asked.as_value(), RETURN)[-1])
        word = Signal(self.bus)
        with m.If(valid):
            m.d.sync += word.eq(Cat(word[width:], column))
        ended = valid & last
        m.d.sync += [
            read.rvalid.eq(ended & ~tag.link),
            read.rlast.eq(tag.last),
            read.rresp.eq(Mux(tag.inside, OKAY, DECERR)),
            link.answer.eq(ended & tag.link),
        ]
        m.d.comb += [read.rdata.eq(word), link.read_data.eq(word[-LINK_BITS:])]


_TAG = data.StructLayout({"link": 1, "last": 1, "inside": 1})


def _access(chip: Chip, bus: int) -> data.StructLayout:
    """A beat, or a word of the link. ``address`` of its first column counts those of all rows and banks; it ``follows``
    an access to the same row; ``mask`` has the bytes that are not written."""
    return data.StructLayout(
        {
            "address": chip.column_bits + BANK_BITS + chip.row_bits,
            "follows": 1,
            "write": 1,
            "data": bus,
            "mask": bus // 8,
            "tag": _TAG,
        }
    )
