"""Rows that a run picks by a token or a position: tables behind the program, and loads with a parameter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.parameters import names_parameter
from dovetail.isa.parameters import Formula, RunInput, Term
from dovetail.isa.program import Program
from dovetail.sw.compiler.compile import Code
from dovetail.sw.compiler.emit.reach import bound_of, faults_of
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.picks import sources, with_picks
from dovetail.sw.compiler.partition.tables import ALIGN, records_of
from dovetail.sw.errors import CompileError, NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array, Layout, Sample
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from dovetail.sw.runtime.saved_program import load_program
from dovetail.sw.runtime.system_network import plan_network
from tests.sw.compiler.devices.test_plan import system_of
from tests.sw.zoo.test_decoders import SHARP, SMALL, steps

WHOLE = Config(ic_lanes=4, oc_lanes=4, sram="32 KiB", softmax=1, norm=1, parameters=3)


def picks_of(code: Code) -> dict[str, ir.Pick]:
    return {node.name: node for node in code.graph.nodes if isinstance(node, ir.Pick)}


def in_words(compiled: CompiledNetwork) -> int:
    """CFG words that name a parameter."""
    return sum(
        int(names_parameter(np.array(segment.words, np.uint64)).sum()) for segment in compiled.code.segments
    )


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


@pytest.mark.parametrize("config", [WHOLE, WHOLE.replace(sram="512 KiB", bus=64)], ids=["small", "many banks"])
@pytest.mark.parametrize("name", [SMALL, SHARP])
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
    config = Config(sram="512 KiB", bus=64, softmax=1, norm=1, parameters=1)
    before, after = (
        compile_network("zoo:decoder_tiny?depth=1&length=64", config.replace(parameters=count), effort=0)
        for count in (1, 3)
    )
    assert (before.report().cycles, after.report().cycles) == CYCLES
    assert len(before.code.host_reasons) == 5 and not after.code.host_reasons
    assert after.report().host_work.cycles == before.report().host_work.starts * 4980 + 4063


CYCLES = (0, 0)


def test_too_few_parameters() -> None:
    """Those that save the host most come first; `inspect` says what is missing."""
    for count, left in ((0, 9), (1, 5), (2, 1), (3, 0)):
        code = compile_network(SMALL, WHOLE.replace(parameters=count), effort=0).code
        reasons = {name: text for name, text in code.host_reasons.items() if "parameters" in text}
        assert len(reasons) == left, (count, reasons)
        text = f"the configuration must have more than {count} parameters" if count else "parameters = 0"
        assert all(text in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("tokens", "position", "message"),
    [
        (512, 0, r"^tokens must be 0\.\.511, not 512$"),
        (-1, 0, r"^tokens must be 0\.\.511, not -1$"),
        (5, 24, r"^position must be 0\.\.23, not 24$"),
    ],
)
def test_a_row_outside_is_refused_before_the_run(tokens: int, position: int, message: str) -> None:
    compiled = compile_network(SMALL, WHOLE, effort=0)
    before = {name: value.copy() for name, value in compiled.state.items()}
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
        further = replace(code.parameters, inputs=tuple(more if one in inputs else one for one in code.parameters.inputs))
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
