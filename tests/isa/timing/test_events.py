"""Accelerators before one memory, event by event: the compiled form against rounds in Python, and against the closed
form of one accelerator."""

import random
from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import KINDS as ALL_KINDS
from dovetail.isa.config.memory import Memory, SdramTiming, memory_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.core import engine, rounds
from dovetail.isa.timing.core.recurrence import Outcome
from dovetail.isa.timing.core.rounds import Machine, Plan, Task
from dovetail.isa.timing.interconnect import DATA, TURN, WriteData
from dovetail.isa.timing.jobs import AnyJob, HostJob, Job, spans
from dovetail.isa.timing.run import work_of
from dovetail.isa.timing.sequencer import as_words
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.broken import illegal_program
from dovetail.sw.random.programs.legal import RandomProgram, legal_program

COMPILED = engine.library()
KINDS = tuple(ALL_KINDS)
needs_compiler = pytest.mark.skipif(COMPILED is None, reason="no C++ compiler: there are only rounds")


def random_memory(rng: random.Random, kinds: tuple[str, ...] = KINDS) -> Memory:
    kind = rng.choice(kinds)
    if kind == "fixed":
        return MemoryTiming(
            read_latency=rng.randint(1, 60), write_latency=rng.randint(1, 60), beat_cycles=rng.choice((1, 1, 2, 5))
        )
    if kind == "sdram":
        return SdramTiming(
            width=rng.choice((16, 32)),
            column_bits=rng.choice((8, 9)),
            wr=rng.choice((2, 3)),
            refresh_interval=rng.choice((90, 780)),
            phase=rng.choice((0, rng.randrange(90))),
        )
    return memory_of(rng.choice(("ddr3-1600-x16", "ddr4-2400-x16@200MHz", "lpddr4-3200-x16@37MHz")))


def random_program(rng: random.Random, config: Config) -> RandomProgram:
    make = illegal_program if rng.random() < 0.3 else legal_program
    return make(rng, config, count=rng.choice((1, 4, 10)))


def task_of(rng: random.Random, config: Config, accelerator: int, program: RandomProgram) -> Task:
    broken = () if rng.random() < 0.8 else ((64 * rng.randrange(2000), 64 * rng.randint(1, 9)),)
    words = as_words(program.words)
    work, operations = work_of(config, words, program.program, program.base, len(program.memory), broken)
    return Task(accelerator, work, program.program, operations.shapes(program.base))


def machine_of(configs: list[Config], memory: Memory, *, joined: bool = True) -> Machine:
    return Machine(
        [config.outstanding for config in configs],
        [config.bus_bytes for config in configs],
        joined=joined,
        memory=memory,
        beat_bytes=max(config.bus_bytes for config in configs),
    )


def assert_equal(one: Outcome, other: Outcome) -> None:
    for name, mine, theirs in zip(one._fields, one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs, name)


@needs_compiler
@pytest.mark.parametrize("seed", range(30))
def test_compiled_and_in_rounds(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((1, 2, 2, 3, 5))
    configs = [random_config(rng) for _ in range(count)]
    memory = random_memory(rng)
    configs = [replace(config, memory=memory) for config in configs]
    machine = machine_of(configs, memory, joined=count > 1 or rng.random() < 0.5)
    tasks = [task_of(rng, config, n, random_program(rng, config)) for n, config in enumerate(configs)]
    starts = [rng.choice((0, rng.randrange(400))) for _ in tasks]
    found = engine.play_together(machine, tasks, starts)
    for mine, theirs in zip(found, rounds.play(machine, tasks, starts), strict=True):
        assert mine and theirs and mine.outcome and theirs.outcome
        assert (mine.origin, mine.past) == (theirs.origin, theirs.past)
        assert_equal(mine.outcome, theirs.outcome)


@needs_compiler
@pytest.mark.parametrize("seed", range(30))
def test_plans(seed: int) -> None:
    rng = random.Random(seed)
    configs = [random_config(rng) for _ in range(rng.choice((1, 2, 3)))]
    memory = random_memory(rng)
    configs = [replace(config, memory=memory) for config in configs]
    machine = machine_of(configs, memory)
    tasks, jobs = list[Task | None](), list[AnyJob]()
    for n in range(rng.choice((2, 5, 9))):
        after = tuple(m for m in range(n) if rng.random() < 0.3)
        earliest = rng.choice((0, rng.randrange(1000)))
        if rng.random() < 0.4:
            tasks.append(None)
            jobs.append(HostJob(rng.choice((1, 2, 100, rng.randrange(1, 4000))), after, earliest))
            continue
        k = rng.randrange(len(configs))
        tasks.append(task_of(rng, configs[k], k, random_program(rng, configs[k])))
        jobs.append(Job(str(k), [], after=after, earliest=earliest))
    plan = Plan(jobs, rng.choice((1, 50)))
    found, expected = engine.play_together(machine, tasks, plan), rounds.play(machine, tasks, plan)
    lasted, faulted = [0] * len(jobs), [False] * len(jobs)
    for n, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if mine is None or theirs is None:
            assert mine is theirs
            continue
        assert (mine.origin, mine.past) == (theirs.origin, theirs.past)
        assert (mine.outcome is None) == (theirs.outcome is None) == isinstance(jobs[n], HostJob)
        if mine.outcome and theirs.outcome:
            assert_equal(mine.outcome, theirs.outcome)
            lasted[n], faulted[n] = mine.outcome.cycles, mine.outcome.fault[0] != 0
    rule = spans(jobs, plan.reaction, lasted, faulted)
    assert rule == [mine and (mine.origin, mine.past) for mine in found]


@pytest.mark.parametrize("seed", range(30))
def test_one_accelerator_alone(seed: int) -> None:
    """Right at memory: the cycles of the closed form."""
    rng = random.Random(seed)
    memory = random_memory(rng, ("fixed",))
    config = replace(random_config(rng), memory=memory)
    task = task_of(rng, config, 0, random_program(rng, config))
    expected = engine.run(task.work)
    machine = machine_of([config], memory, joined=False)
    (done,) = filter(None, engine.play_together(machine, [task], [rng.choice((0, 77))]))
    assert done.outcome
    assert_equal(done.outcome, expected)


def test_first_beats() -> None:
    """In whole bursts the buffer of two beats makes no difference but to the first beat."""
    rng = random.Random(5)
    for _ in range(20):
        way, taken, address, slow = WriteData(), -1, 0, rng.choice((1, 1, 3))
        for _ in range(30):
            address = max(address + 1, rng.randrange(500))
            ready = rng.choice((0, rng.randrange(500)))
            presented = first = max(ready, address + TURN)
            expected = max(first + DATA, taken + 1)
            for beat in range(rng.choice((1, 2, 3, 7))):
                presented = way.accept(presented, address) + 1
                assert way.offered == (expected if beat == 0 else taken + 1)
                taken = way.offered + rng.randrange(slow)
                way.taken(taken)
