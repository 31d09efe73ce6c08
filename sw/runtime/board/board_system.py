"""A board with several accelerators: runs the jobs of a plan on it."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from dovetail.isa.config.system import System
from dovetail.isa.host import STATUS_DONE
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.link import BAUD
from dovetail.isa.timing.jobs import AnyJob, Job, before, check_jobs
from dovetail.isa.timing.run import cycle_bound
from dovetail.sw.runtime.board.board_engine import check_accelerator, check_room, wait_for
from dovetail.sw.runtime.board.contents import Contents, traffic
from dovetail.sw.runtime.board.link import PATIENCE, Link, LinkError
from dovetail.sw.runtime.engine import Bytes, RunResult, without_timeline


class BoardSystem:
    """Runs jobs on a board with several accelerators. A context manager.

    Parameters
    ----------
    system
        What the bitstream must hold.
    port, baud, patience
        See :class:`~dovetail.sw.runtime.board.link.Link`.

    Raises
    ------
    LinkError
        The port cannot be used, no board answers, or it holds something else. :meth:`run_jobs` raises it where memory
        does not suffice, the link breaks, or a run does not end.
    """

    def __init__(
        self, system: System, port: str | None = None, baud: int = BAUD, *, patience: float = PATIENCE
    ) -> None:
        self.system = system
        self.link = Link(port, baud, patience=patience)
        try:
            self._check()
        except LinkError:
            self.link.close()
            raise
        self._contents = Contents(self.link)

    def __enter__(self) -> "BoardSystem":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the port back."""
        self.link.close()

    def _check(self) -> None:
        """Raise LinkError unless the board holds these accelerators, and they are idle."""
        parts, found = self.system.accelerators, self.link.board.accelerators
        if found != len(parts):
            raise LinkError(
                f"{self.link.port}: the board must have the system's number of accelerators, {len(parts)}, not {found}"
            )
        for part in parts:
            check_accelerator(self.link, part.config, part.registers)

    def run_jobs(self, memory: Bytes, given: Sequence[AnyJob]) -> tuple[RunResult | None, ...]:
        """Run the jobs of a plan; the results, without timelines, in their order. None of a job that never started, as
        one that it waits for has faulted.

        Jobs that are ready together begin together, :data:`~dovetail.isa.link.START_GAP` cycles apart, in the order of
        the accelerators. Jobs that become ready later begin when the host has
        heard of it, which takes the time of some frames. Their words must be in ``memory`` already, which starts at
        address 0, is a multiple of 4096 bytes and is changed in place. Raises ConfigError for jobs that would wait for
        ever, ValueError for jobs of the host's own, and for jobs with ``earliest``: the host of a board does not count
        cycles.
        """
        check_jobs(self.system, given)
        check_room(self.link, memory)
        jobs = [job for job in given if isinstance(job, Job)]
        if len(jobs) < len(given):
            raise ValueError("jobs on a board must be programs, not layers that the host computes")
        if any(job.earliest for job in jobs):
            raise ValueError("jobs on a board must have no earliest cycle")
        self._check()
        moved = [traffic(job.words, job.base, len(memory)) for job in jobs]
        needed, stored = (np.zeros(len(memory), np.bool_) for _ in range(2))
        for job, move in zip(jobs, moved, strict=True):
            needed |= move.taken
            stored |= move.stored
            needed[job.address : job.address + PAGE_BYTES * job.pages] = True
        try:
            self._contents.send(memory, needed)
            results = self._execute(jobs, memory)
            self._contents.fetch(memory, stored)
        except BaseException:  # how far it got is unknown
            self._contents.forget()
            raise
        return results

    def _execute(self, jobs: Sequence[Job], memory: Bytes) -> tuple[RunResult | None, ...]:
        numbers = self.system.numbers
        waits = before(jobs)
        bounds = [cycle_bound(self.system[job.accelerator].config, job.words) for job in jobs]
        results: list[RunResult | None] = [None] * len(jobs)
        running: dict[int, int] = {}  # job of an accelerator
        left = set(range(len(jobs)))
        while True:
            ready = [n for n in sorted(left) if all((done := results[m]) and not done.fault for m in waits[n])]
            self._begin({numbers[jobs[n].accelerator]: jobs[n] for n in ready})
            running |= {numbers[jobs[n].accelerator]: n for n in ready}
            left -= set(ready)
            if not running:
                return tuple(results)
            interrupts = wait_for(self.link, sum(bounds[n] for n in running.values()))
            for accelerator in [k for k in running if interrupts >> k & 1]:
                window = self.system.accelerators[accelerator].registers
                result = without_timeline(memory, partial(self.link.read_register, window=window))
                results[running.pop(accelerator)] = result
                self.link.write_register("STATUS", STATUS_DONE.mask, window)

    def _begin(self, jobs: dict[int, Job]) -> None:
        """Start jobs together, by number of their accelerators."""
        windows = {k: self.system.accelerators[k].registers for k in jobs}
        for k, job in jobs.items():
            values = {"STATUS": STATUS_DONE.mask, "PROGRAM": job.address, "PAGES": job.pages, "BASE": job.base}
            for name, value in values.items():
                self.link.write_register(name, value, windows[k])
        if jobs:
            self.link.start(sum(1 << k for k in jobs), windows[min(jobs)])
