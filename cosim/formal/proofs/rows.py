"""Proof of the row buffer of depthwise convolutions."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dovetail.cosim.formal.properties import Opened, before
from dovetail.hw.array.depthwise import RowBuffer
from dovetail.isa.config.resolved import ROW_STEPS, Config


class RowsHarness(wiring.Component):
    """Follows the words of one place of a line, whichever ``mark`` picks, from line to line, in a chain from step to
    step.

    Parameters
    ----------
    config: the accelerator, with two kernel rows at once or more.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.buffer = RowBuffer(config)
        super().__init__(
            {name: In(1) for name in ("coming", "begins", "first", "chain", "mark")}
            | {"bytes": In(8 * self.buffer.bytes_)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        buffer, words = self.buffer, self.config.line_words
        m.submodules.buffer = opened = Opened(buffer)
        cell = opened.module.submodules.cells.read_port(domain="comb")
        for name in ("coming", "begins", "first", "chain", "bytes"):
            m.d.comb += getattr(buffer, name).eq(getattr(self, name))

        # The place of a word: how many came in its step before, and its step, which counts nowhere in a chain.
        place, at = Signal(range(words)), Signal(range(words))
        step, in_step = Signal(range(ROW_STEPS)), Signal(range(ROW_STEPS))
        full, began = Signal(), Signal()  # the step has as many words as there is room for; a line has begun
        alone = Signal()  # it has one word
        m.d.comb += [at.eq(Mux(self.begins, 0, place)), in_step.eq(Mux(self.begins, ~self.first, step))]
        new, chain = self.begins & self.first, before(m, self.chain)
        half = in_step & ~self.chain
        m.d.comb += Assume(~began | (self.chain == chain), "all steps are a chain, or none is")
        with m.If(self.coming):
            m.d.sync += [place.eq(at + 1), step.eq(in_step), full.eq(at == words - 1), began.eq(1)]
            m.d.sync += alone.eq(self.begins)
            m.d.comb += [
                Assume(began | new, "the first word is the first of a line"),
                Assume(self.begins | ~full, "a step has no more words than there is room for"),
                Assume(~self.begins | self.first | (step == 0), "a line has one step or two"),
                Assume(~self.begins | ~alone, "a step has more than one word"),
            ]

        # A word comes a cycle after it was announced.
        comes = before(m, self.coming)
        marks = self.coming & self.mark
        followed, marked = Signal(), Signal(len(at) + 1)
        starts, again = before(m, marks & ~followed), before(m, self.coming & followed & (Cat(at, half) == marked))
        with m.If(marks & ~followed):
            m.d.sync += [followed.eq(1), marked.eq(Cat(at, half))]
        width, count = len(self.bytes), self.config.kernel_rows - 1
        kept = Signal(width * count)
        known = Signal(range(count + 1))  # lines whose word is known
        with m.If(starts | again):
            m.d.sync += [kept.eq(Cat(self.bytes, kept)), known.eq(known + (known != count))]

        last = Signal.like(marked)
        with m.If(self.coming):
            m.d.sync += last.eq(Cat(at, half))
        m.d.comb += [
            cell.addr.eq(marked),
            Assert(comes == opened["comes"], "invariant: a word comes"),
            Assert(began | ~comes & ~followed, "invariant: nothing comes before the first line"),
            Assert(~began | (opened["word"] == place) & (opened["half"] == step & ~chain), "invariant: places"),
            Assert(~comes | (opened["write_addr"] == last), "invariant: where it is written"),
            Assert(~began | (alone == (last[: len(at)] == 0)), "invariant: the first word of a step"),
            Assert(~began | (last[: len(at)] + 1 == Cat(place, full)), "invariant: the place after the last word's"),
            Assert(~began | (last[len(at) :] == step & ~chain), "invariant: the step of the last word"),
            Assert(~starts | (known == 0) & followed & (last == marked) & comes, "invariant: the marked word comes"),
            Assert(~again | (known != 0) & followed & (last == marked) & comes, "invariant: its place comes again"),
            Assert(~(comes & followed & (last == marked)) | starts | again, "invariant: no other word has the place"),
            Assert(followed | (known == 0) & ~starts & ~again, "invariant: nothing is followed yet"),
            Assert(~followed | starts | (known != 0) & (known <= count), "invariant: a word is followed"),
        ]
        for row in range(count):
            mine, cells = kept.word_select(row, width), cell.data[width * row :][:width]
            m.d.comb += [
                Assert(
                    ~again | (known <= row) | (buffer.before.word_select(row, width) == mine),
                    "with a word come those in its place in the lines before, in a chain in the steps before",
                ),
                Assert(~followed | starts | again | (known <= row) | (cells == mine), "invariant: where they are"),
            ]
        everything = again & (known == count)
        m.d.comb += [
            Cover(everything & (marked[len(at) :] == 1), "all lines before, of a second step"),
            Cover(everything & chain & (step == 1), "all steps before, of a second step"),
        ]
        return m
