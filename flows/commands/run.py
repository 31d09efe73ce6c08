"""Run a network, or a saved program, on the model, on the RTL or on a board."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.flows.options.engines import add_engine_options, board_clock, describe_board, engine_of
from dovetail.flows.options.history import add_history_options, check_history_options, draw_history
from dovetail.flows.options.network import (
    add_clock_option,
    add_input_options,
    add_network_options,
    carried_sample,
    check_output,
    clock_of,
    compiled_of,
    outputs_file,
    samples_of,
)
from dovetail.flows.options.system import add_system_options, takes_system
from dovetail.flows.output.energy import (
    add_energy_option,
    check_energy_option,
    energy_for,
    energy_table,
    energy_text,
)
from dovetail.flows.output.inference import describe, layer_table, summary
from dovetail.flows.output.reply import Report
from dovetail.flows.system.run import run_on_system
from dovetail.isa.common.files import write_together
from dovetail.sw.analysis.dump import INDEX, write_dump
from dovetail.sw.errors import NetworkError
from dovetail.sw.runtime.compiled_network import CompiledNetwork, Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=True)
    add_system_options(parser)
    add_clock_option(parser)
    add_energy_option(parser)
    add_input_options(parser)
    add_engine_options(parser)
    parser.add_argument("--output", metavar="Y.npz", type=Path, help="write the outputs, by name")
    parser.add_argument(
        "--dump-layers",
        metavar="DIR",
        type=Path,
        help="write every tensor of the run; the program then reuses no memory, so its cycles may differ",
    )
    parser.add_argument("--layers", action="store_true", help="print a table of the layers too")
    parser.add_argument(
        "--reset",
        action="store_true",
        help="reset a network's variables before every sample; by default they carry over from sample to sample",
    )
    add_history_options(parser)


def run(args: argparse.Namespace) -> Report:
    if takes_system(args):
        return run_on_system(args)
    check_history_options(args)
    check_energy_option(args)
    clock = clock_of(args)
    compiled = compiled_of(args, keep_tensors=args.dump_layers is not None)
    check_output(args.output, compiled.graph)
    if args.reset and not compiled.graph.states:
        raise NetworkError(f"{args.network}: network must have variables for --reset, it has none; leave it out")
    samples, batch = samples_of(args, compiled)
    if args.dump_layers and len(samples) > 1:
        raise NetworkError(f"{args.input}: a dump must be of one sample, not {len(samples)}")
    with engine_of(args, compiled.config, compiled.code.memory_bytes) as engine:
        start = time.perf_counter()  # the RTL's build is no part of the time
        results = []
        for sample in samples:
            if args.reset:
                compiled.reset()
            results.append(compiled.run(sample, engine=engine))
        seconds = time.perf_counter() - start
        clock = board_clock(engine, clock)
    energy = energy_for(args, compiled)
    data = describe(compiled, clock)
    data["energy"] = energy and energy.to_dict()
    data |= {"engine": args.engine, "samples": len(samples), "cycles": results[0].cycles, "seconds": seconds}
    data["outputs"] = {
        name: {"shape": list(value.shape), "dtype": str(value.dtype)} for name, value in results[0].outputs.items()
    }
    text = [layer_table(compiled.report(), clock)] if args.layers else []
    if args.layers and energy:
        text.append(energy_table(energy))
    lines = [summary(compiled, clock), energy_text(energy), f"samples      {_rate(args.engine, results, seconds)}"]
    told, values = describe_board(engine, compiled, results[0].cycles)
    lines += told
    data |= values
    code = 0
    if carried := carried_sample(args, compiled):
        made, held = results[0].outputs, carried.outputs.items()
        wrong = [name for name, value in held if name not in made or not np.array_equal(made[name], value)]
        data["sample_equal"], code = not wrong, int(bool(wrong))
        lines.append(f"sample       {'DIFFERENT in ' + ', '.join(wrong) if wrong else 'EQUAL to the one in the file'}")
    _write(args, compiled, results, batch, clock, data, lines)
    return Report(data, [*text, *lines], code)


def _rate(engine: str, results: Sequence[Result], seconds: float) -> str:
    rate = f"{len(results)} in {seconds:.2f} s on engine {engine}"
    if engine == "rtl" and seconds:
        rate += f" ({sum(result.cycles for result in results) / seconds / 1e6:.2f} M cycles/s)"
    return rate


def _write(
    args: argparse.Namespace,
    compiled: CompiledNetwork,
    results: Sequence[Result],
    batch: bool,
    clock: float | None,
    data: dict[str, Any],
    lines: list[str],
) -> None:
    """Write what the options want, and add it to ``data`` and ``lines``; ``clock`` in Hz."""
    # Nothing is written before all that can fail has been done.
    history = draw_history(args, compiled, results[0].timeline, clock)
    files: dict[Path, bytes | str] = {getattr(args, name): content for name, content in history.items()}
    if args.output:
        files[args.output] = outputs_file(args.output, [result.outputs for result in results], batch)
        data["output"] = str(args.output)
        lines.append(f"outputs      {args.output}: {', '.join(results[0].outputs)}")
    if args.dump_layers:
        write_dump(args.dump_layers, compiled, results[0])
        data["dump"] = str(args.dump_layers)
        lines.append(f"tensors      {args.dump_layers / INDEX}")
    write_together(files)
    for name in history:
        data[name] = str(getattr(args, name))
        lines.append(f"{name:<13}{data[name]}")
