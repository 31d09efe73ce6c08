"""Between the processor's two Wishbone buses and ours: AXI4 to memory, AXI4-Lite to registers."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.axi import INCR, AxiLite, AxiRead, AxiWrite
from dovetail.hw.soc.vexriscv import BURST, LINE_WORDS, UNCACHED_BIT, Wishbone

WORD = 2
"""AxSIZE of 32 bits."""
POSTED = 8
"""Writes that may be on their way to memory."""


class Bridge(wiring.Component):
    """Reads of lines become bursts, one at a time, data before instructions. Writes are acknowledged before memory has
    them; whatever else the data bus asks for waits until memory has them all. So a program that writes and then starts
    the accelerator need not wait itself.

    Members
    -------
    instructions, data: the processor.
    read, write: memory, with bursts as :class:`~dovetail.hw.system.interconnect.Interconnect` wants them.
    registers: where addresses have :data:`~dovetail.hw.soc.vexriscv.UNCACHED_BIT`.
    error: an access was answered with an error; stays set.

    Latency
    -------
    An address shows on our bus a cycle after the processor's, a word on the processor's bus in the cycle in which it
    comes. A write is acknowledged in its cycle when there is room.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "instructions": In(Wishbone()),
                "data": In(Wishbone()),
                "read": Out(AxiRead(32)),
                "write": Out(AxiWrite(32)),
                "registers": Out(AxiLite(32)),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        asked, uncached = self._asked(self.data), self.data.adr[UNCACHED_BIT - 2]
        drained = Signal()
        read_word = self._read(m, asked & ~uncached & ~self.data.we & drained)
        written = self._write(m, asked & ~uncached & self.data.we, drained)
        answered = self._access(m, asked & uncached & drained)
        m.d.comb += [
            self.data.ack.eq(read_word | written | answered),
            self.data.dat_miso.eq(Mux(answered, self.registers.rdata, self.read.rdata)),
            self.instructions.dat_miso.eq(self.read.rdata),
        ]
        answers = [(self.read.rvalid, self.read.rresp), (self.write.bvalid, self.write.bresp)]
        answers += [(self.registers.rvalid, self.registers.rresp), (self.registers.bvalid, self.registers.bresp)]
        with m.If(Cat(valid & (response != 0) for valid, response in answers).any()):
            m.d.sync += self.error.eq(1)
        return m

    @staticmethod
    def _asked(bus: Any) -> Any:
        return bus.cyc & bus.stb

    def _read(self, m: Module, wanted: Any) -> Any:
        """Reads of memory: whether a word for the data bus is here."""
        read = self.read
        for_data = Signal()
        m.d.comb += [read.arsize.eq(WORD), read.arburst.eq(INCR), read.rready.eq(1)]
        m.d.comb += self.instructions.ack.eq(read.rvalid & ~for_data)
        with m.FSM(name="reading"):
            with m.State("FREE"):
                with m.If(wanted):
                    line = self.data.cti == BURST
                    m.d.sync += [read.araddr.eq(Cat(0, 0, self.data.adr)), read.arlen.eq(Mux(line, LINE_WORDS - 1, 0))]
                with m.Else():
                    m.d.sync += [read.araddr.eq(Cat(0, 0, self.instructions.adr)), read.arlen.eq(LINE_WORDS - 1)]
                m.d.sync += for_data.eq(wanted)
                with m.If(wanted | self._asked(self.instructions)):
                    m.d.sync += read.arvalid.eq(1)
                    m.next = "BUSY"
            with m.State("BUSY"):
                with m.If(read.arready):
                    m.d.sync += read.arvalid.eq(0)
                with m.If(read.rvalid & read.rlast):
                    m.next = "FREE"
        return read.rvalid & for_data

    def _write(self, m: Module, wanted: Any, drained: Signal) -> Any:
        """Writes of memory: whether one is taken in this cycle. ``drained``: memory has all."""
        write = self.write
        on_their_way = Signal(range(POSTED + 1))
        taken = Signal()
        m.d.comb += [write.awsize.eq(WORD), write.awburst.eq(INCR), write.wlast.eq(1), write.bready.eq(1)]
        m.d.comb += drained.eq(on_their_way == 0)
        m.d.sync += on_their_way.eq(on_their_way + taken - write.bvalid)
        with m.FSM(name="writing"):
            with m.State("FREE"):
                m.d.comb += taken.eq(wanted & (on_their_way != POSTED))
                with m.If(taken):
                    m.d.sync += [write.awaddr.eq(Cat(0, 0, self.data.adr)), write.awvalid.eq(1)]
                    m.d.sync += [write.wdata.eq(self.data.dat_mosi), write.wstrb.eq(self.data.sel)]
                    m.next = "ADDRESS"
            with m.State("ADDRESS"), m.If(write.awready):
                m.d.sync += [write.awvalid.eq(0), write.wvalid.eq(1)]
                m.next = "DATA"
            with m.State("DATA"), m.If(write.wready):
                m.d.sync += write.wvalid.eq(0)
                m.next = "FREE"
        return taken

    def _access(self, m: Module, wanted: Any) -> Any:
        """Accesses to registers: whether the answer is here."""
        bus, data = self.registers, self.data
        m.d.comb += [bus.rready.eq(1), bus.bready.eq(1), bus.wstrb.eq(data.sel), bus.wdata.eq(data.dat_mosi)]
        m.d.comb += [bus.araddr.eq(Cat(0, 0, data.adr)), bus.awaddr.eq(bus.araddr)]
        with m.FSM(name="accessing"):
            with m.State("FREE"), m.If(wanted):
                m.d.sync += [bus.arvalid.eq(~data.we), bus.awvalid.eq(data.we), bus.wvalid.eq(data.we)]
                m.next = "BUSY"
            with m.State("BUSY"):
                for ready, valid in ((bus.arready, bus.arvalid), (bus.awready, bus.awvalid), (bus.wready, bus.wvalid)):
                    with m.If(ready):
                        m.d.sync += valid.eq(0)
                with m.If(bus.rvalid | bus.bvalid):
                    m.next = "FREE"
        return bus.rvalid | bus.bvalid
