"""Constants that several units share."""

CHECK = 3
"""Cycles from the pop of an instruction to the cycle in which its checks decide (fault, or claim its banks).
It works from the next cycle on."""

SRAM_READ = 3
"""Cycles from a read address on an SRAM port to its (rotated) bytes."""


def stripes_of(pixels: int, stripe: int) -> tuple[int, int, int]:
    """(full stripes, pixels of the last partial stripe or 0, all stripes) of a tile."""
    full, rest = divmod(pixels, stripe)
    return full, rest, full + (rest > 0)
