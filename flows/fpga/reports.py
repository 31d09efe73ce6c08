"""What Yosys and nextpnr report: resources, frequencies, and the critical path in the names of the design."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from dovetail.flows.fpga.synthesis import COSTS
from dovetail.flows.fpga.tools import BuildError

NETLIST: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "ecp5": COSTS,
    "ice40": {
        "lut": {"SB_LUT4": 1},
        "ff": {"SB_DFF*": 1},
        "dsp": {"SB_MAC16": 1},
        "bram": {"SB_RAM40_4K*": 1},
        "spram": {"SB_SPRAM256KA": 1},
    },
    "gowin": {
        "lut": {"LUT*": 1, "ALU": 1, "RAM16SDP4": 4},
        "ff": {"DFF*": 1},
        "dsp": {"MULT9X9": 1, "MULT18X18": 2, "MULT36X36": 8},
        "bram": {"SDPB": 1, "SDPX9B": 1, "SP": 1, "SPX9": 1, "DPB": 1, "DPX9B": 1, "pROM*": 1},
    },
}
"""What a cell of Yosys's netlist takes, by family and resource; ``*`` stands for any end of its name."""

PLACED: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "ecp5": {"lut": {"TRELLIS_COMB": 1}, "ff": {"TRELLIS_FF": 1}, "dsp": {"MULT18X18D": 1}, "bram": {"DP16KD": 1}},
    "ice40": {
        "lut": {"ICESTORM_LC": 1},
        "dsp": {"ICESTORM_DSP": 1},
        "bram": {"ICESTORM_RAM": 1},
        "spram": {"ICESTORM_SPRAM": 1},
    },
    "gowin": {
        "lut": {"LUT4": 1, "ALU": 1, "RAM16SDP4": 4},
        "ff": {"DFF": 1},
        "dsp": {"MULT9X9": 1, "MULT18X18": 2, "MULT36X36": 8},
        "bram": {"BSRAM": 1},
    },
}
"""What nextpnr's cells take, as in `NETLIST`. The flip-flops of an iCE40 are in its logic cells and counted in the
netlist."""

CLOCK = "sync"
"""The design's clock."""
CONSTANT = "$PACKER_"
"""In the names of nextpnr's nets of constants, which it lists as clocks where a clock input is tied."""

PRIMITIVE = re.compile(
    r"(?:^|_)(?:TRELLIS_|SB_|LUT[1-4]|PFUMX|L6MUX21|CCU2C|MULT(?:9X9|18X18|36X36)|DP16KD|PDPW16KD|EHXPLLL"
    r"|ALU(?:_|$)|DFF|MUX2_LUT|RAM16SDP4|SDPB|SDPX9B|SPX?9?_|rPLL).*"
)
"""What Yosys appends to the name of the nearest net when it names a cell or what a cell drives."""


@dataclass(frozen=True)
class Step:
    """A stretch of a path: what the design calls it (empty where the tools named nothing), cells that it goes through,
    ns in logic and in wires."""

    name: str
    cells: int
    logic: float
    routing: float


@dataclass(frozen=True)
class CriticalPath:
    """The slowest path of a clock, from register to register; in ns with clock-to-output and setup."""

    clock: str
    steps: tuple[Step, ...]

    @property
    def logic(self) -> float:
        """ns in logic."""
        return sum(step.logic for step in self.steps)

    @property
    def routing(self) -> float:
        """ns in wires."""
        return sum(step.routing for step in self.steps)

    @property
    def start(self) -> str:
        """Where it begins."""
        return next((step.name for step in self.steps if step.name), "")

    @property
    def end(self) -> str:
        """Where it ends."""
        return next((step.name for step in reversed(self.steps) if step.name), "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "clock": self.clock,
            "from": self.start,
            "to": self.end,
            "logic_ns": round(self.logic, 3),
            "routing_ns": round(self.routing, 3),
            "steps": [asdict(step) for step in self.steps],
        }


@dataclass(frozen=True)
class Placed:
    """What nextpnr made of a netlist.

    ``used``: by resource; ``fmax``, ``wanted``: MHz by clock, of those with paths between their registers; ``paths``:
    the slowest of each clock.
    """

    used: Mapping[str, int]
    fmax: Mapping[str, float]
    wanted: Mapping[str, float]
    paths: tuple[CriticalPath, ...]

    @property
    def met(self) -> bool:
        """Whether every clock is as fast as it must be."""
        return all(self.fmax[clock] >= wanted for clock, wanted in self.wanted.items())

    @property
    def slowest(self) -> float:
        """MHz of the slowest clock."""
        return min(self.fmax.values(), default=0.0)

    @property
    def path(self) -> CriticalPath | None:
        """The slowest path of the slowest clock."""
        return next((path for path in self.paths if self.fmax.get(path.clock) == self.slowest), None)


def netlist_cells(path: Path) -> dict[str, int]:
    """Cells by type, from what ``stat -json`` wrote. Raises BuildError for a latch."""
    cells: dict[str, int] = json.loads(path.read_text())["design"]["num_cells_by_type"]
    if latches := [cell for cell in cells if "latch" in cell.lower()]:
        raise BuildError(f"netlist must be free of latches, not have {', '.join(latches)}")
    return cells


