"""The core of the timing engine: compiled where there is a C++ compiler, else in Python, with the same results.

Rules for single operations are evaluated outside, for all at once. What is here plays queues, waits and faults. For
memory that always takes as long it does so word by word: `isa/timing/core/recurrence.cpp`, and the same in
`isa/timing/core/recurrence.py`. For accelerators that share a memory, or have one with a past, it does so event by
event in `isa/timing/core/events.cpp`, and in another way with the same results in `isa/timing/core/rounds.py`.
"""

import ctypes
import logging
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.cplusplus import ToolError, compiler, load
from dovetail.isa.config.given import ConfigError
from dovetail.isa.instructions.checks import READS, REGIONS
from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, Cause, Op, Unit
from dovetail.isa.timing import dma, interconnect
from dovetail.isa.timing.core import recurrence, rounds
from dovetail.isa.timing.core.recurrence import Outcome, Played, Work
from dovetail.isa.timing.core.rounds import Done, Machine, Plan, Starts, Task
from dovetail.isa.timing.jobs import SEEN, STARTED, WRITTEN, HostJob, before
from dovetail.isa.timing.memories.models import numbers_of
from dovetail.isa.timing.sequencer import CHECK, END_TO_DONE, FIRST_ACTION, NEVER, PAGE_READY, UNIT_OF, Int64s, Uint64s

SOURCES = {
    "core": ("events.cpp", "player.h", "recurrence.cpp", "recurrence.h"),
    "memories": ("dram.h", "memory.h", "sdram.h"),
}
"""What is compiled together, by room of `isa/timing`."""

MOST_BEATS = 1 << 26
"""Of transfers that are timed burst by burst, so that an answer comes in a second, without a compiler in minutes."""

_TRANSFERS = ("MAX_BURST", "BOUNDARY", "ADDRESS", "PLACE", "READ_END", "WRITE_FIRST", "WRITE_END")
_INTERCONNECT = ("SLICE", "OUTPUT", "DATA", "TURN")
_NUMBERS = {
    "first_action": FIRST_ACTION,
    "page_ready": PAGE_READY,
    "end_to_done": END_TO_DONE,
    "check": CHECK,
    "never": NEVER,
    "page_words": PAGE_WORDS,
    "queue_depth": QUEUE_DEPTH,
    "cfg": Op.CFG,
    "sync": Op.SYNC,
    "load": Unit.LOAD,
    "store": Unit.STORE,
    "bank_conflict": Cause.BANK_CONFLICT,
    "race": Cause.RACE,
    "reads": READS,
    "regions": REGIONS,
    **{name.lower(): getattr(dma, name) for name in _TRANSFERS},
    **{name.lower(): getattr(interconnect, name) for name in _INTERCONNECT},
}


class _Numbers(ctypes.Structure):
    _fields_ = (*((name, ctypes.c_int64) for name in _NUMBERS), ("unit_of", ctypes.c_int8 * 256))


class _Moment(ctypes.Structure):
    _fields_ = (
        ("now", ctypes.c_int64),
        ("begun", ctypes.c_int64),
        ("ended", ctypes.c_int64),
        ("free", ctypes.c_int64 * len(Unit)),
    )


_int, _pointer = ctypes.c_int64, ctypes.c_void_p


class _Job(ctypes.Structure):
    """`Work`, then where its `Outcome` goes: columns, and what they hold; then numbers."""

    _fields_ = (
        ("words", _pointer),
        ("count", _int),
        *((name, _pointer) for name in ("cycles", "causes", "errors", "regions")),
        ("fetches", _pointer),
        ("lost", _pointer),
        *((name, _int) for name in ("pages", "stopped", "bank_bytes")),
        *((name, _pointer) for name in ("units", "ops", "pcs", "starts", "ends", "works", "waits")),
        *((name, _int) for name in ("elements", "waited", "total", "fault", "fault_pc")),
        *((name, _int * len(Unit)) for name in ("busy", "config", "token")),
    )


class _Task(ctypes.Structure):
    """`Task`: ``earliest`` and ``after`` count if ``origin`` is negative, up to the host. What the host computes has no
    job; of that ``lasts`` says in how many of its cycles, and ``past`` is the cycle behind its last one."""

    _fields_ = (
        ("job", _pointer),
        ("shapes", _pointer),
        *((name, _int) for name in ("address", "accelerator", "earliest")),
        ("after", _pointer),
        ("afters", _int),
        *((name, _int) for name in ("origin", "lasts", "past")),
    )


