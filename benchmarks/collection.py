"""The networks of `networks.py`: where each comes from, quantised if it is float, and an input for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from dovetail.sw import frontend
from dovetail.sw.frontend.parsed_file import NetworkFile
from dovetail.sw.network.layout import Sample, as_unsigned
from dovetail.sw.quantise.float_network import read_float
from dovetail.sw.quantise.quantiser import quantise
from dovetail.sw.zoo import catalogue

ZOO = ("mobilenet_v1", "mobilenet_v2", "resnet18", "resnet50", "efficientnet_lite0", "vit_tiny", "bert_tiny")
CALIBRATION = 8
"""Samples that ranges are taken from."""


@dataclass(frozen=True)
class Made:
    """A quantised network file, and an input for it, as the file declares it."""

    data: bytes
    sample: Sample


@dataclass(frozen=True)
class Entry:
    """A network: ``group/name``, and how to make it, which may take minutes."""

    group: str
    name: str
    make: Callable[[], Made]

    @property
    def label(self) -> str:
        return f"{self.group}/{self.name}"


def collection(models: Path) -> tuple[list[Entry], list[str]]:
    """All networks, and notes on those that are not there; ``models``: the folder of trained networks."""
    entries, notes = [], []
    for path in sorted(models.glob("*/*/*")):
        if path.suffix in (".tflite", ".onnx"):
            entries.append(_trained(path))
    for path in sorted(models.glob("architectures_only/*.onnx")):
        entries.append(Entry("architectures_only", path.name, partial(_untrained, path)))
    if not entries:
        notes.append(f"Trained networks: left out, there is no folder {models.name} beside the project.")
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for path in sorted(light.glob("light_*.onnx")):
        entries.append(Entry("onnx", path.stem, partial(_light, path)))
    entries += [Entry("zoo", name, partial(_zoo, name)) for name in ZOO]
    return entries, notes


# Where they come from --------------------------------------------------------------------------


def _trained(path: Path) -> Entry:
    """A network with samples beside it, which are those of its int8 TFLite file."""
    if "float" in path.stem or "hybrid" in path.stem:
        return Entry(path.parent.name, path.name, partial(_calibrated, path))

    def make() -> Made:
        data = path.read_bytes()
        graph = frontend.load(NetworkFile(path.stem, data, path.parent))
        (port,) = graph.inputs
        x = _samples(path)[:1].reshape(port.shape)
        return Made(data, {port.name: as_unsigned(x) if port.dtype == "uint8" else x})

    return Entry(path.parent.name, path.name, make)


def _calibrated(path: Path) -> Made:
    """A float network, quantised with its samples."""
    model = read_float(path)
    (integer,) = path.parent.glob("*_int8.tflite")
    (port,) = frontend.load(integer).inputs
    assert port.scale is not None
    reals = (_samples(path)[: CALIBRATION + 1].astype(np.float32) - port.zero_point) * np.float32(port.scale)
    name, shape = _input(model)
    if len(shape) == 4 and shape[1:] != reals.shape[1:]:
        reals = reals.transpose(0, 3, 1, 2)
    samples = [{name: np.ascontiguousarray(x.reshape(shape), np.float32)} for x in reals]
    return _quantised(model, samples)


def _samples(path: Path) -> NDArray[np.int8]:
    with np.load(path.parent / "samples.npz") as archive:
        return np.asarray(archive["x"], np.int8)


def _untrained(path: Path) -> Made:
    """A float network that comes with one input: noise around it calibrates."""
    model = read_float(path)
    with np.load(path.with_name(f"{path.stem}_io.npz")) as archive:
        x = archive["x"]
    random = np.random.default_rng(0)
    name, _ = _input(model)
    noisy = [x + 0.1 * random.standard_normal(x.shape, np.float32) for _ in range(CALIBRATION)]
    return _quantised(model, [{name: value} for value in (*noisy, x)])


def _light(path: Path) -> Made:
    """An architecture of the onnx package: its weights, all of them one number, replaced by random ones."""
    model = randomised(read_float(path), seed=0)
    name, shape = _input(model)
    random = np.random.default_rng(1)
    return _quantised(model, [{name: random.standard_normal(shape, np.float32)} for _ in range(3)])


def _zoo(name: str) -> Made:
    data = catalogue.model_bytes(name)
    (port,) = frontend.load(NetworkFile(name, data)).inputs
    return Made(data, {port.name: np.random.default_rng(0).integers(-128, 128, port.shape).astype(np.int8)})


def _quantised(model: onnx.ModelProto, samples: Sequence[Sample]) -> Made:
    """The last sample is kept from calibration."""
    return Made(bytes(quantise(model, samples[:-1]).SerializeToString()), samples[-1])


def _input(model: onnx.ModelProto) -> tuple[str, tuple[int, ...]]:
    (port,) = model.graph.input
    return port.name, tuple(dim.dim_value for dim in port.type.tensor_type.shape.dim)


# Random weights --------------------------------------------------------------------------------


def randomised(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same network with seeded random numbers for every float constant of more than one element.

    Weights keep the size of activations on average if half of these are zero; other factors are around 1, summands
    around 0.
    """
    random = np.random.default_rng(seed)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    constants = {tensor.name: tensor for tensor in graph.initializer if _is_large(tensor)}
    del graph.initializer[:]
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name not in constants)
    for node in graph.node:
        for index, name in enumerate(node.input):
            if name in constants:
                values = _values(random, node, index, tuple(constants[name].dims))
                node.input[index] = f"{node.name}/{index}"
                graph.initializer.append(numpy_helper.from_array(values, node.input[index]))
    return result


def _is_large(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type == onnx.TensorProto.FLOAT and int(np.prod(tensor.dims)) > 1


def _values(random: np.random.Generator, node: onnx.NodeProto, index: int, shape: tuple[int, ...]) -> NDArray[Any]:
    values = random.standard_normal(shape, np.float32)
    if index == 1 and node.op_type in ("Conv", "Gemm", "MatMul"):
        transposed = node.op_type == "MatMul" or not any(a.name == "transB" and a.i for a in node.attribute)
        fan_in = shape[-2] if node.op_type != "Conv" and transposed else int(np.prod(shape[1:]))
        return values * np.float32(np.sqrt(2 / fan_in))
    return values * np.float32(0.1) + np.float32(node.op_type == "Mul")
