"""Proofs of a unit's control: verification, completion counts, waits."""

from amaranth import Cat, Module, Mux, Signal, Value, signed
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2

from dovetail.cosim.formal.proofs.queue import first, oldest
from dovetail.cosim.formal.properties import Opened, before
from dovetail.hw.common.ports import GROUP, Entry, EntryKind, Front, front
from dovetail.hw.sequencer.control import OUTSTANDING_BITS, UnitControl
from dovetail.hw.sequencer.queue import Queue
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import QUEUE_DEPTH, Cause, Unit
from dovetail.isa.timing.sequencer import CHECK

PLACE = exact_log2(GROUP)
"""Bits of a register's place in its group."""


class ControlHarness(wiring.Component):
    """The control of LOAD, the unit that also fetches, behind a queue, with a core and a scoreboard that do what they
    like within the rules that the assumptions state.

    Parameters
    ----------
    config: the accelerator.
    depth: entries of the queue.
    """

    def __init__(self, config: Config, *, depth: int) -> None:
        self.config = config
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(Entry)),
                "completes": In(len(Unit)),
                "clear": In(1),
                "halt": In(1),
                "cause": In(4),
                "conflict": In(1),
                "race": In(1),
                "core_done": In(1),
                "core_error": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        queue = Queue(depth=self.depth, shown=Front, show=front)
        control = UnitControl(self.config, unit=Unit.LOAD)
        m.submodules.queue = inner = Opened(queue)
        m.submodules.control = control_inner = Opened(control)
        cells = [inner.module.submodules.entries.read_port(domain="comb") for _ in range(self.depth)]
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        wiring.connect(m, queue.o, control.entries)
        core, entry = control.core, control.entries.payload
        completed = [Signal(32, name=f"completed_{unit.name.lower()}") for unit in Unit]
        popped, pushed = Signal(), Signal()
        operation = entry.kind == EntryKind.OP
        start = popped & (operation | (entry.kind == EntryKind.FETCH))
        writes = core.cfg.en & core.cfg.group.any()
        named = Cat(core.cfg.place == 1 << entry.code[:PLACE], core.cfg.group == 1 << entry.code[PLACE : 2 * PLACE])
        m.d.comb += [
            *(control.completed[unit].eq(completed[unit]) for unit in Unit),
            queue.clear.eq(self.clear),
            queue.kept.eq(control.kept),
            control.clear.eq(self.clear),
            control.halt.eq(self.halt),
            control.claim.conflict.eq(self.conflict),
            control.claim.race.eq(self.race),
            control.claim.blocked.eq(self.conflict | self.race),
            core.cause.eq(self.cause),
            core.done.eq(self.core_done),
            core.error.eq(self.core_error),
            pushed.eq(self.i.valid & self.i.ready),
            popped.eq(control.entries.valid & control.entries.ready),
        ]

        # What is in the unit: nothing, something that waits for its verification, something that works.
        age = Signal(range(CHECK + 1))
        working = Signal()
        fetching = Signal()
        verify = age == CHECK
        fails = verify & (self.cause.any() | self.conflict | self.race)
        shared = Mux(self.conflict, Cause.BANK_CONFLICT, Cause.RACE)
        bus = Mux(fetching, Cause.BUS_FETCH, Cause.BUS_READ)
        failure = before(m, Mux(fails, Mux(self.cause.any(), self.cause, shared), bus))
        failed = before(m, control.failed)
        with m.If(start):
            m.d.sync += [age.eq(1), fetching.eq(~operation)]
        with m.Elif(verify):
            m.d.sync += [age.eq(0), working.eq(~fails)]
        with m.Elif(age.any()):
            m.d.sync += age.eq(age + 1)
        with m.If(self.core_done):
            m.d.sync += working.eq(0)
        m.d.comb += [
            Assume(working | ~self.core_done, "a core signals done only while it works"),
            Assume(~self.clear | control.idle, "a run begins while the units are idle"),
            Assume(~self.clear | ~queue.o.valid | self.halt, "a run begins with an empty queue or after a fault"),
            Assume(~self.clear | ~self.i.valid, "nothing is dispatched when a run begins"),
        ]

        m.d.comb += [
            Assert(control.idle == ~(age.any() | working), "idle exactly while no operation or fetch is inside"),
            Assert(control.idle | ~popped, "nothing is popped while an operation is inside"),
            Assert(~self.halt | ~popped, "nothing is popped after a fault"),
            Assert(
                writes == (control.idle & control.entries.valid & (entry.kind == EntryKind.CFG)),
                "registers change while the unit is idle and a CFG is the oldest entry, and only then",
            ),
            Assert(~writes | named.all() & (core.cfg.value == entry.value), "the one that it names, to its value"),
            Assert(core.start == start, "a core starts in the pop cycle"),
            Assert(core.go == (verify & ~fails), "go exactly CHECK cycles after the pop, if no check fails"),
            Assert(control.claim.granted == core.go, "a working operation has claimed its banks"),
            Assert(control.claim.verify == verify, "banks are claimed in the cycle of the verification only"),
            Assert(control.claim.release == self.core_done, "banks are released in the end cycle"),
            Assert(
                control.failed == (fails | self.core_done & self.core_error), "a fault for each failure, in its cycle"
            ),
            Assert(
                ~failed | (control.fault.cause == failure),
                "its cause, a cycle later: the failed check, else bank conflict or race, or a bus error at the end",
            ),
            Assert(control.fetched == (self.core_done & fetching), "the front end is told of each fetch's end"),
            Assert(
                control.activity.busy + control.activity.config + control.activity.token <= 1,
                "at most one activity a cycle",
            ),
            Cover(fails, "a check fails"),
        ]

        # Waits. The last one taken from the queue is over when its unit's count has reached its target. A count rises
        # by one a cycle at most, and falls only when a run begins: see the counts below.
        for unit, count in zip(Unit, completed, strict=True):
            m.d.sync += count.eq(Mux(self.clear, 0, count + self.completes[unit]))
        last, wait, to_come = Signal(Entry), Signal(Entry), Signal(signed(32))
        waiting, takes = Signal(), Signal()
        waits = takes | waiting
        m.d.comb += [wait.eq(Mux(waiting, last, entry)), takes.eq(popped & (entry.kind == EntryKind.WAIT))]
        for unit, count in zip(Unit, completed, strict=True):
            with m.If(wait.waits[unit]):
                m.d.comb += to_come.eq(wait.value - count)
            m.d.comb += Assume(count < 1 << 30, "a program has at most 2^30 words (proof frontend)")
        with m.If(~waiting):
            m.d.sync += last.eq(entry)
        m.d.sync += waiting.eq(waits & (to_come > 0) & ~self.clear)

        def is_one(units: Value) -> Value:
            return (units != 0) & ((units & (units - 1)[: len(units)]) == 0)

        pushes = self.i.payload
        m.d.comb += [
            Assume(
                Mux(pushes.kind == EntryKind.WAIT, is_one(pushes.waits), pushes.waits == 0), "a wait is for one unit"
            ),
            Assume(
                (pushes.kind != EntryKind.WAIT) | (pushes.value.as_signed() >= -(1 << 30)),
                "and for no more operations than were dispatched, or a target slightly below 0 (proof frontend)",
            ),
            Assume(
                ~takes | (to_come <= QUEUE_DEPTH + 1),
                "of those, no more are to come than a queue and its unit hold",
            ),
            Assume(
                ~(takes & entry.waits[Unit.LOAD]) | (to_come <= 0),
                "what a unit waits for of its own was dispatched before, so it is done when the wait pops",
            ),
            Assert(
                control.kept == (waits & (to_come > 0)),
                "a wait is over, and its place free, in exactly the first cycle in which done >= target",
            ),
            Assert(control.waiting == waiting, "what follows knows it a cycle later"),
            Assert(
                popped == (control.entries.valid & control.idle & ~self.halt & ~waiting),
                "an entry is popped in the first cycle in which its unit is idle and the wait before it was over",
            ),
            Assert(
                control.activity.token == ((takes | waiting & ~self.halt) & (to_come > 0)),
                "a wait that is not over is counted as token stall",
            ),
            Cover(waiting & (to_come <= 0), "a wait is over after it has waited"),
            Assert(~waiting | control.idle, "invariant: nothing is inside a unit that waits"),
            Assert(~waiting | is_one(last.waits) & ~last.waits[Unit.LOAD], "invariant: a wait for another unit"),
            Assert(~waiting | (to_come >= 0) & (to_come <= QUEUE_DEPTH + 1), "invariant: operations to come"),
            Assert(
                ~waiting
                | (control_inner["on"] == last.waits) & (control_inner["target"] == last.value[:OUTSTANDING_BITS]),
                "invariant: the wait",
            ),
        ]

        # Counts. An operation is in the queue, in the unit, done, or lost with a fault.
        dispatched, lost = Signal(32), Signal(32)
        done = control.done
        was_done, was_clear, ends = before(m, done), before(m, self.clear), before(m, self.core_done & ~fetching)
        known = before(m, 1)
        with m.If(self.clear):
            m.d.sync += [dispatched.eq(0), lost.eq(0)]
        with m.Else():
            m.d.sync += dispatched.eq(dispatched + (pushed & (self.i.payload.kind == EntryKind.OP)))
            m.d.sync += lost.eq(lost + (fails & ~fetching))
        queued = Signal(range(self.depth + 1))
        for n, cell in enumerate(cells):
            m.d.comb += cell.addr.eq(first(inner) + n)
        level = inner["level"]
        m.d.comb += queued.eq(sum((n < level) & (cell.data.kind == EntryKind.OP) for n, cell in enumerate(cells)))
        inside = (age.any() | working) & ~fetching
        m.d.comb += [
            Assume(dispatched < 1 << 30, "a program has at most 2^30 words (proof frontend)"),
            Assert(done <= dispatched, "done never exceeds dispatched"),
            Assert(
                (done + lost + inside + queued == dispatched) & (lost <= dispatched) & (done < 1 << 31),
                "every operation dispatched is in the queue, in the unit, done, or lost with a fault",
            ),
            Assert(
                ~known | (done == Mux(was_clear, 0, was_done + ends)),
                "done counts each operation that ends, fetches never, and falls only when a run begins",
            ),
            Cover((done == 1) & control.idle, "an operation is done"),
        ]

        # What the control's registers hold.
        m.d.comb += [
            Assert(~(age.any() & working), "invariant: one operation at a time"),
            Assert(control_inner["check"] == Cat(age == n + 1 for n in range(CHECK)), "invariant: way to verification"),
            Assert(control.idle | (control_inner["fetching"] == fetching), "invariant: fetching"),
            Assert(control.entries.valid | ~(entry.group.any() | entry.works), "invariant: no entry, nothing to do"),
            Assert(level + waiting <= self.depth, "invariant: level"),
            *oldest(queue, inner, cells[0].data, level, waiting),
        ]
        for n, cell in enumerate(cells):
            m.d.comb += Assert(
                (n >= level)
                | Mux(
                    cell.data.kind == EntryKind.WAIT,
                    is_one(cell.data.waits) & (cell.data.value.as_signed() >= -(1 << 30)),
                    cell.data.waits == 0,
                ),
                "invariant: waits inside",
            )
        return m
