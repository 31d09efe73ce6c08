"""Memories of every kind: their models in Python, and what they are told in C++."""

import numpy as np

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import KINDS, DramTiming, SdramTiming, kind_of
from dovetail.isa.config.memory import Memory as MemoryKind
from dovetail.isa.timing.memories.dram import AddressMap, Dram
from dovetail.isa.timing.memories.fixed import Fixed
from dovetail.isa.timing.memories.interface import Memory
from dovetail.isa.timing.memories.sdram import Sdram
from dovetail.isa.timing.sequencer import Int64s


def model_of(memory: MemoryKind, bus_bytes: int) -> Memory:
    """A memory to which nothing has happened; ``bus_bytes``: of a beat."""
    if isinstance(memory, MemoryTiming):
        return Fixed(memory)
    return Sdram.of(memory, bus_bytes) if isinstance(memory, SdramTiming) else Dram(memory, bus_bytes)


def numbers_of(memory: MemoryKind) -> tuple[int, Int64s]:
    """The number of a memory's kind, and its parameters in the order in which C++ has them."""
    values = {name: value for name, value in vars(memory).items() if isinstance(value, int)}
    numbers = list(values.values())
    if isinstance(memory, DramTiming):
        shifts = AddressMap(memory).shifts
        place = list(values).index("row") + 1
        numbers[place:place] = [shifts[name] for name in ("bank", "column", "group", "row")]
    return list(KINDS).index(kind_of(memory)), np.array(numbers, np.int64)
