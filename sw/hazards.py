"""Finds the SYNC instructions that a program needs: who must wait for whom, and for how many completions.

Units run concurrently and in order; an instruction must wait for earlier ones of *other* units whose bytes
it reads or overwrites, and for those that hold a bank port which it needs. Waits that earlier waits of the same
unit already imply, also by way of a third unit, are left out.
"""

from collections.abc import Sequence

import numpy as np

from dovetail.isa.checks import View
from dovetail.isa.config import Config
from dovetail.isa.instructions import PAGE_BYTES, Op, Unit, sync
from dovetail.isa.timing.dma import row_addresses
from dovetail.isa.timing.engine import Timeline

Range = tuple[int, int]
"""(first byte, bytes)."""

_History = list[tuple[int, int, int]]
"""Accesses of one unit in program order: (first byte, byte after the last, completion count that ends it)."""

_SRAM_DEPTH = 20
_MEMORY_DEPTH = 48
"""Accesses remembered one by one. Older ones melt into one range: being more than QUEUE_DEPTH instructions
back, they have started by the time the wait is dispatched, so a needless wait costs little but its word."""

_OTHERS = tuple(tuple(int(v) for v in Unit if v != u) for u in Unit)
_SYNC = tuple(tuple(sync(u, v) for v in Unit) for u in Unit)


def _record(history: _History, low: int, high: int, count: int, depth: int) -> None:
    if history:
        history[:] = [e for e in history if e[0] < low or e[1] > high]
    history.append((low, high, count))
    if len(history) > depth:
        a, b = history[0], history[1]
        history[0:2] = [(min(a[0], b[0]), max(a[1], b[1]), b[2])]


def _latest(history: _History, low: int, high: int, known: int) -> int:
    """The highest completion count above ``known`` of an access that overlaps the range, else ``known``."""
    for first, end, count in reversed(history):
        if count <= known:
            break
        if first < high and low < end:
            return count
    return known


