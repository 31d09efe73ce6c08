"""Estimate an accelerator's area on an ECP5, block by block; with --measure, synthesise it and compare."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from dovetail.flows.fpga.synthesis import YOSYS, SynthesisError, netlist_resources, synthesise
from dovetail.flows.options.parameters import add_options, config_of
from dovetail.flows.output.printable import block
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.sw.analysis.cost.area import PARTS, Area, Resources, area_of, beyond, smallest_part, total

TITLES = {"lut": "LUT", "ff": "FF", "dsp": "DSP", "bram": "BRAM"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measure", action="store_true", help="synthesise it, in minutes; needs the extra synth")
    parser.add_argument("--yosys", metavar="COMMAND", default="", help=f"what runs Yosys; default: {YOSYS}")
    add_options(parser)


def run(args: argparse.Namespace) -> Report:
    """Run the command. Raises `SynthesisError` and `ConfigError`."""
    if args.yosys and not args.measure:
        raise SynthesisError("--yosys must come with --measure")
    config = config_of(args)
    estimate = area_of(config)
    data: dict[str, Any] = {
        "config": config.to_dict(),
        **{name: getattr(estimate, name) for name in TITLES},
        "error": estimate.error,
        "extrapolated": list(estimate.extrapolated),
        "blocks": {name: asdict(part) for name, part in estimate.blocks.items()},
        "part": smallest_part(estimate),
    }
    if not args.measure:
        return Report(data, [table(estimate), verdict(estimate)])
    netlist = synthesise(config, args.yosys)
    measured = netlist_resources(netlist.blocks)
    whole = total(measured.values())
    off = {name: getattr(estimate, name) / getattr(whole, name) - 1 for name in TITLES}
    data["measured"] = {
        **asdict(whole),
        "blocks": {name: asdict(part) for name, part in measured.items()},
        "cells": netlist.blocks,
        "tool": netlist.tool,
        "off": off,
    }
    told = ", ".join(f"{TITLES[name]} {value:+.1%}" for name, value in off.items())
    last = f"estimate     {told} off what {netlist.tool} made"
    return Report(data, [table(estimate, measured), verdict(estimate), last])


def verdict(estimate: Area) -> str:
    """Units, the error of the estimate, and the smallest part it fits."""
    lines = ["units        LUT of 4 inputs, DSP of 18 x 18 bits, BRAM of 16 Kibit"]
    if estimate.extrapolated:
        lines.append("error        not known, as this is outside the measured range:")
        lines += [f"             {line}" for line in estimate.extrapolated]
    else:
        lines.append(
            f"error        LUT and FF up to {estimate.error:.1%}, DSP and BRAM none, as far as measured"
            " (`dovetail docs area`)"
        )
    return block([*lines, f"part         {_fit(estimate)}"])


def _fit(area: Resources) -> str:
    """The smallest part, and how full it is; or what the largest one lacks."""
    name = smallest_part(area)
    if not name:
        last, largest = list(PARTS.items())[-1]
        has = (f"{getattr(largest, resource):,} {TITLES[resource]}" for resource in beyond(area, largest))
        return f"none: {last} has only {', '.join(has)}"
    used = (f"{getattr(area, r) / getattr(PARTS[name], r):.0%} of its {title}" for r, title in TITLES.items())
    return f"{name}: {', '.join(used)}, before place and route"


def table(estimate: Area, measured: Mapping[str, Resources] | None = None) -> RenderableType:
    """Resources per block and in all, and what was measured beside the estimate."""
    beside = [] if measured is None else [">measured"]
    columns = [column for title in TITLES.values() for column in (f">{title}", *beside)]
    shown = new_table("Estimated area on ECP5", ("block", *columns))
    for name, part in estimate.blocks.items():
        shown.add_row(name, *_cells(part, None if measured is None else measured[name]))
    shown.add_section()
    shown.add_row("all", *_cells(estimate, None if measured is None else total(measured.values())))
    return shown


def _cells(estimate: Resources, measured: Resources | None) -> list[str]:
    cells = []
    for name in TITLES:
        cells.append(f"{getattr(estimate, name):,}")
        if measured is not None:
            cells.append(f"{getattr(measured, name):,}")
    return cells
