"""Write every part of a compiled network, accelerator and host, as ONNX or TFLite files with a manifest."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.flows.options.network import add_network_options, add_seed_option, compiled_of, random_sample
from dovetail.flows.output.reply import Report
from dovetail.sw.export.parts.folder import MANIFEST, export, run_parts
from dovetail.sw.network.layout import Array

_RUNS = 4
"""Of a check of a network with variables, one after the other."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=True)
    parser.add_argument("--output", metavar="DIR", type=Path, required=True, help="folder of the parts; created")
    parser.add_argument(
        "--check", action="store_true", help="run the parts in ONNX Runtime and LiteRT, compare with the program"
    )
    add_seed_option(parser, "of the check's random input")


def run(args: argparse.Namespace) -> Report:
    compiled = compiled_of(args)
    manifest = export(compiled, args.output)
    data: dict[str, Any] = {"output": str(args.output), "manifest": manifest}
    lines = [f"manifest     {args.output / MANIFEST}"]
    for part in manifest["parts"]:
        kinds = ", ".join(dict.fromkeys(node["kind"] for node in part["nodes"]))
        lines.append(f"part         {part['file']}: {len(part['nodes'])} node(s): {kinds}")
    if inexact := [part["file"] for part in manifest["parts"] if not part["exact"]]:
        lines.append(f"rounding     ONNX Runtime occasionally differs by one step in {', '.join(inexact)}")
    if rest := manifest.get("rest"):
        lines.append(f"rest         {rest['file']}: {', '.join(rest['operators'])}: {rest['reason']}")
    code = 0
    if args.check:
        rng, state = np.random.default_rng(args.seed), dict[str, Array]()
        differing = total = 0
        for _ in range(_RUNS if compiled.graph.states else 1):
            sample = random_sample(compiled.graph, rng)
            wanted, found = compiled.run(sample).outputs, run_parts(args.output, sample, state)
            differing += sum(int(np.sum(value != found[name])) for name, value in wanted.items())
            total += sum(value.size for value in wanted.values())
        data |= {"differing": differing, "elements": total}
        lines.append(f"check        {differing} of {total} elements of the outputs differ from the program's")
        code = int(bool(differing) and not inexact)
    return Report(data, lines, code)
