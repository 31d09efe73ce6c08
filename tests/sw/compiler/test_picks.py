"""Rows that a run picks by a token or a position: tables behind the program, and loads with a parameter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.isa.parameters import Formula, RunInput, Term
from dovetail.isa.program import Program
from dovetail.sw.analysis.preflight import inspect
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.emit.reach import bound_of, faults_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.outline import partition
from dovetail.sw.compiler.partition.tables import ALIGN, records_of
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.network import ir, reference
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.saved_program import load_program
from dovetail.sw.runtime.system_network import plan_network
from tests.slow import slow
from tests.sw.compiler.devices.test_plan import system_of
from tests.sw.zoo.test_decoders import SHARP, SMALL, steps

WHOLE = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", softmax=1, norm=1, parameters=3)


def picks_of(code: Code) -> dict[str, ir.Pick]:
    return {node.name: node for node in code.graph.nodes if isinstance(node, ir.Pick)}


def test_a_token_needs_no_node_of_the_host() -> None:
    """Embedding and its norm, sines, cosines and the mask are rows; logits are the accelerator's."""
    compiled = compile_network(SMALL, WHOLE, effort=0)
    code = compiled.code
    assert not code.host_reasons and len(code.segments) == 1
    assert [step.is_program for step in code.steps].count(True) == 1
    assert set(picks_of(code)) == {"embedding", "layer0_norm1_quantize", "cosine", "sine", "mask_quantize"}
    assert code.parameters.inputs == (RunInput("position", 0, 23), RunInput("tokens", 0, 511))
    assert code.parameters.formulas == (
        Formula(terms=(Term("position", step=8),)),  # of the caches
        Formula(terms=(Term("position", step=3 * ALIGN),)),
        Formula(terms=(Term("tokens", step=2 * ALIGN),)),
    )
    assert compiled.report().host_work.cycles < 15_000
    told = [node for node in inspect(SMALL, WHOLE, Options()).nodes if node.kind == "pick"]
    assert {node.name for node in told} == set(picks_of(code))
    assert all((node.place, node.instructions) == ("accelerator", ("DMA_READ",)) for node in told)


@pytest.mark.parametrize("config", [WHOLE, WHOLE.replace(sram="512 KiB", bus=64)], ids=["small", "many banks"])
@pytest.mark.parametrize("name", [SHARP, slow(SMALL)])
def test_bytes_are_those_of_the_interpreter(name: str, config: Config) -> None:
    """Of every run; what is picked is what ONNX Runtime computes."""
    compiled = compile_network(name, config, effort=0)
    graph, words = compiled.graph, 30 if name == SHARP else 512
    assert compiled.source is not None
    state = graph.initial_state()
    samples = steps(9, words)
    for count, sample in enumerate(samples):
        values = reference.evaluate(graph, state | graph.bind(sample))
        state = graph.next_state(values)
        result = compiled.run(sample)
        assert np.array_equal(result.outputs["logits"].ravel(), values[graph.outputs[0].tensor].ravel())
        if count in (0, 8):
            theirs = reference_runtimes.run(graph, compiled.source, sample, samples[:count]).tensors
            for node in picks_of(compiled.code).values():
                (row,) = node.outputs
                assert np.array_equal(result.tensors[row].ravel(), np.ravel(theirs[row])), row


def test_cycles() -> None:
    """Loads of rows take what loads of the host's rows took; a norm is spared."""
    config = Config(sram="512 KiB", bus=64, softmax=1, norm=1)
    before, after = (
        compile_network("zoo:decoder_tiny?depth=1&length=64", config.replace(parameters=count), effort=0)
        for count in (1, 3)
    )
    assert (before.report().cycles, after.report().cycles) == (12_244, 11_816)
    assert len(before.code.host_reasons) == 5 and not after.code.host_reasons
    assert after.report().host_work.cycles == before.report().host_work.starts * 5040 + 4191


def test_too_few_parameters() -> None:
    """Those that save the host most come first; `inspect` says what is missing."""
    position, token = {"cosine", "sine", "behind", "mask_quantize"}, {"embedding"}
    for count, left in ((0, position | token), (1, position | token), (2, token), (3, set[str]())):
        reasons = partition(load(SHARP), WHOLE.replace(parameters=count), Options()).reasons
        text = f"must have more than {count} parameters" if count else "has parameters = 0"
        picks = {name: reason for name, reason in reasons.items() if not name.startswith(("past", "present"))}
        assert picks == dict.fromkeys(picks, f"the configuration {text}") and set(picks) == left


def test_a_row_outside_is_refused_before_the_run() -> None:
    compiled = compile_network(SMALL, WHOLE, effort=0)
    before = {name: value.copy() for name, value in compiled.state.items()}
    for tokens, position, message in (
        (512, 0, r"^tokens must be 0\.\.511, not 512$"),
        (-1, 0, r"^tokens must be 0\.\.511, not -1$"),
        (5, 24, r"^position must be 0\.\.23, not 24$"),
    ):
        with pytest.raises(NetworkError, match=message):
            compiled.run({"tokens": np.array([[tokens]]), "position": np.array([position])})
        assert all(np.array_equal(compiled.state[name], value) for name, value in before.items())


