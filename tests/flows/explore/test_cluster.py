"""Sweeps on a Dask cluster: a scheduler and two worker processes on loopback."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.flows.explore.pricing import evaluation
from dovetail.flows.explore.pricing.evaluation import Session, VersionError
from dovetail.flows.explore.pricing.workers import AHEAD, Task, WorkersError
from dovetail.flows.explore.space import networks
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.explore.sweep import Means, sweep
from dovetail.isa.config.resolved import Config

pytest.importorskip("distributed")

from dovetail.flows.explore.pricing.cluster import ClusterWorkers

pytestmark = pytest.mark.slow
SPACE = Space(
    (Workload("zoo:autoencoder"),), Config(), {"lanes": ((8, 8), (16, 8)), "bus": (32, 64, 7)}, objectives=("cycles",)
)
PATIENCE = 60


def started(stack: ExitStack, log: Path, *command: str) -> subprocess.Popen[bytes]:
    """A Dask process that ends with the stack."""
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "dask", *command], stdout=file, stderr=file)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def found(log: Path, pattern: str) -> str:
    """What a log says, as soon as it does."""
    end = time.monotonic() + PATIENCE
    while not (match := re.search(pattern, log.read_text())):
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.05)
    return match[1]


def scheduler_of(stack: ExitStack, folder: Path) -> str:
    """The address of a new scheduler."""
    started(stack, folder / "scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    return found(folder / "scheduler", r"Scheduler at:\s+(tcp://\S+)")


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler with two workers."""
    folder = tmp_path_factory.mktemp("dask")
    with ExitStack() as stack:
        address = scheduler_of(stack, folder)
        options = ("--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder))
        started(stack, folder / "workers", "worker", address, *options)
        yield address


def rows(path: Path, means: Means) -> list[tuple[int, tuple[object, ...], str]]:
    with Store(path, write=True) as store:
        progress = sweep(store, SPACE, networks.read_all(SPACE), means, lambda progress: None)
        assert (progress.priced, progress.failed) == (4, 2)
        return [(row.number, row.costs, row.error) for row in store.results().rows]


def test_a_cluster_gives_what_local_processes_give(scheduler: str, tmp_path: Path) -> None:
    assert rows(tmp_path / "a", Means(scheduler=scheduler)) == rows(tmp_path / "b", Means(jobs=1))


def test_versions_and_room(scheduler: str) -> None:
    file = networks.read(SPACE.workloads[0])
    session = Session("test", {file.hash: file}, {}, None, evaluation.version())
    with closing(ClusterWorkers(session, scheduler)) as workers:
        assert workers.room() == 2 * AHEAD
    with closing(ClusterWorkers(replace(session, version="0123"), scheduler)) as workers:
        workers.submit(Task(0, file.hash, Config()))
        with pytest.raises(VersionError, match=r"must have the Dovetail that started the sweep \(0123\), not "):
            workers.wait()


def test_no_scheduler_and_no_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.flows.explore.pricing.cluster.PATIENCE", 1)
    session = Session("test", {}, {}, None, evaluation.version())
    for address in ("tcp://127.0.0.1:1", "nonsense://"):
        with pytest.raises(WorkersError, match=f"{address}: must be the address of a Dask scheduler"):
            ClusterWorkers(session, address)
    with ExitStack() as stack:
        address = scheduler_of(stack, tmp_path)
        with pytest.raises(WorkersError, match=f"must have workers; start some by `dask worker {address}`"):
            ClusterWorkers(session, address)
