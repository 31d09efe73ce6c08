"""Timing of the vector unit: one read of ``vector_lanes`` channels per cycle, fully pipelined."""

from functools import lru_cache

from dovetail.isa.config import Config
from dovetail.isa.latency import VECTOR_LANE
from dovetail.isa.timing.common import CHECK, SRAM_READ

WALK = 4
"""Cycles from a step of the loops to its read: position, bounds, lanes, address."""

TAPS = 2
"""Cycles from the last bytes of an output to the operand of its final scaling: zero point, sum or maximum."""

PIPELINE = WALK + SRAM_READ + TAPS + VECTOR_LANE
"""Cycles from the last step to the end of the instruction, in which its result is on the write port."""


@lru_cache(maxsize=65536)
def vector_duration(config: Config, *, pixels: int, blocks: int, reads: int) -> int:
    """Cycles from start to end; ``reads`` per pixel and block: kh * kw for POOL, 2 for E_ADD.

    A read takes its cycle whether any of its bytes lies in the region or not.
    """
    return CHECK + pixels * blocks * reads + PIPELINE
