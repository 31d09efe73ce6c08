"""`dovetail inspect`: where every node of a file runs, by which rule, and the exit code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.flows.cli import main
from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.preflight import FREE, destinations, inspect
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.segments import ACCELERATOR, HOST, broken_rule, host_reasons
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.parsed_file import FileNode
from dovetail.sw.host.kernels import Dequantize, Quantize
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Layout
from dovetail.sw.zoo import catalogue

TFLITE = Path(__file__).parents[4] / "shared/models/mlperf_tiny/kws_dscnn/kws_int8.tflite"
CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB")


def outcome(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, dict[str, Any]]:
    code = main(["inspect", *map(str, argv), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_all_on_the_accelerator(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = outcome(capsys, "zoo:mobilenet_v2_block", "--pe", "16")
    assert code == 0
    assert (data["complete"], data["segments"], data["host_steps"], data["round_trips"]) == (True, 1, 0, 0)
    assert data["macs"] == data["accelerator_macs"] == 12 * 12 * (16 * 96 + 9 * 96 + 96 * 16)
    nodes = {node["name"]: node for node in data["nodes"]}
    assert list(nodes) == ["expand", "depthwise", "project", "residual"]
    depthwise = nodes["depthwise"]
    assert depthwise["instructions"] == ["DEPTH_CONV"]
    assert depthwise["weight_bytes"] == 9 * 96 + 4 * 96
    assert depthwise["activation_bytes"] == 2 * 12 * 12 * 96
    assert "Conv depthwise" in depthwise["file_nodes"]
    assert any(text.startswith("Clip ") for text in depthwise["file_nodes"])


def test_what_the_host_runs_is_named_with_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = outcome(capsys, "zoo:attention_block")
    assert (code, data["segments"], data["host_steps"], data["round_trips"]) == (1, 2, 1, 1)
    hosted = [node for node in data["nodes"] if node["place"] == HOST]
    (softmax,) = hosted
    assert (softmax["name"], softmax["kind"]) == ("softmax", "qlinearsoftmax")
    assert softmax["rule"].startswith("Pooling, element-wise operations, activations, softmax and norms need")
    assert softmax["reason"] == "the configuration has softmax = 0"
    assert data["accelerator_share"] == 1.0


def test_shapes_of_a_quantised_network_are_those_of_an_input() -> None:
    with pytest.raises(NetworkError, match="shape of 'image': must be of an input"):
        inspect("zoo:mobilenet_v2_block", CONFIG, Options(), {"image": (1, 32, 32, 3)})


def test_the_rule_is_the_broken_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = outcome(capsys, "zoo:mobilenet_v2_block", "--depthwise", "none")
    nodes = {node["name"]: node for node in data["nodes"]}
    assert code == 1
    assert nodes["depthwise"]["reason"] == 'the configuration has depthwise = "none"'
    assert nodes["depthwise"]["rule"].startswith('Depthwise convolutions need depthwise = "emulated" or "native"')
    assert data["accelerator_share"] == pytest.approx(1 - 9 / (16 + 9 + 16))


def test_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "zoo:attention_block"]) == 1
    out = capsys.readouterr().out
    assert "host         softmax: the configuration has softmax = 0\n" in out
    assert "verdict      1 of 13 nodes run on the host\n" in out
    assert main(["inspect", "zoo:autoencoder"]) == 0
    assert "verdict      everything runs on the accelerator\n" in capsys.readouterr().out


@pytest.mark.skipif(not TFLITE.is_file(), reason="the trained networks are not beside the project")
def test_a_tflite_file() -> None:
    found = inspect(TFLITE, CONFIG, Options())
    assert [node.name for node in found.nodes if node.place == HOST] == ["12_SOFTMAX"]
    assert [node.name for node in found.nodes if node.place == FREE] == ["10_RESHAPE"]
    assert all(f"{node.name.partition('_')[2]} {node.name}" in node.file_nodes for node in found.nodes)
    assert found.gone == ()


def float_network(path: Path) -> Path:
    """Conv, Relu, a Softmax over the channels."""
    weights = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"], name="relu"),
            helper.make_node("Softmax", ["b"], ["y"], name="soft", axis=1),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8, 6, 6])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save_model(model, path)
    return path


def test_a_float_network_says_what_could_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = float_network(tmp_path / "net.onnx")
    code, data = outcome(capsys, path)
    assert (code, data["float"], data["complete"]) == (1, True, False)
    assert data["quantise"] == f"dovetail quantise {path} --calibration X.npz --output Q.onnx"
    nodes = {node["name"]: node for node in data["nodes"]}
    assert nodes["conv"]["place"] == ACCELERATOR
    assert {"Conv conv", "Relu relu"} <= set(nodes["conv"]["file_nodes"])
    assert nodes["soft"]["place"] == HOST
    assert data["macs"] == data["accelerator_macs"] == 36 * 9 * 4 * 8


@pytest.mark.skipif(not TFLITE.is_file(), reason="the trained networks are not beside the project")
def test_a_float_tflite_network_keeps_the_names_of_its_operators() -> None:
    found = inspect(TFLITE.parents[1] / "ic_resnet8/resnet8_float.tflite", CONFIG, Options(effort=0))
    held = [node.file_nodes for node in found.nodes if node.macs]
    assert held[0] == ("CONV_2D 00_CONV_2D",)
    assert "FULLY_CONNECTED 14_FULLY_CONNECTED" in held[-1]
    assert (found.is_float, found.share) == (True, 1.0)


def test_host_nodes_of_any_shape_are_no_concern_of_the_rules() -> None:
    tensors = {name: ir.Tensor(name, (16, 4, 2, 2), dtype="float32") for name in "xy"}
    node = ir.Host(name="n", inputs=("x",), outputs=("y",), label="softmax", payload=None)
    port = ir.Port("x", "x", "float32", None, 0, Layout.plain((16, 4, 2, 2)))
    graph = ir.Graph((port,), (), tensors, (node,), "onnx").check()
    assert broken_rule(CONFIG, Options(), graph, node) is None
    assert host_reasons(CONFIG, Options(), graph) == {"n": "softmax is not an accelerator operation"}


def test_conversions_of_float_ends_say_how_to_do_without() -> None:
    tensors = {name: ir.Tensor(name, (1, 4), dtype="int8" if name in "bd" else "float32") for name in "abcde"}
    payloads = {"quantize": Quantize(np.float32(1), 0, True), "dequantize": Dequantize(np.float32(1), 0)}
    nodes = tuple(
        ir.Host(name=read + made, inputs=(read,), outputs=(made,), label=label, payload=payloads[label])
        for read, made, label in zip("abcd", "bcde", 2 * [*payloads], strict=True)
    )
    first, last = (ir.Port(name, name, "float32", None, 0, Layout.plain((1, 4))) for name in "ae")
    hint = "; inputs and outputs that are integers need none (`dovetail quantise --integer-ends`)"
    assert host_reasons(CONFIG, Options(), ir.Graph((first,), (last,), tensors, nodes, "onnx").check()) == {
        "ab": f"quantize is not an accelerator operation{hint}",
        "bc": "dequantize is not an accelerator operation",
        "cd": "quantize is not an accelerator operation",
        "de": f"dequantize is not an accelerator operation{hint}",
    }


def test_errors_are_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "net.onnx"
    broken.write_bytes(catalogue.model_bytes("autoencoder")[:2000])
    code, data = outcome(capsys, broken)
    assert code == 2
    assert "must be a complete TFLite or ONNX file" in data["error"]
    with pytest.raises(NetworkError, match="must be a readable file"):
        inspect("nowhere.onnx", CONFIG, Options())


def test_where_a_file_s_nodes_go() -> None:
    file = [
        FileNode("dq", "DequantizeLinear", ("x",), ("a",)),
        FileNode("conv", "Conv", ("a",), ("b",)),
        FileNode("relu", "Relu", ("b",), ("c",)),
        FileNode("q", "QuantizeLinear", ("c",), ("d",)),
        FileNode("view", "Reshape", ("d",), ("y",)),
        FileNode("unused", "Shape", ("z",), ("s",)),
    ]
    made = [FileNode("conv", "conv", ("x",), ("d",))]
    assert destinations(file, made) == dict.fromkeys(("dq", "conv", "relu", "q", "view"), "conv")
    made = [FileNode("one", "conv", ("x",), ("b/nchw",)), FileNode("two", "relu", ("b/nchw",), ("c",))]
    places = {"dq": "one", "conv": "one", "relu": "two", "q": "two", "view": "two"}
    assert destinations(file, made) == places
