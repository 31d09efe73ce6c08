"""What compile, run and verify share: the network, its inputs, and the report on its cycles."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
from rich.table import Table

from dovetail.flows.options.parameters import add_options, changed, config_of, given
from dovetail.flows.options.schedules import add_schedule_options, use_schedules
from dovetail.flows.output.printable import block
from dovetail.flows.output.reply import si
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.resolved import Config
from dovetail.isa.program import MAGIC
from dovetail.sw.compiler.options import TILINGS, Options
from dovetail.sw.compiler.partition.host_cost import HostCost, load_host_cost
from dovetail.sw.errors import NetworkError
from dovetail.sw.files.inputs import read_inputs
from dovetail.sw.files.portable import Sample as CarriedSample
from dovetail.sw.network.ir import Graph, Port
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.runtime.clock import (
    clock_text,
    frequency_text,
    hertz,
    milliseconds,
    per_second,
    rate_text,
    time_text,
)
from dovetail.sw.runtime.compiled_network import CompiledNetwork, Report, compile_network
from dovetail.sw.runtime.saved_program import load_program

NETWORK_HELP = (
    "a .tflite or .onnx file, one that `dovetail pack` made, zoo:NAME"
    " (mobilenet_v1, mobilenet_v2, resnet18, resnet50, efficientnet_lite0, vit_tiny, bert_tiny, resnet8, dscnn,"
    " autoencoder, mobilenet_v2_block,"
    " hard_swish_block, inception_block, shuffle_block, attention_block)"
)


SHOWN = 3
"""Nodes of the host that a line names."""


def add_network_options(parser: argparse.ArgumentParser, *, programs: bool, optional: bool = False) -> None:
    """Add the network and the configuration; ``programs``: a saved program will do as well; ``optional``: so will no
    network."""
    parser.add_argument(
        "network",
        metavar="NETWORK",
        nargs="?" if optional else None,
        help=NETWORK_HELP + (", or a saved program" if programs else ""),
    )
    parser.add_argument(
        "--tiling", choices=TILINGS, help="what layers are cut along: rows and channels, or output channels only"
    )
    parser.add_argument(
        "--round-trip",
        metavar="CYCLES",
        type=int,
        help="host cycles for a segment's start and end; a small segment that does not repay them stays on the host;"
        f" default: {HostCost().round_trip}; 0: none stays",
    )
    add_host_cost_option(parser)
    add_shape_option(parser)
    add_schedule_options(parser)
    add_options(parser)


def add_host_cost_option(parser: argparse.ArgumentParser) -> None:
    """Add the user's table of host costs."""
    parser.add_argument(
        "--host-cost",
        metavar="FILE",
        type=Path,
        help="what the host costs, a table in TOML (`dovetail docs host-cost`)",
    )


def add_clock_option(parser: argparse.ArgumentParser) -> None:
    """Add the accelerator's clock, for times beside cycles."""
    parser.add_argument(
        "--clock", metavar="MHZ", type=float, help="frequency of the accelerator, for times beside cycles"
    )


def clock_of(args: argparse.Namespace) -> float | None:
    """The clock of a command line in Hz. Raises DovetailError."""
    return None if args.clock is None else hertz(args.clock)


def add_shape_option(parser: argparse.ArgumentParser) -> None:
    """Add the sizes of a network's inputs."""
    parser.add_argument(
        "--shape",
        metavar="INPUT=1x3x8x8",
        action="append",
        default=[],
        help="sizes of an input, where an ONNX file leaves them open; an open batch is 1",
    )


