"""The vector unit: pooling, element-wise operations, activations, copies."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.pipeline import delayed
from dovetail.hw.common.ports import Core, SramRead, SramWrite
from dovetail.hw.vector.direct import VectorDirect
from dovetail.hw.vector.loops import VectorReads, VectorWrites
from dovetail.hw.vector.registers import VectorRegisters, has_trait
from dovetail.hw.vector.rescale import VectorLane
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import built, has
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit
from dovetail.isa.numerics.vector import VectorOperation
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.vector import DIRECT_PIPELINE, OUTPUT, PIPELINE, TAPS

POOLING = (VectorOperation.PASS, VectorOperation.AVERAGE, VectorOperation.REQUANTISE)
"""Operations of POOL: maximum, average by division, average by requantisation."""


def operations_of(config: Config) -> set[VectorOperation]:
    """The scaling operations that an accelerator's instructions need."""
    needed = {row.scaling for row in built(config, Unit.VECTOR) if row.scaling is not None}
    if VectorOperation.ADD in needed:
        needed.add(VectorOperation.SUBTRACT)
    return needed.union(POOLING if has(config, Op.POOL) else ())


class VectorTaps(wiring.Component):
    """Turns the bytes read for an output into the operands of its final scaling.

    Parameters
    ----------
    config
        The accelerator. Without element-wise operations there are no int32 operands.

    Members
    -------
    valid, first, second, mask
        Of a step, with ``data``, as in :class:`~dovetail.hw.vector.loops.VectorReads`; unmasked lanes take the zero
        point ``zero_in``, or ``zero_b`` in a ``second`` step; as int32 zero.
    data
        int8 per lane, or int32.
    int32
        The taps are int32.
    maximum
        Keep the largest tap instead of the first.
    bias
        int32, where the sum starts.
    a
        int8 per lane: the first tap, or the largest.
    b
        int8 per lane: the last tap.
    sum
        int32 per lane: bias and all taps, modulo 2^32.

    Latency
    -------
    ``LATENCY`` cycles from an output's last step.
    """

    LATENCY = TAPS

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lanes = lanes = config.vector_lanes
        self.width = 32 if config.elementwise else 8
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "second": In(1),
                "mask": In(lanes),
                "data": In(self.width * lanes),
                "zero_in": In(8),
                "zero_b": In(8),
                "int32": In(1),
                "maximum": In(1),
                "bias": In(32),
                "a": Out(8 * lanes),
                "b": Out(8 * lanes),
                "sum": Out(32 * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        width = self.width
        valid = Signal()
        first = Signal()
        taps = Signal(width * self.lanes)
        zero = Signal(8)
        m.d.comb += zero.eq(Mux(self.second, self.zero_b, self.zero_in))
        m.d.sync += valid.eq(self.valid)
        with m.If(self.valid):
            m.d.sync += first.eq(self.first)
            for i in range(self.lanes):
                byte = Mux(self.mask[i], self.data.word_select(i, 8), zero)
                m.d.sync += taps.word_select(i, width).eq(byte.as_signed())
                if self.config.elementwise:
                    word = Mux(self.mask[i], self.data.word_select(i, 32), 0)
                    with m.If(self.int32):
                        m.d.sync += taps.word_select(i, width).eq(word)
        with m.If(valid):
            for i in range(self.lanes):
                tap, held, total = taps.word_select(i, width), self.a.word_select(i, 8), self.sum.word_select(i, 32)
                replaces = first | self.maximum & (tap[:8].as_signed() > held.as_signed())
                m.d.sync += [
                    held.eq(Mux(replaces, tap[:8], held)),
                    total.eq((Mux(first, self.bias, total).as_signed() + tap.as_signed())[:32]),
                ]
                if self.config.elementwise:
                    m.d.sync += self.b.word_select(i, 8).eq(tap[:8])
        return m


class VectorCore(wiring.Component):
    """Core of the vector unit.

    Registers and checks, walk over the reads, taps, final scaling or what takes its place, walk over the writes: each
    its own block, in lockstep. Nothing ever stalls, so a step's results come a fixed time after it.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    core
        Border to unit control.
    input
        Read port for both operands and the table.
    output
        Write port.

    Latency
    -------
    As in ``isa.timing.vector``: from the cycle of ``go``, one cycle per read and ``PIPELINE`` or ``DIRECT_PIPELINE``.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"core": In(Core(config)), "input": Out(SramRead(config)), "output": Out(SramWrite(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core = self.config, self.core
        m.submodules.registers = registers = VectorRegisters(config)
        m.submodules.reads = reads = VectorReads(config)
        m.submodules.taps = taps = VectorTaps(config)
        m.submodules.scaling = scaling = VectorLane(lanes=config.vector_lanes, operations=operations_of(config))
        m.submodules.direct = direct = VectorDirect(config)
        m.submodules.writes = writes = VectorWrites(config)
        regs, kind = registers.regs, registers.kind
        to_write = SRAM_READ + taps.LATENCY + scaling.LATENCY + OUTPUT
        to_direct_write = SRAM_READ + taps.LATENCY + direct.LATENCY + OUTPUT
        if (reads.LATENCY + to_write, reads.LATENCY + to_direct_write) != (PIPELINE, DIRECT_PIPELINE):
            raise AssertionError(f"isa.timing.vector.PIPELINE must be {reads.LATENCY + to_write}, not {PIPELINE}")

        wiring.connect(m, wiring.flipped(core.cfg), registers.cfg)
        m.d.comb += [
            registers.start.eq(core.start),
            registers.op.eq(core.op),
            core.cause.eq(registers.cause),
            core.reads.eq(registers.reads),
            core.writes.eq(registers.writes),
            *(span.eq(source) for span, source in zip(core.sources, registers.sources, strict=True)),
            core.target.eq(registers.target),
            core.done.eq(writes.done),
            reads.regs.eq(regs),
            reads.kind.eq(kind),
            reads.load.eq(registers.load),
            reads.go.eq(core.go),
            self.input.en.eq(reads.en),
            self.input.addr.eq(reads.addr),
            writes.regs.eq(regs),
            writes.kind.eq(kind),
            writes.load.eq(registers.load),
            self.output.en.eq(writes.en),
            self.output.addr.eq(writes.addr),
            self.output.size.eq(writes.size),
        ]
        result = Signal(max(len(direct.result), len(scaling.result)), reset_less=True)
        m.d.sync += result.eq(Mux(kind.direct, direct.result, scaling.result))
        m.d.comb += self.output.data.eq(result)

        # What belongs to a step, until its data are there.
        step = Cat(reads.valid, reads.first, reads.second, reads.mask)
        m.d.comb += [
            Cat(taps.valid, taps.first, taps.second, taps.mask).eq(delayed(m, "step", step, SRAM_READ)[-1]),
            taps.data.eq(self.input.data),
            taps.zero_in.eq(regs.QUANT.zero_in),
            taps.zero_b.eq(regs.B_ZERO.zero_b),
            taps.int32.eq(kind.int32_input),
            taps.maximum.eq(kind.taps),
        ]

        # Outputs on their way; the walk over the writes needs its time before the result is there. What is written
        # directly goes no further.
        to_step = to_direct_write - writes.LATENCY
        early = delayed(m, "outputs", reads.valid & reads.last, to_step - 1)[-1]
        late = delayed(m, "scaled", early & ~kind.direct, to_write - to_direct_write)[-1]
        m.d.sync += writes.step.eq(early & kind.direct | late)

        m.d.comb += [
            direct.regs.eq(regs),
            direct.kind.eq(kind),
            direct.a.eq(taps.a),
            direct.sum.eq(taps.sum),
            scaling.a.eq(taps.a),
            scaling.b.eq(taps.b),
            scaling.sum.eq(taps.sum),
        ]
        if config.activation:
            # The row of a table is the first tap of its step.
            fill = delayed(m, "fill", reads.valid & reads.table, SRAM_READ + taps.LATENCY)[-1]
            m.d.comb += direct.fill.eq(fill)

        # Parameters; the registers do not change while an operation is under way.
        params = Signal.like(scaling.params)
        bias = Signal(32)
        operation = self._operation(m, registers)
        m.d.comb += [scaling.params.eq(params), taps.bias.eq(bias)]
        divides = kind.taps & regs.MODE.average & ~regs.MODE.requantise
        m.d.sync += [
            params.operation.eq(operation),
            params.rounding.eq(regs.MODE.rounding),
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
            bias.eq(
                Mux(
                    has_trait(config, registers.operation, "rescales"),
                    -regs.QUANT.zero_in.as_signed(),
                    regs.SUM_BIAS,
                )
            ),
        ]
        return m

    def _operation(self, m: Module, registers: VectorRegisters) -> Signal:
        """What the scaling does."""
        mode = registers.regs.MODE
        result = Signal(VectorOperation)
        with m.Switch(registers.operation):
            for row in INSTRUCTIONS.values():
                if row.scaling is not None:
                    with m.Case(row.op):
                        m.d.comb += result.eq(row.scaling)
            with m.Case(Op.POOL):
                maximum, division, requantisation = POOLING
                m.d.comb += result.eq(Mux(mode.average, Mux(mode.requantise, requantisation, division), maximum))
        with m.If(mode.subtract & (registers.operation == Op.E_ADD)):
            m.d.comb += result.eq(VectorOperation.SUBTRACT)
        return result
