"""The recurrence of `isa.timing.sequencer` in plain Python: where there is no compiler, and what the compiled one is
held against (`isa/timing/recurrence.cpp`, the same things under the same names)."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.isa.instructions.checks import READS, Region, share_byte
from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, Cause, Op, Unit
from dovetail.isa.timing.sequencer import CHECK, END_TO_DONE, FIRST_ACTION, NEVER, PAGE_READY, UNIT_OF, Int64s, Uint64s

_LOAD = int(Unit.LOAD)
_UNIT_OF = UNIT_OF.tolist()
_WRITES, _WAITS = int(Op.CFG), int(Op.SYNC)


class Played(NamedTuple):
    """Of each word its unit, the first cycle at the head of the queue, and the cycle in which it leaves (an operation's
    start); the start of each fetch; and the cycle of the latest dispatch."""

    units: Int64s
    heads: Int64s
    pops: Int64s
    fetches: Int64s
    last: int


class FirstFault(NamedTuple):
    """The element that faults, -1 if none does, why, in which cycle; and which elements fail their checks."""

    element: int
    cause: Cause
    cycle: int
    fails: npt.NDArray[np.bool_]


class Recurrence:
    """Front end, queues and units, after the words that were taken so far.

    Parameters
    ----------
    depth
        Places of each queue.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.now = FIRST_ACTION - 1
        """The cycle in which the latest word or fetch was dispatched."""
        self.free = [0] * len(Unit)
        """Per unit the first cycle in which it can take what comes next."""
        self.begun, self.ended = NEVER, 0
        """The first cycle of the first operation, and the first one behind the last operation."""
        self.pops: list[list[int]] = [[] for _ in Unit]
        """Per unit the cycle in which each word or fetch left the queue."""
        self.done: list[list[int]] = [[] for _ in Unit]
        """Per unit the cycle in which the completion of each operation shows."""
        self._page_ready = 0

    def _enter(self, unit: int) -> int:
        """Dispatch a word; the first cycle in which it can be at the head of its queue."""
        queue = self.pops[unit]
        place = queue[-self.depth] if len(queue) >= self.depth else -1
        self.now = max(self.now, place) + 1
        return max(self.free[unit], self.now + 1)

    def fetch(self, cycles: int) -> int:
        """Dispatch the fetch of the page behind the latest one; its start."""
        start = self._enter(_LOAD)
        end = min(start + cycles, NEVER)
        self.pops[_LOAD].append(start)
        self.free[_LOAD] = end + 1
        self._page_ready = end + PAGE_READY
        return start

    def turn(self) -> None:
        """On to the page that was fetched last: what is dispatched next waits for it."""
        self.now = max(self.now, self._page_ready - 1)

    def take(self, word: int, cycles: int) -> tuple[int, int, int]:
        """A word of the page; its unit, the first cycle at the head of the queue, and the pop. ``cycles``: from start
        to end, if it is an operation."""
        code, middle = word & 0xFF, word >> 8 & 0xFF
        unit = middle >> 6 if code == _WRITES else middle if code == _WAITS else _UNIT_OF[code]
        head = time = self._enter(unit)
        if code == _WAITS:
            other = self.done[word >> 16 & 0xFF]
            target = len(other) - (word >> 32)
            if target > 0:
                time = max(time, other[target - 1])
        self.pops[unit].append(time)
        self.free[unit] = time + 1
        if code not in (_WRITES, _WAITS):
            self.free[unit] = shows = min(time + cycles + 1, NEVER)
            self.done[unit].append(shows)
            self.begun, self.ended = min(self.begun, time), max(self.ended, shows)
        return unit, head, time


