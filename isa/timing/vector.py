"""Timing of the vector unit: one read of ``vector_lanes`` channels per cycle, fully pipelined."""

from functools import lru_cache

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK

VECTOR_LANE = 18
"""Latency of every operation of the pooling and element-wise pipeline (`hw.vector.rescale.VectorLane`).

Eleven stages form the operand of the final scaling (an int32's left shift; for an addition: differences, partial
products, products, rounding in two, alignment, rounding, sum and comparison, choice, magnitude); then come the last
seven of :data:`~dovetail.isa.timing.array.REQUANTISE`.
"""

VECTOR_DIRECT = 3
"""The same for results that need no scaling: look-up or shift, fraction, rounding."""

WALK = 4
"""Cycles from a step of the loops to its read: position, bounds, lanes, address."""

TAPS = 2
"""Cycles from the last bytes of an output to the operand of its final scaling: zero point, sum or maximum."""

OUTPUT = 1
"""Cycles from a result to the write port."""

PIPELINE = WALK + SRAM_READ + TAPS + VECTOR_LANE + OUTPUT
"""Cycles from the last step to the end of the instruction, in which its result is on the write port."""

DIRECT_PIPELINE = WALK + SRAM_READ + TAPS + VECTOR_DIRECT + OUTPUT
"""The same for operations whose results are not scaled."""

TABLE_BYTES = 256


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
    return view["GEOMETRY", "kh"] * view["GEOMETRY", "kw"] if row.taps else 1 + row.two_operands


@lru_cache(maxsize=65536)
def vector_duration(config: Config, op: Op, *, pixels: int, blocks: int, reads: int) -> int:
    """Cycles from start to end; ``reads`` per pixel and block, see :func:`vector_reads`.

    A read takes its cycle whether any of its bytes lies in the region or not. ACT_LUT first reads its table.
    """
    pipeline = DIRECT_PIPELINE if INSTRUCTIONS[op].direct else PIPELINE
    return CHECK + table_reads(config, op) + pixels * blocks * reads + pipeline
