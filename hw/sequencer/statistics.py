"""Counts the cycles of a run, and what the units do in them."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.clocking import delayed
from dovetail.isa.host import STALLS
from dovetail.isa.instructions.table import Unit

COUNTERS = len(Unit) * len(STALLS)
"""Counters of all units; that of the n-th of `STALLS` is number ``len(STALLS) * unit + n``."""
SETTLE = 3
"""Cycles from a counter's turn until its row holds what was counted."""


class Activity(wiring.Signature):
    """What a unit does in a cycle, at most one of three: it is ``busy`` with an operation or fetch, takes a CFG or a
    satisfied wait from its queue (``config``), or waits (``token``). In the others it is idle."""

    def __init__(self) -> None:
        super().__init__({"busy": Out(1), "config": Out(1), "token": Out(1)})


class Counter(wiring.Signature):
    """A counter is read. ``number`` and ``ask`` stay until ``answered``; ``value`` is modulo 2^32."""

    def __init__(self) -> None:
        super().__init__(
            {"ask": Out(1), "number": Out(range(COUNTERS)), "answered": In(1), "value": In(32)},
        )


class Statistics(wiring.Component):
    """The counters of a run.

    Each has a few bits of its own; all others are rows of one memory with one adder. While the program runs the
    counters take turns, and what one has counted since its last turn is added to its row: at most a cycle for each.

    Members
    -------
    clear: pulse: all to zero. ``running``: count this cycle.
    activity: one per unit.
    cycles: cycles counted.
    counter: reads one of :data:`COUNTERS`.

    Latency
    -------
    A cycle is counted in the one after it. A counter answers two cycles after its turn. Outside a run its turn
    comes a cycle after it was asked for, and :data:`SETTLE` cycles after another's.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "clear": In(1),
                "running": In(1),
                "activity": In(Activity()).array(len(Unit)),
                "cycles": Out(64),
                "counter": In(Counter()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counter = self.counter
        ran = Signal()
        m.d.sync += ran.eq(self.running)
        with m.If(ran):
            m.d.sync += self.cycles.eq(self.cycles + 1)
        with m.If(self.clear):
            m.d.sync += self.cycles.eq(0)

        take, turn, next_turn = Signal(), Signal(range(COUNTERS)), Signal(range(COUNTERS))
        taken = Signal(SETTLE - 1)  # whether there was a turn in each of the last cycles
        m.d.sync += [
            take.eq(self.running | counter.ask & ~(take | taken[0] | counter.answered)),
            taken.eq(Cat(take, taken)),
            turn.eq(Mux(self.running, next_turn, counter.number)),
            next_turn.eq(next_turn + self.running),
        ]

        # Bit k of all counters' own bits is in register k: one step for all, without carry chains, of which so few bits
        # would take more.
        few = [Signal(COUNTERS, name=f"few{k}") for k in range(exact_log2(COUNTERS))]
        counts = Signal(COUNTERS)
        cleared = Signal(COUNTERS, init=-1)  # its row counts as zero
        has_turn = Signal(COUNTERS)
        states: list[Value] = []
        for activity in self.activity:
            active = Cat(activity.busy, activity.config, activity.token)
            states += [active, ~active.any()]
        m.d.comb += has_turn.eq(take << turn)
        m.d.sync += [
            counts.eq(Cat(states) & self.running.replicate(COUNTERS)),
            cleared.eq(Mux(self.clear, -1, cleared & ~has_turn)),
        ]
        carry: Value = counts
        for bits in few:
            m.d.sync += bits.eq(Mux(self.clear, 0, (bits ^ carry) & ~has_turn))
            carry &= bits

        m.submodules.rows = rows = memory.Memory(shape=32, depth=COUNTERS, init=[])
        read, write = rows.read_port(domain="comb"), rows.write_port()
        row, more, total = Signal(32), Signal(len(few)), Signal(32)
        one, answer = Signal(), Signal()
        m.d.comb += [
            read.addr.eq(turn),
            write.addr.eq(delayed(m, "place", turn, 2)[-1]),
            write.data.eq(total),
            write.en.eq(taken[-1]),
            counter.value.eq(total),
        ]
        m.d.sync += [
            row.eq(Mux(cleared.bit_select(turn, 1), 0, read.data)),
            more.eq(Cat(bits.bit_select(turn, 1) for bits in few)),
            one.eq(counts.bit_select(turn, 1)),
            total.eq((Cat(Const(1, 1), row) + Cat(one, more))[1:]),
            answer.eq(take & counter.ask & (turn == counter.number)),
            counter.answered.eq(answer),
        ]
        return m
