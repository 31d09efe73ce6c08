"""Ends of a quantised network as its integers: the same numbers, without the conversions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.sw.frontend import load
from dovetail.sw.host.onnx_session import open_session
from dovetail.sw.network.layout import Array, Sample
from dovetail.sw.quantise.ends import End, integer_ends
from dovetail.sw.quantise.network import quantise_network
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.runtime.compiled_network import compile_network
from tests.sw.quantise.test_quantise import Net, residual, samples_of


def convolutions() -> onnx.ModelProto:
    net = Net(1, 3, 12, 12)
    return net.model(net.conv(net.op("Relu", net.conv("x", 8, 3)), 5, 8))


def results(model: onnx.ModelProto, sample: Sample) -> dict[str, Array]:
    session = open_session(model.SerializeToString())
    names = [wire.name for wire in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(sample)), strict=True))


@pytest.mark.parametrize("scheme", ["", "symmetric-uint8"])
def test_the_same_numbers(tmp_path: Path, scheme: str) -> None:
    model, samples = convolutions(), samples_of(convolutions())
    file = quantise_network(model_file(model, tmp_path), [sample["x"] for sample in samples], scheme)
    whole, integers = onnx.load_from_string(file.data), onnx.load_from_string(file.data)
    x, y = integer_ends(integers)
    onnx.checker.check_model(integers, full_check=True)
    assert [x.name, y.name] == ["x", "y"] and x.dtype == y.dtype == ("uint8" if scheme else "int8")
    for sample in samples:
        info = np.iinfo(x.dtype)
        levels = np.clip(np.rint(sample["x"] / np.float32(x.scale)) + x.zero_point, info.min, info.max).astype(x.dtype)
        found = results(integers, {"x": levels})["y"]
        assert found.dtype == y.dtype
        real = (found.astype(np.int32) - y.zero_point).astype(np.float32) * np.float32(y.scale)
        np.testing.assert_array_equal(real, results(whole, sample)["y"])


def model_file(model: onnx.ModelProto, folder: Path) -> Path:
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def test_in_one_call_nothing_is_left_to_the_host(tmp_path: Path) -> None:
    path = model_file(convolutions(), tmp_path)
    samples = [sample["x"] for sample in samples_of(onnx.load(path))]
    (tmp_path / "q.onnx").write_bytes(quantise_network(path, samples, integer_ends=True).data)
    compiled = compile_network(tmp_path / "q.onnx")
    assert not compiled.code.host_reasons
    assert [port.dtype for port in (*compiled.graph.inputs, *compiled.graph.outputs)] == ["int8", "int8"]


def two_readers() -> onnx.ModelProto:
    """An input that a node in float reads too, and an output that another node reads."""
    scale, zero = numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(3), "z")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["rq"]),
        helper.make_node("DequantizeLinear", ["rq", "s", "z"], ["y"]),
        helper.make_node("Add", ["x", "y"], ["w"]),
    ]
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in "xyw"}
    graph = helper.make_graph(nodes, "two", [ends["x"]], [ends["y"], ends["w"]], [scale, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_what_is_read_as_float_too() -> None:
    model, before = two_readers(), two_readers()
    assert integer_ends(model) == [End("y", "int8", float(np.float32(0.1)), 3)]
    onnx.checker.check_model(model, full_check=True)
    sample = {"x": np.random.default_rng(0).normal(0, 5, (2, 3)).astype(np.float32)}
    found, wanted = results(model, sample), results(before, sample)
    np.testing.assert_array_equal(found["w"], wanted["w"])
    real = (found["y"].astype(np.int32) - 3).astype(np.float32) * np.float32(0.1)
    np.testing.assert_array_equal(real, wanted["y"])


def test_a_softmax_at_the_end_stays_float() -> None:
    model = quantise(residual(), samples_of(residual()))
    assert [end.name for end in integer_ends(model)] == ["x"]


def test_variables_stay(tmp_path: Path) -> None:
    model = quantise(convolutions(), samples_of(convolutions()))
    assert [end.name for end in integer_ends(model, {"x"})] == ["y"]
    onnx.save(model, tmp_path / "q.onnx")
    assert [port.dtype for port in load(tmp_path / "q.onnx").inputs] == ["float32"]
