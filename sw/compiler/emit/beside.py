"""Neighbours beside each other: tasks of two steps in an order that keeps the array and the vector unit busy.

A task may go before those of the step before it that it has nothing to do with: neither writes what the other one
reads or writes, in SRAM or in system memory. So any order that comes of this computes the same, whatever the tiles.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.sw.compiler.emit.hazards import Range
from dovetail.sw.compiler.emit.operations import Task, Transfer

OVERHEAD = 16
"""Cycles between two operations of a unit: register writes and waits. For estimates only."""
_CELLS = 16
"""Cells of a bank, by which the estimates tell apart what is read and written."""
_LOAD, _STORE = int(Unit.LOAD), int(Unit.STORE)
_COMPUTES = {int(Unit.ARRAY), int(Unit.VECTOR)}


class Order:
    """The order of a segment's tasks. The last step's wait here for those of the next one.

    Parameters
    ----------
    config
        The accelerator.
    """

    def __init__(self, config: Config) -> None:
        self._config, self._clock = config, _Clock(config)
        self._pending: list[Task] = []

    def follow(self, tasks: list[Task], *, beside: bool) -> list[Task]:
        """Take the tasks of the next step, in an order in which they could be executed one by one behind all before;
        ``beside``: whether some of them may go before some of those that are here. Returns those that come now, in such
        an order."""
        before, self._pending = self._pending, tasks
        if not beside or len(_units(before) | _units(tasks)) < len(_COMPUTES):
            self._clock.reset()
            return before
        return self._merged(before, tasks)

    @property
    def waiting(self) -> int:
        """Tasks that wait here."""
        return len(self._pending)

    def rest(self) -> list[Task]:
        """Those that nothing follows."""
        rest, self._pending = self._pending, []
        return rest

    def _merged(self, before: list[Task], tasks: list[Task]) -> list[Task]:
        """All tasks ``before``, and those of ``tasks`` that go before the last of them; the others are pending."""
        clock, touched, found = self._clock, _Touched(self._config, before), list[Task]()
        waiting = {unit: deque(n for n, task in enumerate(before) if _unit(task) == unit) for unit in _COMPUTES}
        needs, after, ends = list[int](), list[int](), list[int]()

        def allowed(out: int, number: int) -> bool:
            """Whether a task behind may come before one that does not."""
            while len(after) <= out < len(tasks) and after[-1:] != [len(before)]:
                needs.append(touched.latest(tasks[len(after)]))
                after.append(max([needs[-1], *after[-1:]]))
            return out < len(after) and after[out] <= number

        out = 0
        for number, task in enumerate(before):
            for numbers in waiting.values():
                if numbers and numbers[0] < number:
                    numbers.popleft()
            while allowed(out, number):
                other = tasks[out]
                start, now, unit = clock.start(other), clock.start(task), _unit(other)
                if needs[out] and other.loads:  # perhaps of what was stored
                    start = max(start, ends[needs[out] - 1] + clock.loads(other))
                same = waiting.get(unit)
                late = start >= now or (same and start >= clock.start(before[same[0]]))
                # The array makes work for the vector unit first.
                feeds = _feeds(tasks, out) and not _feeds(before, number) and allowed(out + 1, number)
                if late and not (feeds and start <= now):
                    break
                clock.run(other)
                found.append(other)
                out += 1
            ends.append(clock.run(task))
            found.append(task)
        self._pending = tasks[out:]
        return found


def early(config: Config, before: Sequence[Task], tasks: Sequence[Task]) -> list[Task]:
    """Two steps' tasks, in an order in which they could be executed one by one: those of the second one that need no
    more than some of the first one's are spread over these others."""
    touched, latest = _Touched(config, before), 0
    behind: dict[int, list[Task]] = {}
    for task in tasks:
        latest = max(latest, touched.latest(task))
        behind.setdefault(latest, []).append(task)
    found, starts = list[Task](), [*behind, len(before)]
    found += before[: starts[0]]
    for (start, group), end in zip(behind.items(), starts[1:], strict=True):
        at = start
        for number, task in enumerate(group):
            turn = start + (end - start) * number // len(group)
            found += before[at:turn]
            found.append(task)
            at = turn
        found += before[at:end]
    return found


def _unit(task: Task) -> int:
    """The unit that computes; LOAD if none does."""
    return task.computes[0].form.unit if task.computes else _LOAD


def _feeds(tasks: Sequence[Task], number: int) -> bool:
    """Whether a task of the array has one of the vector unit behind it."""
    here = tasks[number : number + 2]
    return [_unit(task) for task in here] == [Unit.ARRAY, Unit.VECTOR]


