"""What tasks are made of: operations and transfers, and the forms of those that differ only in addresses."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import CFG_PARAM, DMA_OPS, REGISTERS, Op, Unit, cfg, pack
from dovetail.isa.timing.operations import duration
from dovetail.sw.compiler.emit.hazards import Range
from dovetail.sw.compiler.plan.smaller import Moved

TRANSFERS = (Unit.LOAD, Unit.STORE)
"""Units that move bytes between SRAM and system memory."""
_ALIGNED = 4096
"""The duration of a transfer depends on its address modulo this."""
_CFG = {unit: {name: (r.index, cfg(unit, name, 0)) for name, r in rows.items()} for unit, rows in REGISTERS.items()}
"""Of each register its index, and the word that sets it to zero."""
_ADDRESSES = ("IN_ADDR", "OUT_ADDR", "W_ADDR", "B_ADDR")
"""Registers of array and vector unit that hold SRAM addresses."""


class Form:
    """The common part of operations that differ only in addresses.

    Parameters
    ----------
    unit, op
        Who executes what.
    registers
        Values by name, in the order in which they are written; among them all that the duration depends on.
    addresses
        Those of them that each operation brings a value of its own for, in the same order. What is in ``registers``
        for them does not count.
    param
        Number of the parameter that is added to the first address; 0: none.
    """

    __slots__ = ("_cycles", "moving", "op", "param", "registers", "unit")

    def __init__(
        self, unit: Unit, op: Op, registers: Mapping[str, int], addresses: Sequence[str] = (), param: int = 0
    ) -> None:
        self.unit, self.op, self.param = int(unit), int(op), param
        words = _CFG[unit]
        if param:
            index, word = words[addresses[0]]
            words = {**words, addresses[0]: (index, word | CFG_PARAM.put(param))}
        self.moving = [words[name] for name in addresses]
        """Index and word of each register of ``addresses``."""
        places = {name: place for place, name in enumerate(addresses)}
        self.registers = [
            (*words[name], value & 0xFFFF_FFFF, places.get(name, -1)) for name, value in registers.items()
        ]
        """Index and word of each register, its value, its place among the addresses or -1."""
        self._cycles: dict[int, int] = {}  # by what they depend on besides

    def moved(self, moved: Moved) -> "Form":
        """The same with its own SRAM addresses in a larger memory."""
        own = {REGISTERS[Unit(self.unit)][name].index for name in _ADDRESSES if name in REGISTERS[Unit(self.unit)]}
        if not any(index in own and place < 0 for index, _, _, place in self.registers):
            return self
        form = copy(self)
        form.registers = [
            (index, word, moved.at(value) if index in own and place < 0 else value, place)
            for index, word, value, place in self.registers
        ]
        return form

    def added(self, address: str, param: int) -> "Form":
        """The same with a parameter that is added to a register, which each operation brings a value for; of a form
        that has no other such registers."""
        form = copy(self)
        index, word = _CFG[Unit(self.unit)][address]
        form.param, form.moving = param, [(index, word | CFG_PARAM.put(param))]
        form.registers = [
            (number, form.moving[0][1], value, 0) if number == index else (number, other, value, place)
            for number, other, value, place in self.registers
        ]
        return form

    def cycles(self, config: Config, addresses: Sequence[int]) -> int:
        """The duration of an operation."""
        varies = addresses[0] % _ALIGNED if self.unit in TRANSFERS else 0
        cycles = self._cycles.get(varies)
        if cycles is None:
            values = [0] * len(REGISTERS[Unit(self.unit)])
            for index, _, fixed, place in self.registers:
                values[index] = fixed if place < 0 else addresses[place]
            cycles = self._cycles[varies] = duration(config, Op(self.op), View(Unit(self.unit), values))
        return cycles


class Transfer(NamedTuple):
    """A DMA between system memory and SRAM: ``planes`` x ``rows`` x ``length`` bytes. ``param``: number of the
    parameter that is added to ``memory``, 0: none, and ``reach``: how many bytes that may be."""

    memory: int
    sram: int
    length: int
    rows: int = 1
    planes: int = 1
    memory_row: int = 0
    memory_plane: int = 0
    sram_row: int = 0
    sram_plane: int = 0
    param: int = 0
    reach: int = 0

    @property
    def memory_range(self) -> Range:
        """Bytes of system memory between the first and the last."""
        span = self.length + (self.rows - 1) * self.memory_row + (self.planes - 1) * self.memory_plane
        return self.memory, span + self.reach

    @property
    def sram_range(self) -> Range:
        """Bytes of SRAM between the first and the last."""
        span = self.length + (self.rows - 1) * self.sram_row + (self.planes - 1) * self.sram_plane
        return self.sram, span

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return self.length * self.rows * self.planes

    def form(self, unit: Unit) -> Form:
        """What it has in common with transfers that differ in addresses only."""
        values = {
            "MEM_ADDR": self.memory,
            "SRAM_ADDR": self.sram,
            "SRAM_BYTES": self.sram_range[1],
            "LENGTH": self.length,
            "COUNT": pack(unit, "COUNT", rows=self.rows, planes=self.planes),
        }
        if self.rows > 1:
            values |= {"MEM_ROW_STEP": self.memory_row, "SRAM_ROW_STEP": self.sram_row}
        if self.planes > 1:
            values |= {"MEM_PLANE_STEP": self.memory_plane, "SRAM_PLANE_STEP": self.sram_plane}
        return Form(unit, DMA_OPS[unit], values, ("MEM_ADDR", "SRAM_ADDR"), self.param)


class Compute(NamedTuple):
    """An operation of the array or vector unit, the values of its form's addresses, and the regions it claims."""

    form: Form
    addresses: tuple[int, ...]
    reads: tuple[Range, ...]
    write: Range

    def added(self, address: str, param: int, reach: int) -> "Compute":
        """The same where a parameter, up to ``reach``, is added to the register of the address that is written."""
        low, size = self.write
        return Compute(self.form.added(address, param), (low,), self.reads, (low, size + reach))


@dataclass(slots=True)
class Task:
    """A tile: what must be loaded, the operations, what is stored."""

    layer: int
    loads: list[Transfer] = field(default_factory=list)
    computes: list[Compute] = field(default_factory=list)
    stores: list[Transfer] = field(default_factory=list)

    @property
    def touched(self) -> Iterator[tuple[Range, ...]]:
        """What each operation but the loads touches in SRAM."""
        yield from ((*one.reads, one.write) for one in self.computes)
        yield from ((transfer.sram_range,) for transfer in self.stores)


@lru_cache(maxsize=4)
def forms_of(memory: MemoryTiming, bus: int, outstanding: int) -> dict[tuple[int, ...], tuple[Form, int, int, int]]:
    """Of transfers by unit and all but the addresses: the form, the bytes that they move, and those between the first
    and the last in system memory and in SRAM. Whatever else a configuration has, their durations are the same."""
    return {}
