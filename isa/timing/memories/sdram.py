"""When the controller of a board's SDRAM answers bursts (`hw/board/sdram.py`), with nobody else on the chip.

Beats are *chosen* one after the other and wait for the chip in two places:

    chosen(n) = the first cycle >= chosen(n - 1) + 1, >= done(n - 2) + 1, in which a beat is offered

A read's beat is offered from `accepted + 1` of its burst on, a write's when its data are there too, both behind the
beat before of their direction. If both directions offer one, that of the burst which has begun is chosen, else that of
the direction which was not served last; at first a read's.

From the cycle after it was chosen the beat's columns are due, a command each, *done* with the last one. Before them
come, where they must, a refresh, and the closing and opening of a row:

    PRECHARGE   a row is open, and a refresh is due or the beat lies in another row; ``ras`` after ACTIVATE, more
                than ``wr`` after a WRITE at the earliest; the next command comes ``rp`` later
    REFRESH     one is due, every ``refresh_interval`` from reset on, and no row is open; the next one ``rfc`` later
    ACTIVATE    no row is open; the next command ``rcd`` later
    READ        the next command a cycle later; with the last column the beat is on the bus `ANSWER` cycles later
    WRITE       the same, not within `TURN` cycles after a READ; the response comes a cycle after the
                last beat was chosen
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from dovetail.isa.config.memory import PLACES, SdramTiming
from dovetail.isa.config.memory_presets import SDRAM_NANOSECONDS
from dovetail.isa.timing.memories.interface import Beat

NANOSECONDS = {**SDRAM_NANOSECONDS, "power_up": 200_000}
"""Times of a chip."""
LATENCY = 2
"""Clock edges of the chip from a READ to the one at which its data are taken."""
RETURN = LATENCY + 2
"""Cycles from the one in which a READ is decided to the one in which its data are there: a register before the chip,
and one for each edge behind it."""
ANSWER = RETURN + 1
"""Cycles from a beat's last READ to the beat on the bus."""
TURN = RETURN
"""Cycles after a READ in which there is no WRITE."""
MODE_CYCLES = 3
"""From the command that sets the mode to the next one."""
REFRESHES = 8
"""Of the power-up."""


def cycles_of(nanoseconds: Mapping[str, float], clock_hz: int) -> dict[str, int]:
    """Times in clock cycles, rounded up."""
    return {name: max(1, ceil(time * clock_hz / 1e9)) for name, time in nanoseconds.items()}


@dataclass
class _Burst:
    number: int
    address: int
    size: int  # bytes of a beat
    left: int
    offered: int


