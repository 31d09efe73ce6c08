"""Registers of the array unit, the checks of an operation and the banks it claims."""

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.hw.ports import spans
from dovetail.hw.regions import Region, register_layout
from dovetail.isa.config import Config
from dovetail.isa.instructions import REGISTERS, Cause, Op, Unit
from dovetail.isa.timing.common import CHECK

ARRAY_REGISTERS = register_layout(Unit.ARRAY)
"""The array unit's registers by name, packed into one word: a simulator then holds them in one variable."""


class ArrayRegisters(wiring.Component):
    """Registers and checks of the array unit.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    clear, cfg_en, cfg_index, cfg_value, start, op
        As in :class:`~dovetail.hw.ports.Core`.
    regs
        :data:`ARRAY_REGISTERS`.
    depthwise, clamps
        The operation is DEPTH_CONV; it clamps to QUANT.lo and QUANT.hi. From the cycle after ``start`` on.
    pixels
        Output pixels, from the cycle after ``start`` on.
    load
        Pulse in the cycle after ``start``.
    cause, reads, writes
        Failed check and claimed banks.
    sources, target
        What the operation reads and writes in SRAM.
    awake
        Something is about to change.

    Latency
    -------
    ``cause`` and the banks are valid CHECK = 3 cycles after ``start``, until the next one; ``sources`` and ``target``
    are a cycle earlier.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            {
                "clear": In(1),
                "cfg_en": In(1),
                "cfg_index": In(6),
                "cfg_value": In(32),
                "start": In(1),
                "op": In(8),
                "regs": Out(ARRAY_REGISTERS),
                "depthwise": Out(1),
                "clamps": Out(1),
                "pixels": Out(32),
                "load": Out(1),
                "cause": Out(Cause),
                "reads": Out(config.n_banks),
                "writes": Out(config.n_banks),
                **spans(config),
                "awake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        regs = self.regs
        assert CHECK == 3, "sums, comparisons, decision: one cycle each"

        # One comparator per register: cheaper than a shifter over all of them, and quicker to simulate.
        with m.If(self.clear):
            m.d.sync += regs.as_value().eq(0)
        with m.Elif(self.cfg_en), m.Switch(self.cfg_index):
            for register in REGISTERS[Unit.ARRAY].values():
                with m.Case(register.index):
                    m.d.sync += regs.as_value()[32 * register.index :][:32].eq(self.cfg_value)

        depthwise = Signal()
        compare, decide = Signal(), Signal()
        m.d.comb += depthwise.eq(self.op == Op.DEPTH_CONV if config.dw else 0)
        m.d.comb += [
            self.load.eq(compare),
            self.awake.eq(self.clear | self.cfg_en | self.start | compare | decide),
        ]
        m.d.sync += [compare.eq(self.start), decide.eq(compare)]

        # 1: ends of the regions; sizes.
        regions = {name: Region(config, regs, name) for name in ("IN", "W", "OUT")}
        read, output = [regions["IN"], regions["W"]], regions["OUT"]
        zero, large, misaligned = Signal(), Signal(), Signal()
        sizes: list[Value] = [
            *(region.size.any() for region in regions.values()),
            regs.GEOMETRY.kh.any(),
            regs.GEOMETRY.kw.any(),
            regs.TILE.height.any(),
            regs.TILE.width.any(),
            regs.BLOCKS.count.any(),
            regs.BLOCKS.last.any(),
            regs.STRIPE.pixels.any(),
            regs.KC.blocks.any() | depthwise,
        ]
        low = exact_log2(config.word_bytes)
        with m.If(self.start):
            m.d.sync += [
                *(region.end.eq(region.sum()) for region in regions.values()),
                self.depthwise.eq(depthwise),
                self.clamps.eq(self.op != Op.CONV),
                self.pixels.eq(regs.TILE.height * regs.TILE.width),
                zero.eq(~Cat(sizes).all()),
                large.eq(
                    (regs.BLOCKS.last > Mux(depthwise, config.dw, config.oc)) | (regs.STRIPE.pixels > config.stripe)
                ),
                misaligned.eq(regs.W_ADDR[:low].any() | regs.W_BYTES[:low].any()),
            ]

        # 2: comparisons and banks.
        outside, overlaps = Signal(), Signal()
        with m.If(compare):
            m.d.sync += [
                *(region.banks.eq(region.touched()) for region in regions.values()),
                outside.eq(Cat(region.outside() for region in regions.values()).any()),
                overlaps.eq(Cat(region.overlaps(output) for region in read).any()),
            ]
        m.d.comb += output.show(self.target)
        for region, source in zip(read, self.sources, strict=False):
            m.d.comb += region.show(source)

        # 3: the decision.
        old = regs.MODE.accumulate.replicate(config.n_banks)
        banks = {name: region.banks for name, region in regions.items()}
        twice = (banks["W"] & (banks["IN"] | banks["OUT"] & old)).any()
        with m.If(decide):
            m.d.sync += [self.reads.eq(banks["IN"] | banks["W"] | banks["OUT"] & old), self.writes.eq(banks["OUT"])]
            for failed, cause in (
                (1, Cause.NONE),
                (twice | overlaps, Cause.BANK_CONFLICT),
                (outside, Cause.SRAM_RANGE),
                (misaligned, Cause.ALIGNMENT),
                (large, Cause.TOO_LARGE),
                (zero, Cause.ZERO_SIZE),
            ):
                with m.If(failed):
                    m.d.sync += self.cause.eq(cause)
        return m
