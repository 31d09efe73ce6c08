"""Dumps of a run, and comparison with the reference runtimes layer by layer."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.flows.cli import main
from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.analysis.diff import compare
from dovetail.sw.analysis.dump import INDEX, read_dump, write_dump
from dovetail.sw.errors import NetworkError
from dovetail.sw.network import ir, reference
from dovetail.sw.passes.integer.simplify import simplify
from dovetail.sw.runtime import reference_runtimes
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network

MODELS = Path(__file__).parents[4] / "shared" / "models"
needs_models = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")
CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="64 KiB")
BLOCKS = ("inception_block", "shuffle_block", "attention_block", "hard_swish_block", "mobilenet_v2_block")


def sample_of(graph: ir.Graph) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {port.name: random.integers(-128, 128, port.shape).astype(np.int8) for port in graph.inputs}


def with_one_weight_changed(graph: ir.Graph, layer: str) -> ir.Graph:
    def changed(node: ir.Node) -> ir.Node:
        if node.name != layer or not isinstance(node, ir.Conv | ir.Depthwise):
            return node
        weights = node.weights.copy()
        weights.flat[weights.size // 2] ^= 64
        return replace(node, weights=weights)

    return replace(graph, nodes=tuple(changed(node) for node in graph.nodes))


def run(graph: ir.Graph, sample: dict[str, Any]) -> tuple[CompiledNetwork, Any]:
    compiled = compile_network(graph, CONFIG, keep_tensors=True)
    return compiled, compiled.run(sample)


def averages(path: Path, windows: list[tuple[int, ...]]) -> dict[str, Any]:
    """A file of one average of 2 x 2, uint8 of scale 0.05 and zero point 0, and windows in a row as its input."""
    constants = [numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.uint8(0), "z")]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["real"]),
        helper.make_node("AveragePool", ["real"], ["mean"], "average", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("QuantizeLinear", ["mean", "s", "z"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.UINT8, shape)
        for name, shape in (("x", (1, 1, 2, 2 * len(windows))), ("y", (1, 1, 1, len(windows))))
    ]
    graph = helper.make_graph(nodes, "averages", ports[:1], ports[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    image = np.array(windows, np.uint8).reshape(-1, 2, 2).transpose(1, 0, 2).reshape(1, 1, 2, -1)
    return {"x": image}


# Differences -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCKS)
def test_built_in_networks_equal_onnx_runtime(name: str) -> None:
    source = frontend.parse(frontend.read(f"zoo:{name}"))
    graph = simplify(source.graph)
    sample = sample_of(graph)
    theirs = reference_runtimes.run(graph, source, sample)
    assert (theirs.runtime, theirs.notes) == ("ONNX Runtime on the uint8 form", ())
    _, result = run(graph, sample)
    difference = compare(graph, result.tensors, theirs.tensors)
    assert difference.first is None and not any(one.differing for one in difference.comparisons)
    # What has no name in the file: operands that are rescaled or moved before they are joined.
    assert all("/" in layer for layer in difference.missing)


def test_averages_that_depart_at_ties_alone(tmp_path: Path) -> None:
    """ONNX Runtime's averages depend on the order of a window's bytes, where they are half way between two steps."""
    orders = list(permutations((37, 44, 41, 16)))
    sample = averages(tmp_path / "ties.onnx", [*orders, (37, 44, 41, 17), (1, 2, 3, 3)])
    source = frontend.parse(frontend.read(tmp_path / "ties.onnx"))
    graph = simplify(source.graph)
    theirs = reference_runtimes.run(graph, source, sample)
    (made,) = (theirs.tensors[node.outputs[0]] for node in graph.nodes)
    levels = made.ravel().astype(int) + 128
    assert set(levels[: len(orders)]) == {34, 35}
    _, result = run(graph, sample)
    difference = compare(graph, result.tensors, theirs.tensors)
    assert difference.first is not None and difference.first.differing == np.sum(levels[: len(orders)] == 35)
    (note,) = difference.notes
    count = difference.first.differing
    assert note.startswith(f"average: averages half way between two steps alone differ, {count} of them; ONNX Runtime")
    wrong = {name: value + (name == graph.nodes[0].outputs[0]) for name, value in theirs.tensors.items()}
    assert compare(graph, result.tensors, wrong).notes == ()


@needs_models
@pytest.mark.parametrize("stem", ["mlperf_tiny/ic_resnet8/resnet8", "mlperf_tiny/kws_dscnn/kws"])
@pytest.mark.parametrize(
    ("suffix", "runtime"), [("_int8.tflite", "TFLite Micro"), ("_int8_qdq.onnx", "ONNX Runtime on the uint8 form")]
)
def test_trained_networks_equal_their_runtimes(stem: str, suffix: str, runtime: str) -> None:
    if runtime == "TFLite Micro":
        pytest.importorskip("tflite_micro")
    source = frontend.parse(frontend.read(f"{MODELS / stem}{suffix}"))
    graph = simplify(source.graph)
    sample = sample_of(graph)
    theirs = reference_runtimes.run(graph, source, sample)
    assert theirs.runtime == runtime
    _, result = run(graph, sample)
    difference = compare(graph, result.tensors, theirs.tensors)
    assert difference.first is None and difference.missing == ()


@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_changed_weight_is_found_in_its_layer(place: int) -> None:
    source = frontend.parse(frontend.read("zoo:inception_block"))
    graph = simplify(source.graph)
    layers = [node for node in graph.nodes if isinstance(node, ir.Conv | ir.Depthwise)]
    sample = sample_of(graph)
    theirs = reference_runtimes.run(graph, source, sample)
    _, result = run(with_one_weight_changed(graph, layers[place].name), sample)
    first = compare(graph, result.tensors, theirs.tensors).first
    assert first is not None and (first.layer, first.kind) == (layers[place].name, "conv")
    ours, wanted = (np.asarray(t[first.tensor], np.int16).ravel() for t in (result.tensors, theirs.tensors))
    apart = np.abs(ours - wanted)
    assert (first.differing, first.largest) == (int(np.count_nonzero(apart)), float(apart.max()))
    shape = graph.tensors[first.tensor].shape
    assert first.first == np.unravel_index(np.flatnonzero(apart)[0], shape)
    assert compare(graph, result.tensors, theirs.tensors, 255).first is None


def test_names_mean_the_same_bytes_before_and_after_the_passes() -> None:
    """Which is why the runtime's tensors can be compared by name."""
    for name in BLOCKS:
        before = frontend.parse(frontend.read(f"zoo:{name}")).graph
        after = simplify(before)
        values = [reference.evaluate(g, g.bind(sample_of(g)), keep_all=True) for g in (before, after)]
        shared = set(values[0]) & set(values[1])
        assert len(shared) > len(after.nodes) / 2
        for tensor in shared:
            np.testing.assert_array_equal(values[0][tensor].ravel(), values[1][tensor].ravel(), err_msg=tensor)


