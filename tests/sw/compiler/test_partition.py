"""The partition: few segments, grouped host steps, islands that do not pay, layers that do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import HostCost, default_host
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST, border_of, host_reasons, steps_of
from dovetail.sw.errors import CompileError
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.host.kernels import OnnxOp
from dovetail.sw.host.step import units_of
from dovetail.sw.network import ir, reference
from dovetail.sw.random.networks import RandomNet, random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork

CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB")
NONE = (0, 0, 0, 0)
NO_POOLING = replace(CONFIG, pooling=False)
KEEP = Options(host=replace(default_host(), round_trip=0))


def segments(graph: ir.Graph, host: set[str]) -> list[list[str]]:
    return [[node.name for node in step.nodes] for step in steps_of(graph, host) if step.is_program]


def check(graph: ir.Graph, config: Config, options: Options) -> CompiledNetwork:
    """Compile, and compare a run with the graph interpreter."""
    compiled = CompiledNetwork(generate(graph, config, options))
    rng = np.random.default_rng(1)
    inputs = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs}
    wanted = reference.run(graph, inputs)
    for name, value in compiled.run(inputs).outputs.items():
        np.testing.assert_array_equal(value, wanted[name])
    return compiled


# --- steps ------------------------------------------------------------------------------------------------------


def branches(net: RandomNet) -> ir.Graph:
    """Two branches of four nodes each, n0..n3 and n4..n7, and n8 that adds them up."""
    x = net.input(1, 4, 4, 8)
    ends = []
    for _ in range(2):
        y = x
        for _ in range(4):
            y = net.table(y)
        ends.append(y)
    return net.graph(net.elementwise("ADD", *ends))


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        (set(), [["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"]]),
        ({"n1", "n6"}, [["n0", "n4", "n5"], ["n2", "n3", "n7", "n8"]]),
        ({"n0", "n3", "n7", "n8"}, [["n1", "n2", "n4", "n5", "n6"]]),
        ({"n0", "n2"}, [["n4", "n5", "n6", "n7", "n1"], ["n3", "n8"]]),
        ({"n0", "n4"}, [["n1", "n2", "n3", "n5", "n6", "n7", "n8"]]),
    ],
)
def test_as_few_segments_as_there_can_be(host: set[str], wanted: list[list[str]]) -> None:
    found = segments(branches(RandomNet(1)), host)
    assert [sorted(segment) for segment in found] == [sorted(segment) for segment in wanted]


def test_neighbours_on_the_host_are_one_step() -> None:
    graph = branches(RandomNet(1))
    steps = steps_of(graph, {"n1", "n2", "n5", "n6"})
    assert [(step.device, len(step.nodes)) for step in steps] == [(ACCELERATOR, 2), (HOST, 4), (ACCELERATOR, 3)]
    reads, makes = border_of(graph, steps[1].nodes)
    assert len(reads) == len(makes) == 2
    assert set(reads) == {name for node in steps[0].nodes for name in node.outputs}


@pytest.mark.parametrize("seed", range(6))
def test_every_node_runs_once_and_after_its_operands(seed: int) -> None:
    graph = random_network(seed, 10)
    rng = np.random.default_rng(seed)
    host = {node.name for node in graph.nodes if rng.random() < 0.4 and not isinstance(node, ir.FREE)}
    ready = {port.tensor for port in graph.inputs}
    seen = []
    for step in steps_of(graph, host):
        for node in step.nodes:
            assert ready.issuperset(node.inputs)
            assert isinstance(node, ir.FREE) or (step.device == HOST) == (node.name in host)
            ready.update(node.outputs)
            seen.append(node.name)
    assert sorted(seen) == sorted(node.name for node in graph.nodes)


def test_a_tensor_that_nothing_makes_is_an_error() -> None:
    graph = branches(RandomNet(1))
    cut = replace(graph, nodes=graph.nodes[1:])
    with pytest.raises(CompileError, match=f"tensor '{graph.nodes[0].outputs[0]}' must be made before it is read"):
        steps_of(cut, ())


# --- cost -------------------------------------------------------------------------------------------------------


def islands(net: RandomNet) -> ir.Graph:
    """A convolution, pooling, an element-wise island of 32 bytes, pooling, a convolution."""
    x = net.conv(net.input(1, 16, 16, 8), 8)
    x = net.average(x, (8, 8), (8, 8), NONE)
    x = net.table(net.table(x))
    x = net.average(x, (1, 1), (1, 1), NONE)
    return net.graph(net.conv(x, 64, size=1))


def test_an_island_that_does_not_pay_is_left_to_the_host() -> None:
    graph = islands(RandomNet(2))
    assert len(segments(graph, set(host_reasons(NO_POOLING, KEEP, graph)))) == 3
    reasons = host_reasons(NO_POOLING, Options(), graph)
    tables = [node.name for node in graph.nodes if isinstance(node, ir.Table)]
    assert set(tables) <= set(reasons)
    size = 2 * 2 * 8
    table = default_host().of("table")
    assert table is not None
    host = 2 * table.cycles(0, 2 * size, size)
    least = 2 * size // CONFIG.bus_bytes + CONFIG.like_fixed.read_latency + CONFIG.like_fixed.write_latency
    assert reasons[tables[0]] == (
        f"its segment costs {default_host().round_trip} cycles for the round trip and at least {least} on the"
        f" accelerator, about {host} on the host"
    )
    compiled = check(graph, NO_POOLING, Options())
    assert compiled.report().host == reasons
    check(graph, NO_POOLING, KEEP)


def test_an_island_that_pays_stays() -> None:
    net = RandomNet(2)
    x = net.maximum(net.conv(net.input(1, 16, 16, 8), 8), (2, 2), NONE)
    graph = net.graph(net.maximum(net.conv(x, 8), (2, 2), NONE))
    assert len(segments(graph, set(host_reasons(NO_POOLING, Options(), graph)))) == 2


def test_what_runs_wholly_on_the_accelerator_always_stays() -> None:
    net = RandomNet(3)
    graph = net.graph(net.table(net.input(1, 1, 1, 1)))
    dear = Options(host=HostCost(round_trip=10**9, macs_per_cycle=1e9, values_per_cycle=1e9))
    assert host_reasons(CONFIG, dear, graph) == {}
    pooled = RandomNet(3)
    graph = pooled.graph(pooled.table(pooled.maximum(pooled.input(1, 4, 4, 2), (2, 2), NONE)))
    assert list(host_reasons(NO_POOLING, dear, graph)) == ["n0"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"round_trip": -1}, "round trip must be 0 to 1000000000000 cycles, a whole number, not -1"),
        ({"macs_per_cycle": 0.0}, "the host's macs_per_cycle must be a number above 0 .*, not 0.0"),
        ({"values_per_cycle": -1.0}, "the host's values_per_cycle must be a number above 0 .*, not -1.0"),
    ],
)
def test_costs_must_make_sense(values: dict[str, float], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        replace(default_host(), **values)  # type: ignore[arg-type]


# --- layers too large -------------------------------------------------------------------------------------------


def test_layers_that_do_not_fit_run_on_the_host() -> None:
    small = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16)
    net = RandomNet(4)
    x = net.conv(net.input(1, 102, 102, 4), 4, size=99, stride=50)
    graph = net.graph(net.conv(x, 4, size=1))
    compiled = check(graph, small, Options())
    assert compiled.code.host_reasons["n0"].startswith("its smallest tile ")
    assert "n1" not in compiled.code.host_reasons
    assert compiled.report().host_macs == graph.macs(graph.nodes[0])


def test_a_pooling_that_does_not_fit_runs_on_the_host() -> None:
    small = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", banks=16)
    net = RandomNet(4)
    compiled = check(net.graph(net.maximum(net.input(1, 3, 9000, 2), (3, 3), NONE)), small, Options())
    (reason,) = compiled.code.host_reasons.values()
    assert reason.startswith("what one output row of one channel needs, 3 x 9000 bytes")
    assert compiled.report().cycles == 0


# --- host steps in one session ----------------------------------------------------------------------------------


def test_neighbouring_onnx_operators_run_in_one_session_with_the_same_result(norm_network: bytes) -> None:
    graph = frontend.load(NetworkFile("net", norm_network))
    (step,) = [step for step in steps_of(graph, host_reasons(CONFIG, Options(), graph)) if step.device == HOST]
    units = units_of(step.nodes)
    opaque = [[node.op for node in unit.nodes] for unit in units if isinstance(unit.nodes[0], ir.Host)]
    joined = [kinds for kinds in opaque if len(kinds) > 1]
    assert joined == [["reducemean", "sub", "pow", "reducemean", "add", "sqrt", "div", "mul", "reshape"]]
    assert ["conv"] in opaque
    rng = np.random.default_rng(3)
    for _ in range(3):
        x = rng.integers(-128, 128, (1, 8, 16)).astype(np.int8)
        values = reference.evaluate(graph, graph.bind(x), keep_all=True)
        known = {name: values[name] for name in border_of(graph, step.nodes)[0]}
        for unit in units:
            known |= unit.run(graph, known)
        for name in known:
            np.testing.assert_array_equal(known[name], values[name])
    check(graph, CONFIG, Options())


def test_a_network_of_one_operator_is_not_joined() -> None:
    graph = frontend.load("zoo:attention_block")
    hosts = [node for node in graph.nodes if isinstance(node, ir.Host) and isinstance(node.payload, OnnxOp)]
    (unit,) = units_of(hosts[:1])
    assert unit.joined is None
    assert onnx.load_model_from_string(hosts[0].payload.model).graph.node[0].op_type == "QLinearSoftmax"
