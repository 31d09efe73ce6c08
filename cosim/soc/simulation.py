"""The Verilated SoC: runs a program from reset to its end."""

import ctypes
import time
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.cosim.rtl import memory_numbers
from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.rtl_engine import RtlError, sources_hash
from dovetail.cosim.rtl.verilate import Design, verilate, wave_format, yosys
from dovetail.hw.soc.design import PROCESSOR, SocDesign
from dovetail.hw.soc.peripheral import Register
from dovetail.hw.soc.vexriscv import vexriscv_verilog
from dovetail.hw.verilog import simulation_verilog
from dovetail.isa.common.build_cache import noted_library
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import DovetailError
from dovetail.sw.runtime.engine import Bytes

TOP = "soc"
STEP = 1 << 20
"""Cycles between two looks at whether somebody wants to stop."""
FIGURES = ("origin", "past", "bursts")
"""Of a run."""
RUNNING, PROTOCOL, NO_ANSWER = -1, 1, 2


class SocError(DovetailError):
    """A program on the SoC does not end well."""


class Mark(NamedTuple):
    """The program has reached the point ``number`` in this cycle."""

    cycle: int
    number: int


@dataclass(frozen=True)
class Run:
    """A run of the accelerator: its first cycle, the cycle after its last one, how many bursts the processor has sent
    to memory meanwhile, and rows of (unit, pc, fetch, start, end), the last two in cycles of the run."""

    origin: int
    past: int
    bursts: int
    entries: npt.NDArray[np.int64]

    @property
    def cycles(self) -> int:
        """From its first to its last one."""
        return self.past - self.origin


@dataclass(frozen=True)
class SocRun:
    """What a program did. ``status``: that of main(); ``cycles`` since the reset; ``seconds``: of the
    simulation."""

    status: int
    cycles: int
    console: str
    marks: tuple[Mark, ...]
    runs: tuple[Run, ...]
    seconds: float


def run_program(config: Config, memory: Bytes, *, cache: Path, limit: int, waves: Path | None = None) -> SocRun:
    """Run what lies in memory, from the reset to its end.

    Parameters
    ----------
    config
        The accelerator, and the timing of memory.
    memory
        System memory from address 0 on, changed in place.
    cache
        Folder of the builds; the first use of a configuration compiles for about a minute.
    limit
        Cycles after which the run is given up.
    waves
        File for the waves, ``.fst`` or ``.vcd``.

    Raises
    ------
    SocError
        There is no end within the limit, or an access of the processor leads nowhere.
    RtlError
        The hardware breaks the bus protocol.
    ToolError
        A tool is missing or fails.
    """
    library = ctypes.CDLL(str(soc_library(config, cache, wave_format(waves) if waves else "")))
    library.soc_new.restype = ctypes.c_void_p
    for name in ("violation", "console"):
        getattr(library, f"soc_{name}").restype = ctypes.c_char_p
    for name in ("now", "marks", "runs", "entries"):
        getattr(library, f"soc_{name}").restype = ctypes.c_uint64
    for name in FIGURES:
        getattr(library, f"soc_{name}").restype = ctypes.c_int64
    library.soc_status.restype = ctypes.c_uint32
    soc = ctypes.c_void_p(library.soc_new())
    try:
        if waves:
            library.soc_waves(soc, str(waves).encode())
        memory_numbers.attach(library.soc_begin, soc, memory, config.memory)
        status, start = RUNNING, time.perf_counter()
        while status == RUNNING and (left := limit - library.soc_now(soc)) > 0:
            status = library.soc_go(soc, ctypes.c_uint64(min(STEP, left)))
        seconds = time.perf_counter() - start
        if status:
            if status == PROTOCOL:
                raise RtlError(f"AXI protocol: {library.soc_violation(soc).decode()}")
            raise SocError(_failure(status, limit, library.soc_console(soc)))

        def rows(name: str, columns: int, *number: ctypes.c_uint64) -> npt.NDArray[np.int64]:
            get = getattr(library, f"soc_{name}")
            found = np.zeros((int(get(soc, *number, None)), columns), np.int64)
            get(soc, *number, ctypes.c_void_p(found.ctypes.data))
            return found

        runs = []
        for n in map(ctypes.c_uint64, range(library.soc_runs(soc))):
            origin, past, bursts = (int(getattr(library, f"soc_{name}")(soc, n)) for name in FIGURES)
            runs.append(Run(origin, past, bursts, rows("entries", 5, n)))
        return SocRun(
            int(library.soc_status(soc)),
            int(library.soc_now(soc)),
            library.soc_console(soc).decode(errors="replace"),
            tuple(Mark(*row) for row in rows("marks", 2).tolist()),
            tuple(runs),
            seconds,
        )
    finally:
        if waves:
            library.soc_waves(soc, None)
        library.soc_delete(soc)


def _failure(status: int, limit: int, console: bytes) -> str:
    reasons = {
        RUNNING: f"the program must end within {limit:,} cycles; give it more with a higher limit",
        NO_ANSWER: "the program has used an address where nothing is",
    }
    said = console.decode(errors="replace").strip()
    return reasons[status] + (f"; its console says {said!r}" if said else "")


def soc_library(config: Config, cache: Path, trace: str = "") -> Path:
    """The Verilated library of the SoC around an accelerator."""
    processor = vexriscv_verilog()
    note = f"accelerator-soc-{sources_hash(config, trace, _driver(), *processor.values())}"
    return noted_library(cache, note, lambda: verilate(soc_design(config, trace=trace), cache))


def soc_design(config: Config, *, trace: str = "") -> Design:
    """What is Verilated; the memory's timing does not matter. Raises :class:`ToolError` without Yosys or processor."""
    with yosys():
        verilog = simulation_verilog(SocDesign(config, simulation=True), name=TOP)
    defines = [f"BUS_BYTES={config.bus_bytes}", f"PROCESSOR={PROCESSOR}"]
    defines += [f"{register.name}={register.value}" for register in (Register.CONSOLE, Register.EXIT, Register.MARK)]
    return Design(
        verilog={**verilog, **vexriscv_verilog()},
        top=TOP,
        driver={"soc.cpp": _driver(), **{name: driver(name) for name in memory_numbers.SIMULATION}},
        trace=trace,
        defines=tuple(defines),
    )


def _driver() -> str:
    return files("dovetail.cosim.soc").joinpath("soc.cpp").read_text()
