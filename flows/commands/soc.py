"""Run an inference on a simulated SoC, from reset to result: RISC-V processor, accelerator and memory in RTL."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cosim.rtl.rtl_engine import DEFAULT_LIMIT
from dovetail.cosim.rtl.verilate import wave_format
from dovetail.cosim.soc.inference import SocInference, run_inference
from dovetail.cosim.soc.trace import soc_trace
from dovetail.flows.options.network import (
    add_clock_option,
    add_input_options,
    add_network_options,
    check_output,
    clock_of,
    compiled_of,
    outputs_file,
    samples_of,
)
from dovetail.flows.output.reply import Report
from dovetail.flows.output.tables import new_table
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.files import write_together
from dovetail.sw.errors import DovetailError, NetworkError
from dovetail.sw.runtime.clock import time_text
from dovetail.sw.runtime.compiled_network import CompiledNetwork


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=True)
    add_clock_option(parser)
    add_input_options(parser)
    parser.add_argument("--output", metavar="Y.npz", type=Path, help="write the outputs, by name")
    parser.add_argument(
        "--timeline", metavar="FILE.json", type=Path, help="what host and units do when, for ui.perfetto.dev"
    )
    parser.add_argument("--waves", metavar="FILE", type=Path, help="dump the SoC's waves (.fst or .vcd; slower)")
    parser.add_argument(
        "--limit",
        metavar="CYCLES",
        type=int,
        default=DEFAULT_LIMIT,
        help="give up after so many cycles; default: %(default)s",
    )


def run(args: argparse.Namespace) -> Report:
    clock = clock_of(args)
    _check(args)
    compiled = compiled_of(args)
    check_output(args.output, compiled.graph)
    (sample, *others), batch = samples_of(args, compiled)
    if others:
        raise NetworkError(f"{args.input}: the SoC runs one sample, not {1 + len(others)}")
    found = run_inference(compiled, sample, cache=default_cache(), limit=args.limit, waves=args.waves)
    expected = compiled.run(sample).outputs
    wrong = [name for name, value in expected.items() if not np.array_equal(found.outputs[name], value)]
    lines, data = _lines(compiled, found, wrong), _data(compiled, found, wrong)
    files: dict[Path, bytes | str] = {}
    if args.timeline:
        files[args.timeline] = soc_trace(compiled, found, clock)
        lines.append(f"timeline     {args.timeline}")
        data["timeline"] = str(args.timeline)
    if args.output:
        files[args.output] = outputs_file(args.output, [found.outputs], batch)
        data["output"] = str(args.output)
        lines.append(f"outputs      {args.output}: {', '.join(found.outputs)}")
    write_together(files)
    if args.waves:
        data["waves"] = str(args.waves)
        lines.append(f"waves        {args.waves}")
    rows = [
        (step.name, f"{step.cycles:,}", f"{step.end:,}", *([time_text(step.end, clock)] if clock else []))
        for step in found.steps
    ]
    late = [">time"] if clock else []
    table = new_table("The host's steps", ("step", ">cycles", ">until cycle", *late), rows)
    return Report(data, [table, *lines], int(bool(wrong)))


def _start_up(compiled: CompiledNetwork, found: SocInference) -> int | None:
    """Cycles before the inference, estimated; None where there is no estimate."""
    return compiled.report().host_work.cost.start_up(found.weights_bytes, compiled.code.memory_bytes)


def _lines(compiled: CompiledNetwork, found: SocInference, wrong: Sequence[str]) -> list[str]:
    """What is printed of a run; ``wrong``: outputs that differ from the model's."""
    host, inference = compiled.report().host_work, found.accelerator + found.host
    start_up = _estimated(_start_up(compiled, found), found.start_up)
    speed = found.run.cycles / found.run.seconds / 1e6
    return [
        f"reset        to result: {found.cycles:,} cycles, {found.start_up:,} of them before the inference",
        f"inference    {inference:,} cycles: accelerator {found.accelerator:,}, host {found.host:,}",
        f"accelerator  {_accelerator(found)}",
        f"start-up     {found.start_up:,} cycles; {start_up}",
        f"host         {found.host:,} cycles; {_estimated(host.cycles, found.host)}: {host.basis}",
        f"outputs      {'DIFFERENT from the model in ' + ', '.join(wrong) if wrong else 'EQUAL to those of the model'}",
        f"speed        {speed:.2f} M cycles/s, {found.run.seconds:.1f} s",
    ]


def _data(compiled: CompiledNetwork, found: SocInference, wrong: Sequence[str]) -> dict[str, Any]:
    """The same as an object."""
    return {
        "network": compiled.graph.name,
        "config": compiled.config.to_dict(),
        "config_hash": f"{compiled.config.hash:016x}",
        "cycles": found.cycles,
        "start_up_cycles": found.start_up,
        "accelerator_cycles": found.accelerator,
        "host_cycles": found.host,
        "host_estimate": compiled.report().host_work.to_dict(),
        "start_up_estimate": _start_up(compiled, found),
        "steps": [{"name": step.name, "start": step.start, "end": step.end} for step in found.steps],
        "segments": [
            {
                "start": segment.run.origin,
                "cycles": segment.run.cycles,
                "predicted_cycles": segment.predicted and segment.predicted.cycles,
                "different": segment.different,
                "processor_bursts": segment.run.bursts,
            }
            for segment in found.segments
        ],
        "equal": not wrong,
        "different_outputs": list(wrong),
        "seconds": found.run.seconds,
    }


def _check(args: argparse.Namespace) -> None:
    """Check the options before anything takes time. Raises DovetailError."""
    if args.limit < 1:
        raise DovetailError(f"--limit must be at least 1 cycle, not {args.limit}")
    if args.timeline is not None and args.timeline.suffix != ".json":
        raise DovetailError(f"--timeline must end in .json, not {args.timeline}")
    for option in ("timeline", "waves"):
        path: Path | None = getattr(args, option)
        if path is not None and not path.parent.is_dir():
            raise DovetailError(f"--{option}: {path.parent} must be a folder")
    if args.waves is None:
        return
    try:
        wave_format(args.waves)
    except ValueError as error:
        raise DovetailError(f"--{error}") from None


def _estimated(cycles: int | None, measured: int) -> str:
    """An estimate beside what was counted."""
    return "no estimate" if cycles is None else f"estimated {cycles:,} ({cycles / measured - 1:+.1%})"


def _accelerator(found: SocInference) -> str:
    """How the accelerator's runs compare with their prediction."""
    if any(segment.predicted is None for segment in found.segments):
        return f"{found.accelerator:,} cycles in {len(found.segments)} segment(s), not predicted"
    total = sum(len(segment.run.entries) for segment in found.segments)
    different = sum(segment.different for segment in found.segments)
    expected = sum(segment.predicted.cycles for segment in found.segments if segment.predicted)
    bursts = sum(segment.run.bursts for segment in found.segments)
    return (
        f"{found.accelerator:,} cycles in {len(found.segments)} segment(s), predicted without the processor"
        f" {expected:,}; of {total:,} operations {total - different:,} start and end as predicted;"
        f" {bursts:,} bursts of the processor meanwhile"
    )
