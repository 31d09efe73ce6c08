"""Registers of the vector unit, the checks of an operation and the banks it claims."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dovetail.isa.config import Config
from dovetail.isa.instructions import REGISTERS, Cause, Op, Unit


def _layout(unit: Unit) -> data.StructLayout:
    """All registers of a unit, 32 bits each, in the order of their indices."""
    members: dict[str, object] = {}
    for name, register in REGISTERS[unit].items():
        fields = {f.name: data.Field(f.width, f.low) for f in register.fields}
        members[name] = data.FlexibleLayout(32, fields) if fields else 32
    return data.StructLayout(members)


VECTOR_REGISTERS = _layout(Unit.VECTOR)
"""The vector unit's registers by name, packed into one word: a simulator then holds them in one variable."""


class VectorRegisters(wiring.Component):
    """Registers and checks of the vector unit.

    Parameters
    ----------
    config
        The accelerator.

    Members
    -------
    clear, cfg_en, cfg_index, cfg_value, start, op
        As in :class:`~dovetail.hw.ports.Core`.
    regs
        :data:`VECTOR_REGISTERS`.
    adds
        The operation is E_ADD, from the cycle after ``start`` on.
    load
        Pulse in the cycle after ``start``.
    cause, reads, writes
        Failed check and claimed banks.

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
                "regs": Out(VECTOR_REGISTERS),
                "adds": Out(1),
                "load": Out(1),
                "cause": Out(Cause),
                "reads": Out(config.n_banks),
                "writes": Out(config.n_banks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self.config
        regs = self.regs

        with m.If(self.clear):
            m.d.sync += regs.as_value().eq(0)
        with m.Elif(self.cfg_en):
            m.d.sync += regs.as_value().word_select(self.cfg_index, 32).eq(self.cfg_value)

        decide = Signal()
        m.d.sync += [self.load.eq(self.start), decide.eq(self.load)]
        with m.If(self.start):
            m.d.sync += self.adds.eq(self.op == Op.E_ADD)

        # First cycle: ends of the regions, what is zero, what is too large.
        end_in, end_b, end_out = Signal(33), Signal(33), Signal(33)
        zero, large = Signal(), Signal()
        divides = ~self.adds & regs.MODE.average & ~regs.MODE.requantise
        sizes: list[Value] = [
            regs.IN_BYTES.any(),
            regs.OUT_BYTES.any(),
            regs.B_BYTES.any() | ~self.adds,
            regs.GEOMETRY.kh.any(),
            regs.GEOMETRY.kw.any(),
            regs.TILE.height.any(),
            regs.TILE.width.any(),
            regs.BLOCKS.count.any(),
            regs.BLOCKS.last.any(),
            regs.POOL_COUNT.count.any() | ~divides,
        ]
        with m.If(self.load):
            m.d.sync += [
                end_in.eq(regs.IN_ADDR + regs.IN_BYTES),
                end_b.eq(regs.B_ADDR + regs.B_BYTES),
                end_out.eq(regs.OUT_ADDR + regs.OUT_BYTES),
                zero.eq(~Cat(sizes).all()),
                large.eq(regs.BLOCKS.last > config.vec),
            ]

        # Second cycle: the decision.
        outside = Signal()
        size = config.sram_bytes
        m.d.comb += outside.eq((end_in > size) | (end_out > size) | self.adds & (end_b > size))
        with m.If(decide):
            m.d.sync += [
                self.cause.eq(
                    Mux(
                        zero,
                        Cause.ZERO_SIZE,
                        Mux(large, Cause.TOO_LARGE, Mux(outside, Cause.SRAM_RANGE, Cause.NONE)),
                    )
                ),
                self.reads.eq(
                    self._banks(regs.IN_ADDR, end_in)
                    | self._banks(regs.B_ADDR, end_b) & self.adds.replicate(config.n_banks)
                ),
                self.writes.eq(self._banks(regs.OUT_ADDR, end_out)),
            ]
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
