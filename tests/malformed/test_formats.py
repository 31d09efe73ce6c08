"""A few damaged files of every format; `python -m tests.malformed.campaign` takes as many as one likes."""

import subprocess
from pathlib import Path

import pytest

from tests.malformed.campaign import ROOT, run, wrong
from tests.malformed.formats import FORMATS, edited_files, network_files
from tests.malformed.networks import exactly
from tests.slow import slow


def check(name: str, seed: int, first: int, last: int) -> None:
    found = list(run(name, seed, first, last))
    assert len(found) == last - first
    assert [f"case {record['number']}: {trouble}" for record in found if (trouble := wrong(record))] == []


@pytest.mark.parametrize("name", ["onnx", "program", "store"])
def test_damaged_files(name: str) -> None:
    check(name, 0, 0, 12)


def test_networks() -> None:
    check("networks", 0, 0, 120)


PARTS = 4
"""Of the edited networks; the default tests have the first one."""


@pytest.mark.parametrize("part", [slow(n) if n else n for n in range(PARTS)])
def test_edited_networks(part: int) -> None:
    count = len(edited_files())
    assert count > 450
    check("edited networks", 0, part * count // PARTS, (part + 1) * count // PARTS)


def test_the_networks_are_sound_before_they_are_damaged(tmp_path: Path) -> None:
    for files in network_files():
        (tmp_path / "net").write_bytes(files["net"])
        exactly(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_more_damaged_files(name: str) -> None:
    """Each commit has cases of its own."""
    commits = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    check(name, int(commits.stdout or 0), 0, 400 if name == "networks" else 40)


def test_a_case_that_goes_wrong_is_told() -> None:
    sound = {"outcome": "2", "error": "dovetail: error: x must be y, not z\n", "seconds": 1, "growth": 0, "left": []}
    assert wrong(sound) == ""
    for change in (
        {"outcome": "70"},
        {"outcome": "late"},
        {"outcome": "crash -11"},
        {"error": "Traceback\n"},
        {"error": "dovetail: error: a must be b, not c d e\ndovetail: error: a must be b, not c d e\n"},
        {"seconds": 21},
        {"growth": 3000},
        {"left": [str(Path("out/half"))]},
    ):
        assert wrong(sound | change), change
