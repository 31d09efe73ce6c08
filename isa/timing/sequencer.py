"""Timing of the sequencer: front end, queues, waits and the ends of operations.

The front end takes an action a cycle, a word or the fetch of a page, unless a queue or a fetch holds it up:

    dispatch(n) = max(dispatch(n - 1) + 1, pop(its queue place's last user) + 1, end(its page's fetch) + PAGE_READY)
    pop(n)      = max(end(before, of its unit) + 1, end(what a wait is for) + 1, dispatch(n) + 1)
    end(n)      = pop(n) + duration(n)

Register writes and waits end as they are popped. `isa.timing.core` plays this.
"""

from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import has, known
from dovetail.isa.instructions.table import (
    BY_NUMBER,
    CFG_PARAM,
    EXTENSIONS,
    INSTRUCTIONS,
    PAGE_WORDS,
    WORD_BYTES,
    Cause,
    Op,
    Unit,
    to_bytes,
)

CHECK = 3
"""Cycles from the pop of an operation to the cycle in which its checks decide (fault, or claim its banks).
It works from the next cycle on."""

FIRST_ACTION = 0
"""Cycle of the front end's first action, the push of fetch(0); cycle 0 is the first cycle of `busy`."""

PAGE_READY = 3
"""Cycles from the end of a page's fetch to the first action that may follow from it (the page buffer and the decoder
are a register stage each). Where the fetch ended long ago the action follows the page before without a gap."""

END_TO_DONE = 2
"""CYCLES is this many more than the number of the last cycle in which anything happened: END's dispatch, a pop, the
end of an operation or fetch, the fault. (`busy` lasts one cycle longer than that, and cycles count from 0.)"""

NEVER = 1 << 60
# A cycle that never comes. An operation of this duration never ends, and its unit accepts nothing more.

Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]

Words = bytes | Sequence[int] | Uint64s

# By opcode the unit that executes it; -1 where none does.
UNIT_OF = np.full(256, -1)
for _op, _row in INSTRUCTIONS.items():
    if _row.unit is not None:
        UNIT_OF[_op] = _row.unit
UNIT_OF[EXTENSIONS] = Unit.VECTOR

_EXISTS = np.zeros(256, bool)
_UNUSED = np.zeros(256, np.uint64)
for _number, _register in BY_NUMBER.items():
    _EXISTS[_number], _UNUSED[_number] = True, ~_register.mask & 0xFFFF_FFFF


@lru_cache(maxsize=64)
def _opcodes(config: Config) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
    """By opcode: whether it is known, whether it is known but absent, which bits it reserves."""
    exists, absent = np.zeros((2, 256), bool)
    reserved = np.zeros(256, np.uint64)
    for row in known(config):
        exists[row.op], absent[row.op], reserved[row.op] = True, not has(config, row.op), row.reserved
    return exists, absent, reserved


def as_words(program: Words) -> npt.NDArray[np.uint64]:
    """A program's words as an array, filled up to whole pages with zero words."""
    if isinstance(program, np.ndarray | array):
        words = np.asarray(program, np.uint64)
    else:
        data = program if isinstance(program, bytes) else to_bytes(program)
        words = np.frombuffer(data + bytes(-len(data) % WORD_BYTES), "<u8")
    rest = -len(words) % PAGE_WORDS
    return np.concatenate([words, np.zeros(rest, np.uint64)]) if rest else words


class Fields(NamedTuple):
    """What words hold, as views: bits 7:0, 15:8, 23:16 and 63:32."""

    code: npt.NDArray[np.uint8]
    middle: npt.NDArray[np.uint8]
    upper: npt.NDArray[np.uint8]
    value: npt.NDArray[np.uint32]

    @staticmethod
    def of(words: Uint64s) -> "Fields":
        """One element per word."""
        parts = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, WORD_BYTES).T
        return Fields(parts[0], parts[1], parts[2], words.view("<u4")[1::2])


def front_end_faults(config: Config, words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """The cause that the front end raises for each word, 0 where it dispatches the word. ``words``: resolved ones, see
    :func:`dovetail.isa.instructions.parameters.resolve`: a parameter that is still named is none that there is."""
    code, middle, upper, _ = Fields.of(words)
    is_cfg, is_sync = code == Op.CFG, code == Op.SYNC
    faults = np.zeros(len(words), np.uint8)
    exists, missing, reserved = _opcodes(config)
    # From the least to the most important: what comes later overwrites.
    absent = missing[code]
    if not config.vector:
        absent |= is_cfg & (middle >> 6 == Unit.VECTOR)
        absent |= is_sync & ((middle == Unit.VECTOR) | (upper == Unit.VECTOR))
    faults[absent] = Cause.UNIT_ABSENT
    faults[is_cfg & (words >> np.uint64(32) & _UNUSED[middle] != 0)] = Cause.RESERVED
    faults[is_cfg & ~_EXISTS[middle] | is_sync & ((middle > 3) | (upper > 3))] = Cause.REGISTER
    faults[(words & reserved[code] != 0) | is_cfg & (words & np.uint64(CFG_PARAM.mask) != 0)] = Cause.RESERVED
    faults[~exists[code]] = Cause.OPCODE
    return faults


S = TypeVar("S", bound=Hashable)


def repeat(advance: Callable[[S], tuple[int, S]], state: S, count: int) -> tuple[int, S]:
    """``count`` times ``advance``, which gives cycles and the next state: the sum of the cycles and the last state.

    As soon as a state comes back, whole periods are added at once.
    """
    seen: dict[S, tuple[int, int]] | None = {}
    time = n = 0
    while n < count:
        if seen is not None:
            if state in seen:
                then, before = seen[state]
                periods = (count - n) // (n - then)
                time += periods * (time - before)
                n += periods * (n - then)
                seen = None
                continue
            seen[state] = n, time
        wait, state = advance(state)
        time += wait
        n += 1
    return time, state
