"""Times accelerators that compete for one memory: when everything of each starts and ends.

`isa.timing.core` plays them together: queues and faults of each, the interconnect (`isa.timing.interconnect`), the
memory, and the host that starts jobs and computes layers (`isa.timing.jobs`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.system import System
from dovetail.isa.instructions.parameters import resolve
from dovetail.isa.timing.core.engine import play_together
from dovetail.isa.timing.core.rounds import Done, Machine, Plan, Starts, Task
from dovetail.isa.timing.jobs import AnyJob, HostJob, Job, check_jobs
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
        [Job(name, begun.words, begun.address, begun.base) for name, begun in programs.items()],
        [begun.cycle for begun in programs.values()],
        system.memory_bytes if memory_bytes is None else memory_bytes,
        broken,
    )
    timelines = (line for line in found.timelines if line is not None)  # one of no operations is there, too
    return dict(zip(programs, timelines, strict=True))


@dataclass(frozen=True)
class JobTimes:
    """When jobs run, in their order, in cycles of the system: ``origins``, the first cycle of each, which is cycle 0 of
    a run; ``ends``, the cycle behind its last one; and of runs the timeline in cycles of their own. None of a job that
    never starts, as one that it waits for has faulted; of timelines, None of what the host computes."""

    origins: tuple[int | None, ...]
    ends: tuple[int | None, ...]
    timelines: tuple[Timeline | None, ...]

    @property
    def cycles(self) -> int:
        """From the system's cycle 0 to the end of the last job."""
        return max((end for end in self.ends if end is not None), default=0)


def time_jobs(
    system: System, jobs: Sequence[AnyJob], *, memory_bytes: int | None = None, broken: Broken = ()
) -> JobTimes:
    """When everything in the jobs of a plan happens; parameters and errors are those of :func:`time_system`.

    Raises
    ------
    ConfigError
        Also for jobs of an accelerator that the system has not, for cycles of the host that cannot be, and for jobs
        that would wait for ever.
    """
    check_jobs(system, jobs)
    size = system.memory_bytes if memory_bytes is None else memory_bytes
    return _time(system, jobs, Plan(jobs, system.reaction), size, broken)


def _time(system: System, jobs: Sequence[AnyJob], starts: Starts, memory_bytes: int, broken: Broken) -> JobTimes:
    numbers = system.numbers
    tasks, operations = list[Task | None](), list[Operations | None]()
    for job in jobs:
        if isinstance(job, HostJob):
            tasks.append(None)
            operations.append(None)
            continue
        config = replace(system[job.accelerator].config, memory=system.memory)
        if config.serial:
            raise ConfigError(f"accelerators.{job.accelerator}: must not be microcoded to be timed among others")
        check_places(job.address, job.base, memory_bytes, broken)
        words = resolve(config, as_words(job.words), ())
        work, decoded = work_of(config, words, job.address, job.base, memory_bytes, broken)
        tasks.append(Task(numbers[job.accelerator], work, job.address, decoded.shapes(job.base)))
        operations.append(decoded)
    machine = Machine(
        [part.config.outstanding for part in system.accelerators],
        [part.config.bus_bytes for part in system.accelerators],
        joined=True,
        memory=system.memory,
        beat_bytes=system.memory_bus // 8,
    )
    found = play_together(machine, tasks, starts)
    lines = tuple(_timeline(done, decoded) for done, decoded in zip(found, operations, strict=True))
    return JobTimes(
        tuple(done and done.origin for done in found),
        tuple(
            done and (done.past if line is None else done.origin + line.cycles)
            for done, line in zip(found, lines, strict=True)
        ),
        lines,
    )


def _timeline(done: Done | None, operations: Operations | None) -> Timeline | None:
    if done is None or done.outcome is None or operations is None:
        return None
    return timeline_of(done.outcome, operations) if len(done.outcome.columns[0]) else without_words()
