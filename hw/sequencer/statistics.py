"""Counts the cycles of a run, and what the units do in them."""

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.instructions.table import Unit


class Activity(wiring.Signature):
    """What a unit does in a cycle, at most one of three: it is ``busy`` with an operation or fetch, takes a CFG or a
    satisfied wait from its queue (``config``), or waits (``token``)."""

    def __init__(self) -> None:
        super().__init__({"busy": Out(1), "config": Out(1), "token": Out(1)})


class Stalls(wiring.Signature):
    """Cycles of each activity, and those left in which the unit was idle, modulo 2^32."""

    def __init__(self) -> None:
        super().__init__({"busy": Out(32), "config": Out(32), "token": Out(32), "idle": Out(32)})


class Statistics(wiring.Component):
    """The counters of a run.

    Members
    -------
    clear: pulse: all to zero. ``running``: count this cycle.
    activity, stalls: one per unit.
    cycles: cycles counted.

    Latency
    -------
    A cycle is counted in the one after it.
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
        ran = Signal()
        m.d.sync += ran.eq(self.running)
        with m.If(ran):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(self.clear):
            m.d.sync += self.cycles.eq(0)
        for unit in Unit:
            activity, stalls = self.activity[unit], self.stalls[unit]
            idle = ~(activity.busy | activity.config | activity.token)
            for name in Stalls().members:
                active = idle if name == "idle" else getattr(activity, name)
                counts, count = Signal(name=f"{unit.name.lower()}_{name}"), getattr(stalls, name)
                m.d.sync += counts.eq(self.running & active)
                with m.If(counts):
                    m.d.sync += count.eq(count + 1)
                with m.If(self.clear):
                    m.d.sync += count.eq(0)
        return m
