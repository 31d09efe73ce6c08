"""Passes of a layer of one pixel between the tiles of the layer before it, and loads that overtake others."""

from random import Random

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.timing.run import time_program
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import Code, emit
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.emit.arena import without
from dovetail.sw.compiler.emit.beside import early
from dovetail.sw.compiler.emit.operations import Task, Transfer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.compiler.plan.schedule import Tiling
from dovetail.sw.compiler.search import _ways
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet, random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.sw.compiler.test_scheduling import check

SQUARE = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
PIXELS = Config(ic_lanes=4, oc_lanes=16, pixel_lanes=2, sram="128 KiB", bus=128)
CONFIGS = pytest.mark.parametrize("config", [SQUARE, PIXELS], ids=["8x8", "4x16x2"])
PASSES = pytest.mark.parametrize("passes", [2, 3, 5])


def pooled(net: RandomNet, channels: int = 320, classes: int = 200, size: int = 5) -> str:
    """A convolution, the average of its plane, and a layer of one pixel."""
    x = net.conv(net.input(1, size, size, 32), channels, size=1)
    return net.conv(net.average(x, (size, size), (1, 1), (0, 0, 0, 0)), classes, size=1)


def way(passes: int = 0) -> Way:
    return Way(1, True, by_bank=True, overtakes=True, passes=passes)


def code_of(graph: ir.Graph, config: Config, passes: int) -> Code:
    """Of one way alone."""
    return emit(Draft(partition(graph, config, Options()), way(passes)))


def order_of(code: Code) -> list[int]:
    """The layers of the array's operations, in order."""
    (segment,) = code.segments
    timeline = time_program(code.config, segment.words)
    array = timeline.pc[(timeline.unit == Unit.ARRAY) & ~timeline.is_fetch]
    return [segment.layers[pc] for pc in array.tolist()]


@CONFIGS
@PASSES
def test_bytes_and_cycles(config: Config, passes: int) -> None:
    net = RandomNet(2)
    check(CompiledNetwork(code_of(net.graph(pooled(net)), config, passes)))


@CONFIGS
@PASSES
def test_all_passes_but_the_last_go_between_tiles_of_the_convolution(config: Config, passes: int) -> None:
    net = RandomNet(2)
    code = code_of(net.graph(pooled(net)), config, passes)
    order = order_of(code)
    last = len(order) - order[::-1].index(0)
    assert "passes outer" in code.layers[-1].tiles
    assert set(order[last:]) == {2}
    tiles = order.count(2) // passes
    assert tiles <= len(order) - last < 2 * tiles  # some of the pass before wait for channels of the last tile
    assert order.index(2) < last - 1


def test_weights_that_do_not_fit_are_used_earlier() -> None:
    """Most of 320 KiB of weights are loaded while the convolution runs, though there is room for 64 KiB."""
    net = RandomNet(2)
    graph = net.graph(pooled(net, 1280, 256, 8))
    plain, cut = (CompiledNetwork(code_of(graph, SQUARE, passes)).report().cycles for passes in (0, 3))
    assert cut < 0.93 * plain
    assert compile_network(graph, SQUARE).report().cycles <= cut


@CONFIGS
@pytest.mark.parametrize("passes", [0, 3])
@pytest.mark.parametrize("channels", [320, 640])
def test_what_is_pooled_shares_the_bank_of_the_convolutions_input(config: Config, passes: int, channels: int) -> None:
    """So weights have a bank more; where there are no passes, everything has its own. Weights of a pass lie in a bank,
    also if one of so many output channels takes more."""
    net = RandomNet(2)
    x = net.conv(net.conv(net.input(1, 5, 5, 32), 32, size=1), channels, size=1)
    x = net.conv(net.average(x, (5, 5), (1, 1), (0, 0, 0, 0)), 200, size=1)
    graph = net.graph(x)
    draft = Draft(partition(graph, config, Options()), way(passes))
    check(CompiledNetwork(emit(draft)))
    (segment,) = draft.segments
    first, *_, last = segment.stages[1].nodes
    source, made = (segment.roots[name] for name in (first.inputs[0], last.outputs[0]))
    places = segment.plan.residents
    assert (places[made].bank == places[source].bank) == (passes > 0)
    for chosen in segment.tilings.values():
        if chosen.passes_outer:
            layer = segment.layers[graph.nodes[-1].name]
            assert layer.weight_bytes(config, chosen.out_channels, chosen.in_channels) <= config.bank_bytes


def plain(net: RandomNet) -> str:
    return net.conv(net.conv(net.input(1, 1, 1, 64), 128, size=1), 64, size=1)


def with_tail(net: RandomNet) -> str:
    return net.table(pooled(net))


