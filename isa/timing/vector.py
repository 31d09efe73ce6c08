"""Timing of the vector unit: one read of ``vector_lanes`` channels per cycle, fully pipelined."""

from functools import lru_cache

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Pass, Stage
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK

WALK = 4
"""Cycles from a step of the loops to its read: position, bounds, lanes, address."""

TAPS = 2
"""Cycles from the last bytes of an output to the operands of its stage: zero point, sum or maximum."""

OUTPUT = 1
"""Cycles from a result to the write port."""


RECORDS_LATE = 6
"""Steps of a last pass from a block to its records, which the stage needs that much later: some turns, see
:func:`turn_of`."""


def to_end(stage: Stage) -> int:
    """Cycles from the last step to the end of the instruction, in which its result is on the write port."""
    return WALK + SRAM_READ + TAPS + stage.latency + OUTPUT


@lru_cache(maxsize=64)
def table_lanes(config: Config) -> int:
    """Bytes of a table that one step reads: the largest power of two up to ``vector_lanes``."""
    return 1 << config.vector_lanes.bit_length() - 1


def table_reads(config: Config, op: Op) -> int:
    """Reads of an operation's table, before all others."""
    row = INSTRUCTIONS[op]
    return row.table_bytes // table_lanes(config) if row.looks_up else 0


def vector_reads(op: Op, view: View) -> int:
    """Reads per pixel and block: kh * kw for POOL, 2 with two operands, else 1."""
    row = INSTRUCTIONS[op]
    return view.taps if row.taps else 1 + row.two_operands


def rows_at_once(config: Config, op: Op) -> int:
    """Pixels side by side whose rows an operation goes over together, block after block."""
    return max(1, config.softmax if op == Op.SOFTMAX else config.norm if INSTRUCTIONS[op].records else 1)


def turn_of(rows: int) -> tuple[int | None, ...]:
    """The steps of a turn of the last pass over so many rows at once with records: the row of which a block is read,
    or None where it is a word of the block's records, of which there are two."""
    half = ceil_div(rows, 2)
    return (None, *range(half), None, *range(half, rows))


def vector_passes(config: Config, op: Op) -> int:
    """How often a block is read: once for each pass over its row, in a serial one over one row once for each lane."""
    passes = INSTRUCTIONS[op].passes or (Pass(),)
    lanes = config.vector_lanes if rows_at_once(config, op) == 1 else 1
    return sum(lanes if each.serial else 1 for each in passes)


def vector_steps(config: Config, op: Op, reads: int) -> int:
    """Steps per block in all passes, of as many rows as there are at once."""
    passes, rows = INSTRUCTIONS[op].passes or (Pass(),), rows_at_once(config, op)
    return sum(config.vector_lanes if each.serial else rows * reads for each in passes)


def groups_of(config: Config, op: Op, view: View) -> int:
    """How often an operation goes over its rows, a last group of fewer pixels in a line included."""
    return view["TILE", "height"] * ceil_div(view["TILE", "width"], rows_at_once(config, op))


def vector_waits(op: Op, rounding: int) -> int:
    """Cycles per group of rows in which its passes wait; ``rounding`` is that of MODE."""
    return sum(each.wait[rounding] for each in INSTRUCTIONS[op].passes)


def drain_steps(config: Config, op: Op, blocks: int) -> int:
    """Steps after the last row, in which its results come where these come a row late."""
    drain = INSTRUCTIONS[op].drain
    return blocks * (config.vector_lanes if drain.serial else 1) if drain else 0


def drain_cycles(config: Config, op: Op, blocks: int, rounding: int) -> int:
    """Cycles of these steps, and of the wait before them."""
    drain = INSTRUCTIONS[op].drain
    return drain.wait[rounding] + drain_steps(config, op, blocks) if drain else 0


def record_reads(op: Op, blocks: int) -> int:
    """Reads of records, once for each group of rows."""
    return 2 * blocks if INSTRUCTIONS[op].records else 0


def record_steps(op: Op, blocks: int) -> int:
    """Steps per group of rows beside those that read a block, of which some read nothing."""
    return 2 * blocks + RECORDS_LATE if INSTRUCTIONS[op].records else 0


@lru_cache(maxsize=65536)
def vector_duration(config: Config, op: Op, *, groups: int, blocks: int, reads: int, rounding: int = 0) -> int:
    """Cycles from start to end; ``groups`` of pixels, see :func:`groups_of`; ``reads`` per pixel and block, see
    :func:`vector_reads`.

    A read takes its cycle whether any of its bytes lies in the region or not. An operation with a table first reads
    that. One with passes over its rows goes over a group's blocks in each of them, before the next group; one with
    records reads these in the last pass. The rows of a softmax's group end one after the other.
    """
    rows = rows_at_once(config, op)
    steps = blocks * vector_steps(config, op, reads) + record_steps(op, blocks) + vector_waits(op, rounding)
    steps = groups * steps + drain_cycles(config, op, blocks, rounding)
    if INSTRUCTIONS[op].records:
        steps -= RECORDS_LATE + (turn_of(rows)[-1] is None)  # after the last output's
    else:
        steps += rows - 1
    return CHECK + table_reads(config, op) + steps + to_end(INSTRUCTIONS[op].stage)
