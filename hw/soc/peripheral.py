"""What a program on the SoC tells the world around it, and a clock."""

from enum import IntEnum

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.axi import AxiLite
from dovetail.isa.host import ADDRESS_BITS, OKAY


class Register(IntEnum):
    """Byte offsets. The first three are for writing, and show on the peripheral's outputs; the clock is for reading."""

    CONSOLE = 0x00
    """A character of the console's text."""
    EXIT = 0x04
    """The program has ended, with this status."""
    MARK = 0x08
    """A point of the program is reached, with this number."""
    CYCLES_LO = 0x0C
    """Cycles since the reset; reading keeps the upper half for CYCLES_HI."""
    CYCLES_HI = 0x10


class Peripheral(wiring.Component):
    """The registers of :class:`Register`. Others read as 0, and writing them does nothing.

    Members
    -------
    bus: AXI4-Lite; one access at a time in each direction.
    told: a register is being written, a pulse: ``value`` to the byte offset ``topic``.

    Latency
    -------
    An address (of a write: with its data) is taken in the cycle after it was seen, and answered in the next one.
    """

    def __init__(self) -> None:
        super().__init__(
            {"bus": In(AxiLite(ADDRESS_BITS)), "told": Out(1), "topic": Out(ADDRESS_BITS), "value": Out(32)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        cycles, upper = Signal(64), Signal(32)
        m.d.sync += [cycles.eq(cycles + 1), bus.arready.eq(bus.arvalid & ~bus.arready & ~bus.rvalid)]
        m.d.comb += [bus.rresp.eq(OKAY), bus.bresp.eq(OKAY)]
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(bus.arready):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(0)]
            with m.Switch(bus.araddr):
                with m.Case(Register.CYCLES_LO):
                    m.d.sync += [bus.rdata.eq(cycles[:32]), upper.eq(cycles[32:])]
                with m.Case(Register.CYCLES_HI):
                    m.d.sync += bus.rdata.eq(upper)
        m.d.sync += self.told.eq(bus.awvalid & bus.wvalid & ~self.told & ~bus.bvalid)
        m.d.comb += [bus.awready.eq(self.told), bus.wready.eq(self.told)]
        m.d.comb += [self.topic.eq(bus.awaddr), self.value.eq(bus.wdata)]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(self.told):
            m.d.sync += bus.bvalid.eq(1)
        return m
