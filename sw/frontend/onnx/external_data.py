"""ONNX files whose weights lie in files of their own."""

from __future__ import annotations

from pathlib import Path

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend.tflite.file import is_tflite

_KEY = b"location"
"""Part of every reference to external data."""


def self_contained(data: bytes, name: str, folder: Path) -> bytes:
    """An ONNX file with its external data inside; any other file as it is.

    Raises
    ------
    NetworkError
        The external data are missing, or too large for one file.
    """
    if is_tflite(data) or _KEY not in data:
        return data
    import onnx
    from onnx import external_data_helper

    try:
        model = onnx.load_model_from_string(data)
    except Exception:  # protobuf raises several classes, none of them public; the front end says what is wrong
        return data
    if not any(map(external_data_helper.uses_external_data, model.graph.initializer)):
        return data
    try:
        external_data_helper.load_external_data_for_model(model, str(folder))
        return bytes(model.SerializeToString(deterministic=True))
    except Exception as error:  # as above; also OSError for missing data
        reason = first_line(error)
        raise NetworkError(f"{name}: external data must be beside the file and below 2 GB, not: {reason}") from error
