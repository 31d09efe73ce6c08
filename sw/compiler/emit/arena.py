"""Tracks which operation used each part of SRAM last, and finds the free space that has been unused for longest."""

from collections.abc import Iterable
from operator import itemgetter

import numpy as np

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.hazards import Range

Runs = tuple[tuple[int, int], ...]
"""Whole banks in a row: (first bank, banks)."""

_CELLS = 16
"""Cells of a bank. Uses are told apart by cell."""
_TAKEN = 1 << 60
_PENDING = 8
"""Regions that are cached, as the same ones tend to recur."""


class Arena:
    """SRAM in cells, each with the number of the last operation that touches it; 0 if none does.

    Parameters
    ----------
    config
        The accelerator.
    """

    def __init__(self, config: Config) -> None:
        self.cell = max(config.bank_bytes // _CELLS, config.word_bytes)
        self.per_bank = config.bank_bytes // self.cell
        self._last = [0] * (config.sram // self.cell)
        self._pending: dict[tuple[int, int], int] = {}

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
        found: list[int] = []
        while len(found) < most and width <= len(last):
            latest = np.lib.stride_tricks.sliding_window_view(last, width).max(axis=1)
            start = int(latest.argmin())
            if latest[start] == _TAKEN:
                break
            last[start : start + width] = _TAKEN
            found.append(start * self.cell)
        return found


def _cells_of(free: Iterable[tuple[int, int]], per_bank: int) -> list[slice]:
    return [slice(first * per_bank, (first + length) * per_bank) for first, length in free]
