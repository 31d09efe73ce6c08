"""Processes that price points: outcomes, failures, deaths."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.explore.pricing import evaluation
from dovetail.flows.explore.pricing.cost import Outcome
from dovetail.flows.explore.pricing.evaluation import Session, VersionError
from dovetail.flows.explore.pricing.local import LocalWorkers
from dovetail.flows.explore.pricing.workers import AHEAD, DIED, Task, Workers
from dovetail.flows.explore.space import networks
from dovetail.flows.explore.space.design_space import Workload
from dovetail.flows.explore.space.networks import SpaceNetwork
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.compiled_network import compile_network

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")


@pytest.fixture(scope="module")
def file() -> SpaceNetwork:
    return networks.read(Workload("zoo:autoencoder"))


def session_of(file: SpaceNetwork, **compiler: Any) -> Session:
    return Session("test", {file.hash: file}, compiler, None, evaluation.version())


@pytest.fixture
def workers(file: SpaceNetwork) -> Iterator[LocalWorkers]:
    with closing(LocalWorkers(session_of(file), 1)) as workers:
        yield workers


def outcomes(workers: Workers, file: SpaceNetwork, configs: Sequence[Any]) -> list[Outcome]:
    """Of a task for each configuration, in their order."""
    found: dict[int, Outcome] = {}
    for number, config in enumerate(configs):
        workers.submit(Task(number, file.hash, config))
    while len(found) < len(configs):
        found |= {task.number: outcome for task, outcome in workers.wait()}
    return [found[number] for number in range(len(configs))]


class Deadly:
    """Ends the process that gets it, once for each byte of a file; after that it is a configuration there."""

    def __init__(self, lives: Path) -> None:
        self.lives = lives

    def __reduce__(self) -> tuple[Any, ...]:
        file = f"__import__('pathlib').Path({str(self.lives)!r})"
        die = f"{file}.write_bytes({file}.read_bytes()[1:]) + __import__('os')._exit(9)"
        config = f"__import__('importlib').import_module('{Config.__module__}').Config.from_dict({CONFIG.to_dict()!r})"
        return eval, (f"{die} if {file}.read_bytes() else {config}",)


@pytest.mark.parametrize("keep_weights", [False, True])
def test_a_cost_is_that_of_the_compiled_network(keep_weights: bool, file: SpaceNetwork) -> None:
    with closing(LocalWorkers(session_of(file, keep_weights=keep_weights), 1)) as workers:
        (outcome,) = outcomes(workers, file, [CONFIG])
    assert outcome.cost
    report = compile_network("zoo:autoencoder", CONFIG, effort=0, keep_weights=keep_weights).report()
    assert (outcome.cost.cycles, outcome.cost.macs) == (report.cycles, report.macs)
    assert outcome.cost.read_bytes + outcome.cost.write_bytes == report.moved_bytes
    assert sum(outcome.cost.kinds.values()) == report.cycles
    assert outcome.seconds > 0


def test_a_failure_is_an_outcome(workers: LocalWorkers, file: SpaceNetwork) -> None:
    first, second = outcomes(workers, file, [7, CONFIG])
    assert first.cost is None
    assert first.error == "config must be a dovetail.Config, not int"
    assert not first.lost
    assert second.cost


def test_a_worker_that_dies_costs_its_point_after_one_retry(
    workers: LocalWorkers, file: SpaceNetwork, tmp_path: Path
) -> None:
    once, always = tmp_path / "once", tmp_path / "always"
    once.write_bytes(b"1")
    always.write_bytes(b"1" * 9)
    found = outcomes(workers, file, [CONFIG, Deadly(once), CONFIG, Deadly(always), CONFIG])
    assert [outcome.error for outcome in found] == ["", "", "", DIED, ""]
    assert found[3].lost
    assert found[1].cost == found[0].cost
    assert len(always.read_bytes()) == 7


def test_room_is_bounded(file: SpaceNetwork) -> None:
    with closing(LocalWorkers(session_of(file), 3)) as workers:
        assert workers.room() == 3 * AHEAD
        workers.submit(Task(0, file.hash, CONFIG))
        assert workers.room() == 3 * AHEAD - 1
        workers.wait()
        assert workers.room() == 3 * AHEAD


def test_workers_of_another_version_are_refused(file: SpaceNetwork) -> None:
    session = replace(session_of(file), version="0123")
    with closing(LocalWorkers(session, 1)) as workers:
        workers.submit(Task(0, file.hash, CONFIG))
        with pytest.raises(VersionError, match=r"must have the Dovetail that started the sweep \(0123\), not "):
            workers.wait()


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import dovetail\n"
        "space = dovetail.Space((dovetail.Workload('zoo:autoencoder'),), dovetail.Config(), {})\n"
        "dovetail.explore(space, jobs=1)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr.splitlines()[-1].endswith('must do so below `if __name__ == "__main__":`')
