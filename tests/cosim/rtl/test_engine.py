"""The RTL engine: host registers, SRAM access, reuse of builds, waves, and what happens when a run does not end."""

import ctypes
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.rtl import verilate
from dovetail.cosim.rtl.rtl_engine import RtlEngine, RtlError, accelerator_design, accelerator_library
from dovetail.cosim.rtl.training import PROGRAMS, training_programs
from dovetail.isa.common import cplusplus
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import ID, VERSION
from dovetail.isa.instructions.table import Cause, Op, Unit, cfg, pack, to_bytes
from dovetail.isa.timing.timeline import Fault
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.engines import create

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
SMALLEST = Config(ic_lanes=1, oc_lanes=1, sram="32 KiB", banks=4)
"""The least to elaborate, where nothing runs."""


def image(words: list[int], size: int = 16384) -> np.ndarray:
    """System memory with a program at address 0 and a pattern above 4096."""
    memory = np.arange(size, dtype=np.uint32).astype(np.uint8) ^ (np.arange(size) >> 8).astype(np.uint8)
    program = np.frombuffer(to_bytes(words), np.uint8)
    memory[:4096] = 0
    memory[: len(program)] = program
    return memory


def copy(unit: Unit, address: int, sram: int, length: int) -> list[int]:
    """The words of one contiguous transfer."""
    values = {"MEM_ADDR": address, "SRAM_ADDR": sram, "SRAM_BYTES": length, "LENGTH": length}
    values["COUNT"] = pack(unit, "COUNT", rows=1, planes=1)
    return [*(cfg(unit, n, v) for n, v in values.items()), int(Op.DMA_READ if unit == Unit.LOAD else Op.DMA_WRITE)]


@pytest.fixture(scope="module")
def engine(build_cache: Path) -> RtlEngine:
    return RtlEngine(CONFIG, cache=build_cache)


def test_identity(engine: RtlEngine) -> None:
    assert engine.read_register("ID") == ID
    assert engine.read_register("VERSION") == VERSION
    assert engine.read_register("CONFIG_HASH_LO") | engine.read_register("CONFIG_HASH_HI") << 32 == CONFIG.hash


def test_cycles_are_evaluated_directly(build_cache: Path) -> None:
    """Verilator's own eval() would work as well, but it costs a fifth of the speed."""
    library = ctypes.CDLL(str(accelerator_library(CONFIG, build_cache)))
    assert library.acc_direct() == 1


def test_a_run_that_ends(engine: RtlEngine) -> None:
    memory = image([*copy(Unit.LOAD, 5000, 100, 3000), int(Op.END)])
    before = memory.copy()
    result = engine.run(memory, 0, 1)
    assert result.memory is memory
    assert np.array_equal(memory, before)
    assert result.fault is None
    assert list(result.timeline.op) == [0, Op.DMA_READ]
    assert list(result.timeline.works) == [True, True]
    for counters in result.counters.values():
        assert counters.busy + counters.config + counters.token + counters.idle == result.cycles
    assert np.array_equal(engine.read_sram()[100:3100], memory[5000:8000])


def test_sram_persists_until_reset(engine: RtlEngine) -> None:
    contents = np.random.default_rng(1).integers(0, 256, CONFIG.sram, np.uint8)
    engine.write_sram(contents)
    assert np.array_equal(engine.read_sram(), contents)
    memory = image([*copy(Unit.STORE, 8192, 77, 1000), int(Op.END)])
    engine.run(memory, 0, 1)
    assert np.array_equal(memory[8192:9192], contents[77:1077])
    engine.reset()
    assert not engine.read_sram().any()
    with pytest.raises(ValueError, match=r"contents must be 65536 bytes, not \(3,\)"):
        engine.write_sram(contents[:3])


def test_fault(engine: RtlEngine) -> None:
    result = engine.run(image([cfg(Unit.LOAD, "LENGTH", 1), 0xFF, int(Op.END)]), 0, 1)
    assert result.fault == Fault(Cause.OPCODE, 1)
    result = engine.run(image([*copy(Unit.LOAD, 16384, 0, 8), int(Op.END)]), 0, 1)
    assert result.fault == Fault(Cause.BUS_READ, 5)


