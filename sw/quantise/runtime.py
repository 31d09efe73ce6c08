"""ONNX networks in ONNX Runtime, with a view of their inner tensors."""

from __future__ import annotations

import onnx
from onnxruntime import InferenceSession, SessionOptions

from dovetail.sw.layout import Array
from dovetail.sw.quantise.samples import Sample


class Session:
    """A network in ONNX Runtime with some of its inner tensors as outputs, too."""

    def __init__(self, model: onnx.ModelProto, extra: tuple[str, ...]) -> None:
        seen = with_outputs(model, extra)
        options = SessionOptions()
        options.log_severity_level = 4
        self._session = InferenceSession(seen.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self._names = [value.name for value in seen.graph.output]

    def run(self, inputs: Sample) -> dict[str, Array]:
        """Outputs by name."""
        return dict(zip(self._names, self._session.run(self._names, dict(inputs)), strict=True))


def with_outputs(model: onnx.ModelProto, extra: tuple[str, ...]) -> onnx.ModelProto:
    """A copy of a network with some of its inner tensors as outputs, too."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in extra if name not in known)
    return copy
