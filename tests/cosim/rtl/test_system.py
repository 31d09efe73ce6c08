"""Several accelerators before one memory: bytes of the model, and handshakes in the cycles that the rule says."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.rtl.rtl_engine import RtlError, program_words
from dovetail.cosim.rtl.system_engine import Handshake, Start, SystemEngine, SystemRun
from dovetail.hw.accelerator import HOST_PREFIX, MEMORY_PREFIX
from dovetail.hw.system.design import SystemDesign
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import memory_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import WINDOW, Part, System
from dovetail.isa.host import ID
from dovetail.isa.instructions.table import PAGE_BYTES
from dovetail.isa.timing.interconnect import DATA, TURN, Addresses
from dovetail.isa.timing.jobs import AnyJob, HostJob, Job
from dovetail.isa.timing.memories.fixed import Direction
from dovetail.isa.timing.operations import forget
from dovetail.isa.timing.system import Begun, JobTimes, time_jobs, time_system
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.broken import illegal_program
from dovetail.sw.random.programs.legal import RandomProgram, legal_program
from tests.cosim.rtl.tiny import TINY
from tests.hw.netlist import Netlist

WIDE = TINY.replace(ic_lanes=4, sram="64 KiB", bus=64, outstanding=4)
MEMORY = MemoryTiming(read_latency=23, write_latency=11, beat_cycles=1)
SYSTEMS = {
    "two": System((Part("tiny", TINY, 0x3000), Part("wide", WIDE, 0x1000)), memory=MEMORY),
    "four": System(
        (
            Part("a", TINY.replace(outstanding=1), 0),
            Part("b", TINY, 4096),
            Part("c", TINY.replace(bus=64), 8192),
            Part("d", TINY.replace(bus=128, outstanding=16), 12288),
        ),
        memory=MemoryTiming(read_latency=5, write_latency=40, beat_cycles=3),
    ),
    "with the microcoded": System(
        (
            Part("wide", TINY.replace(bus=128, outstanding=8), 0x4000_0000),
            Part("microcoded", Config.load("icebreaker"), 0x4000_1000),
            Part("tiny", TINY, 0x4000_2000),
        ),
        memory=MemoryTiming(read_latency=9, write_latency=30, beat_cycles=1),
    ),
}
DECERR = 3
pytestmark = pytest.mark.slow  # a system takes half a minute to build


@pytest.fixture(scope="module", params=SYSTEMS)
def engine(request: pytest.FixtureRequest, build_cache: Path) -> SystemEngine:
    return SystemEngine(SYSTEMS[request.param], cache=build_cache, limit=2_000_000)


def programs(system: System, seed: int, count: int = 6) -> dict[str, RandomProgram]:
    rng = random.Random(seed)
    return {part.name: legal_program(rng, part.config, count=count) for part in system.accelerators}


def together(work: dict[str, RandomProgram], waits: tuple[int, ...]) -> tuple[np.ndarray, dict[str, Start]]:
    """One memory with that of each program behind the other's, and where the programs are in it."""
    memory = np.concatenate([program.memory for program in work.values()])
    starts, at = {}, 0
    for (name, program), wait in zip(work.items(), waits, strict=False):
        starts[name] = Start(at + program.program, program.pages, at + program.base, wait)
        at += len(program.memory)
    return memory, starts


def rows(run: SystemRun, memory: int, kind: Handshake, manager: int | None = None) -> list[tuple[int, int, int]]:
    """(cycle, manager, value) of handshakes at memory's port (1) or the accelerators' (0)."""
    found = run.handshakes[(run.handshakes[:, 1] == memory) & (run.handshakes[:, 3] == kind)]
    return [(c, m, v) for c, _, m, _, v in found.tolist() if manager in (None, m)]


def check_addresses(count: int, run: SystemRun, shown: Handshake, accepted: Handshake) -> None:
    """From the cycles in which accelerators presented addresses all others follow: they are those of the RTL."""
    addresses = Addresses(count)
    coming = [[cycle for cycle, *_ in rows(run, 0, shown, k)] for k in range(count)]
    slices: list[list[int]] = [[] for _ in range(count)]
    taken: list[tuple[int, int]] = []
    while True:
        free = [(coming[k][len(slices[k])], k) for k in range(count) if len(slices[k]) < len(coming[k])]
        free = [(cycle, k) for cycle, k in free if len(slices[k]) == sum(k == other for _, other in taken)]
        due = addresses.due()
        if free and (due is None or min(free)[0] < due.cycle):
            cycle, k = min(free)
            slices[k].append(addresses.present(k, cycle))
        elif due is None:
            break
        else:
            addresses.grant(due)
            addresses.taken(due.offered)  # memory takes every address at once
            taken.append((due.offered, due.manager))
    assert slices == [[cycle for cycle, *_ in rows(run, 0, accepted, k)] for k in range(count)]
    assert taken == [(cycle, k) for cycle, k, _ in rows(run, 1, accepted)]


