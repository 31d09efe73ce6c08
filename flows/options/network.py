"""Options that commands on networks share: the network, its configuration, its inputs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from dovetail.flows.options.parameters import add_options, base_of, changed, config_of, given
from dovetail.flows.options.schedules import add_schedule_options, use_schedules
from dovetail.isa.config.resolved import Config
from dovetail.isa.program import MAGIC
from dovetail.sw.compiler.options import TILINGS, Options
from dovetail.sw.compiler.partition.host_cost import DEFAULT, default_host, load_host_cost
from dovetail.sw.errors import NetworkError
from dovetail.sw.files.inputs import read_inputs
from dovetail.sw.files.portable import Sample as CarriedSample
from dovetail.sw.network.ir import Graph, Port
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.runtime.clock import (
    hertz,
)
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.saved_program import load_program

NETWORK_HELP = (
    "a .tflite or .onnx file, one that `dovetail pack` made, zoo:NAME"
    " (mobilenet_v1, mobilenet_v2, resnet18, resnet50, efficientnet_lite0, vit_tiny, bert_tiny, kwt, cct, decoder_tiny,"
    " lstm, gru, resnet8, dscnn,"
    " autoencoder, mobilenet_v2_block,"
    " hard_swish_block, inception_block, shuffle_block, attention_block)"
)


def add_network_options(parser: argparse.ArgumentParser, *, programs: bool, optional: bool = False) -> None:
    """Add the network and the configuration; ``programs``: a saved program is accepted as well;
    ``optional``: the network may be left out."""
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
        help="host cycles for a segment's start and end, instead of those of --host-cost; a small segment that does not"
        " repay them stays on the host; 0: none stays",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="leave norms, and softmax in float, to the host where the accelerator's integers may be one step off the"
        " runtime's float kernel",
    )
    add_keep_weights_option(parser)
    add_host_cost_option(parser)
    add_shape_option(parser)
    add_state_option(parser)
    add_schedule_options(parser)
    add_options(parser)


def add_keep_weights_option(parser: argparse.ArgumentParser) -> None:
    """Add whether weights stay in SRAM; None where nothing is said."""
    parser.add_argument(
        "--keep-weights",
        action="store_true",
        default=None,
        help="weights stay in SRAM from run to run, as far as there is room: for an accelerator that runs nothing else",
    )


def add_host_cost_option(parser: argparse.ArgumentParser) -> None:
    """Add the user's table of host costs."""
    parser.add_argument(
        "--host-cost",
        metavar="FILE",
        type=Path,
        help=f"what the host costs, a table in TOML or one that comes along; default: {DEFAULT}"
        " (`dovetail docs host-cost`)",
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


def add_state_option(parser: argparse.ArgumentParser) -> None:
    """Add the pairs of inputs and outputs that are variables."""
    parser.add_argument(
        "--state",
        metavar="INPUT=OUTPUT",
        action="append",
        default=[],
        help="a variable of an ONNX file: what a run returns in OUTPUT, the next one gets in INPUT; none: there is"
        " none; default: pairs that are named as caches are, such as past_k_0 and present_k_0 (`dovetail docs state`)",
    )


def states_of(args: argparse.Namespace) -> dict[str, str] | None:
    """Output by input of every ``--state``; None without. Raises NetworkError."""
    if not args.state:
        return None
    if args.state == ["none"]:
        return {}
    found = dict[str, str]()
    for text in args.state:
        name, _, output = text.partition("=")
        if not name or not output:
            raise NetworkError(f"state must be INPUT=OUTPUT, or none alone, not {text!r}")
        if name in found:
            raise NetworkError(f"state {name!r} must be given once, not with {found[name]!r} and {output!r}")
        found[name] = output
    return found


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
    host = default_host() if args.host_cost is None else load_host_cost(args.host_cost)
    if args.round_trip is not None:
        host = replace(host, round_trip=args.round_trip)
    use_schedules(args)
    effort = Options().effort if args.effort is None else args.effort
    tiling = args.tiling or TILINGS[0]
    return Options(tiling, host=host, effort=effort, exact=args.exact, keep_weights=bool(args.keep_weights))


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
        states=states_of(args),
        tiling=options.tiling,
        host=options.host,
        effort=options.effort,
        exact=options.exact,
        keep_weights=options.keep_weights,
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
        "--exact": args.exact or None,
        "--keep-weights": args.keep_weights,
        "--effort": args.effort,
        "--shape": args.shape or None,
        "--state": args.state or None,
    }
    for flag, value in flags.items():
        if value is not None:
            raise NetworkError(f"{args.network}: a saved program is compiled already; leave out {flag}")
    loaded = load_program(args.network)
    config = changed(loaded.config if args.config is None else base_of(args), given(args))
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
    if dtype.kind in "iu" and dtype.itemsize > 2:  # numbers of words and places, which most numbers are not
        return np.zeros(port.shape, dtype)
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, port.shape, dtype, endpoint=True)
    return random.standard_normal(port.shape).astype(dtype)
