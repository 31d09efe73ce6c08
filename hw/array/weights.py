"""The weight stream and the matrix of MAT_MUL: reads them, holds the weights in use and the next ones, and the
requantisation records."""

from amaranth import Cat, Const, Elaboratable, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.array.loops import Load, reads_at_most
from dovetail.hw.array.operands import OPERAND, WIDE_OPERAND, difference, extended
from dovetail.hw.array.passing import records_at_most
from dovetail.hw.array.reads import MatrixReads, WindowReads, first_lane, parts_of_row
from dovetail.hw.array.registers import ArrayOperation
from dovetail.hw.common.clocking import delayed, gate_clock
from dovetail.hw.common.ports import SramRead
from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.isa.config.resolved import LUT_ROWS, RECORD_BYTES, Config
from dovetail.isa.timing.memory import SRAM_READ

MATRIX_WEIGHT = 9
"""Bits of a weight less its zero point."""


class Record(data.Struct):
    """What requantisation needs of a channel."""

    bias: unsigned(32)
    mult: unsigned(31)
    shift: unsigned(6)


def weight_lanes(config: Config) -> int:
    """Pixel lanes with weights of their own: with DEPTH_CONV all, else they share one lane's."""
    return config.pixel_lanes if config.depth_conv else 1


class RecordMemory(wiring.Component):
    """Records of blocks, a row per group of ``requant_lanes`` channels.

    Parameters
    ----------
    config
        The accelerator.
    rows
        Rows.

    Members
    -------
    row, lanes, records
        Write these lanes of a row.
    look, read
        ``found`` two cycles later is this row. No row is written and looked at at the same time.
    found
        Stays where nothing is looked at.
    """

    def __init__(self, config: Config, *, rows: int) -> None:
        self.layout = data.ArrayLayout(Record, config.requant_lanes)
        self.rows = rows
        super().__init__(
            {
                "row": In(range(rows)),
                "lanes": In(config.requant_lanes),
                "records": In(self.layout),
                "look": In(1),
                "read": In(range(rows)),
                "found": Out(self.layout),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        record = self.layout.elem_shape.as_shape().size
        m.submodules.cells = cells = block_ram(width=self.layout.size, depth=self.rows)
        deep = self.rows > LUT_ROWS
        if deep:
            cells.attrs["ram_style"] = "block"
        write = cells.write_port(granularity=record)
        m.d.comb += [write.en.eq(self.lanes), write.addr.eq(self.row), write.data.eq(self.records)]
        # What block RAM has read comes late in its cycle.
        addr = self.read if deep else Signal.like(self.read)
        row = read_row(m, cells, name="row", addr=addr, en=self.look, platform=platform)
        with m.If(self.look):
            m.d.sync += self.found.eq(row) if deep else addr.eq(self.read)
        if not deep:
            m.d.comb += self.found.eq(row)
        return m


class ArrayWeights(wiring.Component):
    """Reader of the weight stream and of a matrix.

    Parameters
    ----------
    config
        The accelerator.
    operand
        OPERAND or WIDE_OPERAND.

    Members
    -------
    operation
        The operation; its ``load`` returns to the start of the stream.
    fetch
        What to read.
    port
        Read port. Reads of the stream are whole words inside the region.
    swap
        Pulse: the weights loaded last are in use from the next cycle on.
    step, index
        Where several input blocks' weights are held: those of the block, or of the visit, ``index`` are in use from the
        next cycle on.
    operands
        Weights in use, ``operand`` bits each, of the pixel lanes that have their own.
    record_row
        Row of the record memory: the block's number modulo `stripe_buffers`, above it the group of ``requant_lanes``
        channels.
    records
        That row, a Record per lane, two cycles later.
    drains
        ``records`` are looked at: they change in no other cycles.
    awake
        Something but ``records`` is about to change.

    Latency
    -------
    A word's weights take part in a ``swap`` ``LATENCY`` cycles after its ``fetch``, or later; ``LATENCY + 1`` where
    several input blocks' weights are held.
    """

    READ = WindowReads.READ
    LATENCY = READ + SRAM_READ + 1

    def __init__(self, config: Config, *, operand: int = OPERAND) -> None:
        self.config = config
        self.operand = operand
        # Bits that a weight is held in until it is in use. It is nine if a matrix' zero point is taken off before: then
        # there is one subtractor per byte of a word. For Verilator it comes off in use; narrow registers are quicker.
        self.held = MATRIX_WEIGHT if config.matmul and operand != WIDE_OPERAND else 8
        self.groups = config.record_groups
        super().__init__(
            {
                "operation": In(ArrayOperation(config)),
                "fetch": In(Load),
                "port": Out(SramRead(config)),
                "swap": In(1),
                "step": In(1),
                "index": In(4),
                "operands": Out(operand * config.weight_bytes * weight_lanes(config)),
                "record_row": In(range(config.stripe_buffers * self.groups)),
                "records": Out(data.ArrayLayout(Record, config.requant_lanes)),
                "drains": In(1),
                "awake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, operation, regs = self.config, self.operation, self.operation.regs
        word = config.word_bytes
        shift = exact_log2(word)
        params = Signal(range(config.param_rows(records_at_most(config)) + 1), init=config.param_rows(config.oc_lanes))
        with m.Switch(regs.KC.group):
            for n in range(1, config.depthwise_sets + 1):
                with m.Case(n - 1):
                    m.d.comb += params.eq(
                        Mux(operation.depthwise, *(config.param_rows(config.oc_lanes * k) for k in (n, 1)))
                    )
        per_word = exact_log2(word // RECORD_BYTES // config.records_at_once)  # reads of records
        assert self.READ == 4

        # 1: where the word is, in words from the start of the stream. Pointers stop far beyond the end of any stream.
        bits = max((config.sram >> shift).bit_length(), 8) + 1
        pointer, weights_at, records_at, records_next = (
            Signal(bits + 1, name=name) for name in ("pointer", "weights_at", "records_at", "records_next")
        )
        fetch = Signal(Load)
        index = Signal(bits + 1)
        passed = Signal(bits + 1)  # first weights of the block whose records the pointer is at
        record = Signal(range(max(records_at_most(config), 2)))
        m.d.sync += fetch.eq(self.fetch)
        m.d.comb += passed.eq(pointer + params)
        with m.If(fetch.begin & fetch.onward):
            m.d.comb += index.eq(passed)
        with m.Elif(fetch.begin & fetch.again):
            m.d.comb += index.eq(weights_at)
        with m.Else():
            m.d.comb += index.eq(pointer)
        with m.If(operation.load):
            m.d.sync += [pointer.eq(params), weights_at.eq(params), records_next.eq(0)]
        with m.Else():
            m.d.sync += pointer.eq(Mux(index[-1], index, index + (fetch.weights & ~operation.matrix)))
            with m.If(fetch.begin):
                m.d.sync += record.eq(0)
                with m.If(fetch.onward):
                    m.d.sync += [weights_at.eq(passed), records_next.eq(pointer)]
                with m.If(fetch.enter):
                    m.d.sync += records_at.eq(records_next)
            with m.If(fetch.record):
                m.d.sync += record.eq(Mux(fetch.begin, 1, record + 1))

        # 2: records.
        reads_2, weights_2 = Signal(), Signal()
        index_2 = Signal(bits + 1)
        record_2 = Signal(len(record))
        m.d.sync += [
            reads_2.eq(fetch.weights | fetch.record),
            weights_2.eq(fetch.weights),
            index_2.eq(index),
            record_2.eq(Mux(fetch.begin, 0, record)),
        ]
        index_3 = Signal(bits + 1)
        reads_3 = Signal()
        m.d.sync += [
            reads_3.eq(reads_2),
            index_3.eq(Mux(weights_2, index_2, records_at + (record_2 >> per_word))),
        ]

        # 3: the address.
        inside = Signal()
        m.d.comb += inside.eq(index_3 < regs.W_BYTES[shift:])
        m.d.sync += [
            self.port.en.eq(reads_3 & inside),
            self.port.addr.eq(Cat(Const(0, shift), (regs.W_ADDR[shift:] + index_3)[: len(self.port.addr) - shift])),
        ]
        if config.matmul:
            reads = MatrixReads(config)
            m.submodules.matrix_reads = self._gated(m, reads, "matrix", operation.load | operation.matrix)
            m.d.comb += [
                reads.restart.eq(operation.load),
                reads.fetch.eq(fetch),
                reads.fetch.weights.eq(fetch.weights & operation.matrix),
                reads.transposed.eq(regs.B_FORM.transposed),
                reads.address.eq(regs.B_ADDR),
                reads.size.eq(regs.B_BYTES),
                reads.step.eq(regs.B_STEP),
            ]
            weights_3 = Signal()
            m.d.sync += weights_3.eq(weights_2 & operation.matrix)
            with m.If(weights_3):
                m.d.sync += [self.port.en.eq(1), self.port.addr.eq(reads.position)]

        # Meanwhile, where it goes.
        flags = Cat(fetch.begin, fetch.enter, fetch.weights, fetch.record, fetch.further, fetch.completes)
        *_, coming, there = delayed(m, "flags", flags, self.LATENCY - 1)
        begins, enters, is_weights, is_record, _, completes = there
        read = delayed(m, "read", self.port.en, SRAM_READ)[-1]
        value = Signal(8 * word)
        m.d.sync += value.eq(Mux(read, self.port.data, 0))
        shadow = self._store_weights(m, value, reads.mask if config.matmul else None, coming)
        if config.weight_sets == 1:
            with m.If(self.swap):
                m.d.sync += self.operands.eq(self._operands(shadow))
        else:
            self._use_sets(m, shadow, begins, is_weights, completes)
        self._store_records(m, value, begins, enters, is_record)

        fetches = Signal()
        on_its_way = Signal(self.LATENCY + 2)
        m.d.comb += fetches.eq(self.fetch.begin | self.fetch.weights | self.fetch.record)
        m.d.sync += on_its_way.eq(Cat(fetches, on_its_way))
        m.d.comb += self.awake.eq(operation.load | self.swap | self.step | fetches | on_its_way.any())
        return m

    def _gated(self, m: Module, block: Elaboratable, name: str, awake: Value) -> Elaboratable:
        """A block of this one, whose clock is gated where Verilator simulates it."""
        return gate_clock(m, block, awake=awake, name=f"array_{name}", simulation=self.operand == WIDE_OPERAND)

    def _use_sets(self, m: Module, shadow: Signal, begins: Value, comes: Value, completes: Value) -> None:
        """Weights of several input blocks: ``shadow`` is one block's from the cycle after ``completes`` on. They are
        kept in one half of a memory while those in the other half are in use. Of a depthwise convolution, the sets of a
        visit are in the memories of the pixel lanes, in the same row."""
        config, depthwise = self.config, self.operation.depthwise
        sets = config.most_sets
        half, in_use = Signal(), Signal()
        filled, fills, to = Signal(), Signal(), Signal()  # the half that was filled last, is being, and at `complete`
        number, at, complete, set_ = Signal(range(sets)), Signal(range(sets)), Signal(), Signal(range(sets))
        m.d.comb += [
            in_use.eq(half ^ self.swap),
            fills.eq(filled ^ (begins & comes)),
            at.eq(Mux(begins, 0, number)),
        ]
        m.d.sync += [half.eq(in_use), number.eq(at + completes), complete.eq(completes), set_.eq(at)]
        m.d.sync += [filled.eq(fills), to.eq(fills)]
        with m.If(self.operation.load):
            m.d.sync += [half.eq(0), filled.eq(0)]
        rows = Signal(range(config.weight_sets))
        held = []
        for lane in range(weight_lanes(config)):
            cells = memory.Memory(shape=len(shadow), depth=2 << len(rows), init=[], attrs={"ram_style": "distributed"})
            m.submodules[f"sets_{lane}"] = cells
            write, read = cells.write_port(), cells.read_port(domain="comb")
            mine: Value | int = 1
            if config.depth_conv:
                mine = ~depthwise | (set_[: exact_log2(config.pixel_lanes)] == lane)
            m.d.comb += [
                write.en.eq(complete & mine),
                write.addr.eq(Cat(rows, to)),
                write.data.eq(shadow),
                read.addr.eq(Cat(self.index[: len(rows)], in_use)),
            ]
            held.append(read.data)
        m.d.comb += rows.eq(set_)
        if config.depth_conv:
            with m.If(depthwise):
                m.d.comb += rows.eq(set_[exact_log2(config.pixel_lanes) :])
        with m.If(self.step):
            m.d.sync += self.operands.eq(self._operands(Cat(held)))

    def _operands(self, weights: Value) -> Value:
        """Held weights as operands; of a matrix that is held as it came, less its zero point."""
        operation = self.operation
        numbers = range(len(self.operands) // self.operand)
        operands: Value = Cat(extended(weights, n, self.operand, self.held) for n in numbers)
        if self.config.matmul and self.held == 8:
            zero = operation.regs.B_FORM.zero_b
            differences = Cat(difference(weights, n, zero, self.operand) for n in numbers)
            operands = Mux(operation.matrix, differences, operands)
        return operands

    def _store_weights(self, m: Module, value: Value, mask: Value | None, coming: Value) -> Signal:
        """The words of an input block fill what is returned. Bytes of a matrix count where ``mask`` is set, less their
        zero point. ``coming``: flags of the read whose word is ``value`` a cycle later."""
        config, held, word = self.config, self.held, self.config.word_bytes
        shadow = Signal(held * config.weight_bytes, reset_less=True)
        row, coming_at, at = (
            Signal(range(max(reads_at_most(config), 2)), name=name) for name in ("row", "coming_at", "at")
        )
        is_weights = Signal()
        begins, _, comes, _, further, _ = coming
        m.d.comb += coming_at.eq(Mux(begins | further, 0, row))
        m.d.sync += [at.eq(coming_at), is_weights.eq(comes)]
        with m.If(comes):
            m.d.sync += row.eq(coming_at + 1)
        zero = self.operation.regs.B_FORM.zero_b
        stream = matrix = value
        if mask is not None and held == 8:
            matrix = Signal.like(value)
            m.d.comb += matrix.eq(value & mask | zero.replicate(word) & ~mask)
        elif mask is not None:
            offset = Signal(8)
            stream = matrix = Signal(held * word)
            m.d.sync += offset.eq(Mux(self.operation.matrix, zero, 0))
            m.d.comb += matrix.eq(Cat(Mux(mask[8 * n], difference(value, n, offset, held), 0) for n in range(word)))

        def hold(weight: int, source: Value, lane: int, count: int = 1) -> None:
            m.d.sync += shadow[held * weight :][: held * count].eq(source[held * lane :][: held * count])

        with m.If(is_weights):
            with m.If(~self.operation.matrix), m.Switch(at):
                for n in range(config.weight_rows):
                    with m.Case(n):
                        hold(n * word, stream, 0, min(word, config.weight_bytes - n * word))
            if config.matmul:
                parts = parts_of_row(config)
                with m.Elif(self.operation.regs.B_FORM.transposed), m.Switch(at):
                    for n in range(config.oc_lanes):
                        with m.Case(n):
                            for lane in range(config.ic_lanes):
                                hold(lane * config.oc_lanes + n, matrix, lane)
                with m.Else(), m.Switch(at):
                    for n in range(config.ic_lanes * parts):
                        channel = n % parts * word
                        with m.Case(n):
                            lane = first_lane(config, n) if parts == 1 else 0
                            hold(
                                n // parts * config.oc_lanes + channel,
                                matrix,
                                lane,
                                min(word, config.oc_lanes - channel),
                            )
        return shadow

    def _store_records(self, m: Module, value: Signal, begins: Value, enters: Value, is_record: Value) -> None:
        """Records fill the memory in the order of channels. Where results of two pixels may leave together, those of a
        convolution are there twice, for both."""
        config = self.config
        kept = RecordMemory(config, rows=config.stripe_buffers * self.groups)
        m.submodules.records = self._gated(m, kept, "records", self.drains | kept.lanes.any())
        several = config.records_at_once  # they lie side by side in the memory, too
        per_word, lanes = config.word_bytes // RECORD_BYTES // several, config.requant_lanes // several
        ranges = {"slot": per_word, "lane": lanes, "group": self.groups}
        slot, lane, group = (Signal(range(max(n, 2)), name=name) for name, n in ranges.items())
        slot_at, lane_at, group_at = (Signal(range(max(n, 2)), name=f"{name}_at") for name, n in ranges.items())
        m.d.comb += [at.eq(Mux(begins, 0, n)) for at, n in ((slot_at, slot), (lane_at, lane), (group_at, group))]
        block, block_at = Signal(range(config.stripe_buffers)), Signal(range(config.stripe_buffers))
        m.d.comb += block_at.eq(block + (begins & enters))
        with m.If(self.operation.load):
            m.d.sync += block.eq(config.stripe_buffers - 1)
        with m.Else():
            m.d.sync += block.eq(block_at)

        ends_lane = lane_at == lanes - 1
        if config.depth_conv and (config.oc_lanes % config.requant_lanes or config.acc_lanes % config.requant_lanes):
            channel, channel_at, last = (
                Signal(range(config.acc_lanes), name=name) for name in ("channel", "channel_at", "last")
            )
            alone, together = (config.depthwise_span(int32=int32) // several - 1 for int32 in (True, False))
            m.d.sync += last.eq(Mux(self.operation.regs.MODE.int32, alone, together))
            ends_set = channel_at == last
            m.d.comb += channel_at.eq(Mux(begins, 0, channel))
            m.d.sync += channel.eq(channel_at)
            with m.If(is_record):
                m.d.sync += channel.eq(Mux(ends_set, 0, channel_at + 1))
            ends_lane |= ends_set
        m.d.sync += [slot.eq(slot_at), lane.eq(lane_at), group.eq(group_at), kept.lanes.eq(0)]
        with m.If(is_record):
            m.d.sync += [
                slot.eq(Mux(slot_at == per_word - 1, 0, slot_at + 1)),
                lane.eq(Mux(ends_lane, 0, lane_at + 1)),
                group.eq(group_at + ends_lane),
                kept.lanes.eq(Cat(self._takes(lane_at, n // several) for n in range(config.requant_lanes))),
                kept.row.eq(Cat(block_at, group_at)),
            ]
            sources = Signal(8 * RECORD_BYTES * several)
            m.d.comb += sources.eq(value.word_select(slot_at, len(sources)))
            for n in range(config.requant_lanes):
                target, source = kept.records[n], sources.word_select(n % several, 8 * RECORD_BYTES)
                m.d.sync += [
                    target.bias.eq(source[:32]),
                    target.mult.eq(source[32:64]),
                    target.shift.eq(source[64:96]),
                ]
        m.d.comb += [kept.look.eq(self.drains), kept.read.eq(self.record_row), self.records.eq(kept.found)]

    def _takes(self, at: Value, lane: int) -> Value:
        """Whether a lane of the record memory takes the records that come for lane ``at``, in units of those that are
        read at once."""
        takes, first = at == lane, lane - self.config.oc_lanes // self.config.records_at_once
        if self.config.result_pairs and first >= 0:
            takes |= (at == first) & ~self.operation.depthwise
        return takes
