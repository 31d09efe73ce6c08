"""The engine of a board on a simulated one: a network from UART pins to outputs, and what a wrong board is told."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.cosim.rtl.setting import settings_of
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.config.resolved import Config
from dovetail.isa.host import VERSION
from dovetail.isa.instructions.table import Cause
from dovetail.isa.timing.timeline import Fault
from dovetail.sw.model.accelerator import Model
from dovetail.sw.random.programs.legal import legal_program
from dovetail.sw.runtime.board.board_engine import BoardEngine
from dovetail.sw.runtime.board.link import LinkError
from dovetail.sw.runtime.compiled_network import compile_network

MEMORY = BoardMemory("bram", 96 << 10)
CONFIG = Config.load("small").replace(memory=MEMORY.timing)
PATIENCE = 60.0


@pytest.fixture(scope="module")
def board(build_cache: Path) -> Iterator[SimulatedBoard]:
    pytest.importorskip("serial", reason="pyserial is not installed")
    with SimulatedBoard(CONFIG, memory=MEMORY, cache=build_cache, divisor=4) as board:
        yield board


@pytest.fixture
def engine(board: SimulatedBoard) -> Iterator[BoardEngine]:
    with BoardEngine(CONFIG, board.port, board.baud, patience=PATIENCE) as engine:
        yield engine
        assert engine.link.repeated == 0


def test_keyword_spotting_equals_the_model(engine: BoardEngine, board: SimulatedBoard) -> None:
    network = compile_network("zoo:dscnn", CONFIG, effort=0)
    (port,) = network.graph.inputs
    sent = []
    for seed in range(2):
        inputs = np.random.default_rng(seed).integers(-128, 128, port.shape, np.int8)
        expected = network.run(inputs)
        before = board.cycles
        result = network.run(inputs, engine=engine)
        sent.append(board.cycles - before - result.cycles)
        assert np.array_equal(result.outputs["output"], expected.outputs["output"])
        assert result.cycles == expected.cycles
        assert result.counters == expected.counters
    assert sent[1] < sent[0] / 10  # constants and instructions are there


@pytest.mark.parametrize("seed", range(3))
def test_programs_equal_the_model_s(engine: BoardEngine, seed: int) -> None:
    model = Model(CONFIG)
    program = legal_program(random.Random(seed), CONFIG)
    engine.reset()
    arguments = program.arguments
    expected = model.run(program.memory.copy(), *arguments)
    result = engine.run(program.memory.copy(), *arguments)
    assert np.array_equal(result.memory, expected.memory)
    assert (result.cycles, result.counters) == (expected.cycles, expected.counters)
    assert result.fault is None and len(result.timeline) == 0
    assert np.array_equal(engine.read_sram(), model.read_sram())


def test_sram(engine: BoardEngine) -> None:
    contents = np.random.default_rng(0).integers(0, 256, CONFIG.sram).astype(np.uint8)
    engine.write_sram(contents)
    assert np.array_equal(engine.read_sram(), contents)
    with pytest.raises(ValueError, match="contents must be 32768 bytes"):
        engine.write_sram(contents[1:])


def test_a_fault(engine: BoardEngine) -> None:
    memory = np.full(4096, 0xFF, np.uint8)
    assert engine.run(memory, 1024, 1).fault == Fault(Cause.OPCODE, 0)
    assert engine.run(memory, 0, 0).fault == Fault(Cause.NO_END, 0)


def test_a_network_that_is_too_large(engine: BoardEngine) -> None:
    network = compile_network("zoo:resnet8", CONFIG, effort=0)
    with pytest.raises(LinkError, match="needs 160 KiB of memory, the board has 96 KiB: take a smaller network, or"):
        network.run(np.zeros(network.graph.inputs[0].shape, np.int8), engine=engine)


def test_a_bitstream_of_another_configuration(board: SimulatedBoard) -> None:
    other = CONFIG.replace(stripe=8)
    text = f"must be of configuration {other.hash:016x}, not {CONFIG.hash:016x}, the preset small; compile for that one"
    with pytest.raises(LinkError, match=text):
        BoardEngine(other, board.port, board.baud, patience=PATIENCE)
    BoardEngine(CONFIG, board.port, board.baud, patience=PATIENCE).close()  # the port is free again


def test_another_version_of_the_instruction_set(board: SimulatedBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.sw.runtime.board.board_engine.VERSION", VERSION + 1)
    text = f"must have version {VERSION + 1} of the instruction set, not {VERSION}; build it again"
    with pytest.raises(LinkError, match=text):
        BoardEngine(CONFIG, board.port, board.baud, patience=PATIENCE)


def test_a_run_that_does_not_end(engine: BoardEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.sw.runtime.board.board_engine.SLACK", 0)
    monkeypatch.setattr("dovetail.sw.runtime.board.board_engine.MARGIN", 5)
    network = compile_network("zoo:dscnn", CONFIG, effort=0)  # long: it must not end while this process is waiting
    (run,) = settings_of(network, np.zeros(network.graph.inputs[0].shape, np.int8))
    arguments = run.memory, *run.arguments
    with pytest.raises(LinkError, match=r"the run did not end after 5 cycles; it takes [\d,]+ at most"):
        engine.run(*arguments)
    while engine.link.read_register("STATUS") & 1:
        pass
    monkeypatch.undo()
    assert engine.run(*arguments).fault is None