class _System(ctypes.Structure):
    """`Machine`, and the host."""

    _fields_ = (
        ("accelerators", _int),
        ("outstanding", _pointer),
        ("bus_bytes", _pointer),
        ("joined", _int),
        ("kind", _int),
        ("memory", _pointer),
        ("count", _int),
        ("tasks", _pointer),
        *((name, _int) for name in ("reaction", "started", "written", "seen")),
    )


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "configure": (None, _pointer),
    "registers": (None, _pointer, _int, *[_pointer] * 3),
    "run": (None, _pointer),
    "play_system": (None, _pointer),
    "play": (_int, _pointer, _int, _pointer, _int, _int, _pointer, _pointer),
    "clock_new": (_pointer, _int, _int),
    "clock_delete": (None, _pointer),
    "clock_add": (None, _pointer, _pointer, _int, _int),
    "clock_ready": (_int, _pointer, _int, _int),
    "clock_end": (_int, _pointer),
}


@cache
def library() -> ctypes.CDLL | None:
    """The compiled core; None where there is no compiler, or where it does not compile, which is said once."""
    try:
        compiler()
    except ToolError:
        return None
    try:
        room = files("dovetail.isa.timing")
        texts = {name: room.joinpath(f, name).read_text() for f, names in SOURCES.items() for name in names}
        found = load(texts, default_cache())
    except (ToolError, OSError) as error:
        reason = str(error).splitlines()[0]
        logging.getLogger("dovetail").warning("warning: timing runs in Python, which is slower: %s", reason)
        return None
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    found.configure(ctypes.byref(_Numbers(*_NUMBERS.values(), (ctypes.c_int8 * 256)(*UNIT_OF.tolist()))))
    return found


def _at(values: npt.NDArray[Any], dtype: type = np.int64) -> int:
    """The address of an array's values; the caller keeps it."""
    assert values.dtype == dtype
    assert values.flags.c_contiguous
    return int(values.ctypes.data)


def registers(words: Uint64s, columns: Sequence[Int64s]) -> None:
    """Fill in the registers that each operation sees. ``words``: those that the front end dispatches; ``columns``: per
    unit an array of shape (registers, operations)."""
    core = library()
    if core is None:
        recurrence.registers(words, columns)
        return
    shapes = np.array([mine.shape for mine in columns]).T.copy()
    addresses = (_pointer * len(columns))(*map(_at, columns))
    core.registers(_at(words, np.uint64), len(words), *map(_at, shapes), addresses)


class _Columns:
    """Where the outcome of a program goes, and its ``job``."""

    def __init__(self, work: Work) -> None:
        self.work = work  # whose arrays the job points to
        self.columns = np.empty((5, len(work.cycles) + len(work.lost)), np.int64)
        self.works = np.empty(self.columns.shape[1], np.bool_)
        self.waits = np.empty((np.count_nonzero(work.words & np.uint64(0xFF) == Op.SYNC), 3), np.int64)
        self.job = _Job(
            _at(work.words, np.uint64),
            len(work.words),
            *map(_at, (work.cycles, work.causes, work.errors, work.regions)),
            *map(_at, (work.fetches, work.lost)),
            *(len(work.lost), work.stopped, work.bank_bytes),
            *map(_at, self.columns),
            _at(self.works, np.bool_),
            _at(self.waits),
        )

    def outcome(self) -> Outcome:
        """What the core has noted."""
        job = self.job
        return Outcome(
            self.columns[:, : job.elements],
            self.works[: job.elements],
            self.waits[: job.waited],
            job.total,
            (job.fault, job.fault_pc),
            list(job.busy),
            list(job.config),
            list(job.token),
        )


def run(work: Work) -> Outcome:
    """When everything in a program happens, and how it ends."""
    core = library()
    if core is None:
        return recurrence.run(work)
    columns = _Columns(work)
    core.run(ctypes.byref(columns.job))
    return columns.outcome()


