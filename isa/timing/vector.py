"""Timing of the vector unit: one read of ``vector_lanes`` channels per cycle, fully pipelined."""

from functools import lru_cache

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Stage
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK

WALK = 4
"""Cycles from a step of the loops to its read: position, bounds, lanes, address."""

TAPS = 2
"""Cycles from the last bytes of an output to the operands of its stage: zero point, sum or maximum."""

OUTPUT = 1
"""Cycles from a result to the write port."""

TABLE_BYTES = 256


def to_end(stage: Stage) -> int:
    """Cycles from the last step to the end of the instruction, in which its result is on the write port."""
    return WALK + SRAM_READ + TAPS + stage.latency + OUTPUT


@lru_cache(maxsize=64)
def table_lanes(config: Config) -> int:
    """Bytes of the table of ACT_LUT that one step reads: the largest power of two up to ``vector_lanes``."""
    return 1 << config.vector_lanes.bit_length() - 1


def table_reads(config: Config, op: Op) -> int:
    """Reads of an operation's table, before all others."""
    return TABLE_BYTES // table_lanes(config) if INSTRUCTIONS[op].looks_up else 0


def vector_reads(op: Op, view: View) -> int:
    """Reads per pixel and block: kh * kw for POOL, 2 with two operands, else 1."""
    row = INSTRUCTIONS[op]
    return view.taps if row.taps else 1 + row.two_operands


@lru_cache(maxsize=65536)
def vector_duration(config: Config, op: Op, *, pixels: int, blocks: int, reads: int) -> int:
    """Cycles from start to end; ``reads`` per pixel and block, see :func:`vector_reads`.

    A read takes its cycle whether any of its bytes lies in the region or not. ACT_LUT first reads its table.
    """
    return CHECK + table_reads(config, op) + pixels * blocks * reads + to_end(INSTRUCTIONS[op].stage)
