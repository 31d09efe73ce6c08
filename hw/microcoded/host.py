"""The microcoded accelerator's host registers: most of them are words of its data memory."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.axi import AxiLite
from dovetail.hw.microcoded.datapath import HostAccess
from dovetail.hw.microcoded.microcode import HOST
from dovetail.hw.sequencer.frontend import PAGES_BITS
from dovetail.isa.host import (
    ADDRESS_BITS,
    CONTROL_IRQ,
    CONTROL_START,
    HOST_REGISTERS,
    OKAY,
    SLVERR,
    STATUS_BUSY,
    STATUS_DONE,
    STATUS_FAULT,
    host_registers,
)
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.timing.dma import BOUNDARY


class MicrocodedHost(wiring.Component):
    """Registers of :data:`dovetail.isa.host.HOST_REGISTERS`.

    During a run only CONTROL and STATUS can be read or written: other reads answer SLVERR, other writes do nothing. A
    write has to bring all four bytes, or it answers SLVERR and does nothing.

    Members
    -------
    bus: AXI4-Lite; one access at a time.
    memory: the words.
    start, busy, ended, faulted: as in :class:`~dovetail.hw.microcoded.datapath.Datapath`.
    irq: a run has ended and the interrupt is enabled.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "bus": In(AxiLite(ADDRESS_BITS)),
                "memory": Out(HostAccess()),
                "start": Out(1),
                "busy": In(1),
                "ended": In(1),
                "faulted": In(1),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        enabled, done = Signal(), Signal()
        begins = Signal()  # a run that has been asked for
        # What a manager offers stays until it is taken: in the cycle after it was seen. So ready comes from registers.
        # `running`: whether there was a run when it was seen; what is taken is treated by that.
        writes, reads, may, running = Signal(), Signal(), Signal(), Signal()
        writing, reading, found = Signal(), Signal(), Signal()
        address = Signal(ADDRESS_BITS - 2)
        m.d.comb += [
            may.eq((self.memory.rests | self.busy) & ~begins & ~writing & ~reading),
            writes.eq(may & bus.awvalid & bus.wvalid & ~bus.bvalid),
            reads.eq(may & bus.arvalid & ~bus.rvalid & ~found & ~writes),
        ]
        m.d.sync += [writing.eq(writes), reading.eq(reads), found.eq(reading), running.eq(self.busy)]
        m.d.comb += [
            bus.awready.eq(writing),
            bus.wready.eq(writing),
            bus.arready.eq(reading),
            address.eq(Mux(writing, bus.awaddr[2:], bus.araddr[2:])),
            self.memory.read.eq(reading),
            self.memory.address.eq(Cat(address[:5], Const(HOST >> 5, 4))),
            self.irq.eq(enabled & done),
        ]
        exists, small = Signal(), Signal()
        status, control = Signal(), Signal()
        with m.Switch(address):
            for register in host_registers().values():
                with m.Case(register.offset >> 2):
                    m.d.comb += exists.eq(1)
                    m.d.comb += status.eq(register.name == "STATUS")
                    m.d.comb += control.eq(register.name == "CONTROL")
        m.d.comb += small.eq(status | control)

        whole = bus.wstrb.all()
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        kept = Signal(32)
        for name, bits in (
            ("PROGRAM", 0xFFFF_FFFF & -PAGE_BYTES),
            ("PAGES", (1 << PAGES_BITS) - 1),
            ("BASE", 0xFFFF_FFFF & -BOUNDARY),
        ):
            with m.If(address == HOST_REGISTERS[name].offset >> 2):
                m.d.comb += kept.eq(bits)
                m.d.comb += self.memory.write.eq(writing & whole & ~running)
        m.d.comb += self.memory.value.eq(bus.wdata & kept)
        with m.If(writing):
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(Mux(exists & whole, OKAY, SLVERR))]
            with m.If(control & whole):
                m.d.sync += enabled.eq(bus.wdata[CONTROL_IRQ.low])
                with m.If(bus.wdata[CONTROL_START.low] & ~running):
                    m.d.sync += [begins.eq(1), done.eq(0)]
            with m.If(status & whole & bus.wdata[STATUS_DONE.low]):
                m.d.sync += done.eq(0)
        m.d.comb += self.start.eq(begins)
        with m.If(self.start & self.memory.rests):
            m.d.sync += begins.eq(0)
        with m.If(self.ended):
            m.d.sync += done.eq(1)

        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        own = Signal(3)
        is_own, is_word = Signal(), Signal()
        with m.If(reading):
            m.d.sync += [
                is_own.eq(small),
                is_word.eq(exists & ~small & ~running),
                own.eq(
                    Mux(
                        status,
                        running << STATUS_BUSY.low
                        | done << STATUS_DONE.low
                        | (self.faulted & ~running) << STATUS_FAULT.low,
                        enabled << CONTROL_IRQ.low,
                    )
                ),
            ]
        with m.If(found):
            m.d.sync += [
                bus.rvalid.eq(1),
                bus.rresp.eq(Mux(is_own | is_word, OKAY, SLVERR)),
                bus.rdata.eq(Mux(is_own, own, Mux(is_word, self.memory.word, 0))),
            ]
        return m
