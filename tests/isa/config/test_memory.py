"""Kinds of memory: presets, files, and timings that no datasheet allows."""

import re
from typing import Any

import pytest

from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.memory import DramTiming, SdramTiming, memory_of, table_of
from dovetail.isa.config.memory_presets import PRESETS
from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System

RATES = {"ddr3-1600-x16": 3200, "ddr4-2400-x16": 4800, "lpddr4-3200-x16": 6400}
"""MB/s at most."""


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str) -> None:
    memory = memory_of(f"{name}@200MHz")
    assert isinstance(memory, DramTiming)
    assert memory.clock == 200_000_000 and memory.preset == name
    assert memory.block * memory.dram_clock // memory.data_ticks == RATES[name] * 10**6
    assert memory_of(table_of(memory)) == memory == memory_of({"kind": "dram", "preset": name, "clock": "0.2 GHz"})
    assert memory != memory_of(name)
    assert memory.label == f"{name}@200MHz"


def test_times_are_rounded_up_and_intervals_down() -> None:
    memory = memory_of(
        {"kind": "dram", "preset": "ddr4-2400-x16", "rcd": "14.17 ns", "rp": "20 ck", "refi": "3.9009 us"}
    )
    assert isinstance(memory, DramTiming)
    assert (memory.rcd, memory.rp, memory.refi) == (18, 20, 4681)
    assert (memory.ras, memory.faw) == (39, 36), "the preset's"


def test_cycles_and_ticks() -> None:
    memory = memory_of({"kind": "dram", "preset": "ddr3-1600-x16", "clock": "300 MHz", "front": "3 ck", "back": "1 ck"})
    assert isinstance(memory, DramTiming)
    assert [memory.arrival(cycle) for cycle in (0, 1, 2)] == [3 + 3, 6 + 3, 8 + 3]  # 8/3 ticks a cycle
    assert [memory.ready(end) for end in (7, 8, 15)] == [3, 4, 6]


def test_files() -> None:
    config = Config(memory={"kind": "dram", "preset": "ddr4-2400-x16", "queue": 4})
    assert Config.from_toml(config.to_toml()) == config and config.hash == Config().hash
    assert Config.from_toml('memory = "sdram@50MHz"').memory == SdramTiming(
        clock=50_000_000, rcd=1, rp=1, ras=3, rfc=4, wr=1, refresh_interval=390
    )
    assert Config.from_toml('[memory]\nkind = "fixed"\nread_latency = 9').memory == MemoryTiming(read_latency=9)
    text = '[accelerators]\na = "small"\n[memory]\nkind = "dram"\npreset = "ddr3-1600-x16"\nsize = "1 MiB"\n'
    system = System.from_toml(text)
    assert (system.memory, system.memory_bytes) == (memory_of("ddr3-1600-x16"), 1 << 20)


def test_plans_are_made_with_a_fixed_memory_of_its_kind() -> None:
    assert Config().like_fixed == Config().memory
    assert Config(memory="ddr3-1600-x16").like_fixed == MemoryTiming(read_latency=7, write_latency=7, beat_cycles=1)
    wide = Config(memory="ddr3-1600-x16@400MHz", bus=128).like_fixed
    assert wide.beat_cycles == 2, "3.2 GB/s"
    assert Config(memory="sdram").like_fixed.beat_cycles == 4, "two bytes a cycle"


DDR = {"kind": "dram", "preset": "ddr3-1600-x16"}
PERIODS = "periods of the clock, not"
MAP = "bank-row-column-group"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "dram"}, "dram_clock must be given, or a preset, one of ddr3-1600-x16, ddr4-2400-x16, lpddr4-3200-x16"),
    ({**DDR, "ras": "10 ns"}, f"ras must be at least rcd = 11 {PERIODS} 8"),
    ({**DDR, "refi": "200 ns"}, f"refi must be at least 2 * (rfc + ras + rp + rcd + wr) = 540 {PERIODS} 160"),
    ({**DDR, "rfc": "40 ns"}, f"rfc must be at least ras + rp = 39 {PERIODS} 32"),
    ({**DDR, "ccd": "3 ck"}, f"ccd must be at least burst_length / 2 = 4 {PERIODS} 3"),
    ({**DDR, "ccd_l": "3 ck"}, f"ccd_l must be at least ccd = 4 {PERIODS} 3"),
    ({**DDR, "faw": "1 ck"}, f"faw must be at least rrd = 6 {PERIODS} 1"),
    ({**DDR, "cl": "7 ck"}, f"cl must be at least cwl = 8 {PERIODS} 7"),
    ({**DDR, "cl": "11.5 ck"}, "cl must be whole periods of the clock, not '11.5 ck'"),
    ({**DDR, "rcd": "14"}, "rcd must be a text such as \"13.75 ns\", not '14'"),
    ({**DDR, "banks": 6}, "banks must be a power of two, 1..64, not 6"),
    ({**DDR, "banks": 64, "groups": 2}, "groups * banks must be at most 64, not 128"),
    ({**DDR, "map": MAP}, f"map must be row, then the other of row, bank, column, group, not '{MAP}'"),
    ({**DDR, "queue": 0}, "queue must be 1..64, not 0"),
    ({**DDR, "tRCD": "14 ns"}, '"tRCD" must be a name of its parts'),
    (
        {"kind": "sdram", "refresh_interval": "0.3 us"},
        f"refresh_interval must be at least 2 * (rfc + ras + rp + rcd + wr) = 36 {PERIODS} 30",
    ),
    ({"kind": "sdram", "phase": 780}, "phase must be 0..779, not 780"),
    ({"kind": "sdram", "width": 8}, "width must be one of 16, 32 with sdram, not 8"),
    ({"kind": "sdram", "clock": "200 MHz"}, "clock must be at most 100 MHz with sdram, not 200 MHz"),
]
WRONG_NAMES = {
    "ddr4-2400": "memory must be a kind or a preset, not 'ddr4-2400'; did you mean \"ddr4-2400-x16\"?",
    "fixed@3MHz": "memory: fixed counts in cycles and must have no clock, not 'fixed@3MHz'",
    "sdram@fast": "memory: clock must be a text such as \"100 MHz\", not 'fast'",
}


@pytest.mark.parametrize(("given", "text"), WRONG, ids=lambda v: re.sub(r"\W+", "-", str(v))[-30:])
def test_timings_that_cannot_be(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as found:
        Config(memory=given)
    assert str(found.value).startswith(f"memory: {text}")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError) as found:
        memory_of(name)
    assert str(found.value) == WRONG_NAMES[name]


def test_the_microcoded_accelerator_has_a_fixed_one() -> None:
    with pytest.raises(ConfigError, match="serial needs memory of kind fixed, not ddr3-1600-x16@100MHz"):
        Config.load("icebreaker").replace(memory=memory_of("ddr3-1600-x16"))