def play_together(machine: Machine, tasks: Sequence[Task | None], starts: Starts) -> list[Done | None]:
    """What becomes of tasks whose accelerators share a memory; see `isa.timing.core.rounds.play`.

    Raises ConfigError for transfers of too many beats.
    """
    beats = sum(task.beats(machine.bus_bytes[task.accelerator]) for task in tasks if task)
    if beats > MOST_BEATS:
        raise ConfigError(
            f"transfers must have at most {MOST_BEATS} beats to be timed, not {beats}; give fewer inferences"
        )
    core = library()
    if core is None:
        return rounds.play(machine, tasks, starts)
    columns = [task and _Columns(task.work) for task in tasks]
    waits: list[list[int]] = [[] for _ in tasks]
    earliest, origins, lasts, reaction = [0] * len(tasks), [-1] * len(tasks), [0] * len(tasks), 0
    if isinstance(starts, Plan):
        waits, earliest, reaction = before(starts.jobs), [job.earliest for job in starts.jobs], starts.reaction
        lasts = [job.cycles if isinstance(job, HostJob) else 0 for job in starts.jobs]
    else:
        origins = list(starts)
    afters = [np.array(numbers, np.int64) for numbers in waits]
    given = (_Task * len(tasks))(
        *(
            _Task(
                *_program(task, mine),
                first,
                _at(after),
                len(after),
                origin,
                cycles,
            )
            for task, mine, first, after, origin, cycles in zip(
                tasks, columns, earliest, afters, origins, lasts, strict=True
            )
        )
    )
    arrays = [np.array(numbers, np.int64) for numbers in (machine.outstanding, machine.bus_bytes)]
    kind, memory = numbers_of(machine.memory)
    system = _System(
        len(machine.outstanding),
        *map(_at, arrays),
        machine.joined,
        kind,
        _at(memory),
        len(tasks),
        ctypes.addressof(given),
        *(reaction, STARTED, WRITTEN, SEEN),
    )
    core.play_system(ctypes.byref(system))
    return [_done(task, mine) for task, mine in zip(given, columns, strict=True)]


def _program(task: Task | None, columns: _Columns | None) -> tuple[int | None, int | None, int, int]:
    """The first fields of a `_Task`."""
    if task is None or columns is None:
        return None, None, 0, -1
    return ctypes.addressof(columns.job), _at(task.shapes), task.address, task.accelerator


def _done(task: _Task, columns: _Columns | None) -> Done | None:
    """What the core has noted of a task."""
    if task.origin < 0:
        return None
    if columns is None:
        return Done(task.origin, task.past, None)
    outcome = columns.outcome()
    return Done(task.origin, task.origin + outcome.cycles, outcome)


def play(words: Uint64s, pages: int, lasting: Int64s, depth: int = QUEUE_DEPTH) -> Played:
    """The times of words of which no fault stops any, in queues of ``depth`` places.

    ``pages``: that are fetched; ``lasting``: cycles of operations and fetches in program order.
    """
    core = library()
    if core is None:
        return recurrence.play(words, pages, lasting, depth)
    pops, starts = np.empty(len(words), np.int64), np.empty(len(lasting), np.int64)
    last = core.play(_at(words, np.uint64), len(words), _at(lasting), pages, depth, _at(pops), _at(starts))
    return Played(pops, starts, last)


class CompiledClock:
    """The compiled `recurrence.Clock`, as far as the compiler asks it."""

    def __init__(self, core: ctypes.CDLL, fetch: int, depth: int) -> None:
        self._core, self._clock = core, core.clock_new(fetch, depth)
        self._moment = _Moment.from_address(self._clock)
        self.free = cast(Sequence[int], self._moment.free)

    def __del__(self) -> None:
        self._core.clock_delete(self._clock)

    @property
    def begun(self) -> int:
        return int(self._moment.begun)

    @property
    def ended(self) -> int:
        return int(self._moment.ended)

    def add(self, words: "array[int]", first: int, cycles: int) -> None:
        address, count = words.buffer_info()
        self._core.clock_add(self._clock, address + first * words.itemsize, count - first, cycles)

    def ready(self, unit: int, words: int) -> int:
        return int(self._core.clock_ready(self._clock, unit, words))

    def end(self) -> int:
        return int(self._core.clock_end(self._clock))


def clock(fetch: int, depth: int = QUEUE_DEPTH) -> CompiledClock | recurrence.Clock:
    """What follows a program that grows: when its words go out, when units are free; before its first word.

    ``fetch``: cycles of a page's fetch; ``depth``: places of each queue.
    """
    core = library()
    return recurrence.Clock(fetch, depth) if core is None else CompiledClock(core, fetch, depth)
