"""The zoo's decoder: a cache that is kept from token to token."""

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
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.zoo import catalogue
from tests.slow import slow
from tests.sw.zoo.test_zoo import CONFIGS

SMALL = "zoo:decoder_tiny?depth=2&length=24"
SHARP = "zoo:decoder_tiny?depth=1&channels=32&heads=2&groups=1&hidden=20&words=30&length=9"


def steps(count: int, words: int, seed: int = 1) -> list[Sample]:
    tokens = np.random.default_rng(seed).integers(0, words, count)
    return [{"tokens": np.array([[token]]), "position": np.array([place])} for place, token in enumerate(tokens)]


def test_it_has_the_size_of_stories260k() -> None:
    graph = load("zoo:decoder_tiny")
    weights = sum(node.weights.size for node in graph.nodes if isinstance(node, ir.Conv))
    assert weights == 5 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 172) + 64 * 512
    assert graph.total_macs == weights + 5 * 2 * 8 * 8 * 256
    assert [(state.name, graph.tensors[state.read].shape) for state in graph.states[:2]] == [
        ("past_k_0", (1, 4, 256, 8)),
        ("past_v_0", (1, 4, 256, 8)),
    ]
    assert {graph.tensors[state.read].dtype for state in graph.states} == {"int8"}


@pytest.mark.parametrize("name", [SMALL, SHARP])
def test_every_tensor_of_every_step_equals_onnx_runtime(name: str) -> None:
    network = compile_network(name, Config(), keep_tensors=True)
    assert network.source is not None
    samples = steps(6, 30)
    for count, sample in enumerate(samples):
        result = network.run(sample)
        if count in (0, 5):
            wanted = reference_runtimes.run(network.graph, network.source, sample, samples[:count])
            difference = compare(network.graph, result.tensors, wanted.tensors, 0)
            assert difference.first is None
            assert not difference.missing
            assert {state.written for state in network.graph.states} <= wanted.tensors.keys()


@pytest.mark.parametrize("config", [slow(name) if n else name for n, name in enumerate(CONFIGS)])
def test_every_configuration_gives_the_same_logits(config: str) -> None:
    one, other = (compile_network(SHARP, chosen) for chosen in (Config(), CONFIGS[config]))
    for sample in steps(4, 30):
        np.testing.assert_array_equal(one.run(sample).outputs["logits"], other.run(sample).outputs["logits"])


def test_only_softmax_norms_and_picking_rows_need_the_host() -> None:
    hosted = {node.op for node in load(SMALL).nodes if isinstance(node, ir.Host)}
    picks, mask = {"gather"}, {"greater", "where", "quantize"}
    assert hosted == {*picks, *mask, "qlinearsoftmax", "rmsnormalization", "dequantize"}


def test_a_token_is_one_program() -> None:
    """With a parameter, and all that is for transformers; rows of tables, and the mask, are the host's before it."""
    whole = Config(softmax=1, norm=1, parameters=1)
    one, other = compile_network(SMALL, whole), compile_network(SMALL, Config())
    assert len(one.code.segments) == 1
    hosted = [node.op for node in one.code.graph.nodes if node.name in one.code.host_reasons]
    assert sorted(hosted) == ["gather"] * 3 + ["greater", "where"]
    for sample in steps(6, 512):
        ours, theirs = (network.run(sample).outputs["logits"].astype(int) for network in (one, other))
        assert np.abs(ours - theirs).max() <= 8  # RMS norms of integers may be a step off, and the next layer sees it
        assert np.abs(ours - theirs).mean() < 2


@pytest.mark.slow
def test_rows_of_the_cache_are_replaced_in_place() -> None:
    """With a parameter of the run for their place, and with the same results as without."""
    one, other = (compile_network(SMALL, Config(parameters=count)) for count in (0, 1))
    updates = [node.name for node in other.graph.nodes if isinstance(node, ir.Update)]
    assert len(updates) == 4
    assert set(updates) <= one.code.host_reasons.keys()
    assert not set(updates) & other.code.host_reasons.keys()
    for sample in steps(6, 512):
        np.testing.assert_array_equal(one.run(sample).outputs["logits"], other.run(sample).outputs["logits"])


def test_what_was_said_counts() -> None:
    """The last token's logits change with the tokens before it, and with their order."""

    def last(tokens: list[int]) -> bytes:
        network.reset()
        for place, token in enumerate(tokens):
            result = network.run({"tokens": np.array([[token]]), "position": np.array([place])})
        return result.outputs["logits"].tobytes()

    network: CompiledNetwork = compile_network(SHARP, Config())
    assert len({last(tokens) for tokens in ([1, 2, 3], [2, 1, 3], [1, 4, 3], [3])}) == 4
    assert last([1, 2, 3]) == last([1, 2, 3])


def test_activations_use_the_int8_range() -> None:
    network = compile_network(SMALL, Config(), keep_tensors=True)
    for sample in steps(8, 512):
        tensors = network.run(sample).tensors
    for node in network.graph.nodes:
        result = tensors.get(node.outputs[0])
        if result is not None and result.dtype == np.int8 and not isinstance(node, ir.Host | ir.Reshape):
            assert result.std() > 12 or node.name.endswith("_across"), (
                node.name
            )  # sines of the first positions are small
            assert (result == 127).mean() < 0.25, node.name


def test_the_file_is_valid_and_deterministic() -> None:
    data = catalogue.model_bytes("decoder_tiny?depth=1")
    assert data == catalogue.model_bytes("decoder_tiny?depth=1")
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)


@pytest.mark.slow
def test_sixteen_positions_are_equal_on_the_rtl() -> None:
    """Bytes, cycles and timelines, the cache handed on; all rows are picked by the accelerator."""
    config = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", softmax=1, norm=1, parameters=3)
    network = compile_network("zoo:decoder_tiny?depth=1&length=16", config)
    assert not network.code.host_reasons
    verdicts = verify(network, steps(16, 512))
    assert len(verdicts) == 16
    assert not [verdict.first_difference for verdict in verdicts if not verdict.equal]
