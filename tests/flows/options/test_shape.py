"""`--shape`: quantised networks whose input has open axes, on every command that takes a network file."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from dovetail.flows.cli import main
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.zoo import catalogue

SIZES = "1x16x12x12"


@pytest.fixture
def network(tmp_path: Path) -> Path:
    model = onnx.load_model_from_string(catalogue.model_bytes("mobilenet_v2_block"))
    for axis, name in ((0, "N"), (2, "H"), (3, "W")):
        dim = model.graph.input[0].type.tensor_type.shape.dim[axis]
        dim.Clear()
        dim.dim_param = name
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    return path


def outcome(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> Any:
    code = main([*map(str, argv), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "command", [["inspect"], ["compile"], ["run"], ["diff"], ["sweep", "--pe", "16", "--jobs", "1"]], ids=lambda c: c[0]
)
def test_commands_take_sizes(capsys: pytest.CaptureFixture[str], network: Path, command: list[str]) -> None:
    name = onnx.load(network).graph.input[0].name
    assert outcome(capsys, *command, network, "--shape", f"{name}={SIZES}")[0] == 0
    assert main([*command, str(network)]) != 0
    assert f"axis 2 must have a fixed size, not H; give one: --shape {name}=1x16x224x224" in capsys.readouterr().err


def test_an_open_batch_is_one_by_itself(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = onnx.load_model_from_string(catalogue.model_bytes("mobilenet_v2_block"))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(model, tmp_path / "net.onnx")
    code, data = outcome(capsys, "diff", tmp_path / "net.onnx")
    assert (code, data["equal"], len(data["layers"])) == (0, True, 4)
    compiled = compile_network(tmp_path / "net.onnx")
    assert compiled.source is not None
    carried = onnx.load_model_from_string(compiled.source.data)
    assert carried.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


def test_programs_and_packed_networks_carry_the_sizes(
    capsys: pytest.CaptureFixture[str], network: Path, tmp_path: Path
) -> None:
    shape = "--shape", f"{onnx.load(network).graph.input[0].name}={SIZES}"
    program, packed, parts = tmp_path / "net.dvt", tmp_path / "net.dnet", tmp_path / "parts"
    code, compiled = outcome(capsys, "compile", network, *shape, "--output", program)
    assert code == 0
    assert outcome(capsys, "run", program)[1]["cycles"] == compiled["cycles"]
    assert outcome(capsys, "pack", network, *shape, "--output", packed)[0] == 0
    assert outcome(capsys, "compile", packed)[1]["cycles"] == compiled["cycles"]
    assert outcome(capsys, "export", program, "--output", parts, "--check")[1]["differing"] == 0
    assert main(["run", str(program), *shape]) != 0
    assert "a saved program is compiled already; leave out --shape" in capsys.readouterr().err
