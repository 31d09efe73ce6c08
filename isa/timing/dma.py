"""Timing of the load and store units and of instruction fetch, with the memory behind the bus.

A transfer is rows of bytes; a row is cut into bursts at 256 beats and at 4 KiB boundaries. Memory answers in
order: a burst's first beat comes ``read_latency`` after its address at the earliest, beats are ``beat_cycles``
apart. Write data follows its address, a beat per ``beat_cycles``, and is answered ``write_latency`` after a burst's
last beat. Read and write channels do not disturb each other. Times are exact for that memory:

    issue(n)      = max(issue(n - 1) + ADDRESS, end(n - outstanding) + 1)
    first_beat(n) = max(issue(n) + latency, last_beat(n - 1) + beat_cycles)     latency: read_latency; 1 for writes
    last_beat(n)  = first_beat(n) + (beats(n) - 1) * beat_cycles
    end(n)        = last_beat(n) + answer                                       answer: 0; write_latency for writes

with issue(-1) the instruction's verification. Transfers may have billions of bursts: what repeats is counted once.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from dovetail.isa.config import Config
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.repeat import repeat
from dovetail.isa.timing.sequencer import CHECK

MAX_BURST = 256
"""Beats of the longest burst."""
BOUNDARY = 4096
"""No burst crosses a multiple of this many bytes."""

ADDRESS = 2
"""Cycles from an instruction's verification to its first burst's address, and the least between two addresses."""
READ_END = 4
"""Cycles from the last beat of a read to the end of the instruction."""
WRITE_FIRST = 4 + SRAM_READ
"""Cycles from an instruction's verification to the earliest first write beat."""
WRITE_END = 2
"""Cycles from the last response to the end of the instruction."""


