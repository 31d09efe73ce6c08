"""The vector unit: pooling, element-wise operations, activations, copies."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.common.clocking import delayed
from dovetail.hw.common.ports import Check, Core, SramRead, SramWrite, part
from dovetail.hw.common.regions import is_any
from dovetail.hw.vector.direct import VectorDirect
from dovetail.hw.vector.loops import VectorReads, VectorWrites
from dovetail.hw.vector.passes import Groups, has_groups
from dovetail.hw.vector.registers import VectorRegisters
from dovetail.hw.vector.scaling import VectorScaling
from dovetail.hw.vector.softmax import VectorSoftmax
from dovetail.hw.vector.stage import VectorStage
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.isa.extensions import shares
from dovetail.isa.instructions.checks import built, offers, stages
from dovetail.isa.instructions.table import DIRECT, SCALING, SOFTMAX, Stage, Unit
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.vector import OUTPUT, TAPS, to_end


def hardware_of(stage: Stage) -> type[VectorStage]:
    """What elaborates a stage: Dovetail's, or what an extension gives under ``dovetail.stages`` by the stage's name.

    Raises :class:`ConfigError`.
    """
    classes = {SCALING.name: VectorScaling, DIRECT.name: VectorDirect, SOFTMAX.name: VectorSoftmax}
    for given in shares("dovetail.stages").values():
        classes = given | classes
    found = classes.get(stage.name)
    if found is None:
        raise ConfigError(f"stage {stage.name!r} must have hardware: a package gives it under dovetail.stages")
    if not issubclass(found, VectorStage) or stage.latency != found.LATENCY:
        raise ConfigError(f"stage {stage.name!r} must be a VectorStage with the LATENCY {stage.latency} of its row")
    return found


class VectorTaps(wiring.Component):
    """Turns the bytes read for an output into the operands of its final scaling.

    Parameters
    ----------
    config
        The accelerator.

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
        self.width = 32 if offers(config, "int32_input") or offers(config, "records") else 8
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
                if width == 32:
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
                if offers(self.config, "two_operands") or offers(self.config, "records"):
                    m.d.sync += self.b.word_select(i, 8).eq(tap[:8])
        return m


class VectorCore(wiring.Component):
    """Core of the vector unit.

    Registers and checks, walk over the reads, taps, stages, walk over the writes: each its own block, in lockstep.
    Nothing ever stalls, so a step's results come a fixed time after it, which depends on the operation's stage.

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
    As in ``isa.timing.vector``: from the cycle of ``go``, one cycle per read and ``to_end``.
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
        m.submodules.writes = writes = VectorWrites(config)
        regs, kind = registers.regs, registers.kind

        wiring.connect(m, part(wiring.flipped(core), Check(config)), part(registers, Check(config)))
        m.d.comb += [
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

        has_passes = offers(config, "passes")
        if has_passes:
            m.d.comb += reads.operation.eq(registers.operation)
        if has_groups(config):
            m.d.comb += writes.operation.eq(registers.operation)

        # What belongs to a step, until its data are there.
        step = Cat(reads.valid, reads.first, reads.second, reads.mask)
        m.d.comb += [
            Cat(taps.valid, taps.first, taps.second, taps.mask).eq(delayed(m, "step", step, SRAM_READ)[-1]),
            taps.data.eq(self.input.data),
            taps.zero_in.eq(regs.QUANT.zero_in),
            taps.zero_b.eq(regs.B_ZERO.zero_b),
            *([] if offers(config, "records") else [taps.int32.eq(kind.int32_input)]),
            taps.maximum.eq(kind.taps),
        ]

        # Where an operation rescales one operand, that comes less its zero point.
        rescales = is_any(registers.operation, [row for row in built(config, Unit.VECTOR) if row.rescales])
        records = is_any(registers.operation, [row for row in built(config, Unit.VECTOR) if row.records])
        bias = Signal(32)
        m.d.comb += taps.bias.eq(bias)
        start = Mux(rescales, -regs.QUANT.zero_in.as_signed(), regs.SUM_BIAS)
        m.d.sync += bias.eq(start)
        if offers(config, "records"):
            # A word of a record is a step of its own, in region B.
            m.d.comb += taps.int32.eq(kind.int32_input | records & taps.second)
            with m.If(records):
                m.d.sync += bias.eq(0)

        # The stages, the quickest first. The walk over the writes needs its time before the result is there; a step's
        # output goes on until its operation's stage is due.
        to_operands = SRAM_READ + taps.LATENCY
        fill = delayed(m, "fill", reads.valid & reads.table, to_operands)[-1]  # the row of a table is a first tap
        if has_passes:
            row_valid = reads.valid & ~reads.table & reads.row.valid
            rows = delayed(m, "row", Cat(row_valid, reads.row.as_value()[1:]), to_operands)[-1]
        output, waited = reads.valid & reads.last, 0
        if config.softmax > 1:
            # The rows of a softmax's group end one after the other.
            in_groups = Groups(config, registers.operation).softmax
            output = Cat(output, *delayed(m, "row_ends", output & in_groups, config.softmax - 1)[1:]).any()
        due: Value = Const(0, 1)
        results = []
        for made, row in zip(registers.stage, stages(config), strict=True):
            m.submodules[row.name] = stage = hardware_of(row)(config)
            m.d.comb += [
                stage.regs.eq(regs),
                stage.operation.eq(registers.operation),
                stage.kind.eq(kind),
                stage.fill.eq(fill),
                stage.a.eq(taps.a),
                stage.b.eq(taps.b),
                stage.sum.eq(taps.sum),
            ]
            if has_passes:
                m.d.comb += stage.row.eq(rows)
            to_write = to_operands + stage.LATENCY + OUTPUT
            assert reads.LATENCY + to_write == to_end(row)
            to_step = to_write - writes.LATENCY - 1
            output, waited = delayed(m, f"to_{row.name}", output, to_step - waited)[-1], to_step
            due, output = due | output & made, output & ~made
            results.append((made, stage.result))
        *quicker, (_, value) = results
        for made, quick in quicker:
            value = Mux(made, quick, value)
        result = Signal(len(value), reset_less=True)
        m.d.sync += [writes.step.eq(due), result.eq(value)]
        m.d.comb += self.output.data.eq(result)
        return m
