"""The example of an own instruction: a package outside, with tests that run in a process of their own.

There its operations are in the tables of the instruction set; here nothing may add to these.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.slow import slow

EXAMPLE = Path(__file__).parents[2] / "docs/examples/own_instruction"


def install(target: Path) -> None:
    """Do what an installer does, which needs no network and no build tool: copy the package, write its metadata."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")
    shutil.copytree(EXAMPLE / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    info = target / f"{name}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [line for group, given in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in given.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("which", ["not slow", slow("slow")])
def test_the_tests_of_the_example(which: str, tmp_path: Path) -> None:
    install(tmp_path)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-m", which, "-p", "no:cacheprovider", f"{EXAMPLE}/tests"]
    done = subprocess.run(command, cwd=EXAMPLE.parents[2], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
