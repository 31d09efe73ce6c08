"""`dovetail explain`: sentences, tables, JSON, pictures, and the second configuration."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.cli import main
from dovetail.flows.commands.explain import second_config
from dovetail.flows.report.pictures.facade import titles_of
from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.energy import energy_report
from dovetail.sw.analysis.explain.comparison import compare
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.runtime.compiled_network import compile_network

NETWORK = "zoo:mobilenet_v2_block"
FLAGS = ("--pe", "16", "--sram", "64KiB")
CONFIG = Config(pe=16, sram="64 KiB")


def outcome(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(["explain", *argv])
    out, err = capsys.readouterr()
    return code, out if code == 0 else err


def data_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    code, out = outcome(capsys, *argv, "--json")
    assert code == 0
    data: dict[str, Any] = json.loads(out)
    return data


def test_json_is_the_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    compiled = compile_network(NETWORK, CONFIG)
    expected = explain(compiled).to_dict() | {"energy": energy_report(compiled).to_dict()}
    assert data_of(capsys, NETWORK, *FLAGS) == json.loads(json.dumps(expected))


def test_json_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (explain(compile_network(NETWORK, config)) for config in (CONFIG, Config(pe=32, sram="64 KiB")))
    data = data_of(capsys, NETWORK, *FLAGS, "--against", "pe=32")
    assert data["first"]["cycles"] == first.cycles
    assert data["second"]["cycles"] == second.cycles
    assert data["comparison"] == json.loads(json.dumps(compare(first, second).to_dict()))
    assert data["comparison"]["ideal"] == 2


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = outcome(capsys, NETWORK, *FLAGS)
    assert code == 0
    cycles = compile_network(NETWORK, CONFIG).report().cycles
    assert out.startswith(f"{NETWORK}: {cycles:,} cycles, ")
    for title in ("Where the cycles go", "The same program, timed with one thing free"):
        assert title in out
    assert "Layers, 16 PEs" not in out


def test_text_of_layers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = outcome(capsys, NETWORK, *FLAGS, "--layers")
    assert code == 0
    table = out[out.index("Layers, 16 PEs") :]
    for layer in ("expand", "depthwise", "project", "residual"):
        assert layer in table


def test_text_of_two(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = outcome(capsys, NETWORK, *FLAGS, "--against", "pe=32", "--layers")
    assert code == 0
    assert out.startswith("32 instead of 16 PEs: 1.")
    for title in (
        "Where the difference goes",
        "Where the difference goes, by layer",
        "Layers, 16 PEs",
        "Layers, 32 PEs",
    ):
        assert title in out


def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    data = data_of(capsys, NETWORK, *FLAGS, "--pictures", str(folder), "--against", "bus=128")
    assert data["pictures"] == [str(folder / name) for name in ("roofline.png", "shares.png", "shares-against.png")]
    assert sorted(path.name for path in folder.iterdir()) == ["roofline.png", "shares-against.png", "shares.png"]
    for path in folder.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")


def test_pictures_need_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, error = outcome(capsys, NETWORK, "--pictures", str(file))
    assert (code, error) == (2, f"dovetail: error: --pictures must be a folder, not {file} ({file} is a file)\n")


def test_titles_say_what_differs() -> None:
    def titles(*configs: Config) -> tuple[list[str], str]:
        return titles_of([explain(compile_network(NETWORK, config)) for config in configs])

    assert titles(CONFIG) == ([""], "4 x 4, 64 KiB, 64-bit bus")
    assert titles(CONFIG, CONFIG.replace(bus=128)) == (["64-bit bus", "128-bit bus"], "4 x 4, 64 KiB")
    slow = CONFIG.replace(memory=MemoryTiming(read_latency=80))
    assert titles(CONFIG, slow) == (["read_latency 40", "read_latency 80"], "4 x 4, 64 KiB, 64-bit bus")
    assert titles(CONFIG, CONFIG) == (["first", "second"], "4 x 4, 64 KiB, 64-bit bus")


def test_saved_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Another timing of the memory will do; other hardware needs another program."""
    program = str(tmp_path / "block.dvt")
    assert main(["compile", NETWORK, *FLAGS, "--output", program]) == 0
    capsys.readouterr()
    data = data_of(capsys, program, "--against", "mem-latency=90")
    assert data["comparison"]["changes"] == {"read_latency": [40, 90]}
    assert data["first"]["cycles"] == data_of(capsys, NETWORK, *FLAGS)["cycles"]
    code, error = outcome(capsys, program, "--against", "pe=32")
    assert code == 2
    assert error.startswith("dovetail: error: ")
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16x16", Config.load("16x16")),
        ("pe=32", Config(pe=32, sram="64 KiB")),
        (" sram = 1MiB , mem-latency=7", Config(pe=16, sram="1 MiB").replace(memory=CONFIG.memory)),
        ("lanes=8x16,dataflow=mixed", None),
        ("depthwise=none", Config(pe=16, sram="64 KiB", depthwise="none")),
    ],
)
def test_second_config(text: str, expected: Config | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError, match="lanes"):
            second_config(text, CONFIG)
    else:
        found = second_config(text, CONFIG)
        assert found.replace(memory=expected.memory) == expected


def test_memory_of_second_config() -> None:
    assert second_config("mem-latency=7", CONFIG).like_fixed.read_latency == 7
    assert second_config("read_latency=8", CONFIG).like_fixed.read_latency == 8


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nothing.toml", "nothing.toml must be a TOML file or a preset"),
        ("pes=4", "--against: unknown parameter 'pes'; known: lanes, pe, "),
        ("pe=many", "--against: pe must be an integer, not 'many'"),
        ("pe=32,", "--against: unknown parameter ''"),
        ("bus=65", "bus must be one of 32, 64, 128, 256, 512, not 65"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], text: str, error: str) -> None:
    code, found = outcome(capsys, NETWORK, *FLAGS, "--against", text)
    assert code == 2
    assert found.startswith(f"dovetail: error: {error}")
    assert found.count("\n") == 1
