"""What a host knows of a board's memory, and what of it a program reads and writes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import INSTRUCTIONS, Op, Unit, unit_of
from dovetail.isa.link import WORD
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.sequencer import Words, as_words
from dovetail.sw.compiler.emit.hazards import transfer_rows
from dovetail.sw.runtime.board.link import Link
from dovetail.sw.runtime.engine import Bytes

GAP = 32
"""Pieces closer than this many bytes go over the link together: a request of its own costs about as much."""
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


class Contents:
    """A board's memory, as far as the host knows it. ``link``: to the board."""

    def __init__(self, link: Link) -> None:
        self._link = link
        size = link.board.memory_bytes
        self._contents: Bytes = np.zeros(size, np.uint8)
        self._known: Mask = np.zeros(size, np.bool_)

    def forget(self) -> None:
        """Nothing is known any more."""
        self._known[:] = False

    def send(self, memory: Bytes, needed: Mask) -> None:
        """Write what is needed and not there yet."""
        size = len(memory)
        there = self._known[:size] & (self._contents[:size] == memory)
        for first, past in pieces(needed & ~there):
            self._link.write(first, memory[first:past].tobytes())
            self._contents[first:past] = memory[first:past]
            self._known[first:past] = True

    def fetch(self, memory: Bytes, stored: Mask) -> None:
        """Read what programs have stored."""
        for first, past in pieces(stored):
            data = np.frombuffer(self._link.read(first, past - first), np.uint8)
            self._contents[first:past] = data
            self._known[first:past] = True
            np.copyto(memory[first:past], data, where=stored[first:past])


def pieces(wanted: Mask) -> list[tuple[int, int]]:
    """(first byte, byte after the last) of what covers the wanted bytes, in whole words; pieces with less than
    :data:`GAP` bytes between them are one. ``wanted`` is a multiple of 4 bytes."""
    words = np.flatnonzero(wanted.reshape(-1, WORD).any(axis=1))
    if not len(words):
        return []
    breaks = np.flatnonzero(np.diff(words) > GAP // WORD)
    firsts = words[np.concatenate(([0], breaks + 1))]
    lasts = words[np.concatenate((breaks, [len(words) - 1]))]
    return [(first * WORD, (last + 1) * WORD) for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def traffic(program: Words, base: int, memory_bytes: int) -> Traffic:
    """What a program reads and writes of the first ``memory_bytes`` bytes; its own pages do not count. ``base`` is what
    its addresses are relative to."""
    found = Traffic(np.zeros(memory_bytes, np.bool_), np.zeros(memory_bytes, np.bool_))
    words = as_words(program)
    ends = np.flatnonzero((words & np.uint64(0xFF)) == Op.END)
    operations = Operations(words[: ends[0]] if len(ends) else words)
    for op, registers in zip(operations.ops.tolist(), operations.registers(), strict=True):
        if op not in INSTRUCTIONS:
            break  # the program faults there
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
