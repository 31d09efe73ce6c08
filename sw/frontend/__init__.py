"""Front ends: `load` turns a network file, or a `zoo:` name, into a `Graph`."""

from __future__ import annotations

from pathlib import Path

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite import is_tflite, load_tflite
from dovetail.sw.graph import Graph

ZOO = "zoo:"
"""Prefix of the built-in networks."""


def load(path: str | Path) -> Graph:
    """Read a quantised network.

    Parameters
    ----------
    path: a `.tflite` or `.onnx` file (told apart by content), or `zoo:name?parameter=value&...`.

    Raises
    ------
    NetworkError: one line that says what is wrong and what to do.
    """
    text = str(path)
    if text.startswith(ZOO):
        from dovetail.sw.zoo import model_bytes

        return _load_onnx(model_bytes(text[len(ZOO) :]), text, None)
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise NetworkError(f"{path}: must be a readable file, not: {error.strerror}") from error
    if not data:
        raise NetworkError(f"{path}: must be a TFLite or ONNX file, not an empty file")
    if is_tflite(data):
        return load_tflite(data, file.stem)
    return _load_onnx(data, file.stem, file.parent)


def _load_onnx(data: bytes, name: str, folder: Path | None) -> Graph:
    # Imported late: reading a TFLite file should not wait for protobuf.
    from dovetail.sw.frontend.onnx import load_onnx

    return load_onnx(data, name, folder)
