"""Networks that end in operators which no runtime knows: the part before them, and the rest for the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from flatbuffers import flexbuffers
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.analysis.preflight import inspect
from dovetail.sw.compiler.options import Options
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.parts.folder import export, run_parts
from dovetail.sw.frontend import load, parse, read
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.quantise.float_network import read_float
from dovetail.sw.runtime.compiled_network import compile_network
from dovetail.sw.runtime.reference_runtimes import run as run_reference
from tests.sw.frontend.tflite_writer import Operator, Writer, options
from tests.sw.runtime.stateful_networks import streaming


def _dense(w: Writer, source: int, width: int, units: int, name: str) -> int:
    rng = np.random.default_rng(units)
    weights = w.constant(rng.integers(-127, 128, (units, width)).astype(np.int8), 0.01)
    bias = w.constant(rng.integers(-500, 500, units).astype(np.int32), 0.0005)
    out = w.tensor((1, units), scale=0.05, zero=4, name=name)
    w.op(Operator.FULLY_CONNECTED, [source, weights, bias], [out], options("FullyConnectedOptions"), version=4)
    return out


def detector(name: str = "TFLite_Detection_PostProcess", *, shapes: bool = True) -> bytes:
    """Two dense layers, boxes [1, 8, 4] and scores [1, 8, 3] of them in float, and a custom operator over these.

    ``shapes``: the file has those of the results.
    """
    w = Writer()
    x = w.tensor((1, 6), scale=0.05, name="x")
    reals = []
    for units, shape, label in ((32, (1, 8, 4), "boxes"), (24, (1, 8, 3), "scores")):
        flat, real = _dense(w, x, 6, units, f"{label}/dense"), w.tensor(shape, "float32", None, name=label)
        form, size = w.tensor(shape, scale=0.05, zero=4), w.constant(np.array(shape, np.int32))
        w.op(Operator.RESHAPE, [flat, size], [form], options("ReshapeOptions", newShape=list(shape)))
        w.op(Operator.DEQUANTIZE, [form], [real], version=2)
        reals.append(real)
    rng = np.random.default_rng(0)
    anchors = w.constant(rng.uniform(0.1, 0.9, (8, 4)).astype(np.float32))
    ends = (((1, 5, 4), "found"), ((1, 5), "classes"), ((1, 5), "certainty"), ((1,), "count"))
    outputs = [w.tensor(shape if shapes else (), "float32", None, name=label) for shape, label in ends]
    w.op(name, [*reals, anchors], outputs, custom=_detection())
    w.graph.inputs, w.graph.outputs = [x], outputs
    return w.data()


def _detection() -> bytes:
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, whole in (("max_detections", 5), ("max_classes_per_detection", 1), ("num_classes", 2)):
            builder.Int(key, whole)
        for key, real in (("nms_score_threshold", 0.1), ("nms_iou_threshold", 0.6)):
            builder.Float(key, real)
        for key, real in (("y_scale", 10.0), ("x_scale", 10.0), ("h_scale", 5.0), ("w_scale", 5.0)):
            builder.Float(key, real)
        builder.Bool("use_regular_nms", False)
    return bytes(builder.Finish())


def middle(*, second: bool = False) -> bytes:
    """dense -> custom -> dense -> y; ``second``: an output before it, too."""
    w = Writer()
    x = w.tensor((1, 6), scale=0.05, name="x")
    first = _dense(w, x, 6, 8, "first")
    made = w.tensor((1, 8), scale=0.05, name="made")
    w.op("Secret", [first], [made], custom=b"\x01")
    y = _dense(w, made, 8, 4, "y")
    w.graph.inputs, w.graph.outputs = [x], [y]
    if second:
        w.graph.outputs = [y, _dense(w, x, 6, 5, "early")]
    return w.data()


def values(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(5).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize("shapes", [True, False])
def test_detections_are_the_runtimes(shapes: bool) -> None:
    data = detector(shapes=shapes)
    graph = load(NetworkFile("net", data))
    assert [port.shape for port in graph.outputs] == [(1, 5, 4), (1, 5), (1, 5), (1,)]
    network = compile_network(graph, Config())
    runtime = Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    runtime.allocate_tensors()
    runtime.set_tensor(0, values((1, 6)))
    runtime.invoke()
    ours = network.run(values((1, 6))).outputs
    for detail in runtime.get_output_details():
        assert np.array_equal(ours[detail["name"]], runtime.get_tensor(detail["index"]))
    assert not graph.left
    assert "TFLite_Detection_PostProcess is not an accelerator operation" in network.code.host_reasons.values()


@pytest.mark.parametrize("make", [lambda: detector("Secret"), middle])
def test_an_unknown_operator_ends_the_part(tmp_path: Path, make: Any) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(make())
    network = compile_network(path, Config())
    graph = network.graph
    assert graph.left[0].endswith("_Secret (CUSTOM Secret)")
    assert graph.why_left == "a custom operator that LiteRT does not have, or not for these types"
    assert {port.name for port in graph.outputs} in ({"boxes", "scores"}, {"first"})
    found = network.run(values((1, 6))).outputs
    reference = run_reference(graph, parse(read(path)), {"x": values((1, 6))})
    assert all(np.array_equal(found[port.name], reference.tensors[port.tensor]) for port in graph.outputs)


def test_what_depends_on_no_unknown_operator_is_computed() -> None:
    graph = load(NetworkFile("net", middle(second=True)))
    assert [port.name for port in graph.outputs] == ["early", "first"]
    assert graph.left == ("01_Secret (CUSTOM Secret)", "02_FULLY_CONNECTED (FULLY_CONNECTED)")


def test_the_rest_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(middle())
    network = compile_network(path, Config())
    manifest = export(network, tmp_path / "parts")
    assert manifest["rest"]["operators"] == list(network.graph.left)
    rest = parse_rest(tmp_path / "parts" / "rest.tflite")
    assert rest == (["first"], ["y"], ["CUSTOM Secret", "FULLY_CONNECTED"])
    found = run_parts(tmp_path / "parts", {"x": values((1, 6))})["first"].astype(np.int16)
    assert np.abs(found - network.run(values((1, 6))).outputs["first"]).max() <= 1


def parse_rest(path: Path) -> tuple[list[str], list[str], list[str]]:
    from dovetail.sw.frontend.tflite.file import TfliteFile

    file = TfliteFile(path.read_bytes())
    ends = ([file.infos[index].tensor.name for index in side] for side in (file.inputs, file.outputs))
    return next(ends), next(ends), [op.kind for op in file.operators]


def test_inspect_says_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(middle())
    outcome = inspect(path, Config(), Options())
    assert outcome.left == ("01_Secret (CUSTOM Secret)", "02_FULLY_CONNECTED (FULLY_CONNECTED)")
    assert not outcome.is_complete
    assert [node.name for node in outcome.nodes] == ["00_FULLY_CONNECTED"]


def test_a_network_that_begins_with_an_unknown_operator_is_refused() -> None:
    w = Writer()
    x, y = w.tensor((1, 4), name="x"), w.tensor((1, 4), name="y")
    w.op("Secret", [x], [y])
    w.graph.inputs, w.graph.outputs = [x], [y]
    with pytest.raises(NetworkError, match="00_Secret: a custom operator that LiteRT does not have, or not for these"):
        load(NetworkFile("net", w.data()))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Operator.WHILE, "While"),
        (Operator.IF, "If"),
        (Operator.CALL, "Call"),
        (Operator.STABLEHLO_CASE, "StablehloCase"),
    ],
)
def test_control_flow_at_the_end_is_left(code: int, kind: str) -> None:
    w = Writer()
    x = w.tensor((1, 6), scale=0.05, name="x")
    first, y = _dense(w, x, 6, 8, "first"), w.tensor((1, 8), scale=0.05, name="y")
    w.op(code, [first], [y], None if kind == "StablehloCase" else options(f"{kind}Options"))
    w.graph.inputs, w.graph.outputs = [x], [y]
    graph = load(NetworkFile("net", w.data()))
    assert [port.name for port in graph.outputs] == ["first"]
    assert graph.why_left.startswith("the network must be free of control flow")


def test_a_head_keeps_its_variables() -> None:
    """A streaming network whose result goes into a custom operator."""
    whole = load(NetworkFile("net", streaming()))
    w = Writer()
    w.model = type(w.model).InitFromPackedBuf(bytearray(streaming()), 0)
    w.graph = w.model.subgraphs[0]
    made = w.tensor((1, 4), name="made")
    w.op("Secret", list(w.graph.outputs), [made])
    w.graph.outputs = [made]
    graph = load(NetworkFile("net", w.data()))
    assert [port.name for port in graph.outputs] == ["y"]
    assert np.array_equal(graph.states[0].initial, whole.states[0].initial)


def _onnx(*, quantised: bool) -> bytes:
    """A dense layer, a node of a foreign domain, a sigmoid; float or QDQ."""
    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {"w": rng.standard_normal((6, 4)).astype(np.float32)}
    nodes = []
    weights, source, result = "w", "x", "p"
    if quantised:
        constants = {"w": rng.integers(-127, 128, (6, 4)).astype(np.int8), "zw": np.int8(0), "sw": np.float32(0.01)}
        constants |= {"s": np.float32(0.05), "z": np.int8(3)}
        nodes += [
            helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xr"]),
            helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wr"]),
        ]
        weights, source, result = "wr", "xr", "pf"
    nodes.append(helper.make_node("MatMul", [source, weights], [result]))
    if quantised:
        nodes.append(helper.make_node("QuantizeLinear", ["pf", "s", "z"], ["pq"]))
        nodes.append(helper.make_node("DequantizeLinear", ["pq", "s", "z"], ["p"]))
    nodes.append(helper.make_node("Secret", ["p"], ["u"], name="secret", domain="my.domain"))
    nodes.append(helper.make_node("Sigmoid", ["u"], ["y"], name="last"))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.domain", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def test_an_unknown_operator_in_a_local_function_ends_the_part() -> None:
    model = onnx.load_model_from_string(_onnx(quantised=True))
    *known, secret, last = model.graph.node
    body = [
        helper.make_node("Identity", ["a"], ["b"], name="same"),
        helper.make_node("Secret", ["b"], ["c"], name="secret", domain="my.domain"),
    ]
    opsets = list(model.opset_import)
    model.functions.append(helper.make_function("local", "Both", ["a"], ["c"], body, opsets))
    model.opset_import.append(helper.make_opsetid("local", 1))
    call = helper.make_node("Both", [secret.input[0]], [secret.output[0]], domain="local")
    del model.graph.node[len(known) :]
    model.graph.node.extend([call, last])
    graph = load(NetworkFile("net", model.SerializeToString()))
    assert [left.partition(" ")[2] for left in graph.left] == ["(my.domain.Secret)", "(Sigmoid)"]
    assert len(graph.outputs) == 1


def test_an_onnx_node_of_a_foreign_domain_ends_the_part(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(_onnx(quantised=True))
    network = compile_network(path, Config())
    assert network.graph.left == ("secret (my.domain.Secret)", "last (Sigmoid)")
    assert [port.name for port in network.graph.outputs] == ["p"]
    value = np.random.default_rng(0).standard_normal((1, 6)).astype(np.float32)
    found = network.run(value).outputs["p"]
    reference = run_reference(network.graph, parse(read(path)), {"x": value})
    assert np.array_equal(found.ravel(), reference.tensors[network.graph.outputs[0].tensor].ravel())
    manifest = export(network, tmp_path / "parts")
    rest = onnx.load(tmp_path / "parts" / manifest["rest"]["file"])
    assert [node.name for node in rest.graph.node] == ["secret", "last"]
    assert [value.name for value in rest.graph.input] == ["p"]
    assert [dim.dim_value for dim in rest.graph.input[0].type.tensor_type.shape.dim] == [1, 4]


def test_a_float_network_is_quantised_up_to_the_unknown_node(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(_onnx(quantised=False))
    model = read_float(path)
    assert [node.op_type for node in model.graph.node] == ["MatMul"]
    assert [value.name for value in model.graph.output] == ["p"]
    assert inspect(path, Config(), Options()).left == ("secret (my.domain.Secret)", "last (Sigmoid)")


def test_a_float_tflite_network_too() -> None:
    w = Writer()
    x, first, y = (w.tensor((1, 4), "float32", None, name=name) for name in ("x", "first", "y"))
    weights = w.constant(np.ones((4, 4), np.float32))
    w.op(Operator.FULLY_CONNECTED, [x, weights, -1], [first], options("FullyConnectedOptions"))
    w.op("Secret", [first], [y])
    w.graph.inputs, w.graph.outputs = [x], [y]
    assert [value.name for value in parse(NetworkFile("net", w.data())).as_onnx().graph.output] == ["first"]
