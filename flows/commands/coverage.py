"""What random programs, faults and host accesses cover: bins of the instruction set, lines and branches of the RTL."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from rich.table import Table

from dovetail.cosim.coverage.bins import as_json, markdown
from dovetail.cosim.coverage.file import DesignCoverage, merged
from dovetail.cosim.coverage.rtl import Hole, RtlCoverage, Totals, cover_rtl
from dovetail.flows.options.campaign import add_count, check_counts, check_report, config_label
from dovetail.flows.options.parameters import extended
from dovetail.flows.output.reply import Report, to_json
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError
from dovetail.sw.random.programs.configurations import WHOLE

LEAST = 0.95
"""Share of the lines that must be covered; each hole must have a reason."""
PLURAL = {"line": "lines", "branch": "branches", "toggle": "toggles"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "--programs", 300, "random programs")
    add_count(parser, "--faults", 8, "of each kind")
    add_count(parser, "--count", 25, "most operations drawn per program")
    add_count(parser, "--seed", 0, "of the programs")
    parser.add_argument("--config", metavar="FILE|PRESET", help="the accelerator; default: a small one with all units")
    parser.add_argument("--toggle", action="store_true", help="count toggled bits as well (much slower to build)")
    parser.add_argument(
        "--merge",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="run nothing; merge .json files of this command, `fuzz --coverage` or a cocotb bench",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write the report there: .md, or .json (for --merge, too)"
    )


def run(args: argparse.Namespace) -> Report:
    check_counts(args, programs=1, faults=0, count=1, seed=0)
    if args.output:
        check_report(args.output)
    if args.merge:
        return _merge(args)
    config = extended(Config.load(args.config) if args.config else WHOLE, args)
    start = time.monotonic()
    tally, wrong, rtl = cover_rtl(
        config,
        seed=args.seed,
        programs=args.programs,
        faults=args.faults,
        count=args.count,
        toggle=args.toggle,
        cache=default_cache(),
    )
    print(f"[{time.monotonic() - start:.0f} s]", file=sys.stderr)
    covered = as_json(tally.coverage)
    design = DesignCoverage(config_label(config), rtl.verilog)
    design.add(rtl.points)
    data = {
        "config": config.to_dict(),
        "seed": args.seed,
        "programs": tally.programs,
        "operations": tally.operations,
        "wrong": wrong,
        "functional": covered,
        "rtl": _rtl(rtl),
        "designs": {design.digest: design.to_json()},
    }
    enough = rtl.total.share("line") >= LEAST and not rtl.unexplained
    head = [
        f"{config_label(config)}",
        f"seed {args.seed}: {tally.programs:,} programs, {tally.operations:,} operations, {args.faults} faults a kind",
    ]
    verdict = [
        f"functional   {covered['hit']} of {covered['bins']} bins (dovetail fuzz --coverage runs more configurations)",
        f"RTL          {_line(rtl)}",
        f"verdict      {'ENOUGH' if enough else 'TOO LITTLE'}, {'EQUAL' if not wrong else 'DIFFERENT'}",
        *wrong,
    ]
    if args.output:
        as_text = _markdown(head, verdict, rtl, markdown(tally.coverage))
        write_atomically(args.output, (to_json(data) if args.output.suffix == ".json" else as_text).encode())
    tables = [_module_table(rtl, args.toggle)] + ([_hole_table(rtl)] if rtl.holes else [])
    return Report(data, [*head, *tables, *verdict], int(bool(wrong) or not enough))


def _merge(args: argparse.Namespace) -> Report:
    """Add up files and report what they cover together."""
    try:
        total = merged(args.merge)
    except ValueError as error:
        raise DovetailError(str(error)) from None
    covered = as_json(total.functional)
    designs = [(design.label, design.analysed()) for _, design in sorted(total.designs.items())]
    head = [f"{len(args.merge)} files: {', '.join(map(str, args.merge))}"]
    verdict = [f"functional   {covered['hit']} of {covered['bins']} bins"]
    verdict += [f"RTL          {_line(rtl)}: {name}" for name, rtl in designs]
    enough = all(rtl.total.share("line") >= LEAST and not rtl.unexplained for _, rtl in designs)
    verdict.append(f"verdict      {'ENOUGH' if enough else 'TOO LITTLE'}")
    data = {**total.to_json(), "merged": list(map(str, args.merge)), "rtl": {name: _rtl(rtl) for name, rtl in designs}}
    if args.output:
        parts = [_markdown([name], [_line(rtl)], rtl, "") for name, rtl in designs]
        text = "\n".join(["# Merged coverage", "", *head, "", *verdict, "", *parts, markdown(total.functional)])
        write_atomically(args.output, (to_json(data) if args.output.suffix == ".json" else text).encode())
    return Report(data, [*head, *verdict], int(not enough))


def _rtl(rtl: RtlCoverage) -> dict[str, Any]:
    """Coverage of a design as JSON has it."""
    return {
        "total": _shares(rtl.total),
        "modules": {name: _shares(totals) for name, totals in rtl.modules.items()},
        "holes": [vars(hole) for hole in rtl.holes],
    }


def _line(rtl: RtlCoverage) -> str:
    """Coverage of a design in a line."""
    toggled = f", {_percent(rtl.total, 'toggle')} of bits toggled" if rtl.total.all["toggle"] else ""
    return (
        f"{_percent(rtl.total, 'line')} of lines, {_percent(rtl.total, 'branch')} of branches{toggled};"
        f" {len(rtl.holes)} holes, {len(rtl.unexplained)} without a reason"
    )


def _shares(totals: Totals) -> dict[str, Any]:
    return {kind: {"covered": totals.covered[kind], "all": number} for kind, number in totals.all.items() if number}


def _percent(totals: Totals, kind: str) -> str:
    return f"{totals.share(kind):.1%}" if totals.all[kind] else ""


def _rows(rtl: RtlCoverage, kinds: list[str]) -> list[list[str]]:
    """Per module: name, then covered, all and share of each kind."""
    rows = []
    for name, totals in [*rtl.modules.items(), ("all", rtl.total)]:
        row = [name]
        for kind in kinds:
            row += [f"{totals.covered[kind]:,} / {totals.all[kind]:,}", _percent(totals, kind)]
        rows.append(row)
    return rows


def _module_table(rtl: RtlCoverage, toggle: bool) -> Table:
    kinds = ["line", "branch", *(["toggle"] if toggle else [])]
    columns = ["module", *(name for kind in kinds for name in (f">{PLURAL[kind]}", ">"))]
    return new_table("RTL by module", columns, _rows(rtl, kinds))


def _hole_table(rtl: RtlCoverage) -> Table:
    rows = ((hole.module, str(hole.line), _short(hole), hole.reason or "NONE") for hole in rtl.holes)
    return new_table("Holes", ("module", ">line", "text", "reason"), rows)


def _short(hole: Hole) -> str:
    return hole.text if len(hole.text) < 90 else hole.text[:87] + "..."


def _markdown(head: list[str], verdict: list[str], rtl: RtlCoverage, functional: str) -> str:
    kinds = [kind for kind, number in rtl.total.all.items() if number]
    lines = ["# Coverage", "", *head, "", *verdict, "", "## RTL by module", ""]
    lines.append("| module | " + " | ".join(f"{PLURAL[kind]} | " for kind in kinds) + " |")
    lines.append("|---|" + "---:|---:|" * len(kinds))
    lines += ["| " + " | ".join(row) + " |" for row in _rows(rtl, kinds)]
    lines += ["", "## Holes of the RTL", "", "| module | line | text | reason |", "|---|---:|---|---|"]
    for hole in rtl.holes:
        text = _short(hole).replace("|", "\\|")
        lines.append(f"| {hole.module} | {hole.line} | `{text}` | {hole.reason or 'none'} |")
    return "\n".join(lines) + "\n\n" + functional
