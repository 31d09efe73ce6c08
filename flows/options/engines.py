"""Which engine a command runs a network on: the model, the RTL, or a board."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dovetail import cosim
from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.cosim.rtl.waves import Waves
from dovetail.hw.board.memory import BoardMemory
from dovetail.hw.board.sdram import CHIPS
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.config.given import ConfigError
from dovetail.isa.config.memory import SdramTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.link import BAUD, MEMORIES
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.board.board_engine import BoardEngine
from dovetail.sw.runtime.clock import clock_text, time_text
from dovetail.sw.runtime.compiled_network import CompiledNetwork
from dovetail.sw.runtime.engine import Engine
from dovetail.sw.runtime.engines import create

ENGINES = ("model", "rtl", "board")
SIMULATED = "simulated"
"""The port of a board that is simulated for the command."""
SIMULATION_PATIENCE = 60.0
"""Seconds to wait for a simulated board, which is slower than its baud rate."""
SIMULATION_LEAST = 128 << 10
"""Bytes of a simulated board's memory, at least; larger ones are powers of two, for few builds."""


def add_form_option(parser: argparse.ArgumentParser) -> None:
    """Add which form of the RTL is simulated."""
    parser.add_argument(
        "--form",
        choices=("simulation", "fpga"),
        default="simulation",
        help="of the RTL: the fast one, or what is synthesised, on block RAM that loses what is read while it is"
        " written (several times slower); default: %(default)s",
    )


def add_waves_options(parser: argparse.ArgumentParser, of: str) -> None:
    """Add waves; ``of``: what they are of."""
    parser.add_argument(
        "--waves",
        metavar="FILE",
        type=Path,
        help=f"dump {of} (.fst or .vcd; slower), with save files for GTKWave and Surfer",
    )
    parser.add_argument(
        "--around",
        metavar="N",
        type=int,
        help="with --waves: only N cycles before and after the first difference; nothing if there is none",
    )


def waves_of(args: argparse.Namespace) -> Waves | None:
    """The waves of a command line. Raises DovetailError at once, not after minutes."""
    if args.waves is None:
        if args.around is not None:
            raise DovetailError("--around must come with --waves")
        return None
    try:
        waves = Waves(args.waves, args.around)
    except ValueError as error:
        raise DovetailError(f"--{error}") from None
    if not args.waves.parent.is_dir():
        raise DovetailError(f"{args.waves.parent}: No such directory")
    return waves


def waves_line(waves: Waves, dumped: bool) -> str:
    """A line about dumped waves."""
    if not dumped:
        return "waves        none: nothing differs"
    files = ", ".join(str(waves.path.with_suffix(suffix)) for suffix in (".gtkw", ".sucl"))
    return f"waves        {waves.path}; views: {files}"


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Add which engine runs, and where a board is."""
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="default: %(default)s")
    parser.add_argument(
        "--port",
        metavar="PORT",
        help=f"serial port of the board, or `{SIMULATED}` for one in Verilator; default: the only one there is",
    )
    parser.add_argument("--baud", metavar="N", type=int, help="bits per second of the port; default: 1000000")


@contextmanager
def engine_of(args: argparse.Namespace, config: Config, memory_bytes: int) -> Iterator[Engine]:
    """The engine of a command line; a board's port is given back at the end. ``memory_bytes``: what programs need.

    Raises DovetailError or ToolError.
    """
    if args.engine != "board":
        for flag, value in (("--port", args.port), ("--baud", args.baud)):
            if value is not None:
                raise DovetailError(f"{flag} must come with --engine board")
        cosim.register()
        yield create(args.engine, config)
        return
    with ExitStack() as stack:
        yield _board(args, config, memory_bytes, stack)


def _board(args: argparse.Namespace, config: Config, memory_bytes: int, stack: ExitStack) -> BoardEngine:
    if args.port != SIMULATED:
        return stack.enter_context(BoardEngine(config, args.port, BAUD if args.baud is None else args.baud))
    if args.baud is not None:
        raise DovetailError(f"--baud must be left out with --port {SIMULATED}")
    memory, clock = BoardMemory("bram", max(SIMULATION_LEAST, 1 << (memory_bytes - 1).bit_length())), None
    if isinstance(config.memory, SdramTiming):
        kind = "sdram" if config.memory.width == 16 else "sdram32"
        memory, clock = BoardMemory(kind, CHIPS[kind].bytes), config.memory.clock
    simulated = SimulatedBoard(config, memory=memory, cache=default_cache(), divisor=4, clock_hz=clock)
    board = stack.enter_context(simulated)
    return stack.enter_context(BoardEngine(config, board.port, board.baud, patience=SIMULATION_PATIENCE))


def board_clock(engine: Engine, clock: float | None) -> float | None:
    """The clock that times are told by, in Hz; a board says its own. Raises DovetailError for another."""
    if not isinstance(engine, BoardEngine):
        return clock
    own = float(engine.link.board.clock_hz)
    if clock not in (None, own):
        raise DovetailError(f"--clock must be left out with --engine board: the board's is {clock_text(own)}")
    return own


def describe_board(engine: Engine, compiled: CompiledNetwork, cycles: int) -> tuple[list[str], dict[str, int]]:
    """Lines and values about the board behind an engine: the time that a run's cycles take there, and what is predicted
    for the memory that it has. None for other engines."""
    if not isinstance(engine, BoardEngine):
        return [], {}
    board = engine.link.board
    kind = MEMORIES[board.memory]
    text = f"{engine.link.port}, {board.memory_bytes:,} bytes of {kind}, {clock_text(board.clock_hz)}"
    took = f"{cycles:,} cycles, {time_text(cycles, board.clock_hz)}, with its own memory"
    lines = [f"board        {text}: {took}; those above are for the configuration's memory timing"]
    memory = BoardMemory(kind, board.memory_bytes).timing_at(board.clock_hz, joined=board.accelerators > 1)
    try:
        expected = compiled.cycles_with(memory)
    except ConfigError as error:  # the microcoded accelerator and SDRAM
        return [*lines, f"predicted    nothing: {error}"], {}
    verdict = "EQUAL" if expected == cycles else f"DIFFERENT by {cycles - expected:+,}"
    return [*lines, f"predicted    {expected:,} cycles with that memory: {verdict}"], {"predicted_cycles": expected}