def check_data(run: SystemRun) -> None:
    """Read data, responses and write data, from what memory gives and what the accelerators give."""
    for kind in (Handshake.R, Handshake.B):
        at_memory = [(cycle + DATA, k, value) for cycle, k, value in rows(run, 1, kind)]
        assert at_memory == sorted(rows(run, 0, kind))
    accepted = rows(run, 0, Handshake.W)
    at_memory = rows(run, 1, Handshake.W)
    assert all(cycle + DATA <= later for (cycle, *_), (later, *_) in zip(accepted, at_memory, strict=True))
    turns = iter(rows(run, 1, Handshake.AW))
    last = True
    for (cycle, k, _), (_, _, ends) in zip(accepted, at_memory, strict=True):
        if last:
            began, owner, _ = next(turns)
            assert cycle >= began + TURN
        assert k == owner, "whole bursts, in the order of their addresses"
        last = bool(ends)


def check_timelines(system: System, run: SystemRun, image: np.ndarray, starts: dict[str, Start]) -> int:
    """Everything starts and ends in the cycle that the rules give, of all accelerators; ``image``: memory before. Gives
    the cycles that they have lost by working at once."""
    programs = {}
    for name, start in starts.items():
        words = program_words(image, start.program, start.pages)
        programs[name] = Begun(words, start.program, start.base, run.origins[name])
    lost = 0
    for name, expected in time_system(system, programs, memory_bytes=len(image)).items():
        mine = run.results[name]
        assert (mine.cycles, mine.counters, mine.fault) == (expected.cycles, expected.counters, expected.fault), name
        for column in ("unit", "op", "pc", "start", "end", "works"):
            np.testing.assert_array_equal(getattr(mine.timeline, column), getattr(expected, column), f"{name} {column}")
        lost += expected.cycles - time_system(system, {name: programs[name]}, memory_bytes=len(image))[name].cycles
    return lost


def test_programs_at_once(engine: SystemEngine) -> None:
    system, lost = engine.system, 0
    for seed, waits in ((1, (0, 0, 0, 0)), (2, (0, 40, 10, 0)), (3, (300, 0, 0, 99))):
        work = programs(system, seed)
        memory, starts = together(work, waits)
        image = memory.copy()
        engine.reset()
        run = engine.run(memory, starts)
        expected = []
        for name, program in work.items():
            model = Model(system[name].config)
            result = model.run(program.fresh_memory(), *program.arguments)
            assert run.results[name].fault is result.fault is None
            assert [*run.results[name].timeline.op] == [*result.timeline.op]
            expected.append(result.memory)
        assert np.array_equal(memory, np.concatenate(expected))
        if not any(part.config.serial for part in system.accelerators):
            lost += check_timelines(system, run, image, starts)
        for shown, accepted in ((Handshake.AR_SHOWN, Handshake.AR), (Handshake.AW_SHOWN, Handshake.AW)):
            check_addresses(len(work), run, shown, accepted)
        check_data(run)
    assert lost > 0 or any(part.config.serial for part in system.accelerators)


def test_faults_in_one_while_others_go_on(engine: SystemEngine) -> None:
    system, rng = engine.system, random.Random(5)
    if any(part.config.serial for part in system.accelerators):
        pytest.skip("a microcoded accelerator is not timed among others")
    faults, ran = set(), 0
    for _ in range(12):
        work = {
            part.name: (illegal_program if rng.random() < 0.5 else legal_program)(rng, part.config)
            for part in system.accelerators
        }
        memory, starts = together(work, tuple(rng.choice((0, rng.randrange(300))) for _ in work))
        image = memory.copy()
        engine.reset()
        run = engine.run(memory, starts)
        check_timelines(system, run, image, starts)
        faults |= {result.fault.cause for result in run.results.values() if result.fault}
        ran += sum(result.fault is None for result in run.results.values())
    assert len(faults) > 3 and ran > 3


