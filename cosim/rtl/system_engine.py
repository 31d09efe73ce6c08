"""A Verilated system: several accelerators, their interconnect, one memory."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.memory_numbers import SIMULATION, attach, check_bytes
from dovetail.cosim.rtl.rtl_engine import DEFAULT_LIMIT, FAILURES, RtlError, program_words, sources_hash, timeline_of
from dovetail.cosim.rtl.verilate import Design, verilate, yosys
from dovetail.hw.system.design import SystemDesign
from dovetail.hw.verilog import simulation_verilog
from dovetail.isa.common.build_cache import default_cache, noted_library
from dovetail.isa.config.system import System
from dovetail.isa.host import CONTROL_START, HOST_REGISTERS, OKAY
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.jobs import AnyJob, HostJob, Job, before, check_jobs
from dovetail.isa.timing.system import JobTimes
from dovetail.isa.timing.timeline import Counters, Timeline
from dovetail.sw.runtime.engine import Bytes, RunResult, outcome

TOP = "system"
DRIVER = ("system.cpp", *SIMULATION)


class Handshake(IntEnum):
    """What a row of :attr:`SystemRun.handshakes` is; ``*_SHOWN``: an address is presented, taken or not."""

    AR_SHOWN = 0
    AR = 1
    R = 2
    AW_SHOWN = 3
    AW = 4
    W = 5
    B = 6


@dataclass(frozen=True)
class Start:
    """A run of an accelerator: its program's address and pages, its base, and for how many cycles the host waits before
    it writes the start register."""

    program: int
    pages: int
    base: int = 0
    wait: int = 0


@dataclass(frozen=True)
class SystemRun:
    """What accelerators have done together.

    ``results``: of each accelerator that was started, by name; all have the same ``memory``. ``origins``: cycle 0 of
    each run, in cycles of the system. ``handshakes``: rows of (cycle of the system; 1 at memory's port, 0 at an
    accelerator's; number of the accelerator, -1 for W at memory; :class:`Handshake`; of R and B, and of W at memory,
    whether it ends its burst, of AR and AW at memory the address).
    """

    results: dict[str, RunResult]
    origins: dict[str, int]
    handshakes: npt.NDArray[np.int64]


class _Job(ctypes.Structure):
    """`Job` of system.cpp."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("registers", "program", "pages", "base")),
        *((name, ctypes.c_int64) for name in ("part", "earliest", "waits", "cycles")),
    )


_WORK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
"""`Work` of system.cpp."""


