"""Registers and opcodes of a unit that works on SRAM regions, and what is checked of such a region."""

from collections.abc import Iterable
from typing import Any

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from dovetail.hw.common.ports import GROUP
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import REGISTERS, Instruction, Unit


def register_layout(unit: Unit) -> data.StructLayout:
    """All registers of a unit, 32 bits each, in the order of their indices."""
    members: dict[str, object] = {}
    for name, register in REGISTERS[unit].items():
        fields = {f.name: data.Field(f.width, f.low) for f in register.fields}
        members[name] = data.FlexibleLayout(32, fields) if fields else 32
    return data.StructLayout(members)


def hold_registers(m: Module, cfg: Any, unit: Unit, registers: Any) -> None:
    """Has ``registers``, a view of :func:`register_layout`, written by a configuration port.

    One comparator per register: cheaper than a shifter over all of them, and quicker to simulate.
    """
    words = registers.as_value()
    with m.If(cfg.clear):
        m.d.sync += words.eq(0)
    with m.Elif(cfg.en):
        for register in REGISTERS[unit].values():
            group, place = divmod(register.index, GROUP)
            with m.If(cfg.group[group] & cfg.place[place]):
                m.d.sync += words.word_select(register.index, 32).eq(cfg.value)


def is_any(op: Value, rows: Iterable[Instruction]) -> Value:
    """Whether ``op`` is the opcode of one of these."""
    matches = [op == int(row.op) for row in rows]
    return Cat(matches).any() if matches else Const(0, 1)


class Region:
    """A region ``<name>_ADDR``, ``<name>_BYTES`` of an operation that is verified.

    ``end``, ``first`` and ``last`` are registers that the owner loads: ``end`` with :meth:`sum`, a cycle later the two
    numbers of banks with :meth:`touched`. They hold until the next operation. ``banks`` is a bit for each bank from the
    first to the last.

    Parameters
    ----------
    config
        The accelerator.
    registers
        The unit's registers, a view of :func:`register_layout`.
    name
        Which region.
    """

    def __init__(self, config: Config, registers: Any, name: str) -> None:
        self.config = config
        self.start: Value = registers[f"{name}_ADDR"]
        self.size: Value = registers[f"{name}_BYTES"]
        self.bits = config.offset_bits  # as many as a region's start and size have if it is inside
        self.end = Signal(self.bits + 1, name=f"{name.lower()}_end")
        self.first, self.last = (
            Signal(range(config.banks), name=f"{name.lower()}_{bank}_bank") for bank in ("first", "last")
        )
        self.banks = Cat((self.first <= n) & (self.last >= n) for n in range(config.banks))

    def sum(self) -> Value:
        """Where the region ends, if it begins and is as long as one inside the SRAM can."""
        return self.start[: self.bits] + self.size[: self.bits]

    def outside(self) -> Value:
        """Whether it goes beyond the SRAM, from ``end``."""
        return self.start[self.bits :].any() | self.size[self.bits :].any() | (self.end > self.config.sram)

    def overlaps(self, other: "Region") -> Value:
        """Whether the two share a byte, from their ``end``, if both are inside the SRAM."""
        one, another = self.start[: self.bits], other.start[: self.bits]
        return (one < other.end) & (another < self.end)

    def touched(self) -> list[Any]:
        """What loads the banks that the region touches, if it is inside the SRAM, from ``end``."""
        low = exact_log2(self.config.bank_bytes)
        return [self.first.eq(self.start[low:]), self.last.eq((self.end - 1)[low:])]

    def show(self, span: Any, valid: Any = 1) -> list[Any]:
        """What drives a :class:`~dovetail.hw.common.ports.Span` with the region."""
        return [span.start.eq(self.start), span.end.eq(self.end), span.valid.eq(valid)]