def _units(tasks: Iterable[Task]) -> set[int]:
    return {compute.form.unit for task in tasks for compute in task.computes}


_READ, _WRITE, _MEMORY_READ, _MEMORY_WRITE = range(4)
_Access = tuple[int, int, int, int]
"""A unit, what it does, the first byte and the byte after the last."""


def accesses_of(task: Task) -> Iterator[_Access]:
    """All that a task touches."""
    for transfer in task.loads:
        yield _LOAD, _WRITE, *_ends(transfer.sram_range)
        yield _LOAD, _MEMORY_READ, *_ends(transfer.memory_range)
    for form, _, reads, write in task.computes:
        for region in reads:
            yield form.unit, _READ, *_ends(region)
        yield form.unit, _WRITE, *_ends(write)
    for transfer in task.stores:
        yield _STORE, _READ, *_ends(transfer.sram_range)
        yield _STORE, _MEMORY_WRITE, *_ends(transfer.memory_range)


def _ends(region: Range) -> Range:
    return region[0], sum(region)


class _Touched:
    """What some tasks touch."""

    def __init__(self, config: Config, tasks: Sequence[Task]) -> None:
        self._bank = config.bank_bytes
        accesses = [(n + 1, *access) for n, task in enumerate(tasks) for access in accesses_of(task)]
        columns = np.array(accesses, np.int64).reshape(-1, 5)
        self._kinds = []
        for kind in range(4):
            task, unit, _, first, end = columns[columns[:, 2] == kind].T
            self._kinds.append((task, unit, first, end, first // self._bank, (end - 1) // self._bank))

    def latest(self, task: Task) -> int:
        """The number, from 1 on, of the last task that must come before another one; 0 if none must.

        What another unit does through the same port of a bank comes before as well: they would wait for each other.
        """
        return max((self._latest(*access) for access in set(accesses_of(task))), default=0)

    def _latest(self, unit: int, kind: int, low: int, high: int) -> int:
        found = 0
        for other in (kind | _WRITE,) if kind in (_READ, _MEMORY_READ) else (kind, kind - 1):
            tasks, _, first, end, _, _ = self._kinds[other]
            here = tasks[(first < high) & (low < end)]
            found = max(found, int(here[-1]) if len(here) else 0)
        if kind in (_READ, _WRITE):
            tasks, units, _, _, first, last = self._kinds[kind]
            here = tasks[(units != unit) & (first <= (high - 1) // self._bank) & (low // self._bank <= last)]
            found = max(found, int(here[-1]) if len(here) else 0)
        return found


class _Clock:
    """About when units are free, and when parts of SRAM are read and written for the last time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cell = max(config.bank_bytes // _CELLS, config.word_bytes)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        self._free = [0] * len(Unit)
        self._read, self._written = np.zeros((2, ceil_div(self._config.sram, self._cell)), np.int64)

    def start(self, task: Task) -> int:
        """When the first computation of a task could start."""
        if not task.computes:
            return 0
        form, _, reads, write = task.computes[0]
        return max(self._free[form.unit], self._known(reads, (write,)))

    def loads(self, task: Task) -> int:
        """How long the loads of a task take."""
        return sum(self._cycles(transfer) for transfer in task.loads)

    def run(self, task: Task) -> int:
        """A task is next. Returns when it ends."""
        end = 0
        for transfer in task.loads:
            self._run(_LOAD, self._cycles(transfer), (), (transfer.sram_range,))
        for form, addresses, reads, write in task.computes:
            end = self._run(form.unit, form.cycles(self._config, addresses), reads, (write,))
        for transfer in task.stores:
            end = self._run(_STORE, self._cycles(transfer), (transfer.sram_range,), ())
        return end

    def _cycles(self, transfer: Transfer) -> int:
        return ceil_div(transfer.bytes, self._config.bus_bytes) * self._config.like_fixed.beat_cycles

    def _run(self, unit: int, cycles: int, reads: Sequence[Range], writes: Sequence[Range]) -> int:
        end = max(self._free[unit], self._known(reads, writes)) + cycles + OVERHEAD
        self._free[unit] = end
        for region in reads:
            cells = self._cells(self._read, region)
            np.maximum(cells, end, out=cells)
        for region in writes:
            self._cells(self._written, region)[:] = end
        return end

    def _known(self, reads: Sequence[Range], writes: Sequence[Range]) -> int:
        times = [self._cells(self._written, region).max() for region in (*reads, *writes)]
        times += [self._cells(self._read, region).max() for region in writes]
        return int(max(times, default=0))

    def _cells(self, times: NDArray[np.int64], region: Range) -> NDArray[np.int64]:
        first, size = region
        return times[first // self._cell : ceil_div(first + size, self._cell)]
