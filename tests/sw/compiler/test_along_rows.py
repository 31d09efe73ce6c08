"""Tasks of many steps that go along rows: what comes of the program is as ever, and array and vector unit are busy."""

from dataclasses import replace

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler import search
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import Partition, partition
from dovetail.sw.compiler.plan import choices
from dovetail.sw.compiler.plan.choices import Way
from dovetail.sw.runtime.compiled_network import compile_network
from tests.slow import slow
from tests.sw.compiler.test_scheduling import check

EIGHT = Config(ic_lanes=8, oc_lanes=8, sram="1 MiB", vector_lanes=8, softmax=4, norm=4)
SIXTEEN = Config(ic_lanes=16, oc_lanes=16, sram="1 MiB", bus=128, vector_lanes=16, softmax=4, norm=4)


def part(name: str, config: Config) -> Partition:
    return partition(frontend.load(f"zoo:{name}"), config, Options(effort=0))


@pytest.mark.parametrize("name", ["kwt?depth=1", "cct?depth=1", "bert_tiny?depth=1&tokens=40&channels=32"])
@pytest.mark.parametrize(
    "config",
    [
        EIGHT,
        *(slow(one) for one in (replace(EIGHT, sram=64 << 10), SIXTEEN, replace(EIGHT, banks=4))),
    ],
)
def test_bytes_and_cycles(name: str, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """With banks set apart and without, with room for all and for little of it, each number of rows."""
    ways = [way for way in search._ways(part(name, config)) if way.rows]
    assert len(ways) == 2 * len(search.PARTS), "with matrices in SRAM, and without"
    for way in ways:
        monkeypatch.setattr(search, "_ways", lambda _, way=way: [Way(0, False), way])
        monkeypatch.setattr(search, "_on_less", lambda *_: ())
        choices.forget()
        check(compile_network(f"zoo:{name}", config, effort=0))
    choices.forget()


def test_rows_of_a_tile_are_those_that_the_vector_unit_takes_at_once() -> None:
    """Parts of the 99 rows of most norms and softmaxes; not of the classifier's one row."""
    assert search._tiles(part("kwt?depth=1", SIXTEEN)) == [28, 36, 52]
    assert search._tiles(part("kwt?depth=1", replace(SIXTEEN, softmax=1, norm=1))) == [25, 33, 50]
    assert search._tiles(part("resnet8", SIXTEEN)) == []


def test_without_room_there_is_no_such_draft() -> None:
    """Two rows, as operand and as result, and a table do not fit a bank of 2 KiB."""
    config = replace(EIGHT, sram=32 << 10)
    net = part("bert_tiny?depth=1&tokens=40&channels=256", config)
    best, _ = search._best(search._drafts(net, (way for way in search._ways(net) if way.rows)), None)
    assert best is None or best.way.rows


def test_it_is_remembered() -> None:
    choices.forget()
    first = compile_network("zoo:kwt?depth=2", SIXTEEN, effort=0)
    again = compile_network("zoo:kwt?depth=2", SIXTEEN, effort=0)
    assert [choice.way.rows for choice in choices._choices.values()] == [52]
    assert [segment.words for segment in first.code.segments] == [segment.words for segment in again.code.segments]


def test_fewer_cycles_than_side_by_side() -> None:
    """Of the same network, steps beside their neighbours only, and along rows."""
    net = part("kwt?depth=2", SIXTEEN)
    cycles = [Draft(net, way).cycles({}, None) for way in (Way(0, True), Way(0, True, True, 52))]
    assert cycles == [68_394, 56_310]


@pytest.mark.parametrize(
    ("name", "config", "cycles"),
    [
        slow("cct", EIGHT, 321_909),
        ("cct", SIXTEEN, 88_025),
        slow("kwt", EIGHT, 1_192_672),
        slow("kwt", SIXTEEN, 315_640),
        slow("bert_tiny", EIGHT, 931_563),
        slow("bert_tiny", SIXTEEN, 240_581),
    ],
)
def test_transformers_of_the_zoo(name: str, config: Config, cycles: int) -> None:
    """At most 1.06 of the roofline on 8 x 8, and 1.17 on 16 x 16."""
    report = compile_network(f"zoo:{name}", config).report()
    assert report.cycles == cycles
    assert cycles < report.bound * (1.06 if config == EIGHT else 1.17)
