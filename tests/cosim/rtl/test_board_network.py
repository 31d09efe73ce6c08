"""A trained network of MLPerf Tiny, from the pins of a board's UART to its outputs: those of TFLite Micro."""

from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.board.board_engine import BoardEngine
from dovetail.sw.runtime.compiled_network import compile_network

FOLDER = Path(__file__).parents[4] / "shared" / "models" / "mlperf_tiny" / "kws_dscnn"
SAMPLES = 2


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason="the trained networks are not beside the project")
@pytest.mark.parametrize("kind, size", [("bram", 128 << 10), ("spram", 128 << 10), ("sdram", 32 << 20)])
def test_keyword_spotting(kind: str, size: int, build_cache: Path) -> None:
    pytest.importorskip("serial", reason="pyserial is not installed")
    memory = BoardMemory(kind, size)
    config = Config.load("small")
    if memory.timing:
        config = config.replace(memory=memory.timing)
    network = compile_network(str(FOLDER / "kws_int8.tflite"), config)
    samples = np.load(FOLDER / "samples.npz")["x"][:SAMPLES]
    reference = np.load(FOLDER / "reference.npz")["tflm_out"][:SAMPLES]
    (port,) = network.graph.inputs
    (name,) = (output.name for output in network.graph.outputs)
    with (
        SimulatedBoard(config, memory=memory, cache=build_cache, divisor=4 if memory.timing else 16) as board,
        BoardEngine(config, board.port, board.baud, patience=60) as engine,
    ):
        for sample, expected in zip(samples, reference, strict=True):
            x = sample.reshape(port.shape)
            result, model = network.run(x, engine=engine), network.run(x)
            assert np.array_equal(result.outputs[name].reshape(-1), expected)
            if memory.timing:
                assert (result.cycles, result.counters) == (model.cycles, model.counters)
