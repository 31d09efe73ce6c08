"""Evaluate networks on many configurations, exactly: a table, results.csv, pictures and a page.

Each result is kept in a store as soon as it is there. Results in the store are not computed again, and --resume
continues a stopped sweep.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.cosim.rtl.verilate import verilator_root
from dovetail.flows.explore.progress import clock, progress_bar
from dovetail.flows.explore.results.constraint_fates import fates_of, nearest_miss
from dovetail.flows.explore.results.records import records_of
from dovetail.flows.explore.results.row import Row
from dovetail.flows.explore.results.table import Fitted, failures_of, goals_table, notes_of
from dovetail.flows.explore.space.deployment import Deployment
from dovetail.flows.explore.space.design_space import Space
from dovetail.flows.explore.space.networks import read_all
from dovetail.flows.explore.store.database import StoreError
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.explore.sweep import Means, Progress, resume, sweep
from dovetail.flows.options.confirmation import Confirmed, confirm_sweep, read_count
from dovetail.flows.options.goals import has_goals, with_goals
from dovetail.flows.options.parameters import add_options
from dovetail.flows.options.schedules import add_schedule_options, use_schedules
from dovetail.flows.options.space import add_space_options, check_resumed, space_of
from dovetail.flows.output.printable import block
from dovetail.flows.output.reply import Report
from dovetail.flows.report.sweep_files import write_files
from dovetail.isa.common.cplusplus import compiler
from dovetail.sw.errors import DovetailError

STORE_NAME = "results.sqlite"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_space_options(parser)
    parser.add_argument("--output", metavar="FOLDER", type=Path, help="folder for table, pictures, page and store")
    parser.add_argument(
        "--store", metavar="FILE", type=Path, help=f"the result store; default: {STORE_NAME} in the output folder"
    )
    parser.add_argument("--resume", action="store_true", help="continue the latest sweep of the store")
    parser.add_argument(
        "--confirm",
        metavar="N|all",
        type=read_count,
        help="run the N best points and N random ones, or all, on the RTL as well: every byte, every cycle",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: %(default)s")
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        default="",
        help="of a Dask cluster that runs the sweep, such as tcp://10.0.0.1:8786",
    )
    add_schedule_options(parser, default="0")
    add_options(parser, lists=True)


def run(args: argparse.Namespace) -> Report:
    if args.jobs < 1:
        raise DovetailError(f"jobs must be at least 1, not {args.jobs}")
    if args.resume:
        check_resumed(args)
        if not has_goals(args):
            return _swept(args, None)
        with _store_of(args) as store:
            space = with_goals(store.sweep().space, args)
        return _swept(args, space)  # another sweep of the same points: the store has what they cost
    return _swept(args, space_of(args))


def _swept(args: argparse.Namespace, space: Space | None) -> Report:
    """Evaluate the points of a space, or continue the store's latest sweep."""
    if args.confirm:  # before the sweep's time has passed
        _check_confirm(args, space)
        verilator_root()
        compiler()
    means = Means(args.jobs, args.scheduler, use_schedules(args))
    files = read_all(space) if space else []  # before there is a store: a bad file leaves nothing behind
    with _store_of(args) as store:
        try:
            with progress_bar(shown=not args.json) as notify:
                progress = sweep(store, space, files, means, notify) if space else resume(store, means, notify)
            confirmed = None
            if args.confirm:
                confirmed = confirm_sweep(
                    store, args.confirm, jobs=args.jobs, schedules=means.schedules, shown=not args.json
                )
            return _report(args, store, progress, confirmed)
        except KeyboardInterrupt:
            if args.output or args.store:
                print("finished points are kept; --resume with the same store continues", file=sys.stderr)
            raise


def _check_confirm(args: argparse.Namespace, space: Space | None) -> None:
    """Raise DovetailError for systems: a command of its own runs one on the RTL."""
    if space is None:
        with _store_of(args) as store:
            space = store.sweep().space
    if isinstance(space.base, Deployment):
        raise DovetailError(
            "--confirm must be left out of a sweep of systems; `dovetail verify --system` takes its files"
        )


