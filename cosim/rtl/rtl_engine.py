"""The Verilated accelerator behind the engine interface that the model has too."""

import ctypes
import platform
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.memory_numbers import HEADERS, attach, check_bytes
from dovetail.cosim.rtl.verilate import Design, machine, verilate, wave_format, yosys
from dovetail.hw.accelerator import Accelerator
from dovetail.hw.memory.cells import LosingRam
from dovetail.hw.verilog import simulation_verilog, to_verilog
from dovetail.isa.common.build_cache import default_cache, noted, noted_library
from dovetail.isa.common.cplusplus import hash_of
from dovetail.isa.common.sealed import is_sound
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import Memory
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import CONTROL_START, HOST_REGISTERS
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Unit
from dovetail.isa.timing.microcoded.durations import ARRAY_CHECKS
from dovetail.isa.timing.sequencer import CHECK
from dovetail.isa.timing.timeline import FETCH, Counters, Fault, Timeline
from dovetail.sw.runtime.engine import Bytes, DeviceEngine, RunResult, outcome, run_registers

TOP = "accelerator"
FORMS = ("simulation", "fpga")
"""Forms of an accelerator: the one that is fast to simulate, and the one that is synthesised, on block RAM that loses
what is read while it is written."""
DRIVER = ("accelerator.cpp", "accelerator.h", "clock.h", "dut_ports.h", "waves.h", *HEADERS)
TIMEOUT = 1
FAILURES = {TIMEOUT: "no end after {limit} cycles", 2: "the engine did not start", 3: "AXI protocol: {message}"}
"""What a status of the C++ loop other than 0 means."""
FASTEST = MemoryTiming(read_latency=1, write_latency=1, beat_cycles=1)
DEFAULT_LIMIT = 1 << 32
"""Cycles after which a run is given up, unless the caller says otherwise."""


class RtlError(RuntimeError):
    """The RTL did what no program may make it do: it hung, or broke the bus protocol. ``timeline``: what had been
    recorded until then, if a run was under way. The engine needs a :meth:`RtlEngine.reset` before the next run."""

    def __init__(self, text: str, timeline: Timeline | None = None) -> None:
        super().__init__(text)
        self.timeline = timeline


def accelerator_design(
    config: Config,
    *,
    trace: str = "",
    coverage: Sequence[str] = (),
    form: str = FORMS[0],
    tuned: bool = False,
) -> Design:
    """What is Verilated for ``config``; the memory timing does not matter. ``trace``: of
    :data:`~dovetail.cosim.rtl.verilate.WAVES`; ``coverage``: of the flags
    :data:`~dovetail.cosim.rtl.verilate.COVERAGE`; ``form``: of :data:`FORMS`; ``tuned``: see
    :func:`accelerator_library`. Raises :class:`ToolError` without Yosys."""
    check_form(form)
    with yosys():
        if form == "fpga":
            top = Accelerator(config, simulation=False, trace=True)
            verilog = simulation_verilog(top, name=TOP, platform=LosingRam())
        else:
            verilog = to_verilog(config, simulation=True, name=TOP)
    return Design(
        verilog=verilog,
        top=TOP,
        driver={name: driver(name) for name in DRIVER},
        trace=trace,
        flags=tuple(coverage),
        defines=(f"BUS_BYTES={config.bus_bytes}", f"HAS_VECTOR={int(config.vector)}"),
        training=partial(_train, config) if tuned else None,
        training_version=str(int(tuned)),
    )


