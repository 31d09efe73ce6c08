"""Write the C99 driver for a configuration, with its examples: a folder that `make` builds."""

import argparse
from pathlib import Path

from dovetail.flows.options.network import add_input_options, random_sample, samples_in
from dovetail.flows.options.parameters import add_options, base_of, changed, config_of, given
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.reply import Report
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError
from dovetail.sw.export.driver_files import driver_files
from dovetail.sw.runtime.saved_program import load_program


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="DIR", type=Path, required=True, help="folder of the sources; created")
    parser.add_argument(
        "--program",
        metavar="FILE",
        type=Path,
        help="a saved program: its configuration is used, and the examples run it on an input and check the output",
    )
    add_input_options(parser)
    add_options(parser)


def run(args: argparse.Namespace) -> Report:
    check_output_folder("--output", args.output)
    contents: dict[str, str | bytes] = {}
    if args.program:
        config, data = _example(args)
        contents |= data
    else:
        config = config_of(args)
    contents |= driver_files(config, examples=True)
    args.output.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(args.output / name, content)
    lines = [f"driver       {args.output}: {', '.join(sorted(contents))}", f"configuration {config.hash:016x}"]
    if args.program:
        lines.append("run          make && ./dovetail_run -e expected.bin network.dvt input.bin")
    return Report({"output": str(args.output), "config_hash": f"{config.hash:016x}", "files": sorted(contents)}, lines)


def _example(args: argparse.Namespace) -> tuple[Config, dict[str, str | bytes]]:
    """The configuration of a saved program, and the files that the examples take, from the model."""
    import numpy as np

    compiled = load_program(args.program)
    config = changed(compiled.config if args.config is None else base_of(args), given(args))
    compiled.program.check_config(config)
    if not all(step.segment is not None or step.payload for step in compiled.program.steps):
        raise DovetailError(
            f"{args.program}: network must run on the accelerator as a whole, not partly on the host;"
            " `dovetail codegen` makes C for the rest"
        )
    graph = compiled.graph
    if graph.states:
        raise DovetailError(
            f"{args.program}: network must have no variables, not {graph.states[0].name!r}: the examples of the driver"
            " keep nothing between runs"
        )
    if args.input is None:
        sample = random_sample(graph, np.random.default_rng(args.seed))
    else:
        sample = samples_in(args.input, graph)[0][0]
    inputs, result = graph.bind(sample), compiled.run(sample)
    return config, {
        "network.dvt": args.program.read_bytes(),
        "input.bin": b"".join(inputs[port.tensor].tobytes() for port in graph.inputs),
        "expected.bin": b"".join(result.tensors[port.tensor].tobytes() for port in graph.outputs),
    }
