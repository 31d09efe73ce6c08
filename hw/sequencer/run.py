"""A run: from the host's start to the end or the first fault."""

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.sequencer.control import Fault
from dovetail.isa.instructions.table import Unit

SOURCES = len(Unit) + 1
"""Where faults come from: the units in their order, then the front end."""


class Run(wiring.Component):
    """State of a run.

    Members
    -------
    start: pulse; ignored while ``busy``. ``clear``: pulse in the same cycle if it is not.
    failed: faults in the order of precedence within a cycle: units, then front end. ``fault``: what each was, a cycle
        later.
    idle: every unit is idle. ``drained``: the front end has stopped and every queue is empty.
    busy: a run is under way. ``halt``: from the cycle after the first fault on.
    stirs: a register is about to change because of the cycle before.
    ended: pulse in the last cycle of ``busy``. ``faulted``, ``first``: whether there was a fault, and the first one.

    Latency
    -------
    ``busy`` rises the cycle after ``start``; its last cycle is the one after the last event. ``first`` is there when
    ``busy`` is over.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "clear": Out(1),
                "failed": In(SOURCES),
                "fault": In(Fault).array(SOURCES),
                "idle": In(1),
                "drained": In(1),
                "busy": Out(1),
                "halt": Out(1),
                "ended": Out(1),
                "faulted": Out(1),
                "first": Out(Fault),
                "stirs": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.comb += [
            self.clear.eq(self.start & ~self.busy),
            self.ended.eq(self.busy & self.idle & (self.drained | self.halt)),
            self.faulted.eq(self.halt),
        ]
        with m.If(self.clear):
            m.d.sync += [self.busy.eq(1), self.halt.eq(0), self.first.eq(0)]
        with m.If(self.ended):
            m.d.sync += self.busy.eq(0)
        with m.If(self.failed.any()):
            m.d.sync += self.halt.eq(1)
        # Who failed in the cycle before, if nobody had until then.
        failed = Signal(SOURCES)
        m.d.sync += failed.eq(Mux(self.halt, 0, self.failed))
        m.d.comb += self.stirs.eq(failed.any())
        for source in reversed(range(SOURCES)):
            with m.If(failed[source]):
                m.d.sync += self.first.eq(self.fault[source])
        return m
