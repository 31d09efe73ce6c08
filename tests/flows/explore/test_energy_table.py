"""Sweeps with an energy table of the user's own."""

import json
from pathlib import Path

import pytest

from dovetail.flows.cli import main
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, FOLDER

SWEEP = ["sweep", "zoo:autoencoder", "--config", "small", "--jobs", "1", "--json"]


def energy(argv: list[str], capsys: pytest.CaptureFixture[str]) -> float:
    assert main(argv) == 0
    (record,) = json.loads(capsys.readouterr().out)["records"]
    return float(record["energy"])


def test_the_table_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (FOLDER / f"{DEFAULT_TABLE}.toml").read_text()
    double = tmp_path / "double.toml"
    double.write_text(text.replace("dram_byte = 162.5", "dram_byte = 325"))
    usual = energy(SWEEP, capsys)
    assert energy([*SWEEP, "--energy-table", DEFAULT_TABLE], capsys) == usual
    assert usual < energy([*SWEEP, "--energy-table", str(double)], capsys) < 2 * usual


def test_a_bad_table_ends_the_sweep_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[pj]\nmac = 1\n")
    store = tmp_path / "results.sqlite"
    assert main([*SWEEP, "--energy-table", str(bad), "--store", str(store)]) == 2
    assert f"{bad}: pj.mac is not a key of an energy table" in capsys.readouterr().err
    assert not store.exists()
