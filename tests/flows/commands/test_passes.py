"""`dovetail passes`: the list, what each pass did, some of them alone, and the networks between them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.flows.cli import main
from dovetail.sw import frontend
from dovetail.sw.passes.float import normalise
from dovetail.sw.passes.integer.simplify import PASSES, simplify
from dovetail.sw.passes.trace import START, name_of, trace

SHUFFLE = "zoo:shuffle_block"


def outcome(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """MatMul and Add in float, which are a Gemm."""
    weights = {"w": np.eye(4, 3, dtype=np.float32), "b": np.ones(3, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
            helper.make_node("Add", ["a", "b"], ["y"], name="sum"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3))],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "dense.onnx")
    return tmp_path / "dense.onnx"


def test_every_pass_is_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = outcome(capsys, "passes")
    names = [(named["name"], named["kind"]) for named in data["passes"]]
    assert code == 0 and len(set(names)) == len(names)
    assert set(names) == {(name_of(run), "quantised") for run in PASSES} | {
        (name_of(run), "float") for run in normalise.PASSES
    }
    assert all(len(named["does"].split()) > 4 for named in data["passes"])


def test_what_each_pass_did(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = outcome(capsys, "passes", SHUFFLE)
    found = [(p["name"], p["before"], p["after"]) for p in data["passes"] if p["found"]]
    assert code == 0 and found == [("permute-weights", 9, 9), ("drop-dead", 9, 8)]
    permuted, dropped = (p for p in data["passes"] if p["found"])
    assert (permuted["changed"], permuted["removed"]) == (["next"], [])
    assert dropped["removed"] == ["concat_out/transpose"]
    assert (data["nodes_before"], data["nodes_after"]) == (9, 8)
    assert main(["passes", SHUFFLE]) == 0
    assert "zoo:shuffle_block: 9 nodes, 8 after 26 runs of passes" in capsys.readouterr().out


def test_all_steps_together_are_what_the_compiler_does() -> None:
    source = frontend.parse(frontend.read("zoo:inception_block"))
    *_, last = trace(source)
    assert last.text == str(simplify(source.graph))


def test_float_networks_have_passes_of_their_own(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    code, data = outcome(capsys, "passes", dense)
    (joined,) = (p for p in data["passes"] if p["name"] == "unify-dense" and p["found"])
    assert code == 0 and (joined["before"], joined["after"]) == (2, 1)
    *_, last = trace(frontend.parse(frontend.read(dense)))
    wanted = normalise.normalise(onnx.load(dense)).graph.node
    assert [node.op_type for node in wanted] == ["Gemm"] and " = Gemm(x, " in last.text


def test_only_and_until(capsys: pytest.CaptureFixture[str], dense: Path) -> None:
    _, data = outcome(capsys, "passes", SHUFFLE, "--only", "drop-dead,permute-weights")
    assert {p["name"] for p in data["passes"]} == {"drop-dead", "permute-weights"}
    assert data["nodes_after"] == 8
    _, data = outcome(capsys, "passes", SHUFFLE, "--only", "drop-dead")
    assert data["nodes_after"] == 9
    _, data = outcome(capsys, "passes", SHUFFLE, "--until", "permute-weights")
    assert [p["name"] for p in data["passes"]][-2:] == ["sink-transposes", "permute-weights"]
    _, data = outcome(capsys, "passes", dense, "--only", "tidy")
    assert data["nodes_after"] == 2


def test_networks_between_the_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    assert main(["passes", SHUFFLE, "--dump", str(folder)]) == 0
    assert f"{START} and 2 more" in capsys.readouterr().out
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["00-start.txt", "01-permute-weights.txt", "02-drop-dead.txt"]
    first, *_, last = ((folder / name).read_text(encoding="utf-8") for name in names)
    assert "concat_out/transpose" in first and "concat_out/transpose" not in last
    assert last == f"{frontend.load(SHUFFLE)}\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((SHUFFLE, "--only", "tidy"), "pass of a quantised network must be one of drop-dead, .*, not 'tidy'"),
        ((SHUFFLE, "--until", "no"), "pass of a quantised network must be one of drop-dead, .*, not 'no'"),
        ((SHUFFLE, "--only", "drop-dead", "--until", "drop-dead"), "--until: not allowed with argument --only"),
        (("--only", "drop-dead"), "--only must come with a network"),
        (("missing.onnx",), "missing.onnx: must be a readable file"),
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], error: str) -> None:
    assert main(["passes", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(error, line)
