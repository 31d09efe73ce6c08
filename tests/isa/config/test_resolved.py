"""The configuration: derivation, rules, text forms, hash."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.isa.config.given import ConfigError, MemoryTiming
from dovetail.isa.config.presets import PRESETS
from dovetail.isa.config.resolved import Config, array_of, lanes_of

HASHES = {
    "default": 0x6B32_6E1F_CC5B_3D9C,
    "8x8": 0x9E12_2D8D_320F_E4BE,
    "16x16": 0xCA18_C2C7_1045_CF52,
    "4x8x2": 0x701F_ECCD_2938_8498,
    "4x16x4": 0xC8A8_B605_313D_8310,
    "small": 0x6D1C_EAB4_1775_35EF,
    "icebreaker": 0xE0EA_FB6A_0F1E_8EB2,
    "ulx3s": 0xFAE0_EB9B_A1C7_2E0D,
    "ulx3s-8x16": 0x4BF7_CC84_3CC2_D02F,
    "ecp5-evn": 0xC745_9AA8_33F0_AC84,
    "study-64-512KiB-input": 0x8521_A505_F31B_40A5,
    "study-64-512KiB-output": 0x2646_F92C_1AB2_5B94,
    "study-64-1MiB-input": 0x66FD_0D4A_5F7F_5B96,
    "study-64-1MiB-output": 0x813F_4145_99AD_B366,
    "study-64-256MiB-input": 0xC819_3D7C_219C_DEE4,
    "study-64-256MiB-output": 0x9F9E_1697_B8BE_F86E,
    "study-128-512KiB-input": 0xF984_D792_3C08_0181,
    "study-128-512KiB-output": 0xC919_3645_FB7D_BE38,
    "study-128-1MiB-input": 0x5E54_D55A_D8CF_2B79,
    "study-128-1MiB-output": 0x5AD0_008A_AF28_CB32,
    "study-128-256MiB-input": 0x8CC9_76D1_1BC7_E8D5,
    "study-128-256MiB-output": 0x6399_C4F1_D555_C620,
}


def test_default() -> None:
    config = Config()
    assert config == Config()
    assert (config.ic_lanes, config.oc_lanes, config.sram) == (8, 8, 256 << 10)
    assert (config.banks, config.bank_bytes, config.word_bytes) == (8, 32 << 10, 16)
    assert (config.requant_lanes, config.vector_lanes, config.stripe) == (4, 4, 32)
    assert (config.bus, config.bus_bytes, config.outstanding) == (64, 8, 4)
    assert (config.macs_per_cycle, config.acc_lanes, config.weight_rows) == (64, 8, 4)
    assert config.param_rows(8) == 8


def test_the_default_sram_has_banks_of_its_own() -> None:
    """A size that is given splits into as many banks as it can."""
    assert Config(banks=16) == Config(sram="256 KiB")
    assert Config(bus=128).banks == Config(pe=1024).banks == 8
    assert Config(sram="256 KiB").banks == Config(sram="512 KiB").banks == 16


@pytest.mark.parametrize(
    ("pe", "dataflow", "lanes"),
    [
        (64, "input", (64, 1, 1)),
        (64, "output", (1, 64, 1)),
        (64, "mixed", (8, 8, 1)),
        (128, "mixed", (8, 16, 1)),
        (8, "balanced", (2, 4, 1)),
        (64, "balanced", (4, 8, 2)),
        (100, "balanced", (5, 10, 2)),
        (101, "balanced", (1, 101, 1)),
        (128, "balanced", (4, 8, 4)),
        (256, "balanced", (4, 16, 4)),
        (1024, "balanced", (8, 32, 4)),
    ],
)
def test_shorthand(pe: int, dataflow: str, lanes: tuple[int, int, int]) -> None:
    assert lanes_of(pe, dataflow) == lanes
    config = Config(pe=pe, dataflow=dataflow)
    assert (config.ic_lanes, config.oc_lanes, config.pixel_lanes) == lanes
    assert config == Config(ic_lanes=lanes[0], oc_lanes=lanes[1], pixel_lanes=lanes[2])


def test_the_array_in_words() -> None:
    assert Config(ic_lanes=8, oc_lanes=16).array == array_of({"ic_lanes": 8, "oc_lanes": 16}) == "8 x 16"
    assert Config(ic_lanes=16, oc_lanes=16, pixel_lanes=4).array == "16 x 16 x 4"


def test_odd_lanes() -> None:
    config = Config(ic_lanes=3, oc_lanes=5)
    assert (config.macs_per_cycle, config.word_bytes, config.weight_rows) == (15, 16, 1)


def test_pixel_lanes() -> None:
    config = Config(ic_lanes=16, oc_lanes=16, pixel_lanes=4)
    assert (config.macs_per_cycle, config.weight_bytes, config.weight_rows) == (1024, 256, 4)
    assert (config.requant_lanes, config.kernel_rows) == (32, 3)
    assert (config.word_bytes, config.acc_lanes, config.stripe, config.weight_sets) == (64, 64, 128, 4)
    assert Config(ic_lanes=2, oc_lanes=32, pixel_lanes=8).weight_sets == 16  # more would not be fed
    assert Config(ic_lanes=16, oc_lanes=4, pixel_lanes=2).weight_sets == 2  # a word holds no more input blocks
    assert Config(pixel_lanes=2) == Config(ic_lanes=8, oc_lanes=8, pixel_lanes=2)
    assert config.to_dict()["pixel_lanes"] == 4 and Config.from_toml(config.to_toml()) == config


@pytest.mark.parametrize(
    ("lanes", "sets", "step", "results"),
    [
        ((8, 8, 1), 0, 0, False),
        ((4, 8, 2), 1, 4, False),
        ((4, 16, 4), 3, 12, False),  # 22 requantiser lanes
        ((8, 32, 4), 3, 24, True),
        ((16, 16, 4), 2, 32, True),  # half of a word has 32 bytes
    ],
)
def test_pairs_of_pixels(lanes: tuple[int, int, int], sets: int, step: int, results: bool) -> None:
    ic, oc, pixels = lanes
    config = Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixels)
    assert (config.pair_sets, config.pair_step, config.result_pairs) == (sets, step, results)
    assert config.pair_bytes == 2 * step <= config.word_bytes


def test_results_of_two_pixels_need_lanes_for_both() -> None:
    config = Config(ic_lanes=2, oc_lanes=8, pixel_lanes=2, requant_lanes=16)
    assert config.result_pairs and config.word_bytes == 4 * config.oc_lanes
    assert not config.replace(requant_lanes=15).result_pairs
    assert not config.replace(oc_lanes=12, pixel_lanes=4, requant_lanes=24).result_pairs  # not a multiple of 8


def test_one_pixel_lane_is_not_written() -> None:
    """A configuration that is older than the parameter keeps its hash."""
    one = Config(pixel_lanes=1)
    assert one == Config() and one.weight_sets == 1 and "pixel_lanes" not in one.to_dict()


def test_depthwise_sets_fit_a_word() -> None:
    """And so do the pixel lanes' channels, where there is a DEPTH_CONV."""
    config = Config(ic_lanes=4, oc_lanes=8, pixel_lanes=4, bus=32, requant_lanes=1, vector_lanes=1)
    assert (config.word_bytes, config.depthwise_sets, config.depthwise_rows(3)) == (32, 4, 1)
    assert config.replace(depthwise="none").word_bytes == 16
    assert Config(ic_lanes=8, oc_lanes=8).depthwise_sets == 1
    assert Config(ic_lanes=1, oc_lanes=64, pixel_lanes=8).depthwise_sets == 2  # 128 channels are the most of a block
    narrow = Config(ic_lanes=1, oc_lanes=64, pixel_lanes=2, depthwise="emulated", bus=256, requant_lanes=2)
    assert (narrow.word_bytes, narrow.depthwise_sets) == (32, 1)  # without DEPTH_CONV a word may be narrower


