"""The command that quantises: files in and out, the report, exit codes."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dovetail.flows.cli import main
from dovetail.sw.frontend import load
from dovetail.sw.quantise.scheme import ACTIVATIONS, CLIPPING, WEIGHTS
from tests.flows.conftest import Command

PAGE = Path(__file__).resolve().parents[3] / "docs/quantisation.md"


@pytest.fixture
def run(run: Command) -> Command:
    return partial(run, "quantise")


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A float network of two layers, calibration inputs and labels."""
    random = np.random.default_rng(0)
    sizes = {"a": (8, 3, 3, 3), "b": (8,), "c": (8, 4), "d": (4,)}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "a", "b"], ["t"], "first", pads=[1] * 4),
            helper.make_node("Relu", ["t"], ["u"], "relu"),
            helper.make_node("GlobalAveragePool", ["u"], ["v"], "mean"),
            helper.make_node("Flatten", ["v"], ["w"], "flat"),
            helper.make_node("Gemm", ["w", "c", "d"], ["y"], "last"),
        ],
        "two",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ("N", 3, 6, 6))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(random.normal(0, 1, size).astype(np.float32), name) for name, size in sizes.items()],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "net.onnx"
    )
    x = random.normal(0, 1, (5, 3, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, y=np.zeros(5, np.int64))
    return tmp_path / "net.onnx"


def test_integer_ends(run: Command, network: Path) -> None:
    out, x = network.with_name("q.onnx"), network.with_name("x.npz")
    code, text, _ = run(network, "--calibration", x, "--output", out, "--integer-ends")
    assert code == 0 and re.search(r"integers     x: int8, 0\.\d+ \* \(value [+-]\d+\)\n", text)
    graph = load(out)
    assert [port.dtype for port in (*graph.inputs, *graph.outputs)] == ["int8", "int8"]
    code, text, _ = run(network, "--calibration", x, "--output", out, "--integer-ends", "--auto", "sqnr=1dB", "--json")
    assert code == 0 and [end["name"] for end in json.loads(text)["integer_ends"]] == ["x", "y"]


def test_writes_a_network_that_loads(run: Command, network: Path) -> None:
    out = network.with_name("q.onnx")
    x = network.with_name("x.npz")
    code, text, _ = run(network, "--calibration", x, "--labels", x, "--output", out, "--per-layer")
    assert code == 0
    for line in (
        "net.onnx: asymmetric per-channel percentile=99.99",
        "calibration  5 samples",
        "integer      2 of 2 layers, and all other nodes",
        "(one sample is 20.00 points)",
        "compared     5 samples, by ONNX Runtime on the uint8 form",
        "first",
    ):
        assert line in text
    assert [node.op for node in load(out).nodes] == ["quantize", "conv", "mean", "dense", "dequantize"]


def test_help_and_page_have_every_word(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["quantise", "--help"])
    told, page = capsys.readouterr().out, PAGE.read_text(encoding="utf-8")
    text = " ".join(told.split()).replace("- ", "-")  # lines may break behind a hyphen
    words = set(re.findall(r"[\w-]+", text))
    for word in (*ACTIVATIONS, *WEIGHTS, *CLIPPING):
        assert word in words
        assert f"`{word}`" in page or f"`{word}=" in page


def test_json(run: Command, network: Path) -> None:
    code, text, _ = run(network, "--random", "3", "--scheme", "symmetric float-last", "--keep-float", "me*", "--json")
    data = json.loads(text)
    assert code == 0
    assert data["scheme"] == "symmetric per-channel percentile=99.99 float-last 'float=me*'"
    assert data["calibration"] == {"samples": 3, "random": True}
    assert (data["integer_layers"], data["layers"], len(data["float_nodes"])) == (1, 2, 3)
    assert data["quality"]["sqnr"]["y"] > 20


def test_random_calibration_says_so(run: Command, network: Path) -> None:
    assert "random, seed 0: no data, so ranges and figures say little" in run(network, "--random", "2")[1]


def test_auto_that_succeeds_writes(run: Command, network: Path) -> None:
    out = network.with_name("q.onnx")
    code, text, _ = run(
        network, "--calibration", network.with_name("x.npz"), "--auto", "sqnr=10dB", "--output", out, "--json"
    )
    data = json.loads(text)
    assert (code, data["met"], len(data["tried"])) == (0, True, 1)
    assert data["scheme"] == "power-of-two per-tensor minmax"
    assert out.exists()


def test_auto_that_fails_writes_only_on_wish(run: Command, network: Path) -> None:
    out = network.with_name("q.onnx")
    command = (network, "--random", "2", "--auto", "sqnr=300dB", "--output", out)
    code, text, told = run(*command)
    assert code == 1
    assert told.startswith("power-of-two per-tensor minmax: ")
    assert "No scheme gives at least 300 dB; the best is '" in text
    assert f"Nothing is written to {out}" in text.replace("\n", "")
    assert not out.exists()
    assert run(*command, "--write-best")[0] == 1
    assert out.exists()


def test_open_shapes_are_fixed_by_a_flag(run: Command, network: Path) -> None:
    model = onnx.load(network)
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    onnx.save(model, network)
    assert run(network, "--random", "1")[0] == 2
    assert run(network, "--random", "1", "--shape", "x=1x3x6x6")[0] == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--calibration", "nowhere.npz"], "nowhere.npz: No such file or directory"),
        (["--random", "0"], "random samples must be at least 1, not 0"),
        (["--random", "1", "--keep-float", "frist"], "float=frist must name a node, such as first"),
        (["--random", "1", "--output", "/nowhere/q.onnx"], "/nowhere/q.onnx: must be in a folder that exists"),
        (["--random", "1", "--auto", "sqnr=9dB", "--scheme", "kl"], "--auto must choose the scheme itself"),
        (["--random", "1", "--write-best"], "--write-best must come with --auto"),
        (["--random", "1", "--integer-ends"], "--integer-ends must come with --output"),
        (["--random", "1", "--auto", "accuracy=1pt"], "goal accuracy must come with labels"),
        (["--random", "1", "--shape", "x:3"], "shape must be INPUT=1x3x8x8, not 'x:3'"),
    ],
)
def test_errors(run: Command, network: Path, argv: list[str], message: str) -> None:
    code, out, err = run(network, *argv)
    assert (code, out) == (2, "")
    assert err.startswith("dovetail: error: ") and err.count("\n") == 1
    assert message in err


def test_files_that_are_no_float_network(run: Command, network: Path) -> None:
    q = network.with_name("q.onnx")
    run(network, "--random", "1", "--output", q)
    assert "must be float, not quantised already" in run(q, "--random", "1")[2]
    q.write_bytes(network.read_bytes()[:200])
    code, _, err = run(q, "--random", "1")
    assert (code, err.count("\n")) == (2, 1)
    assert "q: must be a complete TFLite or ONNX file" in err


def test_what_nothing_here_knows_is_left_as_it_was(run: Command, network: Path) -> None:
    model = onnx.load(network)
    model.graph.node[-1].output[0] = "z"
    model.graph.node.append(helper.make_node("Secret", ["z"], ["y"], "end", domain="my.domain"))
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    onnx.save(model, network)
    out = network.with_name("q.onnx")
    code, text, _ = run(network, "--random", "2", "--output", out)
    assert code == 0
    assert "left to you  end (my.domain.Secret): an operator that ONNX and ONNX Runtime do not have" in text
    assert [port.name for port in load(out).outputs] == ["z"]
    rest = onnx.load(network.with_name("q.rest.onnx"))
    assert ([node.op_type for node in rest.graph.node], rest.graph.input[0].name) == (["Secret"], "z")
