"""The six trained networks, compiled and run on the model, equal the reference runtimes byte for byte."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from dovetail.isa.config.resolved import Config
from dovetail.sw import frontend
from dovetail.sw.network import ir
from dovetail.sw.runtime.compiled_network import CompiledNetwork, compile_network

MODELS = Path(__file__).parents[4] / "shared" / "models"
NETWORKS = {
    "resnet8": "mlperf_tiny/ic_resnet8/resnet8",
    "vww": "mlperf_tiny/vww_mobilenet_v1_025/vww",
    "kws": "mlperf_tiny/kws_dscnn/kws",
    "ad": "mlperf_tiny/ad_autoencoder/ad",
    "mobilenet_0.25_128": "imagenet/mobilenet_v1_0.25_128/mobilenet_v1_0.25_128",
    "mobilenet_1.0_224": "imagenet/mobilenet_v1_1.0_224/mobilenet_v1_1.0_224",
}
FORMATS = {"tflite": ("_int8.tflite", "tflm"), "onnx": ("_int8_qdq.onnx", "ort_u8")}
CONFIG = Config(ic_lanes=8, oc_lanes=8, sram="512 KiB")

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="the trained networks are not beside the project")


def final_tensor(graph: ir.Graph) -> str:
    """The accelerator's last result: the logits where a softmax follows, else the network's output."""
    hosts = [node for node in graph.nodes if isinstance(node, ir.Host)]
    if not hosts:
        return graph.outputs[0].tensor
    return next(node.inputs[0] for node in hosts)


def compare(name: str, kind: str, config: Config, samples: int | None) -> tuple[CompiledNetwork, float]:
    """Run samples, compare each result with the reference; the compiled network and its top-1 hits in per cent."""
    stem = MODELS / NETWORKS[name]
    suffix, key = FORMATS[kind]
    compiled = compile_network(f"{stem}{suffix}", config)
    reference = np.load(stem.parent / "reference.npz")
    wanted = reference[f"{key}_logits" if f"{key}_logits" in reference else f"{key}_out"]
    data = np.load(stem.parent / "samples.npz")
    tensor = final_tensor(compiled.graph)
    hits = 0
    inputs = data["x"][:samples]
    for x, want, label in zip(inputs, wanted, data["y"], strict=False):
        got = compiled.run(x[None]).tensors[tensor].ravel()
        np.testing.assert_array_equal(got, want.ravel())
        hits += int(got.argmax()) == int(label) + (got.size == 1001)
    return compiled, hits / len(inputs)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_equals_the_reference_runtime(name: str, kind: str) -> None:
    compare(name, kind, CONFIG, 2)


def compare_unsigned(name: str, samples: int | None) -> None:
    """A file of uint8 activations and asymmetric weights, fed with x + 128, against LiteRT's reference kernels."""
    stem = MODELS / NETWORKS[name]
    compiled = compile_network(f"{stem}_uint8_qat.tflite", CONFIG)
    wanted = np.load(stem.parent / "reference.npz")["uint8_litert_ref_out"]
    assert [reason for reason in compiled.code.host_reasons if "SOFTMAX" not in reason] == []
    for x, want in zip(np.load(stem.parent / "samples.npz")["x"][:samples], wanted, strict=False):
        (got,) = compiled.run(x[None].view(np.uint8) ^ np.uint8(128)).outputs.values()
        np.testing.assert_array_equal(got.ravel(), want)


def test_a_uint8_network_equals_the_reference_runtime() -> None:
    compare_unsigned("mobilenet_0.25_128", 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_0.25_128", "mobilenet_1.0_224"])
def test_every_sample_of_a_uint8_network_equals_the_reference_runtime(name: str) -> None:
    compare_unsigned(name, None)


ACCURACY = {"resnet8": 0.775, "vww": 0.917, "kws": 0.940, "mobilenet_0.25_128": 0.467, "mobilenet_1.0_224": 0.933}
"""Top-1 of TFLite Micro on the samples, from the data set's README."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_sample_equals_the_reference_runtime(name: str, kind: str) -> None:
    _, accuracy = compare(name, kind, CONFIG, None)
    if name in ACCURACY and kind == "tflite":
        assert round(accuracy, 3) == ACCURACY[name]


@pytest.mark.slow
@pytest.mark.parametrize("depthwise", ["none", "emulated"])
def test_other_depthwise_scenarios_give_the_same_bytes(depthwise: str) -> None:
    compare("vww", "tflite", Config(ic_lanes=16, oc_lanes=4, depthwise=depthwise, sram="128 KiB"), 3)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_equals_the_reference_runtime(name: str) -> None:
    stem = MODELS / NETWORKS[name]
    compiled = compile_network(f"{stem}_int8.tflite", CONFIG, keep_tensors=True)
    x = np.load(stem.parent / "samples.npz")["x"][:1]
    tensors = compiled.run(x).tensors
    dump = np.load(stem.parent / "layer_dump.npz")
    nodes = {node.name: node.outputs[0] for node in compiled.graph.nodes}
    compared = [key for key in dump.files if key in nodes]
    for key in compared:
        np.testing.assert_array_equal(tensors[nodes[key]].ravel(), dump[key].ravel(), err_msg=key)
    assert len(compared) >= len(dump.files) - 1  # a reshape may have vanished


def test_mac_counts_are_those_of_the_layer_tables() -> None:
    for stem in NETWORKS.values():
        rows = csv.DictReader((MODELS / stem).parent.joinpath("layers.csv").open())
        assert frontend.load(f"{MODELS / stem}_int8.tflite").total_macs == sum(int(row["macs"]) for row in rows)


def test_mobilenet_schedule_is_close_to_the_roofline() -> None:
    compiled = compile_network(f"{MODELS / NETWORKS['mobilenet_1.0_224']}_int8.tflite", CONFIG)
    report = compiled.report()
    assert report.bound == 568_741_376 // 64
    assert report.over_bound <= 1.11