def shapes_of(args: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Sizes by input of every ``--shape``. Raises NetworkError."""
    return dict(map(_shape, args.shape))


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition("=")
    numbers = sizes.split("x")
    if not name or not all(number.isdigit() and int(number) for number in numbers):
        raise NetworkError(f"shape must be INPUT=1x3x8x8, not {text!r}")
    return name, tuple(int(number) for number in numbers)


def options_of(args: argparse.Namespace) -> Options:
    """The compiler's choices on a command line. Raises CompileError."""
    host = HostCost() if args.host_cost is None else load_host_cost(args.host_cost)
    if args.round_trip is not None:
        host = replace(host, round_trip=args.round_trip)
    use_schedules(args)
    effort = Options().effort if args.effort is None else args.effort
    return Options(args.tiling or TILINGS[0], host=host, effort=effort)


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add where the inputs come from."""
    parser.add_argument(
        "--input",
        metavar="X.npy|X.npz",
        type=Path,
        help="one sample or a batch of them; random ones without (see --seed)",
    )
    add_seed_option(parser, "of the random input")


def add_seed_option(parser: argparse.ArgumentParser, of: str) -> None:
    """Add the seed of something random."""
    parser.add_argument("--seed", type=_seed, default=0, help=f"{of}; default: %(default)s")


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number from 0, not {text!r}")
    return int(text)


def compiled_of(args: argparse.Namespace, *, keep_tensors: bool = False) -> CompiledNetwork:
    """The network of a command line, compiled for its configuration, or the saved program.

    ``keep_tensors``: every tensor must be readable after a run; saved programs are refused.

    Raises NetworkError, CompileError, ProgramError, ConfigError or OSError.
    """
    if _is_program(args):
        return _loaded(args, keep_tensors)
    options = options_of(args)
    return compile_network(
        args.network,
        config_of(args),
        shapes=shapes_of(args),
        tiling=options.tiling,
        host=options.host,
        effort=options.effort,
        keep_tensors=keep_tensors,
    )


def compiled_again(args: argparse.Namespace, compiled: CompiledNetwork, config: Config) -> CompiledNetwork:
    """The network of a command line for another configuration. Raises CompileError or ProgramError."""
    return _timed(compiled, config) if _is_program(args) else compiled.on(config)


def _loaded(args: argparse.Namespace, keep_tensors: bool) -> CompiledNetwork:
    if keep_tensors:
        raise NetworkError(f"{args.network}: tensors of a saved program share memory; give the network file")
    flags = {
        "--tiling": args.tiling,
        "--round-trip": args.round_trip,
        "--host-cost": args.host_cost,
        "--effort": args.effort,
        "--shape": args.shape or None,
    }
    for flag, value in flags.items():
        if value is not None:
            raise NetworkError(f"{args.network}: a saved program is compiled already; leave out {flag}")
    loaded = load_program(args.network)
    config = changed(loaded.config if args.config is None else Config.load(args.config), given(args))
    return _timed(loaded, config)


def _timed(loaded: CompiledNetwork, config: Config) -> CompiledNetwork:
    """A saved program with the memory timing of a configuration, which the hash leaves out: it may be another one than
    the program was compiled for. Raises ProgramError for another accelerator."""
    if config == loaded.config:
        return loaded
    loaded.program.check_config(config)
    return CompiledNetwork(replace(loaded.code, config=config), loaded.source)


def _is_program(args: argparse.Namespace) -> bool:
    try:
        with open(args.network, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False  # the front end says what is wrong


# --- inputs and outputs -----------------------------------------------------------------------------------------


def samples_of(args: argparse.Namespace, compiled: CompiledNetwork) -> tuple[list[Sample], bool]:
    """The samples of ``--input``, or a portable network's, or a random one; and whether the file holds a batch of them.

    Raises NetworkError or OSError.
    """
    if args.input is not None:
        return samples_in(args.input, compiled.graph)
    carried = carried_sample(args, compiled)
    return [carried.inputs if carried else random_sample(compiled.graph, np.random.default_rng(args.seed))], False


def samples_in(path: Path, graph: Graph) -> tuple[list[Sample], bool]:
    """The samples of a file, and whether it holds a batch of them. Raises NetworkError or OSError."""
    batches, several = read_inputs(path, graph.inputs)
    count = len(next(iter(batches.values())))
    return [{name: batch[n] for name, batch in batches.items()} for n in range(count)], several


def carried_sample(args: argparse.Namespace, compiled: CompiledNetwork) -> CarriedSample | None:
    """The sample in a portable network file, where no other input is given."""
    return compiled.source.file.sample if compiled.source and args.input is None else None


def random_sample(graph: Graph, random: np.random.Generator) -> Sample:
    """Random inputs of a network."""
    return {port.name: _random(port, random) for port in graph.inputs}


def check_output(path: Path | None, graph: Graph) -> None:
    """Raise NetworkError before a run's time has passed: outputs go to an .npz, or the only one to an .npy."""
    if path is not None and path.suffix != ".npz" and (path.suffix != ".npy" or len(graph.outputs) > 1):
        raise NetworkError(f"output must be a .npz file (or .npy for a network with one output), not {path}")


def outputs_file(path: Path, results: list[Mapping[str, Array]], batch: bool) -> bytes:
    """The .npz of the outputs by name, or the .npy of the only one; a batch along the first axis."""
    stacked = {name: _join([result[name] for result in results], batch) for name in results[0]}
    buffer = BytesIO()
    if path.suffix == ".npy":
        np.save(buffer, next(iter(stacked.values())))
    else:
        with ZipFile(buffer, "w") as archive:  # np.savez has names of its own that no output may have
            for name, value in stacked.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(value), allow_pickle=False)
    return buffer.getvalue()


