"""`dovetail faults`: what it runs, its table, its exit codes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dovetail.cosim.compare.faults import KINDS, Record
from dovetail.flows.cli import main
from dovetail.isa.instructions.table import Cause


@pytest.fixture(autouse=True)
def cache(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds are shared with the tests of cosim."""
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir("dovetail-builds"))
    monkeypatch.setattr("dovetail.flows.commands.faults.default_cache", lambda: folder)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    path = tmp_path / "config.toml"
    path.write_text('ic_lanes = 8\noc_lanes = 8\nsram = "64 KiB"\n')
    return ["faults", "--config", str(path), "--jobs", "1", "--programs", "2"]


def test_all_kinds(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command += ["--flips", "5"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert f"verdict: EQUAL: {2 * len(KINDS) + 5} runs, 0 differing" in out
    for kind in (*KINDS, "flipped bits"):
        assert kind in out
    assert main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["runs"], data["wrong"]) == (2 * len(KINDS) + 5, 0)
    assert sum(data["kinds"]["flipped bits"]["causes"].values()) == 5


def test_a_difference_fails(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(config: Any, kind: str, seeds: range, cache: Path, form: str) -> Record:
        return Record(len(seeds), Counter({Cause.BUS_READ: 2}), 0, ["seed 1: SRAM: x"] if kind == "reset" else [])

    monkeypatch.setattr("dovetail.flows.commands.faults.run_kind", differs)
    assert main([*command, "--flips", "0"]) == 1
    out = capsys.readouterr().out
    assert "\n    seed 1: SRAM: x\n" in out
    assert f"verdict: DIFFERENT: {2 * len(KINDS)} runs, 1 differing" in out


def test_user_errors(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    command = command[:-4]
    assert main([*command, "--jobs", "0"]) == 2
    assert capsys.readouterr().err.endswith("--jobs must be at least 1, not 0\n")
    assert main([*command, "--programs", "0", "--network", "zoo:none"]) == 2
