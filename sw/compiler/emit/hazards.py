"""Finds the SYNC instructions that a program needs: who must wait for whom, and for how many completions.

Units run concurrently and in order; an instruction must wait for earlier ones of *other* units whose bytes
it reads or overwrites, and for those that hold a bank port which it needs. Waits that earlier waits of the same
unit already imply, also by way of a third unit, are left out.
"""

from collections.abc import Sequence

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.instructions.table import DMA_OPS, PAGE_BYTES, Op, Unit, sync, unit_of
from dovetail.isa.timing.dma import Shape
from dovetail.isa.timing.timeline import Timeline

Range = tuple[int, int]
"""(first byte, bytes)."""

_SRAM_DEPTH = 20
_MEMORY_DEPTH = 48
"""Accesses remembered one by one. Older ones are merged into one range. They are more than QUEUE_DEPTH instructions
back, so they have started by the time the wait is dispatched, and an unnecessary wait costs little more than its
word."""

_OTHERS = tuple(tuple(int(v) for v in Unit if v != u) for u in Unit)
_SYNC = tuple(tuple(sync(u, v) for v in Unit) for u in Unit)


class _History:
    """Accesses of one unit to one part of memory, in program order: (first byte, byte after the last, completion count
    that ends it). What a later access covers is forgotten."""

    __slots__ = ("_depth", "_entries", "_least", "_starts")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._entries: list[tuple[int, int, int]] = []
        # No entry is shorter; all begin at one of these.
        self._least = 1 << 64
        self._starts: set[int] = set()

    def record(self, low: int, high: int, count: int) -> None:
        """A later access."""
        entries = self._entries
        if high - low > self._least or low in self._starts:  # else it covers none
            self._entries = entries = [e for e in entries if e[0] < low or e[1] > high]
            self._least = min([e[1] - e[0] for e in entries], default=high - low)
            self._starts = {e[0] for e in entries}
        entries.append((low, high, count))
        self._starts.add(low)
        if high - low < self._least:
            self._least = high - low
        if len(entries) > self._depth:
            a, b = entries[0], entries[1]
            entries[0:2] = [(min(a[0], b[0]), max(a[1], b[1]), b[2])]

    def latest(self, low: int, high: int, known: int) -> int:
        """The highest completion count above ``known`` of an access that overlaps the range, else ``known``."""
        for first, end, count in reversed(self._entries):
            if count <= known:
                break
            if first < high and low < end:
                return count
        return known


