"""Energy: by hand from a table, its interpolation, and what is said of tables that break a rule."""

import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dovetail.isa.config import PRESETS
from dovetail.sw.cost.activity import EVENTS, activity_of
from dovetail.sw.cost.energy import DEFAULT_TABLE, FOLDER, TABLES, EnergyError, energy_of, load_table, table_of
from dovetail.sw.network import compile_network

SMALL = PRESETS["small"]
DATA: dict[str, Any] = tomllib.loads((FOLDER / f"{DEFAULT_TABLE}.toml").read_text())


def test_published_figures() -> None:
    table = load_table("45nm")
    assert (table.multiply, table.add, table.multiply_wide) == (0.2, 0.1, 3.1)
    assert [table.access(size, 64) for size in (8 << 10, 32 << 10, 1 << 20)] == pytest.approx([10, 20, 100])
    assert 8 * table.dram_byte == 1300
    assert "ISSCC 2014" in table.source and "45 nm" in table.technology


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_come_along(name: str) -> None:
    assert load_table(name).name == name


def test_between_and_beyond_the_points() -> None:
    table = load_table("45nm")
    assert table.access(16 << 10, 64) == pytest.approx(10 * 2**0.5)  # twice for four times the size
    assert table.access(2 << 10, 64) == pytest.approx(5)
    assert table.access(32 << 20, 64) == pytest.approx(500)  # five times for 32 times the size
    assert table.access(8 << 10, 256) == pytest.approx(40)
    one = table_of({**DATA, "sram": {"bits": 32, "bytes": [4096], "pj": [3]}})
    assert one.access(1 << 20, 64) == 6


def test_by_hand() -> None:
    table = load_table("45nm")
    none = dict.fromkeys(EVENTS, 0)
    word = 10 * 128 / 64  # a word of 16 bytes of a bank of 8 KiB
    for event, part, pj in (
        ("multiplies", "array", 0.3),
        ("accumulates", "accumulators", 0.1 + 2 * 2.5 / 2),  # 512 bytes: 10 pJ / sqrt(16) per 64 bits
        ("requantises", "requantise", 3.3),
        ("vector_taps", "vector", 0.1),
        ("vector_results", "vector", 6.4),
        ("sram_read_input", "sram", word),
        ("sram_write_vector", "sram", word),
        ("dram_read_beats", "dram", 1300),
        ("dram_write_beats", "dram", 1300),
        ("fetched_words", "instructions", 1300 + 2 * 5),
    ):
        energy = energy_of(SMALL, none | {event: 1000}, 0, table)
        assert {name: pj for name, pj in energy.parts.items() if pj} == {part: pytest.approx(1000 * pj)}, event


def test_every_cycle() -> None:
    data = {**DATA, "cycle": {"multiplier": 0.5, "sram_byte": 0.001}}
    energy = energy_of(SMALL, dict.fromkeys(EVENTS, 0), 10, table_of(data))
    assert energy.total == energy.parts["cycles"] == pytest.approx(10 * (64 * 0.5 + (32 << 10) * 0.001))


def test_network_adds_up() -> None:
    compiled = compile_network("zoo:dscnn", SMALL, effort=0)
    events = activity_of(compiled)
    energy = energy_of(SMALL, events, events["cycles"], load_table("45nm"))
    assert energy.total == pytest.approx(sum(energy.parts.values()))
    assert all(value > 0 for name, value in energy.parts.items() if name != "cycles") and energy.parts["cycles"] == 0


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("pj", "add"), -1, "pj.add must be a number of pJ, 0 or more, not -1"),
        (("pj", "add"), "much", "pj.add must be a number of pJ, 0 or more, not 'much'"),
        (("pj", "multiply"), None, "pj.multiply must be a number of pJ, 0 or more, not None"),
        (("pj", "mac"), 1, "pj.mac is not a key of an energy table; known: pj.multiply, pj.add"),
        (("watts",), 1, "watts is not a key of an energy table; known: name, technology"),
        (("source",), None, "source must be a text that says where the figures come from, not None"),
        (("pj",), 3, "pj must be a table, not 3"),
        (("sram", "bits"), 0, "sram.bits must be the bits of an access, 1 or more, not 0"),
        (("sram", "pj"), [1.0], "sram.pj must have as many numbers as sram.bytes, 3, not 1"),
        (("sram", "bytes"), [8, 8, 9], r"sram.bytes must grow from one to the next, not \[8, 8, 9\]"),
        (("sram", "bytes"), [], r"sram.bytes must be a list of numbers above 0, not \[\]"),
        (("cycle", "sram_byte"), float("nan"), "cycle.sram_byte must be a number of pJ, 0 or more, not nan"),
    ],
)
def test_rules_of_a_table(path: tuple[str, ...], value: Any, text: str) -> None:
    data = deepcopy(DATA)
    place = data
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    with pytest.raises(EnergyError, match=text):
        table_of(data)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((FOLDER / "45nm.toml").read_text().replace("add = 0.1 ", "add = 0.4 "))
    assert load_table(path).add == 0.4
    path.write_text("add = ")
    with pytest.raises(EnergyError, match=r"mine.toml: energy table must be TOML: Invalid value"):
        load_table(path)
    path.write_text("[pj]\nadd = -1\n")
    with pytest.raises(EnergyError, match=r"mine.toml: name must be a text"):
        load_table(path)
    with pytest.raises(EnergyError, match="5nm: energy table must be a TOML file or one of 45nm"):
        load_table("5nm")
