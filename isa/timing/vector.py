"""Timing of the vector unit: one read of ``vector_lanes`` channels per cycle, fully pipelined."""

from functools import lru_cache

from dovetail.isa.config import Config
from dovetail.isa.timing.common import CHECK

PIPELINE = 24
"""Cycles from the last read to the end of the instruction."""


@lru_cache(maxsize=65536)
def vector_duration(config: Config, *, pixels: int, blocks: int, reads: int) -> int:
    """Cycles from start to end; ``reads`` per pixel and block: kh * kw for POOL, 2 for E_ADD."""
    return CHECK + pixels * blocks * reads + PIPELINE
