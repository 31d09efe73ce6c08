"""One host port for the registers of several accelerators."""

from collections.abc import Sequence

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.axi import AxiLite
from dovetail.hw.system.channels import chosen
from dovetail.isa.host import ADDRESS_BITS, DECERR


class HostDecoder(wiring.Component):
    """Passes accesses on AXI4-Lite to the accelerator whose registers are at the address; one access at a time in each
    direction.

    Parameters
    ----------
    windows: where the registers of each accelerator begin; multiples of 4 KiB, all different.

    Members
    -------
    bus: the host, with addresses of 32 bits.
    accelerators: their host ports.

    Latency
    -------
    An address (of a write: with its data) is taken in the cycle after it was seen, and shown to the accelerator in the
    next one. An answer reaches the host a cycle after it came. All outputs are registers. Where there is no accelerator
    the answer is DECERR.
    """

    def __init__(self, windows: Sequence[int]) -> None:
        self.windows = tuple(windows)
        super().__init__(
            {
                "bus": In(AxiLite(32)),
                "accelerators": Out(AxiLite(ADDRESS_BITS)).array(len(windows)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus, ports = self.bus, list(self.accelerators)

        reading = Signal()  # an access is under way
        here = self._here(bus.araddr)
        answers = Cat(port.rvalid for port in ports)
        m.d.sync += bus.arready.eq(bus.arvalid & ~bus.arready & ~reading)
        with m.If(bus.arready):
            m.d.sync += [reading.eq(1), bus.rvalid.eq(~here.any()), bus.rdata.eq(0), bus.rresp.eq(DECERR)]
        with m.If(answers.any()):
            m.d.sync += [
                bus.rvalid.eq(1),
                bus.rdata.eq(chosen(answers, [port.rdata for port in ports])),
                bus.rresp.eq(chosen(answers, [port.rresp for port in ports])),
            ]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += [reading.eq(0), bus.rvalid.eq(0)]
        for k, port in enumerate(ports):
            m.d.comb += port.rready.eq(1)
            with m.If(bus.arready):
                m.d.sync += [port.arvalid.eq(here[k]), port.araddr.eq(bus.araddr)]
            with m.Elif(port.arready):
                m.d.sync += port.arvalid.eq(0)

        writing = Signal()
        taken = Signal()
        there = self._here(bus.awaddr)
        responses = Cat(port.bvalid for port in ports)
        m.d.comb += [bus.awready.eq(taken), bus.wready.eq(taken)]
        m.d.sync += taken.eq(bus.awvalid & bus.wvalid & ~taken & ~writing)
        with m.If(taken):
            m.d.sync += [writing.eq(1), bus.bvalid.eq(~there.any()), bus.bresp.eq(DECERR)]
        with m.If(responses.any()):
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(chosen(responses, [port.bresp for port in ports]))]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += [writing.eq(0), bus.bvalid.eq(0)]
        for k, port in enumerate(ports):
            m.d.comb += port.bready.eq(1)
            with m.If(taken):
                m.d.sync += [port.awvalid.eq(there[k]), port.wvalid.eq(there[k])]
                m.d.sync += [port.awaddr.eq(bus.awaddr), port.wdata.eq(bus.wdata), port.wstrb.eq(bus.wstrb)]
            with m.Else():
                with m.If(port.awready):
                    m.d.sync += port.awvalid.eq(0)
                with m.If(port.wready):
                    m.d.sync += port.wvalid.eq(0)
        return m

    def _here(self, address: Value) -> Value:
        """The accelerator at an address, a bit each."""
        return Cat(address[ADDRESS_BITS:] == window >> ADDRESS_BITS for window in self.windows)
