"""Float TFLite networks as ONNX, the form in which networks are quantised."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import TfliteFile
from dovetail.sw.frontend.tflite.floats.convolution import CONVOLUTIONS
from dovetail.sw.frontend.tflite.floats.elementwise import ELEMENTWISE
from dovetail.sw.frontend.tflite.floats.movement import MOVEMENT
from dovetail.sw.frontend.tflite.floats.pooling import POOLINGS
from dovetail.sw.frontend.tflite.floats.writer import Write, Writer
from dovetail.sw.frontend.tflite.variables import RESOURCE_OPERATORS

OPERATORS: Mapping[str, Write] = {
    **CONVOLUTIONS,
    **POOLINGS,
    **ELEMENTWISE,
    **MOVEMENT,
}
_WAY_OUT = "replace it, or convert the network to int8 with TensorFlow's converter"


def to_onnx(file: TfliteFile, name: str) -> onnx.ModelProto:
    """A float network with the inputs and outputs of the TFLite file: names, shapes, element types.

    Weights that the file holds in 8 bits or float16 are float32 in the result; activations must be float32.

    Raises
    ------
    NetworkError: an operator is not one of `OPERATORS` or is used in a way that has no counterpart in ONNX; the text
        names it. A malformed file may raise anything else.
    """
    writer = Writer(file)
    for op in file.operators:
        if op.kind in RESOURCE_OPERATORS or any(index >= 0 and file.infos[index].variable for index in op.inputs):
            raise NetworkError(f"{op.name}: a float network must have no variables to be quantised; {_WAY_OUT}")
        if op.kind not in OPERATORS:
            raise NetworkError(f"{op.name}: operator must be one that Dovetail can write in ONNX, not this; {_WAY_OUT}")
        OPERATORS[op.kind](writer, op)
    model = _with_inferred_outputs(writer.model(name))
    onnx.checker.check_model(model, full_check=True)
    return model


def _with_inferred_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with its outputs' shapes as they follow from its inputs': what the file says may be a placeholder."""
    open_ended = onnx.ModelProto()
    open_ended.CopyFrom(model)
    for value in open_ended.graph.output:
        value.type.tensor_type.ClearField("shape")
    inferred = onnx.shape_inference.infer_shapes(open_ended, strict_mode=True, data_prop=True)
    for value, found in zip(model.graph.output, inferred.graph.output, strict=True):
        shape = found.type.tensor_type.shape
        if found.type.tensor_type.HasField("shape") and all(dim.dim_value > 0 for dim in shape.dim):
            value.type.tensor_type.shape.CopyFrom(shape)
    return model
