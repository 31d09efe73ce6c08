"""TFLite networks against what TFLite Micro computed for them, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load
from dovetail.sw.host.kernels import TfliteOp
from dovetail.sw.network import ir, reference

MODELS = Path(__file__).parents[3].parent / "shared" / "models"
NETWORKS = {
    "mlperf_tiny/ic_resnet8/resnet8": 12_501_632,
    "mlperf_tiny/vww_mobilenet_v1_025/vww": 7_489_664,
    "mlperf_tiny/kws_dscnn/kws": 2_656_768,
    "mlperf_tiny/ad_autoencoder/ad": 264_192,
    "imagenet/mobilenet_v1_0.25_128/mobilenet_v1_0.25_128": 13_570_304,
    "imagenet/mobilenet_v1_1.0_224/mobilenet_v1_1.0_224": 568_741_376,
}

needs_models = pytest.mark.skipif(not MODELS.exists(), reason="reference networks are not here")


def network(stem: str) -> ir.Graph:
    return load(MODELS / f"{stem}_int8.tflite")


def compare(stem: str, samples: slice) -> None:
    graph = network(stem)
    folder = (MODELS / stem).parent
    inputs = np.load(folder / "samples.npz")["x"][samples]
    expected = np.load(folder / "reference.npz")
    for index, x in enumerate(inputs):
        tensors = reference.evaluate(graph, graph.bind(x), keep_all=True)
        output = graph.unbind(tensors)[graph.outputs[0].name]
        assert np.array_equal(output.ravel(), expected["tflm_out"][samples][index].ravel())
        if "tflm_logits" in expected:
            logits = tensors[graph.nodes[-1].inputs[0]]
            assert np.array_equal(logits.ravel(), expected["tflm_logits"][samples][index].ravel())


@needs_models
@pytest.mark.parametrize("stem", NETWORKS)
def test_outputs_equal_tflite_micro(stem: str) -> None:
    compare(stem, slice(0, 2))


@needs_models
@pytest.mark.slow
@pytest.mark.parametrize("stem", NETWORKS)
def test_all_outputs_equal_tflite_micro(stem: str) -> None:
    compare(stem, slice(2, None))


@needs_models
@pytest.mark.parametrize("stem", NETWORKS)
def test_every_layer_equals_tflite_micro(stem: str) -> None:
    graph = network(stem)
    folder = (MODELS / stem).parent
    layers = np.load(folder / "layer_dump.npz")
    x = np.load(folder / "samples.npz")["x"][0]
    tensors = reference.evaluate(graph, graph.bind(x), keep_all=True)
    nodes = {node.name: node for node in graph.nodes}
    assert len(layers.files) > 5
    for key in layers.files:
        if key != "input":
            assert np.array_equal(tensors[nodes[key].outputs[0]].ravel(), layers[key].ravel()), key


@needs_models
@pytest.mark.parametrize(("stem", "macs"), NETWORKS.items())
def test_macs(stem: str, macs: int) -> None:
    assert network(stem).total_macs == macs


@needs_models
def test_only_the_softmax_stays_on_the_host() -> None:
    graph = network("mlperf_tiny/ic_resnet8/resnet8")
    hosted = [node for node in graph.nodes if isinstance(node, ir.Host)]
    assert [node.label for node in hosted] == ["softmax"]
    assert isinstance(hosted[0].payload, TfliteOp)


@needs_models
@pytest.mark.parametrize(
    ("file", "rule"),
    [
        ("mlperf_tiny/kws_dscnn/kws_hybrid.tflite", "must be quantised to int8, not float; `dovetail quantise"),
        ("mlperf_tiny/ad_autoencoder/ad_float.tflite", "must be quantised to int8, not float; `dovetail quantise"),
    ],
)
def test_other_number_formats_are_refused_with_a_way_out(file: str, rule: str) -> None:
    with pytest.raises(NetworkError, match=rule):
        load(MODELS / file)


def test_missing_empty_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="must be a readable file"):
        load(tmp_path / "nothing.tflite")
    with pytest.raises(NetworkError, match="must be a readable file"):
        load(tmp_path)
    empty = tmp_path / "empty.tflite"
    empty.write_bytes(b"")
    with pytest.raises(NetworkError, match="not an empty file"):
        load(empty)
    foreign = tmp_path / "foreign.tflite"
    foreign.write_bytes(b"#!/bin/sh\necho hello\n")
    with pytest.raises(NetworkError, match="must be a complete TFLite or ONNX file"):
        load(foreign)
    header = tmp_path / "header.tflite"
    header.write_bytes(b"\x1c\0\0\0TFL3")
    with pytest.raises(NetworkError, match="the file must be a sound flatbuffer: Model leads to 0x1c, outside of"):
        load(header)


@needs_models
def test_damaged_files_never_leak_a_traceback(tmp_path: Path) -> None:
    data = (MODELS / "mlperf_tiny/kws_dscnn/kws_int8.tflite").read_bytes()
    rng = np.random.default_rng(0)
    file = tmp_path / "damaged.tflite"
    refused = 0
    for trial in range(120):
        damaged = bytearray(data[: rng.integers(1, len(data))] if trial % 2 else data)
        for _ in range(8):
            damaged[rng.integers(0, min(len(damaged), 4000))] = rng.integers(0, 256)
        file.write_bytes(damaged)
        try:
            load(file)
        except NetworkError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 60
