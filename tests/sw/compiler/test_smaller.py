"""More SRAM never costs cycles: the plan of a smaller memory runs on a larger one in the same time."""

from collections.abc import Sequence
from importlib import import_module
from itertools import count
from pathlib import Path

import numpy as np
import onnx
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.plan.smaller import Moved, smaller
from dovetail.sw.compiler.search import search
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.network import ir, reference
from dovetail.sw.random.networks import random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.slow import slow
from tests.sw.compiler.test_scheduling import check

KIB = 1 << 10
SQUARE = Config(ic_lanes=8, oc_lanes=8)
PAIRS = Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2)
LARGE = Config(ic_lanes=16, oc_lanes=16)
WIDE = Config(ic_lanes=16, oc_lanes=16, bus=128)


def rising(graph: ir.Graph, config: Config, sizes: Sequence[int], effort: int) -> list[CompiledNetwork]:
    """The network on each size of SRAM in KiB, ascending; no more cycles on any than on the one before."""
    made = [compile_network(graph, config.replace(sram=size * KIB, banks=None), effort=effort) for size in sizes]
    cycles = [one.report().cycles for one in made]
    assert cycles == sorted(cycles, reverse=True), dict(zip(sizes, cycles, strict=True))
    return made


@pytest.mark.parametrize(
    ("config", "effort"),
    [slow(SQUARE, 1), (WIDE, 0), slow(SQUARE, 0)],
    ids=["8x8-1", "16x16", "8x8"],
)
@pytest.mark.parametrize("name", ["zoo:resnet8", "zoo:dscnn", "zoo:autoencoder"])
def test_more_sram_never_costs_cycles(name: str, config: Config, effort: int) -> None:
    rising(frontend.load(name), config, (32, 64, 128, 256, 512, 2048), effort)


def test_more_sram_never_costs_traffic_without_cycles() -> None:
    """128 KiB once took four times the traffic of 64 KiB."""
    small, large = rising(frontend.load("zoo:resnet8"), SQUARE, (64, 128), 0)
    moved = [sum(layer.moved_bytes for layer in one.code.layers) for one in (small, large)]
    assert moved[1] <= moved[0] or large.report().cycles < small.report().cycles


@pytest.mark.parametrize("seed", range(4))
def test_random_networks_on_more_sram(seed: int) -> None:
    for compiled in rising(random_network(seed, 6), SQUARE, (32, 64, 128, 256, 512), 1):
        check(compiled)


def test_the_plan_of_a_smaller_memory_runs_on_a_larger_one() -> None:
    """On each of these it is one for 64 KiB."""
    graph = frontend.load("zoo:dscnn")
    made = rising(graph, PAIRS, (80, 96, 112, 192), 0)
    assert len({one.report().cycles for one in made}) == 1
    for compiled in made:
        check(compiled)


@pytest.mark.parametrize(("config", "effort"), [(SQUARE, 0), slow(WIDE, 1)], ids=["8x8", "16x16-1"])
def test_sizes_between_powers_of_two(config: Config, effort: int) -> None:
    """They are at most 2 % above the next smaller power of two; `dovetail docs scheduling` has figures."""
    graph = frontend.load("zoo:resnet8")

    def compiled(size: int) -> CompiledNetwork:
        return compile_network(graph, config.replace(sram=size * KIB, banks=None), effort=effort)

    for size in (48, 80, 192, 384):
        network = compiled(size)
        check(network)
        assert network.report().cycles <= 1.02 * compiled(1 << size.bit_length() - 1).report().cycles


