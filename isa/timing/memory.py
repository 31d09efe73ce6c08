"""Memory: the latency of SRAM, and which part of system memory answers. When it answers: `isa/timing/memories`."""

from collections.abc import Sequence

SRAM_READ = 5
"""Cycles from a read address on an SRAM port to its (rotated) bytes."""

ADDRESS_SPACE = 1 << 32
"""Bytes that the bus can address."""

Broken = Sequence[tuple[int, int]]
"""(address, bytes) of parts of system memory that answer with an error, in whole :data:`BROKEN_BYTES`."""

BROKEN_BYTES = 64  # the widest beat: every beat is broken or not


def answers(address: int, length: int, memory_bytes: int, broken: Broken = ()) -> bool:
    """Whether system memory answers an access without an error."""
    return address + length <= memory_bytes and not any(a < address + length and address < a + n for a, n in broken)
