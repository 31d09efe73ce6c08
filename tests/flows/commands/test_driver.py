"""`dovetail driver`: a folder that builds and runs, and what is said where it cannot."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from dovetail.flows.cli import main
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.compiled_network import compile_network

CONFIG = Config.load("small")


def test_it_writes_a_driver_for_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["driver", "--config", "small", "--output", str(tmp_path / "new" / "c"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["config_hash"] == f"{CONFIG.hash:016x}"
    assert {path.name for path in (tmp_path / "new" / "c").iterdir()} == set(report["files"])
    assert f"HASH 0x{CONFIG.hash:016x}ull" in (tmp_path / "new" / "c" / "dovetail_config.h").read_text()


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("make"), reason="no gcc or make")
def test_a_program_comes_with_an_input_and_its_outputs(tmp_path: Path) -> None:
    compile_network("zoo:mobilenet_v2_block", CONFIG, effort=0).save(tmp_path / "net.dvt")
    assert main(["driver", "--program", str(tmp_path / "net.dvt"), "--output", str(tmp_path / "c")]) == 0
    link = "BAREMETAL=-nostartfiles -Wl,-e,main -Wl,-z,noexecstack"
    subprocess.run(["make", "-s", "CFLAGS=-O0", "all", "baremetal.elf", link], cwd=tmp_path / "c", check=True)
    arguments = ["./dovetail_run", "-w", "none0,none1", "network.dvt", "input.bin"]
    done = subprocess.run(arguments, cwd=tmp_path / "c", capture_output=True, text=True)
    assert done.stderr == "/dev/none0: No such file or directory\n"
    assert (tmp_path / "c" / "expected.bin").stat().st_size == 12 * 12 * 16


def test_a_program_for_another_configuration_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_network("zoo:mobilenet_v2_block", CONFIG, effort=0).save(tmp_path / "net.dvt")
    arguments = ["driver", "--program", str(tmp_path / "net.dvt"), "--stripe", "8", "--output", str(tmp_path / "c")]
    assert main(arguments) == 2
    assert "it is for stripe 16, not 8" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()