def depthwise(net: RandomNet) -> str:
    """What reads the pooled plane is no layer of all channels."""
    x = net.conv(net.input(1, 5, 5, 32), 64, size=1)
    return net.conv(net.average(x, (5, 5), (1, 1), (0, 0, 0, 0)), 0, size=1, multiplier=1)


@pytest.mark.parametrize("build", [plain, with_tail, depthwise])
def test_other_layers_are_not_cut(build: object) -> None:
    net = RandomNet(2)
    graph = net.graph(build(net))  # type: ignore[operator]
    code = code_of(graph, SQUARE, 2)
    assert not any("passes outer" in layer.tiles for layer in code.layers)
    check(CompiledNetwork(code))


@CONFIGS
@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed: int, config: Config) -> None:
    rng, net = Random(seed), RandomNet(seed)
    channels, classes, size = rng.randrange(9, 300), rng.randrange(3, 150), rng.randrange(2, 8)
    out = pooled(net, channels, classes, size)
    graph = net.graph(out, net.conv(out, 20, size=1)) if seed % 2 else net.graph(out)
    for passes in (2, 3):
        check(CompiledNetwork(code_of(graph, config, passes)))


@CONFIGS
@pytest.mark.parametrize("seed", range(8))
def test_loads_that_overtake(seed: int, config: Config) -> None:
    graph = random_network(seed, 8)
    check(CompiledNetwork(code_of(graph, config.replace(sram="32 KiB", banks=None), 0)))


@pytest.mark.parametrize("passes", [0, 3])
def test_on_more_sram(passes: int) -> None:
    """A program for little SRAM on a larger one, where tensors lie in fewer banks: loads keep their order."""
    net = RandomNet(2)
    graph = net.graph(pooled(net, 512, 256, 6))
    draft = Draft(partition(graph, SQUARE, Options()), way(passes))
    cycles = draft.cycles({}, None)
    assert cycles
    moved = draft.on(SQUARE.replace(sram="256 KiB", banks=None), cycles)
    assert moved and moved[1] == cycles
    check(CompiledNetwork(emit(moved[0])))


def test_ways() -> None:
    graph = frontend.load("zoo:dscnn")
    assert {one.passes for one in _ways(partition(graph, SQUARE, Options()))} == {0, 2, 3}
    serial = Config.load("icebreaker")
    assert not any(one.by_bank or one.passes for one in _ways(partition(graph, serial, Options())))


def task(reads: int, writes: int) -> Task:
    """Loads 8 bytes to an address, and stores 8 from another one."""
    return Task(0, [Transfer(0, writes, 8)], [], [Transfer(4096, reads, 8)])


def test_order_of_tasks() -> None:
    """Those that need the first of four tasks are spread over the other three; who needs the last one comes last."""
    before = [task(1 << 14, n * 1024) for n in range(4)]
    behind = [task(at, 1 << 15) for at in (0, 0, 0, 3072)]
    for n, one in enumerate(behind):
        one.stores = [Transfer(8192 + 8 * n, one.stores[0].sram, 8)]
    config = SQUARE.replace(sram="64 KiB", banks=None)
    a, b, c, d = before
    w, x, y, z = behind
    assert early(config, before, behind) == [a, w, b, x, c, y, d, z]


def test_banks_without_some() -> None:
    bank = SQUARE.bank_bytes
    free = ((0, 4), (6, 2))
    assert without(SQUARE, free, []) == free
    assert without(SQUARE, free, [(bank, 1), (7 * bank - 1, 1)]) == ((0, 1), (2, 2), (7, 1))
    assert without(SQUARE, free, [(0, 8 * bank)]) == ()


def test_the_schedule_says_so() -> None:
    tiling = Tiling(1, 8, 16, False, (0,), (8, 16), (24, 28), 5, passes_outer=True)
    assert str(tiling) == "1 rows x 8 of 16 channels, passes outer, buffers 1/2/2"


def test_loads_that_must_wait_on_more_sram() -> None:
    """Tensors in fewer banks: a load that went ahead may have to wait for what did not have to do with it."""
    graph = frontend.load("zoo:resnet8")
    late = 0
    for number in (1, 2, 4):
        config = Config(ic_lanes=8, oc_lanes=8 * number, sram="32 KiB")
        draft = Draft(partition(graph, config, Options()), way())
        cycles = draft.cycles({}, None)
        for size in (64, 256):
            moved = draft.moved(config.replace(sram=f"{size} KiB", banks=None))
            found = moved.cycles({}, None)
            if found is not None:
                assert cycles and found >= cycles
                emitter = moved.emitted(0)
                late += bool(emitter and emitter.late)
                check(CompiledNetwork(emit(moved)))
    assert late
