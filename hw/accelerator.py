"""The accelerator: wires host registers, front end, units and SRAM to one another and to the buses."""

from amaranth import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array_unit import ArrayCore
from dovetail.hw.axi import AxiLite, AxiRead, AxiWrite
from dovetail.hw.clock_gate import gate_clock
from dovetail.hw.control import Trace, UnitControl
from dovetail.hw.frontend import Frontend
from dovetail.hw.host import Host
from dovetail.hw.load import LoadCore
from dovetail.hw.queue import Queue
from dovetail.hw.run import Run
from dovetail.hw.scoreboard import Scoreboard
from dovetail.hw.sram import Sram
from dovetail.hw.store import StoreCore
from dovetail.hw.vector_unit import VectorCore
from dovetail.isa.config import Config
from dovetail.isa.host import ADDRESS_BITS
from dovetail.isa.instructions import QUEUE_DEPTH, Unit

HOST_PREFIX, MEMORY_PREFIX = "s_axil_", "m_axi_"


class Accelerator(wiring.Component):
    """The top level; clock ``clk`` and reset ``rst`` come with the sync domain.

    Parameters
    ----------
    config: which accelerator.
    simulation: for Verilator: simulation form of the SRAM, and units whose clock stands still while they are idle.
        The modules these take are those of :func:`dovetail.hw.sram.simulation_sources` and
        :func:`dovetail.hw.clock_gate.gated_sources`.
    trace: build the ``trace_*`` members; left out, they come with the simulation form.

    Members
    -------
    s_axil_*: AXI4-Lite subordinate, the host's registers (:mod:`dovetail.isa.host`).
    m_axi_*: AXI4 manager, system memory; reads and writes are independent, one id each.
    irq: a run has ended (level).
    trace_busy: a run is under way; its first cycle is cycle 0.
    trace_<unit>_start, _fetch, _pc, _end: see :class:`dovetail.hw.control.Trace`.
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
            members["trace_busy"] = Out(1)
            for unit in Unit:
                for part, member in Trace().members.items():
                    members[f"trace_{unit.name.lower()}_{part}"] = member
        super().__init__(members)

    def _connect(self, m: Module, prefix: str, port: object) -> None:
        """Wires top-level members ``prefix`` + name to a manager-side interface inside, or a subordinate one."""
        for name, member in port.signature.members.items():  # type: ignore[attr-defined]
            outer, inner = getattr(self, prefix + name), getattr(port, name)
            m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.host = host = Host(config)
        m.submodules.run = run = Run()
        m.submodules.frontend = frontend = Frontend(config)
        m.submodules.scoreboard = scoreboard = Scoreboard(config)
        m.submodules.sram = sram = Sram(config, simulation=self.simulation)
        load, array, store = LoadCore(config), ArrayCore(config), StoreCore(config)
        cores = {Unit.LOAD: load, Unit.ARRAY: array, Unit.STORE: store}
        if config.vector:
            vector = cores[Unit.VECTOR] = VectorCore(config)

        self._connect(m, HOST_PREFIX, host.bus)
        self._connect(m, MEMORY_PREFIX, load.axi)
        self._connect(m, MEMORY_PREFIX, store.axi)
        m.d.comb += self.irq.eq(host.irq)

        controls, queues = {}, {}
        for unit, core in cores.items():
            name = unit.name.lower()
            m.submodules[f"{name}_queue"] = queues[unit] = queue = Queue(depth=QUEUE_DEPTH)
            m.submodules[f"{name}_control"] = controls[unit] = control = UnitControl(config, unit=unit)
            if self.simulation:
                core = gate_clock(m, core, enable=control.awake, domain=f"{name}_clock")
            m.submodules[name] = core
            wiring.connect(m, frontend.queues[unit], queue.i)
            wiring.connect(m, queue.o, control.entries)
            wiring.connect(m, control.core, cores[unit].core)
            wiring.connect(m, control.claim, scoreboard.units[unit])
            m.d.comb += [
                queue.clear.eq(run.clear),
                control.clear.eq(run.clear),
                control.running.eq(run.busy),
                control.halt.eq(run.halt),
                run.failed[unit].eq(control.failed),
                run.fault[unit].eq(control.fault),
            ]
            wiring.connect(m, control.stalls, host.stalls[unit])
            if self.trace:
                for part in control.trace.signature.members:
                    m.d.comb += getattr(self, f"trace_{name}_{part}").eq(getattr(control.trace, part))
        for control in controls.values():
            m.d.comb += [control.completed[unit].eq(other.done) for unit, other in controls.items()]

        m.d.comb += [
            run.start.eq(host.start),
            run.failed[-1].eq(frontend.failed),
            run.fault[-1].eq(frontend.fault),
            run.idle.eq(Cat(control.idle for control in controls.values()).all()),
            run.drained.eq(frontend.stopped & ~Cat(queue.o.valid for queue in queues.values()).any()),
            host.busy.eq(run.busy),
            host.ended.eq(run.ended),
            host.faulted.eq(run.faulted),
            host.first.eq(run.first),
            host.cycles.eq(run.cycles),
            frontend.start.eq(run.clear),
            frontend.halt.eq(run.halt),
            frontend.program.eq(host.program),
            frontend.pages.eq(host.pages),
            frontend.fetched.eq(controls[Unit.LOAD].fetched),
            load.base.eq(host.base),
            store.base.eq(host.base),
        ]
        if self.trace:
            m.d.comb += self.trace_busy.eq(run.busy)

        wiring.connect(m, load.page, frontend.page)
        wiring.connect(m, load.sram, sram.write_load)
        wiring.connect(m, array.input, sram.read_array_input)
        wiring.connect(m, array.weights, sram.read_array_weights)
        wiring.connect(m, array.output, sram.write_array)
        if config.vector:
            wiring.connect(m, vector.input, sram.read_vector)
            wiring.connect(m, vector.output, sram.write_vector)
        wiring.connect(m, store.sram, sram.read_store)
        m.d.comb += [
            sram.array_reads.eq(scoreboard.reads[Unit.ARRAY]),
            sram.vector_reads.eq(scoreboard.reads[Unit.VECTOR]),
            sram.store_reads.eq(scoreboard.reads[Unit.STORE]),
        ]
        return m
