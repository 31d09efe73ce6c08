"""Jobs of a system: programs that wait for one another, layers that the host computes, and what the host does when.

The host of a simulated system sees the interrupt of a run :data:`SEEN` cycles after the run's last cycle. A job is
ready in the cycle in which the host has seen the interrupts of all that it waits for: the jobs in ``after``, and the
one before it on its accelerator. It is not ready before ``earliest``.

Of the programs that are ready the host takes the one that was ready first, of several the one with the smallest
number, as soon as it is starting no other; ``reaction`` cycles later it begins to write: PROGRAM, PAGES, BASE, CONTROL.
Cycle 0 of the run comes :data:`STARTED` cycles after the first write began, and the host has started it after
:data:`WRITTEN` cycles.

In each cycle in which it starts nothing, the host works on a layer, if one is ready: on the one that it has begun, else
on the one that was ready first, of several on that with the smallest number. So starts interrupt layers, and layers do
not interrupt each other. A layer has ended when the host has worked on it in as many cycles as it takes. In the cycle
behind the last of these its results are in memory, and jobs are ready that have waited for it only.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dovetail.isa.common.suggestion import nearest
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.system import System
from dovetail.isa.instructions.table import PAGE_WORDS
from dovetail.isa.timing.sequencer import NEVER, Words, as_words

WRITE = 6
"""Cycles of a write of the host's, from the cycle in which it is offered to the one behind its answer."""
WRITTEN = 4 * WRITE
STARTED = 3 * WRITE + 5
SEEN = 0
LONGEST = 1 << 40
"""Cycles of a host's job, at most."""


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


@dataclass(frozen=True)
class HostJob:
    """What the host itself computes once, in so many of its ``cycles``; ``after`` and ``earliest`` as of :class:`Job`.

    ``work`` is what it does to system memory, all of it in the cycle in which the job has ended.
    """

    cycles: int
    after: tuple[int, ...] = ()
    earliest: int = 0
    work: Callable[[npt.NDArray[np.uint8]], None] = field(default=lambda memory: None, repr=False, compare=False)


AnyJob = Job | HostJob


def before(jobs: Sequence[AnyJob]) -> list[list[int]]:
    """For each job the numbers of those that it waits for: the ones in ``after``, and the one before it on its
    accelerator."""
    last: dict[str, int] = {}
    found = []
    for number, job in enumerate(jobs):
        own = list[int]()
        if isinstance(job, Job):
            own = [last[job.accelerator]] if job.accelerator in last else []
            last[job.accelerator] = number
        found.append(sorted({*job.after, *own}))
    return found


def check_jobs(system: System, jobs: Sequence[AnyJob]) -> None:
    """Raises :class:`ConfigError` for jobs of an accelerator that the system has not, for cycles of the host that
    cannot be, and for jobs that would wait for ever."""
    names = [part.name for part in system.accelerators]
    for number, job in enumerate(jobs):
        if isinstance(job, HostJob):
            if job.cycles not in range(1, LONGEST + 1):
                raise ConfigError(f"job {number}: the host's cycles must be 1..{LONGEST}, not {job.cycles}")
        elif job.accelerator not in names:
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


def spans(
    jobs: Sequence[AnyJob], reaction: int, lasted: Sequence[int], faulted: Sequence[bool]
) -> list[tuple[int, int] | None]:
    """Of each job its first cycle and the one behind its last, in cycles of the system: of a run its cycle 0, of a
    layer of the host's the first one in which the host works on it. None of a job that never starts, as one that it
    waits for, or waits for in turn, has faulted.

    ``lasted``: cycles of each run; ``faulted``: whether it ended with a fault. Those of the host's jobs do not count.
    """
    waits = before(jobs)
    missing = [len(others) for others in waits]
    readers: list[list[int]] = [[] for _ in jobs]
    for number, others in enumerate(waits):
        for other in others:
            readers[other].append(number)
    ready = [job.earliest for job in jobs]
    programs: list[tuple[int, int]] = []  # that could be started: when each is ready, its number
    layers: list[tuple[int, int]] = []
    running: list[tuple[int, int]] = []  # the end of each run, its number
    found: list[tuple[int, int] | None] = [None] * len(jobs)
    free = 0  # from when on the host starts nothing
    layer = began = -1  # the layer under way, and its first cycle once the host has been at it
    left = since = 0  # cycles that are left of it, and from when on the host is at it

    def offer(number: int) -> None:
        heapq.heappush(programs if isinstance(jobs[number], Job) else layers, (ready[number], number))

    def end(number: int, cycle: int) -> None:
        for other in readers[number]:
            ready[other] = max(ready[other], cycle)
            missing[other] -= 1
            if not missing[other]:
                offer(other)

    for number in range(len(jobs)):
        if not missing[number]:
            offer(number)
    while programs or layers or running or layer >= 0:
        over = since + left if layer >= 0 else NEVER
        seen = running[0][0] if running else NEVER
        asked = programs[0][0] if programs else NEVER
        offered = layers[0][0] if layers and layer < 0 else NEVER
        # What ends in a cycle comes first, as what becomes ready by that competes.
        if seen <= min(over, asked, offered):
            cycle, number = heapq.heappop(running)
            if not faulted[number]:
                end(number, cycle)
        elif over <= min(asked, offered):
            found[layer] = (since if began < 0 else began), over
            number, layer, since = layer, -1, over
            end(number, over)
        elif asked <= offered:
            cycle, number = heapq.heappop(programs)
            taken = max(cycle, free)
            if layer >= 0 and since < taken:
                began, left = (since if began < 0 else began), left - (taken - since)
            begins = taken + reaction
            free = begins + WRITTEN
            since = free
            found[number] = begins + STARTED, begins + STARTED + lasted[number]
            heapq.heappush(running, (begins + STARTED + lasted[number] + SEEN, number))
        else:
            cycle, layer = heapq.heappop(layers)
            job = jobs[layer]
            assert isinstance(job, HostJob)
            left, since, began = job.cycles, max(cycle, since), -1
    return found