def test_reach() -> None:
    """No value that is allowed reads behind the tables, one more would."""
    compiled = compile_network(SHARP, WHOLE, effort=0)
    code = compiled.code
    (segment,) = code.segments
    stored = [range(code.where[name], code.where[name] + code.graph.tensors[name].bytes) for name in code.where]
    assert not list(faults_of(WHOLE, segment.words, code.parameters, stored, code.memory_bytes))
    for records in records_of(code.graph.nodes):
        end = min(code.where[pick.outputs[0]] for pick in records.picks) + records.bytes
        inputs = [one for one in code.parameters.inputs if one.name == records.input]
        assert [one.high for one in inputs] == [records.count - 1]
        loads = [text for text in faults_of(WHOLE, segment.words, code.parameters, stored, end) if "reaches" in text]
        more = replace(inputs[0], high=records.count)
        further = replace(
            code.parameters, inputs=tuple(more if one in inputs else one for one in code.parameters.inputs)
        )
        assert len(list(faults_of(WHOLE, segment.words, further, stored, end))) > len(loads)
    assert bound_of(WHOLE, segment.words, code.parameters) >= compiled.report().cycles


def test_in_a_program_file(tmp_path: Path) -> None:
    compiled = compile_network(SHARP, WHOLE, effort=0)
    compiled.save(tmp_path / "a.dvt")
    assert Program.load(tmp_path / "a.dvt").parameters == compiled.code.parameters
    again = load_program(tmp_path / "a.dvt")
    for sample in steps(3, 30):
        one, other = (network.run(sample) for network in (compiled, again))
        assert one.outputs["logits"].tobytes() == other.outputs["logits"].tobytes()
        assert one.cycles == other.cycles


VALUES = np.random.default_rng(5).integers(-128, 128, (9, 8)).astype(np.int8)


def picking(
    *, rows: int = 9, indices: int = 1, output: bool = False, dtype: int = TensorProto.INT64, start: int = 0
) -> bytes:
    """A row of ``VALUES`` that ``token`` picks, through a Dense layer; ``output``: the row leaves the network, too."""
    scale, zero = numpy_helper.from_array(np.float32(0.5), "s"), numpy_helper.from_array(np.int8(0), "z")
    weights = np.random.default_rng(6).integers(-128, 128, (8, 8)).astype(np.int8)
    nodes = [
        helper.make_node("Gather", ["table", "token"], ["row"], "pick"),
        helper.make_node("DequantizeLinear", ["row", "s", "z"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["wf"]),
        helper.make_node("MatMul", ["real", "wf"], ["product"], "dense"),
        helper.make_node("QuantizeLinear", ["product", "t", "z"], ["y"]),
    ]
    constants = [scale, zero, numpy_helper.from_array(np.float32(100), "t")]
    constants += [numpy_helper.from_array(VALUES[:rows], "table"), numpy_helper.from_array(weights, "w")]
    inputs = [helper.make_tensor_value_info("token", dtype, [indices])]
    names = ["y", "row"] if output else ["y"]
    outputs = [helper.make_tensor_value_info(name, TensorProto.INT8, [indices, 8]) for name in names]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def compiled_of(data: bytes, config: Config = WHOLE) -> CompiledNetwork:
    return compile_network(load(NetworkFile("net", data)), config, effort=0)


@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.INT64])
def test_one_row(dtype: int) -> None:
    """Every row that there is, for one word of the program more."""
    one, other = (compiled_of(picking(dtype=dtype), WHOLE.replace(parameters=count)) for count in (0, 1))
    assert set(one.code.host_reasons) == {"pick"} and not other.code.host_reasons
    assert (one.report().cycles, other.report().cycles) == (405, 406)
    for token in range(9):
        sample = {"token": np.array([token], one.graph.inputs[0].dtype)}
        results = [network.run(sample).outputs["y"] for network in (one, other)]
        assert np.array_equal(results[0], results[1]) and results[0].any()


def test_what_the_host_does_still() -> None:
    """Several rows at once, and a row that leaves the network, too."""
    for data in (picking(indices=2), picking(output=True)):
        assert set(compiled_of(data).code.host_reasons) == {"pick"}


def test_a_system_has_no_parameters_of_its_runs() -> None:
    """Its host picks the rows."""
    network = plan_network(load(NetworkFile("net", picking())), system_of(WHOLE, WHOLE))
    sample = {"token": np.array([7])}
    assert np.array_equal(network.run([sample]).outputs[0]["y"], compiled_of(picking()).run(sample).outputs["y"])
