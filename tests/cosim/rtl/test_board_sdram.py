"""Random programs on a board with SDRAM: everything is in the cycle that the rule says, refreshes included."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.cosim.rtl.rtl_engine import program_words, timeline_of
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.timing.run import time_program
from dovetail.sw.random.programs.broken import illegal_program
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.board.board_engine import BoardEngine
from tests.cosim.rtl.tiny import TINY

CLOCK = 80_000_000
MEMORY = BoardMemory("sdram", 32 << 20)
CONFIG = TINY.replace(memory=MEMORY.timing_at(CLOCK))


@pytest.fixture(scope="module")
def board(build_cache: Path) -> Iterator[SimulatedBoard]:
    pytest.importorskip("serial", reason="pyserial is not installed")
    with SimulatedBoard(CONFIG, memory=MEMORY, cache=build_cache, divisor=4, clock_hz=CLOCK) as board:
        yield board


@pytest.mark.slow
@pytest.mark.parametrize("make", [legal_program, illegal_program])
def test_programs_in_the_predicted_cycles(board: SimulatedBoard, make: Any) -> None:
    rng = random.Random(16072)
    faults, longest = set(), 0
    with BoardEngine(CONFIG, board.port, board.baud, patience=60) as engine:
        for count in (1, 3, 8, 8, 14, 14):
            program = make(rng, CONFIG, count=count)
            result = engine.run(program.fresh_memory(), *program.arguments)
            words = program_words(program.memory, program.program, program.pages)
            expected = time_program(
                CONFIG, words, address=program.program, base=program.base, memory_bytes=MEMORY.bytes
            )
            assert (result.cycles, result.counters, result.fault) == (
                expected.cycles,
                expected.counters,
                expected.fault,
            )
            mine = timeline_of(board.latest_run()[1], CONFIG, words, result.cycles, result.counters, result.fault)
            for column in ("unit", "op", "pc", "start", "end", "works"):
                np.testing.assert_array_equal(getattr(mine, column), getattr(expected, column), column)
            faults.add(result.fault and result.fault.cause)
            longest = max(longest, result.cycles)
    assert longest > 3000 or len(faults) > 2  # some refreshes
