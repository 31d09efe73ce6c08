"""Times a program while it grows: when its words go out, when units are free.

The recurrence is that of `dovetail.isa.timing.engine`, without faults: there it is one loop over known words, twice as
fast. As nobody knows yet where the program ends, a page is fetched ahead even of the last one.
"""

from collections import deque

from dovetail.isa.config import Config
from dovetail.isa.instructions import PAGE_WORDS, QUEUE_DEPTH, REGISTERS, Op, Unit
from dovetail.isa.timing.engine_constants import FIRST_ACTION, PAGE_READY
from dovetail.isa.timing.rules import rules_of

_COUNT = tuple(len(REGISTERS[unit]) for unit in Unit)


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
        self.ended = 0
        """The first cycle behind the last operation."""
        self.values = [[0] * count for count in _COUNT]
        """Per unit the registers, in the order of their index."""
        self._rules = rules_of(config)
        self._pops = [deque([-1] * QUEUE_DEPTH, QUEUE_DEPTH) for _ in Unit]
        self._done: list[list[int]] = [[] for _ in Unit]
        self._left = 0  # words of the page
        self._fetched = self._fetch()

    def ready(self, unit: Unit, words: int) -> int:
        """The cycle in which ``words`` more words could be in a unit's queue; at most as many as it holds."""
        return max(self.now + words, self._pops[unit][words - 1] + 1)

    def write(self, unit: Unit, index: int, value: int) -> None:
        """A register write."""
        self.values[unit][index] = value
        self._take(unit, self._head(unit))

    def wait(self, unit: Unit, on: Unit, pending: int) -> None:
        """A SYNC."""
        head = self._head(unit)
        done = self._done[on]
        if len(done) > pending:
            head = max(head, done[len(done) - pending - 1])
        self._take(unit, head)

    def operate(self, unit: Unit, op: Op) -> None:
        """An operation. Raises ValueError if it fails its own checks."""
        start = self._head(unit)
        key = int(op), tuple(self.values[unit])
        rule = self._rules.known.get(key) or self._rules.find(key)
        if rule.cause:
            raise ValueError(f"{op.name} must pass its checks, not fail with {rule.cause.name}")
        self._pops[unit].append(start)
        self.free[unit] = start + rule.duration + 1
        self.ended = max(self.ended, self.free[unit])
        self._done[unit].append(self.free[unit])

    def _head(self, unit: Unit) -> int:
        """Send a word of the program out: the first cycle in which the unit can take it."""
        if not self._left:
            self._left = PAGE_WORDS
            self.now = max(self.now, self._fetched + PAGE_READY - 1)
            self._fetched = self._fetch()
        self._left -= 1
        return self._push(unit)

    def _push(self, unit: Unit) -> int:
        self.now = max(self.now, self._pops[unit][0]) + 1
        return max(self.free[unit], self.now + 1)

    def _take(self, unit: Unit, cycle: int) -> None:
        self._pops[unit].append(cycle)
        self.free[unit] = cycle + 1

    def _fetch(self) -> int:
        """Ask for the next page: the cycle in which it is there."""
        start = self._push(Unit.LOAD)
        end = start + self._rules.fetch
        self._pops[Unit.LOAD].append(start)
        self.free[Unit.LOAD] = end + 1
        return end
