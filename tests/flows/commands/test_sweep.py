"""``dovetail sweep``: spaces from flags and files, errors, tables of few and of many points."""

from __future__ import annotations

import csv
import json
from functools import partial
from pathlib import Path

import pytest

from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.results.sweep_results import Results
from dovetail.flows.explore.results.table import failures_of, table_of
from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.flows.explore.store.result_store import Store
from dovetail.isa.config.resolved import Config
from tests.flows.conftest import Command

NETWORK = "zoo:autoencoder"
FILE = """
[[network]]
source = "zoo:autoencoder"
[axes]
lanes = [[8, 8], [16, 8]]
bus = [32, 64]
[goals]
objectives = ["cycles", "pe"]
constraints = ["cycles < 60000"]
"""


@pytest.fixture
def run(run: Command) -> Command:
    return partial(run, "sweep")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "space.toml"
    path.write_text(FILE)
    return path


def test_a_space_file_and_the_same_space_from_flags(run: Command, file: Path, tmp_path: Path) -> None:
    rules = ("--objectives", "cycles,pe", "--constraint", "cycles < 60000")
    store = ("--store", tmp_path / "s.sqlite", "--jobs", "1", "--json")
    first = json.loads(run(file, *store)[1])
    second = json.loads(run(NETWORK, "--lanes", "8x8,16x8", "--bus", "32,64", *rules, *store)[1])
    assert (first["reused"], second["reused"]) == (0, 4)
    assert first["records"] == second["records"]
    assert [record["feasible"] for record in first["records"]] == [0, 1, 0, 1]
    with Store(tmp_path / "s.sqlite") as kept:
        spaces = [sweep.space for sweep in kept.sweeps()]
    assert spaces[0] == spaces[1]


def test_the_command_line_changes_how_a_space_file_is_searched(run: Command, file: Path, tmp_path: Path) -> None:
    code, out, _ = run(file, "--search", "random", "--points", "2", "--output", tmp_path / "out", "--jobs", "1")
    assert code == 0
    assert "2 configurations: 2 priced in 0:0" in out
    assert "1 on the front, 1 infeasible\n" in out
    assert len(list(csv.DictReader((tmp_path / "out" / "results.csv").open()))) == 2


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "sweep must have a network or a space file, or --resume with a store"),
        (
            (NETWORK, "--clock", "0"),
            'clock must be a frequency such as "100 MHz", or Hz as a number, 1 to 1e+12, not 0.0',
        ),
        (("{file}", "--bus", "32"), "a space file says that itself; leave out --bus"),
        (("{file}", "--study"), "a space file says that itself; leave out --study"),
        (("--resume",), "resume must have the store of the sweep; give --store, or the --output that it had"),
        (("--resume", "--store", "{folder}/no"), "{folder}/no: store must exist to resume its sweep"),
        (("--resume", "--store", "{file}"), "{file}: store must be a result store, not another kind of file"),
        (
            (NETWORK, "--resume", "--store", "{file}"),
            "--resume takes the space from the store; leave out network",
        ),
        (
            ("--resume", "--effort", "1", "--store", "s"),
            "--resume takes the space from the store; leave out --eff",
        ),
        ((NETWORK, "--objectives", "cycels"), 'objectives must be metrics, not "cycels"; did you mean "cycles"?'),
        ((NETWORK, "--objectives", ""), 'objectives must be metrics, not ""; known: cycles, '),
        (
            (NETWORK, "--metric", "score"),
            "metric must be NAME=EXPRESSION such as \"score=energy * latency\", not 'score'",
        ),
        ((NETWORK, "--metric", "lut=pe"), "metrics must have names of their own, of letters, digits and _, not 'lut'"),
        ((NETWORK, "--objectives", "energy *"), '`energy *` must be an expression such as "energy * latency"'),
        ((NETWORK, "--objectives", "resnet8.latency"), 'objectives must be metrics, not "resnet8.latency"; did you'),
        (
            (NETWORK, "--constraint", "resnet8.latency < 1 ms"),
            '`resnet8.latency < 1 ms`: "resnet8" must be a network; ',
        ),
        ((NETWORK, "--scenario", "best"), "scenario must be worst, mean, each, or one such as read_latency=40, not"),
        ((NETWORK, "--scenario", "bus=32"), "scenario must be of the memory's timing, such as read_latency=40, not 'b"),
        ((NETWORK, "--scenario", "read_latency=9"), "scenario must be of axes of the memory's timing (none here), not"),
        ((NETWORK, "--points", "-1"), "points must be at least 1, or 0 for as many as the search wants, not -1"),
        ((NETWORK, "--points", "5"), "--points must be left out of the search exhaustive; random, optuna"),
        (("{file}", "--search", "narrow", "--seed", "5"), "--seed must be left out of the search narrow; random, op"),
        ((NETWORK, "--search", "random"), "the search random must have --points, how many to evaluate"),
        ((NETWORK, "--constraint", "pe < 1"), "constraints rule every combination of the axes out; "),
        ((NETWORK, "--constraint", "bsu < 3"), "`bsu < 3`: "),
        (("{folder}/no.toml",), "{folder}/no.toml: No such file or directory"),
        ((NETWORK, "--scheduler", "nonsense://", "--store", "{folder}/s"), "nonsense://: "),
    ],
)
def test_errors(run: Command, file: Path, argv: tuple[str, ...], message: str) -> None:
    places = {"file": str(file), "folder": str(file.parent)}
    code, out, err = run(*(word.format(**places) for word in argv))
    assert (code, out) == (2, "")
    assert err.startswith(f"dovetail: error: {message.format(**places)}")
    assert err.count("\n") == 1


