"""Sizes of inputs that a network file leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import is_tflite

Shapes = Mapping[str, Sequence[int]]
"""Input name -> sizes."""


def with_shapes(data: bytes, name: str, shapes: Shapes | None) -> bytes:
    """A network file with inputs of these sizes, and a batch of 1 where it is open; as it is if they are fixed.

    Raises
    ------
    NetworkError: the file is malformed or TFLite, an axis stays open, or ``shapes`` do not fit its inputs.
    """
    if is_tflite(data):
        if not shapes:
            return data
        raise NetworkError(f"{name}: shapes must be of an ONNX file's inputs; a TFLite file fixes its own")
    # Imported late: reading a TFLite file should not wait for protobuf.
    from dovetail.sw.frontend.onnx.file import parse_model
    from dovetail.sw.passes.float.model_proto import fix_inputs

    model = parse_model(data, name, None)
    try:
        changed = fix_inputs(model, shapes or {})
        return bytes(model.SerializeToString(deterministic=True)) if changed else data
    except NetworkError:
        raise
    except Exception as error:  # a damaged file fails anywhere in protobuf's accessors
        raise NetworkError(f"{name}: ONNX file must be well formed, not damaged ({error!r})") from error
