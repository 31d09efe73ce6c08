"""Registers of the vector unit, the checks of an operation and the banks it claims."""

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from dovetail.hw.common.ports import Check
from dovetail.hw.common.regions import Region, hold_registers, is_any, register_layout
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import built, row_blocks, stages
from dovetail.isa.instructions.table import Cause, Unit
from dovetail.isa.timing.sequencer import CHECK

VECTOR_REGISTERS = register_layout(Unit.VECTOR)
"""The vector unit's registers by name, packed into one word: a simulator then holds them in one variable."""

KINDS = ("taps", "two_operands", "int32_input", "int32_output", "looks_up")
KIND = data.StructLayout(dict.fromkeys(KINDS, 1))
"""What the blocks of the unit must know of an operation: a bit for each of these traits."""


class VectorRegisters(wiring.Component):
    """Registers and checks of the vector unit.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    cfg .. target
        See :class:`~dovetail.hw.common.ports.Check`.
    regs
        :data:`VECTOR_REGISTERS`.
    operation, kind
        The opcode and its :data:`KIND`, from the cycle after ``start`` on; ``stage``, too.
    stage
        A bit for each of ``isa.instructions.checks.stages``, set for the one that makes the operation's results.
    load
        Pulse in the cycle after ``start``.

    Latency
    -------
    ``cause`` is valid CHECK = 3 cycles after ``start``, until the next one; the banks, ``sources`` and ``target`` are a
    cycle earlier.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                **Check(config).flip().members,
                "regs": Out(VECTOR_REGISTERS),
                "operation": Out(8),
                "kind": Out(KIND),
                "stage": Out(len(stages(config))),
                "load": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        regs, kind = self.regs, self.kind
        rows = built(config, Unit.VECTOR)
        assert CHECK == 3, "sums, comparisons, decision: one cycle each"

        hold_registers(m, self.cfg, Unit.VECTOR, regs)
        m.d.sync += self.load.eq(self.start)

        # 1: ends of the regions; the kind of operation. Operand B and the table of ACT_LUT have one region.
        target = Region(config, regs, "OUT")
        read: dict[Region, Value] = {Region(config, regs, "IN"): Const(1, 1)}
        if any(row.reads_b for row in rows):
            read[Region(config, regs, "B")] = kind.two_operands | kind.looks_up
        records = [row for row in rows if row.records]
        if records:
            *_, b = read
            read[b] = read[b] | is_any(self.operation, records)
        with m.If(self.start):
            m.d.sync += [
                *(region.end.eq(region.sum()) for region in (*read, target)),
                self.operation.eq(self.op),
                *(kind[trait].eq(is_any(self.op, [row for row in rows if getattr(row, trait)])) for trait in KINDS),
                self.stage.eq(Cat(is_any(self.op, [r for r in rows if r.stage == each]) for each in stages(config))),
            ]

        # 2: comparisons and banks.
        zero = Signal()
        large = Signal()
        outside = Signal()
        overlaps = Signal()
        divides = kind.taps & regs.MODE.average & ~regs.MODE.requantise
        sizes: list[Value] = [
            *(region.size.any() | ~used for region, used in read.items()),
            target.size.any(),
            regs.GEOMETRY.kh.any(),
            regs.GEOMETRY.kw.any(),
            regs.TILE.height.any(),
            regs.TILE.width.any(),
            regs.BLOCKS.count.any(),
            regs.BLOCKS.last.any(),
            regs.POOL_COUNT.count.any() | ~divides,
        ]
        too_large: Value = regs.BLOCKS.last > config.vector_lanes
        if in_passes := [row for row in rows if row.passes]:
            too_large = too_large | is_any(self.operation, in_passes) & (regs.BLOCKS.count > row_blocks(config))
        with m.If(self.load):
            m.d.sync += [
                *(region.touched() for region in (*read, target)),
                zero.eq(~Cat(sizes).all()),
                large.eq(too_large),
                outside.eq(target.outside() | Cat(region.outside() & used for region, used in read.items()).any()),
                overlaps.eq(Cat(region.overlaps(target) & used for region, used in read.items()).any()),
            ]
        m.d.comb += target.show(self.target)
        for (region, used), span in zip(read.items(), self.sources, strict=False):
            m.d.comb += region.show(span, used)

        # 3: the decision; what it follows from stays until the next operation.
        claimed: Value = Const(0, config.banks)
        for region, used in read.items():
            claimed = claimed | region.banks & used.replicate(config.banks)
        m.d.comb += [self.reads.eq(claimed), self.writes.eq(target.banks)]
        m.d.sync += self.cause.eq(Cause.NONE)
        for failed, cause in (
            (overlaps, Cause.BANK_CONFLICT),
            (outside, Cause.SRAM_RANGE),
            (large, Cause.TOO_LARGE),
            (zero, Cause.ZERO_SIZE),
        ):
            with m.If(failed):
                m.d.sync += self.cause.eq(cause)
        return m
