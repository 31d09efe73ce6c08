"""System memory in block RAM."""

from amaranth import Module, Mux, Signal, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.hw.board.ports import SystemMemory, beats_of
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.host import DECERR, OKAY

TIMING = MemoryTiming(read_latency=3, write_latency=2, beat_cycles=1)
"""Exact as long as the link does not access the memory."""


class BlockMemory(wiring.Component):
    """Block RAM with a read and a write port: a beat per cycle in each direction, one less for an access of the link,
    which comes first.

    Parameters
    ----------
    bus: data bits of AXI4.
    memory_bytes: bytes, a multiple of 4096.
    outstanding: bursts taken per direction before the first is done.

    Members
    -------
    port: see :class:`~dovetail.hw.board.ports.SystemMemory`.

    Latency
    -------
    See :data:`TIMING`. A read of the link is answered 3 cycles after its request.
    """

    def __init__(self, *, bus: int, memory_bytes: int, outstanding: int) -> None:
        self.bus = bus
        self.memory_bytes = memory_bytes
        self.outstanding = outstanding
        super().__init__({"port": In(SystemMemory(bus, memory_bytes))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        rows = self.memory_bytes * 8 // self.bus
        m.submodules.cells = cells = memory.Memory(shape=unsigned(self.bus), depth=rows, init=[])
        self._reads(m, cells.read_port())
        self._writes(m, cells.write_port(granularity=8))
        m.d.comb += [self.port.link.ready.eq(1), self.port.link.settled.eq(1)]
        return m

    def _reads(self, m: Module, cells: memory.ReadPort) -> None:
        axi, link = self.port.read, self.port.link
        lane_bits = exact_log2(self.bus // 32)
        turn = Signal()  # of the link
        beats = beats_of(m, self, axi, "ar")
        m.d.comb += [
            turn.eq(link.valid & ~link.write),
            beats.o.ready.eq(~turn),
            cells.en.eq(turn | beats.o.valid),
            cells.addr.eq(Mux(turn, link.address >> lane_bits, beats.o.payload.row)),
            link.read_data.eq(axi.rdata.word_select(link.address[:lane_bits], 32)),
        ]
        read = Signal.like(beats.o.payload)  # what comes out of the cells
        reading, turned = Signal(), Signal()
        m.d.sync += [
            reading.eq(beats.o.valid & ~turn),
            read.eq(beats.o.payload),
            turned.eq(turn),
            axi.rvalid.eq(reading),
            axi.rdata.eq(cells.data),
            axi.rresp.eq(Mux(read.inside, OKAY, DECERR)),
            axi.rlast.eq(read.last),
            link.answer.eq(turned),
        ]

    def _writes(self, m: Module, cells: memory.WritePort) -> None:
        axi, link = self.port.write, self.port.link
        lane_bits = exact_log2(self.bus // 32)
        lanes = self.bus // 32
        turn, accepted = Signal(), Signal()
        beats = beats_of(m, self, axi, "aw")
        m.d.comb += [
            turn.eq(link.valid & link.write),
            axi.wready.eq(beats.o.valid & ~turn),
            accepted.eq(axi.wvalid & axi.wready),
            beats.o.ready.eq(accepted),
        ]
        beat = beats.o.payload
        closing, outside = Signal(), Signal()
        with m.If(turn):
            m.d.sync += [
                cells.addr.eq(link.address >> lane_bits),
                cells.data.eq(link.data.replicate(lanes)),
                cells.en.eq(0xF << (link.address[:lane_bits] << 2)),
            ]
        with m.Else():
            m.d.sync += [
                cells.addr.eq(beat.row),
                cells.data.eq(axi.wdata),
                cells.en.eq(Mux(accepted & beat.inside, axi.wstrb, 0)),
            ]
        m.d.sync += [
            closing.eq(accepted & beat.last),
            outside.eq(~beat.inside),
            axi.bvalid.eq(closing),
            axi.bresp.eq(Mux(outside, DECERR, OKAY)),
        ]
