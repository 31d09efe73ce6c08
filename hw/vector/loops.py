"""The vector unit's loops: which bytes it reads, in which lanes they count, and where results go."""

from enum import IntEnum
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.memory.window import INT32_BYTES, LanesBelow
from dovetail.hw.vector.registers import KIND, VECTOR_REGISTERS
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import offers
from dovetail.isa.timing.vector import TABLE_BYTES, WALK, table_lanes


class Level(IntEnum):
    """The loop that advances between one step and the next; all loops inside it start again. TABLE comes first."""

    KX = 0
    KY = 1
    BLOCK = 2
    X = 3
    Y = 4
    TABLE = 5


class VectorReads(wiring.Component):
    """Walks over the taps of a tile, one read of ``vector_lanes`` channels per cycle.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    regs, kind
        Registers and kind of the operation; constant while it runs. One on two operands has two taps: A and B; one
        that looks up has steps for its table before all others.
    load
        Pulse: take the starting values. At least one cycle before ``go``.
    go
        Pulse: the first step is in the next cycle.
    en, addr
        Read port; ``en`` only if a byte of it counts.
    valid
        There is a step, read or not.
    mask
        One bit per lane: the byte, or all bytes of the int32, lie in the window and their region.
    second
        The step is of region B: operand B or the table.
    table
        The step is of the table; ``first`` as well.
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
                "kind": In(KIND),
                "load": In(1),
                "go": In(1),
                "en": Out(1),
                "addr": Out((config.sram - 1).bit_length()),
                "valid": Out(1),
                "mask": Out(config.vector_lanes),
                "second": Out(1),
                "table": Out(1),
                "first": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs, kind = self.regs, self.kind
        lanes = self.config.vector_lanes
        two_operands, looks_up = offers(self.config, "two_operands"), offers(self.config, "looks_up")
        int32 = offers(self.config, "int32_input")

        # 0: loop counters; which loop advances.
        active = Signal()
        step = Signal()
        begins = Signal()
        filling = Signal()
        counts = {
            Level.KX: Mux(kind.taps, regs.GEOMETRY.kw, Mux(kind.two_operands, 2, 1)),
            Level.KY: Mux(kind.taps, regs.GEOMETRY.kh, 1),
            Level.BLOCK: regs.BLOCKS.count,
            Level.X: regs.TILE.width,
            Level.Y: regs.TILE.height,
        }
        advance, ends, finished = odometer(m, counts, load=self.load, step=step)
        m.d.comb += step.eq(active & ~filling)
        with m.If(self.go):
            m.d.sync += [active.eq(1), begins.eq(1)]
        with m.Elif(step):
            m.d.sync += [active.eq(~finished), begins.eq(ends[Level.KY])]
        if looks_up:
            table_left = Signal(range(TABLE_BYTES // table_lanes(self.config)))
            with m.If(self.go):
                m.d.sync += [filling.eq(kind.looks_up), table_left.eq(TABLE_BYTES // table_lanes(self.config) - 1)]
            with m.Elif(filling):
                m.d.sync += [filling.eq(table_left.any()), table_left.eq(table_left - 1)]
        valid_1 = Signal()
        first_1 = Signal()
        last_1 = Signal()
        second_1 = Signal()
        table_1 = Signal()
        level_0, level = Signal(len(Level)), Signal(len(Level))  # one bit: a bit per loop is quicker than its number
        m.d.comb += level_0.eq(Mux(filling, 1 << Level.TABLE.value, advance))
        m.d.sync += valid_1.eq(active)
        with m.If(active):
            m.d.sync += [
                level.eq(level_0),
                first_1.eq(begins),
                last_1.eq(ends[Level.KY] & ~filling),
                second_1.eq(filling | kind.two_operands & ends[Level.KX]),
                table_1.eq(filling),
            ]

        # 1: positions of this step; per loop, where it stands with all inner loops at their start.
        off_y, off_x, off_block, off_ky, off = (Signal(32, name=f"off_{n}") for n in ("y", "x", "block", "ky", "kx"))
        col_0, col_x, col_block, col = (Signal(32, name=f"col_{n}") for n in ("0", "x", "block", "kx"))
        row_y, row = (Signal(32, name=f"row_{n}") for n in ("y", "ky"))
        b_y, b_x, b = (Signal(32, name=f"b_{n}") for n in ("y", "x", "block"))
        off_from, off_step, off_next = (Signal(32, name=f"off_{n}") for n in ("from", "step", "next"))
        col_from, col_step, col_next = (Signal(32, name=f"col_{n}") for n in ("from", "step", "next"))
        row_from, row_step, row_next = (Signal(32, name=f"row_{n}") for n in ("from", "step", "next"))
        b_from, b_step, b_next = (Signal(32, name=f"b_{n}") for n in ("from", "step", "next"))
        block = Signal(range(INT32_BYTES * lanes + 1))
        m.d.sync += block.eq(Mux(kind.int32_input, INT32_BYTES * lanes, lanes))
        rows = {
            # loop: offset, column, row, B's offset: (from, step)
            Level.KX: ((off, regs.KX_STEP), (col, regs.KX_STEP), (row, 0), (b, 0)),
            Level.KY: ((off_ky, regs.KY_STEP), (col_block, 0), (row, regs.GEOMETRY.dilation_y), (b, 0)),
            Level.BLOCK: ((off_block, block), (col_block, block), (row_y, 0), (b, block)),
            Level.X: ((off_x, regs.X_STEP), (col_x, regs.X_STEP), (row_y, 0), (b_x, regs.B_X_STEP)),
            Level.TABLE: ((off, 0), (col, 0), (row, 0), (b, table_lanes(self.config))),
            Level.Y: ((off_y, regs.Y_STEP), (col_0, 0), (row_y, regs.GEOMETRY.stride_y), (b_y, regs.B_Y_STEP)),
        }
        if not looks_up:
            del rows[Level.TABLE]
        targets = (off_from, off_step), (col_from, col_step), (row_from, row_step), (b_from, b_step)
        for (source, amount), terms in zip(targets, zip(*rows.values(), strict=True), strict=True):
            bases, steps = zip(*terms, strict=True)
            m.d.comb += source.eq(selected(level, dict(zip(rows, bases, strict=True))))
            with m.If(active):
                m.d.sync += amount.eq(selected(level_0, dict(zip(rows, steps, strict=True))))
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
            m.d.sync += [off.eq(off_next), col.eq(col_next), row.eq(row_next)]
            if two_operands or looks_up:
                m.d.sync += b.eq(b_next)
            with m.If(~level[Level.KX.value]):
                m.d.sync += off_ky.eq(off_next)
            with m.If(~(level[Level.KX.value] | level[Level.KY.value])):
                m.d.sync += [off_block.eq(off_next), col_block.eq(col_next)]
            with m.If(level[Level.X.value] | level[Level.Y.value]):
                m.d.sync += [off_x.eq(off_next), col_x.eq(col_next)]
                if two_operands:
                    m.d.sync += b_x.eq(b_next)
            with m.If(level[Level.Y.value]):
                m.d.sync += [off_y.eq(off_next), row_y.eq(row_next)]
                if two_operands:
                    m.d.sync += b_y.eq(b_next)

        # 2: address, distances to the bounds. An int32 begins at least four bytes before the end of its region.
        valid_2 = Signal()
        first_2 = Signal()
        last_2 = Signal()
        second_2 = Signal()
        table_2 = Signal()
        row_valid = Signal()
        address = Signal(len(self.addr))
        offset = Signal(32)
        limit = Signal(32)
        in_limit, b_limit = (Signal(32, name=f"{name}_limit") for name in ("in", "b"))
        for region_limit, size in ((in_limit, regs.IN_BYTES), (b_limit, regs.B_BYTES)):
            whole = Mux(size >= INT32_BYTES, size - (INT32_BYTES - 1), 0)
            with m.If(self.load):
                m.d.sync += region_limit.eq(Mux(kind.int32_input, whole, size))
        m.d.comb += [offset.eq(Mux(second_1, b, off)), limit.eq(Mux(second_1, b_limit, in_limit))]
        m.d.sync += valid_2.eq(valid_1)
        with m.If(valid_1):
            m.d.sync += [
                first_2.eq(first_1),
                last_2.eq(last_1),
                second_2.eq(second_1),
                table_2.eq(table_1),
                row_valid.eq(row < regs.IN_ROWS),
                address.eq(Mux(second_1, regs.B_ADDR, regs.IN_ADDR) + offset),
            ]
        item = INT32_BYTES if two_operands else 1
        in_region = LanesBelow("region", lanes, item)
        in_row = LanesBelow("row", lanes, item)
        in_region.measure(m, valid_1, offset, limit)
        in_row.measure(m, valid_1, col, regs.ROW_BYTES)

        # 3: lanes.
        valid_3 = Signal()
        first_3 = Signal()
        last_3 = Signal()
        second_3 = Signal()
        table_3 = Signal()
        mask_3 = Signal(lanes)
        address_3 = Signal(len(self.addr))

        def inside(bound: LanesBelow) -> Value:
            if not int32:
                return bound.mask()
            return Mux(kind.int32_input, bound.mask(INT32_BYTES), bound.mask(1))

        m.d.sync += valid_3.eq(valid_2)
        with m.If(valid_2):
            m.d.sync += [
                first_3.eq(first_2),
                last_3.eq(last_2),
                second_3.eq(second_2),
                table_3.eq(table_2),
                mask_3.eq(
                    inside(in_region) & (second_2.replicate(lanes) | inside(in_row) & row_valid.replicate(lanes))
                ),
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
                self.table.eq(table_3),
                self.mask.eq(mask_3),
                self.addr.eq(address_3),
            ]
        return m


class VectorWrites(wiring.Component):
    """Walks over the outputs of a tile, blocks of ``vector_lanes`` channels.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    regs, kind
        Registers and kind of the operation, constant while it runs.
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
                "kind": In(KIND),
                "load": In(1),
                "step": In(1),
                "en": Out(1),
                "addr": Out((config.sram - 1).bit_length()),
                "size": Out(range(config.word_bytes + 1)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs = self.regs
        lanes = self.config.vector_lanes

        def length(channels: Value | int) -> Value:
            """Bytes of ``channels`` results."""
            return channels << Mux(self.kind.int32_output, 2, 0)

        # 0: loop counters; which loop advances.
        counts = {Level.BLOCK: regs.BLOCKS.count, Level.X: regs.TILE.width, Level.Y: regs.TILE.height}
        advance, ends, finished = odometer(m, counts, load=self.load, step=self.step)
        valid_1 = Signal()
        done_1 = Signal()
        tail_1 = Signal()
        level = Signal(len(Level))
        m.d.sync += [valid_1.eq(self.step), done_1.eq(finished)]
        with m.If(self.step):
            m.d.sync += [level.eq(advance), tail_1.eq(ends[Level.BLOCK])]

        # 1: position.
        out_y, out_x, out = (Signal(32, name=f"out_{n}") for n in ("y", "x", "block"))
        source = Signal(32)
        step = Signal(32)
        following = Signal(32)
        m.d.comb += [
            source.eq(selected(level, {Level.BLOCK: out, Level.X: out_x, Level.Y: out_y})),
            step.eq(
                selected(level, {Level.BLOCK: length(lanes), Level.X: regs.OUT_X_STEP, Level.Y: regs.OUT_Y_STEP}),
            ),
            following.eq(source + step),
        ]
        with m.If(self.load):
            m.d.sync += [s.eq(0) for s in (out_y, out_x, out)]
        with m.Elif(valid_1):
            m.d.sync += out.eq(following)
            with m.If(~level[Level.BLOCK.value]):
                m.d.sync += out_x.eq(following)
            with m.If(level[Level.Y.value]):
                m.d.sync += out_y.eq(following)

        # 2: address and end.
        valid_2 = Signal()
        done_2 = Signal()
        address = Signal(len(self.addr))
        size = Signal(len(self.size))
        end = Signal(33)
        size_1 = length(Mux(tail_1, regs.BLOCKS.last, lanes))
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
    The loop that advances after this step, a bit per :class:`Level`; per loop, whether it and all inside it end with
    this step; whether this step is the last.
    """
    advance: dict[Any, Value] = {}
    ends: dict[Any, Value] = {}
    every: Value = Const(1, 1)
    for loop, count in counts.items():
        left = Signal(len(count), name=f"{loop.name.lower()}_left")
        last = Signal(name=f"{loop.name.lower()}_last")  # `left` is 1
        single = Signal(name=f"{loop.name.lower()}_single")  # so is the count
        end = Signal(name=f"{loop.name.lower()}_end")
        m.d.comb += end.eq(every & last)
        m.d.sync += single.eq(count == 1)
        with m.If(load):
            m.d.sync += [left.eq(count), last.eq(count == 1)]
        with m.Elif(step & every):
            m.d.sync += [left.eq(Mux(last, count, left - 1)), last.eq(Mux(last, single, left == 2))]
        advance[loop] = every & ~last
        ends[loop] = every = end
    advance[Level.Y] = advance[Level.Y] | every
    return Cat(advance.get(loop, 0) for loop in Level), ends, step & every


def selected(level: Value, choices: dict[Any, Value | int]) -> Value:
    """Of these the one whose loop's bit is set; 0 without one."""
    result: Value = Const(0)
    for loop, choice in choices.items():
        if isinstance(choice, Value) or choice:
            value = Value.cast(choice)
            result = result | value & level[loop.value].replicate(len(value))
    return result
