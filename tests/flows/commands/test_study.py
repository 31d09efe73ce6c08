"""The reference study's findings on MobileNetV1 224, from exact cycles."""

from __future__ import annotations

from functools import cache

import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.network import ir
from dovetail.sw.runtime.compiled_network import compile_network
from tests.slow import slow


@cache
def network() -> ir.Graph:
    return frontend.load("zoo:mobilenet_v1")


@cache
def cycles(pe: int, sram: str, dataflow: str, depthwise: str = "native", tiling: str = "channels") -> int:
    config = Config(pe=pe, sram=sram, dataflow=dataflow, depthwise=depthwise)
    return compile_network(network(), config, tiling=tiling, effort=0).report().cycles


def test_output_parallel_wins_when_nothing_is_tiled() -> None:
    for pe in (64, 128):
        assert cycles(pe, "256 MiB", "output") < cycles(pe, "256 MiB", "input")


def test_input_parallel_wins_at_512_kib() -> None:
    """With DEPTH_CONV too, for which an input-parallel array has a lane per tap of the kernel: nine of all."""
    for pe in (64, 128):
        for kind in ("none", "emulated", "native"):
            assert cycles(pe, "512 KiB", "output", kind) > cycles(pe, "512 KiB", "input", kind)


def test_128_pes_with_1_mib_beat_64_pes_with_256_mib() -> None:
    for dataflow in ("input", "output"):
        assert cycles(128, "1 MiB", dataflow) < cycles(64, "256 MiB", dataflow)


def test_emulated_depthwise_costs_several_times_native() -> None:
    """The depthwise layers themselves: what emulation adds over leaving them out, against what native adds."""
    for pe in (64, 128):
        none, emulated, native = (cycles(pe, "1 MiB", "output", kind) for kind in ("none", "emulated", "native"))
        assert emulated > 2 * native
        assert emulated - none > 5 * (native - none)


@pytest.mark.parametrize("pe", [64, slow(128)])
def test_free_tiling_never_loses(pe: int) -> None:
    for sram in ("512 KiB", "1 MiB", "256 MiB"):
        for dataflow in ("input", "output"):
            assert cycles(pe, sram, dataflow, tiling="free") < cycles(pe, sram, dataflow)
