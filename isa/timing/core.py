"""The core of the timing engine: compiled where there is a C++ compiler, else in Python, with the same results.

Rules for single operations are evaluated outside, for all at once. What is here plays queues, waits and faults:
`isa/timing/recurrence.cpp`, and the same in `isa/timing/recurrence.py`.
"""

import ctypes
import logging
from array import array
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.cplusplus import ToolError, compiler, load
from dovetail.isa.instructions.checks import READS, REGIONS
from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, Cause, Op, Unit
from dovetail.isa.timing import recurrence
from dovetail.isa.timing.recurrence import FirstFault, Played
from dovetail.isa.timing.sequencer import CHECK, END_TO_DONE, FIRST_ACTION, NEVER, PAGE_READY, UNIT_OF
from dovetail.isa.timing.timeline import Int64s

SOURCE = "recurrence.cpp"

_NUMBERS = {
    "first_action": FIRST_ACTION,
    "page_ready": PAGE_READY,
    "end_to_done": END_TO_DONE,
    "check": CHECK,
    "never": NEVER,
    "page_words": PAGE_WORDS,
    "cfg": Op.CFG,
    "sync": Op.SYNC,
    "load": Unit.LOAD,
    "bank_conflict": Cause.BANK_CONFLICT,
    "race": Cause.RACE,
    "reads": READS,
    "regions": REGIONS,
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
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "configure": (None, _pointer),
    "play": (_int, _pointer, _int, _pointer, _pointer, _int, _int, *[_pointer] * 4),
    "first_fault": (_int, _int, *[_pointer] * 6, _int, _int, _pointer, _pointer),
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
        found = load({SOURCE: files("dovetail.isa.timing").joinpath(SOURCE).read_text()}, default_cache())
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


def play(words: npt.NDArray[np.uint64], cycles: Int64s, fetches: Int64s, depth: int = QUEUE_DEPTH) -> Played:
    """The times of a program's words, of which no fault stops any.

    Parameters
    ----------
    words
        Those that the front end dispatches.
    cycles
        From start to end of each operation among them; `NEVER` where it does not end.
    fetches
        The same of each page that is fetched.
    depth
        Places of each queue.
    """
    core = library()
    if core is None:
        return recurrence.play(words, cycles, fetches, depth)
    units, heads, pops = np.empty((3, len(words)), np.int64)
    starts = np.empty(len(fetches), np.int64)
    results = map(_at, (units, heads, pops, starts))
    given = _at(words, np.uint64), len(words), _at(cycles), _at(fetches), len(fetches), depth
    return Played(units, heads, pops, starts, core.play(*given, *results))


def first_fault(
    units: Int64s, starts: Int64s, ends: Int64s, causes: Int64s, errors: Int64s, regions: Int64s, bank_bytes: int,
    halt: int,
) -> FirstFault:  # fmt: skip
    """What stops a run whose operations and fetches, in the order of each unit, have these times.

    Parameters
    ----------
    causes
        Why each fails its own checks; 0 where it passes.
    errors
        What the bus answers it with; 0 where that is no error.
    regions
        What each claims, of shape (elements, `REGIONS`, 2): address and bytes, those that it reads first; 0 bytes where
        there is none.
    bank_bytes
        Of a bank of SRAM.
    halt
        The cycle in which the front end stops the run for a fault of its own, or `NEVER`.
    """
    core = library()
    if core is None:
        return recurrence.first_fault(units, starts, ends, causes, errors, regions, bank_bytes, halt)
    fails, found = np.zeros(len(units), np.bool_), np.array([0, halt])
    columns = map(_at, (units, starts, ends, causes, errors, regions))
    element = core.first_fault(len(units), *columns, bank_bytes, halt, _at(fails, np.bool_), _at(found))
    return FirstFault(element, Cause(int(found[0])), int(found[1]), fails)


class Clock(Protocol):
    """Follows a program that grows: when its words go out, when units are free.

    As nobody knows yet where the program ends, a page is fetched ahead even of the last one, until `end`.
    """

    free: Sequence[int]
    """Per unit the first cycle in which it can take what comes next."""

    @property
    def begun(self) -> int:
        """The first cycle of the first operation; `NEVER` if there is none."""

    @property
    def ended(self) -> int:
        """The first cycle behind the last operation; 0 if there is none."""

    def add(self, words: "array[int]", first: int, cycles: int) -> None:
        """What comes next: ``words`` from the ``first`` on, with at most one operation, of so many cycles."""

    def ready(self, unit: int, words: int) -> int:
        """The cycle in which ``words`` more words could be in a unit's queue; at most as many as it holds."""

    def end(self) -> int:
        """The word that comes now ends the program, and no page is fetched behind its own. Nothing may follow.

        Returns the cycles of the program.
        """


class _Compiled:
    """The compiled `Clock`."""

    def __init__(self, core: ctypes.CDLL, fetch: int, depth: int) -> None:
        self._core, self._clock = core, core.clock_new(fetch, depth)
        self._moment = _Moment.from_address(self._clock)
        self.free = self._moment.free

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


def clock(fetch: int, depth: int = QUEUE_DEPTH) -> Clock:
    """A clock before its first word. ``fetch``: cycles of a page's fetch; ``depth``: places of each queue."""
    core = library()
    return recurrence.Clock(fetch, depth) if core is None else _Compiled(core, fetch, depth)
