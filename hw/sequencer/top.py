"""The sequencer: front end, queues, controls, bank claims and the state of a run."""

from amaranth import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.ports import Core, Front, front
from dovetail.hw.dma.load import PageWrite
from dovetail.hw.sequencer.control import Fault, Trace, UnitControl
from dovetail.hw.sequencer.frontend import PAGES_BITS, Frontend, parameter_members
from dovetail.hw.sequencer.queue import Queue
from dovetail.hw.sequencer.run import Run
from dovetail.hw.sequencer.scoreboard import Scoreboard
from dovetail.hw.sequencer.statistics import Activity
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import QUEUE_DEPTH, Unit


class Sequencer(wiring.Component):
    """Runs a program on the cores.

    Parameters
    ----------
    config: the accelerator.

    Members
    -------
    start, program, pages, parameters: from the host; ``start`` is ignored during a run.
    page: instruction pages from LOAD.
    cores: one per unit (VECTOR's is never used in a configuration without it).
    awake: per unit, the core has something to do: its clock must not rest.
    reads, writes: per unit, the banks whose read port and whose write port it holds.
    stirs: some register is about to change: this block's clock must not rest.
    clear, busy, ended, faulted, first: see :class:`~dovetail.hw.sequencer.run.Run`.
    activity, trace: of each unit.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        units = len(Unit)
        super().__init__(
            {
                "start": In(1),
                "program": In(32),
                "pages": In(PAGES_BITS),
                **parameter_members(config),
                "page": In(PageWrite(config)),
                "cores": Out(Core(config)).array(units),
                "awake": Out(1).array(units),
                "reads": Out(config.banks).array(units),
                "writes": Out(config.banks).array(units),
                "stirs": Out(1),
                "clear": Out(1),
                "busy": Out(1),
                "ended": Out(1),
                "faulted": Out(1),
                "first": Out(Fault),
                "activity": Out(Activity()).array(units),
                "trace": Out(Trace()).array(units),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        m.submodules.run = run = Run()
        m.submodules.frontend = frontend = Frontend(config)
        m.submodules.scoreboard = scoreboard = Scoreboard(config)
        units = [unit for unit in Unit if unit != Unit.VECTOR or config.vector]
        controls, queues = {}, {}
        for unit in units:
            name = unit.name.lower()
            m.submodules[f"{name}_queue"] = queues[unit] = queue = Queue(depth=QUEUE_DEPTH, shown=Front, show=front)
            m.submodules[f"{name}_control"] = controls[unit] = control = UnitControl(config, unit=unit)
            wiring.connect(m, frontend.queues[unit], queue.i)
            wiring.connect(m, queue.o, control.entries)
            wiring.connect(m, control.claim, scoreboard.units[unit])
            wiring.connect(m, control.core, wiring.flipped(self.cores[unit]))
            wiring.connect(m, control.activity, wiring.flipped(self.activity[unit]))
            wiring.connect(m, control.trace, wiring.flipped(self.trace[unit]))
            m.d.comb += [
                queue.kept.eq(control.kept),
                queue.clear.eq(run.clear),
                control.clear.eq(run.clear),
                control.halt.eq(run.halt),
                run.failed[unit].eq(control.failed),
                run.fault[unit].eq(control.fault),
                self.awake[unit].eq(control.awake),
                self.reads[unit].eq(scoreboard.reads[unit]),
                self.writes[unit].eq(scoreboard.writes[unit]),
            ]
        for control in controls.values():
            m.d.comb += [control.completed[unit].eq(other.done) for unit, other in controls.items()]

        m.d.comb += [
            run.start.eq(self.start),
            run.failed[-1].eq(frontend.failed),
            run.fault[-1].eq(frontend.fault),
            run.idle.eq(Cat(control.idle for control in controls.values()).all()),
            run.drained.eq(
                frontend.stopped
                & ~Cat(queue.o.valid for queue in queues.values()).any()
                & ~Cat(control.waiting for control in controls.values()).any()
            ),
            self.clear.eq(run.clear),
            self.busy.eq(run.busy),
            self.ended.eq(run.ended),
            self.faulted.eq(run.faulted),
            self.first.eq(run.first),
            frontend.start.eq(run.clear),
            frontend.halt.eq(run.halt),
            frontend.program.eq(self.program),
            frontend.pages.eq(self.pages),
            frontend.fetched.eq(controls[Unit.LOAD].fetched),
            self.stirs.eq(
                self.start
                | self.page.en
                | run.ended
                | run.stirs
                | frontend.stirs
                | Cat(control.stirs for control in controls.values()).any()
            ),
        ]
        if config.parameters:
            m.d.comb += frontend.parameters.eq(self.parameters)
        wiring.connect(m, wiring.flipped(self.page), frontend.page)
        return m
