"""Configurations from the command line."""

import argparse
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.flows.options import parameters
from dovetail.isa.config.given import PARAMETERS, ConfigError, MemoryTiming
from dovetail.isa.config.memory import memory_of
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config

SMALL = Config.load("small")


def parse(*argv: str, lists: bool = False) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parameters.add_options(parser, lists=lists)
    return parser.parse_args(argv)


def test_no_flags_is_the_default() -> None:
    assert parameters.config_of(parse()) == Config()


def test_every_parameter_of_the_configuration_has_a_flag() -> None:
    hardware = set(Config(pixel_lanes=2, softmax=1, norm=1, norm_bits=16, parameters=1).to_dict()) - {"memory"}
    names = hardware | set(vars(MemoryTiming())) | {"pe", "dataflow", "extensions"}
    assert set(parameters.SETTINGS) == names | {"lanes", "memory_model"}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--ic-lanes", "8", "--oc-lanes", "16"], Config(ic_lanes=8, oc_lanes=16)),
        (["--oc-lanes", "16"], Config(ic_lanes=8, oc_lanes=16)),
        (["--lanes", "8x16"], Config(ic_lanes=8, oc_lanes=16)),
        (["--lanes", "16x16x4"], Config(ic_lanes=16, oc_lanes=16, pixel_lanes=4)),
        (["--lanes", "8x16x1"], Config(ic_lanes=8, oc_lanes=16)),
        (["--pixel-lanes", "2", "--stripe", "128"], Config(ic_lanes=8, oc_lanes=8, pixel_lanes=2, stripe=128)),
        (["--pe", "256", "--dataflow", "balanced"], Config(ic_lanes=4, oc_lanes=16, pixel_lanes=4)),
        (["--pe", "128"], Config(pe=128)),
        (["--dataflow", "output"], Config(pe=64, dataflow="output")),
        (["--sram", "1MiB", "--banks", "8"], Config(sram="1 MiB", banks=8)),
        (["--stripe", "8", "--outstanding", "2", "--bus", "128"], Config(stripe=8, outstanding=2, bus=128)),
        (["--requant-lanes", "2", "--vector-lanes", "1"], Config(requant_lanes=2, vector_lanes=1)),
        (["--pooling", "false"], Config(pooling=False)),
        (["--depthwise", "emulated"], Config(depthwise="emulated")),
        (
            ["--mem-latency", "7", "--mem-write-latency", "8", "--beat-cycles", "2"],
            Config(memory=MemoryTiming(read_latency=7, write_latency=8, beat_cycles=2)),
        ),
        (["--read-latency", "7", "--write-latency", "8"], Config(memory=MemoryTiming(read_latency=7, write_latency=8))),
        (["--config", "16x16", "--bus", "128"], Config(ic_lanes=16, oc_lanes=16, sram="512 KiB", bus=128)),
        (["--config", "small", "--depthwise", "none"], SMALL.replace(depthwise="none")),
    ],
)  # fmt: skip
def test_flags(argv: list[str], expected: Config) -> None:
    assert parameters.config_of(parse(*argv)) == expected


def test_the_default_s_banks_are_for_its_sram() -> None:
    assert parameters.config_of(parse("--sram", "384KiB", "--bus", "128")) == Config(sram="384 KiB", bus=128)
    assert parameters.config_of(parse("--banks", "16")) == Config(sram="256 KiB", banks=16)
    assert parameters.changed(Config(sram="256 KiB"), {"sram": 384 << 10}) == Config(sram="384 KiB")
    assert parameters.config_of(parse("--config", "small", "--sram", "64KiB")).banks == SMALL.banks


def test_flags_change_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('ic_lanes = 4\noc_lanes = 4\nrequant_lanes = 3\nsram = "64 KiB"\n')
    config = parameters.config_of(parse("--config", str(path), "--oc-lanes", "8", "--sram", "128KiB"))
    assert config == Config(ic_lanes=4, oc_lanes=8, requant_lanes=3, sram="128 KiB")


@pytest.mark.parametrize("name", PRESETS)
def test_nothing_changed_is_the_same(name: str) -> None:
    assert parameters.changed(Config.load(name), {}) == Config.load(name)
    assert parameters.changed(Config.load(name), {"stripe": Config.load(name).stripe}) == Config.load(name)


