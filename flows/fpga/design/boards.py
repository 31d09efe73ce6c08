"""The boards that Dovetail builds for: their platform in amaranth-boards, part, and what is built on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from dovetail.flows.commands.area import TITLES
from dovetail.flows.fpga.design import pll
from dovetail.flows.fpga.design.pll import MHZ, Dividers
from dovetail.sw.analysis.cost.area import PARTS
from dovetail.sw.errors import DovetailError

EXTRA = 'pip install "dovetail[fpga]"'
RESOURCES = {**TITLES, "spram": "SPRAM"}
"""Resource -> what users read. SPRAM: 32 KiB memories of an iCE40 UP5K, with one port."""
UNITS = {
    "ecp5": "LUT of 4 inputs, DSP of 18 x 18 bits, BRAM of 16 Kibit",
    "ice40": "LUT: logic cells, each with a LUT of 4 inputs and a flip-flop; DSP of 16 x 16 bits, BRAM of 4 Kibit,"
    " SPRAM of 256 Kibit",
    "gowin": "LUT of 4 inputs, DSP of 9 x 9 bits, BRAM of 16 Kibit",
}


@dataclass(frozen=True)
class Part:
    """A part. ``family``: a key of `UNITS`; ``total``: what it has, by resource; ``speed``: its speed grade, if any."""

    name: str
    family: str
    total: Mapping[str, int]
    speed: str = ""


def _ecp5(name: str, size: str, speed: str) -> Part:
    return Part(name, "ecp5", {resource: getattr(PARTS[f"ECP5-{size}"], resource) for resource in TITLES}, speed)


@dataclass(frozen=True)
class Board:
    """A board.

    Parameters
    ----------
    name: on the command line.
    title: what people call it.
    platform: its pins, as ``module:class``, mostly in amaranth-boards.
    part: what is on it.
    oscillator: Hz of its default clock.
    frequency: Hz that are asked for unless the user does.
    memory: kind and bytes of the design's system memory unless the user names another.
    synthesis: options of Yosys's command for the family.
    placement: options of nextpnr.
    crowded: more of them, for a design that takes more than :data:`CROWDED` of the part's multipliers.
    """

    name: str
    title: str
    platform: str
    part: Part
    oscillator: int
    frequency: int
    memory: tuple[str, int] = ("bram", 64 << 10)
    synthesis: tuple[str, ...] = ()
    placement: tuple[str, ...] = ()
    crowded: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of system memory that it has: block RAM, and what its default is."""
        return tuple(dict.fromkeys(("bram", self.memory[0])))

    def load(self) -> Any:
        """A fresh platform. Raises DovetailError without amaranth-boards."""
        module, _, name = self.platform.partition(":")
        try:
            return getattr(import_module(module), name)()
        except ImportError:
            raise DovetailError(
                f"amaranth-boards is not installed, which has the pins of {self.name}; it comes with the extra fpga:"
                f" {EXTRA}"
            ) from None

    def clock(self, wanted: int) -> tuple[int, Dividers | None]:
        """The frequency nearest to ``wanted`` Hz, in whole Hz, and the PLL's setting; None: the oscillator itself."""
        if wanted == self.oscillator:
            return wanted, None
        dividers = pll.SEARCH[self.part.family](self.oscillator, wanted)
        return round(dividers.output), dividers


TIMING_FIRST = ("--placer-heap-timingweight", "100")
"""By default (10) the placer goes for short wires: a netlist that it then placed at 49 MHz came to 78 with this."""

EVEN = ("--placer", "static")
"""The placer that spreads all kinds of cells at once: 8 x 16 in 141 of 156 multipliers came to 101 MHz before routing,
and to 70 with the default placer. Multipliers and block RAMs have their places then (`macros/place.py`)."""
CROWDED = 0.4
"""Share of the multipliers above which that placer is the better one, and places are given."""


def _ulx3s(size: str) -> Board:
    return Board(
        f"ulx3s-{size.lower()}",
        f"Radiona ULX3S with {'an' if size.startswith('8') else 'a'} {size}",
        f"amaranth_boards.ulx3s:ULX3S_{size}_Platform",
        _ecp5(f"LFE5U-{size}", size, "6"),
        25 * MHZ,
        80 * MHZ,
        ("sdram", 32 << 20),
        placement=TIMING_FIRST,
        crowded=EVEN,
    )


BOARDS = {
    board.name: board
    for board in (
        _ulx3s("85F"),
        _ulx3s("45F"),
        Board(
            "ecp5-evn",
            "Lattice ECP5-5G Evaluation Board",
            "amaranth_boards.ecp5_5g_evn:ECP55GEVNPlatform",
            _ecp5("LFE5UM5G-85F", "85F", "8"),
            12 * MHZ,
            100 * MHZ,
            ("bram", 192 << 10),
            placement=TIMING_FIRST,
            crowded=EVEN,
        ),
        Board(
            "icebreaker",
            "1BitSquared iCEBreaker",
            "amaranth_boards.icebreaker:ICEBreakerPlatform",
            Part("iCE40UP5K", "ice40", {"lut": 5280, "ff": 5280, "dsp": 8, "bram": 30, "spram": 4}),
            12 * MHZ,
            12 * MHZ,
            ("spram", 64 << 10),
            ("-dsp", "-device", "u"),
        ),
        Board(
            "tang-nano-20k",
            "Sipeed Tang Nano 20K",
            "dovetail.flows.fpga.design.tang_nano_20k:TangNano20kPlatform",
            Part("GW2AR-18", "gowin", {"lut": 20736, "ff": 15552, "dsp": 96, "bram": 46}, "C8/I7"),
            27 * MHZ,
            54 * MHZ,
            ("sdram32", 8 << 20),
            ("-family", "gw2a"),
            TIMING_FIRST,
        ),
    )
}


def board_of(name: str) -> Board:
    """A board by its name. Raises DovetailError."""
    if name not in BOARDS:
        raise DovetailError(f"board must be one of {', '.join(BOARDS)}, not {name}")
    return BOARDS[name]
