"""Host cycles and times on the command line: `run`, `compile`, `explain` and `sweep` with --clock and --host-cost."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.cli import main
from dovetail.sw.analysis.cost.energy import FOLDER
from dovetail.sw.compiler.partition.host_cost import default_host

NETWORK = ("zoo:attention_block", "--ic-lanes", "8", "--oc-lanes", "8", "--sram", "64KiB", "--effort", "0")


def said(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", ["run", "compile"])
def test_cycles_of_accelerator_and_host_and_their_times(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    data = said(capsys, command, *NETWORK, "--clock", "200")
    host = data["host_estimate"]
    trips = default_host().round_trip * host["starts"]
    assert data["host_cycles"] == host["cycles"] == sum(host["nodes"].values()) + trips
    assert data["total_cycles"] == data["cycles"] + data["host_cycles"]
    assert (host["error"], data["clock_hz"]) == (default_host().error, 200e6)
    assert data["accelerator_ms"] == pytest.approx(data["cycles"] / 200e3)
    assert data["latency_ms"] == pytest.approx(data["total_cycles"] / 200e3)
    assert data["inferences_per_second"] == pytest.approx(200e6 / data["total_cycles"])
    assert data["dram_bytes_per_second"] == pytest.approx(200e6 * data["dram_bytes"] / data["cycles"])
    assert "latency_ms" not in said(capsys, command, *NETWORK)


def test_what_a_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *NETWORK, "--clock", "100", "--layers"]) == 0
    text = capsys.readouterr().out
    lines = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line)
    assert "µs) per inference on the accelerator at 100 MHz" in lines["cycles"]
    assert "VexRiscv with 2 x 4 KiB of cache on the accelerator's clock" in lines["host cycles"]
    assert re.search(r"; error of \d+ layers that it was fitted to, half within \d+%", lines["host cycles"])
    assert "inferences/s" in lines["in all"]
    assert "GB/s" in lines["traffic"] or "MB/s" in lines["traffic"]
    assert " time " in text


@pytest.mark.parametrize("command", ["run", "compile", "explain"])
def test_energy_by_component_and_layer(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    energy = said(capsys, command, *NETWORK)["energy"]
    assert (energy["unit"], energy["table"]) == ("µJ", "45nm")
    assert sum(energy["components"].values()) == pytest.approx(energy["total"])
    layers = sum(layer["total"] for layer in energy["layers"])
    assert layers + energy["instructions"] == pytest.approx(energy["total"])
    assert "the host" in energy["not_counted"] and "not known" in energy["error"]
    double = tmp_path / "double.toml"
    text = (FOLDER / "45nm.toml").read_text(encoding="utf-8")
    double.write_text(text.replace("dram_byte = 162.5", "dram_byte = 325"))
    other = said(capsys, command, *NETWORK, "--energy-table", str(double))["energy"]
    assert other["components"]["dram"] == pytest.approx(2 * energy["components"]["dram"])
    assert main([command, *NETWORK, *(["--layers"] if command != "compile" else [])]) == 0
    text = capsys.readouterr().out
    assert "an estimate by the table 45nm (error not known, nothing was measured)" in text
    assert ("Energy by layer, µJ, estimated" in text) == (command != "compile")
    assert main([command, *NETWORK, "--energy-table", "5nm"]) == 2
    assert "5nm: energy table must be a TOML file or one of 45nm" in capsys.readouterr().err


def test_the_microcoded_engine_has_no_energy(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("run", "zoo:attention_block", "--config", "icebreaker", "--effort", "0")
    assert said(capsys, *small)["energy"] is None
    assert main([*small, "--energy-table", "45nm"]) == 2
    assert "--energy-table must be left out with serial = true" in capsys.readouterr().err


def test_explain_tells_times(capsys: pytest.CaptureFixture[str]) -> None:
    data = said(capsys, "explain", *NETWORK, "--clock", "100")
    assert data["host_ms"] == pytest.approx(data["host"]["cycles"] / 100e3)
    assert data["latency_ms"] == pytest.approx(data["accelerator_ms"] + data["host_ms"])


def test_a_table_of_host_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "host.toml"
    text = 'name = "mine"\nerror = "within 10 %"\nround_trip = 0\nmacs_per_cycle = 1\nvalues_per_cycle = '
    table.write_text(f"{text}0.25")
    slow = said(capsys, "run", *NETWORK, "--host-cost", str(table))
    table.write_text(f"{text}1")
    fast = said(capsys, "run", *NETWORK, "--host-cost", str(table))
    assert slow["host_cycles"] == 4 * fast["host_cycles"]
    assert fast["host_estimate"]["error"] == "within 10 %"
    assert (
        said(capsys, "run", *NETWORK, "--host-cost", str(table), "--round-trip", "7")["host_cycles"]
        > fast["host_cycles"]
    )
    table.write_text("round_trip = -1\nmacs_per_cycle = 1\nvalues_per_cycle = 1")
    assert main(["run", *NETWORK, "--host-cost", str(table)]) == 2
    error = f"{table}: round trip must be 0 to 1000000000000 cycles, a whole number, not -1"
    assert capsys.readouterr().err == f"dovetail: error: {error}\n"
    assert main(["sweep", *NETWORK, "--host-cost", str(table), "--output", str(tmp_path / "out")]) == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_sweeps_count_the_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The metrics are those of `run`. A table changes them; results of the default are not taken for its own."""
    run = said(capsys, "run", *NETWORK, "--clock", "50")
    sweep = ("sweep", *NETWORK, "--clock", "50", "--store", str(tmp_path / "s.sqlite"), "--jobs", "1")
    (record,) = said(capsys, *sweep, "--output", str(tmp_path))["records"]
    assert (record["host_cycles"], record["total_cycles"]) == (run["host_cycles"], run["total_cycles"])
    assert record["latency"] == pytest.approx(run["latency_ms"])
    assert {name: record[f"energy_{name}"] for name in run["energy"]["components"]} == pytest.approx(
        run["energy"]["components"]
    )
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        assert int(next(csv.DictReader(file))["host_cycles"]) == run["host_cycles"]
    table = tmp_path / "host.toml"
    table.write_text("round_trip = 9999\nmacs_per_cycle = 1e-3\nvalues_per_cycle = 1e-5")
    (other,) = said(capsys, *sweep, "--host-cost", str(table))["records"]
    assert other["host_cycles"] > record["host_cycles"]
    assert said(capsys, *sweep, "--host-cost", str(table))["reused"] == 1
    (again,) = said(capsys, "sweep", "--resume", "--store", str(tmp_path / "s.sqlite"), "--jobs", "1")["records"]
    assert again == other
