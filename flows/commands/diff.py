"""Run a network on an engine and in the reference runtime, and name the first layer that differs.

The reference is TFLite Micro for TFLite files (LiteRT's reference kernels where it is not installed), ONNX Runtime on
the network's uint8 form for ONNX files, or tensors from a file. Every layer's result is compared, so the program is
compiled without reuse of memory, and differs in that from the one that `dovetail run` runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from dovetail.flows.options.engines import add_engine_options, engine_of
from dovetail.flows.options.network import add_input_options, add_network_options, compiled_of, samples_of
from dovetail.flows.output.inference import left_lines
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.sw.analysis.diff import Difference, compare
from dovetail.sw.analysis.dump import read_dump, write_dump
from dovetail.sw.errors import DovetailError
from dovetail.sw.network.layout import Sample
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.reference_runtimes import Reference


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=False)
    add_input_options(parser)
    parser.add_argument(
        "--sample",
        metavar="N",
        type=int,
        default=0,
        help="of a batch; a network with variables runs those before it, too; default: %(default)s",
    )
    add_engine_options(parser)
    parser.add_argument(
        "--reference",
        metavar="FILE.npz|FOLDER",
        type=Path,
        help="tensors by the name of a tensor or layer, or a dump of --dump-layers; default: the runtime of the file",
    )
    parser.add_argument(
        "--tolerance",
        metavar="N",
        type=int,
        default=0,
        help="largest accepted difference, in steps of int8; default: %(default)s",
    )
    parser.add_argument("--dump", metavar="DIR", type=Path, help="write every tensor of the engine's run")


def run(args: argparse.Namespace) -> Report:
    if args.tolerance < 0:
        raise DovetailError(f"tolerance must be at least 0, not {args.tolerance}")
    compiled = compiled_of(args, keep_tensors=True)
    samples, _ = samples_of(args, compiled)
    if not 0 <= args.sample < len(samples):
        raise DovetailError(f"sample must be 0..{len(samples) - 1}, not {args.sample}")
    sample = samples[args.sample]
    before = samples[: args.sample] if compiled.graph.states else []
    reference = _reference(args, compiled, sample, before)
    with engine_of(args, compiled.config, compiled.code.memory_bytes) as engine:
        for earlier in before:
            compiled.run(earlier, engine=engine)
        result = compiled.run(sample, engine=engine)
    difference = compare(compiled.graph, result.tensors, reference.tensors, args.tolerance)
    if args.dump:
        write_dump(args.dump, compiled, result)
    first = difference.first
    data = {
        "network": compiled.graph.name,
        "engine": args.engine,
        "reference": reference.runtime,
        "tolerance": args.tolerance,
        "equal": first is None,
        "first": asdict(first) if first else None,
        "layers": [asdict(one) for one in difference.comparisons],
        "not_compared": difference.missing,
        "notes": (*reference.notes, *difference.notes),
    }
    if first is None:
        verdict = f"EQUAL        {len(difference.comparisons)} layers"
    else:
        verdict = f"DIFFERENT    {first.layer} ({first.kind}) is the first layer that differs, at {first.first}"
    lines: list[RenderableType] = [_table(difference), f"reference    {reference.runtime}"]
    lines += [f"note         {note}" for note in (*reference.notes, *difference.notes)]
    if difference.missing:
        lines.append(f"not compared {', '.join(difference.missing)}: not in the reference")
    lines += left_lines(compiled.graph.left, compiled.graph.why_left)
    return Report(data, [*lines, verdict], int(first is not None))


def _reference(
    args: argparse.Namespace, compiled: CompiledNetwork, sample: Sample, before: Sequence[Sample]
) -> Reference:
    if args.reference is None:
        assert compiled.source is not None  # compiled from a file
        return reference_runtimes.run(compiled.graph, compiled.source, sample, before)
    if args.reference.is_dir():
        return reference_runtimes.Reference(str(args.reference), read_dump(args.reference))
    return reference_runtimes.read(compiled.graph, args.reference)


def _table(difference: Difference) -> Table:
    columns = ("layer", "kind", ">elements", ">differing", ">largest difference", ">first at")
    table = new_table("Layers", columns)
    for one in difference.comparisons:
        cells = f"{one.elements:,}", f"{one.differing:,}", f"{one.largest:g}", str(one.first) if one.first else ""
        table.add_row(one.layer, one.kind, *cells, style="bold red" if one.departs else None)
    return table