def bursts(address: int, length: int, bus_bytes: int) -> Iterator[tuple[int, int, int]]:
    """(first byte address, bytes, beats) of each burst of one row."""
    end = address + length
    while address < end:
        stop = min(end, (address // BOUNDARY + 1) * BOUNDARY, (address // bus_bytes + MAX_BURST) * bus_bytes)
        yield address, stop - address, -(-stop // bus_bytes) - address // bus_bytes
        address = stop


def row_addresses(address: int, rows: int, planes: int, row_step: int, plane_step: int) -> Iterator[int]:
    """System memory address of each row, modulo 2^32."""
    for plane in range(planes):
        for row in range(rows):
            yield (address + plane * plane_step + row * row_step) & 0xFFFF_FFFF


State = tuple[int, ...]
"""What is left of the past after a burst's address, in cycles from that address on: the last beat so far, then the ends
of the latest ``outstanding`` bursts, oldest first (one that no longer matters counts as 1)."""


class Shape(NamedTuple):
    """What a transfer's time depends on: the first row's ``address``, modulo 4096, and steps and sizes in bytes."""

    address: int
    rows: int
    planes: int
    row_step: int
    plane_step: int
    length: int


class _Channel:
    """One direction of the bus during an instruction.

    ``first``: cycles from a burst's address to its first beat; ``answer``: from its last beat to its end.
    """

    def __init__(self, *, first: int, answer: int, beat_cycles: int, bus_bytes: int) -> None:
        self.first, self.answer, self.beat_cycles, self.bus_bytes = first, answer, beat_cycles, bus_bytes
        self.known: dict[tuple[State, int], tuple[int, State]] = {}
        self.plans: dict[tuple[int, int], Plan] = {}

    def burst(self, state: State, beats: int) -> tuple[int, State]:
        """Cycles to the next burst's address, and the state then."""
        found = self.known.get((state, beats))
        if found is None:
            last, oldest, *ends = state
            wait = max(ADDRESS, oldest + 1)
            last = max(self.first, last - wait + self.beat_cycles) + (beats - 1) * self.beat_cycles
            kept = (max(end - wait, 1) for end in (*ends, wait + last + self.answer))
            found = self.known[state, beats] = wait, (last, *kept)
        return found

    def row(self, state: State, start: int, length: int) -> tuple[int, State]:
        """The same for all bursts of a row."""
        plan = self.plans.get((start, length))
        if plan is None:
            plan = self.plans[start, length] = _plan(start, length, self.bus_bytes)
        head, beats, count, tail = plan
        time = 0
        for n in head:
            wait, state = self.burst(state, n)
            time += wait
        if count:
            wait, state = repeat(lambda s: self.burst(s, beats), state, count)
            time += wait
        for n in tail:
            wait, state = self.burst(state, n)
            time += wait
        return time, state

    def rows(self, state: State, start: int, shape: Shape) -> tuple[int, State]:
        """The same for all rows of a plane; ``start``: its address modulo 4096.

        Up to the next row across a 4 KiB boundary a row's bursts depend on its address modulo the bus only.
        """
        step, length, bus = shape.row_step % BOUNDARY, shape.length, self.bus_bytes

        def inner(now: tuple[int, State]) -> tuple[int, tuple[int, State]]:
            phase, state = now
            wait, state = self.row(state, phase, length)
            return wait, ((phase + step) % bus, state)

        seen: dict[tuple[int, State], tuple[int, int]] | None = {}
        time = n = 0
        while n < shape.rows:
            if seen is not None:
                if (start, state) in seen:
                    then, before = seen[start, state]
                    periods = (shape.rows - n) // (n - then)
                    time += periods * (time - before)
                    n += periods * (n - then)
                    seen = None
                    continue
                seen[start, state] = n, time
            count = 1
            if start + length <= BOUNDARY:
                left = shape.rows - n
                count = min(left, (BOUNDARY - length - start) // step + 1) if step else left
                wait, (_, state) = repeat(inner, (start % bus, state), count)
            else:
                wait, state = self.row(state, start, length)
            time += wait
            n += count
            start = (start + count * step) % BOUNDARY
        return time, state


Plan = tuple[tuple[int, ...], int, int, tuple[int, ...]]
"""A row's bursts: beats of the first ones; beats and number of the equal ones of whole 4 KiB; beats of the last."""


def _plan(address: int, length: int, bus_bytes: int) -> Plan:
    largest = min(MAX_BURST, BOUNDARY // bus_bytes)
    inner, outer = -(-address // BOUNDARY) * BOUNDARY, (address + length) // BOUNDARY * BOUNDARY
    if inner >= outer:
        return tuple(n for _, _, n in bursts(address, length, bus_bytes)), largest, 0, ()
    head = tuple(n for _, _, n in bursts(address, inner - address, bus_bytes))
    tail = tuple(n for _, _, n in bursts(outer, address + length - outer, bus_bytes))
    return head, largest, (outer - inner) // (largest * bus_bytes), tail


def _reduced(shape: Shape, bus_bytes: int) -> Shape:
    """A transfer of the same bursts: the same one for as many transfers as possible."""
    address, rows, planes, row_step, plane_step, length = shape
    start = address % BOUNDARY
    if rows == 1:
        rows, planes, row_step = planes, 1, plane_step
    elif planes == 1 or (plane_step - rows * row_step) % BOUNDARY == 0:
        rows, planes = rows * planes, 1
    block = gcd(BOUNDARY, row_step * (rows > 1), plane_step * (planes > 1))
    if block % bus_bytes:
        return Shape(start, rows, planes, row_step % BOUNDARY, plane_step % BOUNDARY * (planes > 1), length)
    # All rows begin alike within a beat, so whole beats are as good.
    length = -(-(start % bus_bytes + length) // bus_bytes) * bus_bytes
    start -= start % bus_bytes
    if start % block + length <= block:  # no row crosses a boundary
        return Shape(0, rows * planes, 1, 0, 0, length)
    return Shape(start, rows, planes, row_step % BOUNDARY, plane_step % BOUNDARY * (planes > 1), length)


@lru_cache(maxsize=1 << 16)
def last_beat(first: int, answer: int, beat_cycles: int, bus_bytes: int, state: State, shape: Shape) -> int:
    """Cycles from an instruction's verification to its last beat."""
    channel = _Channel(first=first, answer=answer, beat_cycles=beat_cycles, bus_bytes=bus_bytes)

    def plane(now: tuple[int, State]) -> tuple[int, tuple[int, State]]:
        start, state = now
        wait, state = channel.rows(state, start, shape)
        return wait, ((start + shape.plane_step) % BOUNDARY, state)

    time, (_, state) = repeat(plane, (shape.address, state), shape.planes)
    return time + state[0]


def read_duration(
    config: Config, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int
) -> int:
    """Cycles from start to end of a DMA_READ or a fetch; ``address`` matters modulo 4096 only."""
    memory, bus_bytes = config.memory, config.bus_bytes
    shape = _reduced(Shape(address, rows, planes, row_step, plane_step, length), bus_bytes)
    state = (-memory.beat_cycles, *(1,) * config.outstanding)
    return CHECK + last_beat(memory.read_latency, 0, memory.beat_cycles, bus_bytes, state, shape) + READ_END


def write_duration(
    config: Config, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int
) -> int:
    """Cycles from start to end of a DMA_WRITE; ``address`` matters modulo 4096 only."""
    memory, bus_bytes = config.memory, config.bus_bytes
    shape = _reduced(Shape(address, rows, planes, row_step, plane_step, length), bus_bytes)
    state = (WRITE_FIRST - memory.beat_cycles, *(1,) * config.outstanding)
    last = last_beat(1, memory.write_latency, memory.beat_cycles, bus_bytes, state, shape)
    return CHECK + last + memory.write_latency + WRITE_END
