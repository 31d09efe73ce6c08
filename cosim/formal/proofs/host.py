"""Proof of the host port: AXI4-Lite, and a start that is a pulse outside a run."""

from amaranth import Module, Signal
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.cosim.formal.properties import before, stable
from dovetail.hw.common.axi import AxiLite
from dovetail.hw.host.registers import Host
from dovetail.hw.sequencer.control import Fault
from dovetail.hw.sequencer.statistics import Counter
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ADDRESS_BITS, OKAY, host_registers

COUNTERS = 0x40
"""Offset of the units' counters, 64 bytes."""


class HostHarness(wiring.Component):
    """The host's registers with any manager that keeps the rule of handshakes, and any course of the run.

    Parameters
    ----------
    config: the accelerator.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "bus": In(AxiLite(ADDRESS_BITS)),
                "busy": In(1),
                "ended": In(1),
                "faulted": In(1),
                "first": In(Fault),
                "cycles": In(64),
                "counter": Out(Counter()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.host = host = Host(self.config)
        wiring.connect(m, wiring.flipped(self.bus), host.bus)
        bus = host.bus
        counter = host.counter
        wiring.connect(m, wiring.flipped(self.counter), counter)
        m.d.comb += Assume(~counter.answered | counter.ask, "a counter's value comes only when it is asked for")
        stable(m, "counter", counter.ask, counter.answered, counter.number)
        m.d.comb += [
            host.busy.eq(self.busy),
            host.ended.eq(self.ended),
            host.faulted.eq(self.faulted),
            host.first.eq(self.first),
            host.cycles.eq(self.cycles),
        ]
        stable(m, "AW", bus.awvalid, bus.awready, bus.awaddr, assumed=True)
        stable(m, "W", bus.wvalid, bus.wready, bus.wdata, bus.wstrb, assumed=True)
        stable(m, "AR", bus.arvalid, bus.arready, bus.araddr, assumed=True)
        stable(m, "R", bus.rvalid, bus.rready, bus.rdata, bus.rresp)
        stable(m, "B", bus.bvalid, bus.bready, bus.bresp)

        # Requests that wait for their answer.
        addresses, data, reads = Signal(4), Signal(4), Signal(4)
        m.d.sync += [
            addresses.eq(addresses + (bus.awvalid & bus.awready) - (bus.bvalid & bus.bready)),
            data.eq(data + (bus.wvalid & bus.wready) - (bus.bvalid & bus.bready)),
            reads.eq(reads + (bus.arvalid & bus.arready) - (bus.rvalid & bus.rready)),
        ]
        known = before(m, 1)
        write, read = bus.awvalid & bus.awready & bus.wvalid & bus.wready, bus.arvalid & bus.arready
        offers_write = before(m, bus.awvalid & bus.wvalid & ~bus.awready & ~bus.bvalid)
        offers_read = before(m, bus.arvalid & ~bus.arready & ~bus.rvalid & ~counter.ask)
        counts = bus.araddr[6:] == COUNTERS >> 6
        m.d.comb += [
            Assert((addresses == bus.bvalid) & (data == bus.bvalid), "B: exactly one response per address and data"),
            Assert(~(bus.rvalid & counter.ask), "no counter is asked for beside an answer"),
            Assert(reads == bus.rvalid + counter.ask, "R: exactly one response per address"),
            Assert(~before(m, write) | bus.bvalid, "a write is answered in the next cycle"),
            Assert(~before(m, read & ~counts) | bus.rvalid, "a read but of a counter is answered in the next cycle"),
            Assert(~before(m, read & counts) | counter.ask, "a read of a counter asks for it in the next cycle"),
            Assert(~before(m, counter.answered) | bus.rvalid & ~counter.ask, "a counter's value is the answer"),
            Assert(~before(m, counter.answered) | (bus.rdata == before(m, counter.value)), "its value is passed on"),
            Assert((bus.awready == write) & (bus.wready == write), "AW, W: taken together, ready only then"),
            Assert(bus.arready == read, "AR: ready only when an address is there"),
            Assert(
                ~(bus.awready & bus.bvalid) & ~(bus.arready & (bus.rvalid | counter.ask)),
                "nothing is taken beside its response",
            ),
            Assert(write == offers_write, "a write is taken in the cycle after it came"),
            Assert(read == offers_read, "a read is taken in the cycle after it came"),
            Cover(
                before(m, before(m, bus.bvalid & bus.bready)) & write, "a write is taken two cycles after a response"
            ),
            Cover(before(m, bus.rvalid & ~bus.rready) & bus.rready, "a read response that waits"),
        ]
        exists = Signal()
        with m.Switch(bus.araddr[2:]):
            for register in host_registers(self.config.parameters).values():
                with m.Case(register.offset >> 2):
                    m.d.comb += exists.eq(1)
        was_read, existed = before(m, read), before(m, exists)
        with m.If(was_read):
            m.d.comb += Assert((bus.rresp == OKAY) == existed, "OKAY exactly for registers that exist")

        busy = before(m, self.busy)
        parameters = [host.parameters[n] for n in range(self.config.parameters)]
        was = [(register, before(m, register)) for register in (host.program, host.pages, host.base, *parameters)]
        with m.If(known & busy):
            m.d.comb += [
                Assert(~host.start, "no write during a run starts anything"),
                *(Assert(now == old, "PROGRAM, PAGES, BASE and PARAM do not change during a run") for now, old in was),
            ]
        m.d.comb += [
            Assert(~host.start | before(m, write), "only a write starts a run, by a pulse"),
            Assert(host.program[:10] == 0, "PROGRAM is 1 KiB aligned"),
            Assert(host.base[:12] == 0, "BASE is 4 KiB aligned"),
            Cover(host.start & host.program.any() & host.pages.any(), "a start with a program"),
        ]
        return m
