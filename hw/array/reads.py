"""Reads of the array: of the window in the input, and of the matrix of MAT_MUL; which of their bytes count."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.array.loops import Load
from dovetail.hw.array.registers import ARRAY_REGISTERS
from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.ports import SramRead
from dovetail.hw.common.walk import PARTS, LanesBelow, Position
from dovetail.isa.common.sizes import INT32_BYTES, ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.memory import SRAM_READ


class WindowReads(wiring.Component):
    """From positions to reads and the lanes that count in them.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    valid
        There is a step.
    pixel, tap
        Its position is the sum of the two.
    old
        Instead of int8 lanes of the input, the step reads int32 lanes (``word_bytes / 4``) of the output region, where
        only ``off`` matters.
    regs
        Registers; constant while steps are under way.
    port
        Read port. Its ``en`` only if a lane counts: no other read touches a byte of its region.
    mask
        Lanes that count, ``LATENCY`` cycles after the step, with the bytes.
    old_mask
        Likewise of an ``old`` step; zero for others.

    Latency
    -------
    ``READ`` cycles from a step to its read, ``LATENCY`` to its bytes.
    """

    READ = 4
    LATENCY = READ + SRAM_READ

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lanes = lanes = config.input_bytes
        super().__init__(
            {
                "valid": In(1),
                "pixel": In(Position(config)),
                "tap": In(Position(config)),
                "old": In(1),
                "regs": In(ARRAY_REGISTERS),
                "port": Out(SramRead(config)),
                "mask": Out(lanes),
                "old_mask": Out(config.word_bytes // INT32_BYTES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs, bits = self.regs, self.config.offset_bits

        # 0: position.
        valid_1, old_1 = Signal(), Signal()
        position = Signal(Position(self.config), reset_less=True)
        m.d.sync += [valid_1.eq(self.valid), old_1.eq(self.old)]
        with m.If(self.valid):
            m.d.sync += [position[part].eq(self.pixel[part] + self.tap[part]) for part in PARTS]

        # 1: address; distances to the bounds.
        valid_2, old_2, row_inside = Signal(), Signal(), Signal()
        address = Signal(len(self.port.addr), reset_less=True)
        whole = Signal(bits, reset_less=True)  # where an int32 can begin in the output region
        m.d.sync += whole.eq(Mux(regs.OUT_BYTES >= INT32_BYTES, regs.OUT_BYTES - (INT32_BYTES - 1), 0))
        m.d.sync += [valid_2.eq(valid_1 & ~old_1), old_2.eq(valid_1 & old_1)]
        with m.If(valid_1):
            m.d.sync += [
                address.eq(Mux(old_1, regs.OUT_ADDR, regs.IN_ADDR) + position.off),
                row_inside.eq(position.row < regs.IN_ROWS[:bits]),
            ]
        in_region, in_row = (LanesBelow(name, self.lanes, width=bits) for name in ("region", "row"))
        in_region.measure(m, valid_1 & ~old_1, position.off, regs.IN_BYTES)
        in_row.measure(m, valid_1 & ~old_1, position.col, regs.ROW_BYTES)
        items = LanesBelow("items", len(self.old_mask), INT32_BYTES, width=bits)
        items.measure(m, valid_1 & old_1, position.off, whole)

        # 2: lanes. A position below the region, possibly below 0, can have lanes inside: ports wrap at a power of two.
        mask_3, old_3 = Signal(len(self.mask)), Signal(len(self.old_mask))
        address_3 = Signal(len(self.port.addr), reset_less=True)
        inside = valid_2 & row_inside
        m.d.sync += [
            mask_3.eq(in_region.mask() & in_row.mask() & inside.replicate(len(mask_3))),
            old_3.eq(items.mask() & old_2.replicate(len(old_3))),
            address_3.eq(address),
        ]

        # 3: the read.
        m.d.sync += [self.port.en.eq(mask_3.any() | old_3.any()), self.port.addr.eq(address_3)]
        m.d.comb += [
            self.mask.eq(delayed(m, "mask", mask_3, self.LATENCY - 3)[-1]),
            self.old_mask.eq(delayed(m, "old_mask", old_3, self.LATENCY - 3)[-1]),
        ]
        return m


def parts_of_row(config: Config) -> int:
    """Reads that the oc_lanes bytes of one input lane take."""
    return ceil_div(config.oc_lanes, config.word_bytes)


def first_lane(config: Config, row: int) -> int:
    """The lane in which the byte of output lane 0 is read, if the matrix is not transposed.

    It is the lane of a weight stream, if the other bytes are then in the same word: the weights need no multiplexers.
    Otherwise it is 0.
    """
    lane = row * config.oc_lanes % config.word_bytes
    return lane if lane + config.oc_lanes <= config.word_bytes else 0


class MatrixReads(wiring.Component):
    """Walks over the matrix, in the order of the sequencer's reads.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    restart
        Pulse: go to the first step of the first block.
    fetch
        Reads of ``weights``.
    transposed, address, size, step
        The matrix: B_FORM.transposed, B_ADDR, B_BYTES, B_STEP.
    position
        SRAM address of a read, two cycles after ``fetch``.
    mask
        Bits of the bytes that count, ``LATENCY`` cycles after the ``fetch``, a cycle after the bytes. All of them in
        cycles that have no read to answer.
    """

    LATENCY = WindowReads.LATENCY

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "restart": In(1),
                "fetch": In(Load),
                "transposed": In(1),
                "address": In(32),
                "size": In(32),
                "step": In(32),
                "position": Out((config.sram - 1).bit_length()),
                "mask": Out(8 * config.word_bytes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, fetch = self.config, self.fetch
        parts = parts_of_row(config)

        # 0: offset of the read. `here` is where the next row begins if it belongs to the same step.
        begin, first, again, onward = Signal(), Signal(), Signal(), Signal()
        fresh, was_first = Signal(), Signal()  # nothing was read yet; the step is the first of a stripe
        bits = config.offset_bits
        start, beyond, place, following = (
            Signal(bits, name=name) for name in ("start", "beyond", "place", "following")
        )
        here, block_at, next_block, next_step = (
            Signal(bits, name=name, reset_less=True) for name in ("here", "block_at", "next_block", "next_step")
        )
        m.d.comb += [
            begin.eq(fetch.begin | fetch.further),
            again.eq(fetch.begin & fetch.again),
            onward.eq(fetch.begin & fetch.onward),
            first.eq(Mux(begin, fresh | again | onward, was_first)),
            beyond.eq(start + Mux(self.transposed, config.ic_lanes, config.oc_lanes)),
            place.eq(Mux(begin, start, here)),
        ]
        with m.If(again):
            m.d.comb += start.eq(block_at)
        with m.Elif(onward):
            m.d.comb += start.eq(next_block)
        with m.Else():
            m.d.comb += start.eq(Mux(self.transposed, next_step, here))
        if parts == 1:
            m.d.comb += following.eq(place + self.step)
        else:
            part, part_at = Signal(range(parts)), Signal(range(parts))
            row_at, row_now = Signal(bits, reset_less=True), Signal(bits)
            ends_row = self.transposed | (part_at == parts - 1)
            m.d.comb += [
                part_at.eq(Mux(begin, 0, part)),
                row_now.eq(Mux(part_at == 0, place, row_at)),
                following.eq(Mux(ends_row, row_now + self.step, place + config.word_bytes)),
            ]
            with m.If(fetch.weights):
                m.d.sync += [part.eq(Mux(ends_row, 0, part_at + 1)), row_at.eq(row_now)]
        with m.If(self.restart):
            m.d.sync += [here.eq(0), block_at.eq(0), next_step.eq(0), fresh.eq(1)]
        with m.Elif(fetch.weights):
            m.d.sync += [here.eq(following), fresh.eq(0), was_first.eq(first)]
            with m.If(begin):
                m.d.sync += next_step.eq(beyond)
                with m.If(onward):
                    m.d.sync += block_at.eq(start)
            # Transposed, the row after a stripe's first step is the first of the next block.
            with m.If(first & self.transposed):
                m.d.sync += next_block.eq(following)
            with m.Elif(first & begin):
                m.d.sync += next_block.eq(beyond)

        # 1: the byte of output lane 0 comes in its lane.
        row, row_1 = (Signal(range(max(config.ic_lanes, 2)), name=name) for name in ("row", "row_1"))
        place_1, lane = Signal(bits, reset_less=True), Signal(range(config.word_bytes))
        with m.If(fetch.weights):
            m.d.sync += [place_1.eq(place), row_1.eq(Mux(begin, 0, row)), row.eq(Mux(begin, 1, row + 1))]
        if parts == 1:
            with m.If(~self.transposed), m.Switch(row_1):
                for n in range(config.ic_lanes):
                    with m.Case(n):
                        m.d.comb += lane.eq(first_lane(config, n))
        valid_1, valid_2 = Signal(), Signal()
        place_2 = Signal(bits, reset_less=True)
        m.d.sync += [valid_1.eq(fetch.weights), valid_2.eq(valid_1)]
        with m.If(valid_1):
            m.d.sync += place_2.eq(place_1 - lane)

        # 2: address; distance to the end of the region. 3: lanes.
        m.d.comb += self.position.eq(self.address + place_2)
        lanes = LanesBelow("matrix", config.word_bytes, width=bits)
        lanes.measure(m, valid_2, place_2, self.size)
        counts = delayed(m, "counts", lanes.mask(), self.LATENCY - 4)[-1]
        with m.If(delayed(m, "valid", valid_2, self.LATENCY - 3)[-1]):
            m.d.sync += self.mask.eq(Cat(count.replicate(8) for count in counts))
        with m.Else():
            m.d.sync += self.mask.eq(~Const(0, len(self.mask)))
        return m
