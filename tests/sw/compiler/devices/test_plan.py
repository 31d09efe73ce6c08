"""Networks on several accelerators: outputs are the reference's, cycles fall, and what cannot be is said."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import Part, System
from dovetail.isa.timing.jobs import STARTED, HostJob
from dovetail.isa.timing.system import time_jobs
from dovetail.sw.compiler.devices.host_layers import orders
from dovetail.sw.compiler.devices.latency import latency_plan
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import HostCost
from dovetail.sw.errors import CompileError, NetworkError
from dovetail.sw.network import ir, reference
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network
from tests.sw.compiler.devices.test_shares import graph_of

TINY = Config(ic_lanes=2, oc_lanes=4, sram="32 KiB", banks=4, requant_lanes=1, vector_lanes=1, bus=32, stripe=8)
HOST = HostCost(2000, 0.5, 1 / 12)
WIDE = TINY.replace(ic_lanes=4, oc_lanes=8, sram="64 KiB", bus=64, stripe=16)


def system_of(*configs: Config, memory_bytes: int = 1 << 20) -> System:
    return System(tuple(Part(f"a{n}", config, 4096 * n) for n, config in enumerate(configs)), memory_bytes=memory_bytes)


def check_outputs(network: SystemNetwork) -> None:
    rng = np.random.default_rng(7)
    inputs = {port.name: rng.integers(-128, 128, port.shape, np.int8) for port in network.graph.inputs}
    expected = reference.run(network.graph, inputs)
    for name, value in network.run([inputs]).outputs[0].items():
        np.testing.assert_array_equal(value, expected[name])


@pytest.mark.parametrize(
    "name, configs, cycles, alone",
    [("resnet8", (TINY, TINY), 861_980, 1_648_937), ("dscnn", (TINY, WIDE), 107_246, 110_832)],
    ids=["alike", "mixed"],
)
def test_one_inference_on_two_accelerators(name: str, configs: tuple[Config, ...], cycles: int, alone: int) -> None:
    network = plan_network(graph_of(name), system_of(*configs), effort=0)
    check_outputs(network)
    best = min(found for found in network.alone.values() if found)
    assert (network.times.cycles, best) == (cycles, alone)


def test_channels_of_a_layer_whose_kernels_become_channels() -> None:
    network = plan_network(graph_of("dscnn"), system_of(Config.load("8x8"), Config.load("8x8")), effort=0)
    check_outputs(network)
    assert [(task.nodes[0], task.share.split()[0]) for task in network.plan.tasks[:2]] == [("conv0", "channels")] * 2


def test_a_plan_for_one_accelerator_is_one_for_a_system_of_one() -> None:
    network = plan_network(graph_of("dscnn"), system_of(TINY), effort=0)
    check_outputs(network)
    assert {task.share for task in network.plan.tasks} == {""}


def test_faster_accelerators_get_larger_shares() -> None:
    graph, system = graph_of("resnet8"), system_of(TINY, WIDE)
    fair, even = (
        SystemNetwork(latency_plan(system, graph, Options(effort=0), even=even), Options()) for even in (False, True)
    )
    assert fair.times.cycles < even.times.cycles


@pytest.mark.parametrize("name", ["inception_block", "shuffle_block", "autoencoder"])
def test_no_plan_takes_longer_than_the_fastest_accelerator_alone(name: str) -> None:
    system = system_of(Config.load("ulx3s"), Config.load("default"), memory_bytes=4 << 20)
    for mode, inferences in (("latency", 1), ("throughput", 3)):
        network = plan_network(graph_of(name), system, effort=0, mode=mode, inferences=inferences)
        assert network.gain and network.gain >= 1, mode
    check_outputs(plan_network(graph_of(name), system, effort=0))


def test_many_inferences_on_two_accelerators() -> None:
    network = plan_network(graph_of("dscnn"), system_of(TINY, WIDE), effort=0, mode="throughput", inferences=6)
    rng = np.random.default_rng(7)
    samples = [
        {port.name: rng.integers(-128, 128, port.shape, np.int8) for port in network.graph.inputs} for _ in range(6)
    ]
    for sample, outputs in zip(samples, network.run(samples).outputs, strict=True):
        for name, value in reference.run(network.graph, sample).items():
            np.testing.assert_array_equal(outputs[name], value)
    assert [task.accelerator for task in network.plan.tasks].count("a1") == 5
    assert network.gain and network.steady_gain and 1 < network.gain < network.steady_gain
    with pytest.raises(NetworkError, match=r"^samples must be 6, one for each inference, not 2$"):
        network.run(samples[:2])


def test_accelerators_of_one_kind_begin_one_after_the_other() -> None:
    network = plan_network(graph_of("dscnn"), system_of(TINY, TINY), effort=0, mode="throughput", inferences=4)
    at_once = [replace(job, earliest=0) for job in network.plan.jobs]
    assert network.times.cycles <= time_jobs(network.system, at_once).cycles
    assert network.steady_gain and network.steady_gain > 1.97


def test_accelerators_go_on_while_the_host_computes_a_layer() -> None:
    network = plan_network(graph_of("attention_block"), system_of(TINY, WIDE), effort=0, host=HOST)
    check_outputs(network)
    assert (network.times.cycles, network.host_cycles, network.alone) == (20_620, 12_288, {"a0": 27_015, "a1": 20_620})
    (layer,) = (n for n, job in enumerate(network.plan.jobs) if isinstance(job, HostJob))
    assert "softmax" in network.plan.tasks[layer].nodes
    begins, ends = network.times.origins[layer], network.times.ends[layer]
    assert begins is not None and ends is not None
    meanwhile = [task.nodes[0] for task, at in zip(network.plan.tasks, network.times.origins, strict=True)
                 if at is not None and begins - STARTED <= at < ends]  # fmt: skip
    assert meanwhile == [network.plan.tasks[layer].nodes[0], "value"]


@pytest.mark.parametrize("configs, cycles", [((TINY,), 76_337), ((TINY, WIDE), 59_164)], ids=["one", "mixed"])
def test_other_inferences_go_on_while_the_host_computes_a_layer(configs: tuple[Config, ...], cycles: int) -> None:
    system = system_of(*configs)
    network = plan_network(graph_of("attention_block"), system, effort=0, mode="throughput", inferences=4, host=HOST)
    rng = np.random.default_rng(7)
    samples = [
        {port.name: rng.integers(-128, 128, port.shape, np.int8) for port in network.graph.inputs} for _ in range(4)
    ]
    for sample, outputs in zip(samples, network.run(samples).outputs, strict=True):
        for name, value in reference.run(network.graph, sample).items():
            np.testing.assert_array_equal(outputs[name], value)
    assert (network.times.cycles, network.host_cycles) == (cycles, 4 * 12_288)
    assert network.gain and network.steady_gain and 1.3 < network.gain < network.steady_gain
    # Without the host's time there is nothing to fill in on one accelerator.
    free = network.gain_without_host
    assert free and ((free == pytest.approx(1, abs=0.02)) if len(configs) == 1 else free > 1.2)


def test_what_no_accelerator_can_compute_is_the_hosts() -> None:
    config = TINY.replace(depthwise="none")
    network = plan_network(graph_of("mobilenet_v2_block"), system_of(config, config), effort=0)
    check_outputs(network)
    assert network.host_reasons == {"depthwise": 'the configuration has depthwise = "none"'}
    # Only what one accelerator can compute is computed there; the host has nothing to do with it.
    mixed = plan_network(graph_of("mobilenet_v2_block"), system_of(config, TINY), effort=0)
    check_outputs(mixed)
    assert (mixed.host_reasons, mixed.alone["a0"]) == ({}, None)


def test_a_slow_host_takes_more_cycles_of_a_fast_accelerator() -> None:
    graph, system, host = graph_of("attention_block"), system_of(TINY), replace(HOST, clock=50e6)
    found = [plan_network(graph, system, effort=0, host=host, clock=clock).host_cycles for clock in (None, 50e6, 100e6)]
    assert found == [12_288, 12_288, 24_576]


def test_orders_of_execution() -> None:
    graph = graph_of("attention_block")
    first, second = orders(graph, [node.name for node in graph.nodes if isinstance(node, ir.Host)])
    assert [(step.device, step.nodes[0].name) for step in first] == [
        ("accelerator", "query"),
        ("host", "softmax"),
        ("accelerator", "mix"),
    ]
    assert [(step.device, step.nodes[0].name) for step in second] == [
        ("accelerator", "query"),
        ("host", "softmax"),
        ("accelerator", "value"),
        ("accelerator", "mix"),
    ]
    assert len(orders(graph_of("resnet8"), [])) == 1


MODES_REFUSED = {
    "mode must be one of latency, throughput, not 'speed'": ("speed", 1),
    "inferences must be 1 for latency, not 2": ("latency", 2),
    "inferences must be at least 1, not 0": ("throughput", 0),
}


@pytest.mark.parametrize("text", MODES_REFUSED)
def test_modes_that_are_refused(text: str) -> None:
    mode, inferences = MODES_REFUSED[text]
    with pytest.raises(CompileError) as found:
        plan_network(graph_of("resnet8"), system_of(TINY), mode=mode, inferences=inferences)
    assert str(found.value) == text


WRONG = {
    "accelerators.a1: must not be microcoded for a plan": (system_of(TINY, Config.load("icebreaker")), "resnet8"),
    "memory: size of the system must be at least": (system_of(TINY, memory_bytes=1 << 16), "resnet8"),
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: re.sub(r"\W+", "-", text)[:30])
def test_plans_that_cannot_be(text: str) -> None:
    system, name = WRONG[text]
    with pytest.raises(CompileError) as found:
        plan_network(graph_of(name), system, effort=0)
    assert str(found.value).startswith(text)
    assert "\n" not in str(found.value)
