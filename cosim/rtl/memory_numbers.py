"""A memory as the C++ of this package takes it (`memory_models.h`)."""

import ctypes
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.memory import KINDS, DramTiming, Memory, kind_of
from dovetail.isa.timing.dram import AddressMap

HEADERS = ("axi_bus.h", "axi_memory.h", "dram_model.h", "memory_model.h", "memory_models.h", "sdram_model.h")
"""What a driver includes that has a memory."""


def numbers_of(memory: Memory) -> tuple[int, npt.NDArray[np.int64]]:
    """The number of a memory's kind, and its parameters in the order in which C++ has them."""
    values = {name: value for name, value in vars(memory).items() if isinstance(value, int)}
    numbers = list(values.values())
    if isinstance(memory, DramTiming):
        shifts = AddressMap(memory).shifts
        place = list(values).index("row") + 1
        numbers[place:place] = [shifts[name] for name in ("bank", "column", "group", "row")]
    return list(KINDS).index(kind_of(memory)), np.array(numbers, np.int64)


def attach(attach_memory: Callable[..., None], handle: object, data: npt.NDArray[np.uint8], memory: Memory) -> None:
    """Call a driver's function that makes bytes its memory, with a timing."""
    kind, numbers = numbers_of(memory)
    attach_memory(
        handle,
        ctypes.c_void_p(data.ctypes.data),
        ctypes.c_uint64(len(data)),
        kind,
        ctypes.c_void_p(numbers.ctypes.data),
    )
