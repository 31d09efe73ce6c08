"""Results of the vector unit that need no scaling: copies, look-ups, 32-bit sums and shifts."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.utils import exact_log2

from dovetail.hw.memory.cells import block_ram, read_row
from dovetail.hw.vector.stage import VectorStage
from dovetail.isa.instructions.checks import built, offers
from dovetail.isa.instructions.table import DIRECT, TABLE_BYTES, Unit
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.timing.vector import table_lanes


class VectorDirect(VectorStage):
    """MOV (``a``), ACT_LUT (of ``a``), E32_ADD (``sum``) and E32_SHIFT (of ``sum``).

    Every lane has a table of its own: all of them look up at once. Parameters, members and latency are those of a
    :class:`~dovetail.hw.vector.stage.VectorStage`.
    """

    LATENCY = DIRECT.latency

    def elaborate(self, platform: object) -> Module:
        m = Module()
        lanes = self.config.vector_lanes

        # 1: look-up. 2: the byte in the row. 3: the result.
        values = Signal(8 * lanes, reset_less=True)
        found = Signal(8 * lanes, reset_less=True)
        m.d.sync += [values.eq(self.a), found.eq(values)]
        looks_up = any(row.looks_up and row.stage == DIRECT for row in built(self.config, Unit.VECTOR))
        rows = self._tables(m, platform) if looks_up else []
        result = Signal(len(self.result), reset_less=True)
        m.d.comb += self.result.eq(result)
        m.d.sync += result.eq(found)
        for i, row in enumerate(rows):
            value = values.word_select(i, 8)
            with m.If(self.kind.looks_up):
                m.d.sync += found.word_select(i, 8).eq(row.word_select(value[: exact_log2(len(row) // 8)], 8))
        if offers(self.config, "int32_output"):
            with m.If(self.kind.int32_output):
                m.d.sync += result.eq(self._shifted(m))
        return m

    def _tables(self, m: Module, platform: object) -> list[Value]:
        """Per lane, the row of its table with the byte for ``a``, a cycle later."""
        width = table_lanes(self.config)
        depth = TABLE_BYTES // width
        place = Signal(range(depth))  # of the next row; back at 0 when the table is full
        with m.If(self.fill):
            m.d.sync += place.eq(place + 1)
        rows = []
        for i in range(self.config.vector_lanes):
            m.submodules[f"table_{i}"] = cells = block_ram(width=8 * width, depth=depth)
            write = cells.write_port()
            m.d.comb += [
                write.en.eq(self.fill),
                write.addr.eq(place),
                write.data.eq(self.a),
            ]
            where = self.a.word_select(i, 8) >> exact_log2(width)
            rows.append(read_row(m, cells, name=f"row_{i}", addr=where, platform=platform))
        return rows

    def _shifted(self, m: Module) -> Value:
        """What is to be registered in stage 3: the sums, shifted and rounded.

        Either direction is a rotation to the left in stage 1. By n: the bits from n up belong to a shift by n to the
        left, and those below n to one by 32 - n to the right, whose fraction is what is above them.
        """
        regs = self.regs
        shifts = self.kind.int32_output & ~self.kind.two_operands
        count = Signal(5)
        right = Signal()
        low = Signal(32)  # the bits below `count`
        onnx = Signal()
        amount = Mux(shifts, regs.SHIFTS.out, 0)
        m.d.sync += [
            count.eq(amount),
            right.eq(amount[5]),
            low.eq(~(Const(0xFFFF_FFFF, 32) << amount[:5])),
            onnx.eq(regs.MODE.rounding == Rounding.ONNX),
        ]
        results = []
        truncated = Signal(32 * self.config.vector_lanes, reset_less=True)
        ups = Signal(self.config.vector_lanes, reset_less=True)
        rotated = Signal(32 * self.config.vector_lanes, reset_less=True)
        signs = Signal(self.config.vector_lanes, reset_less=True)
        for i in range(self.config.vector_lanes):
            value = self.sum.word_select(i, 32)
            m.d.sync += [rotated.word_select(i, 32).eq(_rotate_left(value, count)), signs[i].eq(value[31])]
            word, sign = rotated.word_select(i, 32), signs[i]
            quotient = word & low | sign.replicate(32) & ~low
            fraction = word & ~low
            up = fraction[31] & (fraction[:31].any() | Mux(onnx, quotient[0], ~sign))
            m.d.sync += [truncated.word_select(i, 32).eq(Mux(right, quotient, fraction)), ups[i].eq(right & up)]
            results.append((truncated.word_select(i, 32) + ups[i])[:32])
        return Cat(results)


def _rotate_left(value: Value, count: Value) -> Value:
    for n in range(len(count)):
        value = Mux(count[n], value.rotate_left(1 << n), value)
    return value
