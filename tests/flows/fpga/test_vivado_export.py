"""The export to Vivado: names of AXI, lint, and Tcl that is whole."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.cli import main
from dovetail.flows.fpga.vivado import ip
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config

CONFIG = Config(
    ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4, depthwise="none", requant_lanes=1, bus=32, outstanding=2,
    matmul=False, elementwise=False, activation=False,
)  # fmt: skip
READ = "ARADDR ARBURST ARCACHE ARLEN ARPROT ARREADY ARSIZE ARVALID RDATA RLAST RREADY RRESP RVALID"
WRITE = "AWADDR AWBURST AWCACHE AWLEN AWPROT AWREADY AWSIZE AWVALID BREADY BRESP BVALID WDATA WLAST WREADY WSTRB WVALID"
LITE = (
    "ARADDR ARPROT ARREADY ARVALID AWADDR AWPROT AWREADY AWVALID BREADY BRESP BVALID"
    " RDATA RREADY RRESP RVALID WDATA WREADY WSTRB WVALID"
)
"""What the AXI specification (ARM IHI 0022) calls the signals that we have."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vivado")
    ip.export(CONFIG, path, frequency=125_000_000)
    return path


def ports(text: str) -> dict[str, tuple[str, int, str]]:
    """Port -> (direction, bits, what X_INTERFACE_INFO says)."""
    found = re.findall(
        r'X_INTERFACE_INFO = "([^"]+)" \*\)\n(?:  \(\* X_INTERFACE_PARAMETER.*\n)?'
        r"  (input|output) wire (?:\[(\d+):0\] )?(\w+)",
        text,
    )
    return {name: (way, int(high or 0) + 1, info) for info, way, high, name in found}


def test_port_names_are_those_of_axi(folder: Path) -> None:
    found = ports((folder / "dovetail_axi.v").read_text())
    for bus, signals, manager in (("m_axi", f"{READ} {WRITE}", True), ("s_axil", LITE, False)):
        own = {name: told for name, told in found.items() if name.startswith(bus)}
        assert set(own) == {f"{bus}_{signal.lower()}" for signal in signals.split()}
        for name, (way, bits, info) in own.items():
            signal = name.removeprefix(f"{bus}_").upper()
            assert info == f"xilinx.com:interface:aximm:1.0 {bus} {signal}"
            leaves = signal.startswith(("AR", "AW", "W")) != signal.endswith("READY")  # the manager
            assert (way == "output") == (leaves == manager)
            if signal.endswith("DATA"):
                assert bits == 32
    assert {name: info for name, (_, _, info) in found.items() if "axi" not in name} == {
        "aclk": "xilinx.com:signal:clock:1.0 aclk CLK",
        "aresetn": "xilinx.com:signal:reset:1.0 aresetn RST",
        "irq": "xilinx.com:signal:interrupt:1.0 irq INTERRUPT",
    }


def test_parameters_of_the_buses(folder: Path) -> None:
    text = (folder / "dovetail_axi.v").read_text()
    assert "XIL_INTERFACENAME m_axi, PROTOCOL AXI4, DATA_WIDTH 32, ADDR_WIDTH 32" in text
    assert "NUM_READ_OUTSTANDING 2, NUM_WRITE_OUTSTANDING 2" in text
    assert "XIL_INTERFACENAME s_axil, PROTOCOL AXI4LITE" in text
    assert "ASSOCIATED_BUSIF s_axil:m_axi, ASSOCIATED_RESET aresetn" in text


def test_lint_is_clean_and_waives_only_what_it_must(folder: Path, tmp_path: Path) -> None:
    assert ip.lint(folder) == ""
    for name in ip.FILES:
        (tmp_path / name).write_text((folder / name).read_text())
    control = (tmp_path / "dovetail.vlt").read_text()
    for rule, why in ip.WAIVERS.items():
        assert f'// {why}\nlint_off -rule {rule} -file "*/dovetail.v"' in control
    (tmp_path / "dovetail_axi.v").write_text((folder / "dovetail_axi.v").read_text().replace("4'b0011", "3'b011", 1))
    assert "%Warning-WIDTHEXPAND" in ip.lint(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_lint_clean_or_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = Config.load(name)
    refused = config.sram > ip.MOST_SRAM
    assert main(["build", name, "--export", "vivado", "--output", str(tmp_path / "ip")]) == (2 if refused else 0)
    assert ("next         vivado" in capsys.readouterr().out) != refused


def test_an_sram_that_is_too_large_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    preset = "study-64-256MiB-output"
    assert main(["build", preset, "--export", "vivado", "--output", str(tmp_path / "ip")]) == 2
    assert "error: sram must be at most 64 MiB for Vivado, not 256 MiB: the initial" in capsys.readouterr().err
    assert not (tmp_path / "ip").exists()


def test_tcl_is_whole(folder: Path) -> None:
    tkinter = pytest.importorskip("tkinter")
    tcl = tkinter.Tcl()
    for path in folder.glob("*.tcl"):
        text = path.read_text()
        assert tcl.call("info", "complete", text) == 1, path.name
        tcl.call("proc", "whole", "", text)
    assert tcl.call("info", "complete", "set part {x") == 0


def test_scripts_use_what_is_there(folder: Path) -> None:
    scripts = "".join((folder / name).read_text() for name in ("project.tcl", "package_ip.tcl"))
    for name in re.findall(r"\[file join \$here ([\w.]+\.\w+)\]", scripts):
        assert (folder / name).is_file()
    settings = (folder / "settings.tcl").read_text()
    assert set(re.findall(r"\$(part|period|version|description)", scripts)) == set(
        re.findall(r"^set (part|period|version|description)", settings, re.MULTILINE)
    )
    assert "set part xc7z020clg400-1\nset period 8.000\n" in settings
    assert "create_clock -name aclk -period 8.000 [get_ports aclk]" in (folder / "dovetail_ooc.xdc").read_text()


def test_command(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def to_verilog(core: Any, *, simulation: bool, name: str) -> dict[str, str]:
        core._MustUse__used = True
        return {f"{name}.v": "module dovetail;"}

    monkeypatch.setattr(ip, "to_verilog", to_verilog)
    monkeypatch.setattr(ip, "lint", lambda folder: "%Warning-X")
    call = ["build", "small", "--export", "vivado", "--output", str(tmp_path)]
    assert main(call) == 1
    assert "next" not in capsys.readouterr().out
    call += ["--json", "--part", "xczu3eg-sbva484-1-e"]
    assert main(call) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["files"] == list(ip.FILES) and data["lint"] == "%Warning-X"
    assert "set part xczu3eg-sbva484-1-e" in (tmp_path / "settings.tcl").read_text()
    assert main([*call[:-1], "a part; exit"]) == 2
    assert "part must be a name such as xc7z020clg400-1, not 'a part; exit'" in capsys.readouterr().err
