"""Which operation writes a part of system memory last."""

from dovetail.sw.compiler.emit.hazards import Range

_PAGE = 4096
"""Bytes of system memory whose stores are kept together."""
_RANGES = 8
"""Stores to a page that are told apart."""
_Stored = tuple[int, int, int]
"""First byte, byte after the last, number of the operation."""


class Stores:
    """Which operation writes a part of system memory last. Ranges are kept by page, a few of them in each."""

    def __init__(self) -> None:
        self._pages: dict[int, list[_Stored]] = {}
        """Neighbours may share one list, which is never changed."""
        self._log: list[_Stored] = []  # what is not by page yet
        self._low, self._high = 1 << 64, 0  # of all ranges

    def add(self, memory: Range, number: int) -> None:
        """An operation, of a higher number than those before, writes a range."""
        low, high = memory[0], sum(memory)
        self._log.append((low, high, number))
        if low < self._low:
            self._low = low
        if high > self._high:
            self._high = high

    def latest(self, memory: Range) -> int:
        """The highest number of an operation that writes to a range; 0 if none does."""
        low, high, found = memory[0], sum(memory), 0
        if high <= self._low or self._high <= low:
            return 0
        for stored in self._log:
            self._by_page(stored)
        self._log.clear()
        pages = self._pages
        before: list[_Stored] | None = None
        for page in _pages(low, high):
            entries = pages.get(page)
            if entries is not before:
                before = entries
                for first, end, number in entries or ():
                    if number > found and first < high and low < end:
                        found = number
        return found

    def _by_page(self, stored: _Stored) -> None:
        low, high, _ = stored
        pages = self._pages
        before: list[_Stored] | None = None
        now = [stored]
        for page in _pages(low, high):
            entries = pages.get(page)
            if entries is not before:
                before = entries
                now = [entry for entry in entries or () if entry[0] < low or entry[1] > high]
                if len(now) == _RANGES:
                    (a, b, _), (c, d, later), *rest = now
                    now = [(min(a, c), max(b, d), later), *rest]
                now.append(stored)
            pages[page] = now


def _pages(low: int, high: int) -> range:
    return range(low // _PAGE, (high - 1) // _PAGE + 1)
