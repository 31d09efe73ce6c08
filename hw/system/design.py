"""A system as one component: accelerators, their interconnect, one memory port, one host port."""

from typing import Any

from amaranth import Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX, Accelerator
from dovetail.hw.common.axi import AxiLite, AxiRead, AxiWrite
from dovetail.hw.common.ports import part
from dovetail.hw.system.channels import id_bits
from dovetail.hw.system.decoder import HostDecoder
from dovetail.hw.system.interconnect import Interconnect, Manager
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System

TRACE = "trace_"


class BusTrace(data.Struct):
    """Handshakes of an accelerator at the interconnect, for simulation; an address, when it is presented too."""

    ar: 1
    arvalid: 1
    r: 1
    rlast: 1
    aw: 1
    awvalid: 1
    w: 1
    b: 1


def prefix_of(number: int) -> str:
    """How the names of an accelerator's members begin."""
    return f"a{number}_"


class SystemDesign(wiring.Component):
    """Accelerators before one memory; clock ``clk`` and reset ``rst`` come with the sync domain and are those of all.

    Parameters
    ----------
    system: its parts.
    simulation: build the simulation forms, see :class:`~dovetail.hw.accelerator.Accelerator`.
    trace: build the members ``a<number>_trace_*``; left out, they come with the simulation form.

    Members
    -------
    s_axil_*: AXI4-Lite subordinate with addresses of 32 bits, the registers of all accelerators.
    m_axi_*: AXI4 manager, system memory; an id is the number of an accelerator.
    irq: a run has ended (level), a bit for each accelerator.
    a<number>_trace_*: what the accelerator shows, and its handshakes (:class:`BusTrace`) as ``a<number>_trace_bus``.

    Latency
    -------
    See :class:`~dovetail.hw.system.interconnect.Interconnect` and :class:`~dovetail.hw.system.decoder.HostDecoder`.
    """

    def __init__(self, system: System, *, simulation: bool, trace: bool | None = None) -> None:
        self.system = system
        self.simulation = simulation
        self.trace = simulation if trace is None else trace
        bits = id_bits(len(self.configs))
        members = {f"{HOST_PREFIX}{name}": member for name, member in AxiLite(32).flip().members.items()}
        for channels in (AxiRead(system.memory_bus, bits), AxiWrite(system.memory_bus, bits)):
            members |= {f"{MEMORY_PREFIX}{name}": member for name, member in channels.members.items()}
        members["irq"] = Out(len(self.configs))
        self._accelerators = [Accelerator(config, simulation=simulation, trace=self.trace) for config in self.configs]
        if self.trace:
            for k, accelerator in enumerate(self._accelerators):
                for name, member in accelerator.signature.members.items():
                    if name.startswith(TRACE):
                        members[prefix_of(k) + name] = member
                members[f"{prefix_of(k)}{TRACE}bus"] = Out(BusTrace)
        super().__init__(members)

    @property
    def configs(self) -> tuple[Config, ...]:
        """Of the accelerators, by number."""
        return tuple(part.config for part in self.system.accelerators)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        managers = [Manager(config.bus, config.outstanding) for config in self.configs]
        m.submodules.interconnect = interconnect = Interconnect(managers, bus=self.system.memory_bus)
        m.submodules.decoder = decoder = HostDecoder([part.registers for part in self.system.accelerators])
        wiring.connect(m, part(wiring.flipped(self), decoder.bus.signature, HOST_PREFIX), decoder.bus)
        for channels in (interconnect.memory_read, interconnect.memory_write):
            wiring.connect(m, part(wiring.flipped(self), channels.signature, MEMORY_PREFIX), channels)
        for k, accelerator in enumerate(self._accelerators):
            m.submodules[f"accelerator{k}"] = accelerator
            read, write = (getattr(interconnect, f"{way}{k}") for way in ("read", "write"))
            for prefix, port in ((HOST_PREFIX, decoder.accelerators[k]), (MEMORY_PREFIX, read), (MEMORY_PREFIX, write)):
                wiring.connect(m, part(accelerator, port.signature, prefix), port)
            m.d.comb += self.irq[k].eq(accelerator.irq)
            if self.trace:
                self._show(m, k, accelerator, read, write)
        return m

    def _show(self, m: Module, number: int, accelerator: Accelerator, read: Any, write: Any) -> None:
        """Traces of an accelerator."""
        prefix = prefix_of(number)
        for name in accelerator.signature.members:
            if name.startswith(TRACE):
                m.d.comb += getattr(self, prefix + name).eq(getattr(accelerator, name))
        bus = getattr(self, f"{prefix}{TRACE}bus")
        m.d.comb += [
            bus.ar.eq(read.arvalid & read.arready),
            bus.arvalid.eq(read.arvalid),
            bus.r.eq(read.rvalid),
            bus.rlast.eq(read.rlast),
            bus.aw.eq(write.awvalid & write.awready),
            bus.awvalid.eq(write.awvalid),
            bus.w.eq(write.wvalid & write.wready),
            bus.b.eq(write.bvalid),
        ]
