"""The vector unit: pooling over windows and element-wise addition."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.clock_gate import gate_clock
from dovetail.hw.ports import Core, SramRead, SramWrite
from dovetail.hw.rescale import VectorLane
from dovetail.hw.scaler import lane
from dovetail.hw.vector_registers import VectorRegisters
from dovetail.hw.vector_walk import VectorReads, VectorWrites
from dovetail.isa.config import Config
from dovetail.isa.numerics import VectorOperation
from dovetail.isa.timing.common import CHECK, SRAM_READ
from dovetail.isa.timing.vector import PIPELINE, TAPS


class VectorTaps(wiring.Component):
    """Turns the bytes read for an output into the operands of its final scaling.

    Parameters
    ----------
    lanes
        Channels per cycle.

    Members
    -------
    valid, first, second, mask
        Of a step, with ``data``, as in :class:`~dovetail.hw.vector_walk.VectorReads`; unmasked lanes take the zero
        point ``zero_in``, or ``zero_b`` in a ``second`` step.
    data
        int8 per lane.
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

    def __init__(self, *, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "second": In(1),
                "mask": In(lanes),
                "data": In(8 * lanes),
                "zero_in": In(8),
                "zero_b": In(8),
                "maximum": In(1),
                "bias": In(32),
                "a": Out(8 * lanes),
                "b": Out(8 * lanes),
                "sum": Out(32 * lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        valid, first = Signal(), Signal()
        taps = Signal(8 * self.lanes)
        zero = Signal(8)
        m.d.comb += zero.eq(Mux(self.second, self.zero_b, self.zero_in))
        m.d.sync += valid.eq(self.valid)
        with m.If(self.valid):
            m.d.sync += first.eq(self.first)
            for i in range(self.lanes):
                m.d.sync += lane(taps, i, 8).eq(Mux(self.mask[i], lane(self.data, i, 8), zero))
        with m.If(valid):
            m.d.sync += self.b.eq(taps)
            for i in range(self.lanes):
                tap, held, total = lane(taps, i, 8), lane(self.a, i, 8), lane(self.sum, i, 32)
                replaces = first | self.maximum & (tap.as_signed() > held.as_signed())
                m.d.sync += [
                    held.eq(Mux(replaces, tap, held)),
                    total.eq((Mux(first, self.bias, total).as_signed() + tap.as_signed())[:32]),
                ]
        return m


class VectorPipeline(wiring.Component):
    """What :class:`VectorCore` does, on one clock.

    Registers and checks, walk over the reads, taps, final scaling, walk over the writes: each its own block, in
    lockstep. Nothing ever stalls, so a step's results come a fixed time after it.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__({"core": In(Core(config)), "input": Out(SramRead(config)), "output": Out(SramWrite(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config, core = self.config, self.core
        m.submodules.registers = registers = VectorRegisters(config)
        m.submodules.reads = reads = VectorReads(config)
        m.submodules.taps = taps = VectorTaps(lanes=config.vec)
        m.submodules.scaling = scaling = VectorLane(lanes=config.vec)
        m.submodules.writes = writes = VectorWrites(config)
        regs = registers.regs
        to_write = SRAM_READ + taps.LATENCY + scaling.LATENCY
        if reads.LATENCY + to_write != PIPELINE:
            raise AssertionError(f"isa.timing.vector.PIPELINE must be {reads.LATENCY + to_write}, not {PIPELINE}")

        m.d.comb += [
            registers.clear.eq(core.clear),
            registers.cfg_en.eq(core.cfg_en),
            registers.cfg_index.eq(core.cfg_index),
            registers.cfg_value.eq(core.cfg_value),
            registers.start.eq(core.start),
            registers.op.eq(core.op),
            core.cause.eq(registers.cause),
            core.reads.eq(registers.reads),
            core.writes.eq(registers.writes),
            core.done.eq(writes.done),
            reads.regs.eq(regs),
            reads.adds.eq(registers.adds),
            reads.load.eq(registers.load),
            reads.go.eq(core.go),
            self.input.en.eq(reads.en),
            self.input.addr.eq(reads.addr),
            writes.regs.eq(regs),
            writes.load.eq(registers.load),
            self.output.en.eq(writes.en),
            self.output.addr.eq(writes.addr),
            self.output.size.eq(writes.size),
            self.output.data.eq(scaling.result),
        ]

        # What belongs to a step, until its data are there.
        step = Cat(reads.valid, reads.first, reads.second, reads.mask)
        waiting = Signal(len(step) * SRAM_READ)
        m.d.sync += waiting.eq(Cat(step, waiting))
        m.d.comb += [
            Cat(taps.valid, taps.first, taps.second, taps.mask).eq(waiting[-len(step) :]),
            taps.data.eq(self.input.data),
            taps.zero_in.eq(regs.QUANT.zero_in),
            taps.zero_b.eq(regs.B_ZERO.zero_b),
            taps.maximum.eq(~registers.adds),
            taps.bias.eq(regs.SUM_BIAS),
        ]

        # Outputs on their way; the walk over the writes needs its time before the result is there.
        outputs = Signal(to_write - writes.LATENCY)
        m.d.sync += outputs.eq(Cat(reads.valid & reads.last, outputs))
        m.d.comb += writes.step.eq(outputs[-1])

        # Parameters of the final scaling, constant long before its first operand.
        params = Signal.like(scaling.params)
        m.d.comb += scaling.params.eq(params)
        average = regs.MODE.average & ~registers.adds
        divides = average & ~regs.MODE.requantise
        operation = Mux(
            registers.adds,
            VectorOperation.ADD,
            Mux(divides, VectorOperation.AVERAGE, Mux(average, VectorOperation.REQUANTISE, VectorOperation.PASS)),
        )
        with m.If(registers.load):
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
            ]
        m.d.comb += [scaling.a.eq(taps.a), scaling.b.eq(taps.b), scaling.sum.eq(taps.sum)]
        return m


class VectorCore(wiring.Component):
    """Core of the vector unit: POOL and E_ADD.

    Parameters
    ----------
    config
        The accelerator.
    gated
        The unit's clock stands still while it is idle. For Verilator: see :mod:`dovetail.hw.clock_gate`.

    Members
    -------
    core
        Border to unit control.
    input
        Read port for both operands.
    output
        Write port.

    Latency
    -------
    As in ``isa.timing.vector``: from the cycle of ``go``, one cycle per read and ``PIPELINE``.
    """

    def __init__(self, config: Config, *, gated: bool = False) -> None:
        self.config = config
        self.gated = gated
        super().__init__({"core": In(Core(config)), "input": Out(SramRead(config)), "output": Out(SramWrite(config))})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        core = self.core
        pipeline = VectorPipeline(self.config)
        if self.gated:
            checking = Signal(CHECK)
            busy = Signal()
            m.d.sync += checking.eq(Cat(core.start, checking))
            with m.If(core.start):
                m.d.sync += busy.eq(1)
            with m.Elif(core.done | checking[-1] & ~core.go):
                m.d.sync += busy.eq(0)
            enable = busy | core.start | core.cfg_en | core.clear
            m.submodules.pipeline = gate_clock(m, pipeline, enable=enable, domain="vector")
        else:
            m.submodules.pipeline = pipeline
        wiring.connect(m, wiring.flipped(core), pipeline.core)
        wiring.connect(m, wiring.flipped(self.input), pipeline.input)
        wiring.connect(m, wiring.flipped(self.output), pipeline.output)
        return m
