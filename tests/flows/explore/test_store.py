"""The result store: what is kept, found again, not used, and refused."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.flows.explore.pricing.cost import Cost, Outcome
from dovetail.flows.explore.space import space_json
from dovetail.flows.explore.space.design_space import Plan, Space, Workload
from dovetail.flows.explore.space.networks import SpaceNetwork
from dovetail.flows.explore.store import database, recorder
from dovetail.flows.explore.store.database import StoreError
from dovetail.flows.explore.store.recorder import Recorder
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.explore.store.schema import SCRIPTS
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import TABLES
from dovetail.sw.network.ir import Graph

COST = Cost(1000, 64000, 900, 10, 20, {"conv": 700, "dense": 300}, (("dw", "depthwise", 5),), {})
FILES = [SpaceNetwork(name, f"zoo:{name}", f"h{name}", Graph((), (), {}, (), "onnx", name)) for name in "ab"]
SPACE = Space(
    (Workload("zoo:a"), Workload("zoo:b", 2.0, {"x": (1, 3)})),
    Config(),
    {"lanes": ((8, 8), (8, 16)), "bus": (32, 7), "read_latency": (20, 40)},
    objectives=("cycles", "pe"),
    search=Plan("random", 6, 3),
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.sqlite", write=True)


def price(recorder: Recorder, number: int, outcome: Outcome | None = None) -> None:
    """Both networks of a point."""
    point = SPACE.point(number)
    recorder.visit([point])
    for file in FILES:
        assert point.config
        recorder.put(file.hash, point.config, outcome or Outcome(COST, seconds=0.5))


def known(store: Store, number: int) -> recorder.Known:
    """What a new sweep finds for a point."""
    with Recorder(store, SPACE, FILES, 0) as again:
        return again.visit([SPACE.point(number)])[0]


def test_spaces_and_costs_come_back_equal() -> None:
    assert space_json.load(space_json.dump(SPACE)) == SPACE
    assert Cost.from_dict(COST.to_dict()) == COST


def test_files_of_spaces_are_found_from_other_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    plan = Plan("optuna", 5, storage="study.log")
    space = Space((Workload("nets/a.onnx"),), Config(), {}, energy_table="my.toml", search=plan)
    loaded = space_json.load(space_json.dump(space))
    assert loaded.workloads[0].source == f"{tmp_path}/nets/a.onnx"
    assert (loaded.energy_table, loaded.search.storage) == (f"{tmp_path}/my.toml", f"{tmp_path}/study.log")
    same = replace(
        space, workloads=SPACE.workloads, energy_table=TABLES[0], search=replace(plan, storage="sqlite:///s")
    )
    assert space_json.load(space_json.dump(same)) == same


def test_rows_are_those_that_are_done_in_the_order_of_their_numbers(store: Store) -> None:
    with Recorder(store, SPACE, FILES, 6) as sweep:
        price(sweep, 5)
        price(sweep, 0)
        sweep.visit([SPACE.point(number) for number in (2, 1)])  # 2 breaks a rule, 1 is with the workers
        results = Store(store.path).results()
        assert [row.number for row in results.rows] == [0, 2, 5]
        assert (results.space, results.total) == (SPACE, 6)
        first, broken, _ = results.rows
        assert first.costs == (COST, COST)
        assert (first.values["cycles"], first.seconds, first.front) == (3000, 1.0, True)
        assert (broken.config, broken.costs, broken.error) == (None, (), SPACE.point(2).error)
        assert not store.sweep().finished
        sweep.finish()
    assert store.sweep().finished


def test_a_store_that_is_read_sees_what_is_written_later(store: Store) -> None:
    with Recorder(store, SPACE, FILES, 6) as sweep, Store(store.path) as reader:
        for count, number in enumerate((4, 0, 1), 1):
            price(sweep, number)
            assert len(reader.results().rows) == count


def test_results_are_found_by_network_configuration_timing_options_and_version(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recorder(store, SPACE, FILES, 6) as sweep:
        price(sweep, 0)
    assert known(store, 0) == recorder.Known(
        {"ha": Outcome(COST, seconds=0.5), "hb": Outcome(COST, seconds=0.5)}, False
    )
    assert known(store, 1) == recorder.Known({}, False)  # another read latency
    monkeypatch.setattr(recorder, "version", lambda: "another")
    assert known(store, 0) == recorder.Known({}, True)
    assert len(store.results(1).rows) == 1  # kept, and to be seen


def test_a_failure_is_kept_unless_the_machine_was_to_blame(store: Store) -> None:
    with Recorder(store, SPACE, FILES, 6) as sweep:
        price(sweep, 0, Outcome(None, "too large"))
        price(sweep, 1, Outcome(None, "the worker died", lost=True))
    assert [row.error for row in store.results().rows] == ["too large", "the worker died"]
    assert known(store, 0).outcomes["ha"].error == "too large"
    assert known(store, 1).outcomes == {}


def test_confirmations_are_those_of_all_networks(store: Store) -> None:
    def verdicts() -> list[str]:
        return [row.confirmed for row in Store(store.path).results().rows]

    with Recorder(store, SPACE, FILES, 6) as sweep:
        price(sweep, 0)
        price(sweep, 1)
        store.confirm(0, True)
        assert verdicts() == ["", ""]
        store.confirm(0, True, network=1)
        store.confirm(1, False, "cycles: model 10, RTL 11", network=1)
        assert verdicts() == ["equal", "differs"]
    assert store.confirmed()[1, 1].detail == "cycles: model 10, RTL 11"
    with pytest.raises(StoreError, match="point must be one with a cost, not 7"):
        store.confirm(7, True)


def test_one_sweep_at_a_time(store: Store) -> None:
    with (
        Recorder(store, SPACE, FILES, 6),
        Store(store.path, write=True) as other,
        pytest.raises(StoreError, match="must have one sweep at a time"),
    ):
        Recorder(other, SPACE, FILES, 6)
    Recorder(store, SPACE, FILES, 6).__exit__(None, None, None)
    assert [path.name for path in store.path.parent.glob("*lock*")] == []


def other_kind(path: Path) -> None:
    path.write_text("number,cycles\n" * 100)


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE songs (title TEXT)")


def newer(path: Path) -> None:
    Store(path, write=True).close()
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version = {len(SCRIPTS) + 1}")


def damaged(path: Path) -> None:
    Store(path, write=True).close()
    data = bytearray(path.read_bytes())
    data[100:4096] = os.urandom(3996)
    path.write_bytes(data)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (other_kind, "must be a result store, not another kind of file"),
        (other_database, "must be a result store, not another kind of file"),
        (newer, f"must be of schema {len(SCRIPTS)} or older, not {len(SCRIPTS) + 1}"),
        (damaged, "must be whole, not damaged"),
        (Path.mkdir, "must be a file"),
    ],
)
def test_what_is_not_a_store_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None], message: str, write: bool
) -> None:
    path = tmp_path / "s.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError, match=message):
        Store(path, write=write)
    assert before == (path.read_bytes() if path.is_file() else b"")


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("error", b"\xff\xfe"),
        ("error", b"text"),
        ("seconds", "long"),
        ("seconds", float("inf")),
        ("lost", 0.5),
        ("cost", b"{}"),
        ("version", b""),
    ],
)
def test_values_are_of_the_type_of_their_column(store: Store, column: str, value: object, write: bool) -> None:
    with Recorder(store, SPACE, FILES, 6) as sweep:
        price(sweep, 0)
    store.close()
    with closing(sqlite3.connect(store.path)) as file, file:
        file.execute(f"UPDATE results SET {column} = ?, network = 7 WHERE network = 1", (value,))
    with pytest.raises(StoreError, match="must be whole, not damaged; move it away to start anew"):
        Store(store.path, write=write)


@pytest.mark.parametrize(
    "change",
    [{"cycles": 2**63}, {"cycles": True}, {"host_cycles": "1"}, {"host_cycles": -1}, {"host": [[["dw"], "x", 5]]}],
)
def test_costs_are_counts(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Cost.from_dict(COST.to_dict() | change)


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"s\.sqlite: store must be a file, there is none"):
        Store(tmp_path / "s.sqlite")
    with pytest.raises(StoreError, match=r"store must be a file, not a folder; give the results\.sqlite in it"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="store must be a file in a folder that exists"):
        Store(tmp_path / "no" / "s.sqlite", write=True)
    with pytest.raises(StoreError, match="store must have a sweep; start one with `dovetail sweep`"):
        Store(tmp_path / "s.sqlite", write=True).results()


def test_a_locked_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE", 0.1)
    with Store(store.path, write=True) as other, other.database.transaction():
        second = Store(store.path, write=True)
        with pytest.raises(StoreError, match="must not be locked by another program for more than 0 s"):
            Recorder(second, SPACE, FILES, 6)


def test_a_full_disk(store: Store) -> None:
    with Recorder(store, SPACE, FILES, 6) as sweep:
        pages = store.database.rows("PRAGMA page_count")[0][0]
        store.database.rows(f"PRAGMA max_page_count = {pages + 1}")
        point = SPACE.point(0)
        assert point.config
        with pytest.raises(StoreError, match="must have room on its disk"):
            sweep.put("ha", point.config, Outcome(None, "x" * 100_000))
        price(sweep, 0)
    assert len(store.results().rows) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_in_a_folder_that_is_read_only(store: Store) -> None:
    with Recorder(store, SPACE, FILES, 6) as sweep:
        price(sweep, 0)
    store.close()
    store.path.chmod(0o444)
    store.path.parent.chmod(0o555)
    try:
        assert len(Store(store.path).results().rows) == 1
        with pytest.raises(StoreError, match="must be writable"):
            Recorder(Store(store.path, write=True), SPACE, FILES, 6)
    finally:
        store.path.parent.chmod(0o755)
