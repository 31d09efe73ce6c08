"""Random programs: legal ones end well and never race, illegal ones reach every cause; all of them repeat by seed."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, Cause, Op, Unit, cfg, pack
from dovetail.isa.timing.run import time_program
from dovetail.isa.timing.timeline import Fault
from dovetail.sw.compiler.emit.hazards import races
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.accelerators import random_config
from dovetail.sw.random.programs.broken import illegal_program, settled
from dovetail.sw.random.programs.legal import RandomProgram, legal_program
from dovetail.sw.random.programs.registers import operations


def run(program: RandomProgram) -> tuple[Cause, bytes]:
    model = Model(program.config)
    result = model.run(program.fresh_memory(), *program.arguments)
    assert not races(result.timeline, program.base)
    for counters in result.counters.values():
        assert counters.busy + counters.config + counters.token + counters.idle == result.cycles
        assert min(counters.busy, counters.config, counters.token, counters.idle) >= 0
    return result.fault.cause if result.fault else Cause.NONE, result.memory.tobytes()


def test_legal_programs_end_well_and_cover_everything() -> None:
    seen = Counter[Op]()
    for seed in range(60):
        rng = random.Random(seed)
        config = random_config(rng)
        program = legal_program(rng, config)
        assert run(program)[0] == Cause.NONE
        seen.update(Op(w & 0xFF) for w in program.words)
    assert set(seen) == set(Op)


def test_illegal_programs_reach_every_cause() -> None:
    found = Counter[Cause]()
    for seed in range(400):
        rng = random.Random(seed)
        found[run(illegal_program(rng, random_config(rng), count=3))[0]] += 1
    assert set(found) == set(Cause), found


@pytest.mark.parametrize("make", [legal_program, illegal_program])
def test_a_seed_gives_one_program(make: Callable[[random.Random, Config], RandomProgram]) -> None:
    programs = []
    for _ in range(2):
        rng = random.Random(11)
        programs.append(make(rng, random_config(rng)))
    assert programs[0].words == programs[1].words
    assert np.array_equal(programs[0].memory, programs[1].memory)
    assert programs[0].config == programs[1].config


def test_only_what_the_configuration_has() -> None:
    config = Config(matmul=False, pooling=False, elementwise=False, activation=False, depthwise="none")
    program = legal_program(random.Random(0), config, count=40)
    units = {INSTRUCTIONS[Op(w & 0xFF)].unit for w in program.words}
    assert Unit.VECTOR not in units
    assert Op.DEPTH_CONV not in {w & 0xFF for w in program.words}
    assert operations(config) == [Op.DMA_READ, Op.DMA_WRITE, Op.CONV, Op.CONV_RELU]


def test_a_broken_order_is_trapped() -> None:
    """What is made to race in SRAM does, nearly always; sometimes the operation gets into somebody else's way first."""
    found = Counter[Cause]()
    for seed in range(60):
        rng = random.Random(seed)
        found[run(illegal_program(rng, random_config(rng), count=3, ways=("race",)))[0]] += 1
    assert found[Cause.RACE] > 45, found


def test_a_race_in_system_memory_is_found() -> None:
    """STORE writes what LOAD reads, at the same time: no fault, as nobody watches system memory."""
    words = []
    for unit in (Unit.LOAD, Unit.STORE):
        values = {"SRAM_BYTES": 1000, "LENGTH": 1000, "COUNT": pack(unit, "COUNT", rows=1, planes=1)}
        values |= {"MEM_ADDR": 4096 + 999 * unit // Unit.STORE, "SRAM_ADDR": 4096 * unit}
        words += [cfg(unit, name, value) for name, value in values.items()]
    words += [int(Op.DMA_READ), int(Op.DMA_WRITE), int(Op.END)]
    timeline = time_program(Config(), words)
    assert timeline.fault is None
    ((a, b),) = races(timeline)
    assert [int(timeline.op[n]) for n in (a, b)] == [Op.DMA_READ, Op.DMA_WRITE]
    words[words.index(cfg(Unit.STORE, "MEM_ADDR", 4096 + 999))] += 1 << 32
    assert races(time_program(Config(), words)) == []


def test_a_race_in_sram_is_trapped() -> None:
    """LOAD writes what STORE reads, at the same time: they use different ports; the one that comes second faults."""
    words = []
    for unit in (Unit.LOAD, Unit.STORE):
        values = {"SRAM_BYTES": 1000, "LENGTH": 1000, "COUNT": pack(unit, "COUNT", rows=1, planes=1)}
        values |= {"MEM_ADDR": 4096 * unit, "SRAM_ADDR": 999 * unit // Unit.STORE}
        words += [cfg(unit, name, value) for name, value in values.items()]
    words += [int(Op.DMA_READ), int(Op.DMA_WRITE), int(Op.END)]
    timeline = time_program(Config(), words)
    assert timeline.fault == Fault(Cause.RACE, words.index(int(Op.DMA_WRITE)))
    words[words.index(cfg(Unit.STORE, "SRAM_ADDR", 999))] += 1 << 32
    assert time_program(Config(), words).fault is None


def test_a_program_that_writes_its_own_pages_is_not_settled() -> None:
    program = legal_program(random.Random(2), random_config(random.Random(2)))
    assert settled(program)
    values = {"SRAM_BYTES": 1, "LENGTH": 1, "COUNT": pack(Unit.STORE, "COUNT", rows=1, planes=1)}
    end = program.program + program.pages * PAGE_BYTES - program.base
    for address, outcome in ((end - 1, False), (end, True)):
        changes = [cfg(Unit.STORE, name, value) for name, value in (values | {"MEM_ADDR": address}).items()]
        words = (*changes, int(Op.DMA_WRITE), int(Op.END))
        assert settled(replace(program, words=words)) == outcome