@given(pe=st.sampled_from([8, 60, 64, 100]), flow=st.sampled_from(["input", "output", "mixed", "balanced"]))
def test_derived_parameters_follow(pe: int, flow: str) -> None:
    assert parameters.changed(Config(ic_lanes=3, oc_lanes=5), {"pe": pe, "dataflow": flow}) == Config(
        pe=pe, dataflow=flow
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--pe", "64", "--ic-lanes", "8"],
            "give either pe and dataflow or ic_lanes, oc_lanes and pixel_lanes, not both",
        ),
        (["--pe", "7"], "pe must be 8..1024, not 7"),
        (["--lanes", "8x8", "--pe", "64"], "give lanes without pe, dataflow, ic_lanes, oc_lanes and pixel_lanes"),
        (["--mem-latency", "0"], "read_latency must be 1..4096, not 0"),
    ],
)
def test_rules(argv: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        parameters.config_of(parse(*argv))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--pe", "many"], "argument --pe: must be an integer, not 'many'"),
        (["--dataflow", "both"], "argument --dataflow: must be one of input, output, mixed, balanced, not 'both'"),
        (["--lanes", "8"], "argument --lanes: must be input and output lanes such as [8, 16], or these and"),
        (["--sram", "much"], 'argument --sram: must be a size in B, KiB, MiB or GiB such as "512 KiB", not'),
        (["--pooling", "yes"], "argument --pooling: must be true or false, not 'yes'"),
    ],
)
def test_malformed_flags(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        parse(*argv)
    assert message in capsys.readouterr().err


def test_lists() -> None:
    args = parse("--pe", "64,128", "--sram", "512KiB, 1MiB", "--depthwise", "native", lists=True)
    assert parameters.given(args) == {"pe": [64, 128], "sram": [1 << 19, 1 << 20], "depthwise": ["native"]}


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--sram", "64KiB..1MiB"], [1 << n for n in range(16, 21)]),
        (["--sram", "64 KiB..200KiB:64KiB"], [65536, 131072, 196608]),
        (["--stripe", "8..32"], [8, 16, 32]),
        (["--stripe", "8..20:4"], [8, 12, 16, 20]),
        (["--stripe", "8..8"], [8]),
        (["--lanes", "8x8, 16x4x1, 4x8x2"], [(8, 8), (16, 4), (4, 8, 2)]),
    ],
)
def test_ranges(argv: list[str], values: list[Any]) -> None:
    assert next(iter(parameters.given(parse(*argv, lists=True)).values())) == values


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--stripe", "8..4"], "argument --stripe: must go up, not from 8 to 4"),
        (["--stripe", "8..16:0"], "argument --stripe: must have a step of at least 1, or a factor above 1 and start"),
        (
            ["--stripe", "0..16"],
            "argument --stripe: must have a step of at least 1, or a factor above 1 and start above",
        ),
        (["--stripe", "8.."], "argument --stripe: must be an integer, not ''"),
        (["--depthwise", "none..native"], "argument --depthwise: must be a list of values, not the range"),
    ],
)
def test_malformed_ranges(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        parse(*argv, lists=True)
    assert message in " ".join(capsys.readouterr().err.split())


def test_factors_make_every_value_new() -> None:
    assert parameters.values_between(1, 6, factor=1.5) == [1, 2, 3, 4, 6]
    assert parameters.values_between(1, 6, factor=1.01) == [1, 2, 3, 4, 5, 6]


def test_lists_hold_no_value_twice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--sram", "1MiB,1024KiB", lists=True)
    assert "argument --sram: values must differ, not '1MiB,1024KiB'" in capsys.readouterr().err


def test_flat() -> None:
    row = parameters.flat(Config(pe=64, dataflow="input", depthwise="none"))
    assert list(row) == list(PARAMETERS)
    assert (row["pe"], row["dataflow"], row["depthwise"], row["read_latency"]) == (64, "input", "none", 40)


def test_a_flag_names_a_memory() -> None:
    base = Config(pe=64, memory=MemoryTiming(read_latency=9))
    named = parameters.changed(base, {"memory_model": "ddr3-1600-x16@200MHz"})
    assert named.memory == memory_of("ddr3-1600-x16@200MHz") and named.ic_lanes == base.ic_lanes
    assert parameters.changed(named, {"memory_model": "fixed", "read_latency": 7}).memory == MemoryTiming(
        read_latency=7
    )
    assert parameters.changed(named, {"sram": 64 << 10}).memory == named.memory
    with pytest.raises(ConfigError, match='memory: "read_latency" must be a name of its parts'):
        parameters.changed(named, {"read_latency": 7})
    with pytest.raises(ConfigError, match="memory_model must be a kind or a preset, not 'ddr5'; known: fixed, sdram"):
        parameters.SETTINGS["memory_model"].parse("ddr5")