class _Port:
    """Accesses of one unit through one kind of port of all banks, ``depth`` of which a bank remembers one by one.

    ``last``: per bank the latest completion count. The log holds all accesses; a bank's history is built when an older
    access is needed.
    """

    __slots__ = ("_depth", "_histories", "_log", "last")

    def __init__(self, banks: int, depth: int) -> None:
        self.last = [0] * banks
        self._depth = depth
        self._log: list[tuple[int, int, int, int, int]] = []
        self._histories: list[tuple[_History, int] | None] = [None] * banks
        """With the entries of the log that are in it."""

    def record(self, first: int, last: int, low: int, high: int, count: int) -> None:
        """An access to banks ``first .. last``."""
        if first == last:
            self.last[first] = count
        else:
            self.last[first : last + 1] = [count] * (last + 1 - first)
        self._log.append((first, last, low, high, count))

    def latest(self, bank: int, low: int, high: int, known: int) -> int:
        """As that of a bank's history."""
        if self._histories[bank] is None:
            seen = 0
            for first, last, start, end, count in reversed(self._log):
                if count <= known:
                    return known
                if first <= bank <= last:
                    if start < high and low < end:
                        return count
                    seen += 1
                    if seen == self._depth - 1:  # the history has merged what is older
                        break
            else:
                return known
        history, seen = self._histories[bank] or (_History(self._depth), 0)
        for first, last, start, end, count in self._log[seen:]:
            if first <= bank <= last:
                history.record(start, end, count)
        self._histories[bank] = history, len(self._log)
        return history.latest(low, high, known)


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
        self._reads = [_Port(config.banks, _SRAM_DEPTH) for _ in Unit]
        self._writes = [_Port(config.banks, _SRAM_DEPTH) for _ in Unit]
        # System memory is treated as one bank, whose port no unit owns.
        self._memory_reads = [_Port(1, _MEMORY_DEPTH) for _ in Unit]
        self._memory_writes = [_Port(1, _MEMORY_DEPTH) for _ in Unit]
        # known[u][v]: completions of v that u's next instruction can rely on.
        # born[v][k]: known[v] when v's k-th instruction started.
        self._known = [[0] * len(Unit) for _ in Unit]
        self._born: list[list[list[int]]] = [[] for _ in Unit]

    def issue(
        self,
        unit: int,
        *,
        reads: Sequence[Range] = (),
        writes: Sequence[Range] = (),
        mem_reads: Sequence[Range] = (),
        mem_writes: Sequence[Range] = (),
        waited: Sequence[int] = (),
    ) -> list[int]:
        """Record ``unit``'s next instruction; return the SYNC words to emit between the previous operation and this one
        (before or after its CFG words).

        Parameters
        ----------
        unit
            The unit that executes the instruction.
        reads, writes
            Its SRAM regions (those that it claims: the whole region, not only the bytes that it touches).
        mem_reads, mem_writes
            The system memory that it reads or writes.
        waited
            SYNC words before it that are there whether it needs them or not; others come on top of them.
        """
        known = self._known[unit]
        for word in waited:
            v = word >> 16 & 0xFF
            self._learn(known, v, self.dispatched[v] - (word >> 32))
        need = known.copy()
        dispatched = self.dispatched
        unsure = [v for v in _OTHERS[unit] if dispatched[v] > known[v]]
        count = dispatched[unit] + 1
        shift = self._shift
        for same, opposite, ranges in ((self._reads, self._writes, reads), (self._writes, self._reads, writes)):
            for low, length in ranges:
                high = low + length
                first, last = low >> shift, high - 1 >> shift
                for v in unsure:
                    latest = same[v].last
                    n = latest[first] if first == last else max(latest[first : last + 1])
                    if n > need[v]:
                        need[v] = n
                    port = opposite[v]
                    latest = port.last
                    if first == last:
                        if latest[first] > need[v]:
                            need[v] = port.latest(first, low, high, need[v])
                    elif max(latest[first : last + 1]) > need[v]:
                        for bank in range(first, last + 1):
                            if latest[bank] > need[v]:
                                need[v] = port.latest(bank, low, high, need[v])
        for ports, ranges in (
            (self._memory_writes, mem_reads),
            (self._memory_writes, mem_writes),
            (self._memory_reads, mem_writes),
        ):
            for low, length in ranges:
                for v in unsure:
                    if ports[v].last[0] > need[v]:
                        need[v] = ports[v].latest(0, low, low + length, need[v])
        words = self._wait(unit, need) if need != known else []
        dispatched[unit] = count
        self._born[unit].append(known.copy())
        for port, ranges in ((self._reads[unit], reads), (self._writes[unit], writes)):
            for low, length in ranges:
                high = low + length
                port.record(low >> shift, high - 1 >> shift, low, high, count)
        for low, length in mem_reads:
            self._memory_reads[unit].record(0, 0, low, low + length, count)
        for low, length in mem_writes:
            self._memory_writes[unit].record(0, 0, low, low + length, count)
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
            self._learn(known, v, need[v])
        return words

    def _learn(self, known: list[int], unit: int, count: int) -> None:
        """A unit is certain of this many completions of another unit, and of everything that the last of these was
        certain of."""
        for w, least in enumerate(self._born[unit][count - 1]):
            if least > known[w]:
                known[w] = least
        if count > known[unit]:
            known[unit] = count


def races(timeline: Timeline, base: int = 0) -> list[tuple[int, int]]:
    """Pairs of elements of a timeline, a LOAD and a STORE in order of their starts, that run at the same time though
    the one reads bytes of system memory that the other writes.

    The architecture leaves the outcome of such a program open; a compiler's program has none. Races in SRAM are faults.
    """
    live = np.flatnonzero(timeline.works & np.isin(timeline.op, list(DMA_OPS.values())))
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
    shape = Shape.of(View(unit_of(op), registers), base)
    return [(start, shape.length) for start in shape.starts()]


def overwrites(timeline: Timeline, program: int, pages: int, base: int) -> bool:
    """Whether a STORE of a run writes the program's own pages, which leaves open what is executed."""
    here = [(program, pages * PAGE_BYTES)]
    stores = np.flatnonzero(timeline.op == Op.DMA_WRITE).tolist()
    return any(_meet(here, transfer_rows(Op.DMA_WRITE, timeline.registers[n], base)) for n in stores)


def _meet(a: Sequence[Range], b: Sequence[Range]) -> bool:
    return any(x < y + m and y < x + n for x, n in a for y, m in b)
