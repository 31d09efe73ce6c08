"""Faults: bus errors, slow memory, resets, needless starts, corrupted programs. Both engines end alike, in time, touch
nothing else, and go on."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.compare.faults import (
    FOLLOWED,
    KINDS,
    LONG,
    bus_errors,
    next_program,
    reset,
    run_flips,
    run_kind,
    sampled_bits,
    setting_of,
    slow_memory,
    stored,
    untouched,
)
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.cosim.rtl.setting import Setting, settings_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import BY_NUMBER, Cause, Op, Unit, cfg, pack, to_bytes
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.compiled_network import compile_network

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")


@pytest.fixture(scope="module")
def pair(build_cache: Path) -> Lockstep:
    return Lockstep(CONFIG, cache=build_cache)


@pytest.fixture(scope="module")
def network() -> Setting:
    compiled = compile_network("zoo:dscnn", CONFIG)
    port = compiled.graph.inputs[0]
    sample = np.random.default_rng(1).integers(-128, 128, port.shape, np.int8)
    return settings_of(compiled, sample)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(build_cache: Path, kind: str) -> None:
    record = run_kind(CONFIG, kind, range(20), build_cache)
    assert record.wrong == []
    assert record.runs == sum(record.causes.values()) == 20


def test_bus_errors_reach_their_causes(build_cache: Path) -> None:
    causes = run_kind(CONFIG, "bus errors", range(100, 160), build_cache).causes
    assert set(causes) == {Cause.NONE, Cause.BUS_READ, Cause.BUS_WRITE, Cause.BUS_FETCH}


def test_flipped_bits_of_a_network(build_cache: Path, network: Setting) -> None:
    record = run_flips(CONFIG, network, sampled_bits(network.text, 60, 0), build_cache)
    assert record.wrong == []
    assert len(record.causes) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_flipped_bits(build_cache: Path, network: Setting, part: int) -> None:
    record = run_flips(CONFIG, network, sampled_bits(network.text, 2000, 1)[part::4], build_cache)
    assert record.wrong == []


ODD = Config(ic_lanes=3, oc_lanes=5, sram="40 KiB", banks=5, bus=32, outstanding=1, requant_lanes=2, stripe=7)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_of_each_kind(build_cache: Path, kind: str) -> None:
    assert run_kind(ODD, kind, range(1000, 1300), build_cache).wrong == []


def test_reset_while_old_values_pass(build_cache: Path) -> None:
    """The array once kept them, and added them to every sum of the next program."""
    assert run_kind(ODD, "reset", range(1165, 1176), build_cache).wrong == []


def test_a_program_that_lasts_for_ages_is_followed(build_cache: Path, network: Setting) -> None:
    """The uppermost bit of a tile's width makes it 2^15 times as wide, within the checks."""
    words = np.frombuffer(network.text, np.uint64)
    where = [n for n, w in enumerate(words.tolist()) if w & 0xFF == Op.CFG and BY_NUMBER[w >> 8 & 0xFF].name == "TILE"]
    bit = where[0] * 64 + 63
    record = run_flips(CONFIG, network, [bit], build_cache)
    assert (record.runs, record.long, record.wrong) == (1, 1, [])
    corrupted = network.flipped(bit)
    timeline = Model(CONFIG).time(corrupted.memory, *corrupted.arguments)
    assert timeline.cycles > LONG > FOLLOWED and timeline.fault is None


# --- the checks find what they are for ------------------------------------------------------------------------------


def store(address: int, length: int, rows: int = 1, step: int = 0) -> list[int]:
    values = {"MEM_ADDR": address, "MEM_ROW_STEP": step, "LENGTH": length, "SRAM_BYTES": length}
    values["COUNT"] = pack(Unit.STORE, "COUNT", rows=rows, planes=1)
    return [*(cfg(Unit.STORE, name, value) for name, value in values.items()), int(Op.DMA_WRITE)]


def test_stored_bytes() -> None:
    memory = np.zeros(16384, np.uint8)
    words = [*store(8192, 10, 3, 20), *store((1 << 32) - 4096 - 4, 8), int(Op.END)]
    memory[: 8 * len(words)] = np.frombuffer(to_bytes(words), np.uint8)
    timeline = Model(CONFIG).time(memory, 0, 1, 4096)
    found = np.flatnonzero(stored(timeline, 4096, len(memory))).tolist()
    rows = [4096 + 8192 + 20 * n + i for n in range(3) for i in range(10)]
    assert found == [0, 1, 2, 3, *rows], "the second store wraps around the address space"
    setting = Setting(memory, 0, 1, 4096, sram=np.zeros(0, np.uint8))
    after = memory.copy()
    after[rows] = 1
    assert untouched(setting, after, timeline) == ""
    after[rows[-1] + 1] = 1
    assert untouched(setting, after, timeline) == f"memory: byte {rows[-1] + 1:#x} changed, which is no store's"


def test_next_program_says_what_is_wrong(pair: Lockstep, monkeypatch: pytest.MonkeyPatch) -> None:
    assert next_program(pair, random.Random(1)) == ""
    pair.rtl.write_sram(np.ones(CONFIG.sram, np.uint8))
    pair.model.write_sram(np.zeros(CONFIG.sram, np.uint8))
    assert re.match(r"next program: (SRAM|memory): \d+ bytes differ", next_program(pair, random.Random(1)))
    pair.reset()


def test_an_rtl_that_ignores_errors_is_found(pair: Lockstep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RtlEngine, "broken", property(lambda self: (), lambda self, parts: None), raising=False)
    found = []
    for seed in range(12):
        rng = random.Random(seed)
        found.append(bus_errors(pair, setting_of(legal_program(rng, CONFIG, count=6), 1), rng)[1])
    assert any("fault: model Fault(cause=<Cause.BUS" in text or "timeline" in text for text in found)


def test_stalls_are_counted(pair: Lockstep) -> None:
    setting = setting_of(legal_program(random.Random(4), CONFIG, count=6), 1)
    pair.rtl.write_sram(setting.sram)
    fast = pair.rtl.run(setting.memory.copy(), *setting.arguments).cycles
    pair.rtl.write_sram(setting.sram)
    pair.rtl.stall(3, one_in=2, longest=40)
    slow = pair.rtl.run(setting.memory.copy(), *setting.arguments).cycles
    stalled = pair.rtl.stalled
    pair.rtl.stall(0, one_in=0, longest=1)
    assert fast < slow <= fast + stalled
    pair.reset()
    assert slow_memory(pair, setting, random.Random(1)) == (Cause.NONE, "")


def test_a_reset_that_leaves_something_is_found(pair: Lockstep, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = setting_of(legal_program(random.Random(9), CONFIG, count=6), 1)
    assert reset(pair, setting, random.Random(2)) == (Cause.NONE, "")
    with monkeypatch.context() as patch:
        patch.setattr(RtlEngine, "pulse_reset", lambda self: self.finish())
        text = reset(pair, setting, random.Random(2))[1]
    assert text.endswith("after the reset")
    pair.reset()


def test_finish_needs_start(pair: Lockstep) -> None:
    with pytest.raises(ValueError, match="finish must follow start"):
        pair.rtl.finish()


def test_settings_of_a_network(network: Setting) -> None:
    assert network.sram.shape == (CONFIG.sram,)
    assert not network.sram.any()
    flipped = network.flipped(9)
    assert [n for n, (a, b) in enumerate(zip(network.text, flipped.text, strict=True)) if a != b] == [1]