def check_form(form: str) -> None:
    """Raise ValueError unless there is such a form."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}, not {form!r}")


def _train(config: Config, library: Path) -> None:
    """Run the training programs on a library that counts what it executes, and write the counts."""
    from dovetail.cosim.rtl.training import training_programs  # it brings the front ends

    engine = RtlEngine(config, library=library)
    for program in training_programs(config):
        engine.run(program.memory.copy(), *program.arguments)
    engine.write_profile()
    engine.close()


def accelerator_library(
    config: Config,
    cache: Path,
    *,
    trace: str = "",
    coverage: Sequence[str] = (),
    form: str = FORMS[0],
    tuned: bool = False,
) -> Path:
    """The Verilated library for ``config``, in one of :data:`FORMS`. ``tuned``: arranged after what runs of it execute,
    which takes twice the time to build."""
    check_form(form)

    def build() -> Path:
        return verilate(accelerator_design(config, trace=trace, coverage=coverage, form=form, tuned=tuned), cache)

    return noted_library(cache, _note(config, trace, coverage, form, tuned), build)


def is_built(config: Config, cache: Path) -> bool:
    """Whether the library for ``config`` is in the cache. Raises :class:`ToolError` without a C++ compiler."""
    library = noted(cache / _note(config))
    return library is not None and is_sound(library.parent)


def _note(
    config: Config, trace: str = "", coverage: Sequence[str] = (), form: str = FORMS[0], tuned: bool = False
) -> str:
    return f"accelerator-{sources_hash(config, trace, form, *coverage, *(['tuned'] if tuned else []))}"


def sources_hash(config: Config, *more: str) -> str:
    """Hash of the sources, tools and the machine that decide a design around ``config``, and of ``more``."""
    parts = [f"{config.hash:016x}", version("amaranth"), platform.python_version(), machine()]
    for package in ("hw", "isa", "cosim/rtl", "cosim/systemc"):
        root = files("dovetail").joinpath(package)
        assert isinstance(root, Path)
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".cpp", ".h")):
            parts += [str(path.relative_to(root)), path.read_text()]
    return hash_of(*parts, *more)


class RtlEngine(DeviceEngine):
    """Runs programs on the RTL, cycle by cycle in C++.

    Parameters
    ----------
    config
        The accelerator. Configurations that differ in ``memory`` only share a build.
    cache
        Folder of the builds; the first use of a configuration compiles for some seconds.
    trace
        File for the waves of all runs, ``.fst`` or ``.vcd``; ten units of time are a cycle.
    window
        Only these cycles of the latest :meth:`run`, which begins with cycle 0.
    limit
        Cycles after which a run raises :class:`RtlError`.
    coverage
        Flags for counting what is covered, see :meth:`covered`.
    form
        Of :data:`FORMS`. Block RAM keeps its contents in a reset: with ``fpga`` a :meth:`pulse_reset` does not clear
        SRAM.
    tuned
        Use a build that is arranged after what runs execute: faster, and twice the time to build. For many runs of one
        configuration.
    library
        Use this library of an accelerator instead of one from ``cache``.

    Members
    -------
    library
        The library that it runs.
    broken
        (address, bytes) of parts of system memory that answer SLVERR, multiples of 64.

    Raises
    ------
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """

    def __init__(
        self,
        config: Config,
        *,
        cache: Path | None = None,
        trace: Path | None = None,
        window: range | None = None,
        limit: int = DEFAULT_LIMIT,
        coverage: Sequence[str] = (),
        form: str = FORMS[0],
        tuned: bool = False,
        library: Path | None = None,
    ) -> None:
        waves = wave_format(trace) if trace is not None else ""
        self._config = config
        self.limit = limit
        self.form = form
        self.broken: tuple[tuple[int, int], ...] = ()
        self._trace = trace
        self._window = window
        self._coverage = tuple(coverage)
        self._covered: list[str] = []
        self._under_way: tuple[Bytes, np.ndarray] | None = None  # memory, and the program's words before the run
        if library is None:
            folder = default_cache() if cache is None else Path(cache)
            library = accelerator_library(config, folder, trace=waves, coverage=coverage, form=form, tuned=tuned)
        self.library = library
        self._library = self._opened(library)
        self._handle = ctypes.c_void_p()
        self.reset()

    @staticmethod
    def _opened(path: Path) -> ctypes.CDLL:
        library = ctypes.CDLL(str(path))
        library.acc_new.restype = ctypes.c_void_p
        library.acc_cycles.restype = ctypes.c_uint64
        library.acc_entries.restype = ctypes.c_uint64
        library.acc_stalled.restype = ctypes.c_uint64
        library.acc_message.restype = ctypes.c_char_p
        return library

    @property
    def timing(self) -> Memory:
        """Timing of system memory; another one may be set between runs."""
        return self._config.memory

    @timing.setter
    def timing(self, timing: Memory) -> None:
        self._config = self._config.replace(memory=timing)

    def close(self) -> None:
        """Free the instance (and finish the waves)."""
        if self._handle:
            self._library.acc_delete(self._handle)
            self._handle = ctypes.c_void_p()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def reset(self) -> None:
        """As after power-up: SRAM is zero. Waves start again."""
        self.holds = None
        if self._coverage and self._handle:
            self._covered.append(self._coverage_text())
        self.close()
        self._handle = ctypes.c_void_p(self._library.acc_new())
        if self._trace is not None and self._window is None:
            self._library.acc_waves(self._handle, str(self._trace).encode())

    def read_register(self, name: str) -> int:
        """A host register's value."""
        value = ctypes.c_uint32()
        if not self._library.acc_read(self._handle, HOST_REGISTERS[name].offset, ctypes.byref(value)):
            raise RtlError(f"the host port did not answer a read of {name}")
        return value.value

    def write_register(self, name: str, value: int) -> None:
        """Write a host register."""
        if not self._library.acc_write(self._handle, HOST_REGISTERS[name].offset, ctypes.c_uint32(value)):
            raise RtlError(f"the host port did not answer a write of {name}")

    def covered(self) -> list[str]:
        """What has been covered until now, one text in Verilator's format per :meth:`reset` and one since."""
        if not self._coverage:
            raise ValueError("covered needs an engine with coverage")
        return [*self._covered, self._coverage_text()]

    def _coverage_text(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "coverage.dat"
            self._library.acc_coverage(self._handle, str(path).encode())
            return path.read_text(encoding="latin-1")

    def write_profile(self) -> None:
        """Write the counts of a library that counts what it executes (``Design.training``)."""
        self._library.acc_profile()

    def pulse_reset(self) -> None:
        """Hold the reset input for some cycles, also while a program runs; whatever is in flight is dropped."""
        self._under_way = self.holds = None
        self._library.acc_reset(self._handle)

    def stall(self, seed: int, *, one_in: int, longest: int) -> None:
        """From now on, one bus handshake in ``one_in`` puts off the next one of its channel by 1 to ``longest`` cycles,
        at random. ``one_in`` = 0 ends that. A :meth:`reset` does too. Raises ValueError unless memory is ``fixed``."""
        if not isinstance(self._config.memory, MemoryTiming):
            raise ValueError(f"stall needs memory of kind fixed, not {self._config.memory.label}")
        self._library.acc_stalls(self._handle, ctypes.c_uint64(seed), ctypes.c_uint32(one_in), ctypes.c_uint32(longest))

    @property
    def stalled(self) -> int:
        """Cycles of stalls since :meth:`stall`, those of all channels added up."""
        return int(self._library.acc_stalled(self._handle))

    def run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        """Run a program; see :class:`dovetail.sw.runtime.engine.Engine`. Raises :class:`RtlError`."""
        if self._trace is not None and self._window is not None:
            first, past = (ctypes.c_uint64(cycle) for cycle in (self._window.start, self._window.stop))
            self._library.acc_window(self._handle, str(self._trace).encode(), first, past)
        try:
            return self._run(memory, program, pages, base, parameters)
        finally:
            if self._window is not None:
                self._library.acc_waves(self._handle, None)

    def _run(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> RunResult:
        self.start(memory, program, pages, base, parameters)
        return self.finish()

    def start(self, memory: Bytes, program: int, pages: int, base: int = 0, parameters: Sequence[int] = ()) -> None:
        """Start a program as :meth:`run` does, and return when the engine is busy. Raises :class:`RtlError`."""
        check_bytes(memory)
        self.holds = None
        self._under_way = memory, program_words(memory, program, pages)
        attach(self._library.acc_memory, self._handle, memory, self._config.memory)
        parts = np.array(self.broken, np.uint64)
        self._library.acc_broken(self._handle, ctypes.c_void_p(parts.ctypes.data), ctypes.c_uint64(len(self.broken)))
        for name, value in run_registers(self._config, program, pages, base, parameters):
            self.write_register(name, value)
        self._check(
            self._library.acc_start(self._handle, HOST_REGISTERS["CONTROL"].offset, CONTROL_START.mask), self.limit
        )

    def advance(self, cycles: int) -> bool:
        """Go on until ``cycles`` cycles after :meth:`start`, or the end if that comes first: whether it did. Raises
        :class:`RtlError`."""
        status = self._library.acc_finish(self._handle, ctypes.c_uint64(cycles))
        if status != TIMEOUT:
            self._check(status, cycles)
        return bool(status != TIMEOUT)

    def finish(self) -> RunResult:
        """Go on to the end of what :meth:`start` began. Raises :class:`RtlError`."""
        if self._under_way is None:
            raise ValueError("finish must follow start")
        memory, words = self._under_way
        self._check(self._library.acc_finish(self._handle, ctypes.c_uint64(self.limit)), self.limit)
        self._under_way = None
        cycles, counters, fault = outcome(self.read_register)
        return RunResult(memory, cycles, self._timeline(words, cycles, counters, fault), counters, fault)

    def _check(self, status: int, limit: int) -> None:
        """Raise unless ``status`` says that all is well."""
        if status:
            assert self._under_way is not None
            message = self._library.acc_message(self._handle).decode()
            partial = self._timeline(self._under_way[1], int(self._library.acc_cycles(self._handle)), {}, None)
            raise RtlError(FAILURES[status].format(limit=limit, message=message), partial)

    def _timeline(
        self, words: np.ndarray, cycles: int, counters: dict[Unit, Counters], fault: Fault | None
    ) -> Timeline:
        count = int(self._library.acc_entries(self._handle, None))
        rows = np.zeros((count, 5), np.int64)
        self._library.acc_entries(self._handle, ctypes.c_void_p(rows.ctypes.data))
        return timeline_of(rows, self._config, words, cycles, counters, fault)

    def _run_copy(self, memory: Bytes) -> None:
        timing, self.timing = self.timing, FASTEST
        broken, self.broken = self.broken, ()
        result = self._run(memory, 0, 1)
        self.timing, self.broken = timing, broken
        if result.fault:
            raise RtlError(f"the copy of SRAM failed: {result.fault}")


def timeline_of(
    rows: np.ndarray,
    config: Config,
    words: np.ndarray,
    cycles: int,
    counters: dict[Unit, Counters],
    fault: Fault | None,
) -> Timeline:
    """What a driver has recorded, in program order: ``rows`` of (unit, pc, fetch, start, end). The registers that an
    operation saw are not recorded."""
    unit, pc, fetch, start, end = rows.T
    # fetch(p + 1) is dispatched before the words of page p.
    order = np.argsort(np.where(fetch == 1, 2 * PAGE_WORDS * (pc - 1), 2 * pc + 1), kind="stable")
    unit, pc, fetch, start, end = rows[order].T.copy()
    codes = (words[np.where(fetch == 1, 0, np.minimum(pc, len(words) - 1))] & np.uint64(0xFF)).astype(np.int64)
    # An operation that fails its checks leaves the unit in that cycle; one that works takes longer.
    works = (end != start + CHECK) & (end >= 0)
    if config.serial:
        works = np.full(len(rows), True)
        if fault is not None and fault.cause in ARRAY_CHECKS:
            works[pc == fault.pc] = False
    return Timeline(
        unit=unit,
        op=np.where(fetch == 1, FETCH, codes),
        pc=pc,
        start=start,
        end=end,
        works=works,
        registers=((),) * len(rows),
        cycles=cycles,
        counters=counters,
        fault=fault,
    )


def program_words(memory: Bytes, program: int, pages: int) -> np.ndarray:
    """The program's words as they are before the run; zeros where there is no memory."""
    data = memory[program : program + pages * PAGE_BYTES]
    return np.frombuffer(data.tobytes() + bytes(pages * PAGE_BYTES - len(data)), "<u8")
