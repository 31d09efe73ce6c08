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

from dovetail.isa.config import Config
from dovetail.isa.timing.common import CHECK, repeat

MAX_BURST = 256
"""Beats of the longest burst."""
BOUNDARY = 4096
"""No burst crosses a multiple of this many bytes."""

ADDRESS = 2
"""Cycles from an instruction's verification to its first burst's address, and the least between two addresses."""
READ_END = 4
"""Cycles from the last beat of a read to the end of the instruction."""
WRITE_FIRST = 7
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


class _Channel:
    """One direction of the bus during an instruction.

    ``first``: cycles from a burst's address to its first beat; ``answer``: from its last beat to its end.
    """

    def __init__(self, *, first: int, answer: int, beat_cycles: int) -> None:
        self.first, self.answer, self.beat_cycles = first, answer, beat_cycles
        self.known: dict[tuple[State, int], tuple[int, State]] = {}

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

    def row(self, state: State, plan: "Plan") -> tuple[int, State]:
        """The same for all bursts of a row."""
        head, beats, count, tail = plan
        time = 0
        for n in head:
            wait, state = self.burst(state, n)
            time += wait
        wait, state = repeat(lambda s: self.burst(s, beats), state, count)
        time += wait
        for n in tail:
            wait, state = self.burst(state, n)
            time += wait
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


def _last_beat(
    channel: _Channel,
    state: State,
    bus_bytes: int,
    address: int,
    rows: int,
    planes: int,
    row_step: int,
    plane_step: int,
    length: int,
) -> int:
    """Cycles from an instruction's verification to its last beat."""
    plans: dict[int, Plan] = {}

    def row(now: tuple[int, State]) -> tuple[int, tuple[int, State]]:
        start, state = now
        plan = plans.get(start)
        if plan is None:
            plan = plans[start] = _plan(start, length, bus_bytes)
        wait, state = channel.row(state, plan)
        return wait, ((start + row_step) % BOUNDARY, state)

    def plane(now: tuple[int, State]) -> tuple[int, tuple[int, State]]:
        start, state = now
        wait, (_, state) = repeat(row, (start, state), rows)
        return wait, ((start + plane_step) % BOUNDARY, state)

    time, (_, state) = repeat(plane, (address % BOUNDARY, state), planes)
    return time + state[0]


@lru_cache(maxsize=65536)
def read_duration(
    config: Config, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int
) -> int:
    """Cycles from start to end of a DMA_READ or a fetch; ``address`` matters modulo 4096 only."""
    memory = config.memory
    channel = _Channel(first=memory.read_latency, answer=0, beat_cycles=memory.beat_cycles)
    state = (-memory.beat_cycles, *(1,) * config.outstanding)
    last = _last_beat(channel, state, config.bus_bytes, address, rows, planes, row_step, plane_step, length)
    return CHECK + last + READ_END


@lru_cache(maxsize=65536)
def write_duration(
    config: Config, address: int, rows: int, planes: int, row_step: int, plane_step: int, length: int
) -> int:
    """Cycles from start to end of a DMA_WRITE; ``address`` matters modulo 4096 only."""
    memory = config.memory
    channel = _Channel(first=1, answer=memory.write_latency, beat_cycles=memory.beat_cycles)
    state = (WRITE_FIRST - memory.beat_cycles, *(1,) * config.outstanding)
    last = _last_beat(channel, state, config.bus_bytes, address, rows, planes, row_step, plane_step, length)
    return CHECK + last + memory.write_latency + WRITE_END
