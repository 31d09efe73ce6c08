"""cocotb benches of the whole accelerator: random programs, faults, a layer of a network; exact timing and stalls."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("cocotb")

from dovetail.cosim.benches.accelerator import FAULTS
from dovetail.cosim.benches.runner import run
from dovetail.cosim.rtl.setting import Recorder
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import memory_of
from dovetail.isa.config.resolved import Config
from dovetail.sw.runtime.compiled_network import compile_network

CONFIG = Config(
    ic_lanes=2, oc_lanes=2, sram="32 KiB", banks=4, bus=32, memory=MemoryTiming(read_latency=7, write_latency=5)
)
CAUSES = [cause.name for cause in FAULTS]


def layer() -> bytes:
    """A 3x3 convolution of 4 channels on 5x5 pixels, as an ONNX file."""
    numbers = np.random.default_rng(5)
    constants = {
        "x_scale": np.float32(0.05),
        "x_zero": np.int8(3),
        "w": numbers.integers(-127, 128, (4, 4, 3, 3), np.int8),
        "w_scale": numbers.uniform(0.001, 0.004, 4).astype(np.float32),
        "w_zero": np.zeros(4, np.int8),
        "y_scale": np.float32(0.07),
        "y_zero": np.int8(-9),
        "bias": numbers.integers(-2000, 2000, 4, np.int32),
    }
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"], pads=[1, 1, 1, 1])
    ports = [helper.make_tensor_value_info(name, TensorProto.INT8, (1, 4, 5, 5)) for name in ("x", "y")]
    initial = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph([node], "layer", ports[:1], ports[1:], initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def bench(cache: Path, **settings: Any) -> None:
    values = {"config": CONFIG.to_toml(), **settings}
    assert run(CONFIG, "dovetail.cosim.benches.suite.accelerator", options=values, cache=cache) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("share", [0, 0.5])
def test_programs_and_faults(build_cache: Path, share: float, seed: int) -> None:
    bench(build_cache, programs=4, faults=CAUSES, share=share, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.3])
def test_layer_of_a_network(build_cache: Path, tmp_path: Path, share: float) -> None:
    """A convolution, compiled; bytes and cycles with exact memory, bytes and cause with stalls."""
    path = tmp_path / "layer.onnx"
    path.write_bytes(layer())
    compiled = compile_network(path, CONFIG)
    recorder = Recorder(CONFIG)
    port = compiled.graph.inputs[0]
    sample = np.random.default_rng(1).integers(-128, 128, port.shape).astype(port.dtype)
    compiled.run(sample, engine=recorder)
    paths = []
    for n, case in enumerate(recorder.settings):
        paths.append(tmp_path / f"segment{n}.npz")
        case.save(paths[-1])
    assert paths
    bench(build_cache, cases=[str(path) for path in paths], share=share)


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["sdram", "ddr4-2400-x16@150MHz"])
def test_memories_with_rows_and_refreshes(build_cache: Path, memory: str) -> None:
    config = CONFIG.replace(memory=memory_of(memory))
    options = {"config": config.to_toml(), "programs": 3, "faults": CAUSES[:3], "share": 0, "seed": 3}
    assert run(config, "dovetail.cosim.benches.suite.accelerator", options=options, cache=build_cache) == 1
