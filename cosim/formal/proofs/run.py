"""Proof of the state of a run."""

from amaranth import Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dovetail.cosim.formal.properties import Opened, before
from dovetail.hw.sequencer.control import Fault
from dovetail.hw.sequencer.run import SOURCES, Run


class RunHarness(wiring.Component):
    """A run, with units, front end and host that do whatever they like."""

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "failed": In(SOURCES),
                "fault": In(Fault).array(SOURCES),
                "idle": In(1),
                "drained": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        run = Run()
        m.submodules.run = inner = Opened(run)
        m.d.comb += [
            run.start.eq(self.start),
            run.failed.eq(self.failed),
            run.idle.eq(self.idle),
            run.drained.eq(self.drained),
            *(run.fault[n].eq(self.fault[n]) for n in range(SOURCES)),
            Assume(run.busy | ~self.failed.any(), "faults come during a run only"),
        ]

        accepted = before(m, self.start & ~run.busy)
        ended = before(m, run.ended)
        was_busy = before(m, run.busy)
        m.d.comb += [
            Assert(run.clear == (self.start & ~run.busy), "a start is ignored while busy, and taken otherwise"),
            Assert(run.busy == (accepted | was_busy & ~ended), "busy from the cycle after a start to the run's end"),
            Assert(
                run.ended == (run.busy & self.idle & (self.drained | run.halt)),
                "a run ends when the units are idle and the program has ended, or after a fault",
            ),
        ]

        seen = Signal()  # a fault came in this run
        known = Signal()  # and what it was, `first`
        first = Signal(Fault)
        lowest = Signal(Fault)
        failed = before(m, Mux(seen, 0, self.failed))  # its `fault` comes now
        for n in reversed(range(SOURCES)):
            with m.If(failed[n] & ~failed[:n].any()):
                m.d.comb += lowest.eq(self.fault[n])
        with m.If(run.clear):
            m.d.sync += [seen.eq(0), known.eq(0)]
        with m.Else():
            with m.If(self.failed.any()):
                m.d.sync += seen.eq(1)
            with m.If(failed.any()):
                m.d.sync += [known.eq(1), first.eq(lowest)]
        m.d.comb += [
            Assert(run.halt == seen, "halt from the cycle after the first fault until the next start"),
            Assert(run.faulted == seen, "faulted tells whether there was one"),
            Assert(known | ~seen | failed.any(), "a fault is known a cycle after it came"),
            Assert(~failed.any() | seen & ~known, "invariant: it comes once"),
            Assert(~known | seen, "invariant: known"),
            Assert(inner["failed"] == failed, "invariant: who failed"),
            Assert(run.stirs == failed.any(), "until then there is something to do"),
            Cover(known & self.failed.any(), "a second fault"),
            Cover(run.ended & ~seen, "a run without a fault ends"),
            Cover(run.busy & self.start, "a start while busy"),
        ]
        with m.If(known):
            m.d.comb += Assert(
                run.first.as_value() == first.as_value(),
                "the first fault is kept, of several at once the lowest source's",
            )
        return m
