"""Softmax and norms of the host become instructions where the configuration has these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Unit
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.softmax import onnx_exponentials, tflite_exponentials
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.integer_forms import INEXACT, with_integer_forms
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array, Layout
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network
from tests.slow import slow

PLAIN = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB")
SOFTMAX = replace(PLAIN, softmax=1)
BOTH = replace(SOFTMAX, norm=1)
BLOCK = "zoo:attention_block"


def check(graph: ir.Graph, config: Config, options: Options | None = None) -> CompiledNetwork:
    """Compile, and compare a run with the graph interpreter, and its cycles with the report."""
    compiled = CompiledNetwork(generate(graph, config, options or Options(effort=0)))
    rng = np.random.default_rng(1)
    inputs = {port.name: rng.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs}
    result, wanted = compiled.run(inputs), reference.run(graph, inputs)
    for name, value in result.outputs.items():
        np.testing.assert_array_equal(value, wanted[name])
    assert result.cycles == compiled.report().cycles
    return compiled


def alone(shape: tuple[int, ...], **parameters: Any) -> ir.Graph:
    """A network of one softmax."""
    tensors = {name: ir.Tensor(name, shape, np.float32(0.1), 0) for name in "xy"}
    given: dict[str, Any] = {"form": Rounding.ONNX, "levels": 256, "zero_out": -128}
    given["exponentials"] = onnx_exponentials(0.1, shape[-1])
    if parameters.get("form") == Rounding.TFLITE:
        given["exponentials"] = tflite_exponentials(1.0, 0.1)
    node = ir.Softmax(name="n", inputs=("x",), outputs=("y",), **{**given, **parameters})
    ports = [ir.Port(name, name, "int8", np.float32(0.1), 0, Layout.plain(shape)) for name in "xy"]
    return ir.Graph((ports[0],), (ports[1],), tensors, (node,), "onnx").check()


@pytest.mark.parametrize("form", [Rounding.TFLITE, Rounding.ONNX])
@pytest.mark.parametrize("shape", [(1, 5), (3, 7, 33), (1, 1), (2, 300, 100), (1, 2, 4095)])
def test_rows_of_any_length_and_number(form: Rounding, shape: tuple[int, ...]) -> None:
    compiled = check(alone(shape, form=form), SOFTMAX)
    assert not compiled.code.host_reasons


@pytest.mark.parametrize("valid", [(1, 1), (3, 0), (0, 2), (40, 1)])
def test_masks_begin_anew_in_every_matrix(valid: tuple[int, int]) -> None:
    graph = alone((2, 50, 24), valid=valid)
    compiled = check(graph, replace(SOFTMAX, sram=32 << 10))
    x = np.full((2, 50, 24), 5, np.int8)
    (result,) = compiled.run(x).outputs.values()
    counts = np.clip(valid[0] + valid[1] * np.arange(50), 0, 24)
    assert ((result > -128).sum(axis=-1) == counts).all()


@pytest.mark.parametrize(
    ("shape", "parameters", "reason"),
    [
        ((1, 5000), {}, "rows must have at most 4096 elements, not 5000"),
        ((1, 4096), {"form": Rounding.TFLITE}, "rows must have at most 4095 elements, not 4096"),
        ((1, 10), {"levels": 8192}, "at most 8191 steps may be 1, not 8192"),
        ((3, 10), {"valid": (1, 40000)}, "at most 32767 elements of a row may count, not 80001"),
    ],
)
def test_what_does_not_fit_is_the_hosts(shape: tuple[int, ...], parameters: dict[str, Any], reason: str) -> None:
    compiled = CompiledNetwork(generate(alone(shape, **parameters), replace(SOFTMAX, sram=32 << 10), Options()))
    assert compiled.code.host_reasons["n"].startswith(reason)


def test_a_block_of_attention_is_one_program() -> None:
    graph, without = frontend.load(BLOCK), compile_network(BLOCK, PLAIN, effort=0)
    assert without.code.graph is graph or without.code.host_reasons == {"softmax": "the configuration has softmax = 0"}
    compiled = check(graph, SOFTMAX)
    assert (len(compiled.code.segments), compiled.code.host_reasons) == (1, {})
    assert compiled.code.network is graph
    assert [node.op for node in compiled.graph.nodes if isinstance(node, ir.Softmax)] == ["qlinearsoftmax"]
    x = np.random.default_rng(3).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    np.testing.assert_array_equal(compiled.run(x).outputs["output"], without.run(x).outputs["output"])
    # Compiled again for a configuration without it, the file's node is back.
    assert compiled.on(PLAIN).code.host_reasons == without.code.host_reasons


def test_scores_softmax_and_mix_stand_side_by_side() -> None:
    graph, _ = with_integer_forms(frontend.load(BLOCK), SOFTMAX, Options())
    names = [node.name for node in graph.nodes if not isinstance(node, ir.Reshape)]
    place = names.index("softmax")
    assert names[place - 1 : place + 2] == ["scores", "softmax", "mix"]


def test_a_saved_program_runs_again(tmp_path: Path) -> None:
    from dovetail.sw.runtime.saved_program import load_program

    compiled = compile_network(BLOCK, SOFTMAX, effort=0)
    compiled.save(tmp_path / "program.dtp")
    loaded = load_program(tmp_path / "program.dtp")
    x = np.random.default_rng(3).integers(-128, 128, loaded.graph.inputs[0].shape).astype(np.int8)
    np.testing.assert_array_equal(loaded.run(x).outputs["output"], compiled.run(x).outputs["output"])


@pytest.mark.parametrize(
    "name",
    [
        "bert_tiny?depth=1&tokens=12&channels=16",
        "vit_tiny?depth=1&resolution=32&channels=12&classes=5",
        slow("kwt?depth=1"),
        slow("cct?depth=1&channels=16&resolution=16"),
    ],
)
def test_transformers_are_one_program(name: str) -> None:
    graph = frontend.load(f"zoo:{name}")
    compiled = check(graph, BOTH)
    assert (len(compiled.code.segments), compiled.code.host_reasons) == (1, {})
    exact = CompiledNetwork(generate(graph, BOTH, Options(effort=0, exact=True)))
    norms = [node.name for node in graph.nodes if node.op == "layernormalization"]
    assert [name for name, why in exact.code.host_reasons.items() if why == INEXACT] == norms
    reasons = CompiledNetwork(generate(graph, SOFTMAX, Options(effort=0))).code.host_reasons
    assert {reasons[name] for name in norms} == {"the configuration has norm = false"}


def test_norms_run_beside_the_products_around_them() -> None:
    """One after the other, the array and the vector unit would take a third more."""
    config = replace(BOTH, ic_lanes=8, oc_lanes=8)
    report = compile_network("zoo:bert_tiny?depth=1&tokens=32&channels=64", config).report()
    alone = sum(report.counters[unit].busy for unit in (Unit.ARRAY, Unit.VECTOR))
    assert (report.cycles, alone) == (45_932, 64_660)


# --- float operators between integers ---------------------------------------------------------------------------


def file_of(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, Any], shape: tuple[int, ...]) -> Path:
    """A quantised network on int8: ``x`` is dequantised to ``r``, and ``f`` quantised to ``y``."""
    ends = {"s": np.float32(0.08), "z": np.int8(4), "t": np.float32(1 / 256), "u": np.int8(-128)}
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["r"]),
            *nodes,
            helper.make_node("QuantizeLinear", ["f", "t", "u"], ["y"]),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.INT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in {**ends, **constants}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    onnx.save_model(model, path)
    return path


@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_a_factor_in_front_of_softmax_is_a_part_of_the_scale(op: str, tmp_path: Path) -> None:
    constants = {"k": np.float32(0.3) if op == "Mul" else np.float32(3.3)}
    nodes = [helper.make_node(op, ["r", "k"], ["m"]), helper.make_node("Softmax", ["m"], ["f"], name="soft")]
    path = file_of(tmp_path / "net.onnx", nodes, constants, (1, 40, 19))
    runtime, exact = (compile_network(path, SOFTMAX, exact=exact) for exact in (False, True))
    assert not runtime.code.host_reasons
    assert exact.code.host_reasons["soft"] == INEXACT
    x = np.random.default_rng(4).integers(-128, 128, (1, 40, 19)).astype(np.int8)
    mine, theirs = (each.run(x).outputs["y"].astype(int) for each in (runtime, exact))
    assert np.abs(mine - theirs).max() <= 1
    (softmax,) = (node for node in runtime.graph.nodes if isinstance(node, ir.Softmax))
    assert softmax.distance is not None
    assert 0.5 < softmax.distance < 0.51


def test_a_float_softmax_that_others_read_stays_too(tmp_path: Path) -> None:
    constants = {"k": np.float32(0.3), "one": np.float32(0.2)}
    nodes = [
        helper.make_node("Mul", ["r", "k"], ["m"]),
        helper.make_node("Softmax", ["m"], ["f"], name="soft"),
        helper.make_node("Add", ["f", "one"], ["g"], name="more"),
        helper.make_node("QuantizeLinear", ["g", "t", "u"], ["w"]),
    ]
    path = file_of(tmp_path / "net.onnx", nodes, constants, (1, 40, 19))
    model = onnx.load_model(path)
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.INT8, (1, 40, 19)))
    onnx.save_model(model, path)
    compiled = compile_network(path, SOFTMAX, exact=False)
    kinds = [node.op for node in compiled.graph.nodes]
    assert "qlinearsoftmax" in kinds
    assert "softmax" in kinds


def test_levels_that_are_no_whole_number_are_the_hosts(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["r", "k"], ["m"]),
        helper.make_node("Softmax", ["m"], ["f"], name="soft"),
    ]
    path = file_of(tmp_path / "net.onnx", nodes, {"k": np.float32(0.3), "t": np.float32(0.0041)}, (1, 40, 19))
    reasons = compile_network(path, SOFTMAX).code.host_reasons
    assert reasons["soft"] == "a whole number of steps must be 1 behind softmax, not 243.902"


def norm_file(path: Path, op: str, gain: Array, offset: Array | None, **more: Any) -> Path:
    """A norm of 23 rows between integers."""
    names = ["r", "gain", *([] if offset is None else ["offset"])]
    constants = {"gain": gain, **({} if offset is None else {"offset": offset})}
    nodes = [helper.make_node(op, names, ["f"], name="norm", **more)]
    return file_of(path, nodes, {**constants, "t": np.float32(0.03), "u": np.int8(-7)}, (1, 23, gain.size))


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("count", [1, 5, 64, 300])
def test_norms_are_at_most_a_step_off_the_runtime(op: str, count: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(count)
    gain = rng.standard_normal(count).astype(np.float32) + np.float32(0.01)
    offset = rng.standard_normal(count).astype(np.float32) if op == "LayerNormalization" else None
    path = norm_file(tmp_path / "net.onnx", op, gain, offset, axis=-1, epsilon=1e-3)
    compiled, exact = (compile_network(path, BOTH, exact=exact) for exact in (False, True))
    assert not compiled.code.host_reasons
    assert exact.code.host_reasons["norm"] == INEXACT
    (norm,) = (node for node in compiled.graph.nodes if isinstance(node, ir.Norm))
    assert 0.5 < norm.distance < 0.51
    x = rng.integers(-128, 128, (1, 23, count)).astype(np.int8)
    x[0, 0], x[0, 1] = 7, -128
    mine, theirs = (each.run(x).outputs["y"].astype(int) for each in (compiled, exact))
    assert np.abs(mine - theirs).max() <= 1
    assert (mine != theirs).mean() < 0.01
    np.testing.assert_array_equal(mine, reference.run(compiled.graph, x)["y"])


@pytest.mark.parametrize(
    ("gain", "offset", "epsilon", "reason"),
    [
        (0.0, 1.0, 1e-5, "offset of channel 0 must be below 2**14 times its gain, 0, not 1"),
        (3000.0, 0.0, 1e-5, "gains must be below"),
        (1.0, 0.0, 1e30, "eps must be 0 or more and below"),
    ],
)
def test_norms_that_integers_do_not_hold_are_the_hosts(
    gain: float, offset: float, epsilon: float, reason: str, tmp_path: Path
) -> None:
    gains, offsets = (np.full(8, value, np.float32) for value in (gain, offset))
    path = norm_file(tmp_path / "net.onnx", "LayerNormalization", gains, offsets, epsilon=epsilon)
    assert compile_network(path, BOTH).code.host_reasons["norm"].startswith(reason)


def test_records_that_do_not_fit_beside_two_rows(tmp_path: Path) -> None:
    ones = np.ones(4096, np.float32)
    path = norm_file(tmp_path / "net.onnx", "LayerNormalization", ones, ones)
    reason = compile_network(path, replace(BOTH, sram=32 << 10)).code.host_reasons["norm"]
    assert reason == (
        "two rows of 4096 elements, as operand and as result, and 32768 bytes of table must fit in half of 32 KiB: give"
        " more SRAM"
    )
    check(frontend.load(path), replace(BOTH, sram=64 << 10))


# --- operands that the file's operators see in other shapes ------------------------------------------------------


def test_softmax_over_rows_that_are_no_last_axis(tmp_path: Path) -> None:
    """As pooling over a sequence has it: tokens along the axis, one score of each."""
    nodes = [helper.make_node("Softmax", ["r"], ["f"], name="soft", axis=1)]
    compiled = compile_network(file_of(tmp_path / "net.onnx", nodes, {}, (2, 40, 1)), SOFTMAX)
    assert not compiled.code.host_reasons
    check(frontend.load(tmp_path / "net.onnx"), SOFTMAX)


@pytest.mark.parametrize(
    ("shape", "axis", "reasons"),
    [
        ((2, 40, 3), 1, {}),
        ((1, 2, 10, 2, 3), 2, {"soft": "qlinearsoftmax is not an accelerator operation"}),
    ],
)
def test_softmax_over_rows_that_lie_apart(
    tmp_path: Path, shape: tuple[int, ...], axis: int, reasons: dict[str, str]
) -> None:
    """Its elements are brought together; those of more than four axes are the host's."""
    nodes = [helper.make_node("Softmax", ["r"], ["f"], name="soft", axis=axis)]
    compiled = compile_network(file_of(tmp_path / "net.onnx", nodes, {}, shape), SOFTMAX)
    assert compiled.code.host_reasons == reasons


def test_a_norm_of_an_images_pixels(tmp_path: Path) -> None:
    """Channels of each pixel of what a pool makes: tokens behind a convolution."""
    shape, gain = (1, 8, 6, 5), np.linspace(0.5, 2, 8, dtype=np.float32)
    nodes = [
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Reshape", ["d", "rows"], ["apart"]),
        helper.make_node("Transpose", ["apart"], ["tokens"], perm=[0, 2, 1]),
        helper.make_node("LayerNormalization", ["tokens", "gain"], ["normed"], name="norm"),
        helper.make_node("Transpose", ["normed"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["turned", "image"], ["f"]),
    ]
    constants = {"rows": np.array([1, 8, 30]), "image": np.array(shape), "gain": gain, "t": np.float32(0.03)}
    path = file_of(tmp_path / "net.onnx", nodes, constants, shape)
    compiled, exact = (compile_network(path, BOTH, exact=exact) for exact in (False, True))
    assert not compiled.code.host_reasons
    x = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
    mine, theirs = (each.run(x).outputs["y"].astype(int) for each in (compiled, exact))
    assert np.abs(mine - theirs).max() <= 1
    assert (mine != theirs).mean() < 0.01
