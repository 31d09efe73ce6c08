"""Explanations of networks: exact sums, rooflines, and what if something were free."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.explain.causes import BOUNDS, CAUSES, RESOURCES, fastest
from dovetail.sw.analysis.explain.explainer import explain
from dovetail.sw.analysis.explain.explanation import Explanation, bound_of, by_bound, total_of
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.slow import slow

CONFIGS = {
    "default": Config(),
    "small": Config.load("small"),
    "16x16": Config.load("16x16"),
    "slow": Config(
        pe=32, dataflow="input", sram="64 KiB", bus=32, memory=MemoryTiming(read_latency=200, beat_cycles=3)
    ),
    "output": Config(pe=128, dataflow="output", sram="128 KiB", requant_lanes=2, vector_lanes=1, outstanding=1),
    "emulated": Config(ic_lanes=8, oc_lanes=16, depthwise="emulated", sram="96 KiB"),
}
NETWORKS = (
    "resnet8",
    "dscnn",
    "autoencoder",
    "mobilenet_v2_block",
    "inception_block",
    "shuffle_block",
    "attention_block",
)
POINTS = [slow(each, config) if n % 2 else (each, config) for each in NETWORKS for n, config in enumerate(CONFIGS)]


@cache
def compiled(network: str, config: str) -> CompiledNetwork:
    return compile_network(f"zoo:{network}", CONFIGS[config])


@cache
def explained(network: str, config: str) -> Explanation:
    return explain(compiled(network, config))


@pytest.mark.parametrize(("network", "config"), POINTS)
def test_sums_are_exact(network: str, config: str) -> None:
    report, explanation = compiled(network, config).report(), explained(network, config)
    assert explanation.cycles == sum(explanation.shares.values()) == report.cycles
    assert explanation.shares == total_of(layer.shares for layer in explanation.layers)
    assert [(layer.name, layer.cycles) for layer in explanation.layers] == [(r.name, r.cycles) for r in report.layers]
    for layer, own in zip(explanation.layers, report.layers, strict=True):
        assert sum(layer.shares.values()) == layer.cycles
        assert all(cycles > 0 for cycles in layer.shares.values())
        assert list(layer.shares) == [name for name in CAUSES if name in layer.shares]
        assert 0 <= layer.ahead <= layer.cycles
        assert layer.read_bytes + layer.write_bytes == own.moved_bytes


@pytest.mark.parametrize(("network", "config"), POINTS)
def test_rooflines_are_below(network: str, config: str) -> None:
    explanation = explained(network, config)
    assert max(explanation.bound_compute, explanation.bound_memory) <= explanation.cycles
    assert explanation.attained <= explanation.ceiling
    assert explanation.macs == sum(layer.macs for layer in explanation.layers)


@pytest.mark.parametrize(("network", "config"), POINTS)
def test_what_ifs(network: str, config: str) -> None:
    explanation = explained(network, config)
    assert {what.resource for what in explanation.next} == set(RESOURCES)
    cycles = {what.resource: what.cycles for what in explanation.next}
    assert list(cycles.values()) == sorted(cycles.values())
    assert max(cycles.values()) <= explanation.cycles
    assert cycles["bus"] <= min(cycles["load"], cycles["store"])
    for layer in explanation.layers:
        assert (layer.next is None) == (layer.cycles == 0)
        if layer.next:
            assert layer.next.resource == layer.bound
            assert (layer.next.bound in (*BOUNDS, "") and layer.next.bound != layer.bound) or layer.bound == "frontend"


@pytest.mark.parametrize(("network", "config"), POINTS)
def test_ladder(network: str, config: str) -> None:
    """Each rung frees what bounds the one before, besides all that is free already."""
    explanation = explained(network, config)
    bounds = [explanation.bound, *(rung.bound for rung in explanation.ladder)]
    assert [rung.resource for rung in explanation.ladder] == bounds[:-1]
    assert len(set(bounds[:-1])) == len(bounds) - 1
    cycles = [explanation.cycles, *(rung.cycles for rung in explanation.ladder)]
    assert cycles == sorted(cycles, reverse=True)
    first = next(what for what in explanation.next if what.resource == explanation.bound)
    assert explanation.ladder[0] == first
    assert 2 <= len(explanation.ladder) <= 4


def test_memory_that_answers_at_once_is_that_of_the_engine() -> None:
    """Timed anew by the engine: `memory` is a configuration that exists."""
    for network, config in (("dscnn", "slow"), ("resnet8", "small")):
        own = compiled(network, config)
        memory = replace(own.config.like_fixed, read_latency=1, write_latency=1)
        again = CompiledNetwork(replace(own.code, config=own.config.replace(memory=memory)))
        (what,) = (what for what in explained(network, config).next if what.resource == "memory")
        assert what.cycles == again.report().cycles


def test_latency_of_memory_that_is_slow_to_pass_beats() -> None:
    config = fastest(Config(memory=MemoryTiming(read_latency=90, write_latency=90, beat_cycles=64)))
    assert config.memory == MemoryTiming(read_latency=54, write_latency=54, beat_cycles=64)


def test_dense_layers_wait_for_their_weights() -> None:
    """Each weight is read once and meets one pixel."""
    explanation = explained("autoencoder", "small")
    assert explanation.bound == "load"
    assert explanation.host_macs == 0
    assert explanation.intensity is not None and explanation.intensity < 1.01
    assert {layer.bound for layer in explanation.layers} <= {"load", "weights", "latency"}


def test_network_that_the_host_runs() -> None:
    code = compiled("mobilenet_v2_block", "default").code
    explanation = explain(CompiledNetwork(replace(code, segments=(), layers=())))
    assert (explanation.cycles, explanation.layers, explanation.bound) == (0, (), "")
    assert explanation.host_macs == explained("mobilenet_v2_block", "default").macs
    assert {what.cycles for what in explanation.next} == {0}


def test_json() -> None:
    data = json.loads(json.dumps(explained("attention_block", "default").to_dict()))
    assert data["cycles"] == sum(data["shares"].values()) == sum(data["bounds"].values())
    assert data["cycles"] == sum(layer["cycles"] for layer in data["layers"])
    assert data["layers"][0]["next"].keys() == {"resource", "cycles", "bound"}


def test_bounds() -> None:
    assert bound_of({}) == ""
    assert bound_of({"multiply": 4, "load": 5, "load_latency": 3, "store_latency": 3}) == "latency"
    assert bound_of({"store": 5, "vector": 5}) == "vector"
    assert by_bound({"store": 5, "store_partial": 5, "multiply": 1}) == {"array": 1, "store": 10}
    assert [resource for resource in RESOURCES if resource in BOUNDS] == list(BOUNDS)
    assert {cause.bound for cause in CAUSES.values()} == set(BOUNDS)


def test_documentation_has_every_cause_and_resource() -> None:
    text = (Path(__file__).parents[4] / "docs/explain.md").read_text()
    for cause in CAUSES.values():
        assert f"| {cause.title} | {RESOURCES[cause.bound].title} | {cause.doc} |\n" in text
    for resource in RESOURCES.values():
        assert f"| {resource.title} | {resource.doc} |\n" in text
