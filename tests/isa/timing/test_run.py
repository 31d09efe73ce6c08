"""The watchdog's bound: no run exceeds it, and it is no larger than it says."""

import random

import pytest

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_BYTES, PAGE_WORDS, Op, Unit, cfg, pack, sync
from dovetail.isa.timing.dma import Shape, read_duration
from dovetail.isa.timing.run import cycle_bound, time_program
from dovetail.isa.timing.sequencer import END_TO_DONE, PAGE_READY
from dovetail.sw.random.programs.broken import illegal_program
from dovetail.sw.random.programs.configurations import configurations
from dovetail.sw.random.programs.legal import legal_program
from tests.slow import slow

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
FETCH = read_duration(CONFIG, Shape(0, 1, 1, 0, 0, PAGE_BYTES))
PAGE = FETCH + PAGE_READY + 2
REST = END_TO_DONE + 1
LONG = (6, 8)
"""Random programs with transfers of hundreds of millions of bursts, whose time takes half a minute to find."""


@pytest.mark.parametrize("count", [3, slow(6)])
@pytest.mark.parametrize("number", [slow(n) if n in LONG else n for n in range(12)])
def test_no_random_program_exceeds_it(number: int, count: int) -> None:
    config = configurations(7, 12)[number]
    rng = random.Random(number)
    for _ in range(count):
        memory = MemoryTiming(read_latency=rng.choice((1, 50)), beat_cycles=rng.choice((1, 3)))
        timed = config.replace(memory=memory)
        for make in (legal_program, illegal_program):
            p = make(rng, timed, count=rng.randint(1, 20))
            run = time_program(timed, p.words, address=p.program, base=p.base, memory_bytes=len(p.memory))
            assert run.cycles <= cycle_bound(timed, p.words)


def test_by_hand() -> None:
    end = [int(Op.END)]
    assert cycle_bound(CONFIG, end) == 2 + PAGE + REST
    assert cycle_bound(CONFIG, end * 300) == 2 + 2 * PAGE + REST, "the page behind END is fetched"
    words = [cfg(Unit.LOAD, "LENGTH", 1)] * 9 + [sync(Unit.LOAD, Unit.STORE)]
    assert cycle_bound(CONFIG, words + end) == 2 * 11 + PAGE + REST
    assert cycle_bound(CONFIG, [*words, 0xFF, int(Op.DMA_READ)]) == 2 * 11 + PAGE + REST, "nothing behind a bad word"
    assert cycle_bound(CONFIG, words[:1] * PAGE_WORDS) == 2 * 129 + PAGE + REST, "no END"
    assert cycle_bound(CONFIG, []) >= time_program(CONFIG, []).cycles
    values = {"LENGTH": 100, "SRAM_BYTES": 100, "MEM_ADDR": 7}
    load = [cfg(Unit.LOAD, name, value) for name, value in values.items()]
    load += [cfg(Unit.LOAD, "COUNT", pack(Unit.LOAD, "COUNT", rows=3, planes=1)), int(Op.DMA_READ)]
    duration = read_duration(CONFIG, Shape(7, 3, 1, 0, 0, 100))
    assert cycle_bound(CONFIG, load + end) == duration + 2 * 6 + PAGE + REST


def test_what_runs_one_after_the_other_comes_near_it() -> None:
    words = []
    for n in range(30):
        words += [cfg(Unit.LOAD, "LENGTH", 100 + n), cfg(Unit.LOAD, "SRAM_BYTES", 200)]
        words += [cfg(Unit.LOAD, "COUNT", pack(Unit.LOAD, "COUNT", rows=3, planes=1)), int(Op.DMA_READ)]
    words.append(int(Op.END))
    cycles = time_program(CONFIG, words).cycles
    assert cycles <= cycle_bound(CONFIG, words) <= cycles + 2 * len(words) + PAGE


def test_the_largest_operation() -> None:
    """No constant bounds a program: one operation may take 2^62 cycles and more."""
    values = {"GEOMETRY": 0x8080, "TILE": 0xFFFFFFFF, "BLOCKS": pack(Unit.VECTOR, "BLOCKS", count=65535, last=1)}
    values |= {"IN_BYTES": 1, "OUT_ADDR": 1, "OUT_BYTES": 1}
    words = [*(cfg(Unit.VECTOR, name, value) for name, value in values.items()), int(Op.POOL), int(Op.END)]
    cycles = time_program(CONFIG, words).cycles
    assert 128 * 128 * 65535**3 < cycles <= cycle_bound(CONFIG, words)
