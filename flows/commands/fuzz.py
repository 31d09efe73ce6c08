"""Run random programs, legal and illegal, on model and RTL in lockstep over many configurations."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.table import Table

from dovetail.cosim.compare.campaign import Tally, difference, run_campaign, shares
from dovetail.cosim.compare.fuzz import Case, load
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.coverage.bins import Counts, as_json, markdown
from dovetail.cosim.rtl.waves import Waves
from dovetail.flows.options.campaign import (
    add_campaign_options,
    add_count,
    check_counts,
    check_report,
    config_label,
    configurations_of,
)
from dovetail.flows.options.engines import add_waves_options, waves_line, waves_of
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.reply import Report, to_json
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.files import write_atomically
from dovetail.isa.instructions.table import INSTRUCTIONS, Cause
from dovetail.sw.errors import DovetailError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "--programs", 400, "programs in all")
    add_count(parser, "--seed", 0, "of the programs")
    add_count(parser, "--count", 40, "most operations drawn per program")
    add_campaign_options(parser, 4)
    parser.add_argument(
        "--save",
        type=Path,
        default=Path("fuzz-failures"),
        metavar="DIR",
        help="folder for shrunk programs that differ; default: %(default)s",
    )
    parser.add_argument(
        "--coverage", type=Path, metavar="FILE", help="write the functional coverage there: .md, or .json"
    )
    add_waves_options(parser, "waves of the first program that differs, after shrinking, or of the replayed one")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="run saved programs and nothing else")


def run(args: argparse.Namespace) -> Report:
    check_counts(args, programs=1, seed=0, configs=1, config_seed=0, count=1, jobs=1)
    waves = waves_of(args)
    if args.replay:
        if waves and len(args.replay) > 1:
            raise DovetailError(f"--waves must come with one program to replay, not {len(args.replay)}")
        return _replay(args.replay, args.form, waves)
    check_output_folder("--save", args.save)
    if args.coverage:
        check_report(args.coverage)
    configs = configurations_of(args)
    parts = shares(configs, seed=args.seed, programs=args.programs, count=args.count, form=args.form)
    total, lines, rows = Tally(), [], []
    start = time.monotonic()
    for share, tally in run_campaign(parts, cache=default_cache(), folder=args.save, jobs=args.jobs):
        line = f"{share.number:3}  {config_label(share.config)}: {_counts(tally)}"
        lines.append(line)
        lines += _differences(tally)
        rows.append({"config": share.config.to_dict(), "label": config_label(share.config), **_data(tally)})
        total += tally
        print(f"{line} [{time.monotonic() - start:.0f} s]", file=sys.stderr)
    where = f"{len(configs)} configurations" + ("" if args.config else f" of seed {args.config_seed}")
    where += f", {args.form} form"
    head = f"seed {args.seed}, {args.programs} programs of up to {args.count} drawn operations, {where}"
    covered = as_json(total.coverage)
    bins = f"functional coverage: {covered['hit']} of {covered['bins']} bins"
    if args.coverage:
        write_coverage(args.coverage, total.coverage)
    saved = next((found.path for found in total.differences if found.path), None)
    if waves:
        lines.append(_waves(saved, args.form, waves))
    verdict = f"verdict: {'EQUAL' if not total.differences else 'DIFFERENT'}: {_counts(total)}, {total.cycles:,} cycles"
    data = {"seed": args.seed, "config_seed": args.config_seed, "count": args.count, "form": args.form, **_data(total)}
    data |= {"coverage": covered, "configs": rows}
    return Report(data, [head, *lines, _table(total), bins, verdict], 1 if total.differences else 0)


def write_coverage(path: Path, counts: Counts) -> None:
    """Write functional coverage as Markdown or JSON. Raises OSError."""
    text = markdown(counts) if path.suffix == ".md" else to_json(as_json(counts))
    write_atomically(path, text.encode())


def _counts(tally: Tally) -> str:
    return (
        f"{tally.programs:,} programs, {tally.operations:,} operations, {tally.words:,} words,"
        f" {len(tally.differences)} differing"
    )


def _differences(tally: Tally) -> list[str]:
    lines = []
    for found in tally.differences:
        lines.append(f"     seed {found.seed}: {found.text}")
        if found.path:
            lines.append(f"     replay: dovetail fuzz --replay {found.path}")
    return lines


def _data(tally: Tally) -> dict[str, Any]:
    """A tally as JSON has it."""
    return {
        "programs": tally.programs,
        "operations": tally.operations,
        "words": tally.words,
        "cycles": tally.cycles,
        "differing": len(tally.differences),
        "opcodes": {op.name: tally.opcodes[op] for op in _operations()},
        "causes": {cause.name: tally.causes[cause] for cause in Cause},
        "differences": [asdict(d) | {"path": d.path and str(d.path)} for d in tally.differences],
    }


def _operations() -> list[Any]:
    """Opcodes that a unit executes."""
    return [op for op, row in INSTRUCTIONS.items() if row.unit is not None]


def _table(total: Tally) -> Table:
    """Operations by opcode beside programs by cause."""
    ops = [(op.name, f"{total.opcodes[op]:,}") for op in _operations()]
    causes = [(cause.name, f"{total.causes[cause]:,}") for cause in Cause]
    rows = [(*left, *right) for left, right in zip_longest(ops, causes, fillvalue=("", ""))]
    columns = ("opcode", ">operations", "cause", ">programs")
    return new_table("Operations started, and how programs ended", columns, rows)


def _waves(path: Path | None, form: str, waves: Waves) -> str:
    """Dump waves of a saved case, if there is one: what became of it."""
    if path is None:
        return waves_line(waves, False)
    case = load(path)
    pair = Lockstep(case.program.config, cache=default_cache(), form=form, waves=waves)
    case.run(pair)
    return waves_line(waves, pair.dumped)


def load_case(path: Path) -> Case:
    """A saved program. Raises DovetailError for any other file."""
    try:
        return load(path)
    except ValueError as error:
        raise DovetailError(f"{path}: must be a program that `dovetail fuzz` saved: {error}") from None


def _replay(paths: list[Path], form: str, waves: Waves | None) -> Report:
    """Run saved cases."""
    results = {}
    for path in paths:
        case = load_case(path)
        pair = Lockstep(case.program.config, cache=default_cache(), form=form, waves=waves)
        results[str(path)] = difference(case, pair)
    lines = [f"{path}: {text or 'equal'}" for path, text in results.items()]
    if waves:
        lines.append(waves_line(waves, pair.dumped))
    return Report(
        {"replayed": results, "differing": sum(map(bool, results.values()))}, lines, int(any(results.values()))
    )
