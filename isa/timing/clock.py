"""Times a program while it grows: when its words go out, when units are free.

The recurrence is that of `dovetail.isa.timing.recurrence`, without faults: there it is one loop over known words. As
nobody knows yet where the program ends, a page is fetched ahead even of the last one, until :meth:`Clock.end`.
"""

from typing import NamedTuple

from dovetail.isa.config import Config
from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, Unit
from dovetail.isa.timing.rules import rules_of
from dovetail.isa.timing.sequencer import END_TO_DONE, FIRST_ACTION, PAGE_READY

_LOAD = int(Unit.LOAD)


class _Page(NamedTuple):
    """What there was before a page was fetched ahead."""

    now: int
    free: list[int]
    begun: int
    ended: int
    pops: list[int]
    done: list[int]


class Clock:
    """Follows a program word by word.

    Parameters
    ----------
    config
        The accelerator and the timing of its memory.
    """

    def __init__(self, config: Config) -> None:
        self.now = FIRST_ACTION - 1
        """The cycle in which the latest word went out."""
        self.free = [0] * len(Unit)
        """Per unit the first cycle in which it can take what comes next."""
        self.begun = 1 << 60
        """The first cycle of the first operation."""
        self.ended = 0
        """The first cycle behind the last operation."""
        self._fetch_cycles = rules_of(config).fetch
        self._pops = [[-1] * QUEUE_DEPTH for _ in Unit]
        self._done: list[list[int]] = [[] for _ in Unit]
        self._left = 0  # words of the page
        self._page: _Page | None = None
        self._since: list[tuple[int, ...]] = []
        """What there was on the page: register writes (unit, words), waits (unit, on, pending), operations (unit,
        duration, 0, 0)."""
        self._fetched = self._fetch()

    def ready(self, unit: int, words: int) -> int:
        """The cycle in which ``words`` more words could be in a unit's queue; at most as many as it holds."""
        return max(self.now + words, self._pops[unit][words - 1 - QUEUE_DEPTH] + 1)

    def write(self, unit: int, words: int) -> None:
        """So many register writes."""
        while words:
            if not self._left:
                self._turn()
            count = min(words, self._left, QUEUE_DEPTH)
            self._since.append((unit, count))
            words -= count
            self._left -= count
            pops, free, now = self._pops[unit], self.free[unit], self.now
            if free > max(now, pops[-QUEUE_DEPTH]) + 1:
                # The unit lags behind the first word, so behind all, as it takes at least a cycle for each.
                self.now = max(now + count, pops[count - 1 - QUEUE_DEPTH] + 1)
                self.free[unit] = free + count
                pops.extend(range(free, free + count))
                continue
            for _ in range(count):
                now = max(now, pops[-QUEUE_DEPTH]) + 1
                free = max(free, now + 1)
                pops.append(free)
                free += 1
            self.now, self.free[unit] = now, free

    def wait(self, unit: int, on: int, pending: int) -> None:
        """A SYNC."""
        head = self._head(unit)
        self._since.append((unit, on, pending))
        done = self._done[on]
        if len(done) > pending:
            head = max(head, done[len(done) - pending - 1])
        self._pops[unit].append(head)
        self.free[unit] = head + 1

    def operate(self, unit: int, duration: int) -> None:
        """An operation of so many cycles from its start to its end."""
        start = self._head(unit)
        self._since.append((unit, duration, 0, 0))
        if start < self.begun:
            self.begun = start
        self._pops[unit].append(start)
        free = self.free[unit] = start + duration + 1
        self._done[unit].append(free)
        if free > self.ended:
            self.ended = free

    def end(self) -> int:
        """The word that comes now ends the program, and no page is fetched behind its own. Nothing may follow.

        Returns the cycles of the program.
        """
        if self._left:
            self._again()
        else:
            self.now = max(self.now, self._fetched + PAGE_READY - 1)
        return max(self.now + 1, max(self.free) - 1) + END_TO_DONE

    def _again(self) -> None:
        """All of the latest page once more, without the fetch of the next one."""
        assert self._page
        self.now, self.free, self.begun, self.ended, pops, done = self._page
        self._pops = [unit[:count] for unit, count in zip(self._pops, pops, strict=True)]
        self._done = [unit[:count] for unit, count in zip(self._done, done, strict=True)]
        since, self._since, self._left = self._since, [], PAGE_WORDS
        for event in since:
            if len(event) == 2:
                self.write(*event)
            elif len(event) == 3:
                self.wait(*event)
            else:
                self.operate(*event[:2])

    def _head(self, unit: int) -> int:
        """Send a word of the program out: the first cycle in which the unit can take it."""
        if not self._left:
            self._turn()
        self._left -= 1
        return self._push(unit)

    def _push(self, unit: int) -> int:
        self.now = now = max(self.now, self._pops[unit][-QUEUE_DEPTH]) + 1
        return max(self.free[unit], now + 1)

    def _turn(self) -> None:
        """On to the next page."""
        self._left = PAGE_WORDS
        self.now = max(self.now, self._fetched + PAGE_READY - 1)
        counts = [list(map(len, lists)) for lists in (self._pops, self._done)]
        self._page = _Page(self.now, self.free.copy(), self.begun, self.ended, *counts)
        self._since = []
        self._fetched = self._fetch()

    def _fetch(self) -> int:
        """Ask for the next page: the cycle in which it is there."""
        start = self._push(_LOAD)
        end = start + self._fetch_cycles
        self._pops[_LOAD].append(start)
        self.free[_LOAD] = end + 1
        return end
