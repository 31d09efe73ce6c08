"""Timing of the sequencer: front end, queues, waits and the ends of operations.

The front end takes an action a cycle, a word or the fetch of a page, unless a queue or a fetch holds it up:

    dispatch(n) = max(dispatch(n - 1) + 1, pop(its queue place's last user) + 1, end(its page's fetch) + PAGE_READY)
    pop(n)      = max(end(before, of its unit) + 1, end(what a wait is for) + 1, dispatch(n) + 1)
    end(n)      = pop(n) + duration(n)

Register writes and waits end as they are popped.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import has, known
from dovetail.isa.instructions.table import (
    BY_NUMBER,
    EXTENSIONS,
    INSTRUCTIONS,
    PAGE_WORDS,
    QUEUE_DEPTH,
    WORD_BYTES,
    Cause,
    Op,
    Unit,
    to_bytes,
)

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

Words = bytes | Sequence[int] | npt.NDArray[np.uint64]

# By opcode the unit that executes it; -1 where none does.
# By opcode the unit that executes it; -1 where none does.
UNIT_OF = np.full(256, -1)
for _op, _row in INSTRUCTIONS.items():
    if _row.unit is not None:
        UNIT_OF[_op] = _row.unit
UNIT_OF[EXTENSIONS] = Unit.VECTOR

_EXISTS = np.zeros(256, bool)
_UNUSED = np.zeros(256, np.uint64)
for _number, _register in BY_NUMBER.items():
    _EXISTS[_number], _UNUSED[_number] = True, ~_register.mask & 0xFFFF_FFFF


@lru_cache(maxsize=64)
def _opcodes(config: Config) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    """By opcode: whether it is known, whether it is known but absent, which bits it reserves."""
    exists, absent = np.zeros((2, 256), bool)
    reserved = np.zeros(256, np.uint64)
    for row in known(config):
        exists[row.op], absent[row.op], reserved[row.op] = True, not has(config, row.op), row.reserved
    return exists, absent, reserved


def as_words(program: Words) -> npt.NDArray[np.uint64]:
    """A program's words as an array, filled up to whole pages with zero words."""
    if isinstance(program, np.ndarray):
        words = program.astype(np.uint64, copy=False)
    else:
        data = program if isinstance(program, bytes) else to_bytes(program)
        words = np.frombuffer(data + bytes(-len(data) % WORD_BYTES), "<u8")
    rest = -len(words) % PAGE_WORDS
    return np.concatenate([words, np.zeros(rest, np.uint64)]) if rest else words


def front_end_faults(config: Config, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """The cause that the front end raises for each word, 0 where it dispatches the word."""
    code = (words & np.uint64(0xFF)).astype(np.intp)
    middle = (words >> np.uint64(8) & np.uint64(0xFF)).astype(np.intp)
    upper = (words >> np.uint64(16) & np.uint64(0xFF)).astype(np.intp)
    is_cfg, is_sync = code == Op.CFG, code == Op.SYNC
    faults = np.zeros(len(words), np.uint8)
    exists, missing, reserved = _opcodes(config)
    # From the least to the most important: what comes later overwrites.
    absent = missing[code]
    if not config.vector:
        absent |= is_cfg & (middle >> 6 == Unit.VECTOR)
        absent |= is_sync & ((middle == Unit.VECTOR) | (upper == Unit.VECTOR))
    faults[absent] = Cause.UNIT_ABSENT
    faults[is_cfg & (words >> np.uint64(32) & _UNUSED[middle] != 0)] = Cause.RESERVED
    faults[is_cfg & ~_EXISTS[middle] | is_sync & ((middle > 3) | (upper > 3))] = Cause.REGISTER
    faults[words & reserved[code] != 0] = Cause.RESERVED
    faults[~exists[code]] = Cause.OPCODE
    return faults


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


class Clock(Sequencer):
    """Follows a program, in whatever portions it comes: when its words go out, when units are free.

    As nobody knows yet where the program ends, a page is fetched ahead even of the last one, until :meth:`Clock.end`.

    Parameters
    ----------
    fetch
        Cycles from the start to the end of a page's fetch.
    """

    def __init__(self, fetch: int) -> None:
        super().__init__(fetch)
        self._cycles = fetch
        self._left = 0  # words of the page
        self._before = self.now, self.free, [0]
        """Before a page was fetched ahead: `now`, `free` and how long all lists were."""
        self._since: list[Chunk] = []
        """What there was on the page."""

    @property
    def begun(self) -> int:
        """The first cycle of the first operation; :data:`NEVER` if there is none."""
        return min((starts[0] for starts in self.starts if starts), default=NEVER)

    @property
    def ended(self) -> int:
        """The first cycle behind the last operation; 0 if there is none."""
        return max((done[-1] for done in self.done if done), default=0)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """The words that come next, on this page and others."""
        left = self._left
        for kind, _, amount, _ in chunks:
            left -= amount if kind == WRITES else 1
        if left < 0:
            single = [one for chunk in chunks for one in _single(chunk)]
            while len(single) > self._left:
                here, single = single[: self._left], single[self._left :]
                self._since += here
                self.follow(here)
                self._turn()
            chunks, left = single, self._left - len(single)
        self._left = left
        self._since += chunks
        self.follow(chunks)

    def end(self) -> int:
        """The word that comes now ends the program, and no page is fetched behind its own. Nothing may follow.

        Returns the cycles of the program.
        """
        if self._left:
            self.now, self.free, counts = self._before
            for times, count in zip(self._lists(), counts, strict=True):
                del times[count:]
            self.follow(self._since)
        else:
            self.turn()
        return max(self.now + 1, max(self.free) - 1) + END_TO_DONE

    def _turn(self) -> None:
        """On to the next page."""
        self.turn()
        self._before = self.now, self.free.copy(), list(map(len, self._lists()))
        self._since.clear()
        self._left = PAGE_WORDS
        self.fetch(self._cycles)

    def _lists(self) -> list[list[int]]:
        """Those that grow, but for what nobody asks a clock for."""
        return [*self.pops, *self.starts, *self.done]


def _single(chunk: Chunk) -> list[Chunk]:
    """A chunk for each of its words."""
    kind, unit, amount, on = chunk
    return [(WRITES, unit, 1, on)] * amount if kind == WRITES else [chunk]


S = TypeVar("S", bound=Hashable)


def repeat(advance: Callable[[S], tuple[int, S]], state: S, count: int) -> tuple[int, S]:
    """``count`` times ``advance``, which gives cycles and the next state: the sum of the cycles and the last state.

    As soon as a state comes back, whole periods are added at once.
    """
    seen: dict[S, tuple[int, int]] | None = {}
    time = n = 0
    while n < count:
        if seen is not None:
            if state in seen:
                then, before = seen[state]
                periods = (count - n) // (n - then)
                time += periods * (time - before)
                n += periods * (n - then)
                seen = None
                continue
            seen[state] = n, time
        wait, state = advance(state)
        time += wait
        n += 1
    return time, state
