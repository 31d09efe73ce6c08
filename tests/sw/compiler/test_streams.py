"""Residual sums of 16 bits: from QDQ files to programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import Op
from dovetail.sw import frontend
from dovetail.sw.compiler.compile import generate
from dovetail.sw.compiler.emit.hazards import races
from dovetail.sw.compiler.options import Options
from dovetail.sw.compiler.partition.integer_forms import INEXACT
from dovetail.sw.network import ir, reference
from dovetail.sw.network.layout import Array
from dovetail.sw.runtime.compiled_network import CompiledNetwork, Result, compile_network
from dovetail.sw.runtime.saved_program import load_program
from dovetail.sw.runtime.system_network import plan_network
from tests.slow import slow
from tests.sw.compiler.devices.test_plan import check_outputs, system_of
from tests.sw.streams import StreamFile, post_norm, pre_norm, random_stream, sums_only

PLAIN = Config(ic_lanes=4, oc_lanes=4, sram="64 KiB", softmax=1, norm=1)
WIDE = replace(PLAIN, norm_bits=16)
SMALL = replace(WIDE, sram=32 << 10)
MAKERS = [pre_norm, post_norm, sums_only]
Maker = Callable[..., onnx.ModelProto]


def loaded(model: onnx.ModelProto, folder: Path) -> tuple[ir.Graph, Array, list[Array]]:
    """The graph, an input, and what ONNX Runtime makes of it."""
    onnx.save(model, folder / "streams.onnx")
    graph = frontend.load(folder / "streams.onnx")
    x = np.random.default_rng(5).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    session = ort.InferenceSession(folder / "streams.onnx", providers=["CPUExecutionProvider"])
    return graph, x, [np.asarray(value) for value in session.run(None, {"x": x})]


def run(graph: ir.Graph, config: Config, x: Array, **options: Any) -> tuple[CompiledNetwork, Result]:
    """Compile, and compare a run with the graph interpreter, and its cycles with the report."""
    compiled = CompiledNetwork(generate(graph, config, Options(effort=0, **options)))
    result, wanted = compiled.run(x), reference.run(compiled.graph, x)
    for name, value in result.outputs.items():
        np.testing.assert_array_equal(value, wanted[name])
    assert result.cycles == compiled.report().cycles
    assert not any(races(timeline) for timeline in result.timeline)
    return compiled, result


def differences(result: Result, wanted: list[Array]) -> tuple[int, int]:
    """The largest difference, and how many results differ."""
    apart = [abs(ours.astype(int) - theirs) for ours, theirs in zip(result.outputs.values(), wanted, strict=True)]
    return max(int(part.max()) for part in apart), sum(int((part > 0).sum()) for part in apart)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("config", [WIDE, SMALL])
@pytest.mark.parametrize("sizes", [(6, 24), (50, 7), (197, 64)])
def test_streams_are_one_program(make: Maker, config: Config, sizes: tuple[int, int], tmp_path: Path) -> None:
    graph, x, wanted = loaded(make(*sizes), tmp_path)
    compiled, result = run(graph, config, x)
    assert (len(compiled.code.segments), compiled.code.host_reasons) == (1, {})
    assert all(len(np.unique(value)) > 3 for value in wanted)
    most, count = differences(result, wanted)
    assert most <= (make is not sums_only)
    assert count <= 0.01 * sum(value.size for value in wanted)


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("make", MAKERS)
def test_without_the_instructions_the_host_computes_what_the_file_says(
    make: Maker, domain: str, tmp_path: Path
) -> None:
    graph, x, wanted = loaded(make(domain=domain), tmp_path)
    compiled, result = run(graph, PLAIN, x)
    assert "the configuration has norm_bits = 8" in compiled.code.host_reasons.values()
    assert differences(result, wanted) == (0, 0)


def test_norms_are_the_hosts_where_results_must_be_exact(tmp_path: Path) -> None:
    graph, x, wanted = loaded(pre_norm(), tmp_path)
    compiled, result = run(graph, WIDE, x, exact=True)
    reasons = compiled.code.host_reasons
    assert sum(reason == INEXACT for reason in reasons.values()) == 3
    assert differences(result, wanted) == (0, 0)
    assert not any(node.name in reasons for node in graph.nodes if isinstance(node, ir.Elementwise))


def test_sums_that_could_leave_16_bits_are_the_hosts(tmp_path: Path) -> None:
    file = StreamFile()
    x = file.wide(file.input(1, 4, 8))
    file.output(file.wide(file.node("Add", x, file.held(np.full((1, 4, 8), 32000)))), (1, 4, 8), scale=0.5)
    graph, values, wanted = loaded(file.model(), tmp_path)
    compiled, result = run(graph, WIDE, values)
    (reason,) = (reason for reason in compiled.code.host_reasons.values() if "16 bits" in reason)
    assert reason == "its sums must fit 16 bits, not reach from 29921 to 33968"
    assert differences(result, wanted) == (0, 0)


def test_scales_that_are_no_power_of_two_are_the_hosts(tmp_path: Path) -> None:
    file = StreamFile()
    x = file.wide(file.input(1, 4, 8), 0.003)
    file.output(file.wide(file.node("Add", x, x), 0.003), (1, 4, 8))
    graph, values, wanted = loaded(file.model(), tmp_path)
    compiled, result = run(graph, WIDE, values)
    assert not any(isinstance(node, ir.Elementwise | ir.Rescale) for node in graph.nodes)
    assert differences(result, wanted) == (0, 0)
    assert not compiled.code.segments


def test_a_stream_that_is_read_as_float_remains_on_the_accelerator(tmp_path: Path) -> None:
    file = StreamFile()
    x = file.wide(file.input(1, 4, 8))
    stream = file.wide(file.node("Add", x, file.random(1, 4, 8)))
    file.output(file.node("Add", stream, file.node("ReduceMax", stream, keepdims=1)), (1, 4, 8))
    graph, values, wanted = loaded(file.model(), tmp_path)
    compiled, result = run(graph, WIDE, values)
    assert [node.op for node in compiled.code.nodes_on("accelerator")][:3] == ["constant", "widen", "e32_add"]
    assert differences(result, wanted) == (0, 0)


def test_requantisation_is_the_runtimes_for_every_value(tmp_path: Path) -> None:
    """Of 1.7 % of random scales the multiplier is changed by some units of its last bit; of few there is none."""
    rng = np.random.default_rng(0)
    file = StreamFile()
    x = file.wide(file.input(1, 1, 8))
    for scale in 2.0 ** rng.uniform(-7, -1, 150):
        file.output(x, (1, 1, 8), float(scale))
    graph, values, wanted = loaded(file.model(), tmp_path)
    found = [node for node in graph.nodes if isinstance(node, ir.Rescale) and node.own == Op.REQUANT]
    assert len(found) >= 149
    for name, value in zip(reference.run(graph, values).values(), wanted, strict=True):
        np.testing.assert_array_equal(name, value)


@pytest.mark.parametrize("seed", [slow(seed) if seed > 8 else seed for seed in range(60)])
def test_random_streams(seed: int, tmp_path: Path) -> None:
    norms = seed % 2 == 1
    graph, x, wanted = loaded(random_stream(seed, norms=norms), tmp_path)
    for config in (replace((WIDE, SMALL)[seed % 3 == 0], norm=(1, 4)[seed % 4 == 3]), PLAIN):
        compiled, result = run(graph, config, x, keep_tensors=seed % 5 == 0)
        exact = not norms or config is PLAIN
        assert not exact or differences(result, wanted) == (0, 0)
        assert config is PLAIN or not compiled.code.host_reasons


@pytest.mark.parametrize("op", ["RMSNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize("wide", [False, True])
def test_rms_norms_of_streams(op: str, wide: bool, tmp_path: Path) -> None:
    file = StreamFile()
    x = file.wide(file.node("Add", file.wide(file.input(1, 9, 20)), file.random(1, 9, 20)))
    gain = file.constant(np.linspace(-0.5, 1.5, 20).astype(np.float32))
    y = file.node(op, x, gain, axis=-1, epsilon=1e-3)
    file.output(file.wide(y) if wide else y, (1, 9, 20), 0.02)
    model = file.model()
    if op == "RMSNormalization":
        model.opset_import[0].version = 23
    graph, values, wanted = loaded(model, tmp_path)
    compiled, result = run(graph, WIDE, values)
    assert not compiled.code.host_reasons
    (norm,) = (node for node in compiled.graph.nodes if isinstance(node, ir.Norm))
    assert (norm.rms, norm.instruction) == (True, Op.NORM16_WIDE if wide else Op.NORM16)
    assert differences(result, wanted)[0] <= 1


def test_a_norm_of_bytes_does_not_make_a_stream(tmp_path: Path) -> None:
    file = StreamFile()
    file.output(file.wide(file.norm(file.input(1, 9, 20), 20)), (1, 9, 20))
    graph, values, _ = loaded(file.model(), tmp_path)
    compiled, _ = run(graph, WIDE, values)
    assert "a norm of int8 must make int8, not 16 bits" in " ".join(compiled.code.host_reasons.values())


def test_widening_follows_a_layer_tile_by_tile(tmp_path: Path) -> None:
    graph, values, _ = loaded(sums_only(50, 24), tmp_path)
    compiled, _ = run(graph, WIDE, values)
    layers = [layer.kind for layer in compiled.report().layers]
    assert layers == [
        "widen",
        "requant",
        "dense",
        "widen",
        "e32_add",
        "requant",
        "dense",
        "widen",
        "e32_add",
        "requant",
    ]


@pytest.mark.parametrize("gain", [np.inf, np.nan, 3e38])
def test_what_a_norm_without_a_bound_makes_is_added_by_the_host(gain: float, tmp_path: Path) -> None:
    file = StreamFile()
    stream = file.wide(file.input(1, 6, 8))
    constants = [file.constant(np.full(8, value, np.float32)) for value in (gain, 0)]
    normal = file.wide(file.node("LayerNormalization", stream, *constants, axis=-1))
    file.output(file.wide(file.node("Add", stream, normal)), (1, 6, 8))
    graph, _, _ = loaded(file.model(), tmp_path)
    assert not [node for node in graph.nodes if isinstance(node, ir.Elementwise)]


def test_a_sum_that_could_saturate_is_the_hosts(tmp_path: Path) -> None:
    file = StreamFile()
    stream = file.wide(file.input(1, 6, 8, scale=0.4))
    file.output(file.wide(file.node("Add", stream, stream)), (1, 6, 8), 0.5)
    graph, x, wanted = loaded(file.model(), tmp_path)
    compiled, result = run(graph, WIDE, x)
    assert [reason for reason in compiled.code.host_reasons.values() if reason.startswith("its sums must fit 16 bits")]
    assert differences(result, wanted) == (0, 0)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-5])
def test_a_norm_that_could_be_more_than_a_step_off_is_the_hosts(epsilon: float, tmp_path: Path) -> None:
    """The term of epsilon is a whole number, which is coarse for short rows that hardly vary."""
    file = StreamFile()
    file.output(file.wide(file.norm(file.wide(file.input(1, 6, 7)), 7, epsilon)), (1, 6, 7))
    graph, x, wanted = loaded(file.model(), tmp_path)
    compiled, result = run(graph, WIDE, x)
    reasons = [reason for reason in compiled.code.host_reasons.values() if "gains must be below" in reason]
    assert len(reasons) == (epsilon == 1e-5)
    assert differences(result, wanted)[0] <= 1


def test_int32_sums_are_no_stream(tmp_path: Path) -> None:
    """A norm that reads a product's sums in float is the host's: they may have more than 16 bits."""
    file = StreamFile()
    weights = file.constant(file.rng.integers(-127, 128, (200, 24)).astype(np.int8))
    sums = file.node("MatMul", file.input(1, 6, 200), file.real(weights, 0.01))
    file.output(file.norm(sums, 24), (1, 6, 24))
    graph, x, wanted = loaded(file.model(), tmp_path)
    compiled, result = run(graph, WIDE, x)
    assert "layernormalization" in [node.op for node in compiled.graph.nodes if isinstance(node, ir.Host)]
    assert differences(result, wanted)[0] <= 1


def test_a_long_way_of_moves_is_followed(tmp_path: Path) -> None:
    """Intervals are those of the first tensor, however far away it is."""
    file = StreamFile()
    stream = file.wide(file.input(1, 4, 8))
    for _ in range(2000):
        stream = file.node("Transpose", stream, perm=[0, 2, 1])
    file.output(file.wide(file.node("Add", stream, file.random(1, 4, 8))), (1, 4, 8))
    graph, _, _ = loaded(file.model(), tmp_path)
    assert [node.op for node in graph.nodes if isinstance(node, ir.Elementwise)] == ["e32_add"]


def test_a_saved_program_runs_again(tmp_path: Path) -> None:
    _, values, _ = loaded(pre_norm(), tmp_path)
    compiled = compile_network(tmp_path / "streams.onnx", WIDE, effort=0)
    result = compiled.run(values)
    compiled.save(tmp_path / "program.dtp")
    again = load_program(tmp_path / "program.dtp").run(values)
    for name, value in result.outputs.items():
        np.testing.assert_array_equal(again.outputs[name], value)


def test_streams_on_two_accelerators(tmp_path: Path) -> None:
    graph, _, _ = loaded(sums_only(64, 32), tmp_path)
    check_outputs(plan_network(graph, system_of(WIDE, replace(WIDE, oc_lanes=8)), effort=0))
