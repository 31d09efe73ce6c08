"""An order of many steps' tasks that keeps array and vector unit busy: a list schedule.

A task may go before others of earlier steps that it has nothing to do with: neither writes what the other one reads or
writes, in SRAM or in system memory. So any order that comes of this computes the same, whatever the tiles.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.sw.compiler.emit.beside import OVERHEAD, accesses_of
from dovetail.sw.compiler.emit.operations import Compute, Task, Transfer

WINDOW = 24
"""So many tasks, in the order in which they come, are looked at to find the next one."""
NEAR = 200
"""Of tasks that could start within so many cycles, the one that most depends on goes first."""
SHORT = 60
"""Others hardly wait for tasks of so many cycles, such as a new row's move to its place."""


def overlapped(config: Config, tasks: Sequence[Task], *, brief: bool = False) -> list[Task]:
    """The tasks, which could be executed one by one, in another such order; with ``brief`` those go first that are
    `SHORT`."""
    before = _before(tasks)
    own = [_cycles_of(config, task) for task in tasks]
    paths, clock = _paths(own, before), _Clock(config, tasks, before)
    found, waiting, needs = list[Task](), list(range(len(tasks))), list(map(len, before))
    behind: list[list[int]] = [[] for _ in tasks]
    for number, others in enumerate(before):
        for other in others:
            behind[other].append(number)
    while waiting:
        seen = (n for n in waiting[:WINDOW] if n < waiting[0] + WINDOW)
        ready = [(clock.start(n), n) for n in seen if not needs[n]]
        first, _ = min(ready)
        near = [n for start, n in ready if start <= first + NEAR]
        chosen = min(near, key=lambda n: (brief and own[n] > SHORT, -paths[n], n))
        waiting.remove(chosen)
        clock.run(chosen)
        for number in behind[chosen]:
            needs[number] -= 1
        found.append(tasks[chosen])
    return found


def _before(tasks: Sequence[Task]) -> list[dict[int, bool]]:
    """Of each task, those of the ``WINDOW`` before it that must come before it; whether its loads need them."""
    regions = [np.array(list(accesses_of(task)), np.int64).reshape(-1, 4) for task in tasks]
    found: list[dict[int, bool]] = []
    for number, here in enumerate(regions):
        first = max(number - WINDOW, 0)
        owners = np.repeat(np.arange(first, number), [len(other) for other in regions[first:number]])
        meets = _meet(np.concatenate([np.zeros((0, 4), np.int64), *regions[first:number]]), here)
        loads = here[:, 0] == Unit.LOAD
        needed = dict.fromkeys(owners[meets.any(axis=1)].tolist(), False)
        found.append(needed | dict.fromkeys(owners[meets[:, loads].any(axis=1)].tolist(), True))
    return found


def _meet(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which accesses touch the same bytes, where one of the two writes."""
    (_, kind, low, high), (_, kinds, lows, highs) = one.T[:, :, None], other.T[:, None, :]
    meets = (low < highs) & (lows < high) & (kind // 2 == kinds // 2) & ((kind | kinds) % 2 == 1)
    return np.asarray(meets)


def _cycles_of(config: Config, task: Task) -> int:
    """About the cycles of a task's computations."""
    return sum(one.form.cycles(config, one.addresses) + OVERHEAD for one in task.computes)


def _paths(own: Sequence[int], before: Sequence[dict[int, bool]]) -> list[int]:
    """About the cycles from the start of each task to the end of all that needs it; ``own``: those of each alone."""
    paths = [0] * len(own)
    for number in reversed(range(len(own))):
        paths[number] += own[number]
        for other in before[number]:
            paths[other] = max(paths[other], paths[number])
    return paths


class _Clock:
    """About when units, and ports of banks, are free, and when tasks end."""

    def __init__(self, config: Config, tasks: Sequence[Task], before: Sequence[dict[int, bool]]) -> None:
        self._config, self._tasks, self._before = config, tasks, before
        self._free, self._ends = [0] * len(Unit), [0] * len(tasks)
        self._ports: dict[tuple[int, bool], list[int]] = {
            (int(unit), writes): [0] * config.banks for unit in (Unit.ARRAY, Unit.VECTOR) for writes in (False, True)
        }
        """Of array and vector unit, until when each reads, and writes, each bank."""

    def start(self, number: int) -> int:
        """When a task's first computation could start if the task is the next one."""
        task, ends = self._tasks[number], self._ends
        start = max((ends[other] for other in self._before[number]), default=0)
        if task.loads:
            start = max(start, self._loaded(number))
        return max(start, self._own(task.computes[0])) if task.computes else start

    def run(self, number: int) -> None:
        """A task is next."""
        task = self._tasks[number]
        end = self.start(number)
        self._free[Unit.LOAD] += sum(map(self._cycles, task.loads))
        for one in task.computes:
            unit = one.form.unit
            end = max(end, self._own(one)) + one.form.cycles(self._config, one.addresses) + OVERHEAD
            self._free[unit] = end
            for ports, bank in self._used(one, unit):
                ports[bank] = end
        self._ends[number] = end + sum(map(self._cycles, task.stores))

    def _loaded(self, number: int) -> int:
        """When a task's loads could have ended."""
        needed = (self._ends[other] for other, loads in self._before[number].items() if loads)
        return max([self._free[Unit.LOAD], *needed]) + sum(map(self._cycles, self._tasks[number].loads))

    def _own(self, one: Compute) -> int:
        """When its unit, and the ports that it needs, are free."""
        other = int(Unit.VECTOR if one.form.unit == Unit.ARRAY else Unit.ARRAY)
        return max([self._free[one.form.unit], *(ports[bank] for ports, bank in self._used(one, other))])

    def _used(self, one: Compute, unit: int) -> list[tuple[list[int], int]]:
        """The banks that a computation needs, each with a unit's times at the port."""
        size, found = self._config.bank_bytes, list[tuple[list[int], int]]()
        for writes, regions in ((False, one.reads), (True, (one.write,))):
            ports = self._ports[unit, writes]
            for low, length in regions:
                found += [(ports, bank) for bank in range(low // size, (low + length - 1) // size + 1)]
        return found

    def _cycles(self, transfer: Transfer) -> int:
        beats = ceil_div(transfer.bytes, self._config.bus_bytes) * self._config.like_fixed.beat_cycles
        return beats + self._config.like_fixed.read_latency
