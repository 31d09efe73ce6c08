"""From a configuration to a bitstream, in steps; each finds its errors before the next one starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.flows.fpga.builder import TOOLS, Builder, Netlist, Options, Target
from dovetail.flows.fpga.design.boards import Board
from dovetail.flows.fpga.design.top import BoardTop
from dovetail.flows.fpga.fit import check_estimate, check_netlist
from dovetail.flows.fpga.record import Build
from dovetail.flows.fpga.tools import BuildError, Tool, find
from dovetail.hw.board.design import BoardDesign
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.common.sizes import ceil_div, format_bytes, parse_bytes
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System, configs_of
from dovetail.sw.errors import DovetailError

BRAM_BYTES = 2048
"""Bytes that a block RAM of an ECP5 holds in words of 8, 16 or 32 bits."""


def memory_of(text: str) -> BoardMemory:
    """A system memory, as ``bram:64KiB``. Raises DovetailError."""
    kind, _, size = text.partition(":")
    try:
        size_bytes = parse_bytes(size)
    except ValueError:
        raise DovetailError(f"memory must be KIND:SIZE such as bram:64KiB, not {text}") from None
    try:
        return BoardMemory(kind, size_bytes)
    except ValueError as error:
        raise DovetailError(str(error)) from None


@dataclass(frozen=True)
class Request:
    """What to build. ``config``: the accelerator, or a system of them; ``frequency``: Hz wanted; ``force``: build even
    if the estimate says that it does not fit."""

    config: Config | System
    board: Board
    frequency: int
    memory: BoardMemory
    baud: int
    options: Options
    force: bool = False

    @property
    def memory_text(self) -> str:
        """The system memory, in words."""
        return f"{self.memory.kind} {format_bytes(self.memory.bytes)}"


@dataclass(frozen=True)
class Prepared:
    """A build before synthesis. ``design``: hash of the design, its constraints and all options."""

    request: Request
    builder: Builder
    folder: Path
    design: str
    commands: Any


def prepare(request: Request, folder: Path, given: Mapping[str, str], say: Callable[[str], None]) -> Prepared:
    """Find the tools, and write what they read into the folder. ``given``: commands by tool. Raises DovetailError."""
    kinds = request.board.kinds
    if request.memory.kind not in kinds:
        raise BuildError(f"memory must be {' or '.join(kinds)} on {request.board.name}, not {request.memory.kind}")
    target = Target.of(request.board, request.frequency)
    tools: dict[str, Tool] = find(TOOLS[request.board.part.family], given)
    if not request.force:
        on_chip = request.memory.bytes if request.memory.kind == "bram" else 0
        check_estimate(configs_of(request.config), request.board.part, {"bram": ceil_div(on_chip, BRAM_BYTES)})
    try:
        design = BoardDesign(request.config, clock_hz=target.clock, baud=request.baud, memory=request.memory)
    except ValueError as error:
        raise BuildError(str(error)) from None
    builder = Builder(target, tools, request.options, say)
    return Prepared(request, builder, folder, *builder.prepare(BoardTop(design, target.dividers), folder))


def finish(prepared: Prepared) -> tuple[Build, Path]:
    """Synthesise, place and pack; the record, and the bitstream. Raises BuildError."""
    request, builder = prepared.request, prepared.builder
    netlist: Netlist = builder.synthesise(prepared.folder, prepared.design, prepared.commands)
    check_netlist(configs_of(request.config), request.board.part, netlist.used)
    runs = builder.place(netlist)
    best = builder.best(netlist, runs)
    bitstream = builder.pack(netlist, best)
    record = Build.of(
        configs_of(request.config),
        builder.target,
        request.memory_text,
        request.options,
        builder.tools,
        netlist,
        runs,
        best,
    )
    return record, bitstream


def build(request: Request, folder: Path, given: Mapping[str, str], say: Callable[[str], None]) -> tuple[Build, Path]:
    """All of it. Raises DovetailError."""
    return finish(prepare(request, folder, given, say))
