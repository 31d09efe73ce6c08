"""Results of the vector unit that are scaled: the operations of the vector lane, told by opcode and registers."""

from amaranth import Module, Mux, Signal

from dovetail.hw.vector.rescale import VectorLane
from dovetail.hw.vector.stage import VectorStage
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import built, has
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit
from dovetail.isa.numerics.vector import VectorOperation

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
        m.submodules.lane = lane = VectorLane(lanes=self.config.vector_lanes, operations=operations_of(self.config))
        m.d.comb += [lane.a.eq(self.a), lane.b.eq(self.b), lane.sum.eq(self.sum), self.result.eq(lane.result)]

        operation = Signal(VectorOperation)
        with m.Switch(self.operation):
            for row in INSTRUCTIONS.values():
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
        return m
