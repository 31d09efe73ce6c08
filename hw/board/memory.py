"""Kinds of system memory on a board."""

from dataclasses import dataclass
from typing import Any

from dovetail.hw.board import bram, sdram, spram
from dovetail.hw.board.ports import check_size
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import Memory, SdramTiming
from dovetail.isa.config.memory_presets import SDRAM_NANOSECONDS
from dovetail.isa.link import MEMORIES, SETTLED, SETTLED_JOINED
from dovetail.isa.timing.memories.sdram import cycles_of


@dataclass(frozen=True)
class BoardMemory:
    """System memory of a board: ``bytes`` from address 0 on.

    ``kind``: ``"bram"``, block RAM; ``"spram"``, the single-port RAM of an iCE40 UP5K; ``"sdram"``, ``"sdram32"``: a
    chip of SDRAM, 16 or 32 bits wide. Raises ValueError for an unknown kind. Whether it fits the bus and the clock is
    checked when the memory is built.
    """

    kind: str
    bytes: int

    def __post_init__(self) -> None:
        if self.kind not in MEMORIES:
            raise ValueError(f"memory kind must be one of {', '.join(MEMORIES)}, not {self.kind!r}")
        check_size(self.bytes)

    @property
    def chip(self) -> sdram.Chip | None:
        """The chip of SDRAM, with those kinds."""
        return sdram.CHIPS.get(self.kind)

    @property
    def timing(self) -> MemoryTiming | None:
        """What a model needs to predict the board's cycles; None for SDRAM, see :meth:`timing_at`."""
        return {"bram": bram.TIMING, "spram": spram.TIMING}.get(self.kind)

    def timing_at(self, clock_hz: int, *, joined: bool = False) -> Memory:
        """What a model needs to predict the cycles of runs that START begins on a board. ``joined``: on one
        with a system. Raises ConfigError where SDRAM cannot have the clock."""
        if self.timing:
            return self.timing
        assert self.chip is not None
        return SdramTiming(
            clock=clock_hz,
            width=self.chip.width,
            column_bits=self.chip.column_bits,
            phase=SETTLED_JOINED if joined else SETTLED,
            **cycles_of(SDRAM_NANOSECONDS, clock_hz),
        )

    def component(self, *, bus: int, outstanding: int, clock_hz: int, simulation: bool) -> Any:
        """The memory, with a member ``port``; that of SDRAM has ``pins`` too. ``outstanding``: bursts of a direction
        that it must take before the first is done."""
        sizes: Any = {"bus": bus, "memory_bytes": self.bytes, "outstanding": outstanding}
        if self.kind == "spram":
            return spram.SpramMemory(**sizes, simulation=simulation)
        if self.chip:
            return sdram.SdramMemory(self.chip, **sizes, clock_hz=clock_hz)
        return bram.BlockMemory(**sizes)
