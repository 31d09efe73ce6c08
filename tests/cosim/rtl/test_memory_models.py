"""Memories with a history: the C++ of the RTL simulation, cycle by cycle, against the rules of `isa/timing`, event by
event, in Python and as they are compiled into the timing core."""

import ctypes
import random
from collections import defaultdict, deque
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.memory_numbers import HEADERS
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.cplusplus import load
from dovetail.isa.config.memory import PLACES, DramTiming, Memory, SdramTiming, memory_of
from dovetail.isa.timing.memories.interface import Beat
from dovetail.isa.timing.memories.interface import Memory as Model
from dovetail.isa.timing.memories.models import model_of, numbers_of

BUS = 16
"""Bytes."""
AR, R, AW, W, B = range(5)


class Burst(NamedTuple):
    """As `memory_traffic.cpp` has it."""

    write: int
    address: int
    beats: int
    size: int
    gap: int
    late: int


@cache
def library() -> ctypes.CDLL:
    source = (Path(__file__).parent / "memory_traffic.cpp").read_text()
    return load({"memory_traffic.cpp": source, **{name: driver(name) for name in HEADERS}}, default_cache())


def simulated(memory: Memory, bursts: list[Burst]) -> dict[int, list[tuple[int, bool]]]:
    """The handshakes in C++: by kind, cycles and whether one ends its burst."""
    kind, numbers = numbers_of(memory)
    given = np.array(bursts, np.int64)
    out = np.zeros((2 * int(given[:, 2].sum()) + 4 * len(bursts), 3), np.int64)
    limit = 1 << 20
    pointers = (ctypes.c_void_p(array.ctypes.data) for array in (numbers, given, out))
    timing, rows, events = pointers
    count = library().traffic(kind, timing, rows, ctypes.c_int64(len(bursts)), events, ctypes.c_int64(limit))
    assert count >= 0
    found = defaultdict(list)
    for cycle, what, last in out[:count].tolist():
        found[what].append((cycle, bool(last)))
    assert len(found[B]) + sum(last for _, last in found[R]) == len(bursts), "all end in time"
    return found


class Compiled:
    """The memory of the compiled timing core, as those of Python are. Of reads it tells last beats only."""

    def __init__(self, memory: Memory) -> None:
        self.library = compiled_library()
        kind, numbers = numbers_of(memory)
        self.handle = ctypes.c_void_p(self.library.memory_new(kind, ctypes.c_void_p(numbers.ctypes.data)))
        self.out = np.zeros((64, 2), np.int64)
        self.beats: list[Beat] = []
        self.written: int | None = None

    def take(self, accepted: int, address: int, beats: int, *, write: bool, data: int, beat_bytes: int) -> None:
        burst = np.array([write, address, beats, beat_bytes, accepted, data], np.int64)
        if write:
            self.written = None
        self.library.memory_take(self.handle, ctypes.c_void_p(burst.ctypes.data))
        self._reports()

    @property
    def next(self) -> int | None:
        cycle = int(self.library.memory_next(self.handle))
        return cycle if cycle < 1 << 60 else None

    def serve(self) -> list[Beat]:
        self.library.memory_serve(self.handle, ctypes.c_int64(0))
        self._reports()
        beats, self.beats = self.beats, []
        return beats

    def _reports(self) -> None:
        count = self.library.memory_reports(self.handle, ctypes.c_void_p(self.out.ctypes.data))
        for kind, cycle in self.out[:count].tolist():
            if kind == 1:
                self.written = cycle
            else:
                self.beats.append(Beat(kind == 2, 0, True, cycle))

    def __del__(self) -> None:
        self.library.memory_delete(self.handle)


@cache
def compiled_library() -> ctypes.CDLL:
    here, room = Path(__file__).parent, files("dovetail.isa.timing.memories")
    texts = {name: room.joinpath(name).read_text() for name in ("memory.h", "sdram.h", "dram.h")}
    found = load({"memory_events.cpp": (here / "memory_events.cpp").read_text(), **texts}, default_cache())
    found.memory_new.restype = ctypes.c_void_p
    found.memory_next.restype = found.memory_reports.restype = ctypes.c_int64
    return found


