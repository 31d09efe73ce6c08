"""The vector unit's loops: which bytes it reads, in which lanes they count, and where results go."""

from typing import Any

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from dovetail.hw.vector_registers import VECTOR_REGISTERS
from dovetail.isa.config import Config
from dovetail.isa.timing.vector import WALK


class Level(enum.Enum, shape=3):
    """The loop that advances between one step and the next; all loops inside it start again."""

    KX = 0
    KY = 1
    BLOCK = 2
    X = 3
    Y = 4


class VectorReads(wiring.Component):
    """Walks over the taps of a tile, one read of ``vector_lanes`` bytes per cycle.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    regs, adds
        Registers and kind of the operation; constant while it runs. An addition has two taps: operand A, operand B.
    load
        Pulse: take the starting values. At least one cycle before ``go``.
    go
        Pulse: the first step is in the next cycle.
    en, addr
        Read port; ``en`` only if a byte of it counts.
    valid
        There is a step, read or not.
    mask
        One bit per lane: the byte lies in the window and its region.
    second
        The step is operand B.
    first, last
        The step is the first, the last of its output.

    Latency
    -------
    ``LATENCY`` cycles from a step to its outputs, which all come together.
    """

    LATENCY = WALK

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "regs": In(VECTOR_REGISTERS),
                "adds": In(1),
                "load": In(1),
                "go": In(1),
                "en": Out(1),
                "addr": Out((config.sram_bytes - 1).bit_length()),
                "valid": Out(1),
                "mask": Out(config.vec),
                "second": Out(1),
                "first": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs, adds = self.regs, self.adds
        lanes = self.config.vec

        # 0: loop counters; which loop advances.
        active = Signal()
        begins = Signal()
        counts = {
            Level.KX: Mux(adds, 2, regs.GEOMETRY.kw),
            Level.KY: Mux(adds, 1, regs.GEOMETRY.kh),
            Level.BLOCK: regs.BLOCKS.count,
            Level.X: regs.TILE.width,
            Level.Y: regs.TILE.height,
        }
        advance, ends, finished = odometer(m, counts, load=self.load, step=active)
        with m.If(self.go):
            m.d.sync += [active.eq(1), begins.eq(1)]
        with m.Elif(active):
            m.d.sync += [active.eq(~finished), begins.eq(ends[Level.KY])]
        valid_1, first_1, last_1, second_1 = Signal(), Signal(), Signal(), Signal()
        level = Signal(Level)
        m.d.sync += valid_1.eq(active)
        with m.If(active):
            m.d.sync += [
                level.eq(advance),
                first_1.eq(begins),
                last_1.eq(ends[Level.KY]),
                second_1.eq(adds & ends[Level.KX]),
            ]

        # 1: positions of this step; per loop, where it stands with all inner loops at their start.
        off_y, off_x, off_block, off_ky, off = (Signal(32, name=f"off_{n}") for n in ("y", "x", "block", "ky", "kx"))
        col_0, col_x, col_block, col = (Signal(32, name=f"col_{n}") for n in ("0", "x", "block", "kx"))
        row_y, row = Signal(32), Signal(32)
        b_y, b_x, b = Signal(32), Signal(32), Signal(32)
        off_from, off_step, off_next = Signal(32), Signal(32), Signal(32)
        col_from, col_step, col_next = Signal(32), Signal(32), Signal(32)
        row_from, row_step, row_next = Signal(32), Signal(8), Signal(32)
        b_from, b_step, b_next = Signal(32), Signal(32), Signal(32)
        rows = {
            # loop: offset, column, row, B's offset: (from, step)
            Level.KX: ((off, regs.KX_STEP), (col, regs.KX_STEP), (row, 0), (b, 0)),
            Level.KY: ((off_ky, regs.KY_STEP), (col_block, 0), (row, regs.GEOMETRY.dilation_y), (b, 0)),
            Level.BLOCK: ((off_block, lanes), (col_block, lanes), (row_y, 0), (b, lanes)),
            Level.X: ((off_x, regs.X_STEP), (col_x, regs.X_STEP), (row_y, 0), (b_x, regs.B_X_STEP)),
            Level.Y: ((off_y, regs.Y_STEP), (col_0, 0), (row_y, regs.GEOMETRY.stride_y), (b_y, regs.B_Y_STEP)),
        }
        with m.Switch(level):
            for loop, terms in rows.items():
                with m.Default() if loop == Level.Y else m.Case(loop):
                    targets = (off_from, off_step), (col_from, col_step), (row_from, row_step), (b_from, b_step)
                    for (source, step), (base, term) in zip(targets, terms, strict=True):
                        m.d.comb += [source.eq(base), step.eq(term)]
        m.d.comb += [
            off_next.eq(off_from + off_step),
            col_next.eq(col_from + col_step),
            row_next.eq(row_from + row_step),
            b_next.eq(b_from + b_step),
        ]
        with m.If(self.load):
            m.d.sync += [s.eq(regs.ORIGIN) for s in (off_y, off_x, off_block, off_ky, off)]
            m.d.sync += [s.eq(-regs.PAD_LEFT) for s in (col_0, col_x, col_block, col)]
            m.d.sync += [s.eq(-regs.PAD_TOP) for s in (row_y, row)]
            m.d.sync += [s.eq(0) for s in (b_y, b_x, b)]
        with m.Elif(valid_1):
            m.d.sync += [off.eq(off_next), col.eq(col_next), row.eq(row_next), b.eq(b_next)]
            with m.If(level != Level.KX):
                m.d.sync += off_ky.eq(off_next)
            with m.If((level != Level.KX) & (level != Level.KY)):
                m.d.sync += [off_block.eq(off_next), col_block.eq(col_next)]
            with m.If((level == Level.X) | (level == Level.Y)):
                m.d.sync += [off_x.eq(off_next), col_x.eq(col_next), b_x.eq(b_next)]
            with m.If(level == Level.Y):
                m.d.sync += [off_y.eq(off_next), row_y.eq(row_next), b_y.eq(b_next)]

        # 2: address, distances to the bounds.
        valid_2, first_2, last_2, second_2, row_valid = Signal(), Signal(), Signal(), Signal(), Signal()
        address = Signal(len(self.addr))
        offset, limit = Signal(32), Signal(32)
        m.d.comb += [offset.eq(Mux(second_1, b, off)), limit.eq(Mux(second_1, regs.B_BYTES, regs.IN_BYTES))]
        m.d.sync += valid_2.eq(valid_1)
        with m.If(valid_1):
            m.d.sync += [
                first_2.eq(first_1),
                last_2.eq(last_1),
                second_2.eq(second_1),
                row_valid.eq(row < regs.IN_ROWS),
                address.eq(Mux(second_1, regs.B_ADDR, regs.IN_ADDR) + offset),
            ]
        in_region = LaneBound(lanes, "region")
        in_row = LaneBound(lanes, "row")
        in_region.measure(m, valid_1, offset, limit)
        in_row.measure(m, valid_1, col, regs.ROW_BYTES)

        # 3: lanes.
        valid_3, first_3, last_3, second_3 = Signal(), Signal(), Signal(), Signal()
        mask_3 = Signal(lanes)
        address_3 = Signal(len(self.addr))
        m.d.sync += valid_3.eq(valid_2)
        with m.If(valid_2):
            m.d.sync += [
                first_3.eq(first_2),
                last_3.eq(last_2),
                second_3.eq(second_2),
                mask_3.eq(in_region.mask() & (second_2.replicate(lanes) | in_row.mask() & row_valid.replicate(lanes))),
                # May wrap below 0, if only upper lanes count.
                address_3.eq(address),
            ]

        # 4: the read.
        m.d.sync += [self.valid.eq(valid_3), self.en.eq(valid_3 & mask_3.any())]
        with m.If(valid_3):
            m.d.sync += [
                self.first.eq(first_3),
                self.last.eq(last_3),
                self.second.eq(second_3),
                self.mask.eq(mask_3),
                self.addr.eq(address_3),
            ]
        return m


