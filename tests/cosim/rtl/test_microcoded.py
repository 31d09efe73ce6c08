"""The microcoded accelerator in lockstep with its model: random programs, and keyword spotting on a board."""

from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.compare.fuzz import fuzz
from dovetail.cosim.compare.lockstep import Lockstep
from dovetail.cosim.compare.networks import verify
from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.partition.host_cost import HostCost
from dovetail.sw.runtime.compiled_network import compile_network

CONFIG = Config.load("icebreaker")
MEMORY = BoardMemory("spram", 64 << 10)
HOST = HostCost(round_trip=2000, macs_per_cycle=1, values_per_cycle=1)
"""A computer at the other end of the serial port: the dense layer is left to it. On the accelerator, where the default
host would have it, it takes more memory than the board has."""
OTHERS = {
    "16x1": CONFIG.replace(ic_lanes=16, oc_lanes=1, sram="32 KiB"),
    "1x16": CONFIG.replace(ic_lanes=1, oc_lanes=16, depthwise="none", banks=8),
}


def agree(config: Config, cache: Path, seeds: range, form: str = "simulation") -> None:
    for failure in fuzz(Lockstep(config, cache=cache, form=form), seeds):
        pytest.fail(f"seed {failure.seed}: {failure.comparison.first_difference}")


def test_random_programs(build_cache: Path) -> None:
    agree(CONFIG, build_cache, range(6))


@pytest.mark.slow
def test_random_programs_on_block_ram(build_cache: Path) -> None:
    """What an FPGA without the UP5K's single-port RAM gets."""
    agree(CONFIG, build_cache, range(30, 50), "fpga")


@pytest.mark.slow
def test_random_programs_with_another_memory(build_cache: Path) -> None:
    agree(CONFIG.replace(memory=MEMORY.timing), build_cache, range(25, 30))
    agree(CONFIG.replace(memory=MemoryTiming(read_latency=5, write_latency=7, beat_cycles=15)), build_cache, range(5))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["icebreaker", *OTHERS])
def test_many_random_programs(build_cache: Path, name: str) -> None:
    agree(({"icebreaker": CONFIG} | OTHERS)[name], build_cache, range(6, 200))


@pytest.mark.slow
def test_keyword_spotting(build_cache: Path) -> None:
    sample = np.random.default_rng(1).integers(-128, 128, (1, 1, 49, 10), np.int8)
    (verdict,) = verify(compile_network("zoo:dscnn", CONFIG), [sample], cache=build_cache)
    assert verdict.equal


@pytest.mark.slow
@pytest.mark.parametrize("memory", [MEMORY, BoardMemory("sdram32", 8 << 20)], ids=["icebreaker", "tang-nano-20k"])
def test_keyword_spotting_on_a_board(memory: BoardMemory, build_cache: Path) -> None:
    """Through the serial port of a board's design, memory and all: the model's bytes, and cycles but with SDRAM."""
    pytest.importorskip("serial")
    from dovetail.sw.runtime.board.board_engine import BoardEngine

    config = CONFIG.replace(memory=memory.timing) if memory.timing else CONFIG
    network = compile_network("zoo:dscnn", config, host=HOST)
    sample = np.random.default_rng(2).integers(-128, 128, (1, 1, 49, 10), np.int8)
    model = network.run(sample)
    with (
        SimulatedBoard(config, memory=memory, cache=build_cache, divisor=4 if memory.timing else 16) as board,
        BoardEngine(config, board.port, board.baud, patience=120) as engine,
    ):
        result = network.run(sample, engine=engine)
    assert result.cycles == model.cycles or not memory.timing
    for name, values in model.outputs.items():
        np.testing.assert_array_equal(result.outputs[name], values)
