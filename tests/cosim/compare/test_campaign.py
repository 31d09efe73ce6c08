"""Campaigns of random programs: what they count, how they repeat, and what happens when the engines differ."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.compare import campaign
from dovetail.cosim.compare.campaign import Tally, difference, run_campaign, run_share, shares
from dovetail.cosim.compare.fuzz import load, random_case
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.coverage.bins import cover, executed_words
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_WORDS, Cause, Op, Unit, cfg
from dovetail.isa.timing.run import time_program
from dovetail.sw.runtime.engine import Bytes, RunResult

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")


def test_shares() -> None:
    parts = shares([CONFIG] * 4, seed=7, programs=10, count=5)
    assert [part.programs for part in parts] == [3, 3, 2, 2]
    seeds = [seed for part in (*parts, *shares([CONFIG] * 4, seed=8, programs=10, count=5)) for seed in part.seeds()]
    assert len(set(seeds)) == len(seeds) == 20


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([cfg(Unit.LOAD, "LENGTH", 1), int(Op.END), int(Op.END)], 2),
        ([cfg(Unit.LOAD, "LENGTH", 1), 0xFF, int(Op.END)], 2),
        ([cfg(Unit.LOAD, "LENGTH", 1)] * PAGE_WORDS, PAGE_WORDS),
        ([int(Op.DMA_READ)] + [cfg(Unit.STORE, "LENGTH", 1)] * 99 + [int(Op.END)], 1),
    ],
    ids=["end", "opcode", "no end", "zero size"],
)
def test_executed_words(words: list[int], count: int) -> None:
    assert executed_words(words, time_program(CONFIG, words)) == count


def test_executed_words_of_a_failed_fetch() -> None:
    words = [cfg(Unit.LOAD, "LENGTH", 1)] * 300
    timeline = time_program(CONFIG, words, address=4096 - 1024, memory_bytes=4096)
    assert timeline.fault is not None and timeline.fault.cause == Cause.BUS_FETCH
    assert executed_words(words, timeline) == PAGE_WORDS
    words[122] = words[200] = Op.SYNC | 168 << 8
    assert ("words", "none", "BUS_FETCH") in cover(CONFIG, words, timeline), "what is not executed does not count"


def test_a_campaign_counts_and_repeats(build_cache: Path) -> None:
    parts = shares([CONFIG], seed=1, programs=12, count=6)
    tallies = [tally for _, tally in run_campaign(parts, cache=build_cache)]
    again = run_share(parts[0], build_cache, None)
    assert tallies == [again]
    assert not again.differences
    assert again.programs == sum(again.causes.values()) == 12
    assert again.operations == sum(again.opcodes.values()) > 12
    assert again.words > again.operations
    total = Tally()
    total += again
    total += again
    assert (total.programs, total.cycles) == (24, 2 * again.cycles)
    assert total.opcodes[Op.CONV] == 2 * again.opcodes[Op.CONV]


def test_a_difference_is_shrunk_and_saved(build_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An RTL that spoils the memory of whoever stores something."""
    original = RtlEngine.run

    def spoilt(self: RtlEngine, memory: Bytes, program: int, *arguments: Any) -> RunResult:
        result = original(self, memory, program, *arguments)
        if program and (result.timeline.op == Op.DMA_WRITE).any():
            result.memory[0] ^= 1
        return result

    monkeypatch.setattr(RtlEngine, "run", spoilt)
    monkeypatch.setattr(campaign, "MAX_FAILURES", 1)
    share = shares([CONFIG], seed=2, programs=50, count=6)[0]
    tally = run_share(share, build_cache, tmp_path / "failures")
    assert len(tally.differences) == 1
    found = tally.differences[0]
    assert found.text.startswith("memory: 1 bytes differ, first at 0x0")
    assert found.path == tmp_path / "failures" / f"seed-{found.seed}.toml"
    case = load(found.path)
    assert sum(word == Op.DMA_WRITE for word in case.program.words) == 1
    assert len(case.program.words) < 12
    now = difference(case, Lockstep(case.program.config, cache=build_cache))
    assert now.startswith("memory: 1 bytes differ, first at 0x0")  # it may hold another byte than before shrinking
    assert found.path.read_text().startswith(f"# {now}\n")
    monkeypatch.undo()
    assert difference(case, Lockstep(case.program.config, cache=build_cache)) == ""


def test_an_engine_that_breaks_down_differs(build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Lockstep(CONFIG, cache=build_cache)
    case = random_case(CONFIG, 5, count=3)
    pair.rtl.write_sram(np.ones(CONFIG.sram, np.uint8))
    assert difference(replace(case, sram_seed=1), pair) == ""

    def breaks(*_: object) -> RunResult:
        raise IndexError("no such byte")

    with monkeypatch.context() as patch:
        patch.setattr(pair.model, "run", breaks)
        patch.setattr(Lockstep, "timing", property(lambda self: None, lambda self, timing: None))
        assert difference(case, pair) == "IndexError: no such byte"
    assert difference(case, pair) == ""
