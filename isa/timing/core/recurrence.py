"""The recurrence of `isa.timing.sequencer` in plain Python: where there is no compiler, and what the compiled one is
held against (`isa/timing/core/recurrence.cpp`, the same things under the same names)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


def registers(words: Uint64s, columns: Sequence[Int64s]) -> None:
    """See `isa.timing.core.engine.registers`."""
    values = [[0] * len(mine) for mine in columns]
    seen = [0] * len(Unit)
    for word in words.tolist():
        code, number = word & 0xFF, word >> 8 & 0xFF
        if code == _WRITES:
            values[number >> 6][number & 0x3F] = word >> 32
        elif code != _WAITS:
            unit = _UNIT_OF[code]
            columns[unit][:, seen[unit]] = values[unit]
            seen[unit] += 1


class Work(NamedTuple):
    """A program up to the END, or to the word that the front end refuses, and what the rules say of its operations.

    ``words``: those that the front end dispatches. Per operation: ``cycles`` from start to end, `CHECK` of those that
    fail their own checks; ``causes`` of that, else 0; ``errors``: what the bus answers it with, else 0; ``regions``:
    what it claims, of shape (operations, `REGIONS`, 2), see `Operations.verify`. Per page that is fetched, ``fetches``:
    cycles of its fetch; ``lost``: what the bus answers it with, else 0. ``stopped``: why the front end refuses the
    next word, else 0. ``bank_bytes``: of a bank of SRAM.
    """

    words: Uint64s
    cycles: Int64s
    causes: Int64s
    errors: Int64s
    regions: Int64s
    fetches: Int64s
    lost: Int64s
    stopped: int
    bank_bytes: int


class Outcome(NamedTuple):
    """What happens up to the end or the first fault: columns of a timeline (unit, op, pc, start and end; works); its
    waits, cycles and fault (cause, 0 for none, and place); and the counters of each unit."""

    columns: Int64s
    works: npt.NDArray[np.bool_]
    waits: Int64s
    cycles: int
    fault: tuple[int, int]
    busy: list[int]
    config: list[int]
    token: list[int]


class Played(NamedTuple):
    """When each word leaves its queue, when each operation and fetch starts, and the cycle of the latest dispatch."""

    pops: Int64s
    starts: Int64s
    last: int


@dataclass(slots=True)
class Element:
    """An operation, or a page's fetch, whose number is that of the page."""

    fetch: bool
    number: int
    pc: int
    unit: int
    start: int = 0
    end: int = 0
    works: bool = True


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


def is_operation(word: int) -> bool:
    """Whether a word that is dispatched is no register write and no wait."""
    return word & 0xFF not in (_WRITES, _WAITS)


def played(
    words: Sequence[int], pages: int, depth: int, lasting: Callable[[Element], int]
) -> tuple[int, list[tuple[int, int, int]], list[Element]]:
    """The cycle of the latest dispatch, what `Recurrence.take` says of each word, and all operations and fetches in
    program order. ``lasting``: from start to end of one of these, whose start is not known yet."""
    recurrence = Recurrence(depth)
    taken: list[tuple[int, int, int]] = []
    elements: list[Element] = []
    page = operation = 0

    def fetch() -> None:
        nonlocal page
        if page < pages:
            element = Element(True, page, page, _LOAD)
            element.start = recurrence.fetch(lasting(element))
            elements.append(element)
            page += 1

    fetch()
    for number in range(len(words) + 1):
        if number % PAGE_WORDS == 0 and number // PAGE_WORDS < pages:
            recurrence.turn()
            fetch()
        if number == len(words):
            break
        word = words[number]
        if is_operation(word):
            element = Element(False, operation, number, _UNIT_OF[word & 0xFF])
            taken.append(recurrence.take(word, lasting(element)))
            element.start = taken[-1][2]
            elements.append(element)
            operation += 1
        else:
            taken.append(recurrence.take(word, 0))
    return recurrence.now, taken, elements


def play(words: Uint64s, pages: int, lasting: Int64s, depth: int) -> Played:
    """See `isa.timing.core.engine.play`."""
    durations = iter(lasting.tolist())
    last, taken, elements = played(words.tolist(), pages, depth, lambda _: next(durations))
    return Played(np.array([pop for _, _, pop in taken], np.int64), np.array([e.start for e in elements]), last)


def run(work: Work) -> Outcome:
    """See `isa.timing.core.engine.run`."""
    words, cycles, fetches, lost = (a.tolist() for a in (work.words, work.cycles, work.fetches, work.lost))
    stuck = ((work.causes | work.errors) != 0).tolist()

    def lasting(element: Element) -> int:
        if element.fetch:
            return NEVER if lost[element.number] else int(fetches[element.number])
        return NEVER if stuck[element.number] else int(cycles[element.number])

    last, taken, elements = played(words, len(lost), QUEUE_DEPTH, lasting)
    for element in elements:
        element.end = element.start + (fetches if element.fetch else cycles)[element.number]
    last += 1
    halt, fault = _first_fault(work, elements, last if work.stopped else NEVER)
    if fault[0]:
        last = halt
    # What was popped up to then.
    kept = [element for element in elements if element.start <= halt]
    last = max([last, *(element.end for element in kept)])
    busy, config, token = [0] * len(Unit), [0] * len(Unit), [0] * len(Unit)
    for element in kept:
        busy[element.unit] += element.end - element.start + 1
    waits = []
    for word, (unit, head, pop) in zip(words, taken, strict=True):
        if word & 0xFF == _WAITS and head <= halt:
            waits.append((unit, head, min(pop, halt + 1)))
            token[unit] += waits[-1][2] - head
        if pop <= halt:
            config[unit] += not is_operation(word)
            last = max(last, pop)
    rows = [(e.unit, 0 if e.fetch else words[e.pc] & 0xFF, e.pc, e.start, e.end) for e in kept]
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    works = np.array([element.works for element in kept], np.bool_)
    waiting = np.array(waits, np.int64).reshape(-1, 3)
    return Outcome(columns, works, waiting, last + END_TO_DONE, fault, busy, config, token)


def _first_fault(work: Work, elements: Sequence[Element], halt: int) -> tuple[int, tuple[int, int]]:
    """Marks what fails its checks; gives cycle, cause and place of the first fault."""
    fault, who = (work.stopped, len(work.words)), len(Unit)
    running: list[tuple[int, _Claims]] = [(-1, _Claims())] * len(Unit)
    causes, errors, regions = work.causes.tolist(), work.errors.tolist(), work.regions.tolist()
    for element in sorted(elements, key=lambda element: (element.start, element.unit)):
        if element.start > halt:
            break
        cycle, why = element.end, work.lost[element.number] if element.fetch else errors[element.number]
        if not element.fetch:
            verified, failed = element.start + CHECK, causes[element.number]
            claims = _Claims(regions[element.number])
            for until, other in () if failed else running:
                if until < verified:
                    continue
                if claims.share_port(other, work.bank_bytes):
                    failed = Cause.BANK_CONFLICT
                    break
                if claims.races(other):
                    failed = Cause.RACE  # unless there is a conflict with a third unit
            if failed:
                element.works, element.end = False, verified
                cycle, why = verified, failed
            else:
                running[element.unit] = element.end, claims
        if why and (cycle, element.unit) < (halt, who):
            halt, who, fault = cycle, element.unit, (int(why), element.pc)
    return halt, fault


class _Claims:
    """The regions of an operation."""

    def __init__(self, regions: Sequence[Region] = ()) -> None:
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
