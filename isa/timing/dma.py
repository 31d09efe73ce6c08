"""Timing of the load and store units and of instruction fetch, with the memory behind the bus.

A transfer is rows of bytes; a row is cut into bursts at 256 beats and at 4 KiB boundaries. Times are exact for the
memory of :class:`~dovetail.isa.timing.memories.fixed.Direction`:

    issue(n)      = max(issue(n - 1) + ADDRESS, end(n - outstanding) + PLACE)
    first_beat(n) = max(issue(n) + latency, last_beat(n - 1) + beat_cycles)
    last_beat(n)  = first_beat(n) + (beats(n) - 1) * beat_cycles
    end(n)        = last_beat(n) + answer

with issue(-1) the instruction's verification. Transfers may have billions of bursts: what repeats is counted once.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import View
from dovetail.isa.timing.memories.fixed import Direction
from dovetail.isa.timing.memory import SRAM_READ
from dovetail.isa.timing.sequencer import CHECK, repeat

MAX_BURST = 256
"""Beats of the longest burst."""
BOUNDARY = 4096
"""No burst crosses a multiple of this many bytes."""

ADDRESS = 2
"""Cycles from an instruction's verification to its first burst's address, and the least between two addresses."""
PLACE = 2
"""Cycles from a burst's end to the first address that may take its place in flight."""
READ_END = 4
"""Cycles from the last beat of a read to the end of the instruction."""
WRITE_FIRST = 5 + SRAM_READ
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


State = tuple[int, ...]
"""What is left of the past after a burst's address, in cycles from that address on: the last beat so far, then the ends
of the latest ``outstanding`` bursts, oldest first (one that no longer matters counts as 0)."""


class Shape(NamedTuple):
    """A transfer's side in system memory: rows of ``length`` bytes, in planes; the first one's address, and steps in
    bytes."""

    address: int
    rows: int
    planes: int
    row_step: int
    plane_step: int
    length: int

    @staticmethod
    def of(view: View, base: int = 0) -> "Shape":
        """As LOAD's or STORE's registers have it; ``base``: what addresses are relative to."""
        return Shape(
            base + view["MEM_ADDR"],
            view["COUNT", "rows"],
            view["COUNT", "planes"],
            view["MEM_ROW_STEP"],
            view["MEM_PLANE_STEP"],
            view["LENGTH"],
        )

    def starts(self) -> Iterator[int]:
        """The address of each row, modulo 2^32."""
        for plane in range(self.planes):
            for row in range(self.rows):
                yield (self.address + plane * self.plane_step + row * self.row_step) & 0xFFFF_FFFF

    @property
    def end(self) -> int:
        """One past the last byte, if no address wraps."""
        return self.address + (self.planes - 1) * self.plane_step + (self.rows - 1) * self.row_step + self.length


class _Channel:
    """One direction of the bus during an instruction."""

    def __init__(self, memory: Direction, bus_bytes: int) -> None:
        self.memory, self.bus_bytes = memory, bus_bytes
        self.known: dict[tuple[State, int], tuple[int, State]] = {}
        self.plans: dict[tuple[int, int], Plan] = {}
        self.runs: dict[tuple[int, State], tuple[int, int, State]] = {}
        """What `run` gave where rows did not end, of the one transfer that the channel is for."""

    def burst(self, state: State, beats: int) -> tuple[int, State]:
        """Cycles to the next burst's address, and the state then."""
        found = self.known.get((state, beats))
        if found is None:
            last, oldest, *ends = state
            wait = max(ADDRESS, oldest + PLACE)
            last = self.memory.last_beat(self.memory.first_beat(0, last - wait), beats)
            kept = (max(end - wait, 0) for end in (*ends, wait + self.memory.end(last)))
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

    def run(self, state: State, start: int, shape: Shape, most: int) -> tuple[int, int, State]:
        """Rows up to the next one across a 4 KiB boundary, or that one, at most so many; the same for their bursts.

        ``start``: the first one's address modulo 4096. Before the boundary a row's bursts depend on its address modulo
        the bus only.
        """
        step, length, bus = shape.row_step % BOUNDARY, shape.length, self.bus_bytes
        if start + length > BOUNDARY:
            return 1, *self.row(state, start, length)

        def inner(now: tuple[int, State]) -> tuple[int, tuple[int, State]]:
            phase, state = now
            wait, state = self.row(state, phase, length)
            return wait, ((phase + step) % bus, state)

        count = min(most, (BOUNDARY - length - start) // step + 1) if step else most
        wait, (_, state) = repeat(inner, (start % bus, state), count)
        return count, wait, state

    def rows(self, state: State, start: int, shape: Shape) -> tuple[int, State]:
        """The same for all rows of a plane; ``start``: its address modulo 4096. Other planes have some of them, too."""
        seen: dict[tuple[int, State], tuple[int, int]] | None = {}
        time = n = 0
        while n < shape.rows:
            here, left = (start, state), shape.rows - n
            if seen is not None:
                if here in seen:
                    then, before = seen[here]
                    periods = left // (n - then)
                    time += periods * (time - before)
                    n += periods * (n - then)
                    seen = None
                    continue
                seen[here] = n, time
            run = self.runs.get(here)
            if run is None or run[0] > left:
                run = self.run(state, start, shape, left)
                if run[0] < left:
                    self.runs[here] = run
            count, wait, state = run
            time += wait
            n += count
            start = (start + count * shape.row_step) % BOUNDARY
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
def last_beat(memory: Direction, bus_bytes: int, state: State, shape: Shape) -> int:
    """Cycles from an instruction's verification to its last beat."""
    channel = _Channel(memory, bus_bytes)

    def plane(now: tuple[int, State]) -> tuple[int, tuple[int, State]]:
        start, state = now
        wait, state = channel.rows(state, start, shape)
        return wait, ((start + shape.plane_step) % BOUNDARY, state)

    time, (_, state) = repeat(plane, (shape.address, state), shape.planes)
    return time + state[0]


def read_duration(config: Config, shape: Shape) -> int:
    """Cycles from start to end of a DMA_READ or a fetch; the address matters modulo 4096 only."""
    return _last_answer(config, Direction.reads(config.like_fixed), 0, shape) + READ_END


def write_duration(config: Config, shape: Shape) -> int:
    """Cycles from start to end of a DMA_WRITE; the address matters modulo 4096 only."""
    return _last_answer(config, Direction.writes(config.like_fixed), WRITE_FIRST, shape) + WRITE_END


def _last_answer(config: Config, memory: Direction, first: int, shape: Shape) -> int:
    """Cycles from an instruction's start to its last answer; ``first``: from its verification to the earliest beat."""
    state = (first - memory.beat_cycles, *(0,) * config.outstanding)
    return CHECK + memory.end(last_beat(memory, config.bus_bytes, state, _reduced(shape, config.bus_bytes)))
