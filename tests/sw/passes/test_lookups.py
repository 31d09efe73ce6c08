"""Constants that a run picks from: integers, and normalised, before they are picked; the same bytes at every output."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network import ir
from dovetail.sw.passes.integer import lookups
from dovetail.sw.passes.integer.simplify import simplify

ROWS, WIDTH, PICKED = 11, 8, 3
CONFIG = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB")


def picking(dtype: Any = np.int8, norm: str = "LayerNormalization") -> onnx.ModelProto:
    """A table's rows picked by `x`, quantised twice, and behind a norm; a mask of constants; a row that a run gives."""
    rng = np.random.default_rng(8)
    node, nodes, outputs = helper.make_node, list[onnx.NodeProto](), list[onnx.ValueInfoProto]()
    zero = 3 if dtype == np.int8 else 131
    constants: dict[str, Any] = {
        "table": rng.normal(0, 2, (ROWS, WIDTH)).astype(np.float32),
        "gain": rng.normal(1, 0.3, WIDTH).astype(np.float32),
        "five": np.array(5),
        "shown": np.float32(0),
        "hidden": np.float32(-9.7),
        "zero": np.array(zero, dtype),
    }

    def quantised(source: str, scale: float, shape: list[int]) -> None:
        name = f"{source}_{len(outputs)}"
        constants[f"{name}_scale"] = np.float32(scale)
        nodes.append(node("QuantizeLinear", [source, f"{name}_scale", "zero"], [f"{name}_levels"], f"{name}_q"))
        nodes.append(node("DequantizeLinear", [f"{name}_levels", f"{name}_scale", "zero"], [f"{name}_out"]))
        outputs.append(helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, shape))

    nodes.append(node("Gather", ["table", "x"], ["rows"], "pick"))
    nodes.append(node(norm, ["rows", "gain"], ["normed"], "norm", axis=-1))
    nodes.append(node("Greater", ["x", "five"], ["behind"], "behind"))
    nodes.append(node("Where", ["behind", "hidden", "shown"], ["mask"], "mask"))
    nodes.append(node("Gather", ["y", "x"], ["given_rows"], "given"))
    whole = [1, PICKED, WIDTH]
    for source, scale, shape in (
        ("rows", 0.03, whole),
        ("rows", 0.004, whole),
        ("normed", 0.02, whole),
        ("mask", 0.1, whole[:2]),
        ("given_rows", 0.03, whole),
    ):
        quantised(source, scale, shape)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.INT64, [1, PICKED]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, WIDTH]),
    ]
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "picking", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@pytest.fixture
def graph(tmp_path: Path) -> ir.Graph:
    """Of the file, before all passes."""
    onnx.save(picking(), tmp_path / "picking.onnx")
    return frontend.parse(frontend.read(tmp_path / "picking.onnx")).graph


def hosted(graph: ir.Graph) -> Counter[str]:
    """Operators of the host."""
    return Counter(node.label for node in graph.nodes if isinstance(node, ir.Host))


@pytest.mark.parametrize("norm", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_every_output_keeps_its_bytes(dtype: Any, norm: str, tmp_path: Path) -> None:
    """Two quantisations of one table, and its norm, in one host step, where tables have names of their own. What a run
    gives is quantised behind the pick."""
    path = tmp_path / "picking.onnx"
    onnx.save(picking(dtype, norm), path)
    session = open_session(path.read_bytes())
    network = dovetail.compile(path, CONFIG)
    found = hosted(network.graph)
    assert (found["gather"], found["where"], found["quantize"]) == (4, 1, 1)
    assert found[norm.lower()] == 0
    rng = np.random.default_rng(9)
    for _ in range(5):
        sample: dict[str, Any] = {
            "x": rng.integers(0, ROWS, (1, PICKED)),
            "y": rng.normal(size=(ROWS, WIDTH)).astype(np.float32),
        }
        result = network.run(sample).outputs
        for port, expected in zip(session.get_outputs(), session.run(None, sample), strict=True):
            np.testing.assert_array_equal(result[port.name], expected, port.name)


def test_tables_of_norms_have_a_limit(graph: ir.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger one is normalised behind the pick; quantising takes no more memory than the table had."""
    for most, norms in ((ROWS * WIDTH, 0), (ROWS * WIDTH - 1, 1)):
        monkeypatch.setattr(lookups, "MAX_ELEMENTS", most)
        found = hosted(simplify(graph))
        assert (found["layernormalization"], found["quantize"]) == (norms, 1 + norms)


def test_rows_that_fill_no_whole_run(graph: ir.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """11 rows, three at a time; parts of a table that are no whole rows."""
    expected = simplify(graph)
    monkeypatch.setattr(lookups, "_PART", 7)
    pairs = list(zip(simplify(graph).nodes, expected.nodes, strict=True))
    for one, other in pairs:
        if isinstance(one, ir.Host) and isinstance(other, ir.Host):
            assert one.payload == other.payload
