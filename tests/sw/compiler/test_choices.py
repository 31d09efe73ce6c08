"""What is remembered of a compilation: the plan that won is written again, alone, and nothing else changes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler import search
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.place import Given
from dovetail.sw.compiler.plan import choices, schedule_cache, tiling
from dovetail.sw.compiler.plan.choices import Choice, Way
from dovetail.sw.network import ir
from dovetail.sw.random.networks import RandomNet
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.compiler.test_cascades import inverted

SMALL = Config(ic_lanes=4, oc_lanes=4, sram="96 KiB")


def of_all_sram() -> tuple[ir.Graph, Config]:
    return frontend.load("zoo:resnet8"), SMALL.replace(sram="48 KiB")


def of_less_sram() -> tuple[ir.Graph, Config]:
    return frontend.load("zoo:dscnn"), Config(ic_lanes=4, oc_lanes=8, pixel_lanes=2, sram="80 KiB")


def rearranged() -> tuple[ir.Graph, Config]:
    return frontend.load("zoo:mobilenet_v2?resolution=96"), Config(ic_lanes=16, oc_lanes=16, sram="64 KiB")


def in_bands() -> tuple[ir.Graph, Config]:
    net = RandomNet(3)
    config = Config(ic_lanes=4, oc_lanes=8, pixel_lanes=4, sram="256 KiB", bus=32)
    return net.graph(inverted(net, 112, 112)), config


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[Partition]]:
    """Grows with each search for a plan, of a process that knows nothing and has an empty cache."""
    found: list[Partition] = []
    original = search.search

    def counted(partition: Partition) -> tuple[Draft, int]:
        found.append(partition)
        return original(partition)

    monkeypatch.setattr(search, "search", counted)
    schedule_cache.use(tmp_path)
    tiling.forget()
    yield found
    schedule_cache.use(None)
    tiling.forget()


def compiled(graph: ir.Graph, config: Config, effort: int = 0) -> bytes:
    return compile_network(graph, config, effort=effort).program.to_bytes()


@pytest.mark.parametrize(("case", "effort"), [(of_all_sram, 0), (of_less_sram, 0), (in_bands, 1), (rearranged, 0)])
def test_a_known_plan_is_not_searched_for(case: Any, effort: int, searches: list[Partition]) -> None:
    graph, config = case()
    wanted = compiled(graph, config, effort)
    assert compiled(graph, config, effort) == wanted
    tiling.forget()  # as another process, which has the file
    assert compiled(graph, config, effort) == wanted
    assert len(searches) == 1
    key = choices.key_of(graph, config, Options(effort=effort), Given())
    choice = choices.get(key)
    assert choice
    assert (choice.sram < config.sram, choice.cascaded) == (case is of_less_sram, case in (in_bands, rearranged))
    assert choice.way.moves or case is not rearranged


def test_what_is_not_so_is_searched_again(searches: list[Partition]) -> None:
    graph, config = of_all_sram()
    wanted = compiled(graph, config)
    key = choices.key_of(graph, config, Options(effort=0), Given())
    choice = choices.get(key)
    assert choice
    wrong = [
        choice._replace(cycles=choice.cycles + 1),
        choice._replace(sram=12345),
        choice._replace(way=choice.way._replace(effort=3)),
        choice._replace(cascaded=True),
    ]
    for one in wrong:
        choices.put(key, one)
        assert compiled(graph, config) == wanted
        assert choices.get(key) == choice, "the right one replaces it"
    assert len(searches) == 1 + len(wrong)


@pytest.mark.parametrize(
    "value", [None, 5, [1], "abcd", [32768, [0, 1], False, 9], [[], [0, True], False, 9], [32768, 5, True, 9]]
)
def test_another_form_is_no_choice(value: Any) -> None:
    assert choices._read(value) is None


def test_a_choice_is_read_back() -> None:
    choice = Choice(65536, Way(1, True, keeps=4, by_bank=True), False, 799499)
    assert choices._read(json.loads(json.dumps(choice))) == choice


def test_keys_tell_weights_and_options_apart() -> None:
    def graph(seed: int) -> ir.Graph:
        net = RandomNet(seed)
        return net.graph(net.conv(net.input(1, 4, 4, 4), 4))

    keys = [
        choices.key_of(graph(1), SMALL, Options(), Given()),
        choices.key_of(graph(2), SMALL, Options(), Given()),
        choices.key_of(graph(1), SMALL, Options(effort=2), Given()),
        choices.key_of(graph(1), SMALL.replace(sram="48 KiB"), Options(), Given()),
        choices.key_of(graph(1), SMALL, Options(), Given(start=4096)),
    ]
    assert len(set(keys)) == 5
    assert choices.key_of(graph(1), SMALL, Options(), Given()) == keys[0]
