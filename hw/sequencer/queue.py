"""First in, first out: the instruction queue of a unit."""

from collections.abc import Callable
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from dovetail.hw.common.ports import Entry


class Queue(wiring.Component):
    """First in, first out, ``depth`` entries.

    Parameters
    ----------
    depth: entries held; a power of two of at least 2.
    entry: what an entry is.
    shown, show: what ``o`` shows of it, if that is something else: its shape, and what makes it of an entry and whether
        there is one, before the register. After ``clear`` it is 0.

    Members
    -------
    i: what is pushed; ready while a place is free.
    o: the oldest entry.
    kept: the entry that was taken last holds its place in the next cycle, too.
    clear: empties the queue (what is pushed in the same cycle is lost).

    Latency
    -------
    An entry pushed in cycle d shows from d + 1 on; a place freed in cycle c takes an entry from c + 1 on.
    """

    def __init__(
        self,
        *,
        depth: int,
        entry: Any = Entry,
        shown: Any = None,
        show: Callable[[Any, Any], Any] = lambda entry, valid: entry,
    ) -> None:
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth}")
        self.depth = depth
        self.entry = entry
        self.show = show
        super().__init__(
            {
                "i": In(stream.Signature(entry)),
                "o": Out(stream.Signature(shown or entry)),
                "kept": In(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = ceil_log2(self.depth)
        m.submodules.entries = entries = memory.Memory(shape=self.entry, depth=self.depth, init=[])
        write = entries.write_port()
        read = entries.read_port(domain="comb")
        behind = Signal(bits, init=1)  # the place after the oldest entry's
        tail = Signal(bits)
        level = Signal(bits + 1)
        many = Signal()  # more than one
        push, pop = Signal(), Signal()
        full = Signal()
        last = Signal()  # with the entry kept, no place is free
        m.d.comb += [
            push.eq(self.i.valid & self.i.ready),
            pop.eq(self.o.valid & self.o.ready),
            self.i.ready.eq(~full),
            write.addr.eq(tail),
            write.data.eq(self.i.payload),
            write.en.eq(push),
            read.addr.eq(behind),
        ]
        # The oldest entry, and whether the level allows a push or pop, are in registers. So no path starts at the
        # memory or a comparison.
        next_entry = Signal(self.entry)
        m.d.comb += next_entry.eq(Mux(many, read.data, self.i.payload))
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += self.o.payload.eq(self.show(next_entry, push | many))
        # `o.ready` only chooses between two next states. No carry chain waits for it: a bit of the level flips where
        # those below it are all ones, or all zeroes. `kept` comes last in a cycle, from a comparison of counts.
        taken = self.o.ready
        for n, bit in enumerate(level):
            up = bit ^ (push & level[:n].all() if n else push)
            down = bit ^ (~push & ~level[:n].any() if n else ~push)
            m.d.sync += bit.eq(Mux(taken, Mux(self.o.valid, down, up), up))
        two_free, one_free = level == self.depth - 2, level == self.depth - 1
        m.d.comb += last.eq(Mux(pop, level[-1] | push & one_free, one_free | push & two_free))
        m.d.sync += [
            full.eq(~taken & (level[-1] | push & one_free) | self.kept & last),
            many.eq(Mux(taken, push & many | (level > 2), push & self.o.valid | many)),
            self.o.valid.eq(push | many | self.o.valid & ~taken),
        ]
        with m.If(push):
            m.d.sync += tail.eq(tail + 1)
        with m.If(pop):
            m.d.sync += behind.eq(behind + 1)
        with m.If(self.clear):
            m.d.sync += [behind.eq(1), tail.eq(0), level.eq(0)]
            m.d.sync += [full.eq(0), many.eq(0), self.o.valid.eq(0), self.o.payload.eq(0)]
        return m
