"""Where the vector unit's layers have their buffers: operands in banks of one kind, results in banks of another."""

from collections.abc import Callable

from dovetail.isa.config import Config, ceil_div, format_bytes
from dovetail.sw.compiler.arena import Arena, Runs
from dovetail.sw.errors import CompileError


class Room:
    """Two areas of free SRAM without a bank in common.

    Parameters
    ----------
    config, arena
        The accelerator, and what is known of its SRAM.
    free
        The banks to take.
    operands, results
        Whether these need an area.

    Members ``operands``, ``results``: the most bytes that each area can have.
    """

    def __init__(self, config: Config, arena: Arena, free: Runs, *, operands: bool, results: bool) -> None:
        self._bank, self._arena, self._free = config.bank_bytes, arena, free
        runs = sorted(free, key=lambda run: -run[1])
        one = runs[0] if runs else (0, 0)
        two = runs[1] if len(runs) > 1 else (0, 0)
        if operands and results and 2 * two[1] < one[1]:
            half = one[1] // 2
            one, two = (one[0], half), (one[0] + half, one[1] - half)
        elif not operands:
            one, two = two, one
        self._first = one, two
        self.operands = one[1] * self._bank if operands else 0
        self.results = two[1] * self._bank if results else 0

    def place(self, operands: int, results: int) -> tuple[int, int]:
        """(operands', results' address) of areas of so many bytes, which have been out of use for longest."""
        found = self._arena.banks(self._free, ceil_div(operands, self._bank))
        if found:
            first, rest = found
            other = self._arena.banks(rest, ceil_div(results, self._bank))
            if other:
                return first * self._bank, other[0] * self._bank
        return self._first[0][0] * self._bank, self._first[1][0] * self._bank


def largest(
    fits: Callable[[int, int], bool], rows: int, channels: int, smallest: str, config: Config
) -> tuple[int, int]:
    """(rows, channels) of a tile: halved, rows first, until it fits. Raises CompileError."""
    while not fits(rows, channels) and rows > 1:
        rows = ceil_div(rows, 2)
    while not fits(rows, channels) and channels > 1:
        channels = ceil_div(channels, 2)
    if not fits(rows, channels):
        raise CompileError(f"{smallest}, twice, must fit in half of {format_bytes(config.sram_bytes)}: give more SRAM")
    return rows, channels
