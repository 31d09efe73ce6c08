"""The command ``dovetail systemc``; the platform itself is tested in ``tests/cosim/systemc/test_systemc.py``."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.cosim.rtl.setting import Setting
from dovetail.cosim.systemc import folder
from dovetail.cosim.systemc.build import SystemC
from dovetail.cosim.systemc.verify import Form, Verdict
from dovetail.flows.cli import main
from dovetail.flows.commands import systemc
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.resolved import Config


@pytest.fixture(autouse=True)
def no_verilog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing the Verilog takes seconds."""
    monkeypatch.setattr(folder, "to_verilog", lambda *_, **__: {"dovetail.v": "module dovetail; endmodule\n"})


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[list[Setting]]:
    """Programs that the command gives to the platform, which is another one: its timed view is a cycle late."""
    asked: list[list[Setting]] = []

    def verdicts(config: Config, programs: list[Setting], **_: Any) -> list[Verdict]:
        assert config == Config.load("small")
        asked.append(programs)
        forms = Form("rtl", "", 0.5), Form("view", "interrupt: after 1001 cycles, not 1000", 0.25)
        return [Verdict(1000, 0.125, forms)]

    monkeypatch.setattr(systemc, "verify_systemc", verdicts)
    monkeypatch.setattr(systemc, "find_systemc", lambda prefix: SystemC(prefix, "2.3.4"))
    return asked


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "systemc takes --output DIR, --run, or both"),
        (["--run"], "--run and --layers take a NETWORK"),
        (["--output", "x", "--layers", "1"], "--run and --layers take a NETWORK"),
        (["zoo:dscnn", "--config", "small", "--layers", "99", "--output", "x"], "layers must be in 0..11, not 99"),
        (["zoo:dscnn", "--config", "small", "--run", "--systemc", "/nowhere"], "SystemC's folder must have include"),
    ],
)
def test_user_errors(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systemc", *argv]) == 2
    assert f"dovetail: error: {message}" in capsys.readouterr().err


def test_without_systemc(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(prefix: Path | None) -> SystemC:
        raise ToolError("SystemC is not installed: apt install libsystemc-dev")

    monkeypatch.setattr(systemc, "find_systemc", absent)
    call = ["systemc", "--config", "small", "--output", str(tmp_path / "platform")]
    assert main([*call, "zoo:dscnn", "--run"]) == 2
    assert capsys.readouterr().err == "dovetail: error: SystemC is not installed: apt install libsystemc-dev\n"
    assert not (tmp_path / "platform").exists()
    assert main(call) == 0
    assert "build        SystemC is not installed: apt install libsystemc-dev\n" in capsys.readouterr().out
    assert (tmp_path / "platform" / "config.toml").exists()


def test_a_folder_without_a_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "platform"
    assert main(["systemc", "--config", "small", "--bus", "32", "--output", str(output), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    config = Config.load(output / "config.toml")
    assert data["config_hash"] == f"{config.hash:016x}" and config.bus == 32
    files = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
    assert data["files"] == files
    assert {"Makefile", "main.cpp", "dovetail.v", "example/script", "example/image0.bin"} <= set(files)


def test_a_layer_that_differs(found: list[list[Setting]], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["systemc", "zoo:dscnn", "--config", "small", "--layers", "1", "--run", "--output", str(tmp_path)]
    assert main(argv) == 1
    out = capsys.readouterr().out
    assert "1,000 cycles; model 0.125 s (8 kHz), rtl 0.500 s (2 kHz), view 0.250 s (4 kHz)" in out
    assert "first        program 0, view: interrupt: after 1001 cycles, not 1000" in out
    assert len(found[0]) == 1 and found[0][0].sram.any()
    script = (tmp_path / "example" / "script").read_text().splitlines()
    assert script[:2] == ["load example/sram0.bin", "run 0:1:0"]


def test_a_network(found: list[list[Setting]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["systemc", "zoo:dscnn", "--config", "small", "--run", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["systemc"] == "2.3.4" and not data["equal"]
    assert data["first_difference"] == "program 0, view: interrupt: after 1001 cycles, not 1000"
    assert [form["name"] for form in data["programs"][0]["forms"]] == ["rtl", "view"]
    assert not found[0][0].sram.any()
