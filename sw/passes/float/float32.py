"""Pass: half and double precision become float32."""

from __future__ import annotations

import numpy as np
import onnx_ir as oir

_OTHER = (oir.DataType.FLOAT16, oir.DataType.BFLOAT16, oir.DataType.DOUBLE)


def to_float32(model: oir.Model) -> bool:
    """All tensors of another float type, inputs and outputs too, are float32; so are the results of Cast."""
    graph, changed = model.graph, False
    for value in [*graph.inputs, *graph.initializers.values(), *(out for node in graph for out in node.outputs)]:
        if value.const_value is not None and value.const_value.dtype in _OTHER:
            array = value.const_value.numpy().astype(np.float32)
            value.const_value = oir.tensor(array, name=value.name)
            changed = True
        if value.dtype in _OTHER:
            value.dtype = oir.DataType.FLOAT
            changed = True
    for node in graph:
        for name, attribute in list(node.attributes.items()):
            if node.op_type == "Cast" and name == "to" and oir.DataType(attribute.as_int()) in _OTHER:
                node.attributes["to"] = oir.AttrInt64("to", int(oir.DataType.FLOAT))
                changed = True
            elif attribute.type == oir.AttributeType.TENSOR and attribute.as_tensor().dtype in _OTHER:
                array = attribute.as_tensor().numpy().astype(np.float32)
                node.attributes[name] = oir.AttrTensor(name, oir.tensor(array))
                changed = True
    return changed