def _join(values: list[Array], batch: bool) -> Array:
    if not batch:
        return values[0]
    return np.concatenate(values) if values[0].ndim and len(values[0]) == 1 else np.stack(values)


def _random(port: Port, random: np.random.Generator) -> Array:
    dtype = np.dtype(port.dtype)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, port.shape, dtype, endpoint=True)
    return random.standard_normal(port.shape).astype(dtype)


# --- report -----------------------------------------------------------------------------------------------------


def describe(compiled: CompiledNetwork, clock: float | None = None) -> dict[str, Any]:
    """The timing of one inference as JSON has it: exact cycles, the host's estimate, and times at a clock in Hz."""
    report = compiled.report()
    return {
        "network": compiled.graph.name,
        "config": compiled.config.to_dict(),
        "config_hash": f"{compiled.config.hash:016x}",
        "tiling": compiled.code.options.tiling,
        "cycles": report.cycles,
        "host_cycles": report.host_work.at(clock),
        "total_cycles": report.total(clock),
        "host_estimate": report.host_work.to_dict(),
        **(times(report, clock) if clock else {}),
        "macs": report.macs,
        "host_macs": report.host_macs,
        "utilisation": report.utilisation,
        "bound_cycles": report.bound,
        "roofline_ratio": report.over_bound,
        "least_bytes": report.least_bytes,
        "dram_bytes": report.moved_bytes,
        "sram_bytes": {"peak": report.sram.top, "live": report.sram.live, "of": compiled.config.sram},
        "memory_bytes": {**asdict(report.memory), "total": report.memory.total},
        "tensors": _places(compiled),
        "cycles_by_kind": report.by_kind(),
        "layers": [asdict(layer) for layer in report.layers],
        "host_nodes": report.host,
        "left": list(compiled.graph.left),
        "states": [{"name": state.name, **_tensor(compiled.graph, state.read)} for state in compiled.graph.states],
        "counters": {unit.name.lower(): asdict(counters) for unit, counters in report.counters.items()},
    }


def times(report: Report, clock: float) -> dict[str, float]:
    """Times of an inference at a clock in Hz, for JSON; bytes per second are those of the accelerator's cycles."""
    return {
        "clock_hz": clock,
        "accelerator_ms": milliseconds(report.cycles, clock),
        "host_ms": milliseconds(report.host_work.at(clock), clock),
        "latency_ms": report.latency(clock),
        "inferences_per_second": report.fps(clock),
        "dram_bytes_per_second": report.moved_bytes * per_second(report.cycles, clock),
    }


def left_lines(left: Sequence[str], why: str) -> list[str]:
    """What is behind Dovetail's part of a network, for people."""
    if not left:
        return []
    count = f" and {len(left) - 1} behind it" if len(left) > 1 else ""
    return [f"left to you  {left[0]}{count}: {why}; `dovetail export` writes it as a file, outputs here are its inputs"]


def _tensor(graph: Graph, name: str) -> dict[str, Any]:
    return {"shape": list(graph.tensors[name].shape), "dtype": graph.tensors[name].dtype}


def _places(compiled: CompiledNetwork) -> list[dict[str, Any]]:
    """Where each tensor of the accelerator lies in system memory, by address; those in SRAM alone come last."""
    code, graph = compiled.code, compiled.graph
    touched = {n for step in code.steps if not step.host for node in step.nodes for n in (*node.inputs, *node.outputs)}
    places = [
        {
            "name": name,
            "offset": code.where.get(name),
            "bytes": tensor.size,
            "pixel_pitch": code.pitches.get(name),
        }
        for name, tensor in graph.tensors.items()
        if name in touched
    ]
    return sorted(places, key=lambda place: (place["offset"] is None, place["offset"] or 0))


