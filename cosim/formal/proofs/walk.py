"""Proofs of the walks that array, vector unit and DMA share: where nested loops are, and pixels of a tile."""

from amaranth import Module, Mux, Signal, Value
from amaranth.asserts import AnyConst
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dovetail.cosim.formal.properties import Opened
from dovetail.hw.common.walk import PixelWalk, Place, count_loops

LOOPS = ("inner", "middle", "outer")


class Nest(wiring.Component):
    """Three loops with two places in them, as units have them: the inner loop moves only one of the two.

    Parameters
    ----------
    bits: of a place and of its steps.
    count_bits: of a count.
    """

    def __init__(self, *, bits: int, count_bits: int) -> None:
        self.bits = bits
        members = {"load": In(1), "step": In(1), "first": In(bits)}
        members |= {f"{loop}_count": In(count_bits) for loop in LOOPS} | {f"{loop}_step": In(bits) for loop in LOOPS}
        super().__init__(members)
        steps: dict[str, Value | int] = {loop: getattr(self, f"{loop}_step") for loop in LOOPS}
        self.places = {
            "all": Place("all", steps, width=bits),
            "some": Place("some", steps | {"inner": 0}, width=bits),
        }
        self.last = Signal()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        counts = {loop: getattr(self, f"{loop}_count") for loop in LOOPS}
        level, ends = count_loops(m, counts, load=self.load, step=self.step)
        m.d.comb += self.last.eq(ends["outer"])
        for place in self.places.values():
            with m.If(self.load):
                m.d.sync += place.begin(self.first)
            with m.Elif(self.step & ~self.last):
                place.move(m, level, (place.base(level) + place.step(level))[: self.bits])
        return m