def test_jobs_that_wait_for_one_another(engine: SystemEngine) -> None:
    """Every job starts when the host's rule says, and everything in it is in its cycle; also behind a fault."""
    system, rng = engine.system, random.Random(51015)
    if any(part.config.serial for part in system.accelerators):
        pytest.skip("a microcoded accelerator is not timed among others")
    never, faults = 0, 0
    for _ in range(8):
        work = {}
        for n in range(rng.randrange(1, 4 * len(system.accelerators))):
            part = rng.choice(system.accelerators)
            make = illegal_program if rng.random() < 0.15 else legal_program
            work[f"{n} {part.name}"] = make(rng, part.config)
        memory, starts = together(work, (0,) * len(work))
        jobs = []
        for n, (name, start) in enumerate(starts.items()):
            words = program_words(memory, start.program, start.pages)
            free = [m for m in range(n) if rng.random() < 0.3]
            earliest = rng.choice((0, 0, rng.randrange(5000)))
            jobs.append(Job(name.split()[1], words, start.program, start.base, tuple(free), earliest))
        expected = time_jobs(system, jobs, memory_bytes=len(memory))
        engine.reset()
        run = engine.run_jobs(memory, jobs)
        check_times(run, expected)
        never += run.origins.count(None)
        faults += sum(line is not None and line.fault is not None for line in run.timelines)
    assert never and faults


def test_layers_that_the_host_computes(engine: SystemEngine) -> None:
    """The host works on them in the cycles of its rule, and programs read what they have made."""
    system, rng = engine.system, random.Random(510171)
    if any(part.config.serial for part in system.accelerators):
        pytest.skip("a microcoded accelerator is not timed among others")
    interrupted = 0
    for _ in range(8):
        work = {}
        for n in range(rng.randrange(1, 4 * len(system.accelerators))):
            part = rng.choice(system.accelerators)
            work[f"{n} {part.name}"] = legal_program(rng, part.config)
        memory, starts = together(work, (0,) * len(work))
        models = {part.name: Model(part.config) for part in system.accelerators}  # whose SRAM outlives a run
        results, at = [], 0
        jobs = list[AnyJob]()
        for (name, start), program in zip(starts.items(), work.values(), strict=True):
            model = models[name.split()[1]]
            results.append(model.run(program.fresh_memory(), *program.arguments).memory)
            free = tuple(rng.sample(range(len(jobs)), min(len(jobs), rng.randrange(3))))
            if rng.random() < 0.6:  # the host makes the program's data
                whole = slice(at, at + len(program.memory))
                pages = slice(start.program, start.program + PAGE_BYTES * start.pages)
                own = memory[pages].copy()
                memory[whole] = 0
                memory[pages] = own

                def make(memory: np.ndarray, whole: slice = whole, content: np.ndarray = program.memory) -> None:
                    memory[whole] = content

                jobs.append(HostJob(rng.choice((1, rng.randrange(1, 200), rng.randrange(1, 9000))), free, work=make))
                free = (len(jobs) - 1,)
            words = program_words(memory, start.program, start.pages)
            earliest = rng.choice((0, 0, rng.randrange(5000)))
            jobs.append(Job(name.split()[1], words, start.program, start.base, free, earliest))
            at += len(program.memory)
        expected = time_jobs(system, jobs, memory_bytes=len(memory))
        engine.reset()
        run = engine.run_jobs(memory, jobs)
        check_times(run, expected)
        assert np.array_equal(memory, np.concatenate(results))
        for job, origin, end in zip(jobs, run.origins, run.ends, strict=True):
            if isinstance(job, HostJob):
                assert origin is not None and end is not None
                interrupted += end - origin > job.cycles
    assert interrupted


def test_cycles_in_which_only_the_host_works_are_passed_over(engine: SystemEngine) -> None:
    """A thousand million cycles in a moment, and all others as they are."""
    system = engine.system
    if any(part.config.serial for part in system.accelerators):
        pytest.skip("a microcoded accelerator is not timed among others")
    memory, starts = together(programs(system, 3), (0,) * len(system.accelerators))
    jobs = list[AnyJob]()
    for name, start in starts.items():
        words = program_words(memory, start.program, start.pages)
        jobs.append(HostJob(100_000_000, (len(jobs) - 1,) if jobs else ()))
        job = Job(name, words, start.program, start.base, (len(jobs) - 1,))
        jobs.append(job)
    jobs += [HostJob(3000), replace(job, after=(), earliest=500_000_000)]
    expected = time_jobs(system, jobs, memory_bytes=len(memory))
    assert expected.cycles > 500_000_000
    engine.reset()
    engine.limit, limit = 1 << 32, engine.limit
    try:
        check_times(engine.run_jobs(memory, jobs), expected)
    finally:
        engine.limit = limit


def test_what_the_host_raises_is_raised(engine: SystemEngine) -> None:
    def fail(memory: np.ndarray) -> None:
        raise ValueError("no such layer")

    with pytest.raises(ValueError, match=r"^no such layer$"):
        engine.run_jobs(np.zeros(4096, np.uint8), [HostJob(10, work=fail)])
    assert engine.run_jobs(np.zeros(4096, np.uint8), [HostJob(10)]).ends == (10,)


