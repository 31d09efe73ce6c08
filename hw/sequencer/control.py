"""Control of a unit: takes entries from its queue, has them verified, starts its core."""

from functools import reduce
from operator import or_

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.ports import Claims, Core, EntryKind, Front, part
from dovetail.hw.sequencer.scoreboard import Claimant
from dovetail.hw.sequencer.statistics import Activity
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import BUS_CAUSES, QUEUE_DEPTH, Cause, Unit
from dovetail.isa.timing.sequencer import CHECK

OUTSTANDING_BITS = (QUEUE_DEPTH + 1).bit_length()
"""Bits of how many of a unit's operations are not completed: those in its queue, and one that it works on."""


class Fault(data.Struct):
    """A fault: what and where."""

    cause: 4
    pc: 32


class Trace(wiring.Signature):
    """What a unit does, for simulation. ``start``: pulse in the pop cycle of an operation or fetch, with ``fetch``
    and ``pc``. ``end``: pulse in its end cycle; one that fails its checks ends in the cycle in which it does."""

    def __init__(self) -> None:
        super().__init__({"start": Out(1), "fetch": Out(1), "pc": Out(32), "end": Out(1)})


class UnitControl(wiring.Component):
    """Control of one unit.

    Parameters
    ----------
    config: the accelerator.
    unit: which unit.

    Members
    -------
    entries: the unit's queue.
    core: the unit's core.
    claim: the unit's side of the scoreboard.
    completed: completion counts of all units. ``done``: this unit's.
    clear: pulse before a run: registers and counts to zero.
    halt: pop nothing.
    kept: for the queue: a wait that was taken from it is not over at the end of this cycle. ``waiting``: nor was it
        before.
    idle: no operation or fetch is in the unit. ``awake``: the core needs its clock.
    fetched: pulse in the end cycle of a fetch.
    failed: pulse with a fault in the cycle to which it belongs. ``fault``: what it was, in the cycle after it.
    stirs: a register of this block is about to change.
    activity, trace: what the unit does.

    Latency
    -------
    An operation popped in cycle t is verified in t + CHECK; the next entry is popped after its end at the earliest.
    A wait leaves the queue as soon as it is the oldest entry, but holds its place there until it is over; the next
    entry is popped in the cycle after that.
    """

    def __init__(self, config: Config, *, unit: Unit) -> None:
        self.config = config
        self.unit = unit
        super().__init__(
            {
                "entries": In(stream.Signature(Front)),
                "core": Out(Core(config)),
                "claim": Out(Claimant(config)),
                "completed": In(32).array(len(Unit)),
                "done": Out(32),
                "clear": In(1),
                "halt": In(1),
                "kept": Out(1),
                "waiting": Out(1),
                "idle": Out(1),
                "awake": Out(1),
                "fetched": Out(1),
                "failed": Out(1),
                "fault": Out(Fault),
                "stirs": Out(1),
                "activity": Out(Activity()),
                "trace": Out(Trace()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core, claim, entry = self.core, self.claim, self.entries.payload
        claims = Claims(self.config)
        wiring.connect(m, part(wiring.flipped(core), claims), part(wiring.flipped(claim), claims))
        busy, fetching = Signal(), Signal()
        pc = Signal(32)
        check = Signal(CHECK)  # the operation's way to its verification

        # Nothing is popped in the first cycles of a run, so the core's registers may be cleared in the second. With a
        # register of this clock a simulator need not evaluate their next state while the core rests. Only a fetch may
        # be popped in the third one; for the other units a second register shares the way across the chip.
        cleared = delayed(m, "cleared", self.clear, 1 if self.unit == Unit.LOAD else 2)[-1]

        # From the queue to a unit's registers, which lie all over a chip, is far. So a CFG is written from when it is
        # the oldest entry and the unit idle until it is popped: only the next operation sees it. A simulator, which has
        # a clock for the core only when it is ``awake``, writes it when it is popped.
        ready, start = Signal(), Signal()
        # Units that have not completed so many operations; counts are below 2^30. A unit itself has, when it pops: what
        # was dispatched before the wait has left the queue.
        lacking = Signal(len(Unit))
        # The comparison takes most of a cycle. So a wait is popped without it, and what follows asks a register.
        begins = Signal()  # a wait that is not over when it is popped
        on = Signal(len(Unit))  # of the wait that was popped last
        target = Signal(OUTSTANDING_BITS)
        reached = Signal()
        counts = [
            Const(0, OUTSTANDING_BITS)
            if unit == self.unit
            else count[:OUTSTANDING_BITS] & on[unit].replicate(OUTSTANDING_BITS)
            for unit, count in zip(Unit, self.completed, strict=True)
        ]
        m.d.comb += [
            ready.eq(self.entries.valid & ~busy & ~self.halt & ~self.waiting),
            lacking.eq(
                Cat(
                    Const(0, 1) if unit == self.unit else (count - entry.value)[31]
                    for unit, count in zip(Unit, self.completed, strict=True)
                )
            ),
            begins.eq(ready & (entry.waits & lacking).any()),
            reached.eq(reduce(or_, counts) == target),
            self.kept.eq(begins | self.waiting & ~reached),
            self.entries.ready.eq(~busy & ~self.halt & ~self.waiting),
            start.eq(self.entries.ready & entry.works),
            core.cfg.clear.eq(cleared),
            core.cfg.en.eq(~busy),
            core.cfg.due.eq(ready),
            core.cfg.group.eq(entry.group),
            core.cfg.place.eq(entry.place),
            core.cfg.value.eq(entry.value),
            core.start.eq(start),
            core.op.eq(entry.code),
            core.fetch.eq(entry.kind == EntryKind.FETCH),
            core.address.eq(entry.value),
        ]

        m.d.sync += self.waiting.eq(self.kept & ~self.clear)
        with m.If(~self.waiting):
            m.d.sync += [on.eq(entry.waits), target.eq(entry.value[:OUTSTANDING_BITS])]

        verify, passes = Signal(), Signal()
        m.d.sync += check.eq(check << 1 | start)
        m.d.comb += [
            verify.eq(check[-1]),
            passes.eq(~core.cause.any() & ~claim.blocked),
            core.go.eq(verify & passes),
            claim.verify.eq(verify),
            claim.granted.eq(core.go),
            claim.release.eq(core.done),
        ]

        m.d.comb += [
            self.idle.eq(~busy),
            self.awake.eq(busy | ready | core.cfg.clear),
            self.fetched.eq(core.done & fetching),
            self.fault.pc.eq(pc),
        ]
        with m.If(verify & ~passes):
            m.d.comb += self.failed.eq(1)
        with m.Elif(core.done & core.error):
            m.d.comb += self.failed.eq(1)
        shared = Mux(claim.conflict, Cause.BANK_CONFLICT, Cause.RACE)
        bus = Mux(fetching, Cause.BUS_FETCH, BUS_CAUSES.get(self.unit, Cause.NONE))
        with m.If(verify | core.done):
            m.d.sync += self.fault.cause.eq(Mux(verify, Mux(core.cause.any(), core.cause, shared), bus))

        m.d.sync += busy.eq(start | busy & ~(core.done | (verify & ~passes)))
        with m.If(start):
            m.d.sync += [pc.eq(entry.pc), fetching.eq(core.fetch)]
        with m.If(self.clear):
            m.d.sync += self.done.eq(0)
        with m.Elif(core.done & ~fetching):
            m.d.sync += self.done.eq(self.done + 1)

        m.d.comb += [
            self.trace.start.eq(start),
            self.trace.fetch.eq(core.fetch),
            self.trace.pc.eq(entry.pc),
            self.trace.end.eq(core.done | (verify & ~passes)),
        ]
        m.d.comb += [
            self.activity.busy.eq(busy | start),
            self.activity.config.eq(ready & ~start & ~begins | self.waiting & reached & ~self.halt),
            self.activity.token.eq(begins | self.waiting & ~reached & ~self.halt),
            self.stirs.eq(ready | self.waiting & reached | check.any() | core.done),
        ]
        return m
