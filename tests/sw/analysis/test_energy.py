"""Energy: by hand from a table, its interpolation, and what is said of tables that break a rule."""

import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.cost.activity import EVENTS, activity_of, events_of
from dovetail.sw.analysis.cost.energy import DEFAULT_TABLE, FOLDER, TABLES, EnergyError, energy_of, load_table, table_of
from dovetail.sw.runtime.compiled_network import compile_network

SMALL = Config.load("small")
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
        ("accumulates", "accumulators", 0.1),
        ("accumulator_visits", "accumulators", 2 * 2.5 / 2),  # 512 bytes: 10 pJ / sqrt(16) per 64 bits
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
        (("pj", "add"), -1, r"pj.add must be a number of pJ, 0..1e\+12, not -1"),
        (("pj", "add"), "0.1", r"pj.add must be a number of pJ, 0..1e\+12, not '0.1'"),
        (("pj", "add"), True, r"pj.add must be a number of pJ, 0..1e\+12, not True"),
        (("pj", "add"), 10**400, r"pj.add must be a number of pJ, 0..1e\+12, not 1000"),
        (("pj", "multiply"), None, r"pj.multiply must be a number of pJ, 0..1e\+12, not missing"),
        (("pj", "mac"), 1, "pj.mac is not a key of an energy table; known: pj.multiply, pj.add"),
        (("watts",), 1, "watts is not a key of an energy table; known: name, technology"),
        (("source",), None, "source must be a text, not missing"),
        (("name",), 45, "name must be a text, not 45"),
        (("pj",), 3, "pj must be a table, not 3"),
        (("sram",), None, "sram.bits must be the bits of an access, 1..65536, not missing"),
        (("sram", "bits"), 0, "sram.bits must be the bits of an access, 1..65536, not 0"),
        (("sram", "bits"), 10**400, "sram.bits must be the bits of an access, 1..65536, not 1000"),
        (("sram", "pj"), [1.0], "sram.pj must have as many numbers as sram.bytes, 3, not 1"),
        (("sram", "bytes"), [8, 8, 9], r"sram.bytes must grow from one to the next, not \[8, 8, 9\]"),
        (("sram", "bytes"), [], r"sram.bytes must be a list of integers, 1..1099511627776, not \[\]"),
        (("sram", "bytes"), [0.5, 1, 2], r"sram.bytes must be a list of integers, 1..1099511627776, not \[0.5"),
        (("sram", "pj"), [1, "2", 3], r"sram.pj must be a list of numbers above 0, up to 1e\+12, not \[1, '2', 3\]"),
        (("sram", "pj"), [1, 1e12, 1e12], "the power of 4, not from 1 pJ of 8192 bytes to 1e\\+12 pJ of 32768"),
        (("cycle", "sram_byte"), float("nan"), r"cycle.sram_byte must be a number of pJ, 0..1e\+12, not nan"),
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
    with pytest.raises(EnergyError, match="energy table must be TOML: embedded null byte"):
        load_table("5\0nm")


def test_nothing_runs() -> None:
    """A network that is left to the host has no cycles, and a table's cycles cost nothing."""
    everything = table_of({**DATA, "cycle": {"multiplier": 0.5, "sram_byte": 0.001}})
    assert energy_of(SMALL, events_of(SMALL, []), 0, everything).total == 0