class Clock(Recurrence):
    """The recurrence of a program whose end is not known yet. It fetches a page behind the last one, until `end` takes
    that back.

    Parameters
    ----------
    fetch
        Cycles from the start to the end of a page's fetch.
    """

    def __init__(self, fetch: int, depth: int = QUEUE_DEPTH) -> None:
        super().__init__(depth)
        self._cycles = fetch
        self._left = 0  # words of the page
        self._before = self.now, self.begun, self.ended, self.free, [0]
        """Before a page was fetched ahead: the same, and how long all lists were."""
        self._page: list[tuple[int, int]] = []
        """What there was on the page."""
        self.fetch(fetch)

    def add(self, words: Sequence[int], first: int, cycles: int) -> None:
        """What comes next: ``words`` from the ``first`` on, with at most one operation, of so many cycles."""
        for word in words[first:]:
            if not self._left:
                self._turn()
            self._left -= 1
            self._page.append((word, cycles))
            self.take(word, cycles)

    def ready(self, unit: int, words: int) -> int:
        """The cycle in which ``words`` more words could be in a unit's queue; at most as many as it holds."""
        place = len(self.pops[unit]) + words - 1 - self.depth
        return max(self.now + words, self.pops[unit][place] + 1 if place >= 0 else 0)

    def end(self) -> int:
        """The word that comes now ends the program, and no page is fetched behind its own. Nothing may follow.

        Returns the cycles of the program.
        """
        if self._left:
            self.now, self.begun, self.ended, self.free, counts = self._before
            for times, count in zip((*self.pops, *self.done), counts, strict=True):
                del times[count:]
            for word, cycles in self._page:
                self.take(word, cycles)
        else:
            self.turn()
        return max(self.now + 1, max(self.free) - 1) + END_TO_DONE

    def _turn(self) -> None:
        """On to the next page."""
        self.turn()
        counts = [len(times) for times in (*self.pops, *self.done)]
        self._before = self.now, self.begun, self.ended, self.free.copy(), counts
        self._page.clear()
        self._left = PAGE_WORDS
        self.fetch(self._cycles)


def play(words: Uint64s, cycles: Int64s, fetches: Int64s, depth: int) -> Played:
    """See `isa.timing.core.play`."""
    recurrence, lasting = Recurrence(depth), iter(cycles.tolist())
    starts, rows = [recurrence.fetch(int(fetches[0]))], []
    for number, word in enumerate([*words.tolist(), None]):
        page, place = divmod(number, PAGE_WORDS)
        if place == 0 and page < len(fetches):
            recurrence.turn()
            if page + 1 < len(fetches):
                starts.append(recurrence.fetch(int(fetches[page + 1])))
        if word is not None:
            rows.append(recurrence.take(word, 0 if word & 0xFF in (_WRITES, _WAITS) else next(lasting)))
    units, heads, pops = np.array(rows, np.int64).reshape(-1, 3).T
    return Played(units, heads, pops, np.array(starts), recurrence.now)


def first_fault(
    units: Int64s, starts: Int64s, ends: Int64s, causes: Int64s, errors: Int64s, regions: Int64s, bank_bytes: int,
    halt: int,
) -> FirstFault:  # fmt: skip
    """See `isa.timing.core.first_fault`."""
    fails = np.zeros(len(units), np.bool_)
    first, cause, who = -1, 0, len(Unit)
    running: list[tuple[int, _Claims]] = [(-1, _Claims())] * len(Unit)
    for n in np.lexsort((units, starts)).tolist():
        start, unit = int(starts[n]), int(units[n])
        if start > halt:
            break
        verified, why = start + CHECK, int(causes[n])
        if not why:
            claims = _Claims(regions[n].tolist())
            for until, other in running:
                if until < verified:
                    continue
                if claims.share_port(other, bank_bytes):
                    why = Cause.BANK_CONFLICT
                    break
                if claims.races(other):
                    why = Cause.RACE  # unless there is a conflict with a third unit
            if not why and claims.regions:
                running[unit] = int(ends[n]), claims
        fails[n] = why != 0
        cycle, why = (verified, why) if why else (int(ends[n]), int(errors[n]))
        if why and (cycle, unit) < (halt, who):
            first, cause, who, halt = n, why, unit, cycle
    return FirstFault(first, Cause(cause), halt, fails)


class _Claims:
    """The regions of an operation."""

    def __init__(self, regions: Sequence[Region] = ()) -> None:
        self.regions = [(address, size) for address, size in regions if size]
        self.reads = [(address, size) for address, size in regions[:READS] if size]
        self.writes = [(address, size) for address, size in regions[READS:] if size]

    def share_port(self, other: "_Claims", bank_bytes: int) -> bool:
        """Whether both read, or both write, some bank."""
        pairs = [*product(self.reads, other.reads), *product(self.writes, other.writes)]
        return any(
            a // bank_bytes <= (b + m - 1) // bank_bytes and b // bank_bytes <= (a + n - 1) // bank_bytes
            for (a, n), (b, m) in pairs
        )

    def races(self, other: "_Claims") -> bool:
        """Whether one of them writes bytes that the other reads."""
        pairs = [*product(self.writes, other.reads), *product(other.writes, self.reads)]
        return any(share_byte(*pair) for pair in pairs)
