"""Build a bitstream of a configuration for a board with open tools, or write it as a project for Vivado."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from dovetail.flows.explore.store.builds import builds, put_build
from dovetail.flows.explore.store.result_store import Store
from dovetail.flows.fpga.builder import TOOLS, Options
from dovetail.flows.fpga.design.boards import BOARDS, board_of
from dovetail.flows.fpga.design.pll import MHZ
from dovetail.flows.fpga.flow import Request, build, memory_of
from dovetail.flows.fpga.regression import run_entries
from dovetail.flows.fpga.shown import missed, shown
from dovetail.flows.fpga.vivado import ip
from dovetail.flows.options.parameters import SETTINGS, add_options, config_of
from dovetail.flows.output.folder import check_output_folder
from dovetail.flows.output.reply import Report, to_json
from dovetail.flows.output.tables import new_table
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.common.files import write_atomically
from dovetail.isa.common.sizes import format_bytes
from dovetail.isa.config.memory import SdramTiming, table_of
from dovetail.isa.config.memory import memory_of as memory_of_table
from dovetail.isa.config.resolved import Config, array_of
from dovetail.isa.config.system import System, configs_of
from dovetail.isa.link import BAUD
from dovetail.sw.errors import DovetailError

OUTPUT = Path("build")
MOST_SEEDS = 1000
EXPORTS = ("vivado",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="CONFIG", nargs="?", help="a preset or a TOML file, as --config")
    parser.add_argument(
        "--system",
        metavar="FILE",
        type=Path,
        help="with --board: TOML file of a system, in place of a configuration",
    )
    what = parser.add_argument_group("what is made", "one of these")
    what.add_argument("--board", metavar="BOARD", help=f"a bitstream for {', '.join(BOARDS)}; needs the extra fpga")
    what.add_argument("--export", choices=EXPORTS, help="Verilog with AXI ports, constraints and Tcl scripts")
    what.add_argument("--check", metavar="FILE", type=Path, help="rebuild the entries of a table that changed; "
                      "exit code 1 if a frequency fell or a resource grew by more than 5 %%")  # fmt: skip
    what.add_argument("--update", metavar="FILE", type=Path, help="the same, and save the new figures")
    what.add_argument("--list", action="store_true", help="the builds of a --store")
    how = parser.add_argument_group("how")
    how.add_argument("--frequency", metavar="MHZ", type=float, help="of the clock; default: "
                     + ", ".join(f"{b.frequency / MHZ:g} on {b.name}" for b in BOARDS.values()))  # fmt: skip
    how.add_argument("--memory", metavar="KIND:SIZE", help="system memory beside the accelerator: bram, or"
                     " spram, sdram, sdram32 where the board has it, such as bram:64KiB")  # fmt: skip
    how.add_argument("--baud", metavar="N", type=int, default=BAUD, help="of the host link; default: %(default)s")
    how.add_argument("--seeds", metavar="N", type=int, default=1, help="placements to try; default: %(default)s")
    how.add_argument("--jobs", metavar="N", type=int, default=1, help="of them at once; default: %(default)s")
    how.add_argument("--force", action="store_true", help="synthesise even if the estimate says that it does not fit")
    how.add_argument(
        "--synthesis",
        metavar="OPTIONS",
        default="",
        help="more options of Yosys's synth_ecp5, synth_ice40, synth_gowin",
    )
    how.add_argument("--placement", metavar="OPTIONS", default="", help="more options of nextpnr")
    for tool in ("yosys", "nextpnr"):
        how.add_argument(f"--{tool}", metavar="COMMAND", default="", help=f"what runs {tool}; default: the one on PATH,"
                         " else that of YoWASP")  # fmt: skip
    how.add_argument("--part", metavar="PART", help="of --export; default: xc7z020clg400-1")
    how.add_argument(
        "--only", metavar="NAME", action="append", help="with --check or --update: only this entry; repeatable"
    )
    how.add_argument("--output", metavar="DIR", type=Path, default=OUTPUT, help="default: %(default)s")
    how.add_argument(
        "--store", metavar="FILE", type=Path, help="result store of a sweep, to save the figures there too"
    )
    add_options(parser)


def run(args: argparse.Namespace) -> Report:
    """Run the command. Raises DovetailError and ConfigError."""
    actions: dict[str, Callable[[argparse.Namespace], Report]] = {
        "board": run_board,
        "export": run_export,
        "check": run_table,
        "update": run_table,
        "list": run_list,
    }
    chosen = [name for name in actions if getattr(args, name)]
    if len(chosen) != 1:
        raise DovetailError(f"build must have one of --{', --'.join(actions)}, not {' and '.join(chosen) or 'none'}")
    if args.seeds < 1 or args.jobs < 1 or args.seeds > MOST_SEEDS:
        raise DovetailError(f"seeds must be 1..{MOST_SEEDS} and jobs at least 1, not {args.seeds} and {args.jobs}")
    for option, takers in (("part", ("export",)), ("only", ("check", "update")), ("system", ("board",))):
        if getattr(args, option) and chosen[0] not in takers:
            raise DovetailError(f"--{option} must come with --{' or --'.join(takers)}, not with --{chosen[0]}")
    check_output_folder("--output", args.output)
    return actions[chosen[0]](args)


def configuration(args: argparse.Namespace) -> Config:
    """The configuration, named before the options or by --config. Raises DovetailError and ConfigError."""
    if args.source and args.config:
        raise DovetailError(f"give the configuration once, {args.source} or --config {args.config}")
    args.config = args.config or args.source
    return config_of(args)


def system_of(args: argparse.Namespace) -> System:
    """The system of --system. Raises DovetailError and ConfigError."""
    if args.store:
        raise DovetailError("--store must be left out with --system: a store holds builds of one accelerator")
    if args.source or any(getattr(args, name) not in (None, False) for name in ("config", *SETTINGS)):
        raise DovetailError("a configuration and its parameters must be left out with --system, whose file has them")
    return System.load(args.system)


def run_board(args: argparse.Namespace) -> Report:
    """Build a bitstream."""
    board = board_of(args.board)
    config = system_of(args) if args.system else configuration(args)
    with ExitStack() as stack:
        store = stack.enter_context(Store(args.store, write=True)) if args.store else None
        request = Request(
            config,
            board,
            frequency(args, board.frequency),
            memory_of(args.memory) if args.memory else BoardMemory(*board.memory),
            args.baud,
            Options(tuple(range(1, args.seeds + 1)), args.jobs, words(args.synthesis), words(args.placement)),
            args.force,
        )
        result, bitstream = build(request, args.output, commands(args), say)
        if store is not None:
            put_build(store, result)
    data = result.to_dict() | {"bitstream": str(bitstream)}
    write_atomically(args.output / "build.json", to_json(data))
    lines = [*shown(result), f"bitstream    {bitstream}", predicted(request, result.target.clock)]
    if warning := missed(result):
        lines.append(warning)
        data["warning"] = warning
    return Report(data, lines, int(not result.met))


def predicted(request: Request, clock_hz: int) -> str:
    """A line about the memory with which the model predicts the board's cycles."""
    memory = request.memory.timing_at(clock_hz, joined=isinstance(request.config, System))
    if any(config.serial for config in configs_of(request.config)) and memory != request.memory.timing:
        return "cycles       not predicted: the model has no microcoded accelerator with SDRAM"
    table = table_of(memory)
    if isinstance(memory, SdramTiming):  # its times follow from its clock
        usual = table_of(memory_of_table({"kind": "sdram", "clock": table["clock"]}))
        table = {name: value for name, value in table.items() if name in ("kind", "clock") or value != usual[name]}
    values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in table.items())
    return f"cycles       exactly those of the model with [memory] {values}"


