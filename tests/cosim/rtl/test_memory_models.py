"""Memories with a history: the C++ of the RTL simulation, cycle by cycle, against the rules of `isa/timing`."""

import ctypes
import random
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dovetail.cosim.rtl.block import driver
from dovetail.cosim.rtl.memory_numbers import HEADERS, numbers_of
from dovetail.isa.common.build_cache import default_cache
from dovetail.isa.common.cplusplus import load
from dovetail.isa.config.memory import PLACES, DramTiming, Memory, SdramTiming, memory_of
from dovetail.isa.timing.dram import Dram
from dovetail.isa.timing.sdram import Sdram

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


def ruled(memory: SdramTiming | DramTiming, bursts: list[Burst]) -> dict[int, list[tuple[int, bool]]]:
    """The same by the rule in Python. The rule does not say when an address is taken where 16 are held."""
    rule = Sdram.of(memory, BUS) if isinstance(memory, SdramTiming) else Dram(memory, BUS)
    ways = [[b for b in bursts if b.write == w] for w in (0, 1)]
    found: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    offer: list[int | None] = [way[0].gap if way else None for way in ways]
    ends: tuple[list[int], list[int]] = [], []
    taken, data = [0, 0], 0  # data: the first cycle in which the next write's data may come
    while True:
        times = []
        for w in (0, 1):
            if taken[w] < len(ways[w]):
                place = taken[w] - PLACES
                free = 0 if place < 0 else ends[w][place] + 1 if place < len(ends[w]) else None
                if free is not None:
                    times.append((max(offer[w] or 0, free), w))
        due = rule.next
        if times and (due is None or min(times)[0] < due):
            cycle, w = min(times)
            burst = ways[w][taken[w]]
            first = max(data, cycle + 1 + burst.late) if w else 0
            rule.take(cycle, burst.address, burst.beats, write=bool(w), data=first, beat_bytes=burst.size)
            if w and isinstance(rule, Dram):
                data = first + burst.beats
            found[AW if w else AR].append((cycle, False))
            taken[w] += 1
            offer[w] = cycle + 1 + ways[w][taken[w]].gap if taken[w] < len(ways[w]) else None
        elif due is None:
            return found
        else:
            for beat in rule.serve():
                if beat.last:
                    ends[beat.write].append(beat.cycle)
                if not beat.write:
                    found[R].append((beat.cycle, beat.last))
                elif beat.last:
                    found[B].append((beat.cycle, True))


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
    "refi": "450 ns",
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
        found, expected = simulated(timing, bursts), ruled(timing, bursts)
        for what in (AR, AW, R, B):
            assert found[what] == expected[what], (seed, what)
