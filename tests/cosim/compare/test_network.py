"""A network in lockstep, segment by segment; the interface, on the build that the other tests have too."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.cosim.compare.lockstep import Comparison
from dovetail.cosim.compare.networks import LockstepEngine, Verdict, verify
from dovetail.cosim.rtl.rtl_engine import RtlEngine
from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.dump import read_dump, write_dump
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.model.accelerator import Model
from dovetail.sw.network import reference
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.engine import Engine
from tests.sw.compiler.test_compiler import Builder

CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
SAMPLE = np.random.default_rng(1).integers(-128, 128, (1, 640), np.int8)


@pytest.fixture(scope="module")
def network() -> CompiledNetwork:
    return compile_network("zoo:autoencoder", CONFIG)


def test_equal(network: CompiledNetwork, build_cache: Path) -> None:
    verdicts = verify(network, [SAMPLE, SAMPLE[:, ::-1]], cache=build_cache)
    assert [verdict.equal for verdict in verdicts] == [True, True]
    assert [len(verdict.segments) for verdict in verdicts] == [len(network.code.segments)] * 2
    cycles = network.run(SAMPLE).cycles
    assert sum(segment.cycles_rtl for segment in verdicts[0].segments) == cycles


def test_weights_that_stay_in_sram(build_cache: Path) -> None:
    compiled = compile_network("zoo:autoencoder", CONFIG, keep_weights=True)
    verdicts = verify(compiled, [SAMPLE, SAMPLE[:, ::-1], SAMPLE], cache=build_cache)
    assert all(verdict.equal for verdict in verdicts), [verdict.first_difference for verdict in verdicts]
    report = compiled.report()
    assert [verdict.segments[0].cycles_rtl for verdict in verdicts] == [report.first_cycles] + [report.cycles] * 2
    assert report.cycles < report.first_cycles


def test_weights_that_int8_does_not_hold(build_cache: Path) -> None:
    """Taps at the same place in some blocks of output channels; in depthwise layers a second instruction for those."""
    net = Builder((9, 8, 3)).conv(20, stride=(2, 2), terms=2, wide=(9,)).conv(0, depthwise=True, terms=2, wide=(9,))
    net.conv(70, (1, 1), pads=(0, 0, 0, 0)).conv(0, pads=(0, 1, 2, 1), depthwise=True, terms=3, wide=(40,), tap=(2, 0))
    graph = net.conv(40, (1, 1), pads=(0, 0, 0, 0), terms=3, wide=(17, 21)).conv(6, terms=2, wide=(2,)).graph()
    compiled = CompiledNetwork(generate(graph, CONFIG, Options()))
    sample = np.random.default_rng(2).integers(-128, 128, graph.inputs[0].shape, np.int8)
    (verdict,) = verify(compiled, [sample], cache=build_cache)
    assert verdict.equal, verdict.first_difference
    for name, expected in reference.run(graph, sample).items():
        np.testing.assert_array_equal(compiled.run(sample).outputs[name], expected)


def test_every_tensor_of_the_rtl_can_be_dumped(build_cache: Path, tmp_path: Path) -> None:
    compiled = compile_network("zoo:autoencoder", CONFIG, keep_tensors=True)
    engines: dict[str, Engine] = {"model": Model(CONFIG), "rtl": RtlEngine(CONFIG, cache=build_cache)}
    dumps = {}
    for name, engine in engines.items():
        write_dump(tmp_path / name, compiled, compiled.run(SAMPLE, engine=engine))
        dumps[name] = read_dump(tmp_path / name)
    assert set(dumps["model"]) == set(dumps["rtl"]) == set(compiled.graph.tensors)
    for name, value in dumps["model"].items():
        np.testing.assert_array_equal(value, dumps["rtl"][name])


def test_a_second_verification_starts_afresh(network: CompiledNetwork, build_cache: Path) -> None:
    for _ in range(2):
        (verdict,) = verify(network, [SAMPLE], cache=build_cache)
        assert verdict.equal


def test_a_difference_is_found(network: CompiledNetwork, build_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The RTL with another memory timing than the model's has other cycles."""
    init = LockstepEngine.__init__

    def slower(self: LockstepEngine, config: Config, **options: Any) -> None:
        init(self, config, **options)
        self._both.rtl.timing = MemoryTiming(read_latency=41)

    monkeypatch.setattr(LockstepEngine, "__init__", slower)
    (verdict,) = verify(network, [SAMPLE], cache=build_cache)
    assert not verdict.equal
    assert all(segment.bytes_equal and not segment.timeline_equal for segment in verdict.segments)
    assert verdict.first_difference.startswith("segment 0: timeline: model fetch of page 0 (LOAD), cycles ")


def test_the_first_difference_names_the_segment() -> None:
    good = Comparison(True, 5, 5, True, True, True)
    bad = dataclasses.replace(good, cycles_rtl=6, first_difference="cycles: model 5, RTL 6")
    assert Verdict((good, bad, bad)).first_difference == "segment 1: cycles: model 5, RTL 6"
    assert Verdict((good, good)).first_difference == ""