def test_litert_stands_in_for_tflite_micro(monkeypatch: pytest.MonkeyPatch) -> None:
    if not MODELS.is_dir():
        pytest.skip("the trained networks are not beside the project")

    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(reference_runtimes, "import_module", absent)
    source = frontend.parse(frontend.read(MODELS / "mlperf_tiny/kws_dscnn/kws_int8.tflite"))
    graph = simplify(source.graph)
    sample = sample_of(graph)
    theirs = reference_runtimes.run(graph, source, sample)
    assert theirs.runtime == "LiteRT, reference kernels"
    assert "rounds FULLY_CONNECTED in another way" in theirs.notes[0]
    difference = compare(graph, reference.evaluate(graph, graph.bind(sample), keep_all=True), theirs.tensors, 1)
    assert difference.first is None and difference.missing == ()


# Files as references -----------------------------------------------------------------------------


@needs_models
def test_layers_of_an_npz_by_node_name() -> None:
    folder = MODELS / "mlperf_tiny" / "ic_resnet8"
    graph = frontend.load(folder / "resnet8_int8.tflite")
    theirs = reference_runtimes.read(graph, folder / "layer_dump.npz")
    assert theirs.notes == (f"{folder / 'layer_dump.npz'}: no tensor or node of the network is named input",)
    x = np.load(folder / "samples.npz")["x"][:1]
    ours = reference.evaluate(graph, graph.bind(x), keep_all=True)
    difference = compare(graph, ours, theirs.tensors)
    assert difference.first is None and len(difference.comparisons) >= 15


@pytest.mark.parametrize(
    ("arrays", "rule"),
    [
        ({"other": np.zeros(3)}, "some array must have the name of a tensor or node of zoo:inception_block, none has"),
        ({"output": np.zeros(3, np.int8)}, "'output' must have 4800 elements, not 3"),
    ],
)
def test_npz_files_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], rule: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)
    with pytest.raises(NetworkError, match=rule):
        reference_runtimes.read(frontend.load("zoo:inception_block"), path)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_text("hello")
    with pytest.raises(NetworkError, match=r"must be an \.npy or \.npz file"):
        reference_runtimes.read(frontend.load("zoo:inception_block"), path)