class LoopsHarness(wiring.Component):
    """Any counts and steps, beside the numbers of the turns.

    Parameters
    ----------
    bits, count_bits: see :class:`Nest`.

    Members
    -------
    begin: takes the first turns. ``step``: goes to the next ones, if there are some.
    """

    def __init__(self, *, bits: int, count_bits: int) -> None:
        self.bits = bits
        self.count_bits = count_bits
        super().__init__({"begin": In(1), "step": In(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        nest = Nest(bits=self.bits, count_bits=self.count_bits)
        m.submodules.nest = inner = Opened(nest)
        counts = {loop: getattr(nest, f"{loop}_count") for loop in LOOPS}
        steps = {loop: getattr(nest, f"{loop}_step") for loop in LOOPS}
        for constant in (nest.first, *counts.values(), *steps.values()):
            m.d.comb += constant.eq(AnyConst(len(constant)))
        m.d.comb += Assume(counts["inner"].any() & counts["middle"].any() & counts["outer"].any(), "no empty loop")

        running = Signal()
        turns = {loop: Signal(self.count_bits, name=f"{loop}_turn") for loop in LOOPS}
        m.d.comb += [nest.load.eq(self.begin), nest.step.eq(self.step & running & ~self.begin)]
        advances: Value = nest.step
        for loop in LOOPS:
            wraps = turns[loop] == counts[loop] - 1
            with m.If(self.begin):
                m.d.sync += turns[loop].eq(0)
            with m.Elif(advances):
                m.d.sync += turns[loop].eq(Mux(wraps, 0, turns[loop] + 1))
            advances = advances & wraps
        with m.If(self.begin):
            m.d.sync += running.eq(1)
        with m.Elif(advances):
            m.d.sync += running.eq(0)

        with m.If(running):
            m.d.comb += [
                *(Assert(turns[loop] < counts[loop], "a loop has as many turns as its count") for loop in LOOPS),
                Cover(advances & (counts["inner"] == 2) & (counts["middle"] == 2), "the last turn of all loops ends"),
            ]
            with m.If(nest.step):
                m.d.comb += Assert(nest.last == advances, "the last step is known")
            for loop in LOOPS:
                m.d.comb += [
                    Assert(inner[f"{loop}_left"] == counts[loop] - turns[loop], "invariant: turns to go"),
                    Assert(inner[f"{loop}_last"] == (inner[f"{loop}_left"] == 1), "invariant: the last turn"),
                ]
            for name, place in nest.places.items():
                at: Value = nest.first
                for loop in reversed(LOOPS):
                    if loop in place.registers:
                        at = (at + turns[loop] * steps[loop])[: self.bits]
                        m.d.comb += Assert(place.registers[loop] == at, "invariant: where the inner loops begin")
                m.d.comb += Assert(
                    place.here == at, f"{name}: a place is its beginning and each loop's turns times step"
                )
        return m


class PixelsHarness(wiring.Component):
    """The pixel walk beside the numbers of row and column, of this pixel and of the one that was kept.

    Parameters
    ----------
    bits: of a quantity.

    Members
    -------
    restart, step, rewind, keep, home: see :class:`~dovetail.hw.common.walk.PixelWalk`.
    """

    def __init__(self, *, bits: int) -> None:
        self.bits = bits
        self.inputs = ("restart", "step", "rewind", "keep", "home")
        super().__init__({name: In(1) for name in self.inputs})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        bits = self.bits
        walk = PixelWalk(quantities={"both": "xy", "across": "x", "down": "y"}, bits=bits)
        m.submodules.walk = inner = Opened(walk)
        m.d.comb += [walk[name].eq(getattr(self, name)) for name in self.inputs]
        for name in ("width", "both_x_step", "both_y_step", "across_x_step", "down_y_step"):
            m.d.comb += walk[name].eq(AnyConst(len(walk[name])))
        m.d.comb += [
            Assume(walk.width != 0, "no empty rows"),
            Assume(~(self.rewind & self.home), "not to the first pixel and to the kept one at once"),
        ]

        begun = Signal()  # there was a restart
        x, kept_x, next_x = Signal(16), Signal(16), Signal(16)
        y, kept_y, next_y = Signal(bits), Signal(bits), Signal(bits)
        wraps = x == walk.width - 1
        m.d.comb += [next_x.eq(Mux(wraps, 0, x + 1)), next_y.eq(y + wraps)]
        with m.If(self.restart | self.home):
            m.d.comb += [next_x.eq(0), next_y.eq(0)]
        with m.Elif(self.rewind):
            m.d.comb += [next_x.eq(kept_x), next_y.eq(kept_y)]
        with m.If(self.restart | self.step):
            m.d.sync += [x.eq(next_x), y.eq(next_y), begun.eq(begun | self.restart)]
            with m.If(self.restart | self.keep | self.home):
                m.d.sync += [kept_x.eq(next_x), kept_y.eq(next_y)]

        def product(index: Value, step: Value) -> Value:
            return (index[:bits] * step)[:bits]

        with m.If(begun):
            across, down = product(x, walk.across_x_step), product(y, walk.down_y_step)
            both = product(x, walk.both_x_step) + product(y, walk.both_y_step)
            kept_both = product(kept_x, walk.both_x_step) + product(kept_y, walk.both_y_step)
            m.d.comb += [
                Assert(walk.across == across, "a quantity with a step along x is x times the step"),
                Assert(walk.down == down, "a quantity with a step along y is y times the step"),
                Assert(walk.both == both[:bits], "a quantity with both is the sum of both products"),
                Assert(x < walk.width, "a row has as many pixels as the width"),
                Cover(
                    (y == 2) & (kept_y == 1) & (kept_x != 0) & self.step & self.rewind, "back to the middle of a row"
                ),
                Assert(kept_x < walk.width, "invariant: the kept pixel"),
                Assert(inner["left"] == walk.width - x, "invariant: pixels of the row"),
                Assert(inner["kept_left"] == walk.width - kept_x, "invariant: pixels of the kept one's row"),
                Assert(inner["kept_wraps"] == (inner["kept_left"] == 1), "invariant: the kept one ends its row"),
                Assert(inner["wraps"] == (inner["left"] == 1), "invariant: the last pixel of the row"),
                Assert(inner["both_row"] == product(y + 1, walk.both_y_step), "invariant: the next row"),
                Assert(inner["both_row_kept"] == product(kept_y + 1, walk.both_y_step), "invariant: the kept next row"),
                Assert(inner["both_kept"] == kept_both[:bits], "invariant: kept"),
                Assert(inner["across_kept"] == product(kept_x, walk.across_x_step), "invariant: kept across"),
                Assert(inner["down_kept"] == product(kept_y, walk.down_y_step), "invariant: kept down"),
            ]
        return m