def test_no_pages(engine: RtlEngine) -> None:
    assert engine.run(image([int(Op.END)]), 0, 0).fault == Fault(Cause.NO_END, 0)


def test_no_yosys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "system")
    monkeypatch.setenv("YOSYS", "no-such-yosys")
    with pytest.raises(cplusplus.ToolError, match=r'Yosys to write Verilog: pip install "amaranth\[builtin-yosys\]"'):
        accelerator_design(SMALLEST)


def test_limit(engine: RtlEngine) -> None:
    engine.limit = 20
    with pytest.raises(RtlError, match="no end after 20 cycles") as caught:
        engine.run(image([int(Op.END)]), 0, 1)
    assert caught.value.timeline is not None
    assert list(caught.value.timeline.is_fetch) == [True]
    engine.limit = 100_000
    engine.reset()
    assert engine.run(image([int(Op.END)]), 0, 1).fault is None


def test_memory_must_be_whole_pages(engine: RtlEngine) -> None:
    with pytest.raises(ValueError, match="memory must be contiguous bytes, a multiple of 4096"):
        engine.run(np.zeros(5000, np.uint8), 0, 1)


def test_memory_timing_needs_no_build() -> None:
    slow = SMALLEST.replace(memory=MemoryTiming(read_latency=300))
    assert verilate.design_hash(accelerator_design(slow)) == verilate.design_hash(accelerator_design(SMALLEST))


@pytest.mark.parametrize("timing", [(1, 1, 1), (3, 100, 2), (200, 5, 7)])
def test_memory_timing_changes_between_runs(engine: RtlEngine, timing: tuple[int, int, int]) -> None:
    memory = MemoryTiming(read_latency=timing[0], write_latency=timing[1], beat_cycles=timing[2])
    config = CONFIG.replace(memory=memory)
    engine.timing = memory
    words = [*copy(Unit.LOAD, 4097, 3, 5000), *copy(Unit.STORE, 10001, 9000, 3001), int(Op.END)]
    rtl = engine.run(image(words), 0, 1)
    model = Model(config).run(image(words), 0, 1)
    assert rtl.cycles == model.cycles
    assert list(rtl.timeline.end) == list(model.timeline.end)


def test_registered_by_name() -> None:
    import dovetail.cosim

    dovetail.cosim.register()
    with pytest.raises(Exception, match="engine must be one of model, board, rtl, not 'x'"):
        create("x", CONFIG)


def test_lockstep_from_reset_and_from_given_sram(build_cache: Path) -> None:
    pair = Lockstep(CONFIG, cache=build_cache)
    program = legal_program(random.Random(3), CONFIG, count=4)
    program = replace(program, config=CONFIG)
    first = pair.run(program.memory, *program.arguments)
    assert first.equal, first.first_difference
    pair.reset()
    assert not pair.model.read_sram().any() and not pair.rtl.read_sram().any()


@pytest.mark.slow
def test_a_tuned_build_computes_the_same(build_cache: Path) -> None:
    tuned = RtlEngine(CONFIG, cache=build_cache, tuned=True)
    plain, model = RtlEngine(CONFIG, cache=build_cache), Model(CONFIG)
    assert tuned.library != plain.library
    for seed in range(20, 40):
        program = legal_program(random.Random(seed), CONFIG)
        arguments = program.arguments
        results = [engine.run(program.memory.copy(), *arguments) for engine in (tuned, plain, model)]
        assert len({result.cycles for result in results}) == 1
        assert all(np.array_equal(result.memory, results[0].memory) for result in results)
        assert np.array_equal(tuned.read_sram(), model.read_sram())


def test_what_a_tuned_build_is_trained_on() -> None:
    """Whatever the accelerator is like; the network only where there is room for it."""
    assert len(training_programs(CONFIG)) > PROGRAMS
    assert len(training_programs(SMALLEST)) >= PROGRAMS
