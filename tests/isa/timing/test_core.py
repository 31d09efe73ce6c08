"""The compiled core against the plain one, and what happens without a compiler."""

import os
import random
import subprocess
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from dovetail.isa.instructions.checks import REGIONS
from dovetail.isa.instructions.table import PAGE_WORDS, QUEUE_DEPTH, Cause, Op, Unit, cfg, sync
from dovetail.isa.timing.core import engine, recurrence
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.sequencer import CHECK, Int64s
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.broken import illegal_program
from dovetail.sw.random.programs.legal import RandomProgram, legal_program

COMPILED = engine.library()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is compiled, until it is undone."""
    if COMPILED is None:
        pytest.skip("no C++ compiler: there is only the plain core")
    monkeypatch.setattr(engine, "library", lambda: None)
    return monkeypatch


def timed(program: RandomProgram, broken: tuple[tuple[int, int], ...]) -> Timeline:
    return time_program(
        program.config,
        program.words,
        address=program.program,
        base=program.base,
        memory_bytes=len(program.memory),
        parameters=program.parameters,
        broken=broken,
    )


def assert_equal(one: Timeline, other: Timeline) -> None:
    for name in ("unit", "op", "pc", "start", "end", "works", "waits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)
    assert list(one.registers) == list(other.registers)
    assert (one.cycles, one.fault, one.counters) == (other.cycles, other.fault, other.counters)


@pytest.mark.parametrize("seed", range(20))
def test_whole_programs(seed: int, plain: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    programs = [
        make(rng, config, count=rng.choice((3, 12))) for make in (legal_program, illegal_program, illegal_program)
    ]
    holes = [() if rng.random() < 0.7 else ((64 * rng.randrange(2000), 64 * rng.randint(1, 9)),) for _ in programs]
    one = [timed(program, hole) for program, hole in zip(programs, holes, strict=True)]
    plain.undo()
    for program, hole, expected in zip(programs, holes, one, strict=True):
        assert_equal(timed(program, hole), expected)


def words_of(rng: random.Random, count: int) -> list[int]:
    units = list(Unit)
    return [
        rng.choice(
            (
                cfg(Unit.LOAD, "LENGTH", 1),
                sync(rng.choice(units), rng.choice(units), rng.choice((0, 1, 2, 9))),
                int(rng.choice((Op.DMA_READ, Op.CONV, Op.MOV, Op.DMA_WRITE))),
            )
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_faults(seed: int) -> None:
    """Words, durations and regions at random: conflicts and races of two and three units, errors of the bus, lost
    pages, words that are refused."""
    if COMPILED is None:
        pytest.skip("no C++ compiler: there is only the plain core")
    rng = random.Random(seed)
    words = np.array(words_of(rng, rng.choice((0, 5, 40, 127, 128, 300))), np.uint64)
    count = sum(map(recurrence.is_operation, words.tolist()))
    pages = len(words) // PAGE_WORDS + rng.choice((1, 2))

    def some(values: Sequence[int], length: int = count) -> Int64s:
        return np.array([rng.choice(values) for _ in range(length)], np.int64)

    spaces = [
        [rng.randrange(900), rng.randint(1, 90)] if rng.random() < 0.3 else [0, 0] for _ in range(REGIONS * count)
    ]
    work = recurrence.Work(
        words=words,
        cycles=some(range(CHECK, 60)),
        causes=some((Cause.SRAM_RANGE, *[0] * 30)),
        errors=some((Cause.BUS_READ, *[0] * 10)),
        regions=np.array(spaces, np.int64).reshape(count, REGIONS, 2),
        fetches=some(range(20, 90), pages),
        lost=some((Cause.BUS_FETCH, *[0] * 5), pages),
        stopped=rng.choice((0, 0, Cause.OPCODE)),
        bank_bytes=100,
    )
    one, other = engine.run(work), recurrence.run(work)
    for name, mine, theirs in zip(one._fields, one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs, name)
    lasting = some(range(CHECK, 60), count + pages)
    for depth in (2, QUEUE_DEPTH, 1000):
        for mine, theirs in zip(
            engine.play(words, pages, lasting, depth), recurrence.play(words, pages, lasting, depth), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("seed", range(20))
def test_growing_programs(seed: int) -> None:
    if COMPILED is None:
        pytest.skip("no C++ compiler: there is only the plain core")
    rng = random.Random(seed)
    one, other = engine.clock(50), recurrence.Clock(50)
    taken: array[int] = array("Q")
    for _ in range(rng.choice((5, 200))):
        first, cycles = len(taken), rng.choice((3, rng.randrange(300)))
        taken.extend(words_of(rng, rng.randint(0, 4)))
        for clock in (one, other):
            clock.add(taken, first, cycles)
        assert list(one.free) == other.free
        for unit in Unit:
            assert one.ready(unit, 6) == other.ready(unit, 6)
    assert one.end() == other.end()
    assert (list(one.free), one.begun, one.ended) == (other.free, other.begun, other.ended)


def run(*code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    program = "; ".join(("from dovetail.isa.timing.core import engine", *code))
    settings = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", program], env=settings, text=True, capture_output=True, timeout=60)


def assert_warned(done: "subprocess.CompletedProcess[str]", why: str = "") -> None:
    """In one line."""
    assert done.stderr.startswith(f"warning: timing runs in Python, which is slower: {why}")
    assert done.stderr.count("\n") == 1


def test_without_a_compiler_nothing_is_said(tmp_path: Path) -> None:
    done = run("print(engine.library())", PATH=str(tmp_path))
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_compiler_that_fails_is_one_line(tmp_path: Path) -> None:
    tool = tmp_path / "g++"
    tool.write_text("#!/bin/sh\necho no space left\nexit 3\n")
    tool.chmod(0o755)
    done = run(
        "print(engine.library(), engine.library())", PATH=f"{tmp_path}:/usr/bin:/bin", XDG_CACHE_HOME=str(tmp_path)
    )
    assert done.stdout == "None None\n"
    assert_warned(done, "g++ failed with exit code 3; log: ")


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    if COMPILED is None:
        pytest.skip("no C++ compiler")
    (tmp_path / "dovetail").write_text("a file")
    done = run("print(engine.library())", XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout == "None\n"
    assert_warned(done)


def test_processes_at_the_same_time_compile_it_once(tmp_path: Path) -> None:
    if COMPILED is None:
        pytest.skip("no C++ compiler")
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from dovetail.isa.timing.core import engine; print(engine.library() is not None)"]
    workers = [subprocess.Popen(command, env=settings, text=True, stdout=subprocess.PIPE) for _ in range(3)]
    assert [worker.communicate(timeout=120)[0] for worker in workers] == ["True\n"] * 3
    assert len(list(tmp_path.glob("dovetail/*/dut.so"))) == 1
