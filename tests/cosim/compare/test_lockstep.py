"""Random programs, legal and illegal, on model and RTL: equal in every byte, cycle, counter and fault."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.compare.fuzz import Case, fuzz, load, random_case, save, shrink
from dovetail.cosim.compare.lockstep import Comparison, Lockstep, compare
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Cause, Op, Unit
from dovetail.isa.timing.timeline import Counters, Fault
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.engine import RunResult

SMALL = {
    "8x8": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB"),
    "3x5": Config(ic_lanes=3, oc_lanes=5, sram="40 KiB", banks=5, bus=32, outstanding=1, requant_lanes=2, stripe=7),
    "2x3x4": Config(ic_lanes=2, oc_lanes=3, pixel_lanes=4, sram="40 KiB", banks=5, bus=32),
    "parameters": Config(ic_lanes=2, oc_lanes=4, sram="32 KiB", banks=16, bus=32, stripe=8, parameters=3),
}
LARGE = {
    "1x64": Config(ic_lanes=1, oc_lanes=64, sram="128 KiB", bus=128),
    "64x1": Config(ic_lanes=64, oc_lanes=1, sram="128 KiB"),
    "16x16": Config(ic_lanes=16, oc_lanes=16, sram="96 KiB", bus=256, outstanding=16, vector_lanes=16),
    "emulated": Config(ic_lanes=4, oc_lanes=12, sram="64 KiB", depthwise="emulated", requant_lanes=5),
    "512-bit": Config(ic_lanes=5, oc_lanes=3, sram="64 KiB", bus=512, outstanding=2, stripe=1, vector_lanes=1),
    "small": Config(
        ic_lanes=1,
        oc_lanes=1,
        sram="32 KiB",
        banks=4,
        pooling=False,
        elementwise=False,
        activation=False,
        depthwise="none",
    ),
    "norm": Config(ic_lanes=2, oc_lanes=4, sram="32 KiB", pooling=False, elementwise=False, activation=False, norm=1),
    "norm of 16 bits": Config(
        ic_lanes=2, oc_lanes=4, sram="64 KiB", pooling=False, activation=False, norm=4, norm_bits=16, vector_lanes=3
    ),
    # Old sums of DEPTH_CONV in several words of each of several sets of weights.
    "words and sets": Config(ic_lanes=2, oc_lanes=8, pixel_lanes=2, sram="64 KiB", banks=4, bus=32),
    "vector lanes": Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2, sram="64 KiB", banks=4, vector_lanes=24),
    "result pairs": Config(ic_lanes=2, oc_lanes=8, pixel_lanes=4, sram="64 KiB", bus=32, requant_lanes=16),
    "result pairs of more": Config(ic_lanes=1, oc_lanes=16, pixel_lanes=4, sram="64 KiB", requant_lanes=40, banks=4),
    "stripes": Config(ic_lanes=2, oc_lanes=8, sram="64 KiB", stripe=64, requant_lanes=8),
}


def regressions() -> Iterator[Any]:
    """The kept cases; what needs a build of its own is slow."""
    built = {config.hash for config in SMALL.values()}
    for path in sorted((Path(__file__).parent / "regressions").glob("*.toml")):
        marks = () if load(path).program.config.hash in built else pytest.mark.slow
        yield pytest.param(path, id=path.stem, marks=marks)


def agree(config: Config, cache: Path, seeds: range) -> None:
    for failure in fuzz(Lockstep(config, cache=cache), seeds):
        pytest.fail(f"seed {failure.seed}: {failure.comparison.first_difference}")


@pytest.mark.parametrize("name", SMALL)
def test_random_programs(build_cache: Path, name: str) -> None:
    agree(SMALL[name], build_cache, range(40))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_many_random_programs(build_cache: Path, name: str) -> None:
    agree((SMALL | LARGE)[name], build_cache, range(40, 300))


@pytest.mark.parametrize("path", list(regressions()))
def test_what_once_differed(build_cache: Path, path: Path) -> None:
    case = load(path)
    comparison = case.run(Lockstep(case.program.config, cache=build_cache))
    assert comparison.equal, comparison.first_difference


# --- the comparison itself ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result() -> RunResult:
    program = legal_program(random.Random(1), SMALL["8x8"])
    return Model(program.config).run(program.fresh_memory(), *program.arguments)


def changed(result: RunResult, **changes: Any) -> Comparison:
    return compare(result, replace(result, **changes))


def test_equal_runs_are_equal(result: RunResult) -> None:
    comparison = compare(result, replace(result, memory=result.memory.copy()))
    assert comparison.equal
    assert comparison == Comparison(True, result.cycles, result.cycles, True, True, True, "")


def test_first_difference_names_the_place(result: RunResult) -> None:
    memory = result.memory.copy()
    memory[77] ^= 1
    comparison = changed(result, memory=memory)
    assert not comparison.bytes_equal and comparison.timeline_equal
    assert comparison.first_difference.startswith("memory: 1 bytes differ, first at 0x4d: model 0x")

    comparison = changed(result, cycles=result.cycles + 1)
    assert comparison.first_difference == f"cycles: model {result.cycles}, RTL {result.cycles + 1}"

    comparison = changed(result, counters={**result.counters, Unit.STORE: Counters(1, 2, 3, 4)})
    assert not comparison.counters_equal
    assert "STORE counters: model Counters(" in comparison.first_difference

    comparison = changed(result, fault=Fault(Cause.OPCODE, 3))
    assert not comparison.fault_equal
    assert "fault: model " in comparison.first_difference


def test_first_timeline_difference_is_the_earliest(result: RunResult) -> None:
    timeline = result.timeline
    end = timeline.end.copy()
    order = np.argsort(timeline.start, kind="stable")
    end[order[-1]] += 5
    end[order[1]] += 1
    comparison = changed(result, timeline=replace(timeline, end=end))
    n = int(order[1])
    op = int(timeline.op[n])
    name = Op(op).name if op else "fetch"
    assert f"timeline: model {name}" in comparison.first_difference
    assert f"cycles {timeline.start[n]}..{timeline.end[n]}; RTL" in comparison.first_difference
    assert comparison.first_difference.endswith(f"cycles {timeline.start[n]}..{timeline.end[n] + 1}")


# --- shrinking and keeping ------------------------------------------------------------------------------------------


def test_a_failing_case_shrinks_to_its_cause(tmp_path: Path) -> None:
    config = SMALL["8x8"]
    model = Model(config)

    def has_two_stores(case: Case) -> bool:
        program = case.program
        model.write_sram(case.sram())
        timeline = model.time(program.memory, *program.arguments)
        return int((timeline.op == Op.DMA_WRITE).sum()) >= 2

    case = next(c for c in (random_case(config, seed) for seed in range(100)) if has_two_stores(c))
    small = shrink(case, has_two_stores)
    assert has_two_stores(small)
    assert len(small.program.words) < len(case.program.words) // 2
    small = replace(small, sram_seed=19112301000020000001)
    save(tmp_path / "case.toml", small, "two stores\nof something")
    again = load(tmp_path / "case.toml")
    assert again.program.words == small.program.words
    assert np.array_equal(again.program.memory, small.program.memory)
    assert (again.program.config, again.sram_seed) == (small.program.config, small.sram_seed)
    save(tmp_path / "whole.toml", case, "with data")
    again = load(tmp_path / "whole.toml")
    assert np.array_equal(again.program.memory, case.program.memory)
