"""Windows of layers on the RTL: names of layers, cutting words, and that the state behind them is the model's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.compare.windows import layers_of, place, verify_windows, window_words, windows_of
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.cosim.rtl.setting import settings_of
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import INSTRUCTIONS, PAGE_BYTES, REGISTERS, Op, cfg
from dovetail.isa.timing.run import time_program
from dovetail.sw.errors import NetworkError
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.engine import RunResult

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")


@pytest.fixture(scope="module")
def network() -> CompiledNetwork:
    return compile_network("zoo:dscnn", CONFIG)


@pytest.fixture(scope="module")
def sample(network: CompiledNetwork) -> Any:
    return np.random.default_rng(2).integers(-128, 128, network.graph.inputs[0].shape, np.int8)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("3", range(3, 4)),
        ("3..5", range(3, 6)),
        ("9..", range(9, 12)),
        ("..2", range(3)),
        ("..", range(12)),
        ("conv0", range(1, 2)),
        ("depthwise1..3", range(2, 4)),
        ("depthwise1..pointwise1", range(2, 4)),
    ],
)
def test_names_of_layers(network: CompiledNetwork, text: str, layers: range) -> None:
    assert layers_of(network, text) == layers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("12", "layers must be in 0..11, not 12"),
        ("0..99", "layers must be in 0..11, not 99"),
        ("-1", "layers must be in 0..11, not -1"),
        ("5..3", "layers must go from a lower one to a higher one, not 5..3"),
        (
            "conv9",
            "layers must be numbers or names of layers on the accelerator, such as conv0/im2col, conv0, depthwise1,",
        ),
    ],
)
def test_wrong_layers(network: CompiledNetwork, text: str, message: str) -> None:
    with pytest.raises(NetworkError, match=f"^{message}"):
        layers_of(network, text)


def test_layers_on_the_host() -> None:
    compiled = compile_network("zoo:dscnn", CONFIG.replace(depthwise="none"))
    with pytest.raises(NetworkError, match=r"^layer 'depthwise1' runs on the host: the configuration has depthwise"):
        layers_of(compiled, "depthwise1")
    assert len(windows_of(compiled.code, layers_of(compiled, "conv0..pointwise2"))) == 3, "one per segment"
    object.__setattr__(compiled, "code", compiled.code.__class__(**{**vars(compiled.code), "layers": ()}))
    with pytest.raises(NetworkError, match="layers: none of this network is on the accelerator"):
        layers_of(compiled, "0")


def test_windows_hold_all_of_their_layers(network: CompiledNetwork) -> None:
    segment = network.code.segments[0]
    for layers in (range(1), range(2, 5), range(11, 12), range(12)):
        (window,) = windows_of(network.code, layers)
        inside = range(window.first, window.past)
        wanted = [n for n, layer in segment.layers.items() if layer in layers]
        assert set(wanted) <= set(inside)
        assert window.past - 1 == max(wanted)
        assert set(layers) <= set(window.layers)
        assert window.operations == sum(n in inside for n in segment.layers)


def test_window_words_restore_registers(network: CompiledNetwork) -> None:
    """Every operation of the window sees the registers that it sees in the whole program."""
    segment = network.code.segments[0]
    whole = time_program(CONFIG, segment.words, memory_bytes=network.code.memory_bytes)
    seen = dict(zip(whole.pc[~whole.is_fetch].tolist(), [r for r in whole.registers if r], strict=True))
    (window,) = windows_of(network.code, range(4, 6))
    words = window_words(segment.words, window)
    cut = time_program(CONFIG, words, memory_bytes=network.code.memory_bytes)
    expected = [seen[n] for n in segment.layers if window.first <= n < window.past]
    assert [r for r in cut.registers if r] == expected
    zeros = [cfg(unit, name, 0) for unit, table in REGISTERS.items() for name in table]
    prologue = len(words) - 1 - (window.past - window.first)
    assert prologue > 0 and not set(words[:prologue]) & set(zeros)


def test_place_adds_memory(network: CompiledNetwork, sample: Any) -> None:
    setting = settings_of(network, sample)[0]
    words = [int(Op.END)] * 600
    run = place(setting, words)
    assert run.program == len(setting.memory) and run.pages == 5
    assert len(run.memory) == len(setting.memory) + 8192
    assert run.text == b"".join(w.to_bytes(8, "little") for w in words).ljust(5 * PAGE_BYTES, b"\0")


@pytest.mark.parametrize("layers", [range(1), range(3, 5), range(9, 11)])
def test_windows_agree(network: CompiledNetwork, sample: Any, build_cache: Path, layers: range) -> None:
    (verdict,) = verify_windows(network, sample, layers, cache=build_cache)
    assert verdict.first_difference == ""
    assert verdict.comparison.cycles_rtl == verdict.comparison.cycles_model
    assert verdict.comparison.cycles_rtl < network.report().cycles


def test_all_layers_take_what_the_network_takes(network: CompiledNetwork, sample: Any, build_cache: Path) -> None:
    (verdict,) = verify_windows(network, sample, range(12), cache=build_cache)
    assert verdict.first_difference == ""
    assert verdict.comparison.cycles_rtl == network.report().cycles


def test_a_difference_is_found(
    network: CompiledNetwork, sample: Any, build_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An RTL that spoils a byte; and a window whose registers were not restored."""
    original = RtlEngine.run

    def spoilt(self: RtlEngine, *arguments: Any) -> RunResult:
        result = original(self, *arguments)
        if arguments[1]:
            result.memory[5] ^= 1
        return result

    with monkeypatch.context() as patch:
        patch.setattr(RtlEngine, "run", spoilt)
        (verdict,) = verify_windows(network, sample, range(3, 4), cache=build_cache)
    assert verdict.first_difference.startswith("memory: 1 bytes differ, first at 0x5: ")

    def without_prologue(words: Any, window: Any) -> list[int]:
        inside = list(words[window.first : window.past])
        operations = [n for n, word in enumerate(inside) if INSTRUCTIONS[Op(word & 0xFF)].unit is not None]
        return [*inside[: operations[0]], int(Op.END)]

    monkeypatch.setattr("dovetail.cosim.compare.windows.window_words", without_prologue)
    (verdict,) = verify_windows(network, sample, range(3, 4), cache=build_cache)
    assert verdict.comparison.equal
    assert verdict.first_difference.startswith("model: SRAM: ")
