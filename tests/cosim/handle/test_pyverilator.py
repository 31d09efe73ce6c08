"""PyVerilator as its README and its examples use it, on this Python and this Verilator; the import without Tk."""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dovetail.cosim.handle.pyverilator_import as lists
from dovetail.isa.common.cplusplus import ToolError

pyverilator: Any = pytest.importorskip("pyverilator")

COUNTER = """
    module counter (
            input        clk,
            input        rst,
            input        en,
            output [7:0] out
        );
        reg [7:0] count_reg;
        wire [7:0] next_count_reg;
        assign next_count_reg = (en == 1) ? count_reg + 1 : count_reg;
        assign out = next_count_reg;
        always @(posedge clk) begin
            if (rst == 1) count_reg <= 0;
            else          count_reg <= next_count_reg;
        end
    endmodule
"""

PARENT = """
    module parent_module (input clk, input rst, input [7:0] in, output [7:0] out);
        wire [7:0] child_2_out;
        wire [7:0] child_1_to_child_2;
        reg [7:0] in_reg;
        reg [7:0] out_reg;
        assign out = out_reg;
        child_module child_1 (clk, rst, in_reg, child_1_to_child_2);
        child_module child_2 (clk, rst, child_1_to_child_2, child_2_out);
        always @(posedge clk) begin
            if (rst == 1) begin in_reg <= 0; out_reg <= 0; end
            else begin in_reg <= in; out_reg <= child_2_out; end
        end
    endmodule
"""
CHILD = """
    `include "step.vh"
    module child_module (input clk, input rst, input [7:0] in, output [7:0] out);
        reg [7:0] in_reg;
        reg [7:0] out_reg;
        assign out = out_reg;
        always @(posedge clk) begin
            if (rst == 1) begin in_reg <= 0; out_reg <= 0; end
            else begin in_reg <= in; out_reg <= in_reg + `STEP; end
        end
    endmodule
"""

MAC = """
    module pipelined_mac (clk, rst_n, in_a, in_b, enable, clear, out, wide, do_finish);
        input clk, rst_n, enable, clear, do_finish;
        input [15:0] in_a, in_b;
        output [31:0] out;
        output [99:0] wide;
        reg [15:0] operand_a, operand_b;
        reg operands_valid, mul_result_valid;
        reg [31:0] mul_result, accumulator;
        reg [7:0] seen [0:3];
        integer step;
        assign wide = {accumulator, 4'd5, {4{in_a}}};
        always @(posedge clk) begin
            seen[in_a[1:0]] <= in_b[7:0];
            operands_valid <= enable && rst_n && !clear;
            mul_result_valid <= operands_valid && rst_n && !clear;
            if (enable) begin operand_a <= in_a; operand_b <= in_b; end
            if (operands_valid) mul_result <= operand_a * operand_b;
            if (rst_n == 0 || clear) begin
                accumulator <= 0;
                if ($value$plusargs("start=%d", step)) accumulator <= step;
            end else if (mul_result_valid) accumulator <= accumulator + mul_result;
            if (do_finish) $finish;
        end
        assign out = accumulator;
    endmodule
"""

GTKWAVE = """#!{python}
# Answers as GTKWave's Tcl shell does, and keeps what it was told.
import re, sys
told = open({log!r}, "a")
answers = iter(())
for line in sys.stdin:
    told.write(line)
    told.flush()
    if line.strip() == "exit":
        break
    if found := re.match(r'puts -nonewline (stdout|stderr) "(\\w+)"', line):
        getattr(sys, found[1]).write(found[2])
    elif re.match(r"\\}} \\w+ \\] \\}} \\{{", line):
        sys.stdout.write("1")
    elif line.startswith("flush"):
        sys.stdout.flush()
        sys.stderr.flush()
"""


