"""Generated C gives the bytes and cycles of the compiled network; its accelerator is the model."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.host_cost import HostCost, default_host
from dovetail.sw.errors import NetworkError
from dovetail.sw.export.codegen.project import project_of
from dovetail.sw.network import ir
from dovetail.sw.passes.float.normalise import normalise
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.quantise.scheme import Scheme
from dovetail.sw.random.networks import RandomNet, random_movement, random_network
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.sw.streams import post_norm, pre_norm, sums_only

Check = Callable[..., Any]
MODELS = Path(__file__).parents[5] / "shared" / "models"
beside = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
SMALL = Config.load("small")
BARE = Config(
    ic_lanes=4, oc_lanes=4, depthwise="none", matmul=False, pooling=False, elementwise=False, activation=False
)
ON_HOST = replace(default_host(), round_trip=10**9)
"""Only the longest segment pays for itself."""


def of_graph(graph: ir.Graph, config: Config, host: HostCost) -> CompiledNetwork:
    return CompiledNetwork(generate(graph, config, Options(host=host, effort=0)))


@pytest.mark.parametrize("seed", range(1, 6))
def test_random_networks_nearly_all_on_the_host(seed: int, check: Check) -> None:
    check(of_graph(random_network(seed, 12), BARE, ON_HOST))


@pytest.mark.parametrize("seed", range(1, 3))
def test_random_movement(seed: int, check: Check) -> None:
    check(of_graph(random_movement(seed), BARE, ON_HOST))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 40))
def test_more_random_networks(seed: int, check: Check) -> None:
    check(of_graph(random_network(seed, 14), BARE, ON_HOST))


def test_several_segments_between_nodes_of_the_host(check: Check) -> None:
    compiled = of_graph(random_network(2, 14), BARE, replace(default_host(), round_trip=0))
    assert len(compiled.code.segments) > 1
    check(compiled, runs=3)


def test_weights_beyond_int8(check: Check) -> None:
    net = RandomNet(0)
    x = net.input(1, 6, 5, 4)
    net.conv(net.conv(net.conv(x, 8), 6, groups=2), 0, multiplier=1)
    for index, node in enumerate(net.nodes):
        assert isinstance(node, ir.Conv | ir.Depthwise)
        rest = net.random.integers(-60, 60, (2, *node.weights.shape)).astype(np.int8)
        net.nodes[index] = replace(node, weights=node.weights // 2, rest=rest)
    compiled = of_graph(net.graph(net.nodes[-1].outputs[0]), BARE, replace(default_host(), round_trip=0))
    assert set(compiled.code.host_reasons) == {node.name for node in net.nodes[1:]}
    check(compiled)


def test_names_that_c_does_not_take(check: Check) -> None:
    names = ["memory", "exp", "*/", "int", "\u00e9\n#error", "x" * 200, "3", "", "status", "a/b", "a.b", "inputs", "/*"]
    graph = random_network(1, 12)
    names += [f"*/ {number}" for number in range(len(graph.nodes) - len(names))]
    nodes = [replace(node, name=name) for node, name in zip(graph.nodes, names, strict=True)]
    ports = [replace(graph.inputs[0], name="class")], [replace(graph.outputs[0], name="*/ class")]
    renamed = ir.Graph(tuple(ports[0]), tuple(ports[1]), graph.tensors, tuple(nodes), "random", name="*/\n#error")
    built = check(of_graph(renamed.check(), BARE, ON_HOST))
    assert "const int8_t *t_class;" in built.project.files["inference.h"].decode()


@pytest.mark.parametrize("name", ["mobilenet_v2_block", "hard_swish_block", "attention_block"])
@pytest.mark.parametrize("config", [SMALL, BARE], ids=["small", "bare"])
def test_blocks(name: str, config: Config, check: Check) -> None:
    check(compile_network(f"zoo:{name}", config, effort=0))


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("bert_tiny?depth=1&tokens=6&channels=16", ()),
        ("cct?depth=1&channels=16&resolution=16", ("movement.c",)),  # of the image, to channels last
    ],
)
def test_a_transformer_without_the_host(name: str, kernels: tuple[str, ...], check: Check) -> None:
    config = replace(SMALL, softmax=1, norm=1)
    built = check(compile_network(f"zoo:{name}", config, effort=0))
    assert (built.project.kernels, built.project.inexact) == (kernels, ())


@pytest.mark.parametrize("norm_bits", [8, 16])
@pytest.mark.parametrize("make", [pre_norm, post_norm, sums_only])
def test_streams_of_16_bits(make: Callable[[], onnx.ModelProto], norm_bits: int, tmp_path: Path, check: Check) -> None:
    """On the host, norms too, and on the accelerator."""
    onnx.save(make(), tmp_path / "streams.onnx")
    check(compile_network(tmp_path / "streams.onnx", replace(SMALL, softmax=1, norm=1, norm_bits=norm_bits), effort=0))


@pytest.mark.parametrize("words", ["", "integer-sums"])
def test_a_quantised_transformer(words: str, tmp_path: Path, check: Check) -> None:
    """Its class token is joined and its sums are computed in float, two of them together with a layer norm."""
    made = runpy.run_path(str(Path(__file__).parents[4] / "benchmarks" / "keyword_transformer.py"))
    model = normalise(made["keyword_transformer"](1, 16, 12, 8, 4))
    onnx.save(quantise(model, made["spectra"](2, 0, 12, 8), Scheme.parse(words)), tmp_path / "net.onnx")
    check(compile_network(tmp_path / "net.onnx", SMALL, effort=0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_tiny", "shuffle_block", "inception_block", "resnet8", "dscnn", "autoencoder"])
@pytest.mark.parametrize("config", [SMALL, BARE], ids=["small", "bare"])
def test_zoo(name: str, config: Config, check: Check) -> None:
    check(compile_network(f"zoo:{name}", config, effort=0))


@beside
@pytest.mark.parametrize("name", ["kws_dscnn/kws_int8.tflite", "ic_resnet8/resnet8_int8_qdq.onnx"])
def test_mlperf_tiny(name: str, check: Check) -> None:
    check(compile_network(MODELS / "mlperf_tiny" / name, SMALL, effort=0))


@beside
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "mlperf_tiny/kws_dscnn/kws_int8_qdq.onnx",
        "mlperf_tiny/ic_resnet8/resnet8_int8.tflite",
        "mlperf_tiny/ad_autoencoder/ad_int8.tflite",
        "mlperf_tiny/ad_autoencoder/ad_int8_qdq.onnx",
        "mlperf_tiny/vww_mobilenet_v1_025/vww_int8.tflite",
        "mlperf_tiny/vww_mobilenet_v1_025/vww_int8_qdq.onnx",
        "imagenet/mobilenet_v1_0.25_128/mobilenet_v1_0.25_128_uint8_qat.tflite",
    ],
)
@pytest.mark.parametrize("config", [SMALL, BARE], ids=["small", "bare"])
def test_more_networks(name: str, config: Config, check: Check) -> None:
    check(compile_network(MODELS / name, config, effort=0))


# --- operators of the file ----------------------------------------------------------------------------------------


def tflite_network(
    code: int, shapes: Sequence[tuple[int, ...]], options: Any, *constants: Any, unsigned: bool = False
) -> bytes:
    """A file of one operator on int8 or uint8: shapes of operand and result, and int32 constants."""
    model, graph, operator, opcode = schema.ModelT(), schema.SubGraphT(), schema.OperatorT(), schema.OperatorCodeT()
    graph.tensors, model.buffers = [], [schema.BufferT()]
    softmax = code == schema.BuiltinOperator.SOFTMAX
    for shape, quant in zip(shapes, ((0.07, 3), (1 / 256, -128) if softmax else (0.07, 3)), strict=True):
        tensor = schema.TensorT()
        tensor.name, tensor.shape = f"t{len(graph.tensors)}", list(shape)
        tensor.type = schema.TensorType.UINT8 if unsigned else schema.TensorType.INT8
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [quant[0]], [quant[1] + 128 * unsigned]
        graph.tensors.append(tensor)
    for value in constants:
        tensor, buffer = schema.TensorT(), schema.BufferT()
        array = np.asarray(value, np.int32)
        buffer.data = np.frombuffer(array.tobytes(), np.uint8)
        model.buffers.append(buffer)
        tensor.name, tensor.shape, tensor.type = f"t{len(graph.tensors)}", list(array.shape), schema.TensorType.INT32
        tensor.buffer = len(model.buffers) - 1
        graph.tensors.append(tensor)
    graph.inputs, graph.outputs, operator.outputs = [0], [1], [1]
    operator.inputs = [0, *range(2, len(graph.tensors))]
    operator.builtinOptions = options
    operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
    opcode.builtinCode, opcode.deprecatedBuiltinCode, opcode.version = code, min(code, 127), 2
    graph.operators = [operator]
    model.version, model.operatorCodes, model.subgraphs = 3, [opcode], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def mirrored() -> Any:
    options = schema.MirrorPadOptionsT()
    options.mode = schema.MirrorPadMode.REFLECT
    return options


def softmax_options() -> Any:
    options = schema.SoftmaxOptionsT()
    options.beta = 1.0
    return options


TFLITE: dict[str, tuple[Any, ...]] = {
    "softmax": (schema.BuiltinOperator.SOFTMAX, [(2, 3, 10), (2, 3, 10)], softmax_options()),
    "mirror_pad": (
        schema.BuiltinOperator.MIRROR_PAD,
        [(1, 3, 4, 2), (1, 5, 6, 2)],
        mirrored(),
        [[0, 0], [1, 1], [2, 0], [0, 0]],
    ),
    "tile": (schema.BuiltinOperator.TILE, [(1, 2, 3, 4), (1, 4, 3, 8)], schema.TileOptionsT(), [1, 2, 1, 2]),
    "reverse_v2": (schema.BuiltinOperator.REVERSE_V2, [(1, 30, 4, 3), (1, 30, 4, 3)], schema.ReverseV2OptionsT(), [1]),
}


def leaky() -> Any:
    options = schema.LeakyReluOptionsT()
    options.alpha = 0.3
    return options


UNSIGNED = {
    "softmax": TFLITE["softmax"],
    "leaky_relu": (schema.BuiltinOperator.LEAKY_RELU, [(1, 3, 5), (1, 3, 5)], leaky()),
    "tile": TFLITE["tile"],
}


@pytest.mark.parametrize(
    ("name", "unsigned"), [*((name, False) for name in TFLITE), *((name, True) for name in UNSIGNED)]
)
def test_operators_of_tflite_without_a_segment(name: str, unsigned: bool, check: Check, tmp_path: Path) -> None:
    path = tmp_path / "op.tflite"
    code, *rest = (UNSIGNED if unsigned else TFLITE)[name]
    path.write_bytes(tflite_network(code, *rest, unsigned=unsigned))
    compiled = compile_network(path, SMALL)
    assert not compiled.code.segments
    assert [node.op for step in compiled.code.steps for node in step.nodes] == [name]
    check(compiled)


def onnx_network(folder: Path, nodes: Sequence[Any], constants: dict[str, Any], shape: Sequence[int]) -> Path:
    """A convolution on an image, what `nodes` make of its dequantised result `r`, `y`, and that quantised."""
    weights = np.random.default_rng(0).integers(-100, 100, (6, 4, 1, 1)).astype(np.int8)
    values = {
        "s": np.float32(0.05),
        "z": np.int8(3),
        "w": weights,
        "sw": np.float32(0.02),
        "zw": np.int8(0),
        **constants,
    }
    every = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wr"]),
        helper.make_node("Conv", ["xr", "wr"], ["c"], name="conv"),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
        *nodes,
        helper.make_node("QuantizeLinear", ["y", "s", "z"], ["out"]),
    ]
    graph = helper.make_graph(
        every,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 4, 5, 7])],
        [helper.make_tensor_value_info("out", TensorProto.INT8, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "net.onnx"
    path.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
    return path


IMAGE = (1, 6, 5, 7)
ROW = np.linspace(-2, 2, 7, dtype=np.float32)
ONNX: dict[str, tuple[list[Any], dict[str, Any], tuple[int, ...]]] = {
    "softmax over channels": (
        [helper.make_node("Mul", ["r", "half"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=1)],
        {"half": np.float32(0.5)},
        IMAGE,
    ),
    "softmax over rows": (
        [helper.make_node("Mul", ["r", "half"], ["h"]), helper.make_node("Softmax", ["h"], ["y"], axis=2)],
        {"half": np.float32(0.5)},
        IMAGE,
    ),
    "layer norm of rows": ([helper.make_node("LayerNormalization", ["r", "k"], ["y"], axis=-1)], {"k": ROW}, IMAGE),
    "layer norm of images": (
        [helper.make_node("LayerNormalization", ["r", "k", "b"], ["y"], axis=2, epsilon=0.01)],
        {"k": np.tile(ROW, (5, 1)), "b": np.tile(ROW, (5, 1))},
        IMAGE,
    ),
    "rms norm of rows": (
        [helper.make_node("SimplifiedLayerNormalization", ["r", "k"], ["y"], axis=-1, epsilon=0.001)],
        {"k": ROW},
        IMAGE,
    ),
    "arithmetic": (
        [
            helper.make_node("Softmax", ["r"], ["p"], axis=3),
            helper.make_node("Mul", ["p", "r"], ["m"]),
            helper.make_node("Sub", ["m", "k"], ["d"]),
            helper.make_node("Div", ["d", "two"], ["y"]),
        ],
        {"k": ROW, "two": np.float32(1.7)},
        IMAGE,
    ),
    "a mask": (
        [helper.make_node("Add", ["r", "k"], ["m"]), helper.make_node("Softmax", ["m"], ["y"], axis=3)],
        {"k": np.where(ROW < 1, ROW, -np.inf).astype(np.float32)},
        IMAGE,
    ),
    "movement": (
        [
            helper.make_node("Softmax", ["r"], ["p"], axis=1),
            helper.make_node("Transpose", ["p"], ["t"], perm=[0, 3, 1, 2]),
            helper.make_node("Gather", ["t", "index"], ["y"], axis=1),
        ],
        {"index": np.array([5, 0, 0])},
        (1, 3, 6, 5),
    ),
}


@pytest.mark.parametrize("name", ONNX)
def test_float_operators_of_onnx(name: str, check: Check, tmp_path: Path) -> None:
    nodes, constants, shape = ONNX[name]
    compiled = compile_network(onnx_network(tmp_path, nodes, constants, shape), SMALL, effort=0)
    assert len(compiled.code.segments) == 1
    built = check(compiled, runs=3)
    assert built.project.inexact


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_softmax_between_integers(axis: int, check: Check, tmp_path: Path) -> None:
    nodes = [helper.make_node("Softmax", ["r"], ["y"], axis=axis)]
    built = check(compile_network(onnx_network(tmp_path, nodes, {}, IMAGE), SMALL, effort=0), runs=3)
    assert "softmax_table.c" in built.project.kernels
    assert not built.project.inexact


def test_float_inputs_and_outputs(check: Check, tmp_path: Path) -> None:
    path = onnx_network(tmp_path, [helper.make_node("Mul", ["r", "two"], ["y"])], {"two": np.float32(2)}, IMAGE)
    model = onnx.load(path)
    model.graph.node.insert(0, helper.make_node("QuantizeLinear", ["real", "s", "z"], ["x"]))
    model.graph.node.append(helper.make_node("DequantizeLinear", ["out", "s", "z"], ["result"]))
    del model.graph.input[:], model.graph.output[:]
    model.graph.input.append(helper.make_tensor_value_info("real", TensorProto.FLOAT, [1, 4, 5, 7]))
    model.graph.output.append(helper.make_tensor_value_info("result", TensorProto.FLOAT, IMAGE))
    path.write_bytes(model.SerializeToString())
    built = check(compile_network(path, SMALL, effort=0))
    assert "const float *real;" in built.project.files["inference.h"].decode()
    assert not built.project.inexact


def choosing_network(folder: Path, nodes: Sequence[Any], constants: dict[str, Any], index: Any, result: Any) -> Path:
    """Nodes on an int8 image `x`, an `index` and floats `f`, to a `result`; and the image as floats."""
    real = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"])
    constants = {**constants, "s": np.float32(0.05), "z": np.int8(3)}
    graph = helper.make_graph(
        [*nodes, real],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [1, 6, 5, 7]), index, FLOATS],
        [result, helper.make_tensor_value_info("real", TensorProto.FLOAT, [1, 6, 5, 7])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "net.onnx"
    path.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())
    return path


FLOATS = helper.make_tensor_value_info("f", TensorProto.FLOAT, [7])
TABLE = np.random.default_rng(5).standard_normal((9, 4)).astype(np.float32)
CHOICES: dict[str, tuple[list[Any], dict[str, Any], Any, Any]] = {
    "rows of a table": (
        [helper.make_node("Gather", ["table", "i"], ["y"], axis=0)],
        {"table": TABLE},
        helper.make_tensor_value_info("i", TensorProto.INT64, [2, 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 4]),
    ),
    "columns of uint8": (
        [helper.make_node("Gather", ["table", "i"], ["y"], axis=1)],
        {"table": np.arange(90, dtype=np.uint8).reshape(5, 9, 2) * 3},
        helper.make_tensor_value_info("i", TensorProto.INT32, [1]),
        helper.make_tensor_value_info("y", TensorProto.UINT8, [5, 1, 2]),
    ),
    "rows of a tensor": (
        [helper.make_node("Gather", ["x", "i"], ["y"], axis=2)],
        {},
        helper.make_tensor_value_info("i", TensorProto.INT64, [2]),
        helper.make_tensor_value_info("y", TensorProto.INT8, [1, 6, 2, 7]),
    ),
    **{
        f"{kind} of {dtype}": (
            [helper.make_node(kind, ["k", "i"], ["c"]), helper.make_node("Where", ["c", "f", "g"], ["y"])],
            {"k": np.arange(-3, 4).astype(dtype), "g": np.arange(21, dtype=np.float32).reshape(3, 1, 7)},
            helper.make_tensor_value_info("i", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [1, 1]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 1, 7]),
        )
        for kind in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
        for dtype in ("int32", "int64", "float32")
    },
}


@pytest.mark.parametrize("name", CHOICES)
def test_numbers_that_choose(name: str, build: Callable[[CompiledNetwork], Any], tmp_path: Path) -> None:
    compiled = compile_network(choosing_network(tmp_path, *CHOICES[name]), SMALL, effort=0)
    assert {node.op for step in compiled.code.steps for node in step.nodes} & {"gather", "where"}
    built = build(compiled)
    assert built.init() == 0
    rng = np.random.default_rng(0)
    (port,) = (port for port in compiled.graph.inputs if port.name == "i")
    for _ in range(6):
        index = rng.integers(-3, 4, port.shape).astype(port.dtype)
        floats = np.where(rng.random(7) < 0.3, np.nan, rng.standard_normal(7)).astype(np.float32)
        sample = {"x": rng.integers(-128, 128, (1, 6, 5, 7)).astype(np.int8), "i": index, "f": floats}
        np.testing.assert_array_equal(built.run(sample)[0]["y"], compiled.run(sample).outputs["y"])


def test_an_operator_without_a_kernel_is_refused(norm_network: bytes, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(norm_network)
    compiled = compile_network(path, SMALL, effort=0)
    with pytest.raises(NetworkError) as caught:
        project_of(compiled)
    assert str(caught.value) == (
        "node 'm' (reducemean): generated C has no kernel for it; `dovetail export` writes it as a file for a runtime"
        " on the host"
    )
