"""Many inferences on several accelerators: outputs are the reference's, buffers are shared, and legs pay."""

from dataclasses import replace

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.config.system import System
from dovetail.sw.compiler.devices.throughput import throughput_plan
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir, reference
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network
from tests.sw.compiler.devices.test_plan import TINY, WIDE, system_of
from tests.sw.compiler.devices.test_shares import graph_of
from tests.sw.network.test_graph import small

UNLIKE = system_of(TINY.replace(depthwise="none"), WIDE.replace(pooling=False, matmul=False))
"""Two accelerators, neither of which can compute all of DS-CNN."""


def check_outputs(network: SystemNetwork) -> None:
    rng = np.random.default_rng(7)
    samples = [
        {port.name: rng.integers(-128, 128, port.shape, np.int8) for port in network.graph.inputs}
        for _ in range(network.inferences)
    ]
    for sample, outputs in zip(samples, network.run(samples).outputs, strict=True):
        for name, value in reference.run(network.graph, sample).items():
            np.testing.assert_array_equal(outputs[name], value)


def planned(graph: ir.Graph, system: System, inferences: int, effort: int = 0) -> SystemNetwork:
    return plan_network(graph, system, mode="throughput", inferences=inferences, effort=effort)


def test_accelerators_that_can_compute_a_part_only_work_together() -> None:
    network = planned(graph_of("dscnn"), UNLIKE, 6)
    check_outputs(network)
    assert network.alone == {"a0": None, "a1": None}
    assert (network.gain, network.steady_gain, network.simpler()) == (None, None, {})
    assert {task.accelerator for task in network.plan.tasks} == {"a0", "a1"}


def test_one_inference_goes_through_both() -> None:
    check_outputs(planned(graph_of("dscnn"), UNLIKE, 1))


def test_legs_where_accelerators_suit_different_layers() -> None:
    system = system_of(TINY, WIDE.replace(ic_lanes=16, oc_lanes=16), memory_bytes=4 << 20)
    network = planned(graph_of("mobilenet_v2_block"), system, 8)
    check_outputs(network)
    (whole,) = network.simpler().values()
    assert (network.times.cycles, whole) == (200_286, 227_796)
    assert network.gain and network.steady_gain and network.gain < network.steady_gain


def test_a_plan_that_needs_less_memory_where_there_is_too_little() -> None:
    system = system_of(TINY, WIDE.replace(ic_lanes=16, oc_lanes=16), memory_bytes=4 << 20)
    graph = graph_of("mobilenet_v2_block")
    legs = planned(graph, system, 8).plan.memory_bytes
    whole = throughput_plan(system, graph, Options(effort=0), 8, legs=False).memory_bytes
    assert whole < legs
    network = planned(graph, replace(system, memory_bytes=legs - 4096), 8)
    assert (len(network.plan.tasks), network.plan.memory_bytes) == (8, whole)
    with pytest.raises(CompileError, match=r"^memory: size of the system must be at least .* for this plan, not "):
        planned(graph, replace(system, memory_bytes=whole - 4096), 8)


def test_tensors_between_legs_wait_for_their_places() -> None:
    """Without the places' waits an inference would overwrite what the one before it still needs."""
    network = planned(graph_of("dscnn"), UNLIKE, 6)
    tasks = network.plan.tasks
    first = {task.inference: number for number, task in reversed(list(enumerate(tasks)))}
    last = {task.inference: number for number, task in enumerate(tasks)}
    between = [name for name in network.plan.where[0] if name not in (*network.graph.given, *network.graph.wanted)]
    assert len({where[between[0]] for where in network.plan.where}) == 2
    for one in range(6):
        for other in range(one + 1, 6):
            if network.plan.where[one][between[0]] == network.plan.where[other][between[0]]:
                end, begin = network.times.ends[last[one]], network.times.origins[first[other]]
                assert end is not None and begin is not None and end <= begin


def test_outputs_that_are_views() -> None:
    """The network's output is another tensor's bytes; the second inference's lie elsewhere."""
    check_outputs(planned(small(), system_of(TINY, TINY), 3))


@pytest.mark.slow  # half a minute
def test_programs_for_a_slower_memory_where_four_load_at_once() -> None:
    network = planned(graph_of("resnet50"), system_of(*[Config.load("8x8")] * 4, memory_bytes=128 << 20), 8, effort=1)
    assert network.gain and network.gain > 3.9


@pytest.mark.parametrize("inferences", [1, 3])
def test_legs_are_not_for_accelerators_of_one_kind(inferences: int) -> None:
    plan = throughput_plan(system_of(TINY, TINY), graph_of("dscnn"), Options(effort=0), inferences)
    assert len(plan.tasks) == inferences


def test_three_kinds_of_accelerators() -> None:
    system = system_of(*[part.config for part in UNLIKE.accelerators], TINY.replace(ic_lanes=4))
    network = planned(graph_of("dscnn"), system, 5)
    check_outputs(network)
    assert len({task.accelerator for task in network.plan.tasks}) == 3
    assert network.gain and network.gain > 1.5
