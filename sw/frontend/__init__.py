"""Front ends: `load` turns a network file, or a `zoo:` name, into a `Graph`."""

from __future__ import annotations

from pathlib import Path

from dovetail.sw.errors import NetworkError
from dovetail.sw.files.portable import is_portable, unpack
from dovetail.sw.frontend.open_shapes import Shapes, with_shapes
from dovetail.sw.frontend.tflite.file import is_tflite
from dovetail.sw.frontend.tflite.importer import load_tflite
from dovetail.sw.network.ir import Graph
from dovetail.sw.passes import integer

ZOO = "zoo:"
"""Prefix of the built-in networks."""


def load(path: str | Path, shapes: Shapes | None = None) -> Graph:
    """Read a quantised network.

    Parameters
    ----------
    path: a `.tflite`, `.onnx` or portable network file (told apart by content), or `zoo:name?parameter=value&...`.
    shapes: input name -> sizes, for axes that an ONNX file leaves open. The batch is 1 where nothing is said.

    Raises
    ------
    NetworkError: one line that says what is wrong and what to do.
    """
    name, data = read(path)
    return parse(with_shapes(data, name, shapes), name, Path(path).parent)


def read(path: str | Path) -> tuple[str, bytes]:
    """(name, bytes) of a TFLite or ONNX file, by itself or in a portable network file, or of a `zoo:` network.

    Raises NetworkError.
    """
    text = str(path)
    if text.startswith(ZOO):
        from dovetail.sw.zoo.catalogue import model_bytes

        return text, model_bytes(text[len(ZOO) :])
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NetworkError(f"{path}: must be a readable file, not: {error.strerror}") from error
    if not data:
        raise NetworkError(f"{path}: must be a TFLite or ONNX file, not an empty file")
    if is_portable(data):
        portable = unpack(data, text)
        return portable.name, portable.data
    return Path(path).stem, data


def parse(data: bytes, name: str, folder: Path | None) -> Graph:
    """The graph of a network file's bytes, after all passes; `folder` is where an ONNX file's external data lies.

    Raises NetworkError.
    """
    return integer.run(load_tflite(data, name) if is_tflite(data) else _load_onnx(data, name, folder))


def _load_onnx(data: bytes, name: str, folder: Path | None) -> Graph:
    # Imported late: reading a TFLite file should not wait for protobuf.
    from dovetail.sw.frontend.onnx.importer import load_onnx

    return load_onnx(data, name, folder)
