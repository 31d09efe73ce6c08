"""Workers of a Dask cluster. The package `distributed` comes with the extra `cluster`."""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import closing, suppress

from distributed import Client, KilledWorker, WorkerPlugin
from distributed.comm.addressing import get_address_host_port
from distributed.worker import Worker

from dovetail.flows.explore.pricing import evaluation
from dovetail.flows.explore.pricing.cost import Outcome
from dovetail.flows.explore.pricing.evaluation import Session
from dovetail.flows.explore.pricing.workers import AHEAD, DIED, Task, WorkersError
from dovetail.sw.errors import first_line

PATIENCE = 30
"""Seconds to wait for the scheduler, and for its first worker."""


class SessionPlugin(WorkerPlugin):
    """Tells every worker about a sweep, also those that join later."""

    def __init__(self, session: Session) -> None:
        self.name = session.name
        self._session = session

    def setup(self, worker: Worker) -> None:
        evaluation.begin(self._session)

    def teardown(self, worker: Worker) -> None:
        evaluation.end(self.name)


class ClusterWorkers:
    """The workers behind a scheduler; how many there are may change. Raises WorkersError."""

    def __init__(self, session: Session, scheduler: str) -> None:
        self._session = session
        self._futures: dict[Future[Outcome], Task] = {}
        self._connected = True
        try:
            get_address_host_port(scheduler)  # Client would leave a thread behind that never ends
            self._client = Client(scheduler, timeout=PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise WorkersError(
                f"{scheduler}: must be the address of a Dask scheduler, such as tcp://127.0.0.1:8786, not:"
                f" {first_line(error)}"
            ) from error
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE)
            self._client.register_plugin(SessionPlugin(session))
        except TimeoutError as error:
            self._client.close()
            raise WorkersError(f"{scheduler}: must have workers; start some by `dask worker {scheduler}`") from error
        except BaseException:
            self._client.close()
            raise
        self._pool = self._client.get_executor(pure=False)

    def room(self) -> int:
        return AHEAD * max(1, len(self._client.scheduler_info()["workers"])) - len(self._futures)

    def submit(self, task: Task) -> None:
        future = self._pool.submit(evaluation.evaluate, self._session.name, task.network, task.config)
        self._futures[future] = task

    def wait(self) -> list[tuple[Task, Outcome]]:
        """The tasks that have come to an end, at least one. Raises WorkersError."""
        ended, _ = wait(self._futures, return_when=FIRST_COMPLETED)
        return [(self._futures.pop(future), self._outcome(future)) for future in ended]

    def close(self) -> None:
        """Leave the cluster running, and drop the tasks under way."""
        for future in self._futures:
            future.cancel()
        with closing(self._client), suppress(OSError):  # the scheduler may go away meanwhile
            if self._connected:
                self._client.unregister_worker_plugin(self._session.name)

    def _outcome(self, future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except KilledWorker:  # the scheduler has tried it again, as often as it was told to
            return Outcome(None, DIED, lost=True)
        except CancelledError as error:
            self._connected = False
            for name in ("distributed", "distributed.client"):  # our error says it all
                logging.getLogger(name).setLevel(logging.CRITICAL)
            raise WorkersError(
                "the connection to the scheduler was lost; continue with --resume when it is back"
            ) from error
