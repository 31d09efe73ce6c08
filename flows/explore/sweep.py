"""The loop of a sweep: ask the search, look into the store, have the rest priced, store it, tell the search."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.flows.explore.pricing.cost import Outcome
from dovetail.flows.explore.pricing.evaluation import Session, version
from dovetail.flows.explore.pricing.local import LocalWorkers
from dovetail.flows.explore.pricing.workers import Task, Workers, WorkersError
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.search import search_of
from dovetail.flows.explore.search.listed import Search
from dovetail.flows.explore.space.deployment import Design
from dovetail.flows.explore.space.design_space import Point, Space
from dovetail.flows.explore.space.file import load
from dovetail.flows.explore.space.networks import SpaceNetwork, read_all
from dovetail.flows.explore.store.database import StoreError
from dovetail.flows.explore.store.recorder import Known, Recorder
from dovetail.flows.explore.store.result_store import Store, Sweep, row_from


@dataclass(frozen=True)
class Means:
    """What a sweep is carried out with.

    ``jobs``: processes of this machine, unless ``scheduler`` is the address of a Dask scheduler; ``schedules``: folder
    of the schedule cache, None: there is none.
    """

    jobs: int = 1
    scheduler: str = ""
    schedules: Path | None = None

    def workers(self, session: Session) -> Workers:
        """Those that price points. Raises WorkersError."""
        if not self.scheduler:
            return LocalWorkers(session, self.jobs)
        if find_spec("distributed") is None:
            raise WorkersError(f"{self.scheduler}: needs the package distributed; pip install dovetail[cluster]")
        from dovetail.flows.explore.pricing.cluster import ClusterWorkers  # the package is an extra

        return ClusterWorkers(session, self.scheduler)


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    ``total``: points in all, 0 if unknown; ``done``: those that are finished: ``priced`` by workers, ``reused``
    from the store, or without a configuration; ``failed``: those of them without a cost; ``outdated``: those that the
    store has from another version of the compiler only; ``seconds``: since the first point went to a worker.
    """

    total: int
    done: int = 0
    priced: int = 0
    reused: int = 0
    failed: int = 0
    outdated: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Points per second, of those that were priced."""
        return self.priced / self.seconds if self.seconds else 0.0

    @property
    def left(self) -> float | None:
        """Seconds, if no further point is in the store; None if unknown."""
        return (self.total - self.done) / self.rate if self.total and self.rate else None


Notify = Callable[[Progress], None]
"""Called whenever a point is finished."""


def sweep(
    store: Store, space: Space, files: Sequence[SpaceNetwork], means: Means, notify: Notify, last: Sweep | None = None
) -> Progress:
    """Look at the points of a space; what they cost is in the store afterwards, as its latest sweep.

    Parameters
    ----------
    store: open for writing.
    files: the networks of the space's workloads, in their order.
    last: the sweep of the store to continue; None begins a new one.

    Raises
    ------
    DovetailError: there are no workers, the store cannot be written.
    """
    search = search_of(space)
    named = {file.hash: file for file in files}
    session = Session(uuid.uuid4().hex, named, space.compiler, means.schedules, version())
    with (
        closing(means.workers(session)) as workers,
        Recorder(store, space, files, search.total, last) as recorder,
    ):
        loop = _Loop(space, search, recorder, [file.hash for file in files], notify)
        loop.run(workers)
        recorder.finish()
    return loop.progress


def resume(store: Store, means: Means, notify: Notify) -> Progress:
    """Go on with the latest sweep of a store, or see that it is finished.

    Raises DovetailError: there is none, or a network's file has changed since; and as :func:`sweep`.
    """
    last = store.sweep()
    files = read_all(last.space)
    for file, before in zip(files, store.networks(last), strict=True):
        if before.hash != file.hash:
            raise StoreError(f"{file.source}: network must be the one of the sweep, but has changed; start a new sweep")
    return sweep(store, last.space, files, means, notify, last)


def explore(
    space: Space | str | Path, *, store: str | Path | None = None, jobs: int | None = None, scheduler: str = ""
) -> Results:
    """Look at the points of a space, and return what they cost.

    Parameters
    ----------
    space: a space, or the path of a space file.
    store: where results are kept, and found by the next call; left out: nowhere.
    jobs: processes; left out: as many as there are processors. They start anew: a script calls this below
        ``if __name__ == "__main__":``.
    scheduler: address of a Dask scheduler, whose workers do it instead.

    Raises
    ------
    DovetailError: the space or a network cannot be read, there are no workers, the store cannot be written. A point
        that cannot be priced is a row with an error.
    """
    whole = space if isinstance(space, Space) else load(space)
    files = read_all(whole)
    means = Means(jobs or os.cpu_count() or 1, scheduler)
    with (
        TemporaryDirectory(prefix="dovetail-") as folder,
        Store(store or Path(folder) / "results.sqlite", write=True) as kept,
    ):
        sweep(kept, whole, files, means, lambda progress: None)
        return kept.results()


class _Loop:
    """A sweep under way; ``hashes``: of the space's workloads, in their order."""

    def __init__(self, space: Space, search: Search, recorder: Recorder, hashes: Sequence[str], notify: Notify) -> None:
        self.progress = Progress(search.total)
        self._space, self._search, self._recorder, self._hashes, self._notify = space, search, recorder, hashes, notify
        self._pending: dict[int, tuple[Point, dict[str, Outcome]]] = {}
        self._asked: dict[tuple[str, Design], list[int]] = {}  # points that wait for a result: clocks share one
        self._start = 0.0

    def run(self, workers: Workers) -> None:
        """Run the sweep."""
        while True:
            self._look(workers)
            if not self._pending:
                return
            for task, outcome in workers.wait():
                self._recorder.put(task.network, task.config, outcome)
                for number in self._asked.pop((task.network, task.config)):
                    point, outcomes = self._pending[number]
                    outcomes[task.network] = outcome
                    if outcomes.keys() >= set(self._hashes):
                        del self._pending[number]
                        self._finish(point, outcomes, priced=number == task.number, reused=number != task.number)

    def _look(self, workers: Workers) -> None:
        """Ask for points until the workers have enough to do."""
        while (room := workers.room()) > 0:
            points = self._search.ask(max(1, room // len(set(self._hashes))))
            if not points:
                return
            for point, known in zip(points, self._recorder.visit(points), strict=True):
                self._take(workers, point, known)

    def _take(self, workers: Workers, point: Point, known: Known) -> None:
        """Have priced what the store does not have."""
        self.progress = replace(self.progress, outdated=self.progress.outdated + known.outdated)
        missing = [name for name in dict.fromkeys(self._hashes) if name not in known.outcomes]
        if point.config is None or not missing:
            self._finish(point, known.outcomes, reused=point.config is not None)
            return
        self._start = self._start or time.monotonic()
        self._pending[point.number] = point, dict(known.outcomes)
        for name in missing:
            waiting = self._asked.setdefault((name, point.config), [])
            waiting.append(point.number)
            if len(waiting) == 1:
                workers.submit(Task(point.number, name, point.config))

    def _finish(
        self, point: Point, outcomes: Mapping[str, Outcome], *, priced: bool = False, reused: bool = False
    ) -> None:
        """Report a finished point."""
        row = row_from(self._space, point, [outcomes[name] for name in self._hashes if name in outcomes])
        self._search.tell(row)
        self.progress = replace(
            self.progress,
            done=self.progress.done + 1,
            failed=self.progress.failed + bool(row.error),
            priced=self.progress.priced + priced,
            reused=self.progress.reused + reused,
            seconds=time.monotonic() - self._start if self._start else 0.0,
        )
        self._notify(self.progress)
