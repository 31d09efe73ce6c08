"""Which bytes of system memory a program reads from the host, and which it stores for it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit, unit_of
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.sequencer import Words, as_words
from dovetail.sw.compiler.emit.hazards import transfer_rows

MOST_ROWS = 1 << 16
"""Transfers of up to so many rows are examined row by row; larger ones count as everything."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Traffic:
    """Bytes of system memory, from address 0 on.

    ``taken``: read by the program before it has stored them itself, in the order of its words. ``stored``: written by
    it, if it runs to its END.
    """

    taken: Mask
    stored: Mask


def traffic(program: Words, base: int, memory_bytes: int) -> Traffic:
    """What a program reads and writes of the first ``memory_bytes`` bytes; its own pages do not count. ``base`` is what
    its addresses are relative to."""
    found = Traffic(np.zeros(memory_bytes, np.bool_), np.zeros(memory_bytes, np.bool_))
    words = as_words(program)
    ends = np.flatnonzero((words & np.uint64(0xFF)) == Op.END)
    operations = Operations(words[: ends[0]] if len(ends) else words)
    for op, registers in zip(operations.ops.tolist(), operations.registers(), strict=True):
        if INSTRUCTIONS[op].moves:
            _add(found, Op(op), View(unit_of(op), registers), base)
    return found


def _add(found: Traffic, op: Op, view: View, base: int) -> None:
    if view["COUNT", "rows"] * view["COUNT", "planes"] > MOST_ROWS:
        rows = [(0, len(found.taken))]
    else:
        rows = transfer_rows(op, view.values, base)
    for start, size in rows:
        part = slice(start, start + size)
        if view.unit == Unit.LOAD:
            found.taken[part] |= ~found.stored[part]
        else:
            found.stored[part] = True
