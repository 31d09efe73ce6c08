"""The SystemC platform: RTL and timed view against the model and against each other; finding SystemC; the folder."""

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.compare.fuzz import random_case, random_timing
from dovetail.cosim.rtl.setting import Setting
from dovetail.cosim.systemc import folder
from dovetail.cosim.systemc.build import SystemC, build_platform, find_systemc
from dovetail.cosim.systemc.folder import (
    PERIOD_NS,
    config_header,
    example_files,
    makefile,
    platform_files,
    random_example,
)
from dovetail.cosim.systemc.systemc_engine import SystemCEngine
from dovetail.cosim.systemc.verify import programs_of, verify_systemc
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import CONTROL_IRQ, CONTROL_START, HOST_REGISTERS, ID, STATUS_BUSY, STATUS_DONE
from dovetail.isa.instructions.table import Unit
from dovetail.sw.model.accelerator import Model
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.engine import RunResult, sram_program

CONFIG = Config.load("small")
OFFSET = {name: register.offset for name, register in HOST_REGISTERS.items()}


# --- without SystemC


def test_a_folder_that_is_no_systemc(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=f"must have include/systemc and lib\\*/libsystemc.\\*, not {tmp_path}"):
        find_systemc(tmp_path)


def test_no_systemc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers alone, such as those of the Python package, are not enough."""
    run = subprocess.run

    def asked(command: list[str], **options: Any) -> Any:
        if command[1].startswith("-print-file-name="):
            return subprocess.CompletedProcess(command, 0, command[1].partition("=")[2] + "\n", "")
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", asked)
    with pytest.raises(ToolError, match=r"^SystemC is not installed: apt install libsystemc-dev"):
        find_systemc()


def test_no_make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "make" else f"/bin/{name}")
    monkeypatch.setattr("dovetail.cosim.systemc.build.sources_hash", lambda *_: "0")
    monkeypatch.setattr("dovetail.cosim.systemc.build.machine", str)
    monkeypatch.setattr("dovetail.cosim.systemc.build.platform_files", lambda _: {"Makefile": ""})
    with pytest.raises(ToolError, match=r"^make is not on PATH"):
        build_platform(CONFIG, tmp_path, SystemC(None, "2.3.4"))
    assert not list(tmp_path.iterdir())


def test_a_build_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dovetail.cosim.systemc.build.sources_hash", lambda *_: "0")
    monkeypatch.setattr(
        "dovetail.cosim.systemc.build.platform_files", lambda _: {"Makefile": "all:\n\t@echo no; false"}
    )
    with pytest.raises(ToolError, match=r"^make failed with exit code 2; log: .*\.log\nno\n"):
        build_platform(CONFIG, tmp_path, SystemC(None, "2.3.4"))
    assert {path.suffix for path in tmp_path.iterdir()} == {".log"}


def test_config_header() -> None:
    text = config_header(CONFIG.replace(bus=128))
    assert "constexpr unsigned BUS_BYTES = 16;" in text
    assert "constexpr unsigned BURST_BYTES = 4096;" in text
    assert f"constexpr uint64_t HASH = 0x{CONFIG.replace(bus=128).hash:016x}ull;" in text
    assert "REGISTERS[] = {0x000, 0x004," in text


def test_files_of_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "to_verilog", lambda *_, **options: {f"{options['name']}.v": "", "sram.v": ""})
    texts = platform_files(CONFIG)
    assert {"Makefile", "config.toml", "dovetail.v", "sram.v", "main.cpp", "dovetail_isa.h"} < texts.keys()
    included = {line.split('"')[1] for text in texts.values() for line in text.splitlines() if '#include "' in line}
    assert included - texts.keys() == {"Vdovetail.h"}
    assert Config.from_toml(texts["config.toml"]) == CONFIG


def test_files_of_an_example() -> None:
    """One program from an empty SRAM, and one that needs it filled."""
    program = random_example(CONFIG)[0]
    other = Setting(program.memory, *program.arguments, sram=program.sram + np.uint8(1))
    files = example_files(CONFIG, [program, other])
    model = Model(CONFIG)
    wanted = model.run(program.memory.copy(), *program.arguments)
    assert wanted.fault is None
    assert files["example/expected0.bin"] == wanted.memory.tobytes() != files["example/image0.bin"]
    run = f"{program.program}:{program.pages}:{program.base}"
    assert files["example/script"].decode().splitlines() == [
        "load example/image0.bin",
        f"run {run}",
        "save example/memory0.bin",
        "load example/sram1.bin",
        "run 0:1:0",
        "load example/image1.bin",
        f"run {run}",
        "save example/memory1.bin",
    ]
    memory, _ = sram_program(Unit.LOAD, other.sram)
    assert files["example/sram1.bin"] == memory.tobytes()


# --- with it


@pytest.fixture(scope="module")
def systemc() -> SystemC:
    try:
        return find_systemc()
    except ToolError as error:
        pytest.skip(str(error))


@pytest.fixture
def engines(systemc: SystemC, build_cache: Path) -> Iterator[tuple[SystemCEngine, SystemCEngine]]:
    with (
        SystemCEngine(CONFIG, cache=build_cache, systemc=systemc) as rtl,
        SystemCEngine(CONFIG, cache=build_cache, systemc=systemc, view=True) as view,
    ):
        yield rtl, view


@pytest.mark.slow
def test_a_layer_of_a_network(systemc: SystemC, build_cache: Path) -> None:
    compiled = compile_network("zoo:dscnn", CONFIG)
    sample = np.random.default_rng(1).integers(-128, 128, compiled.graph.inputs[0].shape, np.int8)
    programs = programs_of(compiled, sample, range(1, 2))
    assert programs[0].sram.any()
    (verdict,) = verify_systemc(CONFIG, programs, cache=build_cache, systemc=systemc)
    assert verdict.first_difference == "" and verdict.cycles > 5000
    assert [form.name for form in verdict.forms] == ["rtl", "view"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--poll",), ("--quantum", "0")])
def test_random_programs(systemc: SystemC, build_cache: Path, options: tuple[str, ...]) -> None:
    """Legal ones and such as fault, with other memories and parts of it broken: what is left, and every moment."""
    seed = len("".join(options))
    config = CONFIG.replace(memory=random_timing(seed))
    model = Model(config)
    with (
        SystemCEngine(config, cache=build_cache, systemc=systemc, options=options) as rtl,
        SystemCEngine(config, cache=build_cache, systemc=systemc, options=options, view=True) as view,
    ):
        for n in range(100 * seed, 100 * seed + 12):
            case = random_case(config, n)
            p, rng = case.program, random.Random(n)
            blocks = len(p.memory) // 64
            broken = tuple((64 * rng.randrange(blocks - 40), 64 * rng.randint(1, 40)) for _ in range(n % 3))
            place = p.program, p.pages, p.base
            model.broken = rtl.broken = view.broken = broken
            if model.time(p.memory, *place).cycles > 1_000_000:
                continue
            found = []
            for engine in (model, rtl, view):
                engine.write_sram(case.sram())
                result = engine.run(p.memory.copy(), *place)
                found.append((_facts(result), result.memory.tobytes(), engine.read_sram().tobytes()))
            assert found[0] == found[1] == found[2], n
            assert {**rtl.latest, "seconds": 0} == {**view.latest, "seconds": 0}
            if "--poll" not in options:
                passed = rtl.latest["ended_ps"] - rtl.latest["started_ps"]
                assert passed == 1000 * PERIOD_NS * found[0][0][0]


@pytest.mark.slow
def test_a_memory_that_waits(systemc: SystemC, build_cache: Path) -> None:
    """The RTL takes longer, for it gets a burst as a whole; the view ends when it has been served, if that is later.
    All else is the same."""
    engines = {
        view: SystemCEngine(CONFIG, cache=build_cache, systemc=systemc, options=("--wait",), view=view)
        for view in (False, True)
    }
    model = Model(CONFIG)
    for seed in range(8):
        p = random_case(CONFIG, seed).program
        place = p.program, p.pages, p.base
        wanted = model.run(p.memory.copy(), *place)
        for view, engine in engines.items():
            found = engine.run(p.memory.copy(), *place)
            passed = (engine.latest["ended_ps"] - engine.latest["started_ps"]) // (1000 * PERIOD_NS)
            assert found.fault == wanted.fault or not view
            if wanted.fault is None:
                assert found.fault is None and np.array_equal(found.memory, wanted.memory)
                assert found.cycles == wanted.cycles if view else found.cycles > wanted.cycles
                assert passed >= found.cycles
    for engine in engines.values():
        engine.close()


def _facts(result: RunResult) -> tuple[Any, ...]:
    return result.cycles, result.counters, result.fault


@pytest.mark.slow
def test_registers(engines: tuple[SystemCEngine, SystemCEngine]) -> None:
    """What is written while a program runs, what there is not, bytes of registers, the interrupt; both forms alike."""
    program = random_example(CONFIG)[0]
    cycles = Model(CONFIG).time(program.memory, *program.arguments).cycles
    control, status = OFFSET["CONTROL"], OFFSET["STATUS"]
    start = CONTROL_START.mask | CONTROL_IRQ.mask
    lines = [
        f"read {OFFSET['ID']}",
        f"write {OFFSET['PROGRAM']}:{program.program | 0x3FF}:15",
        f"read {OFFSET['PROGRAM']}",
        f"write {OFFSET['PAGES']}:{0xFF00_0000 | program.pages}:15",
        f"read {OFFSET['PAGES']}",
        f"write {OFFSET['BASE']}:{program.base}:15",
        f"write {OFFSET['BASE']}:{0x1234_5678}:8",
        f"read {OFFSET['BASE']}",
        f"write {OFFSET['BASE']}:0:8",
        f"write {control}:{start}:2",  # not the byte that it is in
        f"read {status}",
        f"write {control}:{start}:15",
        f"read {control}",
        f"write {OFFSET['PAGES']}:99:15",
        f"read {OFFSET['PAGES']}",
        f"write {control}:{start}:15",
        f"read {OFFSET['CYCLES_LO']}",
        f"read {status}",
        "write 128:1:15",
        "read 44",
        f"wait {10 * cycles}",
        f"read {status}",
        f"write {control}:0:1",
        f"read {status}",
        f"write {control}:{CONTROL_IRQ.mask}:1",
        f"read {OFFSET['CYCLES_LO']}",
        f"write {status}:{STATUS_DONE.mask}:15",
        f"read {status}",
    ]
    answers = []
    for engine in engines:
        engine.run(program.memory.copy(), *program.arguments)
        engine.play("load image.bin")
        answers.append([engine.play(line) for line in lines])
    rtl, view = answers
    assert rtl == view
    assert rtl[0]["value"] == ID
    assert rtl[2]["value"] == program.program
    assert rtl[4]["value"] == program.pages
    assert rtl[7]["value"] == program.base | 0x1200_0000
    assert rtl[10]["value"] == 0
    assert rtl[12]["value"] == CONTROL_IRQ.mask
    assert rtl[14]["value"] == program.pages
    assert 0 < rtl[16]["value"] < cycles
    assert rtl[17]["value"] == STATUS_BUSY.mask
    assert rtl[18]["error"] and rtl[19]["error"]
    assert (rtl[21]["value"], rtl[21]["irq"]) == (STATUS_DONE.mask, 1)
    assert (rtl[23]["value"], rtl[23]["irq"]) == (STATUS_DONE.mask, 0)
    assert (rtl[25]["value"], rtl[25]["irq"]) == (cycles, 1)
    assert (rtl[27]["value"], rtl[27]["irq"]) == (0, 0)


@pytest.mark.slow
def test_a_platform_that_fails(systemc: SystemC, build_cache: Path) -> None:
    program = random_example(CONFIG)[0]
    with SystemCEngine(CONFIG, cache=build_cache, systemc=systemc) as engine:
        with pytest.raises(ToolError, match=r"the SystemC platform has ended: .*not understood: jump 1"):
            engine.play("jump 1")
        engine.run(program.memory.copy(), *program.arguments)
    with SystemCEngine(CONFIG, cache=build_cache, systemc=systemc, options=("--view", "exit 3")) as engine:
        with pytest.raises(ToolError, match="the model's process: it has ended"):
            engine.run(program.memory.copy(), *program.arguments)
        with pytest.raises(ValueError, match="contents must be 32768 bytes, not"):
            engine.write_sram(np.zeros(1, np.uint8))


@pytest.mark.slow
def test_the_folders_example(systemc: SystemC, build_cache: Path, tmp_path: Path) -> None:
    """``make run`` and ``make run-view``, with the platform that is built already."""
    (tmp_path / "example").mkdir()
    for name, data in example_files(CONFIG, random_example(CONFIG)).items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "Makefile").write_text(makefile())
    (tmp_path / "config.toml").write_text(CONFIG.to_toml())
    (tmp_path / "obj").mkdir()
    (tmp_path / "obj" / "Vdovetail_classes.mk").touch()
    shutil.copy(build_platform(CONFIG, build_cache, systemc), tmp_path / "platform")
    for target in ("run", "run-view"):
        command = ["make", "-o", "platform", "-o", "obj/Vdovetail_classes.mk", target, "VERILATOR_ROOT=/nowhere"]
        command.append(f"PYTHON={sys.executable}")
        done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "equal"
        (tmp_path / "example" / "memory0.bin").unlink()
