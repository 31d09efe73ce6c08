"""Layer x configuration tables, results as frames, and what Python shows of the API."""

from __future__ import annotations

import csv
import importlib
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.flows.cli import main
from dovetail.flows.explore.results.frame import Frame
from dovetail.flows.options.network import random_sample
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.explain.comparison import compare
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.compiled_network import compile_network

NETWORK = "zoo:attention_block"
CONFIGS = [Config(ic_lanes=lanes, oc_lanes=8, sram="64 KiB") for lanes in (4, 8)]


def test_layers_by_configurations() -> None:
    table = dovetail.layers([NETWORK, "zoo:dscnn"], CONFIGS, clock=50e6, effort=0)
    for point, config in enumerate(CONFIGS):
        compiled = compile_network(NETWORK, config, effort=0)
        report = compiled.report()
        rows = [row for row in table if (row["point"], row["network"]) == (point, NETWORK)]
        own = [row for row in rows if row["place"] == "accelerator"]
        assert [(r["name"], r["kind"], r["macs"], r["cycles"]) for r in own] == [
            (layer.name, layer.kind, layer.macs, layer.cycles) for layer in report.layers
        ]
        assert {r["name"]: r["cycles"] for r in rows if r["place"] == "host"} == dict(report.host_work.nodes)
        assert all(r["ms"] == pytest.approx(r["cycles"] / 50e3) for r in rows)
        assert {r["ic_lanes"] for r in rows} == {config.ic_lanes}
        energy = dovetail.energy(compiled)
        assert sum(r["energy"] for r in own) == pytest.approx((energy.whole.total - energy.instructions) * 1e-6)
    assert {row["network"] for row in table} == {NETWORK, "zoo:dscnn"}
    assert "oc_lanes" not in table.columns  # the same on both


def test_a_host_with_a_clock_of_its_own_takes_as_long() -> None:
    cost = dovetail.HostCost(2000, 0.5, 0.25, clock=100e6)
    tables = [dovetail.layers(NETWORK, CONFIGS[1], clock=clock, effort=0, host=cost) for clock in (100e6, 200e6)]
    slow, fast = ([row for row in table if row["place"] == "host"] for table in tables)
    assert slow and [row["ms"] for row in slow] == [row["ms"] for row in fast]
    assert [2 * row["cycles"] for row in slow] == [row["cycles"] for row in fast]


def test_csv_reads_back(tmp_path: Path) -> None:
    table = Frame([{"a": 1, "b": "x,y"}, {"a": 2, "c": 0.5}])
    path = tmp_path / "t.csv"
    assert table.to_csv(path) == path.read_text("utf-8")
    assert list(csv.DictReader(StringIO(table.to_csv()))) == [
        {"a": "1", "b": "x,y", "c": ""},
        {"a": "2", "b": "", "c": "0.5"},
    ]
    assert Frame([]).to_csv() == "\n"
    assert (len(table), table[1]["c"], len(table[:1])) == (2, 0.5, 1)
    assert repr(table) == "<Frame 2 rows x 3 columns: a, b, c>"


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = Frame([{"a": 1, "b": "x"}, {"a": 2}]).to_pandas()
    assert list(frame.columns) == ["a", "b"]
    assert frame["a"].sum() == 3
    assert pandas.isna(frame["b"][1])


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        DovetailError, match=r"^to_pandas must have pandas; pip install 'dovetail\[pandas\]', or use to"
    ):
        Frame([{"a": 1}]).to_pandas()


def test_a_sweep_s_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    lanes = ("--lanes", "4x8,8x8", "--sram", "64KiB", "--jobs", "1")
    assert main(["sweep", NETWORK, *lanes, "--output", str(out)]) == 0
    expected = dovetail.layers(NETWORK, CONFIGS, clock=100e6, effort=0)
    read = list(csv.DictReader((out / "layers.csv").open(encoding="utf-8")))
    own = {(row["ic_lanes"], row["name"]): (int(row["cycles"]), float(row["energy"] or 0)) for row in read}
    assert own == {(str(row["ic_lanes"]), row["name"]): (row["cycles"], float(row["energy"] or 0)) for row in expected}
    again = tmp_path / "again.csv"
    page = str(tmp_path / "r.html")
    assert main(["report", str(out / "results.sqlite"), "--output", page, "--top", "2", "--layers", str(again)]) == 0
    assert again.read_text("utf-8") == (out / "layers.csv").read_text("utf-8")
    from dovetail.flows.explore.store.result_store import Store

    with Store(out / "results.sqlite") as store:
        results = store.results()
    assert results.to_csv() == (out / "results.csv").read_text("utf-8")
    assert results.layers(2).to_csv() == again.read_text("utf-8")
    assert repr(results) == f"<Results 2 points, {sum(r.front for r in results.rows)} on the front, 0 failed>"
    assert repr(results.rows[0]).startswith("<Row 0 (lanes 4x8): ")
    assert repr(results.space) == f"<Space of {NETWORK} over lanes (2), sram (1)>"
    capsys.readouterr()


def test_reprs_are_a_line() -> None:
    compiled = compile_network(NETWORK, CONFIGS[1], effort=0)
    result = compiled.run(random_sample(compiled.graph, np.random.default_rng(0)))
    explanation = explain(compiled)
    things: list[Any] = [
        *(compiled, compiled.report(), compiled.graph, compiled.code, compiled.program, result),
        *(result.timeline[0], explanation, compare(explanation, explanation), dovetail.energy(compiled)),
    ]
    for thing in things:
        assert repr(thing).startswith(f"<{type(thing).__name__} ") and len(repr(thing)) < 130, repr(thing)
    assert repr(compiled) == (
        f"<CompiledNetwork {NETWORK} on 8 x 8, 64 KiB: {len(compiled.code.layers)} layers on the accelerator, 1 on the"
        " host>"
    )
    assert repr(result).startswith(f"<Result {result.cycles:,} cycles; ")


def test_dir_shows_the_api() -> None:
    names = dir(importlib.import_module("dovetail"))
    assert names == sorted(dovetail.__all__)
    assert all(getattr(dovetail, name) is not None for name in names)
    assert {"compile", "explore", "layers", "energy", "explain", "HostCost"} <= set(names)


@pytest.mark.parametrize("name", ["compile", "load"])
def test_what_makes_networks_brings_the_engines(name: str) -> None:
    """A loaded program runs on the RTL as a compiled one does, whatever was imported before."""
    code = f"import dovetail, dovetail.sw.runtime.engines as e; dovetail.{name}; print('rtl' in e._factories)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
