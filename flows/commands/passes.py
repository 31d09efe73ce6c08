"""The passes on networks: a list of them, or what each does to a network, one by one."""

import argparse
from dataclasses import asdict
from pathlib import Path

from dovetail.flows.options.network import NETWORK_HELP, add_shape_option, shapes_of
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.files import write_atomically, written_whole
from dovetail.sw import frontend
from dovetail.sw.errors import DovetailError
from dovetail.sw.passes.trace import START, Change, catalogue, trace

SHOWN = 3
"""Nodes that a line of the table names."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    parser.add_argument("network", metavar="NETWORK", nargs="?", help=f"{NETWORK_HELP}; without: list the passes")
    add_shape_option(parser)
    some = parser.add_mutually_exclusive_group()
    some.add_argument("--only", metavar="NAME,...", help="run these passes alone")
    some.add_argument("--until", metavar="NAME", help="stop behind the first run of this pass")
    parser.add_argument(
        "--dump", metavar="DIR", type=Path, help="write the network before all passes, and after each that changed it"
    )


def run(args: argparse.Namespace) -> Report:
    """Run the command."""
    if args.network is None:
        return _listed(args)
    if args.dump:
        check_output_folder("--dump", args.dump)
    source = frontend.parse(frontend.read(args.network), shapes_of(args))
    only = [name.strip() for name in args.only.split(",")] if args.only else []
    start, *changes = trace(source, only, args.until or "")
    found = [change for change in changes if change.found]
    nodes = changes[-1].after if changes else start.after
    columns = (">round", "pass", ">nodes before", ">after", "what: removed -, added +, changed ~")
    rows = [(str(c.round), c.name, str(c.before), str(c.after), _what(c)) for c in found]
    idle = sorted({change.name for change in changes} - {change.name for change in found})
    lines = [f"{source.name}: {start.after} nodes, {nodes} after {len(changes)} runs of passes"]
    if idle:
        lines.append(f"found nothing: {', '.join(idle)}")
    data = {
        "network": source.name,
        "nodes_before": start.after,
        "nodes_after": nodes,
        "passes": [{name: value for name, value in asdict(change).items() if name != "text"} for change in changes],
    }
    if args.dump:
        with written_whole(args.dump) as folder:
            for number, change in enumerate((start, *found)):
                write_atomically(folder / f"{number:02d}-{change.name}.txt", change.text + "\n")
        data["dump"] = str(args.dump)
        lines.append(f"networks      {args.dump}: {START} and {len(found)} more")
    return Report(data, [*([new_table("Passes", columns, rows)] if rows else []), *lines])


def _listed(args: argparse.Namespace) -> Report:
    given = [name for name in ("only", "until", "dump", "shape") if getattr(args, name)]
    if given:
        raise DovetailError(f"--{given[0]} must come with a network")
    passes = catalogue()
    rows = [(named.name, named.kind, named.does) for named in passes]
    text = "TFLite files of float networks are written in ONNX first."
    return Report(
        {"passes": [asdict(named) for named in passes]}, [new_table("Passes", ("pass", "networks", "does"), rows), text]
    )


def _what(change: Change) -> str:
    nodes = [f"-{name}" for name in change.removed] + [f"+{name}" for name in change.added]
    nodes += [f"~{name}" for name in change.changed]
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    return ", ".join(nodes[:SHOWN]) + more or "constants, or names of tensors"
