"""The host's register block behind AXI4-Lite."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.axi import AxiLite
from dovetail.hw.sequencer.control import Fault
from dovetail.hw.sequencer.frontend import PAGES_BITS, parameter_members
from dovetail.hw.sequencer.statistics import Counter
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import (
    ADDRESS_BITS,
    CONTROL_IRQ,
    CONTROL_START,
    ID,
    OKAY,
    SLVERR,
    STALLS,
    STATUS_BUSY,
    STATUS_DONE,
    STATUS_FAULT,
    VERSION,
    HostRegister,
    host_registers,
)
from dovetail.isa.instructions.table import PAGE_BYTES, Field, Unit
from dovetail.isa.timing.dma import BOUNDARY


class Host(wiring.Component):
    """Registers of :data:`dovetail.isa.host.HOST_REGISTERS`.

    Parameters
    ----------
    config: the accelerator.

    Members
    -------
    bus: AXI4-Lite; one access at a time in each direction.
    start: pulse in the cycle after its write: begin a run. Never while ``busy``.
    program, pages, base, parameters: what the host has set; ``parameters`` are there if the configuration has any.
    busy, ended, faulted, first, cycles: state of the run; ``ended`` is a pulse.
    counter: reads one of the units' counters.
    irq: a run has ended and the interrupt is enabled.

    Latency
    -------
    An address that comes with its data is taken in the next cycle, and answered in the one after it; so is a read.
    A counter of a unit is read four cycles after that, up to twenty during a run.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "bus": In(AxiLite(ADDRESS_BITS)),
                "start": Out(1),
                "program": Out(32),
                "pages": Out(PAGES_BITS),
                "base": Out(32),
                **{name: member.flip() for name, member in parameter_members(config).items()},
                "busy": In(1),
                "ended": In(1),
                "faulted": In(1),
                "first": In(Fault),
                "cycles": In(64),
                "counter": Out(Counter()),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bus = self.bus
        irq_enable, done = Signal(), Signal()
        m.d.comb += self.irq.eq(irq_enable & done)

        def at(field: Field, value: Signal) -> Value:
            return value << field.low

        values = {
            "ID": ID,
            "VERSION": VERSION,
            "CONFIG_HASH_LO": self.config.hash & 0xFFFF_FFFF,
            "CONFIG_HASH_HI": self.config.hash >> 32,
            "CONTROL": at(CONTROL_IRQ, irq_enable),
            "STATUS": at(STATUS_BUSY, self.busy) | at(STATUS_DONE, done) | at(STATUS_FAULT, self.faulted & ~self.busy),
            "CAUSE": self.first.cause,
            "FAULT_PC": self.first.pc,
            "PROGRAM": self.program,
            "PAGES": self.pages,
            "BASE": self.base,
            "CYCLES_LO": self.cycles[:32],
            "CYCLES_HI": self.cycles[32:],
        }
        values |= {f"PARAM{n + 1}": self.parameters[n] for n in range(self.config.parameters)}
        registers = host_registers(self.config.parameters)
        counters = [f"{unit.name}_{stall}" for unit in Unit for stall in STALLS]
        assert {*values, *counters} == set(registers)

        def case(register: HostRegister) -> int:
            return register.offset >> 2

        # What a manager offers stays until it is taken: in the cycle after it was seen. So ready comes from registers.
        counter = self.counter
        m.d.sync += bus.arready.eq(bus.arvalid & ~bus.arready & ~bus.rvalid & ~counter.ask)
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)
        with m.If(bus.arready):
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(0), bus.rresp.eq(SLVERR)]
            with m.Switch(bus.araddr[2:]):
                for name, value in values.items():
                    with m.Case(case(registers[name])):
                        m.d.sync += [bus.rdata.eq(value), bus.rresp.eq(OKAY)]
                for number, name in enumerate(counters):
                    with m.Case(case(registers[name])):
                        m.d.sync += [counter.number.eq(number), counter.ask.eq(1), bus.rvalid.eq(0), bus.rresp.eq(OKAY)]
        with m.If(counter.answered):
            m.d.sync += [counter.ask.eq(0), bus.rvalid.eq(1), bus.rdata.eq(counter.value)]

        write = Signal()
        m.d.sync += write.eq(bus.awvalid & bus.wvalid & ~write & ~bus.bvalid)
        m.d.comb += [bus.awready.eq(write), bus.wready.eq(write)]

        def merged(old: Signal) -> Value:
            """What is written, byte by byte. A term of its own for each register: what they shared a simulator would
            compute in every cycle."""
            held = Cat(old, Const(0, 32 - len(old)))
            return Cat(Mux(on, bus.wdata.word_select(n, 8), held.word_select(n, 8)) for n, on in enumerate(bus.wstrb))

        def given(field: Field) -> Value:
            return bus.wdata[field.low] & bus.wstrb[field.low // 8]

        m.d.sync += self.start.eq(0)
        with m.If(self.ended):
            m.d.sync += done.eq(1)
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(write):
            m.d.sync += [bus.bvalid.eq(1), bus.bresp.eq(SLVERR)]
            with m.Switch(bus.awaddr[2:]):
                for register in registers.values():
                    with m.Case(case(register)):
                        m.d.sync += bus.bresp.eq(OKAY)
                        if register.name == "CONTROL":
                            m.d.sync += self.start.eq(given(CONTROL_START) & ~self.busy)
                            m.d.sync += irq_enable.eq(
                                Mux(bus.wstrb[CONTROL_IRQ.low // 8], given(CONTROL_IRQ), irq_enable)
                            )
                        elif register.name == "STATUS":
                            with m.If(given(STATUS_DONE)):
                                m.d.sync += done.eq(0)
                        elif register.name == "PAGES":
                            with m.If(~self.busy):
                                m.d.sync += self.pages.eq(merged(self.pages))
                        elif register.name in ("PROGRAM", "BASE"):
                            target, size = (
                                (self.program, PAGE_BYTES) if register.name == "PROGRAM" else (self.base, BOUNDARY)
                            )
                            low = exact_log2(size)
                            with m.If(~self.busy):
                                m.d.sync += target[low:].eq(merged(target)[low:])
                        elif register.parameter:
                            parameter = self.parameters[register.parameter - 1]
                            with m.If(~self.busy):
                                m.d.sync += parameter.eq(merged(parameter))
        with m.If(self.start):
            m.d.sync += done.eq(0)
        return m
