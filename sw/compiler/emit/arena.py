"""Free SRAM: which operation used each part last, and areas for operands and results of the vector unit's layers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div, format_bytes
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.hazards import Range
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

Runs = tuple[tuple[int, int], ...]
"""Whole banks in a row: (first bank, banks)."""

_CELLS = 16
"""Cells of a bank. Uses are told apart by cell."""
_TAKEN = 1 << 60
_MANY = 1 << 29
"""More than the operations of a program."""
_PENDING = 8
"""Regions that are cached, as the same ones tend to recur."""


def check_padding(config: Config, pads: ir.Pads, pixel: int) -> None:
    """Padding must lie where its offsets are not taken for others: those have twice the bytes of the SRAM to be in.

    Raises
    ------
    CompileError
        ``pads`` of pixels that are ``pixel`` bytes apart are too far out.
    """
    top, left, bottom, right = pads
    most = 1 << config.offset_bits - 1
    for rows in (top, bottom):
        if rows > most:
            raise CompileError(f"padding above and below must be at most {most} rows, not {rows}: give more SRAM")
    for columns in (left, right):
        if columns * pixel > most:
            raise CompileError(
                f"padding beside a row must be at most {format_bytes(most)}, not {columns} pixels of {pixel} bytes:"
                " give more SRAM"
            )


class Arena:
    """SRAM in cells, each with the number of the last operation that touches it; 0 if none does.

    Parameters
    ----------
    config
        The accelerator.
    small
        Whether areas of less than a bank may share one.
    by_bank
        Whether buffers go to the banks that have been out of use for longest: a load would wait for the port of a bank
        that is in use.
    """

    def __init__(self, config: Config, *, small: bool = False, by_bank: bool = False) -> None:
        self.small, self.by_bank = small, by_bank
        self.cell = max(config.bank_bytes // _CELLS, config.word_bytes)
        self.per_bank = config.bank_bytes // self.cell
        self._last = [0] * (config.sram // self.cell)
        self._pending: dict[tuple[int, int], int] = {}
        self._count = self._before = 1  # as if there had been one before, so that `keep` is heard from the beginning

    def take(self, operations: Iterable[Iterable[Range]]) -> None:
        """The next step's operations, each with the regions that it touches."""
        self._before = self._count
        for regions in operations:
            self._count += 1
            for region in regions:
                self.touch(region, self._count)

    def keep(self, regions: Iterable[Range]) -> None:
        """Regions that the step behind the next one needs: better not to be used, but rather than those of the last
        step."""
        self._settle()
        for low, length in regions:
            cells = slice(low // self.cell, ceil_div(low + length, self.cell))
            self._last[cells] = [max(last, self._before) for last in self._last[cells]]

    def touch(self, region: Range, number: int) -> None:
        """An operation, of a higher number than those before, touches a region."""
        low, length = region
        self._pending[low // self.cell, -(-(low + length) // self.cell)] = number
        if len(self._pending) > _PENDING:
            self._settle()

    def touched(self, region: Range) -> int:
        """The highest number of an operation that touches the region's cells."""
        low, high = region[0] // self.cell, -(-(region[0] + region[1]) // self.cell)
        found = max(self._last[low:high])
        for (first, end), number in self._pending.items():
            if number > found and first < high and low < end:
                found = number
        return found

    def _settle(self) -> None:
        """Note by cell what was noted by region."""
        for (first, end), number in sorted(self._pending.items(), key=itemgetter(1)):
            self._last[first:end] = [number] * (end - first)
        self._pending.clear()

    def banks(self, free: Runs, count: int) -> tuple[int, Runs] | None:
        """(first, what stays free) of ``count`` banks in a row, the longest out of use; None where there are none."""
        if not count:
            return 0, free
        self._settle()
        last = np.array(self._last).reshape(-1, self.per_bank).max(axis=1).tolist()
        found: tuple[int, int, int] | None = None
        for first, length in free:
            for start in range(first, first + length - count + 1):
                inside = 0 < start - first < length - count  # leaves two pieces
                candidate = max(last[start : start + count]), int(inside), start
                found = min(found, candidate) if found else candidate
        if found is None:
            return None
        start = found[2]
        rest: list[tuple[int, int]] = []
        for first, length in free:
            if first <= start < first + length:
                rest += [(first, start - first), (start + count, first + length - start - count)]
            else:
                rest.append((first, length))
        return start, tuple(run for run in rest if run[1])

    def slots(self, free: Runs, size: int, most: int) -> list[int]:
        """Addresses of up to ``most`` buffers of ``size`` bytes in the free banks, the longest out of use first."""
        self._settle()
        used = np.array(self._last)
        last = np.full_like(used, _TAKEN)
        for cells in _cells_of(free, self.per_bank):
            last[cells] = used[cells]
        width = ceil_div(size, self.cell)
        if width > len(last):
            return []
        latest, found = _highest(last, width), list[int]()
        if self.by_bank:
            banks = used.reshape(-1, self.per_bank).max(axis=1).repeat(self.per_bank)
            latest = np.where(latest == _TAKEN, _TAKEN, _highest(banks, width) * _MANY + latest)
        while len(found) < most:
            start = int(latest.argmin())
            if latest[start] == _TAKEN:
                break
            latest[max(start - width + 1, 0) : start + width] = _TAKEN  # all that overlap it
            found.append(start * self.cell)
        return found


def _highest(last: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """The highest number of so many cells in a row, from each one on."""
    found: NDArray[np.int64] = np.lib.stride_tricks.sliding_window_view(last, width).max(axis=1)
    return found


def runs_of(free: int, banks: int) -> Runs:
    """Runs of the banks whose bits are set."""
    runs: list[tuple[int, int]] = []
    for bank in range(banks):
        if free >> bank & 1:
            if runs and sum(runs[-1]) == bank:
                runs[-1] = runs[-1][0], runs[-1][1] + 1
            else:
                runs.append((bank, 1))
    return tuple(runs)


def without(config: Config, free: Runs, regions: Iterable[Range]) -> Runs:
    """Those of some banks in which none of the regions lie."""
    left = sum((1 << count) - 1 << first for first, count in free)
    for at, size in regions:
        first, end = at // config.bank_bytes, ceil_div(at + size, config.bank_bytes)
        left &= ~((1 << end) - (1 << first))
    return runs_of(left, config.banks)


def _cells_of(free: Iterable[tuple[int, int]], per_bank: int) -> list[slice]:
    return [slice(first * per_bank, (first + length) * per_bank) for first, length in free]


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
        if self._arena.small and 0 < operands < self._bank and not results:
            return self._arena.slots(self._free, operands, 1)[0], 0
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
    room: Room,
    bytes_of: Callable[[int, int], tuple[int, int]],
    height: int,
    channels: int,
    smallest: str,
    bands: int = 1,
) -> Iterator[Tile]:
    """A result of ``height`` rows in tiles as large as there is room for: in so many ``bands``, else halved,
    rows first, with two buffers that take turns if there is more than one.

    ``bytes_of``: (operands', results' bytes) of so many rows and channels; ``smallest``: what one row of one channel
    needs, in words.

    Raises
    ------
    CompileError
        Not even one row of one channel fits.
    """
    rows, part = ceil_div(height, bands), channels

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
