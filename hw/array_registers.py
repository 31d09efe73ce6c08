"""Registers of the array unit, the checks of an operation and the banks it claims."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.isa.config import Config
from dovetail.isa.instructions import REGISTERS, Cause, Op, Unit
from dovetail.isa.timing.common import CHECK


def _layout(unit: Unit) -> data.StructLayout:
    """All registers of a unit, 32 bits each, in the order of their indices."""
    members: dict[str, object] = {}
    for name, register in REGISTERS[unit].items():
        fields = {f.name: data.Field(f.width, f.low) for f in register.fields}
        members[name] = data.FlexibleLayout(32, fields) if fields else 32
    return data.StructLayout(members)


ARRAY_REGISTERS = _layout(Unit.ARRAY)
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
    awake
        Something is about to change.

    Latency
    -------
    ``cause`` and the banks are valid CHECK = 3 cycles after ``start``, until the next one.
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
                "awake": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        regs = self.regs
        size = config.sram_bytes
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
        ends = {name: Signal(33, name=f"{name.lower()}_end") for name in ("IN", "W", "OUT")}
        starts = {name: regs[f"{name}_ADDR"] for name in ends}
        zero, large, misaligned = Signal(), Signal(), Signal()
        sizes: list[Value] = [
            *(regs[f"{name}_BYTES"].any() for name in ends),
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
            m.d.sync += [ends[name].eq(regs[f"{name}_ADDR"] + regs[f"{name}_BYTES"]) for name in ends]
            m.d.sync += [
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
        banks = {name: Signal(config.n_banks, name=f"{name.lower()}_banks") for name in ends}
        with m.If(compare):
            m.d.sync += [banks[name].eq(self._banks(starts[name], ends[name])) for name in ends]
            m.d.sync += [
                outside.eq(Cat(end > size for end in ends.values()).any()),
                overlaps.eq(
                    Cat((starts["OUT"] < ends[name]) & (starts[name] < ends["OUT"]) for name in ("IN", "W")).any()
                ),
            ]

        # 3: the decision.
        old = regs.MODE.accumulate.replicate(config.n_banks)
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

    def _banks(self, address: Value, end: Value) -> Value:
        """Mask of the banks from ``address`` to before ``end``, a region inside the SRAM."""
        banks = self.config.n_banks
        bits = exact_log2(self.config.bank_bytes)
        width = (banks + 1).bit_length()
        ones = Const((1 << banks) - 1, banks)
        first = address[bits : bits + width]
        beyond = (end[bits : bits + width] + end[:bits].any())[:width]
        return ((ones << first) & ~(ones << beyond))[:banks]
