"""Writes TFLite files of several operators, subgraphs and variables, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.sw.network.layout import Array

Operator = schema.BuiltinOperator
_TYPES = {
    "float32": schema.TensorType.FLOAT32,
    "int8": schema.TensorType.INT8,
    "uint8": schema.TensorType.UINT8,
    "int16": schema.TensorType.INT16,
    "int32": schema.TensorType.INT32,
    "int64": schema.TensorType.INT64,
    "resource": schema.TensorType.RESOURCE,
}


def options(kind: str, **values: Any) -> Any:
    """Options of an operator: the schema's `kind` with these members."""
    made = getattr(schema, f"{kind}T")()
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Writer:
    """Collects tensors and operators; ``subgraph`` starts another one."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.buffers, self.model.operatorCodes, self.model.subgraphs = [schema.BufferT()], [], []
        self.subgraph()

    def subgraph(self) -> None:
        """What follows is of a subgraph of its own."""
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.model.subgraphs.append(self.graph)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "int8",
        scale: float | Sequence[float] | None = 0.05,
        zero: int = 0,
        *,
        name: str = "",
        variable: bool = False,
        signature: Sequence[int] | None = None,
    ) -> int:
        """An activation; its index."""
        made = schema.TensorT()
        made.name = name or f"t{len(self.graph.tensors)}"
        made.shape, made.shapeSignature = list(shape), None if signature is None else list(signature)
        made.type, made.buffer, made.isVariable, made.quantization = _TYPES[dtype], 0, variable, None
        if scale is not None:
            scales = [scale] if isinstance(scale, float) else list(scale)
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = scales, [zero] * len(scales)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, value: Array, scale: float | Sequence[float] | None = None, zero: int = 0) -> int:
        """A constant; its index."""
        index = self.tensor(value.shape, str(value.dtype), scale, zero)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(value.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        self.graph.tensors[index].buffer = len(self.model.buffers) - 1
        return index

    def op(
        self,
        code: int | str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        option: Any = None,
        *,
        custom: bytes = b"",
        intermediates: Sequence[int] = (),
        version: int = 1,
    ) -> None:
        """An operator; ``code`` is a custom one's name."""
        opcode, made = schema.OperatorCodeT(), schema.OperatorT()
        builtin = Operator.CUSTOM if isinstance(code, str) else code
        opcode.builtinCode, opcode.deprecatedBuiltinCode, opcode.version = builtin, min(builtin, 127), version
        opcode.customCode = code if isinstance(code, str) else None
        self.model.operatorCodes.append(opcode)
        made.opcodeIndex, made.inputs, made.outputs = len(self.model.operatorCodes) - 1, list(inputs), list(outputs)
        made.intermediates = list(intermediates) or None
        made.builtinOptions, made.builtinOptionsType = option, 0
        if option is not None:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, type(option).__name__.removesuffix("T"))
        if custom:
            made.customOptions = np.frombuffer(custom, np.uint8)
        self.graph.operators.append(made)

    def data(self) -> bytes:
        """The file."""
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())
