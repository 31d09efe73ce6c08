"""Float networks from files, in the form that the quantiser takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import external_data_helper

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend import read
from dovetail.sw.frontend.tflite_file import is_tflite
from dovetail.sw.frontend.tflite_float import to_onnx
from dovetail.sw.onnx_passes import normalise


def read_float(path: str | Path, shapes: Mapping[str, Sequence[int]] | None = None) -> onnx.ModelProto:
    """A float ONNX or TFLite file as a normalised ONNX network.

    Parameters
    ----------
    path: the file.
    shapes: input name -> sizes, for axes that the file leaves open.

    Raises
    ------
    NetworkError: the file cannot be read, is malformed, or is quantised already.
    """
    name, data = read(path)
    if is_tflite(data):
        return normalise(to_onnx(data, name), shapes=shapes)
    try:
        model = onnx.load_model_from_string(data)
        external_data_helper.load_external_data_for_model(model, str(Path(path).parent))
    except Exception as error:  # protobuf raises several classes, none of them public; also OSError
        reason = first_line(error)
        raise NetworkError(f"{path}: must be a complete float ONNX or TFLite file, not: {reason}") from error
    try:
        return normalise(model, shapes=shapes)
    except NetworkError as error:
        raise NetworkError(f"{path}: {error}") from error