def test_a_bad_network_leaves_nothing_behind(run: Command, tmp_path: Path) -> None:
    assert run("nowhere.onnx", "--output", tmp_path / "out")[0] == 2
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_a_file(run: Command, file: Path) -> None:
    code, _, error = run(NETWORK, "--output", file)
    assert (code, error) == (2, f"dovetail: error: {file}: output must be a folder, there is a file; give another\n")


def test_a_sweep_that_does_not_begin_leaves_no_store(run: Command, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    store = tmp_path / "s.sqlite"
    code, _, error = run(NETWORK, "--store", store, "--scheduler", "nowhere")
    assert code == 2 and "nowhere: must be the address of a Dask scheduler" in error
    assert not list(tmp_path.iterdir())
    assert run(NETWORK, "--store", store, "--jobs", "1")[0] == 0
    run(NETWORK, "--store", store, "--scheduler", "nowhere")
    assert store.exists()  # what was there stays


def results_of(count: int, failed: int) -> Results:
    """Points on a line, of which the first ones failed for two reasons."""
    config = Config.load("8x8")  # which fits no part
    space = Space((Workload(NETWORK),), config, {"stripe": tuple(range(1, count + 1))}, objectives=("cycles", "pe"))
    rows = [Row(n, {"stripe": n + 1}, None, error=f"reason {n % 2}", feasible=False) for n in range(failed)]
    names = ("utilisation", "roofline", "dram_bytes", "host_macs", "host_nodes")
    rows += [
        Row(n, {"stripe": n + 1}, config, (), {"cycles": 1000.0 - n, "pe": 64.0, **dict.fromkeys(names, 0.0)})
        for n in range(failed, count)
    ]
    return Results(space, tuple(rows), count).marked()


def test_many_points_are_a_table_of_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    few, many = table_of(results_of(64, 3)), table_of(results_of(65, 3))
    assert (few.row_count, few.title) == (64, "Per inference")
    assert (many.row_count, many.title) == (20, "The best 20 of 65, front first")
    assert next(iter(many.columns[0].cells)) == "65"
    assert [str(column.header) for column in few.columns][3:5] == ["cycles /\nroofline", "DRAM\ntraffic (B)"]
    narrow = table_of(results_of(64, 3), 50)
    assert [str(column.header) for column in narrow.columns] == [
        "stripe",
        "cycles",
        "layers\non\nthe\nhost",
        "PEs",
        "front",
    ]
    assert str(narrow.caption).splitlines() == [
        "left out to fit the line: DRAM traffic, cycles / roofline, utilisation",
        "! 61 of 61 fit no supported part, by the estimate",
    ]
    assert failures_of(results_of(64, 1).rows) == ["stripe 1: reason 0"]
    assert failures_of(results_of(65, 3).rows) == ["2 failed: reason 0", "1 failed: reason 1"]
