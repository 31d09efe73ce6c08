"""Two accelerators on one board: from frames on the UART's pins to bytes, in the cycles that the rule says."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.cosim.rtl.rtl_engine import timeline_of
from dovetail.hw.board.design import BoardDesign
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import Part, System
from dovetail.isa.instructions.table import to_bytes
from dovetail.isa.link import START_GAP
from dovetail.isa.timing.jobs import HostJob, Job
from dovetail.isa.timing.sequencer import as_words
from dovetail.isa.timing.system import Begun, time_system
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.broken import illegal_program
from dovetail.sw.random.programs.legal import RandomProgram, legal_program
from dovetail.sw.runtime.board.board_system import BoardSystem
from dovetail.sw.runtime.board.link import LinkError
from dovetail.sw.runtime.engine import RunResult, without_timeline
from tests.cosim.rtl.test_c_host import copy
from tests.cosim.rtl.test_system import WIDE, together
from tests.cosim.rtl.tiny import TINY

pytestmark = pytest.mark.slow  # a board takes half a minute to build
CLOCK = 80_000_000
SIZE = 256 << 10
MEMORIES = {"bram": BoardMemory("bram", SIZE), "sdram": BoardMemory("sdram", 32 << 20)}


class Setting(NamedTuple):
    """A board, what it holds, and its memory."""

    board: SimulatedBoard
    system: System
    memory: BoardMemory


@pytest.fixture(scope="module", params=MEMORIES)
def setting(request: pytest.FixtureRequest, build_cache: Path) -> Iterator[Setting]:
    pytest.importorskip("serial", reason="pyserial is not installed")
    memory = MEMORIES[request.param]
    system = System(
        (Part("left", TINY.replace(bus=64), 0x1000), Part("right", WIDE, 0)),
        memory=memory.timing_at(CLOCK, joined=True),
        memory_bytes=memory.bytes,
    )
    with SimulatedBoard(system, memory=memory, cache=build_cache, divisor=4, clock_hz=CLOCK) as board:
        yield Setting(board, system, memory)


@pytest.fixture
def host(setting: Setting) -> Iterator[BoardSystem]:
    with BoardSystem(setting.system, setting.board.port, setting.board.baud, patience=60) as host:
        yield host
        assert host.link.repeated == 0


@pytest.fixture(scope="module")
def models(setting: Setting) -> dict[str, Model]:
    """Of the accelerators, whose SRAM keeps what runs leave there."""
    fixed = MEMORIES["bram"].timing
    assert fixed is not None
    return {part.name: Model(part.config.replace(memory=fixed)) for part in setting.system.accelerators}


def jobs_of(work: dict[str, RandomProgram]) -> tuple[np.ndarray, list[Job]]:
    """A memory with that of each program behind the other's, and a job for each."""
    memory, starts = together(work, (0, 0))
    whole = np.zeros(SIZE, np.uint8)
    whole[: len(memory)] = memory
    return whole, [Job(name, work[name].words, start.program, start.base) for name, start in starts.items()]


def expected_bytes(models: dict[str, Model], work: dict[str, RandomProgram]) -> np.ndarray:
    """Memory after each program alone."""
    runs = [models[name].run(program.fresh_memory(), *program.arguments) for name, program in work.items()]
    return np.concatenate([run.memory for run in runs])


def check_runs(setting: Setting, jobs: list[Job], results: Sequence[RunResult | None]) -> list[int]:
    """Everything of the latest runs is in the cycle that the rule says; from the first run's cycle 0 to each one's."""
    numbers = {part.name: k for k, part in enumerate(setting.system.accelerators)}
    seen = [setting.board.latest_run(numbers[job.accelerator]) for job in jobs]
    first = min(origin for origin, _ in seen)
    begun = {
        job.accelerator: Begun(job.words, job.address, job.base, origin - first)
        for job, (origin, _) in zip(jobs, seen, strict=True)
    }
    expected = time_system(setting.system, begun)
    for job, result, (_, rows) in zip(jobs, results, seen, strict=True):
        line, config = expected[job.accelerator], setting.system[job.accelerator].config
        assert result is not None
        assert (result.cycles, result.counters, result.fault) == (line.cycles, line.counters, line.fault)
        mine = timeline_of(rows, config, as_words(job.words), result.cycles, result.counters, result.fault)
        for column in ("unit", "op", "pc", "start", "end", "works"):
            np.testing.assert_array_equal(getattr(mine, column), getattr(line, column), f"{job.accelerator} {column}")
    return [begun[job.accelerator].cycle for job in jobs]


