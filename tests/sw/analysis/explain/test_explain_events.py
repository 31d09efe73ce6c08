"""Events of programs against the timing engine, and the critical path against changed durations."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import QUEUE_DEPTH, Op, Unit, cfg, pack, sync
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.sequencer import END_TO_DONE
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.analysis.explain.events import critical_path, events_of, times_of
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.legal import RandomProgram, legal_program

PROGRAMS = 40


def random_program(seed: int) -> RandomProgram:
    rng = random.Random(seed)
    return legal_program(rng, random_config(rng), count=rng.choice((4, 12, 30)))


def timed(program: RandomProgram) -> Timeline:
    timeline = time_program(
        program.config,
        program.words,
        address=program.program,
        base=program.base,
        memory_bytes=len(program.memory),
    )
    assert timeline.fault is None
    return timeline


def durations_of(timeline: Timeline) -> list[int]:
    durations: list[int] = (timeline.end - timeline.start).tolist()
    return durations


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_times_are_the_engines(seed: int) -> None:
    program = random_program(seed)
    timeline = timed(program)
    events = events_of(program.words)
    times = times_of(events, durations_of(timeline))
    assert times.cycles == timeline.cycles
    assert [times.pop[action] for action in events.operations] == timeline.start.tolist()
    assert [times.end[action] for action in events.operations] == timeline.end.tolist()


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_a_change_on_the_path_is_felt_and_one_off_it_is_not(seed: int) -> None:
    """A run is as long as its longest chain of events: lengthening an operation of that chain by some cycles makes it
    longer by as many, and shortening any other does nothing."""
    program = random_program(seed)
    events = events_of(program.words)
    durations = durations_of(timed(program))
    times = times_of(events, durations)
    on_path = critical_path(events, times)
    for number, duration in enumerate(durations):
        changed = list(durations)
        if number in on_path:
            changed[number] += 5
            assert times_of(events, changed).cycles == times.cycles + 5
        else:
            changed[number] = duration // 2
            assert times_of(events, changed).cycles == times.cycles


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_steps_are_in_order_and_apart(seed: int) -> None:
    program = random_program(seed)
    timeline = timed(program)
    events = events_of(program.words)
    path = critical_path(events, times_of(events, durations_of(timeline)))
    assert all(timeline.end[before] < timeline.start[after] for before, after in pairwise(path))
    assert path[0] == 0  # every program waits for its first page


def transfer(unit: Unit, *, wait_for: Unit | None = None) -> list[int]:
    """64 bytes from or to the first ones of SRAM and memory; five words, six with a wait."""
    values = {"SRAM_ADDR": 0, "SRAM_BYTES": 64, "LENGTH": 64, "COUNT": pack(unit, "COUNT", rows=1, planes=1)}
    words = [cfg(unit, name, value) for name, value in values.items()]
    if wait_for is not None:
        words.append(sync(unit, wait_for))
    return [*words, int(Op.DMA_READ if unit == Unit.LOAD else Op.DMA_WRITE)]


def test_path_by_hand() -> None:
    """The first page is pushed in cycle 0 and popped in cycle 1; 3 cycles after its end in F + 1 the first word goes
    out, and the fifth, the load, in F + 8. It starts a cycle later, ends in F + L + 9, and a cycle later the wait is
    popped, then the store. That ends in F + L + S + 11, and two cycles more count."""
    words = transfer(Unit.LOAD) + transfer(Unit.STORE, wait_for=Unit.LOAD) + [int(Op.END)]
    config = Config(memory=MemoryTiming(read_latency=30, write_latency=25))
    timeline = time_program(config, words, address=65536)
    events = events_of(words)
    fetch, load, store = durations = durations_of(timeline)
    times = times_of(events, durations)
    assert times.cycles == timeline.cycles == fetch + load + store + 13
    assert critical_path(events, times) == [0, 1, 2]
    assert [times.pop[action] for action in events.operations] == [1, fetch + 9, fetch + load + 11]


def test_a_full_queue_is_on_the_path() -> None:
    """The store's queue is full with register writes behind its wait, so the second load goes out after the first."""
    writes = [cfg(Unit.STORE, "LENGTH", 64)] * (2 * QUEUE_DEPTH)
    words = (
        transfer(Unit.LOAD) + transfer(Unit.STORE, wait_for=Unit.LOAD)[:-1] + writes + [int(Op.DMA_READ), int(Op.END)]
    )
    events = events_of(words)
    durations = [10, 1000, 500]  # fetch, load, load
    times = times_of(events, durations)
    assert critical_path(events, times) == [0, 1, 2]
    # With the wait, QUEUE_DEPTH - 1 writes fill the queue. It is popped 1 cycle after the end, the first of the other
    # writes goes out in the next, QUEUE_DEPTH cycles later all are out, then the load, which is popped a cycle later.
    _, first, second = events.operations
    begin, end = times.end[first], times.pop[second]
    assert end - begin == 1 + 1 + QUEUE_DEPTH + 1 + 1
    free = times_of(events, durations, queues=False)
    assert critical_path(events, free, queues=False) == [0, 1, 2]
    assert free.pop[second] == free.end[first] + 1
    assert free.cycles == times.cycles - (end - begin - 1)


@pytest.mark.parametrize("words", [128, 129, 200, 300])
def test_pages(words: int) -> None:
    """Where the END stands in the page, and what is fetched behind it."""
    program = [cfg(Unit.LOAD, "LENGTH", 8)] * (words - 1) + [int(Op.END)]
    timeline = time_program(Config(), program, address=65536)
    events = events_of(program)
    assert len(events.operations) == len(timeline)
    assert times_of(events, durations_of(timeline)).cycles == timeline.cycles


def test_end_is_the_last_event() -> None:
    program = [cfg(Unit.LOAD, "LENGTH", 8)] * 5 + [int(Op.END)]
    times = times_of(events_of(program), [7])
    assert times.cycles == times.pop[-1] + END_TO_DONE
