"""Counts the cycles of a run, and what the units do in them."""

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.instructions import Unit


class Activity(wiring.Signature):
    """What a unit does in a cycle, at most one of three: it is ``busy`` with an operation or fetch, takes a CFG or a
    satisfied wait from its queue (``config``), or waits (``token``)."""

    def __init__(self) -> None:
        super().__init__({"busy": Out(1), "config": Out(1), "token": Out(1)})


class Stalls(wiring.Signature):
    """Cycles of each activity, modulo 2^32; what is left of a run's cycles the unit was idle."""

    def __init__(self) -> None:
        super().__init__({"busy": Out(32), "config": Out(32), "token": Out(32)})


class Statistics(wiring.Component):
    """The counters of a run.

    Members
    -------
    clear: pulse: all to zero. ``running``: count this cycle.
    activity, stalls: one per unit.
    cycles: cycles counted.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "clear": In(1),
                "running": In(1),
                "activity": In(Activity()).array(len(Unit)),
                "stalls": Out(Stalls()).array(len(Unit)),
                "cycles": Out(64),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        with m.If(self.running):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(self.clear):
            m.d.sync += self.cycles.eq(0)
        for unit in Unit:
            for name in Stalls().members:
                active, count = getattr(self.activity[unit], name), getattr(self.stalls[unit], name)
                with m.If(self.running & active):
                    m.d.sync += count.eq(count + 1)
                with m.If(self.clear):
                    m.d.sync += count.eq(0)
        return m