@pytest.fixture
def home(tmp_path: Path, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, from which examples run; builds go to the tests' cache."""
    caches = tmp_path / "caches"
    caches.mkdir()
    (caches / "dovetail").symlink_to(build_cache)
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    monkeypatch.chdir(tmp_path)
    for name, text in (("counter", COUNTER), ("parent_module", PARENT), ("child_module", CHILD), ("mac", MAC)):
        Path(f"{name}.v").write_text(text)
    Path("step.vh").write_text("`define STEP 1\n")
    return tmp_path


@pytest.fixture
def gtkwave(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something that answers as GTKWave does; the file of what it was told."""
    tools, log = home / "tools", home / "told"
    tools.mkdir()
    (tools / "gtkwave").write_text(GTKWAVE.format(python=sys.executable, log=str(log)))
    (tools / "gtkwave").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    return log


def test_import_without_tk() -> None:
    script = "import sys; sys.modules['tkinter'] = None; import dovetail, pyverilator, tclwrapper; "
    script += "print(pyverilator.PyVerilator.__name__, tclwrapper.tclstring_to_list('a {b c}'))"
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True)
    assert done.stdout == "Simulation ['a', 'b c']\n", done.stderr
    script = "import dovetail, sys; print([m for m in ('numpy', 'pyverilator', 'amaranth') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("", []),
        ("  a\tbc ", ["a", "bc"]),
        ("{a b} {} {c {d e}}", ["a b", "", "c {d e}"]),
        (r'"a b" c\ d \{', ["a b", "c d", "{"]),
    ],
)
def test_lists_of_tcl(text: str, elements: list[str]) -> None:
    assert lists.split_list(text) == elements
    tkinter = pytest.importorskip("tkinter")
    assert list(tkinter.Tcl().splitlist(text)) == elements


def test_nested_lists_of_tcl() -> None:
    assert lists.split_nested_list("a {b {c d}}") == ("a", ("b", ("c", "d")))
    assert lists.join_nested_list(["a", ["b", ["c", "d"]]]) == "a {b {c d}}"
    assert lists.join_list(["a", "b c"]) == "a {b c}"
    assert lists.split_flat_list("a {b {c d}}") == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match=r"a Tcl list must close its braces: '\{a'"):
        lists.split_list("{a")


def test_the_readme(gtkwave: Path) -> None:
    sim = pyverilator.PyVerilator.build("counter.v")
    sim.start_gtkwave()
    sim.send_to_gtkwave(sim.io)
    sim.send_to_gtkwave(sim.internals)
    sim.io.out.send_to_gtkwave()
    sim.io.rst = 1
    sim.clock.tick()
    sim.io.rst = 0
    sim.io.en = 0
    curr_out = sim.io.out
    assert "sim.io.out = " + str(curr_out) == "sim.io.out = 8'h0"
    assert (curr_out.value, curr_out == 0, isinstance(curr_out, int), repr(curr_out)) == (0, True, True, "8'h0")
    sim.io.en = 1
    assert sim.io.out == 1
    sim.clock.tick()
    assert sim.io.out.value == 2
    sim.stop_gtkwave()
    told = gtkwave.read_text()
    assert "gtkwave::loadFile gtkwave.vcd" in told
    assert {f"TOP.counter.{name}" for name in ("clk", "rst", "en", "out[7:0]", "count_reg[7:0]")} < set(
        re.findall(r"target_sig \{(.*)\}", told)
    )
    waves = Path("gtkwave.vcd").read_text()
    assert "$scope module counter" in waves and " count_reg " in waves and "b00000010 " in waves
    assert Path("obj_dir/Vcounter").is_file()
    sim.close()


def test_no_gtkwave(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sim = pyverilator.PyVerilator.build("counter.v")
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(ToolError, match="gtkwave is not on PATH"):
        sim.start_gtkwave()
    sim["en"] = 1
    sim["clk"] = 0
    sim["clk"] = 1
    assert (sim["out"], "out" in sim, "none" in sim) == (2, True, False)
    for name in ("none", "out"):
        with pytest.raises(ValueError, match=f'cannot write port "{name}"'):
            sim[name] = 1
    assert sim["counter__DOT__count_reg"] == 1


def test_modules_and_includes(home: Path) -> None:
    (home / "parts").mkdir()
    for name in ("child_module.v", "step.vh"):
        shutil.move(name, "parts")
    sim = pyverilator.PyVerilator.build("parent_module.v", verilog_path=["parts"], build_dir="built", quiet=True)
    sim.io.rst = 1
    sim.io.clk = 0
    sim.io.clk = 1
    sim.io.rst = 0
    sim.io.in_ = 7
    seen = []
    for _ in range(6):
        inside = sim.internals
        seen.append((inside.in_reg, inside.child_1.out_reg, inside.child_2.in_reg, sim.io.out))
        sim.clock.tick()
    assert seen == [(0, 0, 0, 0), (7, 1, 0, 0), (7, 1, 1, 1), (7, 8, 1, 1), (7, 8, 8, 2), (7, 8, 8, 2)]
    assert repr(sim.internals.child_1) == (
        "InternalSignal  clk      1'h1\n"
        "InternalSignal  in       8'h7\n"
        "InternalSignal  in_reg   8'h7\n"
        "InternalSignal  out      8'h8\n"
        "InternalSignal  out_reg  8'h8\n"
        "InternalSignal  rst      1'h0"
    )
    assert "Submodule       child_2" in repr(sim.internals)


def test_multiply_and_accumulate(home: Path) -> None:
    """The example for GTKWave and that for a shell, without either; the module's name is not the file's."""
    build = pyverilator.PyVerilator.build
    sim = build("mac.v", json_data={"rules": ["é"]}, command_args=("+start=100",), quiet=True)
    assert (sim.module_name, sim.json_data) == ("pipelined_mac", {"rules": ["é"]})
    sim.start_vcd_trace("test.vcd")
    sim.io.rst_n = 0
    sim.clock.tick()
    sim.io.rst_n = 1
    draw = random.Random(1)
    total = 100
    for _ in range(20):
        a, b = draw.randrange(1 << 16), draw.randrange(-3, 1 << 15)
        sim.io.in_a, sim.io.in_b, sim.io.enable, sim.io.clear = a, b, 1, 0
        sim.clock.tick()
        total += a * (b % (1 << 16))
    sim.io.enable = 0
    sim.clock.tick()
    sim.clock.tick()
    assert (sim.io.out, sim.io.wide) == (total % (1 << 32), total % (1 << 32) << 68 | 5 << 64 | a * 0x0001000100010001)
    assert sim.internals.seen[a % 4] == b % 256
    sim.stop_vcd_trace()
    assert " accumulator " in Path("test.vcd").read_text()
    # Two of one library are apart, `$finish` too.
    other = build("mac.v", quiet=True)
    called = []
    other.set_vl_finish_callback(lambda it, *_: called.append(it))
    for one in (sim, other):
        one.io.do_finish = 1
        one.clock.tick()
    assert (sim.finished, called, other.finished) == (True, [other], False)
    assert other.io.out == 0


def test_defines_and_errors(home: Path) -> None:
    build = pyverilator.PyVerilator.build
    Path("step.v").write_text('`include "step.vh"\nmodule step(output [7:0] q); assign q = `BASE + `STEP; endmodule')
    with pytest.raises(subprocess.CalledProcessError, match=r"(?s)Verilator refused the design.*BASE"):
        build("step.v", quiet=True)
    assert build("step.v", verilog_defines=("BASE=3",)).io.q == 4
    # A header that changed is another design.
    Path("step.vh").write_text("`define STEP 2\n")
    assert build("step.v", verilog_defines=("BASE=3",)).io.q == 5
    for name in ("verilog_defines", "command_args"):
        with pytest.raises(TypeError, match=f"{name} must be a list of strings, not a string"):
            build("step.v", **{name: "STEP=3"})
    with pytest.raises(ValueError, match=r"top_verilog_file must end in \.v or \.sv, not 'step\.c'"):
        build("step.c")
    with pytest.raises(FileNotFoundError):
        build("none.v")
    assert build("step.v", build_dir="only", gen_only=True, verilog_defines=("BASE=3",)) is None
    assert {"Vstep.mk", "Vstep.cpp", "pyverilator_wrapper.cpp"} <= {path.name for path in Path("only").iterdir()}
    assert "Vstep* construct()" in Path("only/pyverilator_wrapper.cpp").read_text()
