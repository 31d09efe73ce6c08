"""Shares of the slow tests: every test is in one of them, and what did not run is named."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import share_of

TESTS = """
import pytest

@pytest.mark.parametrize("value", range(7))
def test_value(value): pass

def test_absent(): pytest.skip("the networks are not beside the project")
"""


def run(folder: Path, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_test_is_in_one_share(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    passed: list[str] = []
    for share in (["1/3"], ["2/3", "-n", "2"], ["3/3"]):
        told = run(tmp_path, "--share", *share)
        ran = re.findall(r"test_value\[(\d)\] PASSED|PASSED test_it.py::test_value\[(\d)\]", told)
        here = [first or second for first, second in ran]
        passed += here
        others = re.search(r"test_it.py::test_value\[([\d, ]+)\]\n", told.partition("of other shares")[2])
        assert others and sorted([*here, *others[1].split(", ")]) == list("0123456"), told
    assert sorted(passed) == list("0123456")


def test_what_is_skipped_is_counted_with_its_reason(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    assert "not run: 1 tests skipped: the networks are not beside the project\n" in run(tmp_path)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b"])
def test_a_share_must_be_one_of_some(text: str) -> None:
    with pytest.raises(ValueError):
        share_of(text)
