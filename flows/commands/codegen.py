"""Write C code of a network's inference: schedule, kernels, driver, weights, Makefile and an example."""

import argparse
from pathlib import Path

from dovetail.flows.options.network import add_network_options, compiled_of
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.inference import left_lines
from dovetail.flows.output.reply import Report
from dovetail.sw.compiler.partition.segments import HOST
from dovetail.sw.export.codegen.project import project_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=True)
    parser.add_argument("--output", metavar="DIR", type=Path, required=True, help="folder of the C project; created")
    parser.add_argument(
        "--prefix",
        metavar="NAME",
        default="inference",
        help="prefix of the names of files, functions and macros; it must differ between the networks of one program;"
        " default: %(default)s",
    )
    parser.add_argument("--embed", action="store_true", help="the weights as a C array too, for hosts without files")


def run(args: argparse.Namespace) -> Report:
    check_output_folder("--output", args.output)
    compiled = compiled_of(args)
    project = project_of(compiled, embed=args.embed, prefix=args.prefix)
    project.write(args.output)
    nodes = [node.op for node in compiled.code.nodes_on(HOST)]
    data = {
        "output": str(args.output),
        "files": {name: len(content) for name, content in project.files.items()},
        "config_hash": f"{compiled.config.hash:016x}",
        "weights_bytes": project.weights_bytes,
        "memory_bytes": project.memory_bytes,
        "scratch_bytes": project.scratch_bytes,
        "state_bytes": project.state_bytes,
        "segments": len(compiled.code.segments),
        "host_nodes": len(nodes),
        "kernels": project.kernels,
        "inexact": project.inexact,
    }
    lines = [
        f"project      {args.output}: {len(project.files)} files; `make` builds the example for Linux",
        f"schedule     {len(compiled.code.segments)} segment(s) of the accelerator, {len(nodes)} node(s) on the host",
        f"kernels      {', '.join(project.kernels) or 'none'}",
        f"weights      {project.weights_bytes:,} bytes",
        f"memory       {project.memory_bytes:,} bytes shared, {project.scratch_bytes:,} bytes of the host's own",
    ]
    if project.state_bytes:
        lines.append(f"variables    {project.state_bytes:,} bytes of them, kept between runs")
    lines += left_lines(compiled.graph.left, compiled.graph.why_left)
    if project.inexact:
        lines.append(
            f"float        {', '.join(project.inexact)}: computed in integers, where ONNX Runtime rounds every"
            " step to float: quantised to int8, about one element in a million is one step off"
        )
    return Report(data, lines)