def test_no_estimate_decides_at_effort_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan for less is better on 96 KiB, whatever estimates say. Remembered choices would hide that."""
    monkeypatch.setattr("dovetail.sw.compiler.plan.choices.get", lambda key: None)
    graph, config = frontend.load("zoo:dscnn"), PAIRS.replace(sram=96 * KIB, banks=None)
    alone = compile_network(graph, PAIRS.replace(sram=80 * KIB, banks=None), effort=0).report().cycles
    prices = count(1)
    monkeypatch.setattr("dovetail.sw.compiler.search._price", lambda drafts: 10 ** next(prices))
    assert compile_network(graph, config, effort=0).report().cycles == alone
    _, without = search(partition(graph, config, Options(effort=0, smaller=False)))
    assert without > alone, "the better plan is one for less SRAM"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "config", "sizes", "effort"),
    [
        ("zoo:mobilenet_v1", SQUARE, (64, 128, 256, 512, 1024, 2048, 4096, 8192), 0),
        ("zoo:mobilenet_v1", WIDE, (64, 128, 256, 512, 1024, 2048, 4096, 8192), 0),
        ("zoo:mobilenet_v2", LARGE, (128, 256, 512, 1024, 2048, 4096, 8192), 0),
        ("zoo:mobilenet_v2", LARGE, (512, 1024, 2048, 4096, 8192), 1),
        ("zoo:mobilenet_v2", SQUARE, (2048, 4096, 8192), 1),
        ("zoo:resnet18", WIDE, (128, 256, 512, 1024, 2048, 4096), 0),
        ("zoo:resnet50", SQUARE, (512, 1024, 2048), 1),
        ("zoo:resnet50", LARGE, (512, 1024, 2048), 1),
        ("zoo:efficientnet_lite0", WIDE, (128, 256, 512, 1024, 2048, 4096), 0),
    ],
)
def test_more_sram_for_large_networks(name: str, config: Config, sizes: Sequence[int], effort: int) -> None:
    rising(frontend.load(name), config, sizes, effort)


# --- parts ------------------------------------------------------------------------------------------------------


def test_smaller_memories() -> None:
    def sizes(config: Config) -> list[int]:
        return [other.sram // KIB for other in smaller(config)]

    assert sizes(SQUARE.replace(sram=256 * KIB, banks=None)) == [128, 64, 32]
    assert sizes(SQUARE.replace(sram=32 * KIB, banks=None)) == []
    assert sizes(SQUARE.replace(sram=256 * KIB, banks=8)) == [128, 64, 32]
    # 16 banks have no room in 12.
    odd = smaller(SQUARE.replace(sram=192 * KIB, banks=None))
    assert [(other.sram // KIB, other.banks) for other in odd] == [(128, 8), (64, 8), (32, 8)]
    assert all(other.replace(sram="256 KiB", banks=None) == SQUARE.replace(sram="256 KiB", banks=None)
               for other in smaller(SQUARE.replace(sram="256 KiB", banks=None)))  # fmt: skip


def test_what_is_apart_stays_apart() -> None:
    """A tensor in banks 2 and 3, one that starts a bank later than its first one, and buffers that overlap."""
    inner, outer = SQUARE.replace(sram=64 * KIB, banks=16), SQUARE.replace(sram=128 * KIB, banks=16)
    buffers = [(0x0000, 0x0800), (0x0800, 0x0900), (0x0C00, 0x0500), (0xA000, 0x100)]
    moved = Moved(inner, outer, ((2, 2, 0), (4, 3, 1)), [*buffers, (0x2100, 16), (0x4000, 0x2800)])
    assert [moved.at(address) for address, _ in buffers] == [0x0000, 0x0800, 0x0C00, 0x14000]
    assert moved.at(0x1000) == 0x1000  # the third bank's bytes belong to a buffer that begins in the first
    assert moved.region((0x2100, 16)) == (0x4100, 16)
    assert moved.at(0x3000) == 0x5000
    assert moved.at(0x4000) == 0xA000


@pytest.mark.slow
def test_what_goes_ahead_does_not_meet_a_tensor_in_fewer_banks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inception v1 on 1 MiB: the plan of 512 KiB loads weights of a later layer into the bank of a tensor's beginning,
    where its end would lie on the larger memory, still to be read."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_inception_v1.onnx"
    made = import_module("collection")._light(light)
    graph = frontend.load(NetworkFile(light.stem, made.data))
    compiled = compile_network(graph, SQUARE.replace(sram=1024 * KIB, banks=None), effort=0)
    outputs = compiled.run(made.sample).outputs
    for name, value in graph.unbind(reference.evaluate(graph, graph.bind(made.sample))).items():
        np.testing.assert_array_equal(outputs[name], value)
