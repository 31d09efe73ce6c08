"""Proof of the instruction queue."""

from typing import Any

from amaranth import Module, Signal, Value
from amaranth.hdl import Assert, Cover
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dovetail.cosim.formal.properties import Opened, before
from dovetail.hw.common.ports import Entry
from dovetail.hw.sequencer.queue import Queue


def first(opened: Opened) -> Value:
    """The place of the oldest entry."""
    return (opened["behind"] - 1)[: len(opened["behind"])]


def oldest(queue: Queue, opened: Opened, cell: Any, level: Value, kept: Value) -> list[Any]:
    """Invariants of a queue's registers; ``cell`` is the memory at :func:`first`, ``kept`` what it was in the cycle
    before."""
    return [
        Assert(queue.o.valid == (level != 0), "invariant: valid"),
        Assert(queue.i.ready == (level + kept < queue.depth), "invariant: full"),
        Assert(opened["level"] == level, "invariant: level"),
        Assert(opened["tail"] == (first(opened) + level)[: len(opened["tail"])], "invariant: places"),
        Assert(opened["many"] == (level > 1), "invariant: more than one"),
        Assert(
            ~queue.o.valid | (Value.cast(queue.o.payload) == Value.cast(queue.show(cell, 1))),
            "invariant: the oldest entry",
        ),
    ]


class QueueHarness(wiring.Component):
    """Follows one pushed entry, whichever ``mark`` picks, through the queue.

    If every entry leaves with its payload after exactly those that were pushed before it, nothing is lost, doubled or
    reordered.

    Parameters
    ----------
    depth: entries of the queue.
    """

    def __init__(self, *, depth: int) -> None:
        self.depth = depth
        super().__init__(
            {
                "i": In(stream.Signature(Entry)),
                "o": Out(stream.Signature(Entry)),
                "kept": In(1),
                "clear": In(1),
                "mark": In(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        queue = Queue(depth=self.depth)
        m.submodules.queue = opened = Opened(queue)
        cell = opened.module.submodules.entries.read_port(domain="comb")
        head = opened.module.submodules.entries.read_port(domain="comb")
        wiring.connect(m, wiring.flipped(self.i), queue.i)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [queue.clear.eq(self.clear), queue.kept.eq(self.kept)]
        kept = before(m, self.kept & ~self.clear)

        count = Signal(range(self.depth + 1))
        push, pop = Signal(), Signal()
        m.d.comb += [push.eq(self.i.valid & self.i.ready), pop.eq(self.o.valid & self.o.ready)]
        m.d.sync += count.eq(count + push - pop)
        m.d.comb += [
            Assert(count <= self.depth, "never more entries than the queue holds"),
            Assert(self.i.ready == (count + kept < self.depth), "ready exactly while a place is free"),
            Assert(self.o.valid == (count != 0), "valid exactly while an entry is inside"),
            Cover((count == self.depth) & self.i.valid & pop, "full, and an entry leaves"),
            Cover((count == self.depth - 1) & kept & self.i.valid, "full with the entry that is kept"),
        ]

        inside = Signal()  # the marked entry is in the queue, behind `ahead` others
        ahead = Signal(range(self.depth))
        entry = Signal(Entry)
        most = Signal.like(ahead)  # `ahead` when it came
        m.d.comb += [
            cell.addr.eq(first(opened) + ahead),
            head.addr.eq(first(opened)),
            *oldest(queue, opened, head.data, count, kept),
        ]
        with m.If(inside):
            m.d.comb += [
                Assert(ahead < count, "invariant: the marked entry is one of those inside"),
                Assert(cell.data.as_value() == entry.as_value(), "invariant: it stands where it belongs"),
            ]
        with m.If(inside & pop):
            with m.If(ahead == 0):
                m.d.comb += [
                    Assert(self.o.payload.as_value() == entry.as_value(), "the n-th entry out is the n-th entry in"),
                    Cover(most == self.depth - 1, "the last entry of a full queue leaves"),
                ]
                m.d.sync += inside.eq(0)
            with m.Else():
                m.d.sync += ahead.eq(ahead - 1)
        with m.Elif(push & self.mark & ~inside):
            m.d.sync += [inside.eq(1), entry.eq(self.i.payload), ahead.eq(count - pop), most.eq(count - pop)]
        with m.If(self.clear):
            m.d.sync += [count.eq(0), inside.eq(0)]
        return m