def played(rule: Model | Compiled, bursts: list[Burst]) -> dict[int, list[tuple[int, bool]]]:
    """The handshakes by a rule, which does not say when an address is taken where so many are held."""
    ways = [[b for b in bursts if b.write == w] for w in (0, 1)]
    found: dict[int, list[tuple[int, bool]]] = {what: [] for what in (AR, R, AW, B)}
    offer = [way[0].gap if way else 0 for way in ways]
    ends: tuple[list[int], list[int]] = [], []
    taken, begun = [0, 0], 0
    accepted: deque[tuple[int, Burst]] = deque()  # writes whose data have not come
    while True:
        if accepted and (not begun or rule.written is not None):
            cycle, burst = accepted.popleft()
            first = max(-1 if rule.written is None else rule.written, cycle + burst.late) + 1
            rule.take(cycle, burst.address, burst.beats, write=True, data=first, beat_bytes=burst.size)
            begun += 1
            continue
        times = []
        for w in (0, 1):
            if taken[w] < len(ways[w]):
                place = taken[w] - PLACES
                if place < len(ends[w]):
                    times.append((max(offer[w], ends[w][place] + 1 if place >= 0 else 0), w))
        due = rule.next
        if times and (due is None or min(times)[0] < due):
            cycle, w = min(times)
            burst = ways[w][taken[w]]
            if w:
                accepted.append((cycle, burst))
            else:
                rule.take(cycle, burst.address, burst.beats, write=False, data=0, beat_bytes=burst.size)
            found[AW if w else AR].append((cycle, False))
            taken[w] += 1
            if taken[w] < len(ways[w]):
                offer[w] = cycle + 1 + ways[w][taken[w]].gap
        elif due is None:
            return found
        else:
            for beat in rule.serve():
                if beat.last:
                    ends[beat.write].append(beat.cycle)
                if beat.last or not beat.write:
                    found[B if beat.write else R].append((beat.cycle, beat.last))


def bursts_of(seed: int, count: int, *, slow: bool) -> list[Burst]:
    """Random ones, some in the places of others, of beats that may be narrow."""
    rng = random.Random(seed)
    near = [rng.randrange(1 << 20) for _ in range(3)]
    found = []
    for _ in range(count):
        size = rng.choice((4, 8, BUS, BUS, BUS))
        address = (rng.choice(near) + rng.randrange(1 << rng.choice((6, 9, 13)))) % (1 << 20)
        most = min(256, (4096 - address % 4096 + address % size) // size)
        gap = rng.choice((0, 0, 1, 5, 40, 3000)) if slow else rng.choice((0, 0, 0, 3))
        late = rng.choice((0, 0, 7, 90))
        found.append(Burst(rng.randrange(2), address, rng.choice((1, most, rng.randint(1, most))), size, gap, late))
    return found


OWN = {
    "preset": "ddr4-2400-x16",
    "refi": "700 ns",
    "rfc": "200 ns",
    "queue": 3,
    "ahead": 2,
    "map": "row-column-group-bank",
}
MEMORIES: list[dict[str, object] | str] = [
    "ddr3-1600-x16",
    "ddr4-2400-x16@300MHz",
    "lpddr4-3200-x16@37MHz",
    "ddr3-1600-x16@2GHz",
    {"kind": "dram", "clock": "111111111 Hz", **OWN},
    {
        "kind": "dram",
        **OWN,
        "width": 64,
        "faw": "90 ns",
        "wtr_l": "40 ns",
        "rrd_l": "30 ns",
        "front": "0 ck",
        "back": "0 ck",
    },
    # What is not interrupted is served as a whole: up to refreshes, to ends of rows, in blocks narrower than a beat.
    {"kind": "dram", **OWN, "map": "row-bank-group-column", "queue": 16, "ahead": 1},
    {"kind": "dram", **OWN, "map": "row-column-bank-group", "groups": 4, "banks": 1, "row": 256, "ccd_l": "17 ck"},
    {"kind": "dram", **OWN, "map": "row-bank-column-group", "width": 8, "burst_length": 4, "ahead": 3},
    "sdram",
    "sdram@37MHz",
    {"kind": "sdram", "width": 32, "column_bits": 8, "refresh_interval": "50 ck", "phase": 17},
]


@pytest.mark.parametrize("slow", [False, True], ids=["busy", "slow"])
@pytest.mark.parametrize(
    "memory", MEMORIES, ids=lambda m: m if isinstance(m, str) else "-".join(map(str, m.values()))[:24]
)
def test_every_beat_and_answer(memory: dict[str, object] | str, slow: bool) -> None:
    timing = memory_of(memory)
    assert isinstance(timing, SdramTiming | DramTiming)
    for seed in range(3):
        bursts = bursts_of(190311 + seed, 90, slow=slow)
        found = simulated(timing, bursts)
        rule = model_of(timing, BUS)
        expected = played(rule, bursts)
        ends = played(Compiled(timing), bursts)
        for what in (AR, AW, R, B):
            assert found[what] == expected[what], (seed, what)
            assert ends[what] == [beat for beat in expected[what] if beat[1] or what != R], (seed, what)
