"""Workers that are processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from dovetail.flows.explore.pricing import evaluation
from dovetail.flows.explore.pricing.cost import Outcome
from dovetail.flows.explore.pricing.evaluation import Session
from dovetail.flows.explore.pricing.workers import AHEAD, DIED, Task, WorkersError

ATTEMPTS = 2
"""Workers that one point may kill before it counts as failed."""


class LocalWorkers:
    """Up to ``jobs`` processes; each is started when there is something for it to do. They read the session from a
    file: as an argument it would be larger than a pipe, and Python before 3.11.5 waits for ever for a process that ends
    before it has read such an argument.

    Raises WorkersError: the file cannot be written.
    """

    def __init__(self, session: Session, jobs: int) -> None:
        self.jobs = jobs
        self._name = session.name
        self._lanes: list[Lane] = []
        try:
            self._folder = TemporaryDirectory(prefix="dovetail-")
            self._file = Path(self._folder.name) / "session"
            self._file.write_bytes(pickle.dumps(session))
        except OSError as error:
            raise WorkersError(f"networks must be written to a file for workers, but: {error}") from None

    def room(self) -> int:
        return AHEAD * self.jobs - sum(len(lane.queue) for lane in self._lanes)

    def submit(self, task: Task) -> None:
        lane = min(self._lanes, key=lambda lane: len(lane.queue), default=None)
        if lane is None or (lane.queue and len(self._lanes) < self.jobs):
            lane = Lane(self._name, self._file)
            self._lanes.append(lane)
        lane.submit(task)

    def wait(self) -> list[tuple[Task, Outcome]]:
        done: list[tuple[Task, Outcome]] = []
        while not done:
            wait([future for lane in self._lanes for _, future in lane.queue], return_when=FIRST_COMPLETED)
            done = [ended for lane in self._lanes for ended in lane.collect()]
        return done

    def close(self) -> None:
        for lane in self._lanes:
            lane.close()
        self._lanes.clear()
        self._folder.cleanup()


class Lane:
    """A process and its queue. If the process dies, the first task in the queue is the cause. ``session``: the name of
    the one that the file has."""

    def __init__(self, session: str, file: Path) -> None:
        self.queue: deque[tuple[Task, Future[Outcome]]] = deque()
        self._session, self._file = session, file
        self._start()

    def submit(self, task: Task) -> None:
        """Put a task at the end of the queue."""
        try:
            future = self._pool.submit(evaluation.evaluate, self._session, task.network, task.config)
        except BrokenProcessPool as error:  # it has just died
            future = Future()
            future.set_exception(error)
        self.queue.append((task, future))

    def collect(self) -> list[tuple[Task, Outcome]]:
        """The tasks that have come to an end. Raises WorkersError, VersionError."""
        done: list[tuple[Task, Outcome]] = []
        while self.queue and self.queue[0][1].done():
            task, future = self.queue[0]
            try:
                self._begun.result()
                done.append((task, future.result()))
                self.queue.popleft()
            except BrokenProcessPool:
                task.deaths += 1
                if task.deaths == ATTEMPTS:
                    done.append((task, Outcome(None, DIED, lost=True)))
                    self.queue.popleft()
                self._restart()
        return done

    def close(self) -> None:
        """End the process at once."""
        self._leash.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # fork would copy the threads of the numeric libraries
        reader, self._leash = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(1, context, prepare, (reader,))
        with _interrupts_ignored(), reader:
            self._begun = self._pool.submit(begin, self._file)

    def _restart(self) -> None:
        """Replace a dead process, and give the new one its tasks."""
        if isinstance(self._begun.exception(), BrokenProcessPool):
            raise WorkersError(
                "workers must be able to start, but they end at once; a script that starts a sweep must do so below"
                ' `if __name__ == "__main__":`'
            )
        self.close()
        waiting = [task for task, _ in self.queue]
        self.queue.clear()
        self._start()
        for task in waiting:
            self.submit(task)


def prepare(leash: Connection) -> None:
    """Silence a new process, and tie its life to the process that started it."""
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)

    def follow() -> None:
        leash.poll(None)  # nothing is ever sent: it returns when the other side is closed
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def begin(file: Path) -> None:
    """Take part in the sweep whose session is in a file."""
    evaluation.begin(pickle.loads(file.read_bytes()))


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes started within ignore Ctrl-C, which the terminal sends to them too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
