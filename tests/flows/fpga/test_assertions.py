"""Assertions of the exported Verilog: a real core has all that they name, and each kind fires when its rule is broken.

What they watch is driven by hand here, through a core of the same names, which builds in seconds; on the real core they
are run in test_asserted_core.py.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.flows.fpga.vivado import ip
from dovetail.flows.fpga.vivado.assertions import CHANNELS, MACRO, assertions
from dovetail.isa.config.resolved import Config
from tests.flows.fpga.asserted_core import CONFIG

UNITS = ("load", "array", "vector", "store")
OWNED = [f"{unit}_{port}" for unit in UNITS for port in ("reads", "writes")]
LEVELS = [f"{unit}_level" for unit in UNITS]
SIGNALS = [f"{channel}{part}" for channel, payload in CHANNELS for part in (*payload, "valid", "ready")]

SCRIPT = """
import sys
from pathlib import Path
from dovetail.cosim.handle.design import Handle

file, cache, changes = sys.argv[1], Path(sys.argv[2]), eval(sys.argv[3])
top = Handle(file, top="dut", clock="aclk", reset="reset", flags=["--assert", "+define+{macro}"], cache=cache)
top.reset(2)
for values in [*changes, {{}}]:
    for name, value in values.items():
        top[name] = value
    top.tick()
print("ran to the end")
"""
OFFER = {"m_axi_arvalid": 1, "m_axi_araddr": 64}
LEGAL = [
    OFFER,
    {},
    {"m_axi_arready": 1},
    {"m_axi_araddr": 128},
    {"m_axi_arvalid": 0},
    {"array_level": 16, "load_writes": 5, "array_writes": 2, "vector_reads": 5},
]
FIRES = (
    ([OFFER, {"m_axi_arvalid": 0}], "M_AXI_ARVALID stays until M_AXI_ARREADY"),
    ([OFFER, {"m_axi_araddr": 65}], "the payload of M_AXI_AR is stable until it is taken"),
    ([{"s_axil_rvalid": 1}, {"s_axil_rdata": 1}], "the payload of S_AXIL_R is stable until it is taken"),
    ([{"array_level": 17}], "the queue of ARRAY holds 16 entries at most"),
    ([{"load_writes": 5, "array_writes": 4}], "no write port of a bank belongs to two units"),
    ([{"store_reads": 1, "vector_reads": 3}], "no read port of a bank belongs to two units"),
)


def stand_in() -> str:
    """A module with the assertions, whose inputs drive what they watch."""
    wide = [f"input [7:0] {name}" for name in SIGNALS if not name.endswith(("valid", "ready"))]
    bits = [f"input {name}" for name in SIGNALS if name.endswith(("valid", "ready"))]
    inner = [f"input [7:0] {name}" for name in (*OWNED, *LEVELS)]
    named = ", ".join(f".{name}({name})" for name in (*OWNED, *LEVELS))
    queues = [f"  queue {unit}_queue({unit}_level);" for unit in UNITS]
    lines = [
        f"module dut(input aclk, input reset, {', '.join([*wide, *bits, *inner])});",
        f"  core_of core({named});",
        *assertions(CONFIG),
        "endmodule",
        f"module core_of({', '.join(inner)}); sequencer_of sequencer({named}); endmodule",
        f"module sequencer_of({', '.join(inner)});",
        *queues,
        f"  board scoreboard({', '.join(f'.{name}({name})' for name in OWNED)});",
        "endmodule",
        "module queue(input [7:0] level); endmodule",
        f"module board({', '.join(f'input [7:0] {name}' for name in OWNED)}); endmodule",
    ]
    return "\n".join(lines) + "\n"


def test_only_behind_the_macro(tmp_path: Path) -> None:
    lines = assertions(CONFIG)
    assert (lines[0], lines[-1]) == (f"`ifdef {MACRO}", "`endif")
    assert len([line for line in lines if "assert (" in line]) == 2 * 5 + 4 + 2
    assert not any(
        "VECTOR" in line or "vector" in line
        for line in assertions(Config(pooling=False, elementwise=False, activation=False))
    )
    ip.export(CONFIG, tmp_path)
    assert ip.lint(tmp_path) == ""  # with the macro: all names are found in the core
    text = (tmp_path / "dovetail_axi.v").read_text()
    assert "assert" not in text.partition(f"`ifdef {MACRO}")[0]


@pytest.mark.slow
def test_what_is_broken_fires(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    cache = pytestconfig.cache.mkdir("dovetail-builds")
    file = tmp_path / "dut.v"
    file.write_text(stand_in())

    def run(changes: list[dict[str, int]]) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", SCRIPT.format(macro=MACRO), str(file), str(cache), repr(changes)]
        return subprocess.run(command, text=True, capture_output=True)

    quiet = run(LEGAL)
    assert (quiet.returncode, quiet.stdout) == (0, "ran to the end\n"), quiet.stderr
    for changes, sentence in FIRES:
        fired = run(changes)
        assert fired.returncode != 0 and "ran to the end" not in fired.stdout
        assert f"Dovetail: {sentence}" in fired.stdout + fired.stderr
