"""Float networks from files, in the form that the quantiser takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx import external_data_helper, helper

from dovetail.sw.errors import NetworkError, first_line
from dovetail.sw.frontend import read
from dovetail.sw.frontend.onnx.file import check_valid
from dovetail.sw.frontend.onnx.remainder import split_model
from dovetail.sw.frontend.remainder import Remainder, remainder_of, rest_of
from dovetail.sw.frontend.tflite.file import is_tflite
from dovetail.sw.frontend.tflite.floats.convert import to_onnx
from dovetail.sw.passes.float.normalise import normalise


def read_rest(path: str | Path, model: onnx.ModelProto) -> tuple[Remainder, bytes] | None:
    """What of a float network's file is behind ``model``, which `read_float` gave; None if nothing is."""
    _, data = read(path)
    found = remainder_of(data)
    if found is None:
        return None
    forms = {
        value.name: (
            str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)),
            tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
        )
        for value in onnx.shape_inference.infer_shapes(model).graph.output
    }
    return found, rest_of(data, forms)


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
        found = split_model(model)
        if found is not None:
            model = found[0]
        normalised = normalise(model, shapes=shapes)
    except NetworkError as error:
        raise NetworkError(f"{path}: {error}") from error
    check_valid(model, str(path))
    return normalised
