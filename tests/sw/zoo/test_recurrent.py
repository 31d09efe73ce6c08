"""The zoo's recurrent networks: what a step leaves is what the next one finds, on the accelerator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from dovetail.cosim.compare.networks import verify
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.diff import compare
from dovetail.sw.frontend import load
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Sample
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.zoo import catalogue
from tests.sw.zoo.test_zoo import CONFIGS

NAMES = ("lstm", "gru")
SMALL = "?width=6&units=20&classes=5"


def steps(count: int, width: int = 10, seed: int = 1) -> list[Sample]:
    random = np.random.default_rng(seed)
    return [{"input": random.integers(-128, 128, (1, width)).astype(np.int8)} for _ in range(count)]


@pytest.mark.parametrize(
    ("name", "states", "macs"),
    [
        ("lstm", ["past_h", "past_c"], 138 * 4 * 128 + 128 * 12),
        ("gru", ["past_h"], 138 * 3 * 128 + 128 * 12),
    ],
)
def test_sizes_and_variables(name: str, states: list[str], macs: int) -> None:
    graph = load(f"zoo:{name}")
    assert [state.name for state in graph.states] == states
    assert graph.total_macs == macs
    assert {graph.tensors[state.read].dtype for state in graph.states} == {"int8"}


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_of_every_step_equals_onnx_runtime(name: str) -> None:
    network = compile_network(f"zoo:{name}", Config(), keep_tensors=True)
    assert network.source is not None
    samples = steps(10)
    for count, sample in enumerate(samples):
        result = network.run(sample)
        if count in (0, 1, 9):
            wanted = reference_runtimes.run(network.graph, network.source, sample, samples[:count])
            difference = compare(network.graph, result.tensors, wanted.tensors, 0)
            assert difference.first is None
            assert not difference.missing
            assert {state.written for state in network.graph.states} <= wanted.tensors.keys()


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_gives_the_same_logits(name: str, config: str) -> None:
    one, other = (compile_network(f"zoo:{name}{SMALL}", chosen) for chosen in (Config(), CONFIGS[config]))
    for sample in steps(4, 6):
        np.testing.assert_array_equal(one.run(sample).outputs["logits"], other.run(sample).outputs["logits"])


@pytest.mark.parametrize(("name", "cycles"), [("lstm", 14_591), ("gru", 11_998)])
def test_a_step_is_one_program(name: str, cycles: int) -> None:
    """Nothing is the host's, and every step takes as long."""
    network = compile_network(f"zoo:{name}", Config.load("small"))
    assert not network.code.host_reasons
    assert len(network.code.segments) == 1
    assert {network.run(sample).cycles for sample in steps(3)} == {cycles}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_heard_counts(name: str) -> None:
    """The last logits change with the steps before it, and with their order."""
    network, samples = compile_network(f"zoo:{name}{SMALL}", Config()), steps(4, 6)

    def last(order: list[int]) -> bytes:
        network.reset()
        for place in order:
            result = network.run(samples[place])
        return result.outputs["logits"].tobytes()

    assert len({last(order) for order in ([0, 1, 2], [1, 0, 2], [0, 3, 2], [2])}) == 4
    assert last([0, 1, 2]) == last([0, 1, 2])


@pytest.mark.parametrize("name", NAMES)
def test_activations_use_the_int8_range(name: str) -> None:
    network = compile_network(f"zoo:{name}", Config(), keep_tensors=True)
    for sample in steps(12):
        tensors = network.run(sample).tensors
    for node in network.graph.nodes:
        result = tensors[node.outputs[0]]
        if not isinstance(node, ir.Reshape):
            assert result.std() > (6 if node.name == "held" else 12), node.name  # a cell's range is for long sequences
            assert (result == 127).mean() < 0.35, node.name


@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_valid_and_deterministic(name: str) -> None:
    data = catalogue.model_bytes(name)
    assert data == catalogue.model_bytes(name)
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_are_equal_on_the_rtl(name: str) -> None:
    """Bytes, cycles and timelines, the state handed on."""
    verdicts = verify(compile_network(f"zoo:{name}", Config.load("small")), steps(10))
    assert len(verdicts) == 10
    assert not [verdict.first_difference for verdict in verdicts if not verdict.equal]
