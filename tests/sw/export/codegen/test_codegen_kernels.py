"""The arithmetic of the C kernels against `isa.numerics` and LiteRT: corners, and random operands of all magnitudes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.numerics.add import add, onnx_sum, tflite_sum
from dovetail.isa.numerics.average import average
from dovetail.isa.numerics.requantise import scale_onnx, scale_tflite
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import onnx_exponentials, softmax_onnx, softmax_tflite, tflite_exponentials
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters
from dovetail.sw.export.codegen.movement import copy_of
from dovetail.sw.host import recurrent
from dovetail.sw.host.kernels import Dequantize, Quantize
from dovetail.sw.host.onnx_session import open_session

CORNERS = [0, 1, -1, 2**23, 2**24 - 1, 2**24 + 1, -(2**24) - 1, 2**24 + 3, 2**31 - 1, -(2**31) + 1, -(2**31)]
FLAGS = (
    "-std=c99",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pedantic",
    "-Wshadow",
    "-Wconversion",
    "-O1",
    "-fsanitize=undefined",
)
PAIRS = 3000

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")


class SumRule(ctypes.Structure):
    """struct dovetail_sum_rule"""

    _fields_ = (
        ("rounding", ctypes.c_uint8),
        ("combination", ctypes.c_uint8),
        *((name, ctypes.c_int32) for name in ("zero_a", "zero_b", "zero_out", "mult_a", "mult_b", "mult_out")),
        *((name, ctypes.c_int32) for name in ("shift_a", "shift_b", "shift_out", "lo", "hi")),
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All kernels."""
    target = tmp_path_factory.mktemp("kernels") / "kernels.so"
    folder = Path(str(files("dovetail.sw.export").joinpath("c/kernels")))
    command = ["gcc", *FLAGS, "-fno-sanitize-recover=all", "-shared", "-fPIC", *map(str, sorted(folder.glob("*.c")))]
    subprocess.run([*command, "-o", str(target), "-lm"], check=True, timeout=300)
    loaded = ctypes.CDLL(str(target))
    loaded.dovetail_scale.restype = ctypes.c_int64
    loaded.dovetail_sum_one.restype = ctypes.c_int8
    loaded.dovetail_divide.argtypes = (ctypes.c_int64, ctypes.c_int32, ctypes.c_int)
    return loaded


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("rounding", Rounding)
def test_scaling(library: Any, rounding: Rounding) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 32, 6000)
    width = 31 if rounding == Rounding.TFLITE else 24
    values = np.concatenate([np.repeat(CORNERS, 64), rng.integers(-(2**31), 2**31, 6000) >> bits])
    count = len(values)
    mults = rng.integers(1 << (width - 1), 1 << width, count)
    mults[::17] = rng.choice([0, 1, (1 << 31) - 1, 1 << (width - 1)], len(mults[::17]))
    shifts = np.concatenate([np.tile(np.arange(-32, 32), len(CORNERS)), np.clip(bits - 24, -32, 31)])
    # Ties: multipliers of one half and their like.
    mults[1::23], shifts[1::23] = 1 << (width - 1), rng.integers(-3, 1, len(shifts[1::23]))
    scale = scale_tflite if rounding == Rounding.TFLITE else scale_onnx
    wanted = scale(values, mults, shifts).tolist()
    operands = zip(values.tolist(), mults.tolist(), shifts.tolist(), strict=True)
    assert [library.dovetail_scale(*given, int(rounding)) for given in operands] == wanted


def sum_rules() -> list[VectorParameters]:
    rng = np.random.default_rng(1)
    rules = []
    for combine in (getattr(VectorOperation, name) for name in ("ADD", "SUBTRACT", "MINIMUM", "MAXIMUM")):
        for make in (tflite_sum, onnx_sum):
            scales = (2.0 ** rng.uniform(-3, 3, 3)).tolist()
            zeros = rng.integers(-128, 128, 3).tolist()
            rules.append(make(scales[0], zeros[0], scales[1], zeros[1], scales[2], zeros[2], operation=combine))
    simple = onnx_sum(0.5, 0, 0.25, 1, 1.0, 3, lo=-100, hi=90)  # many ties
    return [*rules, simple, tflite_sum(0.5, 0, 0.25, 1, 1.0, 3, lo=-100, hi=90)]


