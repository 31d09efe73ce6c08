"""Variables of ONNX files: inputs and outputs that belong together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dovetail.flows.cli import main
from dovetail.isa.config.resolved import Config
from dovetail.sw.errors import NetworkError
from dovetail.sw.files.packing import pack
from dovetail.sw.files.portable import unpack
from dovetail.sw.frontend import parse, read
from dovetail.sw.frontend.onnx.parsed import ParsedOnnx
from dovetail.sw.frontend.onnx.states import METADATA, pairs
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.calibration import Calibration
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.quantiser import apply
from dovetail.sw.quantise.samples import FileSamples, Steps, without_states
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.reference_runtimes import run as run_reference
from dovetail.sw.runtime.saved_program import load_program
from tests.sw.quantise.test_caches import CHANNELS, LENGTH, Step, walk


@pytest.fixture(scope="module")
def quantised() -> onnx.ModelProto:
    model = Step().model()
    samples = [sample for seed in range(2) for sample, _ in walk(model, seed)]
    return apply(Calibration(FloatGraph(model), samples), Scheme()).model


@pytest.fixture
def file(quantised: onnx.ModelProto, tmp_path: Path) -> Path:
    path = tmp_path / "step.onnx"
    path.write_bytes(quantised.SerializeToString())
    return path


def given(sample: Sample) -> dict[str, Array]:
    return {name: value for name, value in sample.items() if name != "cache"}


def steps(model: onnx.ModelProto, seed: int = 12) -> Iterator[tuple[dict[str, Array], Array]]:
    """What a user gives each step, and what ONNX Runtime returns."""
    for sample, results in walk(model, seed):
        yield given(sample), results["y"]


def write(path: Path, samples: Sequence[Sample]) -> None:
    """An input file of steps."""
    arrays: dict[str, Any] = {name: np.stack([sample[name] for sample in samples]) for name in given(samples[0])}
    np.savez(path, **arrays)


def test_a_decoder_runs_without_its_cache_being_passed(quantised: onnx.ModelProto, file: Path) -> None:
    network = compile_network(file, Config())
    assert [port.name for port in network.graph.inputs] == ["x", "pos", "onehot"]
    assert [port.name for port in network.graph.outputs] == ["y"]
    for _ in range(2):
        for sample, expected in steps(quantised):
            np.testing.assert_allclose(network.run(sample).outputs["y"], expected, atol=1e-6)
        network.reset()


def test_a_cache_between_equal_quantisations_is_kept_in_8_bits(file: Path) -> None:
    network = compile_network(file, Config())
    (state,) = network.graph.states
    tensor = network.graph.tensors[state.read]
    assert (state.name, tensor.dtype) == ("cache", "int8")
    assert np.all(state.initial == tensor.zero_point)
    assert not [node.name for node in network.graph.nodes if "cache" in node.name and node.op.endswith("quantize")]


def test_a_cache_that_its_reader_wants_finer_stays_float(quantised: onnx.ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(quantised)
    writer = next(node for node in model.graph.node if "cache_out" in node.output)
    scale = next(tensor for tensor in model.graph.initializer if tensor.name == writer.input[1])
    coarser = onnx.numpy_helper.to_array(scale) * np.float32(2)
    model.graph.initializer.append(onnx.numpy_helper.from_array(coarser, "coarser"))
    quantiser = next(node for node in model.graph.node if writer.input[0] in node.output)
    quantiser.input[1] = writer.input[1] = "coarser"
    graph = parse(NetworkFile("step", model.SerializeToString())).graph
    assert [graph.tensors[state.read].dtype for state in graph.states] == ["float32"]


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.3.decoder.value", "present.3.decoder.value"),
        ("past_k_0", "present_k_0"),
        ("cache_k_0", "cache_k_0_out"),
        ("conv_cache_in", "conv_cache_out"),
        ("cache_v", "new_cache_v"),
    ],
)
def test_names_of_caches(past: str, present: str) -> None:
    assert pairs(identity(past, present), None) == {past: present}


@pytest.mark.parametrize(("one", "other"), [("x", "y"), ("h0", "hn"), ("state", "state_out"), ("x", "present_x")])
def test_other_names_are_no_pair_unless_given(one: str, other: str) -> None:
    model = identity(one, other)
    assert pairs(model, None) == {}
    assert pairs(model, {one: other}) == {one: other}


def identity(name: str, output: str, sizes: tuple[int, int] = (2, 2), kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, sizes[0]])]
    results = [helper.make_tensor_value_info(output, kind, [1, sizes[1]])]
    node = helper.make_node("Relu", [name], [output], "relu")
    return helper.make_model(
        helper.make_graph([node], "g", values, results), opset_imports=[helper.make_opsetid("", 17)]
    )


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"cash": "cache_out"}, r"state cash=cache_out: must name an input \(cache\), not 'cash'; name the pairs"),
        ({"cache": "y"}, r"state cache=y: must name an output \(cache_out\), not 'y'; name the pairs"),
    ],
)
def test_a_pair_must_name_an_input_and_an_output(wanted: dict[str, str], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        pairs(identity("cache", "cache_out"), wanted)


def test_an_output_is_of_one_state() -> None:
    model = identity("cache", "cache_out")
    model.graph.input.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, [1, 2]))
    with pytest.raises(NetworkError, match="output 'cache_out': must be of one state, not of two; name the pairs"):
        pairs(model, {"cache": "cache_out", "other": "cache_out"})


def test_a_pair_of_different_sizes_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(identity("cache", "cache_out", (2, 3)).SerializeToString())
    message = (
        r"net: state 'cache': output 'cache_out' must have the input's type and sizes, float32\[1x2\], not "
        r"float32\[1x3\]; name the pairs \(--state INPUT=OUTPUT\), or pair nothing \(--state none\)"
    )
    with pytest.raises(NetworkError, match=message):
        parse(read(path))


def test_metadata_says_more_than_names(quantised: onnx.ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(quantised)
    for text, found in (("{}", 0), ('{"cache": "cache_out"}', 1)):
        helper.set_model_props(model, {METADATA: text})
        assert len(parse(NetworkFile("step", model.SerializeToString())).graph.states) == found
    for text in ("[", "[1]", '{"cache": 1}', "[" * 100_000):
        helper.set_model_props(model, {METADATA: text})
        with pytest.raises(NetworkError, match=r"step: metadata dovetail\.states must be a JSON object of outputs by"):
            parse(NetworkFile("step", model.SerializeToString()))


def test_pairs_that_were_given_are_kept_in_what_is_saved(quantised: onnx.ModelProto, tmp_path: Path) -> None:
    renamed = onnx.ModelProto.FromString(quantised.SerializeToString().replace(b"cache_out", b"cash_back"))
    path = tmp_path / "step.onnx"
    path.write_bytes(renamed.SerializeToString())
    states = {"cache": "cash_back"}
    assert not compile_network(path, Config()).graph.states
    network = compile_network(path, Config(), states=states)
    network.save(tmp_path / "step.dvt")
    loaded = load_program(tmp_path / "step.dvt")
    packed = tmp_path / "step.dnet"
    packed.write_bytes(pack(parse(read(path, states))))
    manifest = unpack(packed.read_bytes(), "step.dnet").manifest
    assert [state["name"] for state in manifest["states"]] == ["cache"]
    again = compile_network(packed, Config())
    for sample, expected in steps(quantised):
        for one in (network, loaded, again):
            np.testing.assert_allclose(one.run(sample).outputs["y"], expected, atol=1e-6)


def test_the_reference_runtime_sees_the_steps_before(file: Path, quantised: onnx.ModelProto) -> None:
    network = compile_network(file, Config(), keep_tensors=True)
    samples = [sample for sample, _ in steps(quantised)][:4]
    assert network.source is not None
    reference = run_reference(network.graph, network.source, samples[-1], samples[:-1])
    for sample in samples:
        result = network.run(sample)
    for name, value in reference.tensors.items():
        tensor = network.graph.tensors.get(name)  # some are gone in a pass
        if tensor is not None and tensor.dtype == "int8":
            np.testing.assert_array_equal(result.tensors[name].ravel(), value.ravel(), err_msg=name)
    (state,) = network.graph.states
    assert state.written in reference.tensors


def test_calibration_hands_the_cache_on(tmp_path: Path) -> None:
    """Samples are steps, and every file of a folder begins anew: the ranges are those of whole samples."""
    model = Step().model()
    graph, whole, folder = FloatGraph(model), list[Sample](), tmp_path / "steps"
    folder.mkdir()
    for seed in range(2):
        walked = [sample for sample, _ in walk(model, seed)]
        whole += walked
        write(folder / f"{seed}.npz", walked)
    states = {"cache": "cache_out"}
    stepped = Steps(graph, states, FileSamples(folder, without_states(graph.inputs, states)))
    found, wanted = ([*one] for one in (stepped, whole))
    assert len(found) == 2 * LENGTH
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one["cache"], other["cache"])
    scheme = Scheme(clipping="minmax")
    assert Calibration(graph, stepped).ranges(scheme) == Calibration(graph, whole).ranges(scheme)


def test_commands_keep_a_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a float file to runs on the model, with names that do not say what belongs together."""
    renamed = Step().model().SerializeToString().replace(b"cache_out", b"cash_back")
    (tmp_path / "float.onnx").write_bytes(renamed)
    walked = [given(sample) for sample, _ in walk(Step().model(), 5)]
    write(tmp_path / "x.npz", walked)
    wanted = ["--state", "cache=cash_back"]
    quantised, data = str(tmp_path / "q.onnx"), str(tmp_path / "x.npz")
    assert main(["quantise", str(tmp_path / "float.onnx"), "--calibration", data, "--output", quantised, *wanted]) == 0
    held = {p.key: p.value for p in onnx.load(quantised).metadata_props}
    assert json.loads(held[METADATA]) == {"cache": "cash_back"}
    assert main(["run", quantised, "--input", data, "--output", str(tmp_path / "y.npz")]) == 0
    assert "cache: int8[1x2x8x8]" in capsys.readouterr().out
    found = np.load(tmp_path / "y.npz")["y"]
    network = compile_network(quantised)
    together = [network.run(sample).outputs["y"] for sample in walked]
    np.testing.assert_array_equal(found.reshape(LENGTH, CHANNELS), np.concatenate(together).reshape(LENGTH, CHANNELS))
    assert main(["diff", quantised, "--input", data, "--sample", "3"]) == 0
    assert main(["run", quantised, "--state", "none", "--input", data]) == 2
    assert "must hold the input(s) x, pos, onehot, cache" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cache"], "state must be INPUT=OUTPUT, or none alone, not 'cache'"),
        (["none", "cache=cache_out"], "state must be INPUT=OUTPUT, or none alone, not 'none'"),
        (["cache=a", "cache=b"], "state 'cache' must be given once, not with 'a' and 'b'"),
    ],
)
def test_options_of_states(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = [part for word in words for part in ("--state", word)]
    assert main(["inspect", "zoo:attention_block", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_tflite_file_says_itself_what_its_variables_are(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(b"\0\0\0\0TFL3")
    with pytest.raises(NetworkError, match="states must be of an ONNX file; a TFLite file says itself"):
        read(path, {})


def test_a_network_made_here_has_the_states_it_is_given(quantised: onnx.ModelProto) -> None:
    assert not ParsedOnnx.of_model(quantised, "step").graph.states
    assert len(ParsedOnnx.of_model(quantised, "step", {"cache": "cache_out"}).graph.states) == 1
