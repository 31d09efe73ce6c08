"""The vector unit's loops: which bytes it reads, in which lanes they count, and where results go."""

from amaranth import Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.common.regions import is_any
from dovetail.hw.common.walk import LanesBelow, Place, count_loops
from dovetail.hw.vector.passes import Groups, Passes, has_groups
from dovetail.hw.vector.registers import KIND, VECTOR_REGISTERS
from dovetail.hw.vector.stage import row_layout
from dovetail.isa.common.sizes import INT32_BYTES
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import built, offers
from dovetail.isa.instructions.table import Instruction, Op, Unit
from dovetail.isa.timing.vector import RECORDS_LATE, WALK, rows_at_once, table_lanes, table_reads

FLAGS = data.StructLayout(dict.fromkeys(("first", "last", "second", "table"), 1))
"""What a step of :class:`VectorReads` is."""


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
    operation, row
        Only where operations have passes: the opcode, constant from ``load`` on; `row_layout` of the step.

    Latency
    -------
    ``LATENCY`` cycles from a step to its outputs, which all come together.
    """

    LATENCY = WALK

    def __init__(self, config: Config) -> None:
        self.config = config
        more = {"operation": In(8), "row": Out(row_layout(config))} if offers(config, "passes") else {}
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
                **more,
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs, kind = self.regs, self.kind
        lanes, bits = self.config.vector_lanes, self.config.offset_bits
        two_operands, looks_up = offers(self.config, "two_operands"), offers(self.config, "looks_up")
        with_records = offers(self.config, "records")
        int32 = offers(self.config, "int32_input") or with_records

        # 0: loop counters; which loop advances. The steps of a table come before all others.
        active = Signal()
        step = Signal()
        begins = Signal()
        filling = Signal()
        counts = {
            "kx": Mux(kind.taps, regs.GEOMETRY.kw, Mux(kind.two_operands, 2, 1)),
            "ky": Mux(kind.taps, regs.GEOMETRY.kh, 1),
            "block": regs.BLOCKS.count,
            "x": regs.TILE.width,
            "y": regs.TILE.height,
        }
        passes = Passes(self.config, self.operation, regs, load=self.load) if offers(self.config, "passes") else None
        if passes:
            counts = passes.within(counts)
        advances, ends = count_loops(m, counts, load=self.load, step=step)
        level_0 = {loop: advance & ~filling for loop, advance in advances.items()}
        level = {loop: Signal(name=f"level_{loop}") for loop in level_0}
        runs, last, goes_on = active, ends["ky"], ~ends["y"]
        if passes:
            passes.count(m, go=self.go, step=step, filling=filling, advances=advances, ends=ends)
            runs, last = active & (filling | ~passes.waiting), last & (~passes.has | passes.results)
            goes_on = passes.goes_on
            if with_records:
                last = Mux(passes.records, passes.final & ~passes.is_record, last)
        m.d.comb += step.eq(runs & ~filling)
        with m.If(self.go):
            m.d.sync += [active.eq(1), begins.eq(1)]
        with m.Elif(step):
            m.d.sync += [active.eq(goes_on), begins.eq(ends["ky"])]
        if looks_up:
            reads: dict[int, list[Instruction]] = {}
            for row in built(self.config, Unit.VECTOR):
                if row.looks_up:
                    reads.setdefault(table_reads(self.config, row.op) - 1, []).append(row)
            table_left = Signal(range(max(reads) + 1))
            (less, _), *more = sorted(reads.items())
            left: Value | int = less
            for count, rows in more:
                left = Mux(is_any(self.operation, rows), count, left)
            with m.If(self.go):
                m.d.sync += [filling.eq(kind.looks_up), table_left.eq(left)]
            with m.Elif(filling):
                m.d.sync += [filling.eq(table_left.any()), table_left.eq(table_left - 1)]
        valid_1 = Signal()
        flags_1 = Signal(FLAGS)
        begins_1: Value = flags_1.first
        first_0, second_0 = begins, filling | kind.two_operands & ends["kx"]
        if passes:
            # Every step of records, and of the block among them, is an output's first. So is that of every row's block.
            begins_1 = Signal()
            first_0, second_0 = begins | passes.records | passes.groups.own, second_0 | passes.is_record
            with m.If(active):
                m.d.sync += begins_1.eq(Mux(passes.groups.own, passes.reads_block(), begins))
        m.d.sync += valid_1.eq(runs)
        with m.If(active):
            m.d.sync += [
                *(level[loop].eq(advance) for loop, advance in level_0.items()),
                flags_1.first.eq(first_0),
                flags_1.last.eq(last & ~filling),
                flags_1.second.eq(second_0),
                flags_1.table.eq(filling),
            ]

        # 1: positions of this step. In region B a step of a table is like a block's.
        block = Signal(range(INT32_BYTES * lanes + 1))
        m.d.sync += block.eq(Mux(kind.int32_input, INT32_BYTES * lanes, lanes))
        stride_y, dilation_y = regs.GEOMETRY.stride_y, regs.GEOMETRY.dilation_y
        x_step = passes.groups.step(regs.X_STEP) if passes else regs.X_STEP
        steps: dict[str, tuple[Value | int, ...]] = {
            # kx, ky, block, x, y
            "off": (regs.KX_STEP, regs.KY_STEP, block, x_step, regs.Y_STEP),
            "col": (regs.KX_STEP, 0, block, x_step, 0),
            "row": (0, dilation_y, 0, 0, stride_y),
            "b": (0, 0, Mux(filling, table_lanes(self.config), block), regs.B_X_STEP, regs.B_Y_STEP),
        }
        first = {"off": regs.ORIGIN, "col": -regs.PAD_LEFT, "row": -regs.PAD_TOP, "b": 0}
        if passes and with_records:
            # A block's words come late. They are read anew for every row.
            words, own = 2 * INT32_BYTES * lanes, passes.records
            groups, norm_rows = passes.groups, rows_at_once(self.config, Op.NORM)
            kx_step = Mux(own, Mux(groups.norm, regs.X_STEP << exact_log2(max(1, norm_rows // 2)), 0), regs.KX_STEP)
            steps |= {"off": (kx_step, *steps["off"][1:]), "col": (kx_step, *steps["col"][1:])}
            block_step = Mux(filling, table_lanes(self.config), Mux(own, words, block))
            rest = (Mux(own, 0, regs.B_X_STEP), Mux(own, 0, regs.B_Y_STEP))
            kx_words = Mux(groups.norm, words // 2, words // 4)  # turns of two loops' steps, or three
            steps["b"] = (Mux(own, kx_words, 0), 0, block_step, *rest)
            first["b"] = Mux(own, -(RECORDS_LATE // len(passes.turn)) * words, 0)
        here = {}
        for name, amounts in steps.items():
            loops = dict.fromkeys(level, 0) | dict(zip(("kx", "ky", "block", "x", "y"), amounts, strict=True))
            if passes and passes.groups.rows and name in ("off", "col"):
                loops["lane"] = Mux(passes.groups.own & ~passes.is_record, regs.X_STEP, 0)
            now, then, moves = level_0, level, valid_1 & ~flags_1.table
            if name == "b":
                now, then = (
                    {**each, "block": each["block"] | table} for each, table in ((now, filling), (then, flags_1.table))
                )
                moves = valid_1
                if not two_operands and not with_records:
                    loops = {"block": loops["block"]}
            place = Place(name, loops, width=bits)
            amount = Signal(bits, name=f"{name}_step", reset_less=True)
            with m.If(active):
                m.d.sync += amount.eq(place.step(now))
            with m.If(self.load):
                m.d.sync += place.begin(first[name])
            with m.Elif(moves):
                place.move(m, then, place.base(then) + amount)
            here[name] = place.here
        if passes:
            passes.measure(m, moves=valid_1 & ~flags_1.table, begins=begins_1, level=level)
        off, col, row, b = here.values()

        # 2: address, distances to the bounds. An int32 begins at least four bytes before the end of its region.
        valid_2 = Signal()
        flags_2 = Signal(FLAGS)
        row_valid = Signal()
        address = Signal(len(self.addr))
        offset = Signal(bits)
        limit = Signal(bits)
        in_limit, b_limit = (Signal(bits, name=f"{name}_limit") for name in ("in", "b"))
        words_of_b = kind.int32_input | passes.records if passes and with_records else kind.int32_input
        for region_limit, size, is_int32 in (
            (in_limit, regs.IN_BYTES, kind.int32_input),
            (b_limit, regs.B_BYTES, words_of_b),
        ):
            whole = Mux(size >= INT32_BYTES, size - (INT32_BYTES - 1), 0)
            with m.If(self.load):
                m.d.sync += region_limit.eq(Mux(is_int32, whole, size))
        m.d.comb += [offset.eq(Mux(flags_1.second, b, off)), limit.eq(Mux(flags_1.second, b_limit, in_limit))]
        m.d.sync += valid_2.eq(valid_1)
        with m.If(valid_1):
            m.d.sync += [
                flags_2.eq(flags_1),
                row_valid.eq(row < regs.IN_ROWS[:bits]),
                address.eq(Mux(flags_1.second, regs.B_ADDR, regs.IN_ADDR) + offset),
            ]
        item = INT32_BYTES if int32 else 1
        in_region = LanesBelow("region", lanes, item, width=bits)
        in_row = LanesBelow("row", lanes, item, width=bits)
        in_region.measure(m, valid_1, offset, limit)
        in_row.measure(m, valid_1, col, regs.ROW_BYTES)

        # 3: lanes.
        valid_3 = Signal()
        flags_3 = Signal(FLAGS)
        mask_3 = Signal(lanes)
        address_3 = Signal(len(self.addr))

        def inside(bound: LanesBelow) -> Value:
            if not int32:
                return bound.mask()
            return Mux(is_int32_2, bound.mask(INT32_BYTES), bound.mask(1))

        is_int32_2, goes_2 = kind.int32_input, valid_2
        if passes and with_records:
            is_int32_2 = kind.int32_input | passes.records & flags_2.second
            goes_2 = valid_2 & ~(passes.records & ~flags_2.second & passes.is_past())
        m.d.sync += valid_3.eq(goes_2)
        with m.If(valid_2):
            m.d.sync += [
                flags_3.eq(flags_2),
                mask_3.eq(
                    inside(in_region) & (flags_2.second.replicate(lanes) | inside(in_row) & row_valid.replicate(lanes))
                ),
                # May wrap below 0, if only upper lanes count.
                address_3.eq(address),
            ]

        if passes:
            silent_1, silent_2 = Signal(), Signal()
            with m.If(step):
                m.d.sync += silent_1.eq(passes.draining | passes.groups.softmax & ~passes.reads_block())
            with m.If(valid_1):
                m.d.sync += silent_2.eq(silent_1 & ~flags_1.table)
            with m.If(valid_2 & silent_2):
                m.d.sync += mask_3.eq(0)
            row_2, row_3 = (Signal.like(passes.row, name=f"row_{stage}") for stage in (2, 3))
            with m.If(valid_1):
                m.d.sync += row_2.eq(passes.row)
            with m.If(valid_2):
                m.d.sync += [row_3.eq(row_2), row_3.counts.eq(passes.counts())]
            with m.If(valid_3):
                m.d.sync += self.row.eq(row_3)

        # 4: the read.
        m.d.sync += [self.valid.eq(valid_3), self.en.eq(valid_3 & mask_3.any())]
        with m.If(valid_3):
            m.d.sync += [
                *(getattr(self, flag).eq(flags_3[flag]) for flag in FLAGS.members),
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
    operation
        Only where operations have several rows at once: the opcode, constant from ``load`` on.
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
                **({"operation": In(8)} if has_groups(config) else {}),
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
        lanes, bits = self.config.vector_lanes, self.config.offset_bits

        def length(channels: Value | int) -> Value:
            """Bytes of ``channels`` results."""
            return channels << Mux(self.kind.int32_output, 2, 0)

        # 0: loop counters; which loop advances.
        groups = Groups(self.config, self.operation) if has_groups(self.config) else None
        counts = {"block": regs.BLOCKS.count, "x": regs.TILE.width, "y": regs.TILE.height}
        steps = {"block": length(lanes), "x": regs.OUT_X_STEP, "y": regs.OUT_Y_STEP}
        ends_rows: Value = Const(1, 1)
        within: dict[str, Value] = {}
        if groups:
            # A block of each row before the next block.
            row_count = {"row": groups.choose(lambda rows: rows)}
            within, row_ends = count_loops(m, row_count, load=self.load, step=self.step)
            ends_rows = row_ends["row"]
            counts["x"] = groups.count(regs.TILE.width)
            steps = {"row": regs.OUT_X_STEP, **steps, "x": groups.step(regs.OUT_X_STEP)}
        outside, ends = count_loops(m, counts, load=self.load, step=self.step & ends_rows)
        level_0 = within | {loop: advance & ends_rows for loop, advance in outside.items()}
        valid_1 = Signal()
        done_1 = Signal()
        tail_1 = Signal()
        level = {loop: Signal(name=f"level_{loop}") for loop in level_0}
        m.d.sync += [valid_1.eq(self.step), done_1.eq(self.step & ends["y"] & ends_rows)]
        with m.If(self.step):
            m.d.sync += [*(level[loop].eq(advance) for loop, advance in level_0.items()), tail_1.eq(ends["block"])]

        # 1: position; which pixel of its line it is.
        place = Place("out", steps, width=bits)
        out = place.here
        places = [place]
        if groups:
            beside = {"row": 1, "block": 0, "x": groups.step(Const(1)), "y": 0}
            pixel = Place("pixel", beside, width=len(regs.TILE.width) + 1)
            places.append(pixel)
        for each in places:
            with m.If(self.load):
                m.d.sync += each.begin(0)
            with m.Elif(valid_1):
                each.move(m, level, each.base(level) + each.step(level))

        # 2: address and end.
        valid_2 = Signal()
        done_2 = Signal()
        address = Signal(len(self.addr))
        size = Signal(len(self.size))
        end = Signal(bits + 1)
        size_1 = length(Mux(tail_1, regs.BLOCKS.last, lanes))
        m.d.sync += [valid_2.eq(valid_1), done_2.eq(done_1)]
        with m.If(valid_1):
            m.d.sync += [address.eq(regs.OUT_ADDR + out), size.eq(size_1), end.eq(out + size_1)]
        exists = valid_2
        if groups:
            missing = Signal()  # the last group's rows beside its line
            with m.If(valid_1):
                m.d.sync += missing.eq(groups.own & (pixel.here >= regs.TILE.width))
            exists = valid_2 & ~missing

        # 3: the write.
        m.d.sync += [self.en.eq(exists & (end <= regs.OUT_BYTES)), self.done.eq(done_2)]
        with m.If(valid_2):
            m.d.sync += [self.addr.eq(address), self.size.eq(size)]
        return m
