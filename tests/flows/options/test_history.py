"""`dovetail run` with --timeline and --occupancy: the files, their errors, and that both engines give equal ones."""

import json
from pathlib import Path

import pytest

from dovetail.flows.cli import main

SMALL = ["run", "zoo:autoencoder", "--ic-lanes", "4", "--oc-lanes", "4", "--sram", "128KiB", "--effort", "0"]


def test_files_are_what_their_names_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, picture = tmp_path / "run.json", tmp_path / "sram.svg"
    assert main([*SMALL, "--json", "--timeline", str(trace), "--occupancy", str(picture), "--clock", "100"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["timeline"], report["occupancy"]) == (str(trace), str(picture))
    assert picture.read_text().startswith("<?xml")
    events = json.loads(trace.read_text())["traceEvents"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(report["cycles"] / 100)  # the layers fill the run; microseconds at 100 MHz


def test_a_window_changes_the_picture(tmp_path: Path) -> None:
    pictures = [tmp_path / "a.png", tmp_path / "b.png"]
    for path, window in zip(pictures, ("0..2000", "0..3000"), strict=True):
        assert main([*SMALL, "--timeline", str(path), "--window", window]) == 0
    assert pictures[0].read_bytes() != pictures[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--timeline", "run.pdf"], "--timeline must end in .json, .png, .svg, not run.pdf"),
        (["--occupancy", "run.json"], "--occupancy must end in .png, .svg, not run.json"),
        (["--timeline", "no/such/run.json"], "--timeline: no/such must be a folder"),
        (["--clock", "0"], "--clock must be 1e-06 to 1e+06 MHz, not 0"),
        (["--clock", "inf"], "--clock must be 1e-06 to 1e+06 MHz, not inf"),
        (["--occupancy", "run.png", "--window", "1..2"], "--window must come with --timeline FILE.png or .svg"),
    ],
)
def test_errors_come_before_the_run(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, *options]) == 2
    assert capsys.readouterr().err == f"dovetail: error: {text}\n"


def test_a_window_outside_the_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--timeline", str(tmp_path / "a.png"), "--window", "90000000..90000001"]) == 2
    assert "--window must begin before the run's end, cycle" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_window_is_two_cycles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--window", "20..10"]) == 2
    assert "must be two cycles such as 1000..2000, not '20..10'" in capsys.readouterr().err


@pytest.mark.slow
def test_model_and_rtl_give_equal_files(tmp_path: Path) -> None:
    for ending in ("json", "png"):
        files = [tmp_path / f"{engine}.{ending}" for engine in ("model", "rtl")]
        for path in files:
            assert main([*SMALL, "--engine", path.stem, "--timeline", str(path)]) == 0
        assert files[0].read_bytes() == files[1].read_bytes()