class Chip:
    """What the controller tells the chip.

    Parameters
    ----------
    cycles
        Of each of `NANOSECONDS`; without ``power_up`` nothing is left to be done for that.
    phase
        Cycles that the refresh counter is ahead in cycle 0.
    """

    def __init__(self, cycles: Mapping[str, int], phase: int = 0) -> None:
        self.cycles, self.phase = cycles, phase
        self.now = 0
        """The first cycle in which the next command may be decided."""
        if "power_up" in cycles:
            self.now = cycles["power_up"] - 1 + cycles["rp"] + REFRESHES * cycles["rfc"] + MODE_CYCLES
        self.due = self._due_after(-1)  # from when on a refresh is
        self.row: int | None = None
        self.is_open = False
        self.held = 0  # the first cycle in which the open row may be closed
        self.read = -TURN - 1  # the latest READ

    def _due_after(self, time: int) -> int:
        interval = self.cycles["refresh_interval"]
        return ((time + self.phase) // interval + 1) * interval + 1 - self.phase

    def access(self, chosen: int, row: int, columns: int, *, write: bool) -> int:
        """The cycle of the last column of a beat that was chosen in this cycle, behind those before it."""
        hit, self.row = row == self.row, row
        left = columns
        while left:
            time = self.now
            waits = time > chosen
            refresh = self.due <= time
            if self.is_open and (refresh or (waits and not hit)):
                self.now = max(time, self.held) + self.cycles["rp"]
                self.is_open = False
            elif refresh:
                self.due = self._due_after(time)
                self.now = time + self.cycles["rfc"]
            elif not waits:
                self.now = min(self.due, chosen + 1)
            elif not self.is_open:
                self.is_open = hit = True
                self.held = time + self.cycles["ras"]
                self.now = time + self.cycles["rcd"]
            elif write and time <= self.read + TURN:
                self.now = time + 1
            else:
                left -= 1
                hit = True
                self.now = time + 1
                if not write:
                    self.read = time
                elif self.held - time < self.cycles["wr"]:
                    self.held = time + 1 + self.cycles["wr"]
        return self.now - 1


class Sdram:
    """The controller. Whoever uses it keeps the order of time: before a :meth:`serve`, every burst that is accepted
    before `next` must be known, and minds that it holds `places` bursts of a direction.

    Parameters
    ----------
    bus_bytes
        Of a beat.
    width, column_bits
        Bits of a column, and of its number.
    cycles, phase
        See :class:`Chip`.
    """

    places = PLACES

    def __init__(
        self, *, bus_bytes: int, width: int, column_bits: int, cycles: Mapping[str, int], phase: int = 0
    ) -> None:
        self.chip = Chip(cycles, phase)
        self.bus_bytes, self.width, self.row_bytes = bus_bytes, width, width // 8 << column_bits
        self.waiting: tuple[deque[_Burst], deque[_Burst]] = deque(), deque()  # of reads, of writes
        self.counts = [0, 0]
        self.writes_next = False
        self.chosen = -1
        self.done = [-1, -1]  # the latest two beats, oldest first
        self.written: int | None = None
        """When the last beat is taken of the write that was taken last; None as long as that is not known."""

    @staticmethod
    def of(timing: SdramTiming, bus_bytes: int) -> "Sdram":
        """That of a configuration."""
        return Sdram(
            bus_bytes=bus_bytes,
            width=timing.width,
            column_bits=timing.column_bits,
            cycles=vars(timing),
            phase=timing.phase,
        )

    def take(
        self, accepted: int, address: int, beats: int, *, write: bool, data: int = 0, beat_bytes: int | None = None
    ) -> None:
        """A burst that is accepted in this cycle; of a write ``data`` is the first cycle of its first beat, the others
        follow as fast as they are taken. ``beat_bytes``: of its beats, that may be narrower than the bus."""
        size = beat_bytes or self.bus_bytes
        burst = _Burst(self.counts[write], address // size * size, size, beats, max(accepted + 1, data if write else 0))
        self.counts[write] += 1
        self.waiting[write].append(burst)
        if write:
            self.written = None

    @property
    def next(self) -> int | None:
        """The cycle in which the next beat is chosen; None if there is no burst."""
        offered = [bursts[0].offered for bursts in self.waiting if bursts]
        return max(self.chosen + 1, self.done[0] + 1, min(offered)) if offered else None

    def serve(self) -> list[Beat]:
        """The next beat, alone."""
        now = self.next
        assert now is not None
        reads, writes = (bool(bursts) and bursts[0].offered <= now for bursts in self.waiting)
        write = writes and (self.writes_next or not reads)
        burst = self.waiting[write][0]
        columns = max(1, 8 * burst.size // self.width)
        end = self.chip.access(now, burst.address // self.row_bytes, columns, write=write)
        self.chosen, self.done = now, [self.done[1], end]
        burst.address, burst.left, burst.offered = burst.address + burst.size, burst.left - 1, now + 1
        last = not burst.left
        self.writes_next = write != last
        if write and last and burst.number == self.counts[1] - 1:
            self.written = now
        if last:
            self.waiting[write].popleft()
            if self.waiting[write]:
                self.waiting[write][0].offered = max(self.waiting[write][0].offered, now + 1)
        return [Beat(write, burst.number, last, now + 1 if write else end + ANSWER)]
