"""TFLite front end: an 8-bit flatbuffer becomes a `Graph` with TFLite Micro's numerics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from dovetail.isa.numerics.softmax import TFLITE_COLUMNS
from dovetail.sw.errors import NetworkError
from dovetail.sw.frontend.tflite.file import Operator, TfliteFile
from dovetail.sw.frontend.tflite.graph_builder import Build, GraphBuilder
from dovetail.sw.frontend.tflite.operators.convolution import CONVOLUTIONS
from dovetail.sw.frontend.tflite.operators.elementwise import ELEMENTWISE
from dovetail.sw.frontend.tflite.operators.movement import MOVEMENT
from dovetail.sw.frontend.tflite.operators.pooling import POOLINGS
from dovetail.sw.frontend.tflite.remainder import custom_op
from dovetail.sw.frontend.tflite.variables import RESOURCE_OPERATORS, Resources, integer_layer
from dovetail.sw.host.kernels import TfliteOp
from dovetail.sw.host.softmax import TfliteSoftmax
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Layout

BUILDERS: Mapping[str, Build] = {
    **CONVOLUTIONS,
    **POOLINGS,
    **ELEMENTWISE,
    **MOVEMENT,
}
_SIGNED_ONLY = {"MEAN", "ABS", "LEAKY_RELU", "BATCH_MATMUL"}
"""Operators whose uint8 kernels differ from the int8 ones by more than an offset of 128, or may."""
_CONVERSIONS = {"CAST", "QUANTIZE", "DEQUANTIZE"}


class Importer:
    def __init__(self, file: TfliteFile) -> None:
        self.file = file
        self.builder = GraphBuilder(file)
        self.resources = Resources(self.builder)

    def read(self, name: str) -> ir.Graph:
        for index in self.file.inputs:
            self.builder.declare(index)
        for op in self.file.operators:
            self._operator(op)
        return ir.Graph(
            inputs=tuple(self._port(index) for index in self.file.inputs),
            outputs=tuple(self._port(index) for index in self.file.outputs),
            tensors=self.builder.tensors,
            nodes=tuple(self.builder.nodes),
            source="tflite",
            name=name,
            states=tuple(self.builder.states.values()),
        )

    def _port(self, index: int) -> ir.Port:
        tensor = replace(self.file.infos[index].tensor, shape=self.builder.tensor(index).shape)
        return ir.Port(
            name=tensor.name,
            tensor=tensor.name,
            dtype=tensor.dtype,
            scale=tensor.scale,
            zero_point=tensor.zero_point,
            layout=Layout.plain(tensor.shape),
            offset=128 if index in self.builder.signed else 0,
        )

    def _operator(self, op: Operator) -> None:
        if op.kind in RESOURCE_OPERATORS:
            self.resources.walk(op)
            return
        node: ir.Node | None
        if op.kind.startswith("CUSTOM "):
            node = self._custom(op)
        else:
            build = None if self.builder.unsigned and op.kind in _SIGNED_ONLY else BUILDERS.get(op.kind)
            node = build(self.builder, op) if build is not None else None
        node = node if node is not None else self._host(op)
        for index in op.outputs:
            self.builder.declare(index)
        self.builder.nodes.append(node)

    def _host(self, op: Operator) -> ir.Host:
        """Leave an operator to LiteRT's reference kernels."""
        self._check_types(op)
        builder = self.builder
        dynamic = tuple(i for i in op.inputs if i >= 0 and builder.constant(i) is None)
        variables = tuple(i for i in dynamic if builder.infos[i].variable)
        plain = tuple(i for i in dynamic if i not in variables)
        before = builder.names(variables)
        payload: Any = integer_layer(builder, op) if variables else None
        if op.kind == "SOFTMAX":
            payload = self._softmax(op, plain)
        return ir.Host(
            name=op.name,
            inputs=builder.names(plain) + before,
            outputs=builder.names(op.outputs) + tuple(builder.write(i) for i in variables),
            label=op.kind.lower(),
            payload=payload or TfliteOp(self.file.data, op.index, plain, op.outputs, builder.unsigned, variables),
        )

    def _custom(self, op: Operator) -> ir.Host:
        """Leave a custom operator to LiteRT, which also knows the shapes of its results: the file may not."""
        builder, payload = self.builder, custom_op(self.file, op)
        for index, shape in zip(op.outputs, payload.shapes(), strict=True):
            builder.infos[index] = replace(builder.infos[index], tensor=replace(builder.tensor(index), shape=shape))
        return ir.Host(
            name=op.name,
            inputs=builder.names(payload.inputs),
            outputs=builder.names(op.outputs),
            label=op.kind.removeprefix("CUSTOM "),
            payload=replace(payload, unsigned=builder.unsigned),
        )

    def _check_types(self, op: Operator) -> None:
        """LiteRT's kernels assume that integers have scales, and that operands have types that they take."""
        if op.kind in _CONVERSIONS:
            return
        ends = [[self.builder.infos[i] for i in indices if i >= 0] for indices in (op.inputs, op.outputs)]
        read, made = ({info.tensor.dtype for info in part if info.value is None} for part in ends)
        if ("int8" in read and "float32" in made) or ("float32" in read and "int8" in made):
            raise NetworkError(f"{op.name}: must read and make one type, int8 or float32, not one from the other")
        for info in (*ends[0], *ends[1]):
            scaled = bool(info.scales.size) and bool(np.all(np.isfinite(info.scales) & (info.scales > 0)))
            if info.tensor.dtype == "int8" and not scaled:
                raise NetworkError(f"{op.name}: scales of {info.tensor.name!r} must be positive and finite")

    def _softmax(self, op: Operator, plain: tuple[int, ...]) -> TfliteSoftmax | None:
        """The operator on int8 rows; None: LiteRT must run it."""
        builder = self.builder
        source, result = (builder.tensor(indices[0]) for indices in (op.inputs, op.outputs))
        beta, scale = float(op.options(schema.SoftmaxOptions).Beta()), float(source.scale or 1.0)
        if not 2**-26 < beta * scale < np.inf:  # LiteRT's kernel would end the process
            raise NetworkError(f"{op.name}: beta times the input's scale must be above 2**-26, not {beta * scale}")
        known = [(each.dtype, each.shape) for each in (source, result)] == [("int8", source.shape or (0,))] * 2
        unit = (result.scale, result.zero_point) == (np.float32(1 / 256), -128)
        if not known or not unit or plain != op.inputs[:1] or source.shape[-1] > TFLITE_COLUMNS:
            return None
        return TfliteSoftmax(self.file.data, op.index, plain, op.outputs, builder.unsigned, beta=beta, scale=scale)
