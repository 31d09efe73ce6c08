"""A memory as the C++ of this package takes it (`memory_models.h`)."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.memory import Memory
from dovetail.isa.timing.memories.models import numbers_of

HEADERS = ("axi_bus.h", "axi_memory.h", "dram_model.h", "memory_model.h", "memory_models.h", "sdram_model.h")
"""What a driver includes that has a memory."""
SIMULATION = ("simulation.h", "clock.h", "dut_ports.h", "waves.h", *HEADERS)
"""What a driver includes whose memory has several managers."""


def check_bytes(data: npt.NDArray[Any]) -> None:
    """Raises ValueError unless an array can be system memory."""
    if data.dtype != np.uint8 or data.ndim != 1 or not data.flags.c_contiguous or len(data) % 4096:
        raise ValueError("memory must be contiguous bytes, a multiple of 4096")


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
