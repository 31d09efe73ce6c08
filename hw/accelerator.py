"""The accelerator: wires host registers, sequencer, cores and SRAM to one another and to the buses."""

from typing import Any

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from dovetail.hw.array.unit import ArrayCore
from dovetail.hw.common.axi import AxiLite, AxiRead, AxiWrite
from dovetail.hw.common.clocking import gate_clock, never_gate
from dovetail.hw.common.ports import part
from dovetail.hw.dma.load import LoadCore
from dovetail.hw.dma.store import StoreCore
from dovetail.hw.host.registers import Host
from dovetail.hw.memory.sram import Sram
from dovetail.hw.microcoded.datapath import Datapath
from dovetail.hw.microcoded.host import MicrocodedHost
from dovetail.hw.sequencer.control import Trace
from dovetail.hw.sequencer.statistics import Statistics
from dovetail.hw.sequencer.top import Sequencer
from dovetail.hw.vector.unit import VectorCore
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ADDRESS_BITS
from dovetail.isa.instructions.table import Unit

HOST_PREFIX, MEMORY_PREFIX = "s_axil_", "m_axi_"


class Accelerator(wiring.Component):
    """The top level; clock ``clk`` and reset ``rst`` come with the sync domain.

    Parameters
    ----------
    config: which accelerator.
    simulation: for Verilator: simulation form of the SRAM, and units whose clock is gated while they are idle.
        The modules these take are those of :func:`dovetail.hw.memory.sram.simulation_sources` and
        :func:`dovetail.hw.common.clocking.gated_sources`.
    trace: build the ``trace_*`` members; left out, they come with the simulation form.

    Members
    -------
    s_axil_*: AXI4-Lite subordinate, the host's registers (:mod:`dovetail.isa.host`).
    m_axi_*: AXI4 manager, system memory; reads and writes are independent, one id each.
    irq: a run has ended (level).
    trace_busy: a run is under way; its first cycle is cycle 0.
    trace_faulted: the last run ended with a fault, unless one is under way.
    trace_<unit>_start, _fetch, _pc, _end: see :class:`dovetail.hw.sequencer.control.Trace`.
    """

    def __init__(self, config: Config, *, simulation: bool, trace: bool | None = None) -> None:
        self.config = config
        self.simulation = simulation
        self.trace = trace = simulation if trace is None else trace
        lite, read, write = AxiLite(ADDRESS_BITS).flip(), AxiRead(config.bus), AxiWrite(config.bus)
        members = {f"{HOST_PREFIX}{name}": member for name, member in lite.members.items()}
        for channels in (read, write):
            members |= {f"{MEMORY_PREFIX}{name}": member for name, member in channels.members.items()}
        members["irq"] = Out(1)
        if trace:
            members |= {"trace_busy": Out(1), "trace_faulted": Out(1)}
            for unit in Unit:
                for part, member in Trace().members.items():
                    members[f"trace_{unit.name.lower()}_{part}"] = member
        super().__init__(members)

    def _connect_buses(self, m: Module, host: Any, *managers: Any) -> None:
        """Wires the top level's members to the buses inside."""
        for prefix, bus in ((HOST_PREFIX, host.bus), *((MEMORY_PREFIX, manager) for manager in managers)):
            wiring.connect(m, part(wiring.flipped(self), bus.signature, prefix), bus)

    def _microcoded(self, m: Module) -> None:
        """The microcoded accelerator in the place of units."""
        m.submodules.host = host = MicrocodedHost()
        m.submodules.datapath = datapath = Datapath(self.config, simulation=self.simulation)
        wiring.connect(m, host.memory, datapath.host)
        self._connect_buses(m, host, datapath.read, datapath.write)
        self._run(m, host, datapath)

    def _run(self, m: Module, host: Any, runner: Any) -> None:
        """A run between host registers and what carries it out, and what is shown of it."""
        m.d.comb += [
            self.irq.eq(host.irq),
            runner.start.eq(host.start),
            host.busy.eq(runner.busy),
            host.ended.eq(runner.ended),
            host.faulted.eq(runner.faulted),
        ]
        if self.trace:
            m.d.comb += [self.trace_busy.eq(runner.busy), self.trace_faulted.eq(runner.faulted)]
            for unit in Unit:
                trace = runner.trace[unit]
                for part in trace.signature.members:
                    m.d.comb += getattr(self, f"trace_{unit.name.lower()}_{part}").eq(getattr(trace, part))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        if config.serial:
            self._microcoded(m)
            return m
        if self.simulation:
            never_gate(m)
        m.submodules.host = host = Host(config)
        m.submodules.statistics = statistics = Statistics()
        m.submodules.sram = sram = Sram(config, simulation=self.simulation)
        sequencer = Sequencer(config)
        load, store = LoadCore(config), StoreCore(config)
        array = ArrayCore(config, simulation=self.simulation)
        cores: dict[Unit, Any] = {Unit.LOAD: load, Unit.ARRAY: array, Unit.STORE: store}
        if config.vector:
            vector = cores[Unit.VECTOR] = VectorCore(config)
        m.submodules.sequencer = gate_clock(
            m, sequencer, awake=sequencer.stirs, name="sequencer", simulation=self.simulation
        )
        for unit, core in cores.items():
            name = unit.name.lower()
            m.submodules[name] = gate_clock(m, core, awake=sequencer.awake[unit], name=name, simulation=self.simulation)
            wiring.connect(m, sequencer.cores[unit], core.core)
        for unit in Unit:
            wiring.connect(m, sequencer.activity[unit], statistics.activity[unit])
        wiring.connect(m, host.counter, statistics.counter)
        self._connect_buses(m, host, load.axi, store.axi)
        self._run(m, host, sequencer)
        m.d.comb += [
            sequencer.program.eq(host.program),
            sequencer.pages.eq(host.pages),
            host.first.eq(sequencer.first),
            host.cycles.eq(statistics.cycles),
            statistics.clear.eq(sequencer.clear),
            statistics.running.eq(sequencer.busy),
            load.base.eq(host.base),
            store.base.eq(host.base),
        ]
        if config.parameters:
            m.d.comb += sequencer.parameters.eq(host.parameters)
        wiring.connect(m, load.page, sequencer.page)
        wiring.connect(m, load.sram, sram.write_load)
        wiring.connect(m, array.input, sram.read_array_input)
        wiring.connect(m, array.weights, sram.read_array_weights)
        wiring.connect(m, array.output, sram.write_array)
        if config.vector:
            wiring.connect(m, vector.input, sram.read_vector)
            wiring.connect(m, vector.output, sram.write_vector)
        wiring.connect(m, store.sram, sram.read_store)
        m.d.comb += [
            sram.array_reads.eq(sequencer.reads[Unit.ARRAY]),
            sram.array_streams.eq(array.streams),
            sram.vector_reads.eq(sequencer.reads[Unit.VECTOR]),
            sram.array_writes.eq(sequencer.writes[Unit.ARRAY]),
            sram.vector_writes.eq(sequencer.writes[Unit.VECTOR]),
        ]
        return m