class SystemEngine:
    """Runs programs on the RTL of a system, cycle by cycle in C++.

    Parameters
    ----------
    system
        Its parts.
    cache
        Folder of the builds; the first use of a system compiles for minutes.
    limit
        Cycles after which a run raises :class:`~dovetail.cosim.rtl.rtl_engine.RtlError`.

    Raises
    ------
    ToolError
        When Verilator or the C++ compiler is missing or fails.
    """

    def __init__(self, system: System, *, cache: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.system = system
        self.limit = limit
        self._library = ctypes.CDLL(str(system_library(system, default_cache() if cache is None else Path(cache))))
        self._library.sys_new.restype = ctypes.c_void_p
        self._library.sys_violation.restype = ctypes.c_char_p
        for name in ("now", "entries", "events"):
            getattr(self._library, f"sys_{name}").restype = ctypes.c_uint64
        self._handle = ctypes.c_void_p()
        self.reset()

    def reset(self) -> None:
        """As after power-up: every SRAM is zero."""
        self.close()
        self._handle = ctypes.c_void_p(self._library.sys_new())

    def close(self) -> None:
        """Free the instance."""
        if self._handle:
            self._library.sys_delete(self._handle)
            self._handle = ctypes.c_void_p()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def read(self, address: int) -> tuple[int, int]:
        """Value and response of a read on the host's port. Raises :class:`RtlError`."""
        value, response = ctypes.c_uint32(), ctypes.c_uint8()
        if not self._library.sys_read(
            self._handle, ctypes.c_uint32(address), ctypes.byref(value), ctypes.byref(response)
        ):
            raise RtlError(f"the host port did not answer a read at {address:#x}")
        return value.value, response.value

    def write(self, address: int, value: int) -> int:
        """Write on the host's port: the response. Raises :class:`RtlError`."""
        response = ctypes.c_uint8()
        if not self._library.sys_write(
            self._handle, ctypes.c_uint32(address), ctypes.c_uint32(value), ctypes.byref(response)
        ):
            raise RtlError(f"the host port did not answer a write at {address:#x}")
        return response.value

    def read_register(self, part: str, name: str) -> int:
        """A host register of an accelerator."""
        value, response = self.read(self.system[part].registers + HOST_REGISTERS[name].offset)
        assert response == OKAY
        return value

    def write_register(self, part: str, name: str, value: int) -> None:
        """Write a host register of an accelerator."""
        assert self.write(self.system[part].registers + HOST_REGISTERS[name].offset, value) == OKAY

    def run(self, memory: Bytes, starts: Mapping[str, Start]) -> SystemRun:
        """Run programs, one on each accelerator that is named, begun in the order of ``starts``, to the end of all.

        ``memory`` is system memory, changed in place. Raises :class:`RtlError`.
        """
        words = {name: program_words(memory, start.program, start.pages) for name, start in starts.items()}
        self._attach(memory)
        for name, start in starts.items():
            for register, value in (("PROGRAM", start.program), ("PAGES", start.pages), ("BASE", start.base)):
                self.write_register(name, register, value)
        self._library.sys_begin(self._handle, 1)
        zero = int(self._library.sys_now(self._handle))
        for name, start in starts.items():
            self._library.sys_advance(self._handle, ctypes.c_uint64(start.wait))
            self.write_register(name, "CONTROL", CONTROL_START.mask)
        self._check(self._library.sys_finish(self._handle, len(starts), ctypes.c_uint64(self.limit)))
        handshakes = self._rows("events")
        handshakes[:, 0] -= zero
        results, origins = {}, {}
        for name in starts:
            origin, line = self._timeline(name, 0, words[name], last=True)
            origins[name] = origin - zero
            results[name] = RunResult(memory, line.cycles, line, line.counters, line.fault)
        self._library.sys_begin(self._handle, 0)
        return SystemRun(results, origins, handshakes)

    def run_jobs(self, memory: Bytes, jobs: Sequence[AnyJob]) -> JobTimes:
        """Run the jobs of a plan, each as soon as the host starts or computes it (:mod:`dovetail.isa.timing.jobs`), to
        the end of all. Their words must be in ``memory`` already. Of each accelerator only the last timeline has
        counters.

        ``memory`` is system memory, changed in place. Raises :class:`RtlError`, ConfigError for jobs that would wait
        for ever, and what a job of the host's raises.
        """
        check_jobs(self.system, jobs)
        words = [program_words(memory, job.address, job.pages) if isinstance(job, Job) else None for job in jobs]
        self._attach(memory)
        self._library.sys_begin(self._handle, 0)
        zero = int(self._library.sys_now(self._handle))
        waits = before(jobs)
        given = (_Job * len(jobs))(*map(self._job, jobs, waits))
        spans, failed = dict[int, tuple[int, int]](), list[Exception]()

        def work(number: int, first: int, past: int) -> int:
            job = jobs[number]
            assert isinstance(job, HostJob)
            spans[number] = first, past
            try:
                job.work(memory)
            except Exception as error:  # which C++ would lose
                failed.append(error)
            return not failed

        order = np.array([other for others in waits for other in others], np.int32)
        runs = np.zeros(len(jobs), np.int32)
        status = self._library.sys_jobs(
            self._handle,
            len(jobs),
            given,
            ctypes.c_void_p(order.ctypes.data),
            ctypes.c_uint64(self.system.reaction),
            ctypes.c_uint64(self.limit),
            ctypes.c_void_p(runs.ctypes.data),
            _WORK(work),
        )
        if failed:
            raise failed[0]
        self._check(status)
        last = {job.accelerator: n for n, job in enumerate(jobs) if isinstance(job, Job) and runs[n] >= 0}
        timelines = list[Timeline | None]()
        for n, (job, own) in enumerate(zip(jobs, words, strict=True)):
            if own is None or not isinstance(job, Job) or runs[n] < 0:
                timelines.append(None)
                continue
            origin, line = self._timeline(job.accelerator, int(runs[n]), own, last=last[job.accelerator] == n)
            spans[n] = origin - zero, origin - zero + line.cycles
            timelines.append(line)
        found = [spans.get(n) for n in range(len(jobs))]
        return JobTimes(tuple(s and s[0] for s in found), tuple(s and s[1] for s in found), tuple(timelines))

    def _job(self, job: AnyJob, waits: Sequence[int]) -> _Job:
        """What C++ is told of a job."""
        if isinstance(job, HostJob):
            return _Job(0, 0, 0, 0, -1, job.earliest, len(waits), job.cycles)
        part, number = self.system[job.accelerator], self.system.numbers[job.accelerator]
        return _Job(part.registers, job.address, job.pages, job.base, number, job.earliest, len(waits), 0)

    def _attach(self, memory: Bytes) -> None:
        """Make bytes the system's memory."""
        check_bytes(memory)
        attach(self._library.sys_memory, self._handle, memory, self.system.memory)

    def _check(self, status: int) -> None:
        """Raises :class:`RtlError` for a status other than 0."""
        if status:
            message = self._library.sys_violation(self._handle).decode()
            raise RtlError(FAILURES[status].format(limit=self.limit, message=message))

    def _timeline(self, name: str, run: int, words: npt.NDArray[np.uint64], *, last: bool) -> tuple[int, Timeline]:
        """Cycle 0 and timeline of an accelerator's run. Only of the ``last`` one the registers still tell counters and
        fault; the host starts no other behind a fault."""
        number = self.system.numbers[name]
        found = (ctypes.c_uint64 * 3)()
        self._library.sys_run(self._handle, number, run, found)
        origin, cycles, faulted = found
        counters, fault = dict[Unit, Counters](), None
        if last:
            _, counters, fault = outcome(partial(self.read_register, name))
        assert bool(faulted) == (fault is not None)
        config = self.system[name].config
        return origin, timeline_of(self._rows("entries", number, run), config, words, cycles, counters, fault)

    def _rows(self, what: str, *number: int) -> npt.NDArray[np.int64]:
        """Rows of five numbers that the library has noted."""
        get = getattr(self._library, f"sys_{what}")
        rows = np.zeros((int(get(self._handle, *number, None)), 5), np.int64)
        get(self._handle, *number, ctypes.c_void_p(rows.ctypes.data))
        return rows


def system_library(system: System, cache: Path) -> Path:
    """The Verilated library of a system."""
    hashes = [sources_hash(part.config, f"{part.registers:#x}") for part in system.accelerators]
    note = f"system-{sources_hash(system.accelerators[0].config, *hashes, str(system.memory_bus))}"
    return noted_library(cache, note, lambda: verilate(system_design(system), cache))


def system_design(system: System) -> Design:
    """What is Verilated for a system; the memory's timing does not matter. Raises :class:`ToolError` without Yosys."""
    with yosys():
        verilog = simulation_verilog(SystemDesign(system, simulation=True), name=TOP)
    count = len(system.accelerators)
    return Design(
        verilog=verilog,
        top=TOP,
        driver={name: driver(name) for name in DRIVER},
        defines=(
            f"BUS_BYTES={system.memory_bus // 8}",
            f"COUNT={count}",
            "ACCELERATORS=" + " ".join(f"ACCELERATOR({k})" for k in range(count)),
        ),
    )
