"""Timing of the sequencer: front end, queues, waits and the ends of operations.

The front end takes an action a cycle, a word or the fetch of a page, unless a queue or a fetch holds it up:

    dispatch(n) = max(dispatch(n - 1) + 1, pop(its queue place's last user) + 1, end(its page's fetch) + PAGE_READY)
    pop(n)      = max(end(before, of its unit) + 1, end(what a wait is for) + 1, dispatch(n) + 1)
    end(n)      = pop(n) + duration(n)

Register writes and waits end as they are popped.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, Op, Unit
from dovetail.isa.timing.predecode import UNIT_OF

CHECK = 3
"""Cycles from the pop of an operation to the cycle in which its checks decide (fault, or claim its banks).
It works from the next cycle on."""

FIRST_ACTION = 0
"""Cycle of the front end's first action, the push of fetch(0); cycle 0 is the first cycle of `busy`."""

PAGE_READY = 3
"""Cycles from the end of a page's fetch to the first action that may follow from it (the page buffer and the decoder
are a register stage each). Where the fetch ended long ago the action follows the page before without a gap."""

END_TO_DONE = 2
"""CYCLES is this many more than the number of the last cycle in which anything happened: END's dispatch, a pop, the
end of an operation or fetch, the fault. (`busy` lasts one cycle longer than that, and cycles count from 0.)"""

NEVER = 1 << 60
# A cycle that never comes. An operation of this duration never ends, and its unit accepts nothing more.

WRITES, WAIT, OPERATION = range(3)
Chunk = tuple[int, int, int, int]
"""What the recurrence takes at once: kind, unit, amount, and for a wait the unit waited for. The amount is the number
of register writes that follow one another, or a wait's pending operations, or the cycles from start to end."""

Int64s = npt.NDArray[np.int64]
_LOAD = int(Unit.LOAD)


class Sequencer:
    """The one recurrence: front end, queues and units, after what was dispatched so far.

    At first that is the fetch of the first page. `time_program` runs whole programs through it, the compiler's `Clock`
    one that grows, `explain` one whose operations take other times.

    Parameters
    ----------
    fetch
        Cycles from the start to the end of that fetch.
    depth
        Places of each queue.
    """

    def __init__(self, fetch: int, depth: int = QUEUE_DEPTH) -> None:
        self.now = FIRST_ACTION - 1
        """The cycle in which the latest word or fetch was dispatched."""
        self.free = [0] * len(Unit)
        """Per unit the first cycle in which it can take what comes next."""
        self.depth = depth
        self.pops = [[-1] * depth for _ in Unit]
        """Per unit the cycle of every pop, after ``depth`` places that are free from the start."""
        self.starts: list[list[int]] = [[] for _ in Unit]
        """Per unit the start of each operation."""
        self.done: list[list[int]] = [[] for _ in Unit]
        """Per unit the cycle in which the completion of each operation shows."""
        self.waits: list[tuple[int, int, int]] = []
        """Of each wait its unit, the first cycle at the head of the queue, and the pop."""
        self.fetches: list[int] = []
        """The start of each fetch."""
        self._ready = 0
        self.fetch(fetch)

    def fetch(self, cycles: int) -> None:
        """Dispatch the fetch of the page behind the latest one."""
        self.now = now = max(self.now, self.pops[_LOAD][-self.depth]) + 1
        start = max(self.free[_LOAD], now + 1)
        self.pops[_LOAD].append(start)
        self.fetches.append(start)
        end = min(start + cycles, NEVER)
        self.free[_LOAD] = end + 1
        self._ready = end + PAGE_READY

    def turn(self) -> None:
        """On to the page that was fetched last: what is dispatched next waits for it."""
        self.now = max(self.now, self._ready - 1)

    def ready(self, unit: int, words: int) -> int:
        """The cycle in which ``words`` more words could be in a unit's queue; at most as many as it holds."""
        return max(self.now + words, self.pops[unit][words - 1 - self.depth] + 1)

    def follow(self, chunks: Iterable[Chunk]) -> None:
        """Dispatch words of one page."""
        now, depth, pops, done, frees = self.now, self.depth, self.pops, self.done, self.free
        for kind, unit, amount, on in chunks:
            queue = pops[unit]
            time = frees[unit]
            if kind == WRITES:
                head = queue[-depth]
                if head < now:
                    head = now
                if time > head + 1 and amount <= depth:
                    # The unit lags behind the first word, so behind all, as it takes at least a cycle for each.
                    now += amount
                    if queue[amount - 1 - depth] >= now:
                        now = queue[amount - 1 - depth] + 1
                    queue.extend(range(time, time + amount))
                    frees[unit] = time + amount
                    continue
                for _ in range(amount):
                    now += 1
                    if queue[-depth] >= now:
                        now = queue[-depth] + 1
                    if time <= now:
                        time = now + 1
                    queue.append(time)
                    time += 1
                frees[unit] = time
                continue
            now += 1
            if queue[-depth] >= now:
                now = queue[-depth] + 1
            if time <= now:
                time = now + 1
            if kind == WAIT:
                head = time
                target = len(done[on]) - amount
                if target > 0:
                    shown = done[on][target - 1]
                    if shown > time:
                        time = shown
                self.waits.append((unit, head, time))
                queue.append(time)
                frees[unit] = time + 1
            else:
                queue.append(time)
                self.starts[unit].append(time)
                time += amount + 1
                if time > NEVER:
                    time = NEVER
                frees[unit] = time
                done[unit].append(time)
        self.now = now


