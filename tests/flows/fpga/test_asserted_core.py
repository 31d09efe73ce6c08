"""Assertions of the exported Verilog on the exported core itself: quiet over random programs, and a core with a fault
breaks the one that says so."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.fpga.asserted_core import END, PROGRAMS
from tests.mutation.campaign import FOLDERS, ROOT, Fault

FAULTS = (
    Fault(
        file="hw/dma/burst.py",
        old="        with m.If(~self.active | (self.o.valid & self.o.ready)):\n",
        new="        with m.If(~self.active | self.o.valid):\n",
        what="bursts do not wait for the bus",
        caught_by="the payload of M_AXI_A",
    ),
    Fault(
        file="hw/sequencer/queue.py",
        old="            self.i.ready.eq(~full),\n",
        new="            self.i.ready.eq(1),\n",
        what="a full queue takes entries",
        caught_by="entries at most",
    ),
    Fault(
        file="hw/sequencer/scoreboard.py",
        old="return ((a.reads & b.reads) | (a.writes & b.writes)).any()",
        new="return (a.reads & b.reads).any()",
        what="write ports of banks are given twice",
        caught_by="no write port of a bank belongs to two units",
    ),
)


@pytest.fixture
def cache(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("dovetail-builds")


def run(root: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root / ".pkg"), str(root)])}
    command = [sys.executable, "-m", "tests.flows.fpga.asserted_core", str(cache)]
    return subprocess.run(command, cwd=root, env=environment, text=True, capture_output=True, timeout=600)


@pytest.mark.slow
def test_a_sound_core_is_quiet(cache: Path) -> None:
    done = run(ROOT, cache)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"{PROGRAMS} of {PROGRAMS} equal, {END}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_broken_core_names_its_rule(fault: Fault, cache: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    for name in FOLDERS:
        shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    fault.plant(root)
    done = run(root, cache)
    assert done.returncode != 0 and END not in done.stdout
    assert "Dovetail: " in done.stdout + done.stderr
    assert fault.caught_by in done.stdout + done.stderr
