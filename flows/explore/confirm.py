"""Checks a sweep's points on the RTL: every byte, every cycle."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from dovetail.cosim.compare.networks import verify
from dovetail.cosim.rtl.rtl_engine import is_built
from dovetail.cosim.rtl.verilate import verilator_root
from dovetail.flows.explore.pricing.evaluation import version
from dovetail.flows.explore.pricing.local import prepare
from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.space import networks
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.networks import SpaceNetwork
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.options.network import random_sample
from dovetail.isa.common.cplusplus import compiler
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.plan import schedule_cache
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.compiled_network import compile_network

MOST = 2
"""Processes that build and run at a time, at most: a build compiles on several cores itself."""
BUILD_SECONDS, CHECK_SECONDS, RATE = 30.0, 2.0, 2e6
"""Rough figures: CPU seconds per build and per check, and cycles per CPU second on model and RTL together."""
LIFE = 25
"""Checks after which a process is replaced: a library that was loaded stays in memory."""


class ConfirmError(DovetailError):
    """Points that cannot be confirmed."""


@dataclass(frozen=True)
class Check:
    """A network on a configuration, to be run on the RTL.

    ``number``: of the point within the space; ``network``: index of the workload; ``cycles``: those of the store.
    """

    number: int
    network: int
    config: Config
    cycles: int


@dataclass(frozen=True)
class Plan:
    """What a confirmation will run.

    ``points``: all that are confirmed afterwards; ``known``: how many have a verdict already; ``checks``: those left to
    run, by build; ``missing``: builds that are not in the cache.
    """

    points: tuple[int, ...]
    known: int
    checks: tuple[Check, ...]
    builds: int
    missing: int

    def seconds(self, jobs: int) -> float:
        """The estimated time on ``jobs`` cores."""
        runs = len(self.checks) * CHECK_SECONDS + sum(check.cycles for check in self.checks) / RATE
        return (self.missing * BUILD_SECONDS + runs) / max(min(jobs, MOST), 1)


@dataclass(frozen=True)
class Verdict:
    """The RTL's verdict. ``difference``: the first one, or empty; ``seconds``: build included."""

    check: Check
    difference: str
    seconds: float


Notify = Callable[[int, Verdict], None]
"""Called with the number of checks that are done and the latest verdict."""


def chosen(results: Results, count: int | None, seed: int = 0) -> list[Row]:
    """The ``count`` best points and as many others at random; all of them without ``count``. Points without a cost have
    nothing to confirm."""
    rows = [row for row in results.rows if row.costs]
    if count is None:
        return rows
    best = results.ranked()[:count]
    numbers = {row.number for row in best}
    others = [row for row in rows if row.number not in numbers]
    return best + random.Random(seed).sample(others, min(count, len(others)))


def plan(store: Store, rows: Sequence[Row], cache: Path) -> Plan:
    """The plan for some rows of the store's latest sweep. A row with a verdict is not run again.

    Raises
    ------
    ConfirmError: the sweep was made by another version of Dovetail.
    """
    sweep = store.sweep()
    if sweep.version != version():
        raise ConfirmError(
            f"{store.path}: sweep must be of this version of Dovetail to be confirmed, not {sweep.version}; sweep again"
        )
    known = store.confirmed()
    checks = [
        Check(row.number, network, row.config, cost.cycles)
        for row in rows
        if isinstance(row.config, Config)
        for network, cost in enumerate(row.costs)
        if (row.number, network) not in known
    ]
    left = {check.number for check in checks}
    builds = {_key(check): check.config for check in checks if check.cycles}
    missing = [config for config in builds.values() if not is_built(config, cache)]
    order = {key: place for place, key in enumerate(builds)}
    checks.sort(key=lambda check: (order.get(_key(check), -1), check.number, check.network))
    points = tuple(row.number for row in rows)
    return Plan(points, len(points) - len(left), tuple(checks), len(builds), len(missing))


