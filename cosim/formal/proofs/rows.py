"""Proof of the row buffer of depthwise convolutions."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dovetail.cosim.formal.properties import Opened, before
from dovetail.hw.array.depthwise import RowBuffer
from dovetail.isa.config.resolved import ROW_STEPS, Config


class RowsHarness(wiring.Component):
    """Follows the words of one place of a line, whichever ``mark`` picks, from line to line.

    Parameters
    ----------
    config: the accelerator, with two kernel rows at once or more.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.buffer = RowBuffer(config)
        super().__init__(
            {"coming": In(1), "begins": In(1), "first": In(1), "bytes": In(8 * self.buffer.bytes_), "mark": In(1)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        buffer, words = self.buffer, self.config.line_words
        m.submodules.buffer = opened = Opened(buffer)
        cell = opened.module.submodules.cells.read_port(domain="comb")
        for name in ("coming", "begins", "first", "bytes"):
            m.d.comb += getattr(buffer, name).eq(getattr(self, name))

        # The place of a word: its step, and how many came in it before.
        place, at = Signal(range(words)), Signal(range(words))
        step, in_step = Signal(range(ROW_STEPS)), Signal(range(ROW_STEPS))
        full, began = Signal(), Signal()  # the step has as many words as there is room for; a line has begun
        line = Signal(2)  # words of the line, up to 2
        m.d.comb += [at.eq(Mux(self.begins, 0, place)), in_step.eq(Mux(self.begins, ~self.first, step))]
        new = self.begins & self.first
        with m.If(self.coming):
            m.d.sync += [place.eq(at + 1), step.eq(in_step), full.eq(at == words - 1), began.eq(1)]
            m.d.sync += line.eq(Mux(new, 1, 2))
            m.d.comb += [
                Assume(began | new, "the first word is the first of a line"),
                Assume(self.begins | ~full, "a step has no more words than there is room for"),
                Assume(~self.begins | self.first | (step == 0), "a line has one step or two"),
                Assume(~new | (line != 1), "a line has more than one word"),
            ]

        # A word comes a cycle after it was announced.
        comes = before(m, self.coming)
        marks = self.coming & self.mark
        followed, marked = Signal(), Signal(len(at) + 1)
        starts, again = before(m, marks & ~followed), before(m, self.coming & followed & (Cat(at, in_step) == marked))
        with m.If(marks & ~followed):
            m.d.sync += [followed.eq(1), marked.eq(Cat(at, in_step))]
        width, count = len(self.bytes), self.config.kernel_rows - 1
        kept = Signal(width * count)
        known = Signal(range(count + 1))  # lines whose word is known
        with m.If(starts | again):
            m.d.sync += [kept.eq(Cat(self.bytes, kept)), known.eq(known + (known != count))]

        last = Signal.like(marked)
        with m.If(self.coming):
            m.d.sync += last.eq(Cat(at, in_step))
        m.d.comb += [
            cell.addr.eq(marked),
            Assert(comes == opened["comes"], "invariant: a word comes"),
            Assert(began | ~comes & ~followed, "invariant: nothing comes before the first line"),
            Assert(~began | (opened["word"] == place) & (opened["step"] == step), "invariant: places"),
            Assert(~comes | (opened["write_addr"] == last), "invariant: where it is written"),
            Assert(~began | ((line == 1) == (last == 0)), "invariant: the first word of a line"),
            Assert(~began | (last[: len(at)] + 1 == Cat(place, full)), "invariant: the place after the last word's"),
            Assert(~began | (last[len(at) :] == step), "invariant: the step of the last word"),
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
                    "with a word come those in its place in the lines before",
                ),
                Assert(~followed | starts | again | (known <= row) | (cells == mine), "invariant: where they are"),
            ]
        m.d.comb += Cover(again & (known == count) & (marked[len(at) :] == 1), "all lines before, of a second step")
        return m