@contextmanager
def _store_of(args: argparse.Namespace) -> Iterator[Store]:
    """The store of a command line, or a temporary one. Raises StoreError."""
    path = args.store or (args.output and args.output / STORE_NAME)
    if path is None:
        if args.resume:
            raise DovetailError("resume must have the store of the sweep; give --store, or the --output that it had")
        with TemporaryDirectory(prefix="dovetail-") as folder, Store(Path(folder) / STORE_NAME, write=True) as store:
            yield store
        return
    if args.resume and not path.exists():
        raise DovetailError(f"{path}: store must exist to resume its sweep; there is no such file")
    if args.output:
        try:
            args.output.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise DovetailError(f"{args.output}: output must be a folder, there is a file; give another") from error
    new = not path.exists()
    try:
        with Store(path, write=True) as store:
            yield store
            new = False
    finally:
        if new:
            _drop_empty(path)
        if args.output:
            with suppress(OSError):  # it holds something
                args.output.rmdir()


def _drop_empty(path: Path) -> None:
    """Remove a store in which no sweep has begun."""
    with suppress(StoreError):
        with Store(path) as store:
            empty = not store.sweeps()
        if empty:
            path.unlink()


def _report(args: argparse.Namespace, store: Store, progress: Progress, confirmed: Confirmed | None) -> Report:
    """The outcome as data, table and files."""
    sweep = store.sweep()
    results = store.results(sweep.id)
    networks = [network.name for network in store.networks(sweep)]
    records = records_of(results.space, results.rows, networks)
    failed = sum(bool(row.error) for row in results.rows)
    fates, miss = fates_of(results), nearest_miss(results)
    data: dict[str, Any] = {
        "network": " + ".join(networks),
        "tiling": results.space.tiling,
        "keep_weights": results.space.keep_weights,
        "points": len(results.rows),
        "failed": failed,
        "reused": progress.reused,
        "outdated": progress.outdated,
        "seconds": round(progress.seconds, 3),
        "objectives": list(results.space.objectives),
        "constraints": [asdict(fate) for fate in fates],
        "nearest_miss": asdict(miss) if miss else None,
        "notes": notes_of(results, list(results.space.known)),
        "records": records,
    }
    text: list[Any] = [Fitted(results), *failures_of(results.rows)]
    text += [goals_table(fates)] if fates else []
    text += [f"nothing is feasible; nearest: {miss.text}"] if miss else []
    text += [_standing(results.choices), summary(progress)]
    if args.output:
        files = write_files(args.output, results, networks, records, sweep.version)
        data |= {name: str(path) for name, path in files.items()}
        text.append(block(map(str, files.values())))
    code = int(failed == len(results.rows))
    if confirmed:
        data["confirmed"] = confirmed.data
        text += confirmed.lines
        code = code or confirmed.code
    return Report(data, text, code)


def _standing(rows: Sequence[Row]) -> str:
    """How many points are on the front, and how many are infeasible."""
    front = sum(row.front for row in rows)
    infeasible = sum(bool(row.values) and not row.feasible for row in rows)
    return f"{front:,} on the front" + (f", {infeasible:,} infeasible" if infeasible else "")


def summary(progress: Progress) -> str:
    """What the sweep did, in a line or two."""
    parts = [f"{progress.done:,} configuration{'s' * (progress.done != 1)}: {progress.priced:,} priced"]
    parts[0] += f" in {clock(progress.seconds)} ({progress.rate:.1f}/s)" if progress.priced else ""
    parts += [f"{progress.reused:,} from the store"] if progress.reused else []
    parts += [f"{progress.failed:,} failed"] if progress.failed else []
    lines = [", ".join(parts)]
    if progress.outdated:
        lines.append(
            f"{progress.outdated:,} results of the store are of another version of the compiler and were not used"
        )
    return block(lines)