def confirm(
    store: Store, todo: Plan, *, cache: Path, jobs: int = MOST, schedules: Path | None = None, notify: Notify
) -> list[tuple[int, str]]:
    """Carry out a plan; verdicts are in the store as they come, so that a stopped run can be resumed.

    Each network is compiled again, runs on the model and on the RTL with a random input, and must leave the same bytes,
    timeline, counters and cycles; these must be those of the store. Where the host does part of the work it is about
    the accelerator's segments.

    Parameters
    ----------
    store: open for writing.
    cache: folder of the RTL builds.
    jobs: processes, at most :data:`MOST` at a time.
    schedules: folder of the schedule cache of the sweep.
    notify: called after every check.

    Returns
    -------
    The differences of the plan's points, those known before as well: number of the point, and a line that names it and
    what differs. Empty if all is equal.

    Raises
    ------
    ToolError: Verilator or the C++ compiler is missing or fails.
    ConfirmError: a network's file has changed since the sweep, or a process died.
    """
    sweep = store.sweep()
    files = [networks.read(workload) for workload in sweep.space.workloads]
    for file, before in zip(files, store.networks(sweep), strict=True):
        if before.hash != file.hash:
            raise ConfirmError(f"{file.source}: network must be the one of the sweep, but has changed; sweep again")
    if todo.missing:
        verilator_root()
        compiler()
    job = Job(tuple(files), sweep.space, cache, schedules)
    for done, verdict in enumerate(_verdicts(job, todo.checks, max(min(jobs, MOST), 1)), 1):
        check = verdict.check
        store.confirm(check.number, not verdict.difference, verdict.difference, network=check.network, sweep=sweep.id)
        notify(done, verdict)
    return [
        (number, f"point {number}, {files[network].name}: {told.detail}")
        for (number, network), told in sorted(store.confirmed().items())
        if number in todo.points and not told.equal
    ]


def _key(check: Check) -> int:
    """Checks with the same key share a build: the memory's timing is no part of it."""
    return check.config.hash


# --- processes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a process must know; ``networks``: of the space's workloads, in their order."""

    networks: tuple[SpaceNetwork, ...]
    space: Space
    cache: Path
    schedules: Path | None


class Queue:
    """The order of checks: of those that share a build one goes first, and the others follow when it is built."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._waiting: dict[int, list[Check]] = {}
        for check in checks:
            self._waiting.setdefault(_key(check), []).append(check)
        self._ready = deque(group.pop(0) for group in self._waiting.values())

    def take(self) -> Check | None:
        """The next check, None if there is none for now."""
        return self._ready.popleft() if self._ready else None

    def built(self, check: Check) -> None:
        """Release the checks that waited for this build; they are next."""
        self._ready.extendleft(reversed(self._waiting.pop(_key(check), [])))


def _verdicts(job: Job, checks: Sequence[Check], jobs: int) -> Iterator[Verdict]:
    """The verdicts as they come, from ``jobs`` processes."""
    queue = Queue(checks)
    context = multiprocessing.get_context("spawn")  # fork would copy the threads of the numeric libraries
    reader, leash = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, context, _begin, (job, reader), max_tasks_per_child=LIFE)
    running: dict[Future[Verdict], Check] = {}
    try:
        while True:
            while len(running) < jobs and (check := queue.take()):
                running[pool.submit(_check, check)] = check
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                verdict = future.result()
                queue.built(running.pop(future))
                yield verdict
    except BrokenProcessPool as error:
        numbers = " or ".join(str(check.number) for check in running.values())
        raise ConfirmError(f"point {numbers}: the process that ran it died (out of memory?)") from error
    finally:
        leash.close()
        pool.shutdown(cancel_futures=True)
        reader.close()


_job: Job


def _begin(job: Job, leash: Connection) -> None:
    """Make a new process ready; it ends with the one that started it."""
    global _job
    _job = job
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare(leash)
    schedule_cache.use(job.schedules)


def _check(check: Check) -> Verdict:
    start = time.perf_counter()
    try:
        difference = difference_of(_job, check)
    except DovetailError as error:
        raise ConfirmError(f"point {check.number}: {error}") from error
    return Verdict(check, difference, time.perf_counter() - start)


def difference_of(job: Job, check: Check) -> str:
    """The first difference of a check; empty if there is none."""
    file, space = job.networks[check.network], job.space
    compiled = compile_network(file.graph, check.config, **space.compiler)
    if not compiled.code.segments:
        return _cycles_difference(0, check)
    sample = random_sample(file.graph, np.random.default_rng(check.number))
    # What stays in SRAM from run to run is loaded in the first one; the stored cycles are those of the others.
    runs = 1 + compiled.code.keeps
    verdicts = verify(compiled, [sample] * runs, cache=job.cache)
    difference = next((verdict.first_difference for verdict in verdicts if verdict.first_difference), "")
    return difference or _cycles_difference(sum(s.cycles_rtl for s in verdicts[-1].segments), check)


def _cycles_difference(rtl: int, check: Check) -> str:
    return "" if rtl == check.cycles else f"cycles: stored {check.cycles}, RTL {rtl}"