# Dumps -------------------------------------------------------------------------------------------


def test_norms_that_are_a_step_off_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    network = "zoo:bert_tiny?depth=1&tokens=6&channels=16"
    units = ("--sram", "64KiB", "--softmax", "1", "--norm", "1", "--effort", "0", "--json")
    for exact, notes in (((), 1), (("--exact",), 0)):
        main(["diff", network, *units, *exact])
        data = json.loads(capsys.readouterr().out)
        assert [note.partition(",")[0] for note in data["notes"]] == ["layer0_norm1: equal operands"] * notes
        assert data["equal"] == (not notes)


@pytest.mark.parametrize("name", ["attention_block", "shuffle_block"])
def test_a_dump_holds_every_tensor(tmp_path: Path, name: str) -> None:
    graph = frontend.load(f"zoo:{name}")
    sample = sample_of(graph)
    compiled, result = run(graph, sample)
    entries = write_dump(tmp_path / "deep" / "dump", compiled, result)
    found = read_dump(tmp_path / "deep" / "dump")
    wanted = reference.evaluate(graph, graph.bind(sample), keep_all=True)
    assert set(found) == set(wanted) == set(graph.tensors)
    for tensor, value in found.items():
        assert (value.shape, value.dtype) == (wanted[tensor].shape, wanted[tensor].dtype)
        np.testing.assert_array_equal(value, wanted[tensor])
    index = json.loads((tmp_path / "deep" / "dump" / INDEX).read_text())
    assert [entry["order"] for entry in index["tensors"]] == list(range(len(entries)))
    assert {path.name for path in (tmp_path / "deep" / "dump").iterdir()} == {INDEX, *(e.file for e in entries)}
    kinds = {entry.node: (entry.kind, entry.on) for entry in entries}
    assert kinds[graph.inputs[0].name] == ("input", "host")
    for node in graph.nodes:
        on = "host" if node.name in compiled.code.host_reasons else "accelerator"
        assert isinstance(node, ir.FREE) or kinds[node.name] == (node.op, on)
    by_tensor = {entry.tensor: entry for entry in entries}
    for made in graph.tensors.values():
        scale = None if made.scale is None else float(made.scale)
        assert (by_tensor[made.name].scale, by_tensor[made.name].zero_point) == (scale, made.zero_point)


def test_names_become_safe_for_file_systems(tmp_path: Path) -> None:
    graph = frontend.load("zoo:autoencoder")
    strange = f"../{'ü' * 300}/a:b*?"
    name = graph.nodes[0].outputs[0]
    renamed = replace(
        graph,
        nodes=tuple(
            replace(
                node,
                inputs=tuple(strange if n == name else n for n in node.inputs),
                outputs=tuple(strange if n == name else n for n in node.outputs),
            )
            for node in graph.nodes
        ),
        tensors={
            (strange if key == name else key): replace(t, name=strange if key == name else key)
            for key, t in graph.tensors.items()
        },
    ).check()
    compiled, result = run(renamed, sample_of(renamed))
    entries = write_dump(tmp_path / "dump", compiled, result)
    assert entries[1].tensor == strange
    assert entries[1].file == "001_.._a_b_.npy"
    assert strange in read_dump(tmp_path / "dump")


def test_a_dump_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = frontend.load("zoo:autoencoder")
    compiled, result = run(graph, sample_of(graph))
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep me")
    with pytest.raises(FileExistsError, match="must be empty or absent"):
        write_dump(folder, compiled, result)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]

    calls = []

    def full(path: Path, value: Any) -> None:
        calls.append(path)
        if len(calls) == 3:
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(b"")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        write_dump(tmp_path / "other", compiled, result)
    assert [path.name for path in tmp_path.iterdir()] == ["dump"]


def test_a_dump_of_tensors_that_share_memory_is_refused(tmp_path: Path) -> None:
    compiled = compile_network("zoo:autoencoder", CONFIG)
    result = compiled.run(sample_of(compiled.graph))
    with pytest.raises(NetworkError, match="must be of a network compiled with keep_tensors"):
        write_dump(tmp_path / "dump", compiled, result)
