"""Networks with the operations: whole on the accelerator, and equal to ONNX Runtime."""

import csv
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.isa.instructions.table import INSTRUCTIONS
from dovetail.sw.analysis.preflight import inspect
from dovetail.sw.compiler.options import Options
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir
from dovetail.sw.passes.float.normalise import normalise
from dovetail.sw.quantise.float_network import FloatGraph
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.quantise.samples import RandomSamples

EXTENSION = ("own_instruction",)
WITH = dovetail.Config(sram="64 KiB", extensions=EXTENSION)
WITHOUT = dovetail.Config(sram="64 KiB")


def faces() -> onnx.ModelProto:
    """A float network of the kind that finds faces: convolutions, each with a slope per channel."""
    random = np.random.default_rng(0)
    constants = {
        "w1": random.normal(0, 0.4, (16, 3, 3, 3)),
        "s1": random.uniform(0.05, 0.4, (16, 1, 1)),
        "w2": random.normal(0, 0.1, (32, 16, 3, 3)),
        "s2": random.uniform(-0.1, 0.4, (32, 1, 1)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], "conv1", pads=[1] * 4, strides=[2, 2]),
        helper.make_node("PRelu", ["c1", "s1"], ["p1"], "prelu1"),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], "conv2", pads=[1] * 4),
        helper.make_node("PRelu", ["c2", "s2"], ["p2"], "prelu2"),
        helper.make_node("GlobalAveragePool", ["p2"], ["y"], "pool"),
    ]
    graph = helper.make_graph(
        nodes,
        "faces",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 1, 1])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network with int8 activations, quantised by Dovetail."""
    model = normalise(faces())
    path = tmp_path_factory.mktemp("networks") / "faces.onnx"
    onnx.save(quantise(model, RandomSamples(FloatGraph(model).inputs, 4, 0)), path)
    return path


def test_prelu_is_one_instruction(quantised: Path) -> None:
    compiled = dovetail.compile(quantised, WITH)
    prelus = [node for node in compiled.graph.nodes if isinstance(node, ir.Elementwise)]
    assert [INSTRUCTIONS[node.instruction].op.name for node in prelus if node.instruction] == ["PRELU"] * 2
    assert not {"prelu1", "prelu2"} & set(compiled.code.host_reasons)
    rules = {node.name: node.rule for node in inspect(quantised, WITH, Options()).nodes}
    assert rules["prelu1"].startswith("Leaky ReLU with a slope of its own for each element")


def test_outputs_are_onnx_runtimes(quantised: Path) -> None:
    compiled = dovetail.compile(quantised, WITH)
    session = open_session(quantised.read_bytes())
    random = np.random.default_rng(1)
    for _ in range(5):
        x = random.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        assert np.array_equal(compiled.run(x).outputs["y"], wanted)


def test_an_accelerator_without_it(quantised: Path) -> None:
    """PRelu goes to the host, and the outputs are the same."""
    own, plain = dovetail.compile(quantised, WITH), dovetail.compile(quantised, WITHOUT)
    assert plain.code.host_reasons["prelu1"] == "the configuration has no PRELU (extension own_instruction)"
    x = np.ones((1, 3, 16, 16), np.float32)
    first, second = own.run(x), plain.run(x)
    assert np.array_equal(first.outputs["y"], second.outputs["y"])
    assert first.cycles == 8323


def test_a_network_reaches_other_processes(quantised: Path) -> None:
    """As in a sweep: who unpickles an operation loads its extension."""
    graph = pickle.dumps(dovetail.compile(quantised, WITH).graph)
    script = "import pickle, sys; print([node.op for node in pickle.load(sys.stdin.buffer).nodes])"
    found = subprocess.run([sys.executable, "-c", script], input=graph, capture_output=True, check=True)
    assert found.stdout.count(b"'prelu'") == 2


def test_a_sweep_says_what_it_buys(quantised: Path, tmp_path: Path) -> None:
    """In a process of its own, in which nobody has loaded the operations."""
    script = "import sys; from dovetail.flows.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["--extensions", "none,own_instruction", "--lanes", "8x8", "--sram", "64KiB", "--output"]
    command = [sys.executable, "-c", script, "sweep", quantised, *options, tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "results.csv").open() as file:
        found = {row["extensions"]: (int(row["cycles"]), int(row["host_nodes"])) for row in csv.DictReader(file)}
    assert found == {"none": (8583, 4), "own_instruction": (8517, 2)}


@pytest.mark.slow
def test_rtl(quantised: Path) -> None:
    """Bytes and cycles of the RTL."""
    (verdict,) = dovetail.verify(dovetail.compile(quantised, WITH), [np.ones((1, 3, 16, 16), np.float32)])
    assert verdict.equal, str(verdict)


@pytest.mark.parametrize("operator", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("kind", [TensorProto.INT8, TensorProto.UINT8])
def test_bits(operator: str, kind: int, tmp_path: Path) -> None:
    """On the accelerator for int8; bytes of uint8 files are others inside, so these go to the host."""
    zero = numpy_helper.from_array(np.asarray(0, helper.tensor_dtype_to_np_dtype(kind)), "zero")
    scale = numpy_helper.from_array(np.float32(0.5), "scale")
    nodes = [
        helper.make_node(operator, ["a", "b"], ["c"], "bits"),
        helper.make_node("DequantizeLinear", ["c", "scale", "zero"], ["y"], "real"),
    ]
    inputs = [helper.make_tensor_value_info(name, kind, [1, 40]) for name in "ab"]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40])]
    graph = helper.make_graph(nodes, operator, inputs, outputs, [zero, scale])
    path = tmp_path / f"{operator}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    compiled = dovetail.compile(path, WITH)
    reasons = [reason for reason in compiled.code.host_reasons.values() if "BIT" in reason]
    assert len(reasons) == (kind == TensorProto.UINT8)
    random = np.random.default_rng(2)
    given = {name: random.integers(0, 256, (1, 40)).astype(np.uint8).view(zero_type(kind)) for name in "ab"}
    (wanted,) = open_session(path.read_bytes()).run(None, given)
    assert np.array_equal(compiled.run(given).outputs["y"], wanted)


def zero_type(kind: int) -> np.dtype[np.generic]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))
