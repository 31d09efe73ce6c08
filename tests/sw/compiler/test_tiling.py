"""Schedules: exact prices, bounds below them, efforts that build on one another, and the cache of schedules."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.emit import array_layer
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.plan import candidates, pricing, schedule_cache, tiling
from dovetail.sw.compiler.plan.array_time import array_cycles, equal_stripe, stripe_of
from dovetail.sw.compiler.plan.schedule import Buffers, Space, Tiling, buffer_bytes, fits, place
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Layout
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import CompiledNetwork

CONFIGS = {
    "4x4": Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16, stripe=16, requant_lanes=2),
    "4 banks": Config(ic_lanes=8, oc_lanes=8, sram="32 KiB", banks=4, requant_lanes=2, stripe=16),
    "8x8": Config(ic_lanes=8, oc_lanes=8, sram="64 KiB", bus=32, memory=MemoryTiming(read_latency=90)),
    "1x16": Config(ic_lanes=1, oc_lanes=16, sram="64 KiB", bus=128),
}


def conv(size: int, channels: int, outputs: int, kernel: int = 1, stride: int = 1, mode: str = "conv") -> ConvLayer:
    """Padded by kernel // 2."""
    out = (size + kernel // 2 * 2 - kernel) // stride + 1
    group = (1, 1)
    return ConvLayer(
        size, size, channels, out, out, outputs, (kernel, kernel), (stride, stride), (1, 1), kernel // 2, kernel // 2,
        mode, False, group,
    )  # fmt: skip


LAYERS = {
    "pointwise": conv(10, 24, 40),
    "3x3": conv(13, 12, 20, kernel=3, stride=2),
    "deep": conv(4, 320, 24),
    "depthwise": conv(15, 24, 24, kernel=3, mode="depthwise"),
    "grouped": conv(6, 8, 8, kernel=3, mode="grouped"),
    "wide weights": replace(conv(8, 80, 24), terms=2, span=(9, 30)),
    "repeated taps": replace(conv(8, 80, 24), repeats=2, wide=(9, 11)),
    "wide weights, depthwise": replace(conv(15, 24, 24, kernel=3, mode="depthwise"), terms=3, span=(0, 24)),
    "product": ConvLayer(16, 1, 24, 16, 1, 20, (1, 1), (1, 1), (1, 1), 0, 0, "matmul", False, transposed=True),
}
CASES = [pytest.param(CONFIGS[c], LAYERS[n], id=f"{c} {n}") for c, n in product(CONFIGS, LAYERS)]


def spaces(config: Config, layer: ConvLayer) -> Iterator[Space]:
    """All of SRAM, and with input, output, or both in the last banks; several terms rule out a resident output."""
    yield Space.whole(config)
    bank = config.bank_bytes
    sizes = layer.height * layer.width * layer.channels, layer.out_height * layer.out_width * layer.out_channels
    for stays in ((True, False), (False, True), (True, True))[: 1 if layer.terms > 1 else 3]:
        places: list[int | None] = []
        first = config.banks
        for size, resident in zip(sizes, stays, strict=True):
            first -= ceil_div(size, bank) if resident else 0
            places.append(first * bank if resident else None)
        if first > 2:
            yield Space(((0, first),), *places)


def twice(size: int, channels: int, kernel: int) -> ir.Graph:
    """Two equal convolutions, the second of the first one's result."""
    requant = ir.Requant(np.zeros(channels, np.int32), np.zeros(channels, np.int32), Rounding.TFLITE, 0, 0, -128, 127)
    tensors = {name: ir.Tensor(name, (1, size, size, channels), np.float32(1), 0) for name in "abc"}
    nodes = [
        ir.Conv(
            name=a + b,
            inputs=(a,),
            outputs=(b,),
            weights=np.ones((channels, kernel, kernel, channels), np.int8),
            bias=np.zeros(channels, np.int32),
            requant=requant,
            stride=(1, 1),
            pads=(kernel // 2,) * 4,
            dilation=(1, 1),
        )
        for a, b in ("ab", "bc")
    ]
    ports = [ir.Port(n, n, "int8", np.float32(1), 0, Layout.plain((1, size, size, channels))) for n in "ac"]
    return ir.Graph((ports[0],), (ports[1],), tensors, tuple(nodes), "twice").check()


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(("size", "channels", "kernel"), [(10, 24, 1), (12, 16, 3), (4, 200, 1)])
def test_the_price_is_half_of_what_two_runs_take(
    config: Config, size: int, channels: int, kernel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other plans, which may be better for the two, are left out."""
    monkeypatch.setattr("dovetail.sw.compiler.search.smaller", lambda config: [])
    monkeypatch.setattr("dovetail.sw.compiler.search._worth_trying", lambda drafts: drafts[-1:])
    graph = twice(size, channels, kernel)
    node = graph.nodes[0]
    assert isinstance(node, ir.Conv)
    layer = array_layer.layer_of(config, graph, node)
    plan = tiling.choose(config, layer, Space.whole(config), Options())
    (timeline,) = CompiledNetwork(generate(graph, config, Options(keep_tensors=True))).report().timeline
    operations = ~timeline.is_fetch
    cycles = timeline.end[operations].max() + 1 - timeline.start[operations].min()
    assert plan.price == ceil_div(int(cycles), 2)


@pytest.mark.parametrize(("config", "layer"), CASES)
def test_more_effort_is_never_worse(config: Config, layer: ConvLayer) -> None:
    for space in list(spaces(config, layer))[::2]:
        plans = [tiling.choose(config, layer, space, Options(effort=effort)) for effort in (0, 1, 2)]
        prices = [pricing.exact(config, layer, space, plan) for plan in plans]
        assert prices == sorted(prices, reverse=True)
        assert prices[1:] == [plan.price for plan in plans[1:]]


def all_tilings(config: Config, layer: ConvLayer, space: Space) -> Iterator[Tiling]:
    """Every tile size in whole lanes, order and number of buffers up to two, without passes over input channels."""
    lanes = layer.lanes(config)
    for rows, blocks in product(range(1, layer.out_height + 1), range(1, ceil_div(layer.out_channels, lanes) + 1)):
        channels = min(blocks * lanes, layer.out_channels)
        sizes = buffer_bytes(config, layer, rows, channels, layer.channels, space)
        limits = [0 if size == 0 else 2 for size in (sizes.input, sizes.weights, sizes.output)]
        for i, w, o in product(*(range(min(n, 1), n + 1) for n in limits)):
            if found := place(config, sizes, (i, w, o), space):
                for order in (False, True):
                    yield Tiling(rows, channels, layer.channels, order, *found[0], 0, True)


@pytest.mark.parametrize("name", ["4x4", "4 banks"])
@pytest.mark.parametrize("layer", [conv(4, 12, 12), conv(5, 16, 16, kernel=3, mode="depthwise")])
def test_effort_3_finds_the_best_of_all(name: str, layer: ConvLayer) -> None:
    config = CONFIGS[name]
    for space in list(spaces(config, layer))[:2]:
        least = min(pricing.exact(config, layer, space, one) for one in all_tilings(config, layer, space))
        assert tiling.choose(config, layer, space, Options(effort=3)).price <= least


@pytest.mark.parametrize(("config", "layer"), CASES)
def test_no_price_is_below_its_bound(config: Config, layer: ConvLayer) -> None:
    random = np.random.default_rng(1)
    for space in spaces(config, layer):
        before = tiling.choose(config, layer, space, Options(effort=0))
        plans = candidates.cheapest(config, layer, space, tiling.many_grids(config, layer, space, before), 1 << 20)
        for n in random.integers(0, len(plans), 3):
            plan = replace(plans[n], best_stripe=True)
            price = pricing.exact(config, layer, space, plan)
            assert tiling.bound(config, layer, space, plan) <= price, plan
            assert pricing.within(config, layer, space, plan, price) == price
            assert pricing.within(config, layer, space, plan, price - 1) is None


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_best_stripe_takes_the_fewest_cycles(config: Config) -> None:
    layer = LAYERS["3x3"]
    for pixels in (7, 49, 100):
        cycles = {n: array_cycles(config, layer, pixels, 20, 12, n) for n in range(1, min(pixels, config.stripe) + 1)}
        assert cycles[stripe_of(config, layer, pixels, 20, 12, best=True)] == min(cycles.values())
        assert stripe_of(config, layer, pixels, 20, 12) == equal_stripe(config, layer, pixels)


def test_room_for_many_tilings_is_room_for_each() -> None:
    config = CONFIGS["4 banks"]
    random = np.random.default_rng(3)
    sizes, copies = random.integers(0, 20000, (3, 200)), random.integers(1, 4, (3, 200))
    for space in (Space.whole(config), Space(((0, 1), (2, 2))), Space(((0, 1), (2, 2)), output_at=config.bank_bytes)):
        found, shared = fits(config, sizes, copies, space)
        assert found.any() and not found.all()
        for n in range(200):
            placed = place(config, Buffers(*sizes[:, n].tolist()), tuple(copies[:, n].tolist()), space)
            assert (placed is not None, placed is not None and placed[1]) == (found[n], shared[n])


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_what_is_known_of_other_sizes_of_sram_changes_nothing(layer: ConvLayer) -> None:
    configs = [CONFIGS["8x8"].replace(sram=size, banks=None) for size in ("32 KiB", "128 KiB")]
    spaces = [Space(((0, 12),), input_at) for input_at in (None, configs[0].bank_bytes * 12)]
    together = [tiling.choose(c, layer, s, Options(effort=0)) for c in configs for s in spaces]
    for plan, (config, space) in zip(together, product(configs, spaces), strict=True):
        tiling.forget()
        assert tiling.choose(config, layer, space, Options(effort=0)) == plan


def test_cutting_channels_only_is_the_same_at_every_effort() -> None:
    config, layer = CONFIGS["8x8"], LAYERS["pointwise"]
    plans = {tiling.choose(config, layer, Space.whole(config), Options("channels", effort=effort)) for effort in (0, 3)}
    assert len(plans) == 1


@pytest.mark.parametrize("effort", [0, 1, 2, 3])
@pytest.mark.parametrize("name", ["4x4", "4 banks"])
def test_outputs_do_not_depend_on_effort(name: str, effort: int) -> None:
    net = RandomNet(seed=5)
    x = net.input(1, 6, 6, 160)
    graph = net.graph(net.conv(net.conv(net.conv(x, 12, size=3), 40, size=1, stride=2), 0, multiplier=1))
    inputs = graph.bind(np.random.default_rng(2).integers(-128, 128, (1, 6, 6, 160)).astype(np.int8))
    compiled = CompiledNetwork(generate(graph, CONFIGS[name], Options(effort=effort)))
    result = compiled.run(inputs)
    for port in graph.outputs:
        np.testing.assert_array_equal(result.tensors[port.tensor], reference.evaluate(graph, inputs)[port.tensor])
    assert result.cycles == compiled.report().cycles


def test_more_effort_is_never_worse_for_a_network() -> None:
    net = RandomNet(seed=3)
    graph = net.graph(net.conv(net.conv(net.conv(net.input(1, 9, 9, 24), 40, size=1), 0, multiplier=1), 16, size=1))
    for config in CONFIGS.values():
        cycles = [
            CompiledNetwork(generate(graph, config, Options(effort=effort))).report().cycles for effort in (0, 1, 2)
        ]
        assert cycles == sorted(cycles, reverse=True)


# --- the cache --------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[schedule_cache.ScheduleCache]:
    """A cache in use, and nothing remembered in this process."""
    schedule_cache.use(tmp_path)
    tiling.forget()
    found = schedule_cache.current()
    assert found
    yield found
    schedule_cache.use(None)


def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by the effort of every search from now on, of this process, which forgets what it knows."""
    efforts: list[int] = []
    search = tiling.search

    def counted(config: Config, layer: ConvLayer, space: Space, effort: int) -> Tiling:
        efforts.append(effort)
        return search(config, layer, space, effort)

    monkeypatch.setattr(tiling, "search", counted)
    tiling.forget()
    return efforts


def test_a_known_schedule_is_not_searched_for(
    cache: schedule_cache.ScheduleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, layer = CONFIGS["4x4"], LAYERS["pointwise"]
    space = Space.whole(config)
    first = tiling.choose(config, layer, space, Options(effort=2))
    efforts = searched(monkeypatch)
    assert tiling.choose(config, layer, space, Options(effort=2)) == first
    assert not efforts
    # Everything that the schedule follows from is part of the key.
    tiling.choose(config.replace(memory=MemoryTiming(read_latency=41)), layer, space, Options())
    tiling.choose(config, replace(layer, channels=25), space, Options())
    tiling.choose(config, layer, Space(((0, 8),)), Options())
    assert efforts == [1, 1, 1]
    # Not what it does not follow from.
    tiling.choose(config, layer, space, Options(effort=1, keep_tensors=True))
    assert efforts == [1, 1, 1]


@pytest.mark.parametrize("damage", ["garbage", "empty", "cut", "changed", "folder"])
def test_a_damaged_cache_is_rebuilt(
    damage: str, cache: schedule_cache.ScheduleCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, layer = CONFIGS["4x4"], LAYERS["pointwise"]
    space = Space.whole(config)
    first = tiling.choose(config, layer, space, Options())
    data = cache.path.read_bytes()
    if damage == "changed":
        with sqlite3.connect(cache.path) as file:
            file.execute("UPDATE schedules SET value = replace(value, '\"rows\": ', '\"rows\": 1')")
        file.close()
    elif damage == "folder":
        cache.path.unlink()
        cache.path.mkdir()
    else:
        cache.path.write_bytes({"garbage": b"x" * 9000, "empty": b"", "cut": data[: len(data) // 2]}[damage])
    efforts = searched(monkeypatch)
    assert tiling.choose(config, layer, space, Options()) == first
    assert efforts == [1]
    if damage != "folder":
        tiling.forget()
        tiling.choose(config, layer, space, Options())  # starts a new file, if the damage was found just now
        tiling.forget()
        efforts.clear()
        assert tiling.choose(config, layer, space, Options()) == first
        assert not efforts


def test_another_compiler_has_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = schedule_cache.ScheduleCache(tmp_path)
    monkeypatch.setattr(schedule_cache, "version", lambda: "another")
    there = schedule_cache.ScheduleCache(tmp_path)
    here.put("key", 1)
    assert (here.get("key"), there.get("key")) == (1, None)
    there.put("key", 2)
    assert (here.get("key"), there.get("key")) == (None, 2)
    assert list(tmp_path.iterdir()) == [there.path]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = schedule_cache.ScheduleCache(tmp_path / "file" / "folder")
    cache.put("key", 1)
    assert cache.get("key") is None


def test_many_writers_at_a_time(tmp_path: Path) -> None:
    def write(first: int) -> None:
        for n in range(first, first + 10):
            schedule_cache.ScheduleCache(tmp_path).put(["key", n], n)

    threads = [Thread(target=write, args=(10 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [schedule_cache.ScheduleCache(tmp_path).get(["key", n]) for n in range(40)] == list(range(40))
