"""Sweeps: what is priced, what is reused, what survives, with processes and with a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.flows.explore.pricing import local
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.space.networks import read_all
from dovetail.flows.explore.store import recorder
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.explore.sweep import Means, Progress, resume, sweep
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.errors import DovetailError
from tests.slow import slow

NETWORKS = (Workload("zoo:autoencoder"), Workload("zoo:dscnn", 2.0))
AXES = {"lanes": ((8, 8), (16, 8)), "bus": (64, 7)}


def run(store: Store, space: Space, means: Means | None = None) -> Progress:
    return sweep(store, space, read_all(space), means or Means(jobs=1), lambda progress: None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.sqlite", write=True) as store:
        yield store


def refuse(*_: object) -> None:
    raise AssertionError("nothing must be priced")


def test_a_sweep_and_what_another_reuses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space(NETWORKS, Config(), AXES, objectives=("cycles", "pe"))
    seen: list[Progress] = []
    last = sweep(store, space, read_all(space), Means(jobs=1), seen.append)
    assert [progress.done for progress in seen] == [1, 2, 3, 4]
    assert (last.total, last.priced, last.reused, last.failed) == (4, 2, 0, 2)
    assert last.rate > 0
    rows = store.results().rows
    assert [row.error for row in rows if row.number % 2] == ["bus must be one of 32, 64, 128, 256, 512, not 7"] * 2
    for row in rows[::2]:
        assert isinstance(row.config, Config)
        cycles = [dovetail.compile(w.source, row.config, effort=0).report().cycles for w in NETWORKS]
        assert [cost.cycles for cost in row.costs] == cycles
        assert row.values["cycles"] == cycles[0] + 2 * cycles[1]
    monkeypatch.setattr(local.LocalWorkers, "submit", refuse)
    again = run(store, Space(NETWORKS[1:], Config(), {"lanes": AXES["lanes"]}))
    assert (again.priced, again.reused, again.failed, again.seconds) == (0, 2, 0, 0.0)
    assert [sweep.total for sweep in store.sweeps()] == [4, 2]


def test_results_of_another_compiler_are_not_reused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space(NETWORKS[:1], Config(), {})
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "version", lambda: "old")
        assert run(store, space).priced == 1
    progress = run(store, space)
    assert (progress.priced, progress.reused, progress.outdated) == (1, 0, 1)
    assert len(store.database.rows("SELECT * FROM results")) == 2


@pytest.mark.parametrize("options", [{"effort": 1}, slow({"tiling": "channels"}), slow({"keep_weights": True})])
def test_results_of_other_options_are_not_reused(options: dict[str, Any], store: Store) -> None:
    spaces = Space(NETWORKS[:1], Config(), {}), Space(NETWORKS[:1], Config(), {}, **options)
    assert [run(store, space).priced for space in (*spaces, *spaces)] == [1, 1, 0, 0]


def test_resume_takes_everything_from_the_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DovetailError, match="store must have a sweep"):
        resume(store, Means(), lambda progress: None)

    def stop(progress: Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    space = Space(NETWORKS[:1], Config(), {"bus": (32, 64, 128, 256)}, effort=0)
    with pytest.raises(KeyboardInterrupt):
        sweep(store, space, read_all(space), Means(jobs=1), stop)
    assert not store.sweep().finished
    progress = resume(store, Means(jobs=1), lambda progress: None)
    assert (progress.priced, progress.reused) == (1, 3)
    assert [(sweep.id, bool(sweep.finished)) for sweep in store.sweeps()] == [(1, True)]
    assert len(store.results().rows) == 4


def test_resume_refuses_a_network_that_has_changed(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(frontend.read(NETWORKS[0].source).data)
    run(store, Space((Workload(str(file)),), Config(), {}))
    file.write_bytes(frontend.read(NETWORKS[1].source).data)
    with pytest.raises(DovetailError, match=r"net\.onnx: network must be the one of the sweep, but has changed"):
        resume(store, Means(), lambda progress: None)


def test_explore_is_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(
        '[[network]]\nsource = "zoo:autoencoder"\n[axes]\nbus = [32, 64]\n[goals]\nobjectives = ["cycles"]\n'
    )
    results = dovetail.explore(file, store=tmp_path / "s.sqlite", jobs=1)
    assert [dict(row.axes) for row in results.rows] == [{"bus": 32}, {"bus": 64}]
    assert sum(row.front for row in results.rows) == 1
    assert Store(tmp_path / "s.sqlite").results().rows == results.rows
