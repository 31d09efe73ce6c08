"""Core of the LOAD unit: AXI4 reads into the SRAM, and instruction pages for the front end."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.axi import INCR, AxiRead
from dovetail.hw.common.ports import Core, SramWrite
from dovetail.hw.dma.burst import Beat, BeatWalker, BurstWalker
from dovetail.hw.dma.registers import DmaRegisters, reaches
from dovetail.isa.config import Config
from dovetail.isa.instructions.table import PAGE_BYTES, Unit
from dovetail.isa.timing.dma import READ_END
from dovetail.isa.timing.sequencer import CHECK


class PageWrite(wiring.Signature):
    """Writes a beat of an instruction page: ``row`` counts beats over both page buffers."""

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"en": Out(1), "row": Out(range(2 * PAGE_BYTES // config.bus_bytes)), "data": Out(config.bus)})


class LoadCore(wiring.Component):
    """Reads rows of system memory into the SRAM, one write per beat; a fetch goes to the page buffers.

    Parameters
    ----------
    config: the accelerator.

    Members
    -------
    core: border to the unit's control.
    base: what ``MEM_ADDR`` is relative to.
    axi: read channels; never stalls read data.
    sram: write port.
    page: page buffers; the buffer is bit 10 of the page's address.

    Latency
    -------
    See :mod:`dovetail.isa.timing.dma`. A beat reaches ``sram`` 3 cycles after the bus.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "core": In(Core(config)),
                "base": In(32),
                "axi": Out(AxiRead(config.bus)),
                "sram": Out(SramWrite(config)),
                "page": Out(PageWrite(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core, axi = self.config, self.core, self.axi
        m.submodules.registers = registers = DmaRegisters(config, unit=Unit.LOAD)
        m.submodules.bursts = bursts = BurstWalker(bus_bytes=config.bus_bytes)
        m.submodules.beats = beats = BeatWalker(bus_bytes=config.bus_bytes)
        m.d.comb += [
            *(
                getattr(registers, name).eq(getattr(core, name))
                for name in ("clear", "cfg_en", "cfg_index", "cfg_value", "start", "fetch", "address")
            ),
            registers.base.eq(self.base),
            core.cause.eq(registers.cause),
            core.writes.eq(registers.banks),
            core.target.eq(registers.span),
            bursts.transfer.eq(registers.transfer),
            bursts.begin.eq(core.go),
            beats.transfer.eq(registers.transfer),
            beats.begin.eq(core.go),
        ]

        in_flight = Signal(range(config.outstanding + 1))
        free = Signal()
        issued, returned = Signal(), Signal()
        m.d.comb += [
            free.eq(in_flight != config.outstanding),
            axi.araddr.eq(bursts.o.payload.address),
            axi.arlen.eq(bursts.o.payload.length),
            axi.arsize.eq(exact_log2(config.bus_bytes)),
            axi.arburst.eq(INCR),
            axi.arvalid.eq(bursts.o.valid & free),
            bursts.o.ready.eq(axi.arready & free),
            axi.rready.eq(1),
            issued.eq(axi.arvalid & axi.arready),
            returned.eq(axi.rvalid & axi.rlast),
        ]
        with m.If(issued ^ returned):
            m.d.sync += in_flight.eq(in_flight + issued - returned)

        # First register stage: the beat as it came.
        came = Signal()
        came_bad = Signal()
        came_word = Signal(config.bus)
        m.d.sync += came.eq(axi.rvalid)
        with m.If(axi.rvalid):
            m.d.sync += [came_word.eq(axi.rdata), came_bad.eq(axi.rresp.any())]

        # Second stage: which bytes it holds.
        arrived = Signal()
        beat = Signal(Beat(config.bus_bytes))
        room = Signal(33)  # bytes from its first one to the end of the region
        word = Signal(config.bus)
        bad = Signal()  # an error answer came for this instruction
        m.d.comb += beats.advance.eq(came)
        m.d.sync += arrived.eq(came)
        with m.If(core.go):
            m.d.sync += bad.eq(0)
        with m.If(came):
            m.d.sync += [
                beat.eq(beats.beat),
                room.eq(registers.sram_bytes - beats.beat.offset),
                word.eq(came_word),
                bad.eq(bad | came_bad),
            ]

        # Third stage: address, region, alignment.
        address_bits = len(self.sram.addr)
        inside = Signal()
        m.d.comb += inside.eq(reaches(room, beat.size) & ~bad & ~registers.fetching)
        m.d.sync += self.sram.en.eq(arrived & inside)
        with m.If(arrived):
            m.d.sync += [
                self.sram.addr.eq((registers.sram_addr + beat.offset)[:address_bits]),
                self.sram.size.eq(beat.size),
                self.sram.data.eq(word >> (beat.low << 3)),
            ]

        row = Signal(range(PAGE_BYTES // config.bus_bytes))
        with m.If(core.start):
            m.d.sync += row.eq(0)
        with m.Elif(arrived):
            m.d.sync += row.eq(row + 1)
        m.d.comb += [
            self.page.en.eq(arrived & registers.fetching),
            self.page.row[: len(row)].eq(row),
            self.page.row[len(row)].eq(registers.transfer.address[exact_log2(PAGE_BYTES)]),
            self.page.data.eq(word),
        ]

        # The end: READ_END cycles after the last beat.
        ending = Signal(READ_END - 1)
        m.d.sync += ending.eq(ending << 1 | (came & beats.active & beats.beat.last))
        m.d.comb += [core.done.eq(ending[-1]), core.error.eq(bad)]
        assert CHECK == 3, "the register stages of DmaRegisters take CHECK cycles"
        return m
