"""Where the vector unit's layers have their buffers: operands in banks of one kind, results in banks of another."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from dovetail.isa.common.sizes import ceil_div, format_bytes
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.arena import Arena, Runs
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

    Members ``operands``, ``results``: the most bytes that each area can have; ``sram``: the size of it all, in words.
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
        self.sram = format_bytes(config.sram)

    def fits(self, operands: int, results: int) -> bool:
        """Whether there is an area of so many bytes for each."""
        return operands <= self.operands and results <= self.results

    def place(self, operands: int, results: int) -> tuple[int, int]:
        """(operands', results' address) of areas of so many bytes, which have been out of use for longest."""
        found = self._arena.banks(self._free, ceil_div(operands, self._bank))
        if found:
            first, rest = found
            other = self._arena.banks(rest, ceil_div(results, self._bank))
            if other:
                return first * self._bank, other[0] * self._bank
        return self._first[0][0] * self._bank, self._first[1][0] * self._bank


@dataclass(frozen=True)
class Tile:
    """``rows`` rows from ``first`` on of ``channels`` channels from ``channel`` on, and the addresses of its buffers;
    ``uncut``: rows and channels of the tiles that are not at an end."""

    first: int
    rows: int
    channel: int
    channels: int
    operands: int
    results: int
    uncut: tuple[int, int]


def tiles(
    room: Room, bytes_of: Callable[[int, int], tuple[int, int]], height: int, channels: int, smallest: str
) -> Iterator[Tile]:
    """A result of ``height`` rows in tiles as large as there is room for: whole, else halved, rows first, with two
    buffers that take turns. ``bytes_of``: (operands', results' bytes) of so many rows and channels; ``smallest``:
    what one row of one channel needs, in words.

    Raises
    ------
    CompileError
        Not even one row of one channel fits.
    """
    rows, part = height, channels

    def needed() -> tuple[int, int]:
        copies = 1 if (rows, part) == (height, channels) else 2
        operands, results = bytes_of(rows, part)
        return copies * operands, copies * results

    while not room.fits(*needed()):
        if rows > 1:
            rows = ceil_div(rows, 2)
        elif part > 1:
            part = ceil_div(part, 2)
        else:
            raise CompileError(f"{smallest}, twice, must fit in half of {room.sram}: give more SRAM")
    starts, steps = room.place(*needed()), bytes_of(rows, part)
    for number, (channel, first) in enumerate(product(range(0, channels, part), range(0, height, rows))):
        operands, results = (start + number % 2 * step for start, step in zip(starts, steps, strict=True))
        size = min(rows, height - first)
        yield Tile(first, size, channel, min(part, channels - channel), operands, results, (rows, part))
