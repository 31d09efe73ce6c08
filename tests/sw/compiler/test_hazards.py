"""The hazard tracker against the definition: every conflicting pair is ordered, no wait is superfluous."""

import random
from dataclasses import dataclass, field

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import SYNC_ON, SYNC_PENDING, SYNC_UNIT, Unit
from dovetail.sw.compiler.emit.hazards import Range, Tracker

CONFIG = Config(ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4)


@dataclass
class Access:
    unit: Unit
    reads: list[Range] = field(default_factory=list)
    writes: list[Range] = field(default_factory=list)
    mem_reads: list[Range] = field(default_factory=list)
    mem_writes: list[Range] = field(default_factory=list)
    waits: list[tuple[Unit, int]] = field(default_factory=list)


def overlap(a: list[Range], b: list[Range]) -> bool:
    return any(x < y + m and y < x + n for x, n in a for y, m in b)


def banks(ranges: list[Range]) -> set[int]:
    return {address // CONFIG.bank_bytes for x, n in ranges for address in range(x, x + n)}


def conflict(a: Access, b: Access) -> bool:
    return (
        overlap(a.reads, b.writes)
        or overlap(a.writes, b.reads)
        or bool(banks(a.reads) & banks(b.reads) or banks(a.writes) & banks(b.writes))
        or overlap(a.mem_reads, b.mem_writes)
        or overlap(a.mem_writes, b.mem_reads + b.mem_writes)
    )


def program(seed: int, length: int) -> list[Access]:
    rng = random.Random(seed)

    def ranges(size: int, most: int) -> list[Range]:
        return [(rng.randrange(size - 3000), rng.randrange(1, most)) for _ in range(rng.choice((1, 1, 1, 2)))]

    result = []
    for _ in range(length):
        unit = rng.choice(list(Unit))
        access = Access(unit)
        if unit != Unit.LOAD:
            access.reads = ranges(CONFIG.sram, rng.choice((100, 3000)))
        if unit != Unit.STORE:
            access.writes = ranges(CONFIG.sram, rng.choice((100, 3000)))
        if unit == Unit.LOAD:
            access.mem_reads = ranges(20000, 2000)
        if unit == Unit.STORE:
            access.mem_writes = ranges(20000, 2000)
        result.append(access)
    return result


def track(accesses: list[Access]) -> None:
    tracker = Tracker(CONFIG)
    for a in accesses:
        words = tracker.issue(a.unit, reads=a.reads, writes=a.writes, mem_reads=a.mem_reads, mem_writes=a.mem_writes)
        for word in words:
            assert SYNC_UNIT.get(word) == a.unit
            on = Unit(SYNC_ON.get(word))
            before = tracker.dispatched[on] - (on == a.unit)
            a.waits.append((on, before - SYNC_PENDING.get(word)))


def ordered(accesses: list[Access], without: tuple[int, int] | None = None) -> list[set[int]]:
    """For each instruction the earlier ones that have surely ended when it starts."""
    result: list[set[int]] = []
    of_unit: dict[Unit, list[int]] = {u: [] for u in Unit}
    for i, access in enumerate(accesses):
        direct = of_unit[access.unit][-1:]
        known = set(result[direct[0]]) if direct else set()
        for k, (on, count) in enumerate(access.waits):
            if (i, k) != without and count:
                direct.append(of_unit[on][count - 1])
        for j in direct:
            known |= result[j] | {j}
        result.append(known)
        of_unit[access.unit].append(i)
    return result


def unordered(accesses: list[Access], without: tuple[int, int] | None = None) -> int:
    known = ordered(accesses, without)
    return sum(
        a.unit != b.unit and j not in known[i] and conflict(a, b)
        for i, a in enumerate(accesses)
        for j, b in enumerate(accesses[:i])
    )


@pytest.mark.parametrize("seed", range(6))
def test_every_conflict_is_ordered(seed: int) -> None:
    accesses = program(seed, 160)
    track(accesses)
    assert unordered(accesses) == 0


@pytest.mark.parametrize("seed", range(4))
def test_no_wait_is_superfluous(seed: int) -> None:
    accesses = program(seed, 24)  # too short for old accesses to melt together
    track(accesses)
    for i, access in enumerate(accesses):
        for k in range(len(access.waits)):
            assert unordered(accesses, (i, k)) > 0, (i, access)


def test_pipeline_waits_for_exactly_the_buffer_it_reuses() -> None:
    tracker = Tracker(CONFIG)
    bank = CONFIG.bank_bytes
    assert tracker.issue(Unit.LOAD, writes=[(0, 64)]) == []
    assert tracker.issue(Unit.LOAD, writes=[(bank, 64)]) == []
    (word,) = tracker.issue(Unit.ARRAY, reads=[(0, 64)], writes=[(2 * bank, 64)])
    assert (SYNC_UNIT.get(word), SYNC_ON.get(word), SYNC_PENDING.get(word)) == (Unit.ARRAY, Unit.LOAD, 1)
    (word,) = tracker.issue(Unit.LOAD, writes=[(0, 64)])
    assert (SYNC_UNIT.get(word), SYNC_ON.get(word), SYNC_PENDING.get(word)) == (Unit.LOAD, Unit.ARRAY, 0)
    assert tracker.issue(Unit.LOAD, writes=[(32, 32)]) == []