class VectorWrites(wiring.Component):
    """Walks over the outputs of a tile, blocks of ``vector_lanes`` bytes.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    regs
        Registers, constant while the operation runs.
    load
        Pulse: take the starting values.
    step
        There is an output.
    en, addr, size
        Write port; ``en`` only if all bytes lie in the region.
    done
        Pulse with the last output, written or not.

    Latency
    -------
    ``LATENCY`` cycles from ``step`` to the write port and ``done``.
    """

    LATENCY = 3

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "regs": In(VECTOR_REGISTERS),
                "load": In(1),
                "step": In(1),
                "en": Out(1),
                "addr": Out((config.sram_bytes - 1).bit_length()),
                "size": Out(range(config.word_bytes + 1)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs = self.regs
        lanes = self.config.vec

        # 0: loop counters; which loop advances.
        counts = {Level.BLOCK: regs.BLOCKS.count, Level.X: regs.TILE.width, Level.Y: regs.TILE.height}
        advance, ends, finished = odometer(m, counts, load=self.load, step=self.step)
        valid_1, done_1, tail_1 = Signal(), Signal(), Signal()
        level = Signal(Level)
        m.d.sync += [valid_1.eq(self.step), done_1.eq(finished)]
        with m.If(self.step):
            m.d.sync += [level.eq(advance), tail_1.eq(ends[Level.BLOCK])]

        # 1: position.
        out_y, out_x, out = Signal(32), Signal(32), Signal(32)
        source, step, following = Signal(32), Signal(32), Signal(32)
        with m.Switch(level):
            with m.Case(Level.BLOCK):
                m.d.comb += [source.eq(out), step.eq(lanes)]
            with m.Case(Level.X):
                m.d.comb += [source.eq(out_x), step.eq(regs.OUT_X_STEP)]
            with m.Default():
                m.d.comb += [source.eq(out_y), step.eq(regs.OUT_Y_STEP)]
        m.d.comb += following.eq(source + step)
        with m.If(self.load):
            m.d.sync += [s.eq(0) for s in (out_y, out_x, out)]
        with m.Elif(valid_1):
            m.d.sync += out.eq(following)
            with m.If(level != Level.BLOCK):
                m.d.sync += out_x.eq(following)
            with m.If(level == Level.Y):
                m.d.sync += out_y.eq(following)

        # 2: address and end.
        valid_2, done_2 = Signal(), Signal()
        address = Signal(len(self.addr))
        size = Signal(range(lanes + 1))
        end = Signal(33)
        size_1 = Mux(tail_1, regs.BLOCKS.last, lanes)
        m.d.sync += [valid_2.eq(valid_1), done_2.eq(done_1)]
        with m.If(valid_1):
            m.d.sync += [address.eq(regs.OUT_ADDR + out), size.eq(size_1), end.eq(out + size_1)]

        # 3: the write.
        m.d.sync += [self.en.eq(valid_2 & (end <= regs.OUT_BYTES)), self.done.eq(done_2)]
        with m.If(valid_2):
            m.d.sync += [self.addr.eq(address), self.size.eq(size)]
        return m


def odometer(m: Module, counts: dict[Any, Value], *, load: Value, step: Value) -> tuple[Value, dict[Any, Value], Value]:
    """Nested loops of ``counts`` steps by :class:`Level`, innermost first; a count is at least 1.

    Returns
    -------
    The loop that advances after this step; per loop, whether it and all inside it end with this step; whether
    this step is the last.
    """
    advance = Value.cast(Level.Y)
    ends: dict[Any, Value] = {}
    every: Value = Const(1, 1)
    for loop, count in counts.items():
        left = Signal(len(count), name=f"{loop.name.lower()}_left")
        last = Signal(name=f"{loop.name.lower()}_last")
        end = Signal(name=f"{loop.name.lower()}_end")
        m.d.comb += [last.eq(left == 1), end.eq(every & last)]
        with m.If(load):
            m.d.sync += left.eq(count)
        with m.Elif(step & every):
            m.d.sync += left.eq(Mux(last, count, left - 1))
        ends[loop] = every = end
    for loop in reversed(counts):
        advance = Mux(ends[loop], advance, loop.value)
    return advance, ends, step & every


class LaneBound:
    """Which lanes l have ``position + l < limit``, modulo 2^32 and unsigned, in two pipeline stages.

    The low bits of the position are those that a lane number can change. The part above them is the position's for
    the lanes below a carry, one more for the others.
    """

    def __init__(self, lanes: int, name: str) -> None:
        self.lanes = lanes
        self.low_bits = ceil_log2(lanes)
        self.distance = Signal(33 - self.low_bits, name=f"{name}_distance")
        self.wraps = Signal(name=f"{name}_wraps")
        self.low = Signal(self.low_bits, name=f"{name}_low")
        self.limit_low = Signal(self.low_bits, name=f"{name}_limit_low")

    def measure(self, m: Module, valid: Value, position: Value, limit: Value) -> None:
        """First stage: add the registers to ``m``."""
        high = position[self.low_bits :]
        with m.If(valid):
            m.d.sync += [
                self.distance.eq(limit[self.low_bits :] - high),
                self.wraps.eq(high.all()),
                self.low.eq(position[: self.low_bits]),
                self.limit_low.eq(limit[: self.low_bits]),
            ]

    def mask(self) -> Value:
        """Second stage: one bit per lane, from the registers."""
        lanes, bits = self.lanes, self.low_bits
        ones = Const((1 << lanes) - 1, lanes)
        beyond = self.distance[-1]
        distance = self.distance[:-1]
        at, next_at = distance == 0, distance == 1
        below = ~beyond & ~at
        next_below = ~next_at & (self.wraps | below)
        room = self.limit_low - self.low  # lanes below the limit if the part above the low bits is the limit's
        room_next = (room + (1 << bits))[: bits + 1]
        inside = (~(ones << Mux(room < 0, 0, room)[: bits + 1]))[:lanes]
        next_inside = (~(ones << room_next))[:lanes]
        same = (~(ones << ((1 << bits) - self.low)[: bits + 1]))[:lanes]
        lower = below.replicate(lanes) | at.replicate(lanes) & inside
        upper = next_below.replicate(lanes) | next_at.replicate(lanes) & next_inside
        return same & lower | ~same & upper
