"""Core of the STORE unit: from the SRAM to AXI4 writes."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.axi import AxiWrite
from dovetail.hw.common.ports import Core, SramRead
from dovetail.hw.dma.shell import DmaShell
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.memory import SRAM_READ

BUFFER = 16
"""Write beats between SRAM and bus. They take 9 cycles to pass, so this depth sustains a beat per cycle."""


class StoreCore(wiring.Component):
    """Writes rows of the SRAM to system memory, one SRAM read per beat.

    Parameters
    ----------
    config: the accelerator.

    Members
    -------
    core: border to the unit's control.
    base: what ``MEM_ADDR`` is relative to.
    axi: write channels; write data of a burst comes after its address.
    sram: read port.

    Latency
    -------
    See :mod:`dovetail.isa.timing.dma`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "core": In(Core(config)),
                "base": In(32),
                "axi": Out(AxiWrite(config.bus)),
                "sram": Out(SramRead(config)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core, axi = self.config, self.core, self.axi
        shell = DmaShell(m, Unit.STORE, self)
        beats, beat, issued = shell.beats, shell.beat, shell.issued
        m.d.comb += [axi.bready.eq(1), shell.answered.eq(axi.bvalid)]

        # Beats: walk, SRAM address, SRAM read, alignment, buffer, bus. `taken` counts those between walk and bus.
        taken = Signal(range(BUFFER + 1))
        walk = Signal()
        leaves = Signal()
        m.d.comb += [walk.eq(beats.active & ~taken[exact_log2(BUFFER)]), beats.advance.eq(walk)]
        with m.If(walk ^ leaves):
            m.d.sync += taken.eq(taken + walk - leaves)

        read = Signal(data.StructLayout({"low": len(beat.low), "size": len(beat.size), "last": 1, "inside": 1}))
        reading = Signal()
        m.d.sync += [reading.eq(shell.there), self.sram.en.eq(shell.there & shell.inside)]
        with m.If(shell.there):
            m.d.sync += [
                read.low.eq(beat.low),
                read.size.eq(beat.size),
                read.last.eq(beat.burst_last),
                read.inside.eq(shell.inside),
            ]

        coming = Cat(read, reading)
        for stage in range(SRAM_READ):
            later = Signal(len(coming), name=f"coming{stage}")
            m.d.sync += later.eq(coming)
            coming = later
        came = data.View(read.shape(), coming[:-1])
        entry = data.StructLayout({"data": config.bus, "strb": config.bus_bytes, "last": 1})
        m.submodules.buffer = buffer = memory.Memory(shape=entry, depth=BUFFER, init=[])
        write = buffer.write_port()
        out = buffer.read_port(domain="comb")
        head = Signal(range(BUFFER))
        tail = Signal(range(BUFFER))
        filled = Signal(range(BUFFER + 1))
        m.d.comb += [
            write.en.eq(coming[-1]),
            write.addr.eq(tail),
            write.data.data.eq(Mux(came.inside, self.sram.data[: config.bus] << (came.low << 3), 0)),
            write.data.strb.eq(Cat(n < came.size for n in range(config.bus_bytes)) << came.low),
            write.data.last.eq(came.last),
            out.addr.eq(head),
        ]
        with m.If(write.en):
            m.d.sync += tail.eq(tail + 1)
        with m.If(leaves):
            m.d.sync += head.eq(head + 1)
        any_filled = Signal()
        with m.If(write.en ^ leaves):
            m.d.sync += filled.eq(filled + write.en - leaves)
        m.d.sync += any_filled.eq(write.en | (filled > 1) | any_filled & ~leaves)

        # The beat on the bus, in registers. It becomes valid only behind its burst's address.
        beat_there = Signal()
        there_next, open_next = Signal(), Signal()
        open_bursts = Signal(range(config.outstanding + 1))
        any_open = Signal()
        sent, closed = Signal(), Signal()
        m.d.comb += [
            sent.eq(axi.wvalid & axi.wready),
            closed.eq(sent & axi.wlast),
            leaves.eq(any_filled & (sent | ~beat_there)),
            there_next.eq(any_filled | beat_there & ~sent),
            open_next.eq(issued | (open_bursts > 1) | any_open & ~closed),
        ]
        m.d.sync += [beat_there.eq(there_next), any_open.eq(open_next), axi.wvalid.eq(there_next & open_next)]
        with m.If(leaves):
            m.d.sync += [axi.wdata.eq(out.data.data), axi.wstrb.eq(out.data.strb), axi.wlast.eq(out.data.last)]
        with m.If(issued ^ closed):
            m.d.sync += open_bursts.eq(open_bursts + issued - closed)

        # The end: WRITE_END cycles after the last answer.
        working = Signal()
        bad = Signal()
        answered = Signal()
        m.d.comb += answered.eq(shell.last_address & ~shell.in_flight.any())
        m.d.sync += core.done.eq(working & answered)
        with m.If(core.go):
            m.d.sync += [working.eq(1), bad.eq(0)]
        with m.Elif(answered):
            m.d.sync += working.eq(0)
        with m.If(axi.bvalid):
            m.d.sync += bad.eq(bad | axi.bresp.any())
        m.d.comb += core.error.eq(bad)
        return m
