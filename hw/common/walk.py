"""Walks of nested loops: their counts, where quantities are in them, and which lanes of a place count.

Loops have names, the innermost one first. A *level* has a bit for each loop: the one that advances is set, and all
loops inside it begin again.
"""

from collections.abc import Mapping

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dovetail.isa.config.resolved import Config

PARTS = ("off", "col", "row")

Level = Mapping[str, Value]


class Position(data.StructLayout):
    """A position in a tensor, or a part of one, modulo 2^offset_bits: byte offset in its region, byte column, row."""

    def __init__(self, config: Config) -> None:
        super().__init__(dict.fromkeys(PARTS, config.offset_bits))


def stepped(here: Value, step: Value | int, load: Value, value: Value) -> Value:
    """``here + step``, or ``value`` with ``load``, as wide as ``here``. The choice is in front of the adder, where the
    LUT of a carry cell can hold it (``flows.fpga.carry``)."""
    width = len(here)
    amount = (Const(step, width) if isinstance(step, int) else step) & ~load.replicate(width)
    return (Mux(load, value, here)[:width] + amount)[:width]


def count_loops(
    m: Module, counts: Mapping[str, Value], *, load: Value, step: Value
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Counts the turns of nested loops, at least 1 each. A count is constant from the cycle before ``load`` on.

    ``load`` begins the first turn of every loop, ``step`` goes to the next turn. The first follows the last.

    Returns
    -------
    The level of the next step, without a bit set if every loop ends with it; per loop, whether it ends with that step,
    and all loops inside it.
    """
    level: dict[str, Value] = {}
    ends: dict[str, Value] = {}
    every: Value = Const(1, 1)
    for loop, count in counts.items():
        left = Signal(len(count), name=f"{loop}_left", reset_less=True)
        last = Signal(name=f"{loop}_last", reset_less=True)  # `left` is 1
        begins, end = Signal(name=f"{loop}_begins"), Signal(name=f"{loop}_end")
        m.d.comb += [end.eq(every & last), begins.eq(load | last)]
        with m.If(load | (step & every)):  # `last` does not wait for the carry chain of `left`
            m.d.sync += [left.eq(stepped(left, -1, begins, count)), last.eq(Mux(begins, count == 1, left == 2))]
        level[loop] = every & ~last
        ends[loop] = every = end
    return level, ends


def selected(level: Level, choices: Mapping[str, Value] | Mapping[str, Value | int]) -> Value:
    """The choice of the loop that advances; 0 if none does."""
    result: Value = Const(0)
    for loop, choice in choices.items():
        if isinstance(choice, Value) or choice:
            value = Value.cast(choice)
            result = result | value & level[loop].replicate(len(value))
    return result


class Place:
    """Where nested loops are in one quantity: its beginning, and each loop's step times its turns, modulo 2^width.

    A register for each loop that has a step, and for the outermost one, holds the place where the inner loops begin.
    The next place is the sum of :meth:`base` and :meth:`step`.

    Parameters
    ----------
    name
        Prefix of the registers.
    steps
        Per loop, bytes or rows from one turn to the next, of which the low bits count; 0 if a turn is where the one
        before it was.
    width
        Bits.
    """

    def __init__(self, name: str, steps: Mapping[str, Value | int], *, width: int) -> None:
        self.steps = {loop: step[:width] if isinstance(step, Value) else step for loop, step in steps.items()}
        *_, outermost = self.steps
        self.registers = {
            loop: Signal(width, name=f"{name}_{loop}", reset_less=True)
            for loop, step in self.steps.items()
            if isinstance(step, Value) or step or loop == outermost
        }
        self.bases: dict[str, Value] = {}
        register = self.registers[outermost]
        for loop in reversed(self.steps):
            self.bases[loop] = register = self.registers.get(loop, register)
        self.here = register
        """The place."""

    def base(self, level: Level) -> Value:
        """Where the loop that advances is."""
        return selected(level, self.bases)

    def step(self, level: Level) -> Value:
        """How far it goes."""
        return selected(level, self.steps)

    def following(self, level: Level) -> Value:
        """The next place, by an adder per loop and a choice behind them."""
        width = len(self.here)
        return selected(level, {loop: (self.bases[loop] + step)[:width] for loop, step in self.steps.items()})

    def begin(self, first: Value | int) -> list[object]:
        """Goes to the beginning."""
        return [register.eq(first) for register in self.registers.values()]

    def move(self, m: Module, level: Level, following: Value) -> None:
        """Goes to the next place, which is that of the loop that advances and of all inside it."""
        inner: list[Value] = []
        for loop in self.steps:
            if loop in self.registers:
                with m.If(~Cat(inner).any() if inner else 1):
                    m.d.sync += self.registers[loop].eq(following)
            inner.append(level[loop])


class LanesBelow:
    """Which lanes l have ``position + item * l < limit``, modulo 2^width and unsigned, in two pipeline stages.

    For a position below the limit, lanes up to the limit count, and lanes for which the sum wraps around. For another
    position only lanes count that wrap around and are below the limit.

    Parameters
    ----------
    name
        Prefix of the registers.
    lanes
        How many.
    item
        Largest distance of the lanes, a power of two.
    width
        Bits of position and limit.
    """

    def __init__(self, name: str, lanes: int, item: int = 1, *, width: int) -> None:
        self.width = width
        self.lanes = lanes
        self.item = item
        self.bits = max((item * (lanes - 1)).bit_length(), item.bit_length())
        self.room = Signal(width + 1, name=f"{name}_room", reset_less=True)
        self.near = Signal(name=f"{name}_near", reset_less=True)
        self.low = Signal(self.bits, name=f"{name}_low", reset_less=True)

    def measure(self, m: Module, enable: Value, position: Value, limit: Value) -> None:
        """First stage: add the registers to ``m``."""
        with m.If(enable):
            m.d.sync += [
                self.room.eq(limit[: self.width] - position - 1),
                self.near.eq(position[self.bits :].all()),
                self.low.eq(position),
            ]

    def mask(self, item: int | None = None) -> Value:
        """Second stage: one bit per lane, from the registers. A smaller ``item`` is another power of two."""
        shift = (self.item if item is None else item).bit_length() - 1
        reach = self.room[shift : self.bits]
        ones = Const((1 << (1 << len(reach))) - 1, 1 << len(reach))
        far = self.room[self.bits : self.width].any()
        to_limit = (ones >> ~reach)[: self.lanes] | far.replicate(self.lanes)
        past_wrap = ~(ones >> self.low[shift:])[: self.lanes] & self.near.replicate(self.lanes)
        return Mux(self.room[-1], to_limit & past_wrap, to_limit | past_wrap)


class PixelWalk(wiring.Component):
    """Row-major walk over the pixels of a tile, with quantities that step along.

    A quantity is ``y * y_step + x * x_step`` modulo 2^bits, or only one of the two products.

    Parameters
    ----------
    quantities
        Their names, and of each the axes that it has a step along: ``"xy"``, ``"x"`` or ``"y"``.
    bits
        Of a quantity.

    Members
    -------
    width
        Pixels per row.
    <name>_x_step, <name>_y_step
        Steps of a quantity; constant, like ``width``, from the cycle before ``restart`` to the last step.
    restart
        Go to the first pixel.
    step
        Go to the next pixel,
    rewind
        with ``step``: to the pixel that was kept last instead;
    keep
        with ``step``: keep the pixel gone to,
    home
        with ``step``, not with ``rewind``: which is the first.
    <name>
        The quantity at the present pixel.

    Latency
    -------
    The pixel gone to is there in the next cycle.
    """

    def __init__(self, *, quantities: Mapping[str, str], bits: int) -> None:
        self.quantities = quantities
        self.bits = bits
        members = {name: In(1) for name in ("restart", "step", "rewind", "keep", "home")}
        members["width"] = In(16)
        for name, axes in quantities.items():
            members |= {f"{name}_{axis}_step": In(bits) for axis in axes} | {name: Out(bits)}
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left, kept_left = (Signal(16, name=name, reset_less=True) for name in ("left", "kept_left"))
        next_left = Signal(16)
        # Whether `left` and `kept_left` are 1: registers, as the first decides on all quantities. They do not wait for
        # the carry chain of `next_left`.
        wraps, kept_wraps = (Signal(reset_less=True, name=name) for name in ("wraps", "kept_wraps"))
        next_wraps = Signal()
        goes, back = Signal(), Signal()  # elsewhere than to the next pixel of the row; to the one that was kept
        m.d.comb += [goes.eq(self.restart | self.home | self.rewind | wraps), back.eq(self.rewind & ~self.restart)]
        m.d.comb += next_left.eq(stepped(left, -1, goes, Mux(back, kept_left, self.width)))
        m.d.comb += next_wraps.eq(Mux(goes, Mux(back, kept_wraps, self.width == 1), left == 2))
        moves, keeps = Signal(), Signal()
        m.d.comb += [moves.eq(self.step | self.restart), keeps.eq(self.restart | (self.step & (self.keep | self.home)))]
        with m.If(moves):
            m.d.sync += [left.eq(next_left), wraps.eq(next_wraps)]
        with m.If(keeps):
            m.d.sync += [kept_left.eq(next_left), kept_wraps.eq(next_wraps)]

        def walk(name: str, here: Signal, first: Value | int, on_wrap: Value, step: Value | None = None) -> None:
            """A register that goes to one of these, or back to what it was at the pixel that was kept; by ``step``, if
            there is one, at other pixels."""
            kept, following = (
                Signal(self.bits, name=f"{name}_kept", reset_less=True),
                Signal(self.bits, name=f"{name}_next"),
            )
            there: Value = Mux(self.home, first, Mux(self.rewind, kept, on_wrap))
            m.d.comb += following.eq(Mux(goes, there, here) if step is None else stepped(here, step, goes, there))
            with m.If(moves):
                m.d.sync += here.eq(following)
            with m.If(keeps):
                m.d.sync += kept.eq(following)
            with m.If(self.restart):  # where that is 0, by the reset of flip-flops
                m.d.sync += [here.eq(first), kept.eq(first)]

        for name, axes in self.quantities.items():
            here = self[name]
            row: Value = Const(0)  # the quantity at the first pixel of the next row
            if axes == "y":
                walk(name, here, 0, here + self[f"{name}_y_step"])
                continue
            if axes == "xy":
                row, y_step = Signal(self.bits, name=f"{name}_row", reset_less=True), self[f"{name}_y_step"]
                walk(f"{name}_row", row, y_step, row + y_step)
            walk(name, here, 0, row, self[f"{name}_x_step"])
        return m

    def __getitem__(self, name: str) -> Signal:
        return getattr(self, name)
