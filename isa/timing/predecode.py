"""Decodes a whole program at once: what the front end makes of each word, as arrays."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import has
from dovetail.isa.instructions.table import BY_NUMBER, INSTRUCTIONS, PAGE_WORDS, WORD_BYTES, Cause, Op, Unit, to_bytes

Words = bytes | Sequence[int] | npt.NDArray[np.uint64]

UNIT_OF = np.full(256, -1)
"""By opcode the unit that executes it; -1 where none does."""
for _op, _row in INSTRUCTIONS.items():
    if _row.unit is not None:
        UNIT_OF[_op] = _row.unit


def _tables() -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64], npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    known = np.zeros(256, bool)
    reserved = np.zeros(256, np.uint64)
    for op, row in INSTRUCTIONS.items():
        known[op], reserved[op] = True, row.reserved
    exists = np.zeros(256, bool)
    unused = np.zeros(256, np.uint64)
    for number, register in BY_NUMBER.items():
        exists[number], unused[number] = True, ~register.mask & 0xFFFF_FFFF
    return known, reserved, exists, unused


_KNOWN, _RESERVED, _EXISTS, _UNUSED = _tables()


def as_words(program: Words) -> npt.NDArray[np.uint64]:
    """A program's words as an array, filled up to whole pages with zero words."""
    if isinstance(program, np.ndarray):
        words = program.astype(np.uint64, copy=False)
    else:
        data = program if isinstance(program, bytes) else to_bytes(program)
        words = np.frombuffer(data + bytes(-len(data) % WORD_BYTES), "<u8")
    rest = -len(words) % PAGE_WORDS
    return np.concatenate([words, np.zeros(rest, np.uint64)]) if rest else words


def front_end_faults(config: Config, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """The cause that the front end raises for each word, 0 where it dispatches the word."""
    code = (words & np.uint64(0xFF)).astype(np.intp)
    middle = (words >> np.uint64(8) & np.uint64(0xFF)).astype(np.intp)
    upper = (words >> np.uint64(16) & np.uint64(0xFF)).astype(np.intp)
    is_cfg, is_sync = code == Op.CFG, code == Op.SYNC
    faults = np.zeros(len(words), np.uint8)
    # From the least to the most important: what comes later overwrites.
    absent = np.isin(code, [op for op in INSTRUCTIONS if not has(config, op)])
    if not config.vector:
        absent |= is_cfg & (middle >> 6 == Unit.VECTOR)
        absent |= is_sync & ((middle == Unit.VECTOR) | (upper == Unit.VECTOR))
    faults[absent] = Cause.UNIT_ABSENT
    faults[is_cfg & (words >> np.uint64(32) & _UNUSED[middle] != 0)] = Cause.RESERVED
    faults[is_cfg & ~_EXISTS[middle] | is_sync & ((middle > 3) | (upper > 3))] = Cause.REGISTER
    faults[words & _RESERVED[code] != 0] = Cause.RESERVED
    faults[~_KNOWN[code]] = Cause.OPCODE
    return faults
