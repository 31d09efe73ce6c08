"""Networks on several accelerators, on RTL: every byte, every job's start and every operation's cycles."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.cosim.compare.systems import verify_system
from dovetail.cosim.rtl.system_engine import SystemEngine
from dovetail.isa.config.system import System
from dovetail.sw.runtime.system_network import SystemNetwork, plan_network
from tests.sw.compiler.devices.test_plan import HOST, TINY, WIDE, system_of
from tests.sw.compiler.devices.test_shares import graph_of

pytestmark = pytest.mark.slow  # a system takes half a minute to build
FOUR = Path(__file__).parents[3] / "docs/examples/systems/small.toml"
SYSTEMS = {"alike": system_of(TINY, TINY), "mixed": system_of(WIDE, TINY)}


@pytest.fixture(scope="module", params=SYSTEMS)
def engine(request: pytest.FixtureRequest, build_cache: Path) -> SystemEngine:
    return SystemEngine(SYSTEMS[request.param], cache=build_cache, limit=5_000_000)


@pytest.mark.parametrize(
    "name, inferences", [("resnet8", 1), ("dscnn", 1), ("attention_block", 1), ("attention_block", 3)]
)
def test_networks_on_two_accelerators(engine: SystemEngine, name: str, inferences: int) -> None:
    system: System = engine.system
    mode = "latency" if inferences == 1 else "throughput"
    network = plan_network(graph_of(name), system, effort=0, mode=mode, inferences=inferences, host=HOST)
    inputs = samples_of(network)
    expected = network.run(inputs)
    engine.reset()
    found = network.run(inputs, engine)
    np.testing.assert_array_equal(found.memory, expected.memory)
    assert (found.ran.origins, found.ran.ends) == (network.times.origins, network.times.ends)
    for mine, other in zip(found.ran.timelines, network.times.timelines, strict=True):
        if mine is None or other is None:  # a layer that the host computes
            assert mine is other is None and name == "attention_block"
            continue
        assert (mine.cycles, mine.fault) == (other.cycles, None)
        for column in ("unit", "op", "pc", "start", "end", "works"):
            np.testing.assert_array_equal(getattr(mine, column), getattr(other, column), column)


@pytest.mark.parametrize("name, tasks", [("resnet8", 24), ("mobilenet_v2_block", 7)])
def test_inferences_that_go_from_accelerator_to_accelerator(build_cache: Path, name: str, tasks: int) -> None:
    network = plan_network(graph_of(name), SYSTEMS["mixed"], mode="throughput", inferences=4)
    assert len(network.plan.tasks) == tasks
    check(network, build_cache)


@pytest.mark.parametrize(("mode", "inferences", "cycles"), [("latency", 1, 127_970), ("throughput", 4, 304_812)])
def test_the_four_accelerators_of_the_page(build_cache: Path, mode: str, inferences: int, cycles: int) -> None:
    network = plan_network(graph_of("resnet8"), System.load(FOUR), mode=mode, inferences=inferences)
    assert network.times.cycles == cycles
    check(network, build_cache)


def check(network: SystemNetwork, cache: Path) -> None:
    """All of it is equal on RTL."""
    verdict = verify_system(network, samples_of(network), cache=cache)
    assert verdict.equal, verdict.first_difference
    assert verdict.cycles_rtl == network.times.cycles


def samples_of(network: SystemNetwork) -> list[dict[str, NDArray[np.int8]]]:
    """Random inputs of each inference."""
    rng = np.random.default_rng(7)
    return [
        {port.name: rng.integers(-128, 128, port.shape, np.int8) for port in network.graph.inputs}
        for _ in range(network.inferences)
    ]
