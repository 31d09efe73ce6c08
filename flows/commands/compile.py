"""Compile a network for a configuration into a program file, and report its exact cycles."""

import argparse
from pathlib import Path

from rich.console import RenderableType

from dovetail.flows.options.network import add_clock_option, add_network_options, clock_of, compiled_of
from dovetail.flows.output.energy import add_energy_option, check_energy_option, energy_for, energy_text
from dovetail.flows.output.inference import describe, layer_table, memory_table, summary
from dovetail.flows.output.reply import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=False)
    add_clock_option(parser)
    add_energy_option(parser)
    parser.add_argument("--output", metavar="FILE", type=Path, help="the program file (without: report only)")
    parser.add_argument("--memory", action="store_true", help="also print where each tensor is placed")


def run(args: argparse.Namespace) -> Report:
    check_energy_option(args)
    clock = clock_of(args)
    compiled = compiled_of(args)
    energy = energy_for(args, compiled)
    data = describe(compiled, clock)
    data["energy"] = energy and energy.to_dict()
    program = compiled.program
    data["program"] = {
        "segments": len(program.segments),
        "words": len(program.stream) // 8,
        "constants_bytes": len(program.constants),
        "memory_bytes": program.memory_bytes,
        "host_steps": sum(step.on_host and not step.payload for step in program.steps),
    }
    text: list[RenderableType] = [layer_table(compiled.report(), clock), summary(compiled, clock), energy_text(energy)]
    if args.memory:
        text.insert(1, memory_table(compiled))
    if args.output:
        compiled.save(args.output)
        data["output"] = str(args.output)
        text.append(f"program      {args.output}: {len(program.stream) // 8:,} words, {len(program.constants):,} bytes")
    return Report(data, text)
