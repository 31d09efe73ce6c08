"""Front ends, step by step: `read` a file, `parse` it, take its graph through the passes. `load` does all of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dovetail.sw.errors import NetworkError
from dovetail.sw.files.portable import is_portable, unpack
from dovetail.sw.frontend.parsed_file import NetworkFile, ParsedFile, Shapes
from dovetail.sw.network.ir import Graph
from dovetail.sw.passes.integer.simplify import simplify

ZOO = "zoo:"
"""Prefix of the built-in networks."""

_PYTORCH = (".pt", ".pt2", ".pth")
"""Endings of PyTorch's files, which are zip archives, too."""

Network = str | Path | NetworkFile | Any
"""What `read` takes; among others are PyTorch's modules and exported programs, whose types need PyTorch."""


def load(network: str | Path | NetworkFile, shapes: Shapes | None = None) -> Graph:
    """Read a quantised network.

    Parameters
    ----------
    network: a `.tflite`, `.onnx` or portable network file (told apart by content), or `zoo:name?parameter=value&...`;
        or a file that has been read.
    shapes: input name -> sizes, for axes that an ONNX file leaves open. The batch is 1 where nothing is said.

    Raises
    ------
    NetworkError: one line that says what is wrong and what to do.
    """
    return simplify(parse(read(network), shapes).graph)


def read(network: Network, states: Mapping[str, str] | None = None, example_inputs: Any = None) -> NetworkFile:
    """A TFLite or ONNX file, by itself or in a portable network file, a `zoo:` network, or one of PyTorch.

    ``states``: input -> output of each variable of an ONNX file; None: as the file says. ``example_inputs``: of a
    PyTorch module (`dovetail.sw.frontend.torch.from_torch`).

    Raises NetworkError.
    """
    file = _read(network, example_inputs)
    if states is not None and is_tflite(file.data):
        raise NetworkError(
            f"{file.name}: states must be of an ONNX file; a TFLite file says itself what its variables are"
        )
    return file if states is None else replace(file, states=states)


def _read(network: Network, example_inputs: Any) -> NetworkFile:
    if is_torch(network):
        # Imported late: other networks do not wait for PyTorch.
        from dovetail.sw.frontend.torch import from_torch

        return from_torch(network, example_inputs)
    if example_inputs is not None:
        raise NetworkError("example_inputs must come with a torch.nn.Module; other networks have their own inputs")
    return network if isinstance(network, NetworkFile) else _read_file(network)


def _read_file(path: str | Path) -> NetworkFile:
    text = str(path)
    if text.startswith(ZOO):
        from dovetail.sw.zoo.catalogue import model_bytes

        return NetworkFile(text, model_bytes(text[len(ZOO) :]))
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NetworkError(f"{path}: must be a readable file, not: {error.strerror}") from error
    if not data:
        raise NetworkError(f"{path}: must be a TFLite or ONNX file, not an empty file")
    if Path(path).suffix in _PYTORCH and is_portable(data):
        raise NetworkError(
            f"{path}: a file of PyTorch must be opened by you, as it may run code; give what torch.export.load returns"
            " to dovetail.quantise or dovetail.compile (extra: torch)"
        )
    if is_portable(data):
        portable = unpack(data, text)
        return NetworkFile(portable.name, portable.data, sample=portable.sample)
    return NetworkFile(Path(path).stem, data, Path(path).parent)


def parse(file: NetworkFile, shapes: Shapes | None = None) -> ParsedFile:
    """Parse a network file; ``shapes``: sizes of inputs that an ONNX file leaves open, by name. An open batch is 1.

    Raises
    ------
    NetworkError: the file is malformed, an axis stays open, ``shapes`` do not fit its inputs, or nothing is left before
        the first unknown operator.
    """
    # Imported late: reading a TFLite file should not wait for protobuf, nor an ONNX file for flatbuffers.
    if is_tflite(file.data):
        from dovetail.sw.frontend.tflite.parsed import ParsedTflite

        return ParsedTflite(file, shapes)
    from dovetail.sw.frontend.onnx.parsed import ParsedOnnx

    return ParsedOnnx(file, shapes)


def is_torch(network: object) -> bool:
    """Whether an object is one of PyTorch's; PyTorch is not imported for that."""
    return any(base.__module__.partition(".")[0] == "torch" for base in type(network).__mro__)


def is_tflite(data: bytes) -> bool:
    """Whether the bytes carry the TFLite file identifier."""
    return data[4:8] == b"TFL3"