def netlist_resources(cells: Mapping[str, int], family: str) -> dict[str, int]:
    """What the cells take, by resource, before place and route."""
    return {
        resource: sum(count * cost for cell, count in cells.items() for kind, cost in costs.items() if _is(cell, kind))
        for resource, costs in NETLIST[family].items()
    }


def pass_throughs(path: Path) -> int:
    """LUTs of a Gowin part that only lead to a flip-flop, by the netlist that Yosys wrote for nextpnr.

    The data of a flip-flop come from the LUT or carry cell at its place. One that is fed by anything else, or by what
    feeds another flip-flop already, takes a LUT too.
    """
    (module,) = (m for m in json.loads(path.read_text())["modules"].values() if "top" in m["attributes"])
    cells = module["cells"].values()
    outputs = {"LUT": "F", "ALU": "SUM"}
    free = {
        cell["connections"][outputs[cell["type"][:3]]][0]
        for cell in cells
        if cell["type"][:3] in outputs and cell["connections"][outputs[cell["type"][:3]]]
    }
    count = 0
    for cell in cells:
        if cell["type"].startswith("DFF"):
            (data,) = cell["connections"]["D"]
            count += data not in free
            free.discard(data)
    return count


def _is(cell: str, kind: str) -> bool:
    return cell.startswith(kind[:-1]) if kind.endswith("*") else cell == kind


def read_report(path: Path, family: str, flip_flops: int) -> Placed:
    """nextpnr's ``--report``. ``flip_flops``: of the netlist, for a family whose report does not tell them."""
    report = json.loads(path.read_text())
    placed = {name: int(found["used"]) for name, found in report["utilization"].items()}
    used = dict.fromkeys(PLACED[family], 0) | _resources(placed, family)

    found_clocks = {name: clock for name, clock in report["fmax"].items() if CONSTANT not in name}
    names = {name: clock_name(name) for name in found_clocks}
    if len(names) == 1:
        names = dict.fromkeys(names, CLOCK)

    def clocks(what: str) -> dict[str, float]:
        return {names[name]: round(float(clock[what]), 2) for name, clock in found_clocks.items()}

    paths = tuple(
        critical_path(path, names[clock])
        for path in report["critical_paths"]
        if (clock := _clock_of(path["from"])) in names and clock == _clock_of(path["to"])
    )
    return Placed({"lut": used.pop("lut"), "ff": flip_flops} | used, clocks("achieved"), clocks("constraint"), paths)


def _clock_of(event: str) -> str:
    """The clock of ``posedge NAME``."""
    return event.rpartition(" ")[2]


def log_utilisation(text: str, family: str) -> dict[str, int]:
    """What nextpnr's log says that a design takes, by resource: all there is where it could not place it."""
    found = dict(re.findall(r"^Info:\s+(\w+):\s+(\d+)/\s*\d+\s+\d+%", text, re.MULTILINE))
    if family == "gowin":
        found.pop("ALU", None)  # they are among its LUTs until they are placed
    return _resources({cell: int(count) for cell, count in found.items()}, family)


def _resources(placed: Mapping[str, int], family: str) -> dict[str, int]:
    """By resource, those of nextpnr's cells that there are."""
    return {
        resource: sum(placed.get(cell, 0) * cost for cell, cost in costs.items())
        for resource, costs in PLACED[family].items()
        if any(cell in placed for cell in costs)
    }


def critical_path(path: Mapping[str, Any], clock: str) -> CriticalPath:
    """A path of nextpnr's report; neighbours of one name are one step."""
    hops = [(_hop_name(hop), hop["type"] == "routing", float(hop["delay"])) for hop in path["path"]]
    steps = []
    for name, group in groupby(_named(hops), key=lambda hop: hop[0]):
        found = list(group)
        logic, routing = ([delay for _, wire, delay in found if wire == wanted] for wanted in (False, True))
        steps.append(Step(name, len(logic), round(sum(logic), 3), round(sum(routing), 3)))
    return CriticalPath(clock, tuple(steps))


def _named(hops: list[tuple[str, bool, float]]) -> list[tuple[str, bool, float]]:
    """The same, where hops without a name take that of the one before."""
    last, found = "", []
    for name, wire, delay in hops:
        last = name or last
        found.append((last, wire, delay))
    return found


def _hop_name(hop: Mapping[str, Any]) -> str:
    return design_name(hop["net"] if hop["type"] == "routing" else hop["from"]["cell"])


def design_name(name: str) -> str:
    """The signal or block of the design that a net or cell of the netlist is named after; empty if there is none.

    ``array.lane_0.sum_TRELLIS_FF_Q_3`` and ``array.lane_0.sum[3]`` are ``array.lane_0.sum``; names with ``$`` are the
    tools' own, but for the blocks that ``$flatten`` keeps.
    """
    if name.startswith("$flatten"):
        return ".".join(re.findall(r"\\([\w$\[\]]+)\.", name))
    if name.startswith("$"):
        return ""
    return re.sub(r"\[\d+\]$", "", PRIMITIVE.sub("", name.partition("$")[0])).rstrip("._")


def clock_name(name: str) -> str:
    """A clock without what nextpnr adds to the name of its net; that of the design has a name in every block."""
    net = name.removeprefix("$glbnet$").partition("$SB_IO_IN")[0].removesuffix("_$glb_clk")
    return CLOCK if net.rpartition(".")[2] == "clk" else net
