"""Price a network on many configurations: a table, results.csv and cycles.png."""

import argparse
import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from dovetail.flows.network import NETWORK_HELP, add_shape_option, shapes_of
from dovetail.flows.parameters import PARAMETERS, add_options, base_of, given
from dovetail.flows.report import Report, si
from dovetail.flows.schedules import add_schedule_options, use_schedules
from dovetail.flows.study import STUDY, Cost, Evaluate, Point, Record, points_of, run_points
from dovetail.isa.config import Config, format_bytes
from dovetail.isa.files import write_atomically
from dovetail.sw.compiler.options import TILINGS
from dovetail.sw.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.sw.graph import Graph

NAME = "sweep"
HELP = "price a network on many configurations"
FrozenShapes = tuple[tuple[str, tuple[int, ...]], ...]
CSV_NAME, PICTURE_NAME = "results.csv", "cycles.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    parser.add_argument("network", metavar="NETWORK", help=NETWORK_HELP)
    add_shape_option(parser)
    parser.add_argument(
        "--study", action="store_true", help="the reference study's 36 configurations, tiled as it did (--tiling)"
    )
    parser.add_argument("--tiling", choices=TILINGS, help="default: free, with --study channels")
    parser.add_argument("--output", metavar="FOLDER", type=Path, help=f"where {CSV_NAME} and {PICTURE_NAME} go")
    add_schedule_options(parser, default="0")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: %(default)s")
    add_options(parser, lists=True)


def run(args: argparse.Namespace) -> Report:
    """Run the command."""
    if args.jobs < 1:
        raise DovetailError(f"jobs must be at least 1, not {args.jobs}")
    tiling = args.tiling or ("channels" if args.study else "free")
    lists: dict[str, Sequence[Any]] = {**(STUDY if args.study else {}), **given(args)}
    points = points_of(base_of(args), lists)
    shapes = tuple(shapes_of(args).items())
    network = _graph(args.network, shapes).name  # in this process too: a bad file is one error, not one per point
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
    cost = NetworkCost(args.network, tiling, args.effort or 0, use_schedules(args), shapes)
    records = sweep(cost, points, jobs=args.jobs, progress=not args.json)
    data: dict[str, Any] = {"network": network, "tiling": tiling, "points": len(points)}
    data["failed"] = sum(record.cost is None for record in records)
    data["records"] = rows_of(records, {"network": network, "tiling": tiling})
    text: list[Any] = [table_of(records)]
    text += [f"{r.point.label}: {r.error}" for r in records if r.cost is None]
    if args.output:
        data["csv"], data["picture"] = map(str, write(args.output, records, network, tiling))
        text.append(f"{data['csv']}\n{data['picture']}")
    return Report(data, text, int(data["failed"] == len(records)))


@dataclass(frozen=True)
class NetworkCost:
    """Prices configurations for a network: compile, then exact timing. Can be sent to another process.

    ``schedules``: the folder of the schedule cache; ``shapes``: sizes of inputs that the file leaves open.
    """

    network: str
    tiling: str = "free"
    effort: int = 0
    schedules: Path | None = None
    shapes: FrozenShapes = ()

    def __call__(self, config: Config) -> Cost:
        from dovetail.sw.compiler import schedule_cache
        from dovetail.sw.network import compile_network

        schedule_cache.use(self.schedules)
        graph = _graph(self.network, self.shapes)
        report = compile_network(graph, config, tiling=self.tiling, effort=self.effort).report()
        nodes = {node.name: node for node in graph.nodes}
        host = tuple((name, nodes[name].op, graph.macs(nodes[name])) for name in report.host)
        return Cost(report.cycles, report.macs, report.bound, report.moved_bytes, report.by_kind(), host)


@lru_cache(maxsize=1)
def _graph(network: str, shapes: FrozenShapes) -> "Graph":
    """The network, parsed once per process."""
    from dovetail.sw import frontend

    return frontend.load(network, dict(shapes))


def sweep(evaluate: Evaluate, points: Sequence[Point], *, jobs: int = 1, progress: bool = False) -> list[Record]:
    """The record of every point, in the points' order; ``progress`` draws a bar on stderr."""
    records: dict[int, Record] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not progress) as bar:
        task = bar.add_task("configurations", total=len(points))
        for index, record in run_points(evaluate, points, jobs):
            records[index] = record
            bar.update(task, advance=1)
    return [records[index] for index in range(len(points))]


def rows_of(records: Sequence[Record], extra: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A flat row per record, all with the same columns; ``extra`` goes first."""
    from dovetail.flows.pictures.stacked import kinds_of

    kinds = kinds_of(records)
    return [dict(extra) | record.row(kinds) for record in records]


def write(folder: Path, records: Sequence[Record], network: str, tiling: str) -> tuple[Path, Path]:
    """Write table and picture below ``folder``; returns their paths."""
    from dovetail.flows.pictures.stacked import draw

    rows = rows_of(records, {"network": network, "tiling": tiling})
    text = StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(folder / CSV_NAME, text.getvalue())
    write_atomically(
        folder / PICTURE_NAME, draw(records, f"{network}: cycles per inference", subtitle(records, tiling))
    )
    return folder / CSV_NAME, folder / PICTURE_NAME


def subtitle(records: Sequence[Record], tiling: str) -> str:
    """What all points have in common."""
    cut = "rows and channels" if tiling == "free" else "output channels"
    config = next((r.point.config for r in records if r.point.config), None)
    axes = records[0].point.axes
    parts = [f"{len(records)} configurations"] if len(records) > 1 else []
    if config:
        if not {"pe", "dataflow", "ic_lanes", "oc_lanes"} & set(axes):
            parts.append(f"{config.ic} x {config.oc} multipliers")
        common = {
            "sram": f"{format_bytes(config.sram_bytes)} SRAM",
            "depthwise": f"depthwise {config.depthwise}",
            "bus": f"{config.bus}-bit bus",
            "read_latency": f"read latency {config.memory.read_latency} cycles",
        }
        parts += [text for name, text in common.items() if name not in axes]
    return ", ".join([*parts, f"tiling in {cut}"])


def table_of(records: Sequence[Record]) -> Table:
    """The records for a person."""
    axes = list(records[0].point.axes)
    table = Table(title="Cycles per inference")
    for name in axes:
        table.add_column(PARAMETERS[name].title or name)
    for name in ("cycles", "MACs", "utilisation", "cycles / roofline", "DRAM bytes", "host nodes"):
        table.add_column(name, justify="right")
    before: Mapping[str, Any] = {}
    for record in records:
        values = record.point.axes
        new_group = len(axes) > 1 and bool(before) and values[axes[0]] != before[axes[0]]
        if new_group:
            table.add_section()
        cells = [PARAMETERS[name].show(values[name]) for name in axes]
        cost = record.cost
        if cost is None:
            table.add_row(*cells, f"[red]{record.error[:60]}[/]")
        else:
            host = f"{len(cost.host)}" + (f" ({si(macs)} MACs)" if (macs := sum(m for _, _, m in cost.host)) else "")
            table.add_row(*cells, f"{cost.cycles:,}", f"{cost.macs:,}", f"{record.utilisation:.1%}",
                          f"{record.roofline:.3f}", f"{cost.dram_bytes:,}", host)  # fmt: skip
        before = values
    return table