def frequency(args: argparse.Namespace, default: int) -> int:
    """Hz that are asked for. Raises DovetailError."""
    wanted: float = default / MHZ if args.frequency is None else args.frequency
    if not 1 <= wanted <= 1000:
        raise DovetailError(f"frequency must be in MHz, 1..1000, not {wanted:g}")
    return round(wanted * MHZ)


def words(text: str) -> tuple[str, ...]:
    """The options of a text. Raises DovetailError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise DovetailError(f"options must be words as in a shell, not {text} ({error})") from None


def commands(args: argparse.Namespace) -> dict[str, str]:
    """The commands that the user names, by tool."""
    return {"yosys": args.yosys} | {nextpnr: args.nextpnr for _, nextpnr, _ in TOOLS.values()}


def say(text: str) -> None:
    """Report the progress of a build."""
    print(text, file=sys.stderr, flush=True)


def run_export(args: argparse.Namespace) -> Report:
    """Write the sources for Vivado, and lint them."""
    config = configuration(args)
    hertz = frequency(args, 100 * MHZ)
    written = ip.export(config, args.output, part=args.part or ip.PART, frequency=hertz)
    complaints = ip.lint(args.output)
    lines = [f"written      {path}" for path in written]
    lines.append(f"lint         {complaints or f'clean; {len(ip.WAIVERS)} rules are waived, see dovetail.vlt'}")
    if not complaints:
        lines.append(f"next         vivado -mode batch -source {args.output / 'package_ip.tcl'} (or project.tcl)")
    data = {"output": str(args.output), "files": [path.name for path in written], "lint": complaints}
    return Report(data, lines, int(bool(complaints)))


def run_table(args: argparse.Namespace) -> Report:
    """Check a regression table, or bring it up to date."""
    path: Path = args.check or args.update
    return run_entries(path, args.only or [], args.output, commands(args), say, args.jobs, update=bool(args.update))


def run_list(args: argparse.Namespace) -> Report:
    """Show the builds of a store."""
    if args.store is None:
        raise DovetailError("--list must come with --store FILE")
    with Store(args.store) as store:
        found = builds(store)
    columns = ("configuration", ">lanes", ">SRAM", "board", ">LUT", ">FF", ">DSP", ">BRAM", ">MHz", ">of", ">seed")
    table = new_table(f"Builds in {args.store}", (*columns, "made"))
    for one in found:
        p, v = one.parameters, one.values
        resources = [f"{v[name]:,}" for name in ("lut", "ff", "dsp", "bram")]
        clocks = (f"{v['fmax']:.2f}", f"{v['clock'] / MHZ:g}", str(v["seed"]))
        lanes = array_of(p).replace(" ", "")
        table.add_row(one.hash, lanes, format_bytes(p["sram"]), v["board"], *resources, *clocks, v["made"])
    data = {"builds": [{"config_hash": one.hash, "config": one.parameters, **one.values} for one in found]}
    return Report(data, [table])