def memory_table(compiled: CompiledNetwork) -> Table:
    """Where everything lies in system memory."""
    code, memory = compiled.code, compiled.report().memory
    table = Table(title="System memory")
    table.add_column("what")
    table.add_column("offset", justify="right")
    table.add_column("bytes", justify="right")
    table.add_row("constants", "0x0", f"{memory.constants:,}")
    for place in _places(compiled):
        offset = "SRAM only" if place["offset"] is None else f"{place['offset']:#x}"
        table.add_row(place["name"], offset, f"{place['bytes']:,}")
    table.add_row("program", f"{code.stream_offset:#x}", f"{memory.program:,}")
    return table


def layer_table(report: Report, clock: float | None = None) -> Table:
    """A line per layer, with its time at a clock in Hz."""
    table = Table(title="Layers")
    table.add_column("#", justify="right")
    for name in ("layer", "kind"):
        table.add_column(name)
    for name in (
        "MACs",
        "cycles",
        *(["time"] if clock else []),
        "share",
        "bound",
        "cycles / bound",
        "bytes moved",
        "bytes at least",
    ):
        table.add_column(name, justify="right")
    for number, layer in enumerate(report.layers):
        table.add_row(
            str(number),
            layer.name,
            layer.kind,
            f"{layer.macs:,}",
            f"{layer.cycles:,}",
            *([time_text(layer.cycles, clock)] if clock else []),
            f"{layer.cycles / report.cycles:.1%}",
            f"{layer.bound:,}",
            f"{layer.cycles / layer.bound:.2f}" if layer.bound else "",
            f"{layer.moved_bytes:,}",
            f"{layer.least_bytes:,}",
        )
    return table


def summary(compiled: CompiledNetwork, clock: float | None = None) -> str:
    """Cycles, their times at a clock in Hz, MACs, utilisation, roofline bound and what the host runs, as text."""
    report, config = compiled.report(), compiled.config
    array = f"{config.ic_lanes} x {config.oc_lanes} multipliers, {format_bytes(config.sram)}, {config.bus}-bit bus"
    rate = f", {rate_text(report.moved_bytes, report.cycles, clock)}" if clock and report.cycles else ""
    lines = [
        f"{compiled.graph.name} on {array}, depthwise {config.depthwise} ({config.hash:016x})",
        *timing(report, clock),
        f"MACs         {report.macs:,}" + (f", and {report.host_macs:,} on the host" if report.host_macs else ""),
        f"utilisation  {report.utilisation:.1%} of {report.pe} multipliers",
        f"roofline     {report.bound:,} cycles; cycles / roofline {report.over_bound:.3f}",
        f"traffic      {si(report.moved_bytes)}B moved, at least {si(report.least_bytes)}B{rate}",
        f"SRAM         {report.sram.top:,} bytes up to the highest in use, {report.sram.live:,} live at most",
        f"memory       {report.memory.total:,} bytes: constants {report.memory.constants:,}, tensors"
        f" {report.memory.tensors:,} (at least {report.memory.least_tensors:,}), program {report.memory.program:,}",
    ]
    lines += [
        f"state        {compiled.graph.tensors[state.read]}, kept on the host between runs"
        for state in compiled.graph.states
    ]
    lines += host_lines(report.host)
    lines += left_lines(compiled.graph.left, compiled.graph.why_left)
    return block(lines)


def host_lines(host: Mapping[str, str]) -> list[str]:
    """Nodes of the host, a line per reason that keeps them there; the first of many stand for them."""
    nodes: dict[str, list[str]] = {}
    for name, reason in host.items():
        nodes.setdefault(reason, []).append(name)
    lines = []
    for reason, names in nodes.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        lines.append(f"host         {', '.join(names[:SHOWN])}{more}: {reason}")
    return lines


def timing(report: Report, clock: float | None) -> list[str]:
    """Lines of an inference's cycles: the accelerator's, the host's and all, with times at a clock in Hz."""
    host, total = report.host_work.at(clock), report.total(clock)

    def text(cycles: int) -> str:
        return f"{cycles:,}" + (f" ({time_text(cycles, clock)})" if clock else "")

    at = f" at {clock_text(clock)}" if clock else ""
    rate = f", {frequency_text(total, clock)}" if clock else ""
    share = f"; {host / total:.1%} of it the host's" if total else ""
    return [
        f"cycles       {text(report.cycles)} per inference on the accelerator{at}",
        f"host cycles  {text(host)}, an estimate: {report.host_work.basis}",
        f"in all       {text(total)}{rate}{share}",
    ]
