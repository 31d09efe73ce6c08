"""Write the results of a sweep as one HTML file that needs no network: chart, table, layers of the best points."""

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import track

from dovetail.flows.explore.results.layers import explain_rows, layers_of
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.options.schedules import add_cache_option, use_schedules
from dovetail.flows.output.reply import Report
from dovetail.flows.report.page import render
from dovetail.isa.common.files import write_atomically
from dovetail.sw.errors import DovetailError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", metavar="STORE", type=Path, help="the result store of `dovetail sweep`")
    parser.add_argument("--output", metavar="FILE", type=Path, default=Path("report.html"), help="default: %(default)s")
    parser.add_argument("--sweep", metavar="N", type=int, help="number of the sweep in the store; default: the latest")
    parser.add_argument(
        "--top", metavar="N", type=int, default=8, help="points of the front, and then the best, to explain layer by"
        " layer: each is compiled again; default: %(default)s"
    )  # fmt: skip
    parser.add_argument("--layers", metavar="FILE", type=Path, help="write every layer of these points, as CSV, too")
    add_cache_option(parser)


def run(args: argparse.Namespace) -> Report:
    if args.top < 0:
        raise DovetailError(f"top must be at least 0, not {args.top}")
    use_schedules(args)
    with Store(args.store) as store:
        sweep = store.sweep(args.sweep)
        results = store.results(sweep.id).apart()
    bar = partial(
        track, description="explaining", console=Console(stderr=True), disable=args.json or not args.top, transient=True
    )
    explanations, reason = explain_rows(results.space, results.worth_explaining(args.top), bar)
    page = render(results, explanations, version=sweep.version)
    write_atomically(args.output, page)
    if args.layers:
        layers_of(results.rows, explanations).to_csv(args.layers)
    failed = sum(not row.costs for row in results.rows)
    data = {
        "output": str(args.output),
        **({"layers": str(args.layers)} if args.layers else {}),
        "sweep": sweep.id,
        "points": len(results.rows),
        "failed": failed,
        "front": sum(row.front for row in results.rows),
        "explained": list(explanations),
        "bytes": len(page.encode()),
        "warning": reason,
    }
    text = (
        f"{args.output}: {len(results.rows):,} points of sweep {sweep.id}, {failed:,} failed, {data['front']} on the"
        f" front, {len(explanations)} explained"
    )
    return Report(data, [text, *([reason] if reason else [])])
