"""Sweeps of systems: points, costs, what is reused, and what is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dovetail.flows.explore.pricing.cost import Cost
from dovetail.flows.explore.pricing.evaluation import price
from dovetail.flows.explore.results.outcome import Outcome
from dovetail.flows.explore.results.row import energy_parts, row_of
from dovetail.flows.explore.results.table import notes_of
from dovetail.flows.explore.space import space_json
from dovetail.flows.explore.space.deployment import Deployment, changed_design, label_of
from dovetail.flows.explore.space.design_space import EACH, Space, Workload
from dovetail.flows.explore.space.file import SpaceError, load
from dovetail.flows.explore.space.metrics import area_of_design
from dovetail.flows.explore.space.networks import read
from dovetail.flows.explore.store.result_store import Store
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.system import Part, System
from dovetail.sw.analysis.cost.area import area_of
from dovetail.sw.analysis.cost.energy import TABLES, energy_of, load_table
from dovetail.sw.runtime.system_network import plan_network
from tests.flows.conftest import Command
from tests.sw.compiler.devices.test_plan import TINY, WIDE

NETWORK = "zoo:dscnn"


@pytest.fixture
def run(run: Command) -> Command:
    return partial(run, "sweep")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(TINY.to_toml())
    (tmp_path / "wide.toml").write_text(WIDE.to_toml())
    path = tmp_path / "system.toml"
    path.write_text('[accelerators]\ntiny = "tiny.toml"\nwide = "wide.toml"\n')
    return path


def base() -> Deployment:
    return Deployment(System((Part("tiny", TINY, 0), Part("wide", WIDE, 4096))))


def test_a_sweep(run: Command, system: Path, tmp_path: Path) -> None:
    axes = ("--accelerators", "tiny,2*tiny,3*tiny,tiny+wide", "--mode", "latency,throughput", "--total-sram", "64KiB")
    arguments = (NETWORK, "--system", system, *axes, "--inferences", "3", "--jobs", "1", "--output", tmp_path / "out")
    code, out, _ = run(*arguments)
    assert code == 0
    assert "area of the accelerators, without the interconnect, is an estimate" in out
    rows = list(csv.DictReader((tmp_path / "out" / "results.csv").open()))
    assert [(row["accelerators"], row["mode"]) for row in rows] == [
        (kinds, mode) for kinds in ("tiny", "2*tiny", "3*tiny", "tiny+wide") for mode in ("latency", "throughput")
    ]
    message = "total_sram must be a multiple of the number of accelerators, 3, not 64 KiB"
    assert [row["error"] for row in rows] == [message if n in (4, 5) else "" for n in range(8)]
    with Store(tmp_path / "out" / "results.sqlite") as store:
        results = store.results()
        assert space_json.load(space_json.dump(results.space)) == results.space
    for row in results.rows:
        if row.error:
            continue
        assert isinstance(row.config, Deployment)
        network = plan_network(
            NETWORK, row.config.system, mode=row.config.mode, inferences=row.config.inferences, effort=0
        )
        (cost,) = row.costs
        assert cost.system
        assert cost.system.plan_cycles == network.times.cycles
        assert cost.system.interval == round(network.interval)
        assert row.values["gain"] == pytest.approx(min(filter(None, network.alone.values())) / cost.system.interval)
        assert cost.system.lost == network.lost
        if row.config.mode == "latency":
            assert row.values["cycles"] == row.values["interval"] == network.times.cycles == sum(cost.kinds.values())
        if row.config.accelerators == "tiny":  # nothing is gained by a plan of several inferences
            assert row.values["cycles"] == row.values["interval"]
            assert row.values["contention"] == 0
        assert Cost.from_dict(json.loads(json.dumps(cost.to_dict()))) == cost
        assert row.values["total_sram"] == 64 << 10
        assert 0 < row.values["bus_use"] < 1
        assert 0 < row.values["utilisation"] < 1
        assert row.values["roofline"] > 1
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "results.csv",
        "results.sqlite",
        "report.html",
        "cycles.png",
        "pareto.png",
        "pareto.svg",
        "systems",
    }
    points = sorted((tmp_path / "out" / "systems").glob("point-*.toml"))
    able = [row for row in results.rows if not row.error]
    assert [path.name for path in points] == [f"point-{row.number}.toml" for row in able]
    for path, row in zip(points, able, strict=True):
        assert isinstance(row.config, Deployment)
        assert replace(System.load(path), bus=None) == row.config.system
        told = " --mode throughput --inferences 3" if row.config.mode == "throughput" else ""
        assert f"# dovetail run {NETWORK} --system {path.name} --effort 0{told}\n" in path.read_text()
    again = json.loads(run(*arguments, "--json")[1])
    assert (again["reused"], again["failed"], again["objectives"]) == (6, 2, ["cycles", "interval", "lut"])
    resumed = json.loads(run("--resume", "--output", tmp_path / "out", "--objectives", "max gain,lut", "--json")[1])
    assert [record["cycles"] for record in resumed["records"]] == [record["cycles"] for record in again["records"]]


def test_energy_and_area_are_those_of_all_accelerators() -> None:
    space = Space((Workload(NETWORK),), base(), {"accelerators": ("2*tiny",), "mode": ("throughput",)})
    deployment = space.point(0).config
    assert isinstance(deployment, Deployment)
    assert area_of_design(deployment).lut == 2 * area_of(TINY).lut
    assert area_of_design(deployment).error == area_of(TINY).error
    cost = price(read(space.workloads[0]).graph, deployment)
    assert cost.system
    table = load_table(next(iter(TABLES)))
    runs = [energy_of(TINY, events, cost.system.plan_cycles, table).total for events in cost.system.activities]
    assert sum(energy_parts(space, deployment, [cost]).values()) == pytest.approx(1e-6 * sum(runs) / 4)
    # Every inference moves what the network's program moves, whichever accelerator runs it.
    assert cost.system.activities[0]["dram_read_bytes"] == cost.system.activities[1]["dram_read_bytes"]
    assert cost.read_bytes == 2 * cost.system.activities[0]["dram_read_bytes"] / 4


def test_points() -> None:
    changes = {"accelerators": "2*wide+4x4", "sram": 128 << 10, "memory_model": "ddr4-2400-x16@100MHz"}
    made = changed_design(base(), changes)
    assert [part.name for part in made.system.accelerators] == ["wide_1", "wide_2", "4x4"]
    assert [config.array for config in made.configs] == [WIDE.array, WIDE.array, "4 x 4"]
    assert {config.sram for config in made.configs} == {128 << 10}
    assert (made.mode, made.inferences, label_of(made.memory)) == ("latency", 1, "ddr4-2400-x16@100MHz")
    assert Deployment.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    assert changed_design(base(), {"mode": "throughput"}).inferences == 4
    whole = changed_design(base(), {})
    assert (whole.system.accelerators, whole.accelerators) == (base().system.accelerators, "2x4+4x8")
    hashes = {changed_design(base(), {"mode": mode, "accelerators": kinds}).hash
              for mode in ("latency", "throughput") for kinds in ("tiny", "2*tiny", "wide")}  # fmt: skip
    assert len(hashes) == 6


def test_a_space_file(system: Path) -> None:
    path = system.with_name("space.toml")
    path.write_text(
        f'[[network]]\nsource = "{NETWORK}"\n[base]\nsystem = "system.toml"\nmode = "throughput"\n'
        '[axes]\naccelerators = ["tiny", "2*tiny", "2 * tiny + wide"]\nmemory_model = ["fixed", "sdram"]\n'
        'clock = ["50 MHz", "100 MHz"]\n'
        '[goals]\nconstraints = ["accelerator_count <= 2", "gain >= 1.5", "value > 0"]\n'
        '[metrics]\nvalue = "max gain / lut"\n'
    )
    space = load(path)
    assert (len(space), space.objectives, space.scenario, space.scenario_axes) == (12, ("interval", "lut"), EACH, ())
    assert [point.axes["accelerators"] for point in space][::4] == ["tiny", "2*tiny"]
    assert {point.config.mode for point in space if isinstance(point.config, Deployment)} == {"throughput"}
    for text, after, message in (
        ('"tiny", ', '"tony", ', "6: axes: accelerators must be lanes such as 8x8, names of the system's file"),
        ('"tiny", ', '"0*tiny", ', "7: accelerators must be 1..16 of a kind, not 0 in '0*tiny'"),
        ('"tiny", ', '"8*tiny + 9*wide", ', "7: accelerators must be 1..16 in all, not 17 in"),
        ("memory_model =", "lanes = [[8, 8]]\nmemory_model =", "6: axes: axes must be of the whole system"),
        ('mode = "', 'mode = "un', '5: mode must be one of latency, throughput, not'),
        ('system.toml"', 'sistem.toml"', "4: system must be a file, relative to the space file; there is no"),
        ("gain >=", "gan >=", '11: constraint `gan >= 1.5`: "gan" must be a parameter or a metric; did you mean'),
    ):  # fmt: skip
        bad = path.with_name("bad.toml")
        bad.write_text(path.read_text().replace(text, after, 1))
        with pytest.raises(SpaceError) as error:
            load(bad)
        assert f"bad.toml:{message}" in str(error.value)


def test_memories_compete_or_are_scenarios() -> None:
    axes = {"accelerators": ("tiny",), "read_latency": (40, 80)}
    assert Space((Workload(NETWORK),), base(), axes).scenario_axes == ("read_latency",)
    assert Space((Workload(NETWORK),), base(), axes, scenario=EACH).scenario_axes == ()
    with pytest.raises(ConfigError, match="give either sram, of each accelerator, or total_sram, not both"):
        Space((Workload(NETWORK),), base(), {"sram": (1 << 16,), "total_sram": (1 << 16,)})


REFUSED = {
    "--accelerators must come with --system": (NETWORK, "--accelerators", "2*8x8"),
    "--total-sram must come with --system": (NETWORK, "--total-sram", "1MiB"),
    "accelerators are those of --system and --accelerators; leave out --lanes": ("{system}", "--lanes", "8x8"),
    "accelerators are those of --system and --accelerators; leave out --config": ("{system}", "--config", "small"),
    "accelerators are those of --system and --accelerators; leave out --tiling": ("{system}", "--tiling", "free"),
    "accelerators are those of --system and --accelerators; leave out --keep-weights": ("{system}", "--keep-weights"),
    "accelerators are those of --system and --accelerators; leave out --study": ("{system}", "--study"),
    "--confirm must be left out of a sweep of systems; `dovetail verify --system` takes its files": (
        "{system}", "--confirm", "all",
    ),
    "--resume takes the space from the store; leave out --accelerators": ("--resume", "--accelerators", "8x8"),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_options_that_mean_nothing(run: Command, system: Path, text: str) -> None:
    words = [word for option in REFUSED[text] for word in
             ([NETWORK, "--system", system] if option == "{system}" else [option])]  # fmt: skip
    assert run(*words) == (2, "", f"dovetail: error: {text}\n")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ("0*8x8", "must be 1..16 of a kind, not 0 in '0*8x8'"),
        ("17*8x8", "must be 1..16 of a kind, not 17 in '17*8x8'"),
        ("9*8x8+8*4x4", "must be 1..16 in all, not 17 in '9*8x8+8*4x4'"),
        ("8 8", "must be kinds such as 8x8, 2*8x8 or 2*8x8+16x16, not '8 8'"),
    ],
)
def test_counts(run: Command, system: Path, kinds: str, message: str) -> None:
    code, _, err = run(NETWORK, "--system", system, "--accelerators", kinds)
    assert (code, err) == (2, f"dovetail: error: argument --accelerators: {message}; see dovetail sweep --help\n")


def test_kinds_that_nobody_knows(run: Command, system: Path) -> None:
    code, out, err = run(NETWORK, "--system", system, "--accelerators", "tony")
    assert (code, out) == (2, "")
    assert err == (
        "dovetail: error: accelerators must be lanes such as 8x8, names of the system's file (tiny, wide) or presets,"
        " not 'tony'; did you mean \"tiny\"?\n"
    )


def test_layers_of_the_host() -> None:
    """They are among the plan's cycles, and counted once."""
    changes = {"accelerators": "tiny"}
    design = changed_design(base(), changes)
    space = Space((Workload("zoo:attention_block"),), base(), {"accelerators": ("tiny",)})
    graph = read(space.workloads[0]).graph
    cost = price(graph, design, host_cost=space.host_cost)
    network = plan_network(graph, design.system, effort=0, host=space.host_cost)
    assert cost.cycles == network.times.cycles
    assert cost.host_cycles == network.host_cycles > 0
    assert cost.host
    row = row_of(space, space.point(0), [cost])
    assert row.values["total_cycles"] == row.values["cycles"] == cost.cycles
    assert row.values["fps"] == pytest.approx(1e8 / cost.cycles)
    assert "times include an estimate of the host" in " ".join(notes_of(Outcome(space, (row,)), ["cycles"]))
    with pytest.raises(ConfigError, match="host_cost must be in cycles of the accelerators for systems"):
        replace(space, host_cost=replace(space.host_cost, clock=1e9))
