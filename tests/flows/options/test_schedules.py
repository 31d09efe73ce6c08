"""The effort of the search for schedules and the place of their cache, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.flows.cli import main
from dovetail.flows.options.schedules import VARIABLE
from dovetail.sw.compiler.plan import schedule_cache, tiling


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is remembered in this process, and nothing is kept outside of the test's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(schedule_cache, "_caches", [])
    tiling.forget()


def files(folder: Path) -> list[str]:
    return [path.suffix for path in folder.glob("schedules-*")]


def cycles(capsys: pytest.CaptureFixture[str], *options: str) -> int:
    """Cycles of a network of one block."""
    tiling.forget()
    assert main(["compile", "zoo:dscnn", "--json", "--sram", "64 KiB", *options]) == 0
    return int(json.loads(capsys.readouterr().out)["cycles"])


def test_schedules_are_kept_in_the_users_cache(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    first = cycles(capsys)
    assert files(tmp_path / "home" / "dovetail" / "schedules") == [".sqlite"]
    assert cycles(capsys) == first
    assert cycles(capsys, "--no-schedule-cache") == first


def test_the_environment_places_the_cache(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "here"))
    cycles(capsys)
    assert files(tmp_path / "here") == [".sqlite"]
    assert (tmp_path / "here").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("flags", [["--no-schedule-cache"], []])
def test_there_need_not_be_a_cache(
    flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not flags:
        monkeypatch.setenv(VARIABLE, "off")
    cycles(capsys, *flags)
    assert not list(tmp_path.iterdir())


def test_effort_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    found = [cycles(capsys, "--effort", str(effort), "--no-schedule-cache") for effort in (0, 1, 2)]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    assert main(["compile", "zoo:dscnn", "--effort", "4"]) == 2
    assert "invalid choice: 4" in capsys.readouterr().err


def test_a_sweep_estimates_unless_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sweep = ["sweep", "zoo:dscnn", "--json", "--sram", "64 KiB", "--jobs", "1"]
    found = []
    for options in ([], ["--effort", "0"], ["--effort", "1"]):
        assert main([*sweep, *options]) == 0
        found.append(json.loads(capsys.readouterr().out)["records"][0]["cycles"])
    assert found[0] == found[1] > found[2]
    assert files(tmp_path / "home" / "dovetail" / "schedules") == [".sqlite"]
