"""Names and figures of the tools' reports."""

import json
from pathlib import Path

import pytest

from dovetail.flows.fpga.reports import (
    clock_name,
    critical_path,
    design_name,
    log_utilisation,
    netlist_resources,
    pass_throughs,
    read_report,
)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("board.accelerator.array.lane_0.sum_TRELLIS_FF_Q_3", "board.accelerator.array.lane_0.sum"),
        ("board.accelerator.array.lane_0.sum[17]", "board.accelerator.array.lane_0.sum"),
        ("clock.left_SB_DFFESR_Q_D_SB_LUT4_O_I3_SB_CARRY_CO_CI_SB_LUT4_I3_O[2]", "clock.left"),
        ("mem_TRELLIS_FF_Q_7_DI_CCU2C_S1$CCU2_COMB0", "mem"),
        ("board.memory.cells.0.0_DP16KD_DOA0", "board.memory.cells.0.0"),
        ("board.link.state_PFUMX_Z_ALUT_LUT4_Z_1", "board.link.state"),
        ("board.halves_DFFR_Q_11_D_ALU_SUM_COUT", "board.halves"),
        ("board.memory.row_MUX2_LUT5_O_S0_LUT4_F", "board.memory.row"),
        ("board.accelerator.alu_sum[3]", "board.accelerator.alu_sum"),
        ("$abc$1234$lut$5", ""),
        ("$flatten\\board.\\accelerator.\\sequencer.$procmux$77_Y", "board.accelerator.sequencer"),
        ("uart_0__rx__io", "uart_0__rx__io"),
    ],
)
def test_design_names(name: str, wanted: str) -> None:
    assert design_name(name) == wanted


def test_clock_names() -> None:
    names = ("$glbnet$board.array.clk", "clk_$glb_clk", "clk12_0__io$SB_IO_IN_$glb_clk", "clk")
    assert [clock_name(name) for name in names] == ["sync", "sync", "clk12_0__io", "sync"]


def test_neighbours_of_one_name_are_one_step() -> None:
    def hop(kind: str, cell: str, delay: float, net: str = "") -> dict[str, object]:
        return {"type": kind, "from": {"cell": cell, "port": "Q"}, "to": {"cell": "x", "port": "A"}, "delay": delay} | (
            {"net": net} if net else {}
        )

    path = critical_path(
        {
            "from": "posedge $glbnet$clk",
            "to": "posedge $glbnet$clk",
            "path": [
                hop("clk-to-q", "a.q_TRELLIS_FF_Q", 0.5),
                hop("routing", "a.q_TRELLIS_FF_Q", 1.0, "a.q[2]"),
                hop("logic", "$abc$1$lut$2", 0.25),
                hop("routing", "$abc$1$lut$2", 0.75, "b.sum_LUT4_Z_B[1]"),
                hop("setup", "b.sum_TRELLIS_FF_Q", 0.125),
            ],
        },
        "sync",
    )
    assert [(step.name, step.cells, step.logic, step.routing) for step in path.steps] == [
        ("a.q", 2, 0.75, 1.0),
        ("b.sum", 1, 0.125, 0.75),
    ]
    assert (path.clock, path.start, path.end, path.logic, path.routing) == ("sync", "a.q", "b.sum", 0.875, 1.75)


def test_flip_flops_of_an_ice40_come_from_the_netlist(tmp_path: Path) -> None:
    used = {"ICESTORM_LC": 72, "ICESTORM_DSP": 1, "ICESTORM_RAM": 3, "ICESTORM_SPRAM": 4}
    report = {
        "critical_paths": [{"from": "posedge a", "to": "posedge b", "path": []}],
        "fmax": {
            "$PACKER_GND_NET": {"achieved": 9.0, "constraint": 12.0},
            "fast": {"achieved": 50.0, "constraint": 12.0},
            "slow": {"achieved": 11.999, "constraint": 12.0},
        },
        "utilization": {name: {"used": count, "available": 99} for name, count in used.items()},
    }
    (tmp_path / "r.json").write_text(json.dumps(report))
    placed = read_report(tmp_path / "r.json", "ice40", 55)
    assert placed.used == {"lut": 72, "ff": 55, "dsp": 1, "bram": 3, "spram": 4}
    assert (placed.slowest, placed.paths, placed.path) == (12.0, (), None)
    assert placed.met  # to the hundredth of a MHz


def test_cells_of_a_gowin_part(tmp_path: Path) -> None:
    used = {"LUT4": 100, "ALU": 20, "RAM16SDP4": 3, "DFF": 90, "BSRAM": 2, "VCC": 1}
    report = {"critical_paths": [], "fmax": {}, "utilization": {name: {"used": n} for name, n in used.items()}}
    (tmp_path / "r.json").write_text(json.dumps(report))
    assert read_report(tmp_path / "r.json", "gowin", 0).used == {"lut": 132, "ff": 90, "dsp": 0, "bram": 2}
    cells = {
        "LUT1": 1,
        "LUT4": 2,
        "ALU": 3,
        "RAM16SDP4": 2,
        "DFFRE": 5,
        "SDPX9B": 4,
        "MULT9X9": 4,
        "MULT36X36": 1,
        "MUX2_LUT5": 9,
    }
    assert netlist_resources(cells, "gowin") == {"lut": 14, "ff": 5, "dsp": 12, "bram": 4}


def test_flip_flops_of_a_gowin_part_that_need_a_lut(tmp_path: Path) -> None:
    cells = {
        "lut": {"type": "LUT3", "connections": {"I0": [2], "F": [5]}},
        "sum": {"type": "ALU", "connections": {"SUM": [6], "COUT": [7]}},
        "carry": {"type": "ALU", "connections": {"SUM": [], "COUT": [8]}},
        "own": {"type": "DFF", "connections": {"D": [5], "Q": [9]}},
        "shared": {"type": "DFFE", "connections": {"D": [5], "Q": [10]}},
        "summed": {"type": "DFFRE", "connections": {"D": [6], "Q": [11]}},
        "shifted": {"type": "DFF", "connections": {"D": [9], "Q": [12]}},
        "zero": {"type": "DFF", "connections": {"D": ["0"], "Q": [13]}},
    }
    modules = {"top": {"attributes": {"top": "1"}, "cells": cells}, "LUT3": {"attributes": {}, "cells": {}}}
    (tmp_path / "n.json").write_text(json.dumps({"modules": modules}))
    assert pass_throughs(tmp_path / "n.json") == 3  # shared, shifted, zero


def test_log_of_a_placement_that_failed() -> None:
    text = "Info: Device utilisation:\nInfo: \t  DP16KD:     300/    208   144%\nInfo: \t  TRELLIS_FF:  5/ 83640  0%\n"
    assert log_utilisation(text, "ecp5") == {"ff": 5, "bram": 300}
    text = "Info: \t  LUT4:  300/ 20736  1%\nInfo: \t  ALU:  100/ 15552  0%\n"
    assert log_utilisation(text, "gowin") == {"lut": 300}
