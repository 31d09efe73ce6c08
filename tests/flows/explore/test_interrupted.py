"""Sweeps that are killed or interrupted lose no finished point, and end with the table of one that was not."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dovetail.flows.cli import main
from tests.slow import slow

SPACE = ("--ic-lanes", "4,8", "--oc-lanes", "4,8,12", "--bus", "32,64,7", "--sram", "64KiB,128KiB")
"""24 points with a cost and 12 without."""
LONG = (*SPACE, "--stripe", "1..64:1")
"""More than can be finished before somebody interrupts it."""
COMMAND = """
import signal, sys
from dovetail.flows.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it
sys.exit(main(sys.argv[1:]))
"""
PATIENCE = 120


Process = subprocess.Popen[str]
Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts ``dovetail sweep`` in a process group of its own; none of them outlives the test."""
    processes: list[Process] = []

    def start(*arguments: str | Path) -> Process:
        command = [sys.executable, "-c", COMMAND, "sweep", *map(str, arguments), "--jobs", "2"]
        options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(command, process_group=0, **options))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


def stored(store: Path, table: str = "results") -> int:
    """How many rows a table of the store has, 0 before there is one."""
    try:
        with closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as file:
            return int(file.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def wait_for(process: Process, store: Path, results: int) -> None:
    """Until so many results are there, or the process has ended."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and stored(store) < results:
        assert time.monotonic() < end
        time.sleep(0.01)


def run(*arguments: str | Path) -> None:
    assert main(["sweep", *map(str, arguments), "--jobs", "2"]) == 0


@pytest.mark.parametrize("kills", [2, slow(10)])
def test_killed_at_any_moment(start: Start, tmp_path: Path, kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run("zoo:autoencoder", *SPACE, "--output", whole)
    draw = Random(kills)
    store = killed / "results.sqlite"
    done = 0
    for number in range(kills):
        resumed = stored(store, "sweeps")
        process = start(*(("--resume",) if resumed else ("zoo:autoencoder", *SPACE)), "--output", killed)
        if number % 3 == 1:
            time.sleep(draw.uniform(0, 2))  # anywhere in the start, too
        else:
            wait_for(process, store, min(24, done + draw.randint(1, 4)))
            time.sleep(draw.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert stored(store) >= done
        done = stored(store)
    assert done > 0
    run("--resume", "--output", killed)
    assert "from the store" in capsys.readouterr().out
    assert (killed / "results.csv").read_bytes() == (whole / "results.csv").read_bytes()
    assert {path.suffix for path in killed.iterdir()} == {".csv", ".png", ".svg", ".html", ".sqlite"}


def test_interrupted(start: Start, tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    process = start("zoo:autoencoder", *LONG, "--store", store)
    wait_for(process, store, 3)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the workers as well
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert errors.splitlines()[-2:] == [
        "finished points are kept; --resume with the same store continues",
        "dovetail: interrupted",
    ]
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["s.sqlite"]
    assert stored(store) >= 3


def test_workers_end_with_a_sweep_that_is_killed(start: Start, tmp_path: Path) -> None:
    process = start("zoo:autoencoder", *LONG, "--store", tmp_path / "s.sqlite")
    wait_for(process, tmp_path / "s.sqlite", 1)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    end = time.monotonic() + PATIENCE
    while group_is_alive(process.pid):
        assert time.monotonic() < end
        time.sleep(0.05)


def group_is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
