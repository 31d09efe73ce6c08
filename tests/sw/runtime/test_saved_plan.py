"""Plans in files: the same jobs, bytes and cycles again, and one line for what they are not for."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.config.system import System
from dovetail.isa.host import VERSION
from dovetail.sw.compiler.devices import stages, throughput
from dovetail.sw.compiler.partition.host_cost import HostCost
from dovetail.sw.files.archive import archive, members_of
from dovetail.sw.network import ir
from dovetail.sw.runtime.saved_plan import MEMORY, TEXT, PlanError, digest_of, load_plan, save_plan
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network
from tests.sw.compiler.devices.test_plan import TINY, WIDE, system_of
from tests.sw.compiler.devices.test_shares import graph_of

SYSTEM = system_of(TINY, WIDE)


@pytest.fixture(scope="module")
def network() -> SystemNetwork:
    return plan_network(graph_of("resnet8"), SYSTEM, mode="throughput", inferences=3, effort=0)


@pytest.fixture
def file(network: SystemNetwork, tmp_path: Path) -> Path:
    save_plan(network, tmp_path / "a.plan")
    return tmp_path / "a.plan"


def refused(path: Path, name: str = "resnet8", system: System = SYSTEM) -> str:
    with pytest.raises(PlanError) as found:
        load_plan(path, graph_of(name), system)
    text = str(found.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    return text.removeprefix(f"{path}: ")


@pytest.mark.parametrize("mode, inferences", [("latency", 1), ("throughput", 3)])
def test_a_plan_comes_back(mode: str, inferences: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of("resnet8")
    network = plan_network(graph, SYSTEM, mode=mode, inferences=inferences, effort=0)
    save_plan(network, tmp_path / "a.plan")
    for module, name in ((stages, "Stages"), (throughput, "_Search")):
        monkeypatch.delattr(module, name)  # nothing is searched for, or compiled
    found = load_plan(tmp_path / "a.plan", graph, SYSTEM)
    assert (found.times.origins, found.times.ends) == (network.times.origins, network.times.ends)
    assert (found.mode, found.options, found.gain) == (network.mode, network.options, network.gain)
    assert [(task.nodes, task.share) for task in found.plan.tasks] == [
        (task.nodes, task.share) for task in network.plan.tasks
    ]
    np.testing.assert_array_equal(found.plan.image(), network.plan.image())
    rng = np.random.default_rng(7)
    samples = [{"input": rng.integers(-128, 128, (1, 3, 32, 32), np.int8)} for _ in range(inferences)]
    np.testing.assert_array_equal(found.run(samples).memory, network.run(samples).memory)
    save_plan(found, tmp_path / "b.plan")
    assert (tmp_path / "a.plan").read_bytes() == (tmp_path / "b.plan").read_bytes()


@pytest.mark.parametrize("mode, inferences", [("latency", 1), ("throughput", 3)])
def test_layers_of_the_host_come_back(mode: str, inferences: int, tmp_path: Path) -> None:
    graph, host = graph_of("attention_block"), HostCost(2000, 0.5, 0.25, clock=50e6)
    network = plan_network(graph, SYSTEM, mode=mode, inferences=inferences, effort=0, host=host, clock=100e6)
    save_plan(network, tmp_path / "a.plan")
    found = load_plan(tmp_path / "a.plan", graph, SYSTEM)
    assert found.host_cycles == network.host_cycles > 0
    assert (found.times.ends, found.clock) == (network.times.ends, 100e6)
    rng = np.random.default_rng(7)
    samples = [
        {port.name: rng.integers(-128, 128, port.shape, np.int8) for port in graph.inputs} for _ in range(inferences)
    ]
    np.testing.assert_array_equal(found.run(samples).memory, network.run(samples).memory)


AGAIN = "; make the plan again, with --save-plan"
SYSTEMS = {
    f"plan must be for this system, not another one (accelerators.a1.sram 65536, not 131072){AGAIN}": system_of(
        TINY, WIDE.replace(sram="128 KiB")
    ),
    f"plan must be for this system, not another one (host.reaction 100, not 50){AGAIN}": replace(SYSTEM, reaction=50),
    f"plan must be for this system, not another one (memory.read_latency 40, not 41){AGAIN}": replace(
        SYSTEM, memory=MemoryTiming(read_latency=41)
    ),
    f"plan must be for this system, not one with its accelerators in another order{AGAIN}": replace(
        SYSTEM, accelerators=SYSTEM.accelerators[::-1]
    ),
}


@pytest.mark.parametrize("text", SYSTEMS, ids=lambda text: text[43:70])
def test_another_system(file: Path, text: str) -> None:
    assert refused(file, system=SYSTEMS[text]) == text


def test_many_differences_are_counted(file: Path) -> None:
    text = refused(file, system=system_of(TINY))
    assert text.startswith("plan must be for this system, not another one (interconnect.bus 64, not 32; ")
    assert text.endswith(f" more differ){AGAIN}")


def test_another_network(file: Path) -> None:
    assert refused(file, "dscnn") == f"plan must be for network zoo:dscnn, not zoo:resnet8{AGAIN}"


def test_other_weights_are_another_network(file: Path) -> None:
    graph = graph_of("resnet8")
    node = graph.nodes[0]
    assert isinstance(node, ir.Conv)
    other = replace(graph, nodes=(replace(node, bias=node.bias + 1), *graph.nodes[1:]))
    assert digest_of(other) != digest_of(graph) == digest_of(graph_of("resnet8"))
    with pytest.raises(PlanError, match="plan must be for network zoo:resnet8, not another form of it; make"):
        load_plan(file, other, SYSTEM)


def changed(file: Path, **values: object) -> None:
    members = members_of(file.read_bytes())
    told = json.loads(members[TEXT]) | values
    file.write_bytes(archive({TEXT: json.dumps(told).encode(), MEMORY: members[MEMORY]}))


def test_other_versions(file: Path) -> None:
    changed(file, instruction_set=1)
    assert refused(file) == f"plan must be for instruction set {VERSION}, not 1{AGAIN}"
    changed(file, version=7)
    assert refused(file) == f"plan must be of version 1, not 7{AGAIN}"


def test_no_bit_flips_unseen(file: Path, network: SystemNetwork) -> None:
    """A file with a wrong bit is refused, or the bit is in what no plan follows from, as a member's time."""
    data, rng = file.read_bytes(), np.random.default_rng(4711)
    for place in rng.integers(0, len(data), 40):
        broken = bytearray(data)
        broken[place] ^= 1 << rng.integers(8)
        file.write_bytes(broken)
        try:
            found = load_plan(file, network.graph, SYSTEM)
        except PlanError:
            continue
        np.testing.assert_array_equal(found.plan.image(), network.plan.image())


@pytest.mark.parametrize("left", [0, 3, 100, 100_000])
def test_a_part_of_a_file(file: Path, left: int) -> None:
    file.write_bytes(file.read_bytes()[:left])
    assert refused(file) == f"plan must be complete, not damaged (File is not a zip file){AGAIN}"


def test_other_archives(file: Path) -> None:
    for members in ({"a": b""}, {TEXT: b'{"format": "dovetail-network"}', MEMORY: b""}):
        file.write_bytes(archive(members))
        assert refused(file) == "must be a plan that --save-plan has written, not another archive"


WRONG: dict[str, dict[str, object]] = {
    "plan must be well-formed, not broken at": {"jobs": [{}]},
    "number in the plan must be 0..1048576, not -1": {"memory_bytes": -1},
    "mode must be one of latency, throughput, not 5": {"mode": 5},
    "contents must be 0 bytes, not": {"contents": []},
}


@pytest.mark.parametrize("text", WRONG)
def test_what_no_plan_has(file: Path, text: str) -> None:
    changed(file, **WRONG[text])
    found = refused(file)
    assert found.startswith(text) and found.endswith(AGAIN)
