"""Trained networks of MLPerf Tiny, from the pins of a board's UART to their outputs: those of TFLite Micro, and
everything is in the cycle that the model says."""

from pathlib import Path

import numpy as np
import pytest

from dovetail.cosim.rtl.board import SimulatedBoard
from dovetail.hw.board.memory import BoardMemory
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.board.board_engine import BoardEngine
from dovetail.sw.runtime.compiled_network import compile_network

FOLDER = Path(__file__).parents[4] / "shared" / "models" / "mlperf_tiny"
CLOCK = 80_000_000
"""Hz; in cycles of it SDRAM has its times and its refreshes."""
BRAM, SPRAM, SDRAM = (BoardMemory(*of) for of in (("bram", 128 << 10), ("spram", 128 << 10), ("sdram", 32 << 20)))


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason="the trained networks are not beside the project")
@pytest.mark.parametrize(
    "name, preset, memory",
    [
        ("kws_dscnn/kws", "small", BRAM),
        ("kws_dscnn/kws", "small", SPRAM),
        ("kws_dscnn/kws", "ulx3s", SDRAM),
        ("ad_autoencoder/ad", "ulx3s", SDRAM),
        ("ic_resnet8/resnet8", "ulx3s", SDRAM),
        ("vww_mobilenet_v1_025/vww", "ulx3s", SDRAM),
    ],
)
def test_networks(name: str, preset: str, memory: BoardMemory, build_cache: Path) -> None:
    pytest.importorskip("serial", reason="pyserial is not installed")
    config = Config.load(preset).replace(memory=memory.timing_at(CLOCK))
    network = compile_network(str(FOLDER / f"{name}_int8.tflite"), config)
    folder = (FOLDER / name).parent
    samples, reference = np.load(folder / "samples.npz")["x"], np.load(folder / "reference.npz")["tflm_out"]
    (port,) = network.graph.inputs
    (output,) = network.graph.outputs
    with (
        SimulatedBoard(config, memory=memory, cache=build_cache, divisor=4, clock_hz=CLOCK) as board,
        BoardEngine(config, board.port, board.baud, patience=60) as engine,
    ):
        for n in range(2):
            x = samples[n].reshape(port.shape)
            result, model = network.run(x, engine=engine), network.run(x)
            assert np.array_equal(result.outputs[output.name].reshape(-1), reference[n].reshape(-1))
            assert (result.cycles, result.counters) == (model.cycles, model.counters)
            line = model.timeline[-1]  # of the latest run
            unit, pc, fetch, start, end = board.latest_run()[1].T
            seen = sorted(zip(unit, fetch, pc, start, end, strict=True))
            assert seen == sorted(zip(line.unit, line.is_fetch, line.pc, line.start, line.end, strict=True))