def check_times(run: JobTimes, expected: JobTimes) -> None:
    """Jobs of the RTL begin and end, and everything in them, when they are expected to."""
    assert (run.origins, run.ends) == (expected.origins, expected.ends)
    for n, (mine, other) in enumerate(zip(run.timelines, expected.timelines, strict=True)):
        if mine is None or other is None:
            assert mine is other is None
            continue
        assert (mine.cycles, mine.fault) == (other.cycles, other.fault), n
        assert mine.counters in ({}, other.counters)
        for column in ("unit", "op", "pc", "start", "end", "works"):
            np.testing.assert_array_equal(getattr(mine, column), getattr(other, column), f"{n} {column}")


@pytest.mark.parametrize("memory", ["sdram", "ddr3-1600-x16@400MHz", "lpddr4-3200-x16@90MHz"])
def test_memories_with_rows_and_refreshes(engine: SystemEngine, memory: str) -> None:
    """Programs at once, some of them illegal, before every kind of memory: to the cycle, and some cycles are lost."""
    fixed, rng, lost = engine.system, random.Random(990311), 0
    if any(part.config.serial for part in fixed.accelerators):
        pytest.skip("a microcoded accelerator is not timed among others")
    system = engine.system = replace(fixed, memory=memory_of(memory))
    try:
        for n in range(6):
            work = {
                part.name: (illegal_program if n > 3 and rng.random() < 0.5 else legal_program)(rng, part.config)
                for part in system.accelerators
            }
            contents, starts = together(work, tuple(rng.choice((0, rng.randrange(300))) for _ in work))
            image = contents.copy()
            engine.reset()
            lost += check_timelines(system, engine.run(contents, starts), image, starts)
    finally:
        engine.system = fixed
    assert lost > 0


def test_alone_an_accelerator_sees_a_slower_memory(engine: SystemEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without others, the interconnect is a constant: so the timeline is the model's, with a memory as much slower."""

    def reads(memory: MemoryTiming) -> Direction:
        return Direction(memory.read_latency + 3, memory.beat_cycles, 0)

    def writes(memory: MemoryTiming) -> Direction:
        return Direction(3, memory.beat_cycles, memory.write_latency + 2)

    monkeypatch.setattr(Direction, "reads", staticmethod(reads))
    monkeypatch.setattr(Direction, "writes", staticmethod(writes))
    forget()
    assert isinstance(engine.system.memory, MemoryTiming)
    if engine.system.memory.beat_cycles > 1:
        pytest.skip("write beats wait in the interconnect's buffer, not at the accelerator")
    for part in engine.system.accelerators:
        if part.config.serial:
            continue  # its microprogram waits for every burst: other rules
        program = legal_program(random.Random(11), part.config, count=8)
        memory = program.fresh_memory()
        engine.reset()
        run = engine.run(memory, {part.name: Start(program.program, program.pages, program.base)})
        model = Model(part.config.replace(memory=engine.system.memory))
        expected = model.run(program.fresh_memory(), *program.arguments)
        mine = run.results[part.name]
        assert (mine.cycles, mine.counters) == (expected.cycles, expected.counters)
        assert [*zip(mine.timeline.start, mine.timeline.end, strict=True)] == [
            *zip(expected.timeline.start, expected.timeline.end, strict=True)
        ]
    forget()


def test_the_host_reaches_every_accelerator(engine: SystemEngine) -> None:
    for part in engine.system.accelerators:
        assert engine.read_register(part.name, "ID") == ID
        assert engine.read_register(part.name, "CONFIG_HASH_LO") == part.config.hash & 0xFFFF_FFFF
    assert engine.read(9 * WINDOW) == (0, DECERR)
    assert engine.write(9 * WINDOW, 1) == DECERR


def test_a_run_that_does_not_end_is_an_error(engine: SystemEngine) -> None:
    engine.reset()
    work = programs(engine.system, 1)
    memory, starts = together(work, (0, 0, 0, 0))
    engine.limit, limit = 100, engine.limit
    with pytest.raises(RtlError, match=r"^no end after 100 cycles$"):
        engine.run(memory, starts)
    engine.limit = limit
    engine.reset()
    with pytest.raises(ValueError, match=r"^memory must be contiguous bytes, a multiple of 4096$"):
        engine.run(memory[1:], starts)


@pytest.mark.parametrize("name", SYSTEMS)
def test_borders(name: str) -> None:
    """Every output of a bus is a register, and no input reaches an output without one."""
    netlist = Netlist(SystemDesign(SYSTEMS[name], simulation=False))
    loose = {name for name, bit in netlist.outputs() if not netlist.from_register(bit)}
    assert sorted(name for name in loose if name.startswith((HOST_PREFIX, MEMORY_PREFIX))) == []
    assert sorted({name for name, bit in netlist.outputs() if netlist.reached_by_inputs(bit)}) == []
