"""The built-in networks: sizes, determinism, and ONNX Runtime on the same file."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from dovetail.sw import graph as ir
from dovetail.sw import reference, zoo
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend import load

MACS = {
    "mobilenet_v1": 568_741_376,
    "mobilenet_v1?width=0.25&resolution=128": 13_570_304,
    "resnet8": 12_501_632,
    "dscnn": 2_656_768,
    "autoencoder": 264_192,
}


def unsigned(data: bytes) -> bytes:
    """The same network with uint8 activations, zero points + 128: all of it fuses to integer kernels."""
    model = onnx.load_model_from_string(data)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    zeros = {
        node.input[2]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear" or (node.op_type == "DequantizeLinear" and node.input[0] not in constants)
    }
    for name in zeros:
        value = numpy_helper.to_array(constants[name]).astype(np.int16) + 128
        constants[name].CopyFrom(numpy_helper.from_array(value.astype(np.uint8), name))
    for port in [*model.graph.input, *model.graph.output]:
        port.type.tensor_type.elem_type = TensorProto.UINT8
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("name", MACS)
def test_evaluation_equals_onnx_runtime(name: str) -> None:
    graph = load(f"zoo:{name}")
    assert graph.total_macs == MACS[name]
    data = unsigned(zoo.model_bytes(name))
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for _ in range(1 if name == "mobilenet_v1" else 3):
        x = rng.integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
        expected = session.run(None, {"input": (x.astype(np.int16) + 128).astype(np.uint8)})[0]
        assert np.array_equal(reference.run(graph, x)["output"], expected.astype(np.int16) - 128)


@pytest.mark.parametrize("name", ["resnet8", "dscnn", "autoencoder", "mobilenet_v1?width=0.25&resolution=128"])
def test_activations_use_the_int8_range_and_nothing_needs_the_host(name: str) -> None:
    graph = load(f"zoo:{name}")
    assert not [node.name for node in graph.nodes if isinstance(node, ir.Host)]
    x = np.random.default_rng(1).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    tensors = reference.evaluate(graph, graph.bind(x), keep_all=True)
    for node in graph.nodes:
        result = tensors[node.outputs[0]]
        assert result.std() > 12, node.name
        assert (result == 127).mean() < 0.25, node.name


def test_files_are_deterministic_and_valid() -> None:
    data = zoo.model_bytes("resnet8")
    assert data == zoo.model_bytes("resnet8")
    assert data != zoo.model_bytes("resnet8?seed=9")
    onnx.checker.check_model(onnx.load_model_from_string(data), full_check=True)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("vgg19", "zoo network must be one of mobilenet_v1, resnet8, dscnn, autoencoder, not 'vgg19'"),
        ("resnet8?depth=3", "parameter of zoo:resnet8 must be one of classes, seed, not 'depth'"),
        ("mobilenet_v1?width=wide", "width must be of type float, not 'wide'"),
        ("mobilenet_v1?resolution=7", "resolution must be 32..1024, not 7"),
    ],
)
def test_unknown_names_and_values(name: str, rule: str) -> None:
    with pytest.raises(NetworkError, match=rule):
        load(f"zoo:{name}")
