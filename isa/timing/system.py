"""Times accelerators that compete for one memory: when everything of each starts and ends.

`isa.timing.core` plays them together: queues and faults of each, the interconnect (`isa.timing.interconnect`), the
memory, and the host that starts jobs (`isa.timing.jobs`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.system import System
from dovetail.isa.timing.core.engine import play_together
from dovetail.isa.timing.core.rounds import Done, Machine, Plan, Starts, Task
from dovetail.isa.timing.jobs import Job, check_jobs
from dovetail.isa.timing.memory import Broken
from dovetail.isa.timing.operations import Operations
from dovetail.isa.timing.run import check_places, timeline_of, without_words, work_of
from dovetail.isa.timing.sequencer import Words, as_words
from dovetail.isa.timing.timeline import Timeline


@dataclass(frozen=True)
class Begun:
    """A program that an accelerator runs: its words, where they are in system memory, and what its addresses are
    relative to. ``cycle``: the cycle of the system that is cycle 0 of the run."""

    words: Words
    address: int = 0
    base: int = 0
    cycle: int = 0


def time_system(
    system: System, programs: Mapping[str, Begun], *, memory_bytes: int | None = None, broken: Broken = ()
) -> dict[str, Timeline]:
    """When everything in programs happens that run at once, each in cycles of its own run.

    Parameters
    ----------
    system
        The accelerators, and the timing of memory.
    programs
        By name of the accelerator; others rest.
    memory_bytes, broken
        See :func:`~dovetail.isa.timing.run.time_program`; the system's memory if left out.

    Raises
    ------
    ConfigError
        For a microcoded accelerator, whose transfers have other rules; for transfers of too many beats.
    ValueError
        When an address is not what a host can set.
    """
    found = _time(
        system,
        [(name, begun.words, begun.address, begun.base) for name, begun in programs.items()],
        [begun.cycle for begun in programs.values()],
        system.memory_bytes if memory_bytes is None else memory_bytes,
        broken,
    )
    return {name: done[1] for name, done in zip(programs, found, strict=True) if done is not None}


@dataclass(frozen=True)
class JobTimes:
    """When jobs run, in their order: cycle 0 of each run in cycles of the system, and its timeline in cycles of its
    own; None of a job that never starts, as one that it waits for has faulted."""

    origins: tuple[int | None, ...]
    timelines: tuple[Timeline | None, ...]

    @property
    def ends(self) -> tuple[int | None, ...]:
        """The cycle behind each run's last one."""
        return tuple(
            None if origin is None or line is None else origin + line.cycles
            for origin, line in zip(self.origins, self.timelines, strict=True)
        )

    @property
    def cycles(self) -> int:
        """From the system's cycle 0 to the end of the last run."""
        return max((end for end in self.ends if end is not None), default=0)


def time_jobs(system: System, jobs: Sequence[Job], *, memory_bytes: int | None = None, broken: Broken = ()) -> JobTimes:
    """When everything in the jobs of a plan happens; parameters and errors are those of :func:`time_system`.

    Raises
    ------
    ConfigError
        Also for jobs of an accelerator that the system has not, and for jobs that would wait for ever.
    """
    check_jobs(system, jobs)
    found = _time(
        system,
        [(job.accelerator, job.words, job.address, job.base) for job in jobs],
        Plan(jobs, system.reaction),
        system.memory_bytes if memory_bytes is None else memory_bytes,
        broken,
    )
    return JobTimes(
        tuple(None if done is None else done[0] for done in found),
        tuple(None if done is None else done[1] for done in found),
    )


def _time(
    system: System, programs: Sequence[tuple[str, Words, int, int]], starts: Starts, memory_bytes: int, broken: Broken
) -> list[tuple[int, Timeline] | None]:
    """Cycle 0 and timeline of each program; of it the accelerator's name, words, address and base."""
    numbers = system.numbers
    tasks, operations = [], []
    for name, given, address, base in programs:
        config = replace(system[name].config, memory=system.memory)
        if config.serial:
            raise ConfigError(f"accelerators.{name}: must not be microcoded to be timed among others")
        check_places(address, base, memory_bytes, broken)
        work, decoded = work_of(config, as_words(given), address, base, memory_bytes, broken)
        tasks.append(Task(numbers[name], work, address, decoded.shapes(base)))
        operations.append(decoded)
    machine = Machine(
        [part.config.outstanding for part in system.accelerators],
        [part.config.bus_bytes for part in system.accelerators],
        joined=True,
        memory=system.memory,
        beat_bytes=system.memory_bus // 8,
    )
    return [_timed(*done) for done in zip(play_together(machine, tasks, starts), operations, strict=True)]


def _timed(played: Done, operations: Operations) -> tuple[int, Timeline] | None:
    if played is None:
        return None
    origin, outcome = played
    return origin, timeline_of(outcome, operations) if len(outcome.columns[0]) else without_words()
