"""`dovetail fuzz`: its log, its JSON, its exit codes."""

import json
import zlib
from base64 import b85encode
from pathlib import Path

import pytest

from dovetail.cosim.compare.fuzz import load
from dovetail.flows.cli import main
from dovetail.isa.common import build_cache

BOMB = b85encode(zlib.compress(bytes(1 << 27), 9)).decode()
REGRESSIONS = Path(__file__).parents[2] / "cosim" / "compare" / "regressions"


@pytest.fixture(autouse=True)
def cache(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds are shared with the tests of cosim."""
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir("dovetail-builds"))
    monkeypatch.setattr("dovetail.flows.commands.fuzz.default_cache", lambda: folder)
    assert build_cache.default_cache() != folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text('ic_lanes = 8\noc_lanes = 8\nsram = "64 KiB"\n')
    return path


def test_log_follows_from_the_seed(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["fuzz", "--config", str(config), "--programs", "8", "--seed", "3", "--count", "4"]
    logs = []
    for _ in range(2):
        assert main(command) == 0
        logs.append(capsys.readouterr().out)
    assert logs[0] == logs[1]
    assert logs[0].startswith(
        "seed 3, 8 programs of up to 4 drawn operations, 1 configurations, simulation form\n  0  8x8, 64 KiB in 16"
    )
    assert "verdict: EQUAL: 8 programs, " in logs[0]
    assert not (tmp_path / "fuzz-failures").exists()
    assert main([*command, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["programs"], data["differing"]) == (8, 0)
    assert sum(data["causes"].values()) == 8
    assert sum(data["opcodes"].values()) == data["operations"] == data["configs"][0]["operations"]


def test_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = REGRESSIONS / "array-below-address-0.toml"
    assert main(["fuzz", "--replay", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: equal\n"
    assert load(path).program.words


def test_user_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["fuzz", "--programs", "0"]) == 2
    assert capsys.readouterr().err == "dovetail: error: --programs must be at least 1, not 0\n"
    assert main(["fuzz", "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "dovetail: error: --seed must be at least 0, not -1\n"
    assert main(["fuzz", "--coverage", "coverage.txt"]) == 2
    assert capsys.readouterr().err == "dovetail: error: a report must be a .md or .json file, not coverage.txt\n"
    assert main(["coverage", "--output", str(tmp_path / "none" / "coverage.md")]) == 2
    assert capsys.readouterr().err == f"dovetail: error: {tmp_path / 'none'}: No such directory\n"
    assert main(["fuzz", "--replay", str(tmp_path / "none.toml")]) == 2
    assert "No such file" in capsys.readouterr().err


SAVED = (REGRESSIONS / "array-below-address-0.toml").read_text()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("a = 1\n", "its entries must be program, base, memory_bytes, sram_seed, data, words, config"),
        ("a = " + "[" * 3000, "tables and arrays must be nested "),
        ("a = " + "9" * 5000, "Exceeds the limit"),
        (
            SAVED.replace("memory_bytes = 77824", "memory_bytes = 1099511627776"),
            "memory_bytes must be 0..16777216,",
        ),
        (SAVED.replace("program = 70656", "program = -1"), "program must be 0..77824, not -1"),
        (SAVED.replace("sram_seed = 28", "sram_seed = -28"), f"sram_seed must be 0..{1 << 128}, not -28"),
        (SAVED.replace("base = 4096", "base = 0.5"), "base must be a whole number"),
        (SAVED.replace('"zeros"', "1"), "data must be text"),
        (SAVED.replace('"zeros"', '"abcde"'), "data must be zeros, random or compressed bytes"),
        (SAVED.replace('"zeros"', f'"{BOMB}"'), "data must be the 70656 bytes below the program, not 70657 or more"),
    ],
)
def test_other_files_are_not_replayed(text: str, rule: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text(text)
    assert main(["fuzz", "--replay", str(path)]) == 2
    assert f"{path}: must be a program that `dovetail fuzz` saved: {rule}" in capsys.readouterr().err
