"""`--engine board`: a network on a simulated board, and what goes with which engine."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from dovetail.flows.cli import main
from dovetail.flows.options import engines
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.link import MEMORIES, Board
from dovetail.sw.runtime.board import link
from dovetail.sw.runtime.board.board_engine import BoardEngine
from dovetail.sw.runtime.compiled_network import compile_network

NETWORK = ["zoo:mobilenet_v2_block", "--config", "small", "--effort", "0"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error of a command."""
    assert main([*arguments[:1], *NETWORK, *arguments[1:]]) == 2
    return capsys.readouterr().err.strip()


@pytest.mark.slow
def test_a_network_on_a_simulated_board(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("serial", reason="pyserial is not installed")
    assert pytestconfig.cache is not None
    builds = Path(pytestconfig.cache.mkdir("dovetail-builds"))
    monkeypatch.setattr("dovetail.flows.options.engines.default_cache", lambda: builds)
    monkeypatch.setattr(engines, "SIMULATION_LEAST", 96 << 10)  # the board that other tests have built
    for engine, options in (("model", []), ("board", ["--port", "simulated"])):
        arguments = ["run", *NETWORK, "--engine", engine, *options, "--output", str(tmp_path / f"{engine}.npz")]
        assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out.split("\n}\n")[1] + "}")
    assert report["engine"] == "board" and report["cycles"] > 0
    found, expected = (np.load(tmp_path / f"{engine}.npz")["output"] for engine in ("board", "model"))
    assert np.array_equal(found, expected)


def test_a_board_says_what_its_cycles_are() -> None:
    """They stand below those of the configuration's memory timing, which are others, beside what is predicted."""
    engine = object.__new__(BoardEngine)
    compiled = compile_network("zoo:dscnn", Config.load("small"), effort=0)

    def told(kind: str, size: int, cycles: int) -> tuple[list[str], dict[str, int]]:
        board = Board(2, size, 4_000_000, MEMORIES.index(kind))
        engine.link = cast(Any, SimpleNamespace(port="/dev/ttyUSB0", board=board))
        return engines.describe_board(engine, compiled, cycles)

    expected = compiled.cycles_with(MemoryTiming(read_latency=3, write_latency=2, beat_cycles=1))
    (board, predicted), data = told("bram", 128 << 10, 745)
    assert board == (
        "board        /dev/ttyUSB0, 131,072 bytes of bram, 4 MHz: 745 cycles, 186.2 µs, with its own memory;"
        " those above are for the configuration's memory timing"
    )
    assert predicted == (f"predicted    {expected:,} cycles with that memory: DIFFERENT by {745 - expected:+,}")
    assert data == {"predicted_cycles": expected}
    assert told("bram", 128 << 10, expected)[0][1] == f"predicted    {expected:,} cycles with that memory: EQUAL"
    assert told("sdram", 32 << 20, 745)[1]["predicted_cycles"] > expected
    compiled = compile_network("zoo:dscnn", Config.load("icebreaker"), effort=0)
    assert told("sdram", 32 << 20, 745) == (
        [
            "board        /dev/ttyUSB0, 33,554,432 bytes of sdram, 4 MHz: 745 cycles, 186.2 µs, with its own memory;"
            " those above are for the configuration's memory timing",
            "predicted    nothing: serial needs memory of kind fixed, not sdram@4MHz",
        ],
        {},
    )


@pytest.mark.parametrize("command", ["run", "diff"])
def test_a_board_needs_a_port_and_only_a_board(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(link, "ports", list)
    error = "dovetail: error: "
    assert said(capsys, command, "--port", "x") == f"{error}--port must come with --engine board"
    assert said(capsys, command, "--engine", "rtl", "--baud", "9600") == f"{error}--baud must come with --engine board"
    board = command, "--engine", "board"
    assert "--port must name the board's serial port" in said(capsys, *board)
    assert "there is no such port" in said(capsys, *board, "--port", "/dev/none")
    assert "--baud must be left out" in said(capsys, *board, "--port", "simulated", "--baud", "9600")


def test_a_board_draws_no_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = said(capsys, "run", "--engine", "board", "--port", "x", "--timeline", str(tmp_path / "t.png"))
    assert "--timeline must be left out with --engine board" in error