class Chunks(NamedTuple):
    """The words of whole pages up to a program's end, or the fault of the front end, as columns of :data:`Chunk`.

    ``firsts``: per page its first chunk, and one more for what follows the last page.
    ``fetches``: the places of the pages' fetches among all operations and fetches in program order.
    """

    kinds: Int64s
    units: Int64s
    amounts: Int64s
    ons: Int64s
    firsts: list[int]
    fetches: Int64s

    def run(self, durations: Int64s, *, depth: int = QUEUE_DEPTH) -> Sequencer:
        """All of it. ``durations``: of operations and fetches in program order."""
        amounts = self.amounts.copy()
        amounts[self.kinds == OPERATION] = np.delete(durations, self.fetches)
        columns = [column.tolist() for column in (self.kinds, self.units, amounts, self.ons)]
        fetches = iter(durations[self.fetches].tolist())
        sequencer = Sequencer(next(fetches), depth)
        for first, last in zip(self.firsts, self.firsts[1:], strict=False):
            sequencer.turn()
            ahead = next(fetches, None)
            if ahead is not None:
                sequencer.fetch(ahead)
            sequencer.follow(zip(*(column[first:last] for column in columns), strict=True))
        return sequencer


def chunks_of(words: npt.NDArray[np.uint64], stop: int) -> Chunks:
    """Those of the first ``stop`` words of a program of whole pages."""
    used, pages = stop // PAGE_WORDS + 1, len(words) // PAGE_WORDS
    words = words[:stop]
    codes = (words & np.uint64(0xFF)).astype(np.int64)
    middles = (words >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64)
    writes, waits = codes == Op.CFG, codes == Op.SYNC
    units = np.where(writes, middles >> 6, np.where(waits, middles, UNIT_OF[codes]))
    begins = ~writes
    begins[1:] |= begins[:-1] | (units[1:] != units[:-1])
    begins[::PAGE_WORDS] = True
    at = np.flatnonzero(begins)
    kinds = np.where(writes, WRITES, np.where(waits, WAIT, OPERATION))[at]
    ons = (words[at] >> np.uint64(16) & np.uint64(0xFF)).astype(np.int64)
    amounts = np.where(kinds == WRITES, np.diff(at, append=stop), (words[at] >> np.uint64(32)).astype(np.int64))
    starts = np.arange(min(used, pages) + 1) * PAGE_WORDS
    firsts = np.searchsorted(at, starts).tolist()
    # The front end fetches the first page, and the one behind a page before it dispatches the page's first word.
    before = np.searchsorted(np.flatnonzero(~writes & ~waits), starts[: min(used, pages - 1)])
    fetches = np.concatenate([[0], before + 1 + np.arange(len(before))])
    return Chunks(kinds, units[at], amounts, ons, firsts, fetches)
