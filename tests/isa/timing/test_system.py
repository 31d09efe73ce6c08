"""Accelerators at one memory, timed: worked out by hand. Against RTL: `tests/cosim/rtl/test_system.py`."""

import random

import numpy as np
import pytest

from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import Part, System
from dovetail.isa.instructions.table import Cause, Op
from dovetail.isa.timing.core import engine
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.system import Begun, time_system
from dovetail.isa.timing.timeline import FETCH, Timeline
from dovetail.sw.random.programs.legal import legal_program

NARROW = Config(pe=8, sram="32 KiB", banks=4, bus=32)
MEMORY = MemoryTiming(read_latency=17, write_latency=5, beat_cycles=1)
END = [int(Op.END), *[0] * 127]


def system_of(*configs: Config) -> System:
    return System(tuple(Part(f"a{n}", config, 4096 * n) for n, config in enumerate(configs)), memory=MEMORY)


def fetch_of(timeline: Timeline) -> int:
    """Cycles of the first fetch."""
    assert timeline.op[0] == FETCH
    return int(timeline.end[0] - timeline.start[0])


def test_a_page_behind_the_interconnect() -> None:
    """A burst of 256 beats: 2 cycles more for its address, 1 for the data."""
    alone = time_program(NARROW.replace(memory=MEMORY), END)
    found = time_system(system_of(NARROW), {"a0": Begun(END)})["a0"]
    assert fetch_of(alone) == 3 + 2 + 17 + 255 + 4, "checks, address, latency, beats, end"
    assert fetch_of(found) == fetch_of(alone) + 3
    assert found.cycles == alone.cycles + 3


@pytest.mark.parametrize(
    ("cycles", "more"),
    [
        ((0, 0), (0, 256)),  # the second one's burst comes right behind
        ((1, 0), (255, 0)),  # the other one came a cycle before
        ((0, 100), (0, 156)),
        ((0, 255), (0, 1)),
        ((0, 256), (0, 0)),
    ],
)
def test_two_fetches_meet(cycles: tuple[int, int], more: tuple[int, int]) -> None:
    begun = {f"a{n}": Begun(END, 4096 * n, cycle=cycle) for n, cycle in enumerate(cycles)}
    found = time_system(system_of(NARROW, NARROW), begun)
    alone = 3 + 2 + 17 + 255 + 4 + 3
    assert tuple(fetch_of(timeline) - alone for timeline in found.values()) == more


def test_a_wider_accelerator_needs_fewer_beats() -> None:
    wide = NARROW.replace(bus=128)
    found = time_system(system_of(wide, NARROW), {"a0": Begun(END), "a1": Begun(END)})
    alone = 3 + 2 + 17 + 4 + 3
    assert fetch_of(found["a0"]) == alone + 63, "64 beats of 16 bytes"
    assert fetch_of(found["a1"]) == alone + 64 + 255, "64 beats of others before 256 of its own"


def test_who_does_not_meet_is_alone() -> None:
    rng = random.Random(3)
    programs = [legal_program(rng, NARROW) for _ in range(2)]
    system = system_of(NARROW, NARROW)
    begun = {
        f"a{n}": Begun(program.words, program.program, program.base, cycle=1_000_000 * n)
        for n, program in enumerate(programs)
    }
    together = time_system(system, begun)
    for name, one in begun.items():
        alone = time_system(system, {name: one})[name]
        assert together[name].cycles == alone.cycles
        assert together[name].counters == alone.counters
        np.testing.assert_array_equal(together[name].start, alone.start)


def test_faults_are_those_of_one_accelerator() -> None:
    found = time_system(system_of(NARROW, NARROW), {"a0": Begun([0xEE, *END]), "a1": Begun(END)})
    assert found["a0"].fault is not None and found["a0"].fault.cause == Cause.OPCODE
    assert found["a1"].fault is None
    assert time_system(system_of(NARROW), {"a0": Begun([])})["a0"].fault is not None, "no page, no END"


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    system = system_of(NARROW, Config.load("icebreaker"))
    with pytest.raises(ConfigError) as found:
        time_system(system, {"a1": Begun(END)})
    assert str(found.value) == "accelerators.a1: must not be microcoded to be timed among others"
    with pytest.raises(ConfigError) as found:
        time_system(system, {"b": Begun(END)})
    assert str(found.value).startswith("accelerator must be one of a0, a1, not 'b'")
    with pytest.raises(ValueError, match=r"^base must be a multiple of 4096 in 0\.\.2\*\*32-1, not 3$"):
        time_system(system, {"a0": Begun(END, base=3)})
    monkeypatch.setattr(engine, "MOST_BEATS", 200)
    with pytest.raises(ConfigError) as found:
        time_system(system, {"a0": Begun(END)})
    assert str(found.value) == "transfers must have at most 200 beats to be timed, not 257; give fewer inferences"
