"""What tests build in place of a board design, and programs that only say that they did."""

import sys
from pathlib import Path
from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

CELLS = {"LUT4": 4000, "CCU2C": 100, "TRELLIS_FF": 3000, "MULT18X18D": 68, "DP16KD": 40}
FAKE = """
import json, os, sys
from pathlib import Path
words = sys.argv[1:]
if "--version" in words:
    print("Yosys 9.9 (git sha1 abc, x)" if {tool!r} == "yosys" else "Place and Route (Version nextpnr-8.8)")
    sys.exit()
Path("ran-{tool}").open("a").write(" ".join(words) + chr(10))
after = lambda word: words[words.index(word) + 1]
if {fail!r} and "--write" not in words:
    Path(after("--log")).write_text("Info: " + chr(9) + "MULT18X18D:  200/  156   128%")
    print({fail!r}, file=sys.stderr)
    sys.exit(1)
if {tool!r} == "yosys":
    Path("netlist.json").write_text(json.dumps({{"design": {{"num_cells_by_type": {cells}}}}}))
    empty = ("parameters", "attributes", "port_directions", "connections")
    cell = {{"type": "MULT18X18D"}} | {{key: {{}} for key in empty}}
    module = {{"attributes": {{"top": "1"}}, "ports": {{}}, "cells": {{"product": cell}}}}
    Path("dovetail_board.json").write_text(json.dumps({{"modules": {{"dovetail_board": module}}}}))
    Path(after("-l")).write_text("log")
elif "--write" in words:
    asked = json.loads(Path(after("--json")).read_text())["modules"]["sites"]
    for n, cell in enumerate(asked["cells"].values()):
        cell["attributes"]["NEXTPNR_BEL"] = f"X{{n}}/Y1/{{cell['type']}}"
    Path(after("--write")).write_text(json.dumps({{"modules": {{"sites": asked}}}}))
elif {tool!r} == "nextpnr":
    seed = int(after("--seed"))
    Path(after("--log")).write_text("log")
    Path(after("--textcfg")).write_text(f"placement {{seed}}")
    cell = lambda name, port: {{"cell": name, "loc": [1, 2], "port": port}}
    hop = lambda kind, a, b, ns, **more: {{"type": kind, "from": a, "to": b, "delay": ns, **more}}
    first, last = "board.accelerator.array.sum_TRELLIS_FF_Q_3", "board.accelerator.sram.row_LUT4_Z"
    path = [hop("clk-to-q", cell(first, "Q"), cell(first, "Q"), 0.5),
        hop("routing", cell(first, "Q"), cell(last, "A"), 1.5, net="board.accelerator.array.sum[3]"),
        hop("setup", cell(last, "A"), cell(last, "A"), 0.25)]
    clock = "$glbnet$clk"
    used = {{"TRELLIS_COMB": 4321, "TRELLIS_FF": 3000, "MULT18X18D": 68, "DP16KD": 40}}
    Path(after("--report")).write_text(json.dumps({{
        "critical_paths": [{{"from": "posedge " + clock, "to": "posedge " + clock, "path": path}}],
        "fmax": {{clock: {{"achieved": {fmax} + seed, "constraint": 80.0}}}},
        "utilization": {{name: {{"used": n, "available": 9}} for name, n in used.items()}}}}))
else:
    Path(after("--bit")).write_text(Path(after("--input")).read_text())
"""


class Wire(wiring.Component):
    """Stands for a board design: its link answers at once with what it heard."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__({"rx": In(1), "tx": Out(1), "busy": Out(1), "fault": Out(1)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        halves = Signal(data.ArrayLayout(8, 2))
        count = halves.as_value()
        m.d.sync += [count.eq(count + 1), self.tx.eq(self.rx ^ (count * count)[-1])]
        m.d.comb += [self.busy.eq(halves[1][-1]), self.fault.eq(~count[-1])]
        return m


def fakes(folder: Path, *, fmax: float = 90.0, fail: str = "", cells: dict[str, int] | None = None) -> list[str]:
    """Options of ``dovetail build`` that name programs which only write what is asked for; ``fail``: of nextpnr."""
    options = []
    for tool in ("yosys", "nextpnr", "ecppack"):
        path = folder / f"{tool}.py"
        complaint = fail if tool == "nextpnr" else ""
        path.write_text(FAKE.format(tool=tool, fmax=fmax, fail=complaint, cells=cells or CELLS))
        if tool != "ecppack":
            options += [f"--{tool}", f"{sys.executable} {path}"]
    packer = folder / "bin" / "ecppack"
    packer.parent.mkdir(exist_ok=True)
    packer.write_text(f'#!/bin/sh\nexec {sys.executable} {folder / "ecppack.py"} "$@"\n')
    packer.chmod(0o755)
    return options
