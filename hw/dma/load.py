"""Core of the LOAD unit: AXI4 reads into the SRAM, and instruction pages for the front end."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.axi import AxiRead
from dovetail.hw.common.ports import Core, SramWrite
from dovetail.hw.dma.shell import DmaShell
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, Unit
from dovetail.isa.timing.dma import READ_END


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
        shell = DmaShell(m, Unit.LOAD, self)
        beats, beat, fetching = shell.beats, shell.beat, shell.registers.fetching
        m.d.comb += [axi.rready.eq(1), shell.answered.eq(axi.rvalid & axi.rlast)]

        # First register stage: the beat as it came.
        came = Signal()
        came_bad = Signal()
        came_word = Signal(config.bus)
        m.d.sync += came.eq(axi.rvalid)
        with m.If(axi.rvalid):
            m.d.sync += [came_word.eq(axi.rdata), came_bad.eq(axi.rresp.any())]

        # Second stage: which bytes it holds.
        word = Signal(config.bus)
        bad = Signal()  # an error answer came for this instruction
        m.d.comb += beats.advance.eq(came)
        with m.If(core.go):
            m.d.sync += bad.eq(0)
        with m.If(came):
            m.d.sync += [word.eq(came_word), bad.eq(bad | came_bad)]

        # Third stage: region, alignment.
        m.d.sync += self.sram.en.eq(shell.there & shell.inside & ~bad & ~fetching)
        with m.If(shell.there):
            m.d.sync += [self.sram.size.eq(beat.size), self.sram.data.eq(word >> (beat.low << 3))]

        row = Signal(range(PAGE_BYTES // config.bus_bytes))
        with m.If(core.start):
            m.d.sync += row.eq(0)
        with m.Elif(shell.there):
            m.d.sync += row.eq(row + 1)
        m.d.comb += [
            self.page.en.eq(shell.there & fetching),
            self.page.row[: len(row)].eq(row),
            self.page.row[len(row)].eq(shell.registers.transfer.address[exact_log2(PAGE_BYTES)]),
            self.page.data.eq(word),
        ]

        # The end: READ_END cycles after the last beat.
        ending = Signal(READ_END - 1)
        m.d.sync += ending.eq(ending << 1 | (came & beats.active & beats.beat.last))
        m.d.comb += [core.done.eq(ending[-1]), core.error.eq(bad)]
        return m
