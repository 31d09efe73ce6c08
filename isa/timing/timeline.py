"""What a run looked like in time: shared by the timing engine, the model and the RTL."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dovetail.isa.instructions.table import PAGE_WORDS, Cause, Unit

Int64s = npt.NDArray[np.int64]

NO_WAITS = np.zeros((0, 3), np.int64)

FETCH = 0
"""What stands for the opcode of a fetch in a timeline."""


@dataclass(frozen=True)
class Counters:
    """What a unit's cycles went to; the four add up to the program's cycles."""

    busy: int
    config: int
    token: int
    idle: int


@dataclass(frozen=True)
class Fault:
    """Why the engine stopped, and the word index it is about (for ``BUS_FETCH`` the page index)."""

    cause: Cause
    pc: int


@dataclass(frozen=True)
class Timeline:
    """When everything that was started ran; one element per operation or fetch, in program order.

    ``unit``; ``op`` (opcode, or :data:`FETCH`); ``pc`` (word index; page index of a fetch); ``start`` and ``end``
    cycle; ``works``: false for an operation that failed its checks and did nothing; ``registers``: the unit's
    registers as the operation saw them (empty for a fetch). ``waits``, of the timing engine only: a row for every SYNC,
    its unit, the first cycle at the queue's head, and the cycle in which it left, or the one behind the fault's;
    between them the unit waits for a token.
    """

    unit: Int64s
    op: Int64s
    pc: Int64s
    start: Int64s
    end: Int64s
    works: npt.NDArray[np.bool_]
    registers: Sequence[tuple[int, ...]]
    cycles: int
    counters: dict[Unit, Counters]
    fault: Fault | None = None
    waits: Int64s = field(default_factory=NO_WAITS.copy)

    def __repr__(self) -> str:
        fault = f", {self.fault}" if self.fault else ""
        return f"<Timeline {self.cycles:,} cycles, {len(self):,} operations and fetches{fault}>"

    def __len__(self) -> int:
        return len(self.start)

    def behind(self, pages: int) -> "Timeline":
        """The same of a program with so many pages before those that were run."""
        if not pages:
            return self
        fault = self.fault
        if fault:
            words = 1 if fault.cause == Cause.BUS_FETCH else PAGE_WORDS
            fault = Fault(fault.cause, fault.pc + pages * words)
        return replace(self, pc=self.pc + np.where(self.is_fetch, pages, pages * PAGE_WORDS), fault=fault)

    @property
    def is_fetch(self) -> npt.NDArray[np.bool_]:
        """Which elements are instruction fetches."""
        return np.asarray(self.op == FETCH)