class Tracker:
    """Follows a program instruction by instruction.

    Parameters
    ----------
    config
        The accelerator; its banks decide who may run beside whom.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.dispatched = [0] * len(Unit)
        """Instructions issued so far, per unit."""
        self._shift = config.bank_bytes.bit_length() - 1
        banks = range(config.n_banks)
        self._reads: list[list[_History]] = [[[] for _ in Unit] for _ in banks]
        self._writes: list[list[_History]] = [[[] for _ in Unit] for _ in banks]
        self._memory_reads: list[_History] = [[] for _ in Unit]
        self._memory_writes: list[_History] = [[] for _ in Unit]
        # known[u][v]: completions of v that u's next instruction is sure of.
        # born[v][k]: known[v] when v's k-th instruction started.
        self._known = [[0] * len(Unit) for _ in Unit]
        self._born: list[list[list[int]]] = [[] for _ in Unit]

    def issue(
        self,
        unit: Unit,
        *,
        reads: Sequence[Range] = (),
        writes: Sequence[Range] = (),
        mem_reads: Sequence[Range] = (),
        mem_writes: Sequence[Range] = (),
    ) -> list[int]:
        """Take note of ``unit``'s next instruction; return the SYNC words to emit between the previous
        operation and this one (before or after its CFG words).

        Parameters
        ----------
        unit
            The unit that executes the instruction.
        reads, writes
            Its SRAM regions (those that it claims: the whole region, not only the bytes that it touches).
        mem_reads, mem_writes
            The system memory that it reads or writes.
        """
        known = self._known[unit]
        need = known.copy()
        others = _OTHERS[unit]
        shift = self._shift
        for low, length in reads:
            high = low + length
            for bank in range(low >> shift, (high - 1 >> shift) + 1):
                same, opposite = self._reads[bank], self._writes[bank]
                for v in others:
                    if (h := same[v]) and h[-1][2] > need[v]:
                        need[v] = h[-1][2]
                    if (h := opposite[v]) and h[-1][2] > need[v]:
                        need[v] = _latest(h, low, high, need[v])
        for low, length in writes:
            high = low + length
            for bank in range(low >> shift, (high - 1 >> shift) + 1):
                same, opposite = self._writes[bank], self._reads[bank]
                for v in others:
                    if (h := same[v]) and h[-1][2] > need[v]:
                        need[v] = h[-1][2]
                    if (h := opposite[v]) and h[-1][2] > need[v]:
                        need[v] = _latest(h, low, high, need[v])
        for low, length in mem_reads:
            for v in others:
                need[v] = _latest(self._memory_writes[v], low, low + length, need[v])
        for low, length in mem_writes:
            for v in others:
                need[v] = _latest(self._memory_writes[v], low, low + length, need[v])
                need[v] = _latest(self._memory_reads[v], low, low + length, need[v])
        words = self._wait(unit, need) if need != known else []
        self._note(unit, reads, writes, mem_reads, mem_writes)
        return words

    def _wait(self, unit: int, need: list[int]) -> list[int]:
        """The SYNC words that bring what ``unit`` is sure of to ``need``."""
        known = self._known[unit]
        waits = [v for v in _OTHERS[unit] if need[v] > known[v]]
        if len(waits) > 1:
            # The instruction waited for in v may itself have waited for the one in w.
            waits = [w for w in waits if not any(self._born[v][need[v] - 1][w] >= need[w] for v in waits if v != w)]
        words = []
        for v in waits:
            words.append(_SYNC[unit][v] | self.dispatched[v] - need[v] << 32)
            born = self._born[v][need[v] - 1]
            for w in _OTHERS[unit]:
                if born[w] > known[w]:
                    known[w] = born[w]
            if need[v] > known[v]:
                known[v] = need[v]
        return words

    def _note(
        self,
        unit: int,
        reads: Sequence[Range],
        writes: Sequence[Range],
        mem_reads: Sequence[Range],
        mem_writes: Sequence[Range],
    ) -> None:
        self.dispatched[unit] = count = self.dispatched[unit] + 1
        self._born[unit].append(self._known[unit].copy())
        shift = self._shift
        for banks, ranges in ((self._reads, reads), (self._writes, writes)):
            for low, length in ranges:
                high = low + length
                for bank in range(low >> shift, (high - 1 >> shift) + 1):
                    _record(banks[bank][unit], low, high, count, _SRAM_DEPTH)
        for low, length in mem_reads:
            _record(self._memory_reads[unit], low, low + length, count, _MEMORY_DEPTH)
        for low, length in mem_writes:
            _record(self._memory_writes[unit], low, low + length, count, _MEMORY_DEPTH)


def races(timeline: Timeline, base: int = 0) -> list[tuple[int, int]]:
    """Pairs of elements of a timeline, a LOAD and a STORE in order of their starts, that run at the same time though
    the one reads bytes of system memory that the other writes.

    The architecture leaves the outcome of such a program open; a compiler's program has none. Races in SRAM are faults.
    """
    live = np.flatnonzero(timeline.works & np.isin(timeline.op, (Op.DMA_READ, Op.DMA_WRITE)))
    live = live[np.argsort(timeline.start[live], kind="stable")]
    found = []
    running: list[tuple[int, int, list[Range]]] = []  # element, its last cycle, what it touches
    for n in live.tolist():
        rows, start = transfer_rows(Op(int(timeline.op[n])), timeline.registers[n], base), int(timeline.start[n])
        running = [r for r in running if r[1] >= start]
        found += [(m, n) for m, _, others in running if timeline.op[m] != timeline.op[n] and _meet(others, rows)]
        running.append((n, int(timeline.end[n]), rows))
    return found


def transfer_rows(op: Op, registers: Sequence[int], base: int) -> list[Range]:
    """The bytes of system memory that a DMA operation touches, row by row."""
    view = View(Unit.LOAD if op == Op.DMA_READ else Unit.STORE, registers)
    steps = view["MEM_ROW_STEP"], view["MEM_PLANE_STEP"]
    starts = row_addresses(base + view["MEM_ADDR"], view["COUNT", "rows"], view["COUNT", "planes"], *steps)
    return [(start, view["LENGTH"]) for start in starts]


def overwrites(timeline: Timeline, program: int, pages: int, base: int) -> bool:
    """Whether a STORE of a run writes the program's own pages, which leaves open what is executed."""
    here = [(program, pages * PAGE_BYTES)]
    stores = np.flatnonzero(timeline.op == Op.DMA_WRITE).tolist()
    return any(_meet(here, transfer_rows(Op.DMA_WRITE, timeline.registers[n], base)) for n in stores)


def _meet(a: Sequence[Range], b: Sequence[Range]) -> bool:
    return any(x < y + m and y < x + n for x, n in a for y, m in b)
