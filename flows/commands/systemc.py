"""Write the accelerator as a SystemC platform (RTL and timed view behind TLM-2.0), or run a network on it here."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from dovetail.cosim.compare.windows import layers_of
from dovetail.cosim.rtl.setting import Setting
from dovetail.cosim.systemc.build import find_systemc
from dovetail.cosim.systemc.folder import FOLDER, example_files, platform_files, random_example
from dovetail.cosim.systemc.verify import programs_of, verify_systemc
from dovetail.flows.options.network import add_input_options, add_network_options, compiled_of, samples_of
from dovetail.flows.options.parameters import config_of
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.reply import Report
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.cplusplus import ToolError
from dovetail.isa.common.files import write_atomically
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_network_options(parser, programs=True, optional=True)
    add_input_options(parser)
    parser.add_argument("--layers", metavar="A..B", help="only these, from the model's state: 12, 12..14, or names")
    parser.add_argument("--output", metavar="DIR", type=Path, help="folder of sources and Makefile; created")
    parser.add_argument(
        "--run", dest="here", action="store_true", help="build here, run the network, compare with the model"
    )
    parser.add_argument("--systemc", metavar="DIR", type=Path, help="where SystemC is installed; default: searched for")


def run(args: argparse.Namespace) -> Report:
    if not args.output and not args.here:
        raise DovetailError("systemc takes --output DIR, --run, or both")
    if args.output:
        check_output_folder("--output", args.output)
    if not args.network and (args.here or args.layers):
        raise DovetailError("--run and --layers take a NETWORK")
    lacking = _lacking(args.systemc)
    if args.here and lacking:
        raise lacking  # before anything is written
    config, programs = _programs(args)
    written = _write(args.output, config, programs, lacking) if args.output else Report({})
    found = _verify(args, config, programs) if args.here else Report({})
    data = {"config": config.to_dict(), "config_hash": f"{config.hash:016x}", **written.data, **found.data}
    return Report(data, [*written.text, *found.text], found.code)


def _programs(args: argparse.Namespace) -> tuple[Config, list[Setting]]:
    """The configuration and what is to run on it."""
    if not args.network:
        config = config_of(args)
        return config, random_example(config)
    compiled = compiled_of(args)
    samples, _ = samples_of(args, compiled)
    layers = layers_of(compiled, args.layers) if args.layers else None
    return compiled.config, programs_of(compiled, samples[0], layers)


def _lacking(prefix: Path | None) -> ToolError | None:
    """What is wrong with the SystemC of this machine, if anything."""
    try:
        find_systemc(prefix)
    except ToolError as error:
        return error
    return None


def _write(folder: Path, config: Config, programs: list[Setting], lacking: ToolError | None) -> Report:
    contents: dict[str, str | bytes] = {**platform_files(config), **example_files(config, programs)}
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write_atomically(folder / name, content)
    lines = [
        f"platform     {folder}: {len(contents)} files for configuration {config.hash:016x}",
        f"build        {lacking or f'make -C {folder} run'}",
    ]
    return Report({"output": str(folder), "files": sorted(contents), "lacking": str(lacking or "")}, lines)


def _verify(args: argparse.Namespace, config: Config, programs: list[Setting]) -> Report:
    systemc = find_systemc(args.systemc)
    verdicts = verify_systemc(config, programs, cache=default_cache(), systemc=systemc)
    lines = [f"SystemC      {systemc.version}"]
    for number, verdict in enumerate(verdicts):
        forms = ", ".join(f"{form.name} {_rate(verdict.cycles, form.seconds)}" for form in verdict.forms)
        lines.append(
            f"program {number:<5}{verdict.cycles:,} cycles; model {_rate(verdict.cycles, verdict.seconds)}, {forms}"
        )
    first = next((f"program {n}, {v.first_difference}" for n, v in enumerate(verdicts) if v.first_difference), "")
    lines.append(f"verdict      {'DIFFERENT' if first else 'EQUAL'}: bytes, cycles, counters, faults, interrupt")
    if first:
        lines.append(f"first        {first}")
    data = {
        "systemc": systemc.version,
        "programs": [asdict(verdict) for verdict in verdicts],
        "equal": not first,
        "first_difference": first,
    }
    return Report(data, lines, int(bool(first)))


def _rate(cycles: int, seconds: float) -> str:
    return f"{seconds:.3f} s ({cycles / seconds / 1e3:,.0f} kHz)"