@pytest.mark.parametrize(
    ("lanes", "results"),
    [
        ((4, 8, 2), 8),
        ((8, 8, 1), 4),
        ((4, 16, 4), 22),
        ((4, 8, 4), 11),
        ((3, 8, 8), 22),
        ((8, 32, 4), 64),  # two kernel rows at once: two steps for three of them
        ((16, 16, 4), 32),  # three: a step, but two cycles for its results
        ((2, 8, 1), 2),
        ((1, 16, 1), 2),
    ],
)
def test_requantiser_lanes_keep_up_with_depthwise_layers(lanes: tuple[int, int, int], results: int) -> None:
    """Nine MACs make a result: at full rate so many a cycle."""
    ic, oc, pixel = lanes
    assert Config(ic_lanes=ic, oc_lanes=oc, pixel_lanes=pixel).requant_lanes == results


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pe": 7}, "pe must be 8..1024, not 7"),
        ({"pe": 1025}, "pe must be 8..1024, not 1025"),
        ({"dataflow": "both"}, "dataflow must be one of input, output, mixed, balanced, not 'both'"),
        (
            {"pe": 64, "ic_lanes": 8, "oc_lanes": 8},
            "give either pe and dataflow or ic_lanes, oc_lanes and pixel_lanes, not both",
        ),
        ({"ic_lanes": 8}, "ic_lanes and oc_lanes must be given together"),
        ({"ic_lanes": 0, "oc_lanes": 8}, "ic_lanes must be 1..128, not 0"),
        ({"ic_lanes": 8, "oc_lanes": 129}, "oc_lanes must be 1..128, not 129"),
        ({"ic_lanes": 64, "oc_lanes": 64}, "ic_lanes * oc_lanes must be at most 1024, not 4096"),
        ({"softmax": 4, "vector_lanes": 2}, "softmax must be at most vector_lanes, 2, not 4"),
        (
            {"ic_lanes": 16, "oc_lanes": 16, "pixel_lanes": 8},
            "ic_lanes * oc_lanes * pixel_lanes must be at most 1024, not 2048",
        ),
        ({"pixel_lanes": 3}, "pixel_lanes must be one of 1, 2, 4, 8, not 3"),
        ({"pe": 64, "pixel_lanes": 2}, "give either pe and dataflow or ic_lanes, oc_lanes and pixel_lanes, not both"),
        ({"pixel_lanes": 2, "stripe": 129}, "stripe must be 1..128, not 129"),
        ({"stripe": 513}, "stripe must be 1..512, not 513"),
        ({"ic_lanes": 2.5, "oc_lanes": 8}, "ic_lanes must be an integer, not 2.5"),
        ({"ic_lanes": True, "oc_lanes": 8}, "ic_lanes must be an integer, not True"),
        ({"ic_lanes": "8", "oc_lanes": 8}, "ic_lanes must be an integer, not '8'"),
        ({"pooling": 1}, "pooling must be true or false, not 1"),
        ({"depthwise": "some"}, "depthwise must be one of none, emulated, native, not 'some'"),
        ({"requant_lanes": 9}, "requant_lanes must be 1..8, not 9"),
        ({"vector_lanes": 33}, "vector_lanes must be 1..32, not 33"),
        ({"vector_lanes": 17, "norm": 1}, "vector_lanes must be at most 16 with softmax or norm, not 17"),
        ({"vector_lanes": 32, "softmax": 1}, "vector_lanes must be at most 16 with softmax or norm, not 32"),
        ({"stripe": 65}, "stripe must be 1..64, not 65"),
        ({"outstanding": 0}, "outstanding must be 1..16, not 0"),
        ({"bus": 48}, "bus must be one of 32, 64, 128, 256, 512, not 48"),
        ({"sram": "16 KiB"}, "sram must be 32 KiB..256 MiB, not 16 KiB"),
        ({"sram": "512 MiB"}, "sram must be 32 KiB..256 MiB, not 512 MiB"),
        ({"sram": "much"}, "sram must be a size in B, KiB, MiB or GiB such as \"512 KiB\", not 'much'"),
        ({"sram": 3.5}, 'sram must be a size in B, KiB, MiB or GiB such as "512 KiB", not 3.5'),
        ({"pe": "64"}, "pe must be an integer, not '64'"),
        (
            {"lanes": 8},
            "unknown parameter 'lanes'; known: activation, banks, bus, dataflow, depthwise,"
            " elementwise, extensions, ic_lanes, kernel_rows, matmul, memory, norm, norm_bits, oc_lanes, outstanding,"
            " parameters, pe, pixel_lanes, pooling, requant_lanes, serial, softmax, sram, stripe, vector_lanes",
        ),
        ({"memory": 3}, 'memory must be a table or a name such as "fixed", not 3'),
        ({"sram": "17 KiB", "banks": 4}, "sram must be 32 KiB..256 MiB, not 17 KiB"),
        ({"norm_bits": 16}, "norm_bits = 16 needs norm and elementwise"),
        ({"norm_bits": 16, "norm": 1, "elementwise": False}, "norm_bits = 16 needs norm and elementwise"),
        ({"norm_bits": 12}, "norm_bits must be one of 8, 16, not 12"),
        ({"banks": 3}, "banks must be 4..32, not 3"),
        ({"banks": 12}, "sram / banks must be a power of two, not 256 KiB / 12"),
        (
            {"sram": "34 KiB"},
            "sram must split into 4..16 banks of a power of two, not 34 KiB; give banks or another size",
        ),
    ],
)
def test_rules(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Config(**parameters)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"read_latency": 0}, "read_latency must be 1..4096, not 0"),
        ({"write_latency": 4097}, "write_latency must be 1..4096, not 4097"),
        ({"beat_cycles": 65}, "beat_cycles must be 1..64, not 65"),
        ({"beat_cycles": "1"}, "beat_cycles must be an integer, not '1'"),
    ],
)
def test_memory_rules(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        MemoryTiming(**parameters)


@pytest.mark.parametrize("name", PRESETS)
def test_text_forms_round_trip(name: str) -> None:
    config = Config.load(name)
    assert Config.from_toml(config.to_toml()) == config
    assert Config.from_dict(config.to_dict()) == config
    assert Config.load(name) == config


@given(
    ic=st.integers(1, 32),
    oc=st.integers(1, 32),
    sram=st.sampled_from(["64 KiB", "512 KiB", 1 << 20]),
    scenario=st.sampled_from(["none", "emulated", "native"]),
    latency=st.integers(1, 4096),
)
def test_toml_round_trip(ic: int, oc: int, sram: str | int, scenario: str, latency: int) -> None:
    memory = MemoryTiming(read_latency=latency)
    config = Config(ic_lanes=ic, oc_lanes=oc, sram=sram, depthwise=scenario, memory=memory)
    assert Config.from_toml(config.to_toml()) == config


def test_toml_takes_the_shorthand() -> None:
    text = 'pe = 128\ndataflow = "output"\nsram = "1 MiB"\n[memory]\nread_latency = 10\n'
    assert Config.from_toml(text) == Config(
        pe=128, dataflow="output", sram="1 MiB", memory=MemoryTiming(read_latency=10)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pe = ", "configuration is not TOML: Invalid value"),
        ("lanes = 8", "unknown parameter 'lanes'; known: activation, banks, bus, dataflow, depthwise"),
        ("memory = 3", 'memory must be a table or a name such as "fixed", not 3'),
        ("[memory]\nlatency = 3", 'memory: "latency" must be a name of its parts; did you mean "read_latency"?'),
    ],
)
def test_toml_errors(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        Config.from_toml(text)


def test_load_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("stripe = 65\n")
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: stripe must be 1..64, not 65$"):
        Config.load(path)
    with pytest.raises(ConfigError, match=r"^nowhere must be a TOML file or a preset; there is no such file; known: d"):
        Config.load("nowhere")
    with pytest.raises(ConfigError, match=r'^smal must be .*; there is no such file; did you mean "small"\?$'):
        Config.load("smal")


def test_study_presets() -> None:
    assert sum(name.startswith("study-") for name in PRESETS) == 12
    config = Config.load("study-128-256MiB-input")
    assert (config.ic_lanes, config.oc_lanes, config.sram) == (128, 1, 256 << 20)


@pytest.mark.parametrize(("name", "multipliers"), [("ulx3s", 73), ("ulx3s-8x16", 141), ("ecp5-evn", 73)])
def test_board_presets_have_few_multipliers(name: str, multipliers: int) -> None:
    """At most 1.15 a PE: of the array, four a lane of requantisation, a vector lane's, and that which counts pixels."""
    config = Config.load(name)
    assert config.depthwise == "native" and config.word_bytes == 16
    lane = 8 if config.elementwise else 4
    assert config.macs_per_cycle + 4 * config.requant_lanes + lane * config.vector_lanes + 1 == multipliers
    assert multipliers <= 1.15 * config.macs_per_cycle


def test_hash_is_stable() -> None:
    """Programs and hardware in the field carry it: it may change with the hardware parameters only."""
    assert {name: Config.load(name).hash for name in PRESETS} == HASHES


def test_hash_sees_hardware_only() -> None:
    config = Config()
    assert config.replace(memory=MemoryTiming(read_latency=1)).hash == config.hash
    hashes = {Config.load(name).hash for name in PRESETS}
    assert len(hashes) == len({Config.load(name) for name in PRESETS})
    assert config.replace(stripe=16).hash != config.hash


def test_replace_resets_what_is_derived() -> None:
    config = Config().replace(ic_lanes=4, oc_lanes=4, kernel_rows=None, requant_lanes=None, vector_lanes=None)
    assert config == Config(ic_lanes=4, oc_lanes=4)


def test_kernel_rows_have_lanes() -> None:
    """A row of a kernel takes three lanes; without DEPTH_CONV there are none."""
    found = [Config(ic_lanes=ic, oc_lanes=8).kernel_rows for ic in (1, 4, 5, 6, 8, 9, 16)]
    assert found == [1, 1, 1, 2, 2, 3, 3]
    assert Config(ic_lanes=8, oc_lanes=8, kernel_rows=1).kernel_rows == 1
    assert Config(ic_lanes=8, oc_lanes=8).replace(depthwise="none").kernel_rows == 1
    with pytest.raises(ConfigError, match=r"kernel_rows must be 1..2, not 3"):
        Config(ic_lanes=8, oc_lanes=8, kernel_rows=3)


def test_buffers_of_stripes_share_the_accumulators() -> None:
    found = [Config(ic_lanes=4, oc_lanes=8, stripe=stripe, pixel_lanes=2).stripe_buffers for stripe in (8, 64, 66, 128)]
    assert found == [4, 4, 2, 2]
    assert Config(stripe=32).line_words == 64 and Config(stripe=64).line_words == 128
