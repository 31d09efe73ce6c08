"""Front ends, step by step: `read` a file, `parse` it, take its graph through the passes. `load` does all of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dovetail.sw.errors import NetworkError
from dovetail.sw.files.portable import is_portable, unpack
from dovetail.sw.frontend.parsed_file import NetworkFile, ParsedFile, Shapes
from dovetail.sw.network.ir import Graph
from dovetail.sw.passes.integer.simplify import simplify

ZOO = "zoo:"
"""Prefix of the built-in networks."""


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
    file = network if isinstance(network, NetworkFile) else read(network)
    return simplify(parse(file, shapes).graph)


def read(path: str | Path, states: Mapping[str, str] | None = None) -> NetworkFile:
    """A TFLite or ONNX file, by itself or in a portable network file, or a `zoo:` network.

    ``states``: input -> output of each variable of an ONNX file; None: as the file says.

    Raises NetworkError.
    """
    file = _read(path)
    if states is not None and is_tflite(file.data):
        raise NetworkError(f"{path}: states must be of an ONNX file; a TFLite file says itself what its variables are")
    return file if states is None else replace(file, states=states)


def _read(path: str | Path) -> NetworkFile:
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


def is_tflite(data: bytes) -> bool:
    """Whether the bytes carry the TFLite file identifier."""
    return data[4:8] == b"TFL3"