@pytest.mark.parametrize("rule", sum_rules())
def test_sums(library: Any, rule: VectorParameters) -> None:
    orders = ("ADD", "SUBTRACT", "MINIMUM", "MAXIMUM")
    fields = SumRule(
        *(rule.rounding, orders.index(rule.operation.name), rule.za, rule.zb, rule.zy),
        *(rule.mult_a, rule.mult_b, rule.mult_out, rule.shift_a, rule.shift_b, rule.shift_out, rule.lo, rule.hi),
    )
    a, b = np.random.default_rng(2).integers(-128, 128, (2, PAIRS)).astype(np.int8)
    a[:4], b[:4] = [-128, -128, 127, 127], [-128, 127, -128, 127]
    found = [library.dovetail_sum_one(ctypes.byref(fields), int(x), int(y)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(found, add(a, b, rule))


@pytest.mark.parametrize("rounding", Rounding)
def test_averages(library: Any, rounding: Rounding) -> None:
    totals = np.tile(np.arange(-600, 600), 5)
    counts = np.repeat([1, 2, 3, 4, 49], 1200)
    wanted = average(totals, counts, rounding).tolist()
    operands = zip(totals.tolist(), counts.tolist(), strict=True)
    assert [library.dovetail_divide(*given, int(rounding)) for given in operands] == wanted
    assert library.dovetail_divide(5, 0, int(rounding)) == 0


@pytest.mark.parametrize("ties_even", [False, True])
@pytest.mark.parametrize(("scale", "zero"), [(0.25, 7), (0.0375, -128), (1 / 255, 127), (1e-42, 0), (3e38, -3)])
def test_quantisation(library: Any, ties_even: bool, scale: float, zero: int) -> None:
    """At ties and next to them; of scales at both ends, too, with which some results cannot be."""
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        halves = (np.arange(-600, 600) * 0.5 * scale).astype(np.float32)
    near = [np.nextafter(halves, np.float32(side)) for side in (-1e9, 1e9)]
    extreme = np.array([0.0, -0.0, 1e-40, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    values = np.concatenate([halves, *near, extreme, rng.normal(0, 20, 2000).astype(np.float32)])
    found = np.empty(values.size, np.int8)
    size = ctypes.c_size_t(values.size)
    quantise, dequantise = Quantize(np.float32(scale), zero, ties_even), Dequantize(np.float32(scale), zero)
    edges, of_nan = quantise.edges(), ctypes.c_int8(-128 if ties_even else zero)
    library.dovetail_quantise(address(edges), of_nan, size, address(values), address(found))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, quantise.run([values])[0])
    with np.errstate(over="ignore"):
        reals, table = np.empty(values.size, np.float32), dequantise.table()
        library.dovetail_dequantise(address(table), size, address(found), address(reals))
        np.testing.assert_array_equal(reals, dequantise.run([found])[0])


def test_sums_times_their_step(library: Any) -> None:
    """Both roundings at ties and next to them; steps of all sizes, among them those with which a product is no normal
    number."""
    rng = np.random.default_rng(3)
    usual = rng.uniform(1e-9, 1e-2, 40).astype(np.float32)
    bits = rng.integers(0, 255 << 23, 200).astype(np.uint32).view(np.float32)
    near = np.array([1, *(220 + n << 23 for n in range(4)), (221 << 23) - 1, (1 << 23) - 1, 255 << 23], np.uint32)
    steps = np.concatenate([usual, bits, near.view(np.float32), np.array([0, 0.75, 1, 3, -0.3, np.nan], np.float32)])
    halves = [sign * ((1 << high) + odd) for high in range(31) for odd in range(-3, 4) for sign in (1, -1)]
    sums = np.concatenate([CORNERS, halves, rng.integers(-(2**31), 2**31, 500) >> rng.integers(0, 31, 500)])
    sums = np.repeat(np.clip(sums, -(2**31), 2**31 - 1).astype(np.int32)[:, None], steps.size, axis=1)
    found = np.empty(sums.shape, np.float32)
    library.dovetail_dequantise_sums(address(steps), *map(ctypes.c_size_t, sums.shape), address(sums), address(found))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        wanted = sums.astype(np.float32) * steps
    numbers = ~np.isnan(wanted)
    assert np.array_equal(numbers, ~np.isnan(found))
    np.testing.assert_array_equal(found.view(np.uint32)[numbers], wanted.view(np.uint32)[numbers])


@pytest.mark.parametrize("columns", [1, 2, 10, 12, 100])
@pytest.mark.parametrize(("scale", "beta"), [(0.2077, 1.0), (0.0003, 1.0), (0.7, 2.0), (0.125, 1.0), (20.0, 1.0)])
def test_softmax_is_that_of_litert(library: Any, scale: float, beta: float, columns: int) -> None:
    rows = softmax_rows(columns)
    found = np.empty_like(rows)
    table = tflite_exponentials(beta, float(np.float32(scale)))
    sizes = map(ctypes.c_size_t, rows.shape)
    library.dovetail_softmax(address(table), *sizes, address(rows), address(found))
    np.testing.assert_array_equal(found, litert_softmax(rows, scale, beta))
    np.testing.assert_array_equal(found, softmax_tflite(rows, table))


def softmax_rows(columns: int) -> NDArray[np.int8]:
    """int8 [300, columns]: spread a little, more, and up to both ends; one that is constant."""
    rows = np.clip(np.random.default_rng(0).normal(0, [[5], [40], [200]] * 100, (300, columns)), -128, 127)
    rows[7] = -128
    return rows.astype(np.int8)


class SoftmaxRule(ctypes.Structure):
    """struct dovetail_softmax_rule"""

    _fields_ = (("exps", ctypes.c_void_p), ("levels", ctypes.c_int32), ("zero_point", ctypes.c_int32))


@pytest.mark.parametrize("columns", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize(
    ("scale", "step", "zero"),
    [(0.2077, 1 / 256, -128), (0.003, 1 / 255, 3), (0.7, 0.0039, -100), (20.0, 0.001, -128), (0.05, 1 / 450, -128)],
)
def test_softmax_is_that_of_onnx_runtime(library: Any, scale: float, step: float, zero: int, columns: int) -> None:
    rows = softmax_rows(columns)
    found = np.empty_like(rows)
    table = onnx_exponentials(float(np.float32(scale)), columns)
    levels = int(np.floor(np.float32(1) / np.float32(step)))
    rule = SoftmaxRule(address(table), levels, zero)
    sizes = map(ctypes.c_size_t, (*rows.shape, 1))
    library.dovetail_softmax_table(ctypes.byref(rule), *sizes, address(rows), address(found))
    np.testing.assert_array_equal(found, onnx_softmax(rows, scale, step, zero))
    np.testing.assert_array_equal(found, softmax_onnx(rows, table, levels, zero))


def test_softmax_near_rounding_errors(library: Any) -> None:
    """Rows whose result depends on the last bit of an exponential, or of a quotient."""
    row = np.array([[127, 97, 48, 69, -122, 30]], np.int8)
    scale = float(np.float32(0.04477611556649208))
    expected = litert_softmax(row, scale, 1.0)
    assert expected.tolist() == [[58, -80, -123, -114, -128, -126]]
    np.testing.assert_array_equal(softmax_tflite(row, tflite_exponentials(1.0, scale)), expected)
    for scale, levels in ((0.047593213617801666, [127, -61, 88, 62, 86]), (0.01963815465569496, [127, -78, 104])):
        row = np.array([levels], np.int8)
        expected = onnx_softmax(row, scale, 1 / 256, -128)
        np.testing.assert_array_equal(softmax_onnx(row, onnx_exponentials(scale, row.size), 256, -128), expected)


def onnx_softmax(rows: NDArray[np.int8], scale: float, step: float, zero: int) -> NDArray[np.int8]:
    """What ONNX Runtime makes of rows between DequantizeLinear and QuantizeLinear: it fuses the three."""
    ends = [helper.make_tensor_value_info(name, TensorProto.INT8, rows.shape) for name in ("x", "y")]
    values = {"sx": np.float32(scale), "zx": np.int8(5), "sy": np.float32(step), "zy": np.int8(zero)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["real"]),
        helper.make_node("Softmax", ["real"], ["share"], axis=-1),
        helper.make_node("QuantizeLinear", ["share", "sy", "zy"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "rows", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (result,) = open_session(model.SerializeToString()).run(None, {"x": rows})
    return np.asarray(result)


def litert_softmax(rows: NDArray[np.int8], scale: float, beta: float) -> NDArray[np.int8]:
    """What LiteRT's reference kernel makes of rows."""
    model, graph, operator, opcode = schema.ModelT(), schema.SubGraphT(), schema.OperatorT(), schema.OperatorCodeT()
    graph.tensors = []
    for step, zero in ((scale, 5), (1 / 256, -128)):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type = "t", list(rows.shape), schema.TensorType.INT8
        tensor.quantization = schema.QuantizationParametersT()
        tensor.quantization.scale, tensor.quantization.zeroPoint = [step], [zero]
        graph.tensors.append(tensor)
    graph.inputs, graph.outputs, operator.inputs, operator.outputs = [0], [1], [0], [1]
    operator.builtinOptions = schema.SoftmaxOptionsT()
    operator.builtinOptions.beta = beta
    operator.builtinOptionsType = schema.BuiltinOptions.SoftmaxOptions
    opcode.builtinCode = opcode.deprecatedBuiltinCode = schema.BuiltinOperator.SOFTMAX
    opcode.version = 2
    graph.operators = [operator]
    model.version, model.operatorCodes, model.subgraphs, model.buffers = 3, [opcode], [graph], [schema.BufferT()]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    interpreter = Interpreter(
        model_content=bytes(builder.Output()), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, rows)
    interpreter.invoke()
    return np.asarray(interpreter.get_tensor(1))


def onnx_rows(kind: str, rows: NDArray[np.float32], *constants: NDArray[np.float32]) -> NDArray[np.float32]:
    """What ONNX Runtime makes of rows."""
    names = [f"k{number}" for number in range(len(constants))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, rows.shape) for name in ("x", "y")]
    node = helper.make_node(kind, ["x", *names], ["y"], axis=-1)
    tensors = [numpy_helper.from_array(value, name) for name, value in zip(names, constants, strict=True)]
    graph = helper.make_graph([node], "rows", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (result,) = open_session(model.SerializeToString()).run(None, {"x": rows})
    return np.asarray(result)


@pytest.mark.parametrize("columns", [2, 12, 197])
@pytest.mark.parametrize("kind", ["Softmax", "LayerNormalization"])
def test_float_kernels_are_one_step_off_at_most(library: Any, kind: str, columns: int) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-128, 128, (200_000 // columns, columns)).astype(np.float32) * np.float32(0.1)
    found, sizes = np.empty_like(rows), list(map(ctypes.c_size_t, rows.shape))
    if kind == "Softmax":
        quantise = Quantize(np.float32(1 / 256), -128, ties_even=True)
        wanted = onnx_rows(kind, rows)
        library.dovetail_softmax_float(*sizes, ctypes.c_size_t(1), address(rows), address(found))
    else:
        quantise = Quantize(np.float32(8 / 255), 0, ties_even=True)
        gain, offset = rng.normal(1, 0.1, (2, columns)).astype(np.float32)
        wanted = onnx_rows(kind, rows, gain, offset)
        epsilon = ctypes.c_float(1e-5)
        library.dovetail_layer_norm(epsilon, address(gain), address(offset), *sizes, address(rows), address(found))
    steps = np.abs(quantise.run([found])[0].astype(np.int32) - quantise.run([wanted])[0])
    assert steps.max() <= 1
    assert np.count_nonzero(steps) <= 5


@pytest.mark.parametrize(("mean", "spread"), [(0, 1e-20), (0, 1e-4), (0.1, 1), (1000, 1), (1, 1e-3), (0, 1e20)])
@pytest.mark.parametrize("columns", [1, 2, 12, 197, 4096])
def test_norms_of_floats(library: Any, columns: int, mean: float, spread: float) -> None:
    """Within 2^-22 of a row's largest product or offset, whatever the elements have in common."""
    rng = np.random.default_rng(2)
    rows = rng.normal(mean, spread, (30_000 // columns, columns)).astype(np.float32)
    gain, offset = rng.normal(1, 0.3, (2, columns)).astype(np.float32)
    epsilon = ctypes.c_float(1e-5)
    sizes = list(map(ctypes.c_size_t, rows.shape))
    for rms in (False, True):
        found = np.empty_like(rows)
        if rms:
            library.dovetail_rms_norm(epsilon, address(gain), *sizes, address(rows), address(found))
        else:
            ends = address(gain), address(offset), *sizes, address(rows), address(found)
            library.dovetail_layer_norm(epsilon, *ends)
        exact = rows.astype(np.float64)
        distances = exact - (0 if rms else exact.mean(axis=1, keepdims=True))
        products = distances / np.sqrt((distances**2).mean(axis=1, keepdims=True) + epsilon.value) * gain
        wanted = products + (0 if rms else offset)
        largest = np.maximum(np.abs(products), 0 if rms else np.abs(offset)).max(axis=1, keepdims=True)
        assert (np.abs(found - wanted) <= 2**-22 * largest).all()


def test_norms_of_what_is_no_number(library: Any) -> None:
    rows = np.array([[1, 2, np.nan], [1, np.inf, 2], [0, 0, 0]], np.float32)
    found, gain, sizes = np.empty_like(rows), np.ones(3, np.float32), list(map(ctypes.c_size_t, rows.shape))
    library.dovetail_layer_norm(ctypes.c_float(1e-5), address(gain), None, *sizes, address(rows), address(found))
    np.testing.assert_array_equal(found, np.array([[np.nan] * 3, [np.nan] * 3, [0, 0, 0]], np.float32))


@pytest.mark.parametrize("spread", [1e-30, 1e-4, 1.0, 10.0, 60.0])
@pytest.mark.parametrize("columns", [1, 2, 10, 1001])
def test_softmax_of_floats(library: Any, columns: int, spread: float) -> None:
    """Down to shares that are no normal numbers, and 0."""
    rows = np.random.default_rng(1).normal(0, spread, (30_000 // columns, columns)).astype(np.float32)
    found, sizes = np.empty_like(rows), list(map(ctypes.c_size_t, rows.shape))
    library.dovetail_softmax_float(*sizes, ctypes.c_size_t(1), address(rows), address(found))
    exponentials = np.exp((rows - rows.max(axis=1, keepdims=True)).astype(np.float64))
    wanted = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, rtol=2**-22, atol=2**-149)


def test_softmax_of_what_is_no_number(library: Any) -> None:
    rows = np.array([[1, 2, np.nan], [1, np.inf, 2], [1, -np.inf, 1], [-np.inf] * 3], np.float32)
    found, sizes = np.empty_like(rows), list(map(ctypes.c_size_t, rows.shape))
    library.dovetail_softmax_float(*sizes, ctypes.c_size_t(1), address(rows), address(found))
    nan = np.nan
    np.testing.assert_array_equal(found, np.array([[nan] * 3, [nan] * 3, [0.5, 0, 0.5], [nan] * 3], np.float32))


def test_a_list_of_places_is_a_strided_copy_where_there_is_one() -> None:
    grid = np.arange(4 * 5 * 6).reshape(4, 5, 6)
    for view in (grid, grid.transpose(2, 0, 1), grid[1:3, ::2], grid[:, :, 2], np.repeat(grid, 2, axis=1)):
        copy = copy_of(view.ravel())
        assert copy is not None
        steps = [8 * step for step in copy.source_steps]
        seen = np.lib.stride_tricks.as_strided(grid.ravel()[copy.source :], copy.sizes, steps)
        np.testing.assert_array_equal(seen.ravel(), view.ravel())
    assert copy_of(grid[::-1].ravel()) is None
    assert copy_of(np.array([0, 1, 2, 7, 8, 3])) is None


def test_functions_of_gates(library: Any) -> None:
    """All values, and the scales that a cell state may have."""
    values = np.arange(-32768, 32768)
    assert [library.dovetail_sigmoid(value) for value in values.tolist()] == recurrent.sigmoid(values).tolist()
    for power in (-15, -13, -12, -11, -8):
        found = [library.dovetail_tanh(value, power) for value in values[:: 1 if power == -12 else 37].tolist()]
        assert found == recurrent.tanh(values[:: 1 if power == -12 else 37], power).tolist()
