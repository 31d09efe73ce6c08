"""Bands of rows through several layers: the same values, fewer bytes over the bus, and never more cycles."""

from collections.abc import Callable

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.compile import emit
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.bands import Cascade, cut, is_local
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.compiler.search import plan
from dovetail.sw.network import ir, reference
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.sw.compiler.test_scheduling import check

NARROW = Config(ic_lanes=4, oc_lanes=8, pixel_lanes=4, sram="32 KiB")
PLAIN = Way(1, True)


def inverted(net: RandomNet, height: int, width: int, stride: int = 2) -> str:
    """A block whose middle does not fit 32 KiB."""
    x = net.conv(net.input(1, height, width, 8), 64, size=1)
    return net.conv(net.conv(x, 0, multiplier=1, stride=stride), 16, size=1)


def chain(net: RandomNet, rng: np.random.Generator) -> str:
    """Random layers behind one another, some of them with a sum across."""
    x = net.input(1, int(rng.integers(9, 20)), int(rng.integers(4, 9)), 4)
    for _ in range(int(rng.integers(2, 6))):
        before = x
        match int(rng.integers(6)):
            case 0:
                x = net.conv(x, 4, size=int(rng.integers(1, 4)))
            case 1:
                x = net.conv(x, 0, multiplier=1, stride=2 if net.shape(x)[1] > 12 else 1)
            case 2:
                x = net.rescale(net.conv(x, 4))
            case 3:
                x = net.elementwise("ADD", before, net.conv(net.conv(x, 4), 4, size=1))
            case 4:
                x = net.average(x, (3, 3), (1, 1), (1, 1, 1, 1), counted=None if rng.random() < 0.5 else 5)
            case 5:
                x = net.maximum(x, (2, 3), (1, 1, 0, 1))
    return x


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_in_bands_computes_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = RandomNet(seed)
    graph = net.graph(chain(net, rng))
    assert all(is_local(graph, node) for node in graph.nodes)
    height = graph.tensors[graph.outputs[0].tensor].shape[1]
    cascade = Cascade(graph.nodes, int(rng.integers(2, height + 1)))
    bands, band_of = cut(graph, [cascade])
    assert {*band_of.values()} == {node.name for node in graph.nodes}
    assert len(band_of) == cascade.bands * len(graph.nodes)
    inputs = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs}
    for name, value in reference.run(graph, inputs).items():
        np.testing.assert_array_equal(reference.run(bands, inputs)[name], value)


def in_bands(graph: ir.Graph, config: Config, way: Way = PLAIN) -> tuple[CompiledNetwork, Draft]:
    """The network with cascades, whether they take fewer cycles or not; and the draft without."""
    draft = Draft(partition(graph, config, Options()), way)
    cascaded = draft.cascaded()
    assert cascaded and cascaded.cycles({}, None)
    return CompiledNetwork(emit(cascaded)), draft


@pytest.mark.parametrize("size", [(24, 24, 2), (40, 40, 2), (33, 24, 1), (25, 64, 1)])
@pytest.mark.parametrize("config", [NARROW, Config(ic_lanes=8, oc_lanes=8, sram="32 KiB", bus=32)])
def test_what_lies_between_the_layers_stays_in_sram(config: Config, size: tuple[int, int, int]) -> None:
    """A tensor larger than the SRAM is not stored; reports have the layers of the graph."""
    net = RandomNet(3)
    graph = net.graph(inverted(net, *size))
    compiled, draft = in_bands(graph, config)
    check(compiled)
    assert [layer.name for layer in compiled.code.layers] == [node.name for node in graph.nodes]
    assert sum(layer.macs for layer in compiled.code.layers) == graph.total_macs
    between = {node.outputs[0] for node in graph.nodes[:2]} & draft.where.keys()
    assert any(name not in compiled.code.where for name in between)
    assert any("bands" in layer.tiles for layer in compiled.code.layers)
    assert len(compiled.code.packers) == len(graph.nodes)  # weights of all bands are there once


def test_the_cascade_is_taken_where_it_is_faster() -> None:
    net = RandomNet(3)
    graph = net.graph(inverted(net, 112, 112))
    config = Config(ic_lanes=4, oc_lanes=8, pixel_lanes=4, sram="256 KiB", bus=32)
    cascaded, draft = in_bands(graph, config, Way(1, True, by_bank=True, overtakes=True))
    compiled = compile_network(graph, config)
    assert compiled.report().cycles == cascaded.report().cycles < (draft.cycles({}, None) or 0)


def test_a_sum_with_the_blocks_input() -> None:
    net = RandomNet(4)
    start = net.conv(net.input(1, 40, 40, 8), 16, size=1)
    x = net.conv(net.conv(start, 96, size=1), 0, multiplier=1)
    graph = net.graph(net.elementwise("ADD", start, net.conv(x, 16, size=1)))
    check(in_bands(graph, NARROW)[0])


def ends(net: RandomNet, x: str) -> tuple[str, ...]:
    return (x,)


def seen_outside(net: RandomNet, x: str) -> tuple[str, ...]:
    return x, net.graph(x).nodes[0].outputs[0]


@pytest.mark.parametrize("outputs", [ends, seen_outside])
def test_tensors_that_the_user_reads_are_stored(outputs: Callable[[RandomNet, str], tuple[str, ...]]) -> None:
    net = RandomNet(5)
    names = outputs(net, inverted(net, 32, 32))
    compiled, _ = in_bands(net.graph(*names), NARROW)
    check(compiled)
    assert set(names) <= set(compiled.code.where)


def test_kept_tensors_are_not_cut() -> None:
    net = RandomNet(6)
    graph = net.graph(inverted(net, 40, 40))
    draft = plan(partition(graph, NARROW, Options(keep_tensors=True)))
    assert draft.partition.whole is None


def test_nodes_that_need_the_whole_plane_are_not_local() -> None:
    net = RandomNet(7)
    x = net.conv(net.input(1, 8, 8, 8), 8)
    graph = net.graph(net.reshape(net.pad(x, (1, 1, 1, 1)), 1, 1, 100, 8))
    assert [is_local(graph, node) for node in graph.nodes] == [True, False, False]
    assert isinstance(graph.nodes[1], ir.Pad)
