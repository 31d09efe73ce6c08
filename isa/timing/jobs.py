"""Jobs of a system: programs that wait for one another, and when the host starts them.

The host of a simulated system starts jobs and nothing else. It sees the interrupt of a run :data:`SEEN` cycles after
the run's last cycle. A job is ready in the cycle in which the host has seen the interrupts of all that it waits for:
the jobs in ``after``, and the one before it on its accelerator. It is not ready before ``earliest``. Of the jobs that
are ready the host takes the one that was ready first, of several the one with the smallest number, as soon as it is
free; ``reaction`` cycles later it begins to write: PROGRAM, PAGES, BASE, CONTROL. Cycle 0 of the run comes
:data:`STARTED` cycles after the first write began, and the host is free again after :data:`WRITTEN` cycles.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.system import System
from dovetail.isa.instructions.table import PAGE_WORDS
from dovetail.isa.timing.sequencer import Words, as_words

WRITE = 6
"""Cycles of a write of the host's, from the cycle in which it is offered to the one behind its answer."""
WRITTEN = 4 * WRITE
STARTED = 3 * WRITE + 5
SEEN = 0


@dataclass(frozen=True)
class Job:
    """A program that an accelerator runs once.

    ``words`` of the program, its ``address`` in system memory, the ``base`` that its addresses are relative to;
    ``after``: numbers of the jobs that must have ended before; ``earliest``: the cycle of the system before which it
    is not ready.
    """

    accelerator: str
    words: Words
    address: int = 0
    base: int = 0
    after: tuple[int, ...] = ()
    earliest: int = 0

    @property
    def pages(self) -> int:
        """Of the program."""
        return len(as_words(self.words)) // PAGE_WORDS


def before(jobs: Sequence[Job]) -> list[list[int]]:
    """For each job the numbers of those that it waits for: the ones in ``after``, and the one before it on its
    accelerator."""
    last: dict[str, int] = {}
    found = []
    for number, job in enumerate(jobs):
        own = [last[job.accelerator]] if job.accelerator in last else []
        found.append(sorted({*job.after, *own}))
        last[job.accelerator] = number
    return found


def check_jobs(system: System, jobs: Sequence[Job]) -> None:
    """Raises :class:`ConfigError` for jobs of an accelerator that the system has not, and for jobs that would wait for
    ever."""
    names = [part.name for part in system.accelerators]
    for number, job in enumerate(jobs):
        if job.accelerator not in names:
            raise ConfigError(
                f"job {number}: accelerator must be one of {', '.join(names)}, not {job.accelerator!r}"
                f"{nearest(job.accelerator, names)}"
            )
        for other in job.after:
            if not 0 <= other < len(jobs):
                raise ConfigError(f"job {number}: after must be numbers of jobs, 0..{len(jobs) - 1}, not {other}")
    waits = before(jobs)
    left = set(range(len(jobs)))
    while ready := {number for number in left if left.isdisjoint(waits[number])}:
        left -= ready
    if left:
        circle = [min(left)]
        while circle[-1] not in circle[:-1]:
            circle.append(next(other for other in waits[circle[-1]] if other in left))
        text = " -> ".join(map(str, circle[circle.index(circle[-1]) :]))
        raise ConfigError(f"jobs must not wait for one another in a circle, as in {text}")


def origins(jobs: Sequence[Job], reaction: int, lasted: Sequence[int], faulted: Sequence[bool]) -> list[int | None]:
    """Cycle 0 of each job's run in cycles of the system, None of a job that never starts, as one that it waits for, or
    waits for in turn, has faulted.

    ``lasted``: cycles of each run; ``faulted``: whether it ended with a fault.
    """
    waits = before(jobs)
    missing = [len(others) for others in waits]
    readers: list[list[int]] = [[] for _ in jobs]
    for number, others in enumerate(waits):
        for other in others:
            readers[other].append(number)
    ready = [job.earliest for job in jobs]
    waiting = [(ready[number], number) for number in range(len(jobs)) if not missing[number]]
    heapq.heapify(waiting)
    ends: list[tuple[int, int]] = []  # of runs under way
    found: list[int | None] = [None] * len(jobs)
    free = 0
    while waiting or ends:
        # What becomes ready until the host can take a job competes for it.
        if ends and (not waiting or ends[0][0] <= max(waiting[0][0], free)):
            cycle, number = heapq.heappop(ends)
            for other in () if faulted[number] else readers[number]:
                ready[other] = max(ready[other], cycle)
                missing[other] -= 1
                if not missing[other]:
                    heapq.heappush(waiting, (ready[other], other))
            continue
        cycle, number = heapq.heappop(waiting)
        begins = max(cycle, free) + reaction
        found[number], free = begins + STARTED, begins + WRITTEN
        heapq.heappush(ends, (begins + STARTED + lasted[number] + SEEN, number))
    return found
