"""Whole networks in lockstep: bytes, cycles, timeline and counters of model and RTL are equal."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest

from dovetail.cosim.compare.networks import verify
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.memory import memory_of
from dovetail.isa.config.resolved import Config
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet, random_network
from dovetail.sw.runtime.compiled_network import compile_network
from tests.cosim.compare.test_lockstep import SMALL as CONFIGS
from tests.slow import slow
from tests.sw.streams import post_norm, pre_norm, random_stream

MODELS = Path(__file__).parents[4] / "shared" / "models"
TINY = {
    "resnet8": "mlperf_tiny/ic_resnet8/resnet8_int8.tflite",
    "vww": "mlperf_tiny/vww_mobilenet_v1_025/vww_int8.tflite",
    "kws": "mlperf_tiny/kws_dscnn/kws_int8.tflite",
    "ad": "mlperf_tiny/ad_autoencoder/ad_int8.tflite",
}
MOBILENET = "imagenet/mobilenet_v1_1.0_224/mobilenet_v1_1.0_224_int8.tflite"
LATENCIES = ((10, 5), (100, 60))
"""Memory latencies, (read, write) in cycles."""

trained = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")


def lockstep(network: str | ir.Graph, config: Config, cache: Path) -> int:
    """Cycles of one inference in which everything agrees."""
    compiled = compile_network(network, config)
    port = compiled.graph.inputs[0]
    x = np.random.default_rng(1).integers(-128, 128, port.shape).astype(port.dtype)
    (verdict,) = verify(compiled, [x], cache=cache)
    assert verdict.equal, verdict.first_difference
    return compiled.report().cycles


@pytest.mark.parametrize("network", ["zoo:dscnn", "zoo:resnet8", "zoo:autoencoder"])
def test_zoo_networks_on_8x8(network: str, build_cache: Path) -> None:
    lockstep(network, Config(ic_lanes=8, oc_lanes=8, sram="64 KiB"), build_cache)


BLOCKS = {
    "mobilenet_v2_block": 13_147,
    "hard_swish_block": 13_230,
    "inception_block": 14_191,
    "shuffle_block": 5_576,
    "attention_block": 3_728,
}
"""Cycles on 8x8."""
SMALL = CONFIGS["8x8"]
ODD = CONFIGS["3x5"]
ODD_VECTORS = Config(ic_lanes=3, oc_lanes=5, sram="64 KiB", stripe=7, bus=32, vector_lanes=3)


def test_windows_in_the_padding_alone(build_cache: Path) -> None:
    """Convolutions whose tiles see no input: above, below and beside it."""
    net = RandomNet(9)
    x = net.conv(net.input(1, 3, 90, 32), 24, 1, pads=(3, 80, 5, 90))
    x = net.conv(x, 0, 2, 3, multiplier=1, pads=(4, 0, 9, 7))
    lockstep(net.graph(net.conv(x, 8, 3, 2, pads=(0, 5, 8, 0))), SMALL, build_cache)


@pytest.mark.parametrize(("network", "cycles"), BLOCKS.items())
def test_blocks_with_every_operator_on_8x8(network: str, cycles: int, build_cache: Path) -> None:
    assert lockstep(f"zoo:{network}", SMALL, build_cache) == cycles


@pytest.mark.parametrize("config", [ODD, slow(ODD_VECTORS)], ids=["odd", "vectors too"])
@pytest.mark.parametrize("network", BLOCKS)
def test_blocks_on_odd_lanes(network: str, config: Config, build_cache: Path) -> None:
    lockstep(f"zoo:{network}", config, build_cache)


@pytest.mark.parametrize(
    ("config", "seeds"),
    [
        *((SMALL, range(20)), (ODD, range(20)), (CONFIGS["2x3x4"], range(3, 40, 4))),
        slow(ODD_VECTORS, range(20)),
    ],
    ids=["8x8", "odd", "sums on pixel lanes", "odd, vectors too"],
)
def test_random_networks(config: Config, seeds: range, build_cache: Path) -> None:
    for seed in seeds:
        graph = random_network(seed, 10)
        compiled = compile_network(graph, config)
        rng = np.random.default_rng(seed)
        x = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs}
        (verdict,) = verify(compiled, [x], cache=build_cache)
        assert verdict.equal, f"seed {seed}: {verdict.first_difference}"


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
def test_residual_streams_of_16_bits(rows: int, tmp_path: Path, build_cache: Path) -> None:
    config = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB", softmax=1, norm=rows, norm_bits=16)
    for number, model in enumerate((pre_norm(), post_norm(50, 7), *map(random_stream, range(20)))):
        onnx.save(model, tmp_path / f"{number}.onnx")
        lockstep(str(tmp_path / f"{number}.onnx"), config, build_cache)


@pytest.mark.slow
@trained
@pytest.mark.parametrize(("sram", "bus"), [("64 KiB", 64), ("1 MiB", 32), ("256 KiB", 128)])
@pytest.mark.parametrize("array", [(8, 8), (1, 64), (64, 1), (16, 16)])
def test_tiny_networks(array: tuple[int, int], sram: str, bus: int, build_cache: Path) -> None:
    for (read, write), network in product(LATENCIES, TINY.values()):
        memory = MemoryTiming(read_latency=read, write_latency=write)
        config = Config(ic_lanes=array[0], oc_lanes=array[1], sram=sram, bus=bus, memory=memory)
        lockstep(str(MODELS / network), config, build_cache)


@pytest.mark.slow
@trained
@pytest.mark.parametrize("depthwise", ["none", "emulated"])
def test_other_depthwise_scenarios(depthwise: str, build_cache: Path) -> None:
    config = Config(ic_lanes=8, oc_lanes=8, sram="128 KiB", depthwise=depthwise)
    lockstep(str(MODELS / TINY["vww"]), config, build_cache)


@pytest.mark.slow
@trained
@pytest.mark.parametrize("array", [(8, 8), (16, 16)])
def test_whole_mobilenet(array: tuple[int, int], build_cache: Path) -> None:
    lockstep(str(MODELS / MOBILENET), Config(ic_lanes=array[0], oc_lanes=array[1], sram="512 KiB"), build_cache)


@pytest.mark.slow
@trained
@pytest.mark.parametrize("memory", ["sdram", "ddr3-1600-x16", "ddr4-2400-x16@400MHz", "lpddr4-3200-x16@200MHz"])
def test_memories_with_rows_and_refreshes(memory: str, build_cache: Path) -> None:
    for network in TINY.values():
        lockstep(str(MODELS / network), SMALL.replace(memory=memory_of(memory)), build_cache)