def test_programs_at_once(setting: Setting, host: BoardSystem, models: dict[str, Model]) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        work = {part.name: legal_program(rng, part.config, count=8) for part in setting.system.accelerators}
        memory, jobs = jobs_of(work)
        results = host.run_jobs(memory, jobs)
        wanted = expected_bytes(models, work)
        assert np.array_equal(memory[: len(wanted)], wanted)
        assert check_runs(setting, jobs, results) == [0, START_GAP]


def test_faults_in_one_while_the_other_goes_on(setting: Setting, host: BoardSystem) -> None:
    faults = set()
    for seed in range(8):
        rng = random.Random(seed)
        makers = rng.sample((illegal_program, legal_program), 2)
        work = {
            part.name: make(rng, part.config) for part, make in zip(setting.system.accelerators, makers, strict=True)
        }
        memory, jobs = jobs_of(work)
        results = host.run_jobs(memory, jobs)
        check_runs(setting, jobs, results)
        faults |= {result.fault.cause for result in results if result and result.fault}
    assert len(faults) > 2


def test_a_run_that_begins_in_the_middle_of_another(setting: Setting, host: BoardSystem) -> None:
    """Memory keeps its history then. The registers still name the programs of the run before."""
    rng = random.Random(7)
    work = {
        part.name: legal_program(rng, part.config, count=count)
        for part, count in zip(setting.system.accelerators, (200, 20), strict=True)
    }
    memory, jobs = jobs_of(work)
    host.run_jobs(memory.copy(), jobs)
    windows = [part.registers for part in setting.system.accelerators]
    for number, window in enumerate(windows):
        host.link.start(1 << number, window)
    while host.link.wait(1_000_000) != 3:
        pass
    results = [without_timeline(memory, partial(host.link.read_register, window=window)) for window in windows]
    _, later = check_runs(setting, jobs, results)
    assert START_GAP < later < results[0].cycles


def test_boards_that_cannot_be() -> None:
    def design(*parts: Config) -> BoardDesign:
        system = System(tuple(Part(f"a{n}", config, n << 12) for n, config in enumerate(parts)))
        return BoardDesign(system, clock_hz=CLOCK, baud=1_000_000, memory=MEMORIES["sdram"])

    with pytest.raises(ValueError, match=r"^accelerators of a board must all have the bus of its memory$"):
        design(TINY, WIDE)
    with pytest.raises(ValueError, match=r"at most 16 bursts outstanding, all together, not 18$"):
        design(WIDE.replace(outstanding=16), WIDE.replace(outstanding=2))


def test_jobs_that_wait(host: BoardSystem) -> None:
    """Each copies what the one before it has stored on the other accelerator. Nothing waits for what has faulted."""
    data = np.random.default_rng(1).integers(0, 256, 512).astype(np.uint8)
    memory = np.zeros(SIZE, np.uint8)
    memory[:512] = data
    programs = [to_bytes(copy(0x1000 * n, 0x1000 * n + 0x1000, 512)) for n in range(3)]
    for n, words in enumerate(programs):
        memory[0x8000 + 0x1000 * n :][: len(words)] = np.frombuffer(words, np.uint8)
    jobs = [
        Job(name, words, 0x8000 + 0x1000 * n, after=(n - 1,) if n else ())
        for n, (name, words) in enumerate(zip(("left", "right", "left"), programs, strict=True))
    ]
    results = host.run_jobs(memory, jobs)
    assert all(result and result.fault is None for result in results)
    for at in (0x1000, 0x2000, 0x3000):
        assert np.array_equal(memory[at : at + 512], data)

    broken = memory.copy()
    broken[0x8000:0x8400] = 0xFF
    jobs[0] = replace(jobs[0], words=broken[0x8000:0x8400].tobytes())
    first, *others = host.run_jobs(broken, jobs)
    assert first is not None and first.fault is not None and others == [None, None]


def test_what_a_board_is_told(setting: Setting, host: BoardSystem) -> None:
    memory = np.zeros(4096, np.uint8)
    with pytest.raises(ValueError, match=r"^jobs on a board must have no earliest cycle$"):
        host.run_jobs(memory, [Job("left", (), earliest=1)])
    with pytest.raises(ValueError, match=r"^jobs on a board must be programs, not layers that the host computes$"):
        host.run_jobs(memory, [Job("left", ()), HostJob(1)])
    with pytest.raises(LinkError, match="the board refuses START at 0x4: RANGE"):
        host.link.start(4)
    host.close()
    alone = System(setting.system.accelerators[:1])
    with pytest.raises(LinkError, match="the board must have the system's number of accelerators, 1, not 2"):
        BoardSystem(alone, setting.board.port, setting.board.baud, patience=60)
    other = System((setting.system.accelerators[0], Part("right", TINY.replace(bus=64), 0)))
    with pytest.raises(LinkError, match="the bitstream must be of configuration"):
        BoardSystem(other, setting.board.port, setting.board.baud, patience=60)
