"""Pack a quantised network into one portable file, from which programs for any configuration are made later."""

import argparse
from pathlib import Path

from dovetail.flows.options.network import (
    NETWORK_HELP,
    add_shape_option,
    add_state_option,
    samples_in,
    shapes_of,
    states_of,
)
from dovetail.flows.output.reply import Report
from dovetail.isa.common.files import write_atomically
from dovetail.sw import frontend
from dovetail.sw.files.packing import pack
from dovetail.sw.files.portable import unpack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", metavar="NETWORK", help=NETWORK_HELP)
    add_shape_option(parser)
    add_state_option(parser)
    parser.add_argument("--output", metavar="NET.dnet", type=Path, required=True, help="the portable file")
    parser.add_argument(
        "--sample",
        metavar="X.npy|X.npz",
        type=Path,
        help="an input (the first of several) to pack with its output, which `dovetail run` then checks",
    )


def run(args: argparse.Namespace) -> Report:
    network = frontend.parse(frontend.read(args.network, states_of(args)), shapes_of(args))
    sample = samples_in(args.sample, network.graph)[0][0] if args.sample else None
    data = pack(network, sample)
    write_atomically(args.output, data)
    manifest = unpack(data, str(args.output)).manifest
    operators = ", ".join(f"{count} {name}" for name, count in manifest["operators"].items())
    text = [
        f"packed       {args.output}: {len(data):,} bytes",
        f"network      {manifest['name']} ({manifest['network']['kind']}), {manifest['macs']:,} MACs",
        f"operators    {operators}",
    ]
    return Report({"output": str(args.output), "bytes": len(data), "manifest": manifest}, text)
