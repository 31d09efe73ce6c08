"""Results of the vector unit that are scaled: the operations of the vector lane, told by opcode and registers."""

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed, unsigned

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.regions import is_any
from dovetail.hw.vector.norm import RowRoot, RowSum, row_squares, row_sum
from dovetail.hw.vector.rescale import VectorLane, norm_row
from dovetail.hw.vector.stage import VectorStage
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import built, has, offers
from dovetail.isa.instructions.table import Op, Unit
from dovetail.isa.numerics.norm import COUNT_BITS
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.isa.timing.vector import RECORDS_LATE, rows_at_once, turn_of

POOLING = (VectorOperation.PASS, VectorOperation.AVERAGE, VectorOperation.REQUANTISE)
"""Operations of POOL: maximum, average by division, average by requantisation."""


def operations_of(config: Config) -> set[VectorOperation]:
    """The scaling operations that an accelerator's instructions need."""
    needed = {row.scaling for row in built(config, Unit.VECTOR) if row.scaling is not None}
    if VectorOperation.ADD in needed:
        needed.add(VectorOperation.SUBTRACT)
    return needed.union(POOLING if has(config, Op.POOL) else ())


class VectorScaling(VectorStage):
    """Every operation whose row has a ``scaling``, and POOL: a :class:`~dovetail.hw.vector.rescale.VectorLane`.

    Parameters, members and latency are those of a :class:`~dovetail.hw.vector.stage.VectorStage`.
    """

    LATENCY = VectorLane.LATENCY

    def elaborate(self, platform: object) -> Module:
        m = Module()
        regs, mode = self.regs, self.regs.MODE
        lanes, bits = self.config.vector_lanes, self.config.norm_bits
        m.submodules.lane = lane = VectorLane(lanes=lanes, operations=operations_of(self.config), bits=bits)
        m.d.comb += lane.sum.eq(self.sum)
        if bits == 8:
            if not offers(self.config, "records"):
                m.d.comb += lane.a.eq(self.a)
            m.d.comb += [lane.b.eq(self.b), self.result.eq(lane.result)]
        else:
            # Of 16 bits are the low halves of int32 operands, and of int32 results.
            made = [lane.result.word_select(i, bits).as_signed() for i in range(lanes)]
            words = Cat(Cat(each, each[-1].replicate(32 - bits)) for each in made)
            m.d.comb += [
                lane.b.eq(Cat(self._element(self.b, i) for i in range(lanes))),
                lane.to_wide.eq(self.kind.int32_output),
                self.result.eq(Mux(self.kind.int32_output, words, Cat(each[:8] for each in made))),
            ]

        operation = Signal(VectorOperation)
        with m.Switch(self.operation):
            for row in built(self.config, Unit.VECTOR):
                if row.scaling is not None:
                    with m.Case(int(row.op)):
                        m.d.comb += operation.eq(row.scaling)
            with m.Case(int(Op.POOL)):
                maximum, division, requantisation = POOLING
                m.d.comb += operation.eq(Mux(mode.average, Mux(mode.requantise, requantisation, division), maximum))
        with m.If(mode.subtract & (self.operation == int(Op.E_ADD))):
            m.d.comb += operation.eq(VectorOperation.SUBTRACT)

        # The registers do not change while an operation is under way.
        params = Signal.like(lane.params)
        divides = self.kind.taps & mode.average & ~mode.requantise
        m.d.comb += lane.params.eq(params)
        m.d.sync += [
            params.operation.eq(operation),
            params.rounding.eq(mode.rounding),
            params.za.eq(regs.QUANT.zero_in),
            params.zb.eq(regs.B_ZERO.zero_b),
            params.zy.eq(regs.QUANT.zero_out),
            params.lo.eq(regs.QUANT.lo),
            params.hi.eq(regs.QUANT.hi),
            params.mult_a.eq(regs.A_MULT.mult),
            params.shift_a.eq(regs.SHIFTS.a),
            params.mult_b.eq(regs.B_MULT.mult),
            params.shift_b.eq(regs.SHIFTS.b),
            params.mult_out.eq(Mux(divides, regs.POOL_MAGIC.mult, regs.OUT_MULT.mult)),
            params.shift_out.eq(Mux(divides, regs.POOL_SHIFT.shift, regs.SHIFTS.out)),
            params.count.eq(regs.POOL_COUNT.count),
        ]
        if offers(self.config, "records"):
            norms = [row for row in built(self.config, Unit.VECTOR) if row.records]
            self._norms(m, lane, params, own=is_any(self.operation, norms))
        return m

    def _element(self, operands: Value, lane: int) -> Value:
        """An int8 operand, or the low half of an int32 one, in as many bits as elements of a norm have."""
        byte = operands.word_select(lane, 8)
        if (bits := self.config.norm_bits) == 8:
            return byte
        half = self.sum.word_select(lane, 32)[:bits]
        return Mux(self.kind.int32_input, half, Cat(byte, byte[-1].replicate(bits - 8)))

    def _norms(self, m: Module, lane: VectorLane, params: Value, *, own: Value) -> None:
        """NORM: a row's sums in its first pass, what follows from them, and records in the second pass. The rows of a
        group take turns in both passes.

        The sums are of elements as they are, or in an RMS norm less the zero point; what is none adds nothing. Elements
        of 16 bits have no zero point.
        """
        regs, row, lanes, bits = self.regs, self.row, self.config.vector_lanes, self.config.norm_bits
        rows = rows_at_once(self.config, Op.NORM)
        turn = turn_of(rows)
        layer = regs.MODE.subtract
        wide: Value = self.kind.int32_input if bits > 8 else Const(0, 1)
        zero_in = Mux(wide, 0, regs.QUANT.zero_in) if bits > 8 else regs.QUANT.zero_in
        zero = Mux(layer, 0, zero_in)
        with m.If(own):
            m.d.sync += [params.za.eq(zero), params.zb.eq(zero)]
        sums = Signal()
        m.d.comb += sums.eq(row.valid & own & (row.number == 0))
        none = Const(0, 0) if bits == 8 else params.za[-1].replicate(bits - 8)
        elements = Cat(
            Mux(sums & ~row.counts[i], Cat(params.za.as_unsigned(), none), self._element(self.a, i))
            for i in range(lanes)
        )
        m.submodules.sum = of_elements = RowSum(lanes=lanes, rows=rows, element=signed(bits), total=row_sum(bits))
        m.submodules.squares = of_squares = RowSum(
            lanes=lanes, rows=rows, element=unsigned(2 * bits), total=row_squares(bits)
        )
        opened, opens = Signal(), Signal()  # the step is of a row's first block
        m.d.comb += opens.eq(row.first | opened & row.lane.any())
        with m.If(row.valid):
            m.d.sync += opened.eq(opens)
        step = delayed(m, "norm_step", Cat(sums, opens, sums & row.last), lane.PRODUCTS + of_squares.LATENCY)
        count = Signal(COUNT_BITS + 1)
        m.d.sync += count.eq(regs.BLOCKS.count * lanes - lanes + regs.BLOCKS.last)
        m.d.comb += [
            lane.a.eq(elements),
            lane.product.eq(row.number == 0),
            of_elements.elements.eq(elements),
            Cat(of_elements.valid, of_elements.first).eq(step[0]),
            of_squares.elements.eq(lane.products),
            Cat(of_squares.valid, of_squares.first).eq(step[lane.PRODUCTS]),
        ]
        known = []
        for number in range(rows):
            m.submodules[f"root_{number}"] = root = RowRoot(bits)
            if bits > 8:
                m.d.comb += root.wide.eq(wide)
            m.d.comb += [
                root.start.eq(step[-1][-1]),
                root.sum.eq(of_elements.totals[number]),
                root.squares.eq(of_squares.totals[number]),
                root.count.eq(count),
                root.epsilon.eq(Cat(regs.SUM_BIAS, regs.B_MULT.mult)),
                root.rms.eq(~layer),
            ]
            known.append(Cat(root.mean, root.factor, root.offset, root.right))
        of_row = Signal(norm_row(bits))
        m.d.comb += of_row.eq(known[0])
        with m.Switch(delayed(m, "lane_of_row", row.lane, lane.ROW)[-1]):
            for number in range(1, rows):
                with m.Case(turn.index(number)):
                    m.d.comb += of_row.eq(known[number])
        m.d.comb += [lane.row.eq(of_row), lane.row.mean.eq(Mux(layer, of_row.mean, zero_in.as_signed()))]
        # A block's records come so late that the lanes take them when they are there.
        blocks = [place for place, number in enumerate(turn) if number is not None]
        words = [place for place, number in enumerate(turn) if number is None]
        for number, port, due in zip(words, (lane.bias, lane.words), (lane.BIAS, lane.WORDS), strict=True):
            after = RECORDS_LATE + number
            assert all(after < place + due <= after + len(turn) for place in blocks)
            word = Signal.like(port, name=f"record_{number}", reset_less=True)
            m.d.comb += port.eq(word)
            with m.If(row.valid & own & (row.number != 0) & (row.lane == number)):
                m.d.sync += word.eq(self.sum)
        begins = lane.PRODUCTS + of_squares.LATENCY - 1 - (1 + blocks[0])
        for each in built(self.config, Unit.VECTOR):
            if each.records:
                assert each.passes[1].wait[0] == begins + RowRoot.latency(16 if each.int32_input else 8)
