"""Malformed TFLite networks: what one edit makes of a small int8 one, written here as a flatbuffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

Operator = schema.BuiltinOperator
Edit = Callable[[Any], object]
OPERATORS = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "MEAN", "RESHAPE", "FULLY_CONNECTED", "SOFTMAX")
"""Of the network, in order."""


def network() -> Any:
    """Convolution, depthwise convolution, sum, mean, dense layer, softmax on a (1, 6, 6, 4) input."""
    random = np.random.default_rng(0)
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.buffers, graph.tensors, graph.operators, model.operatorCodes = [schema.BufferT()], [], [], []

    def tensor(*shape: int, scale: float = 0.05, zero: int = 0, data: Any = None) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.type = f"t{len(graph.tensors)}", list(shape), schema.TensorType.INT8
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale, made.quantization.zeroPoint = [scale], [zero]
        made.buffer = 0
        if data is not None:
            made.type = schema.TensorType.INT32 if data.dtype == np.int32 else schema.TensorType.INT8
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            model.buffers.append(buffer)
            made.buffer = len(model.buffers) - 1
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    def constant(*shape: int) -> int:
        return tensor(*shape, scale=0.01, data=random.integers(-127, 128, shape).astype(np.int8))

    def integers(*values: int, scale: float = 0.0005) -> int:
        return tensor(len(values), scale=scale, data=np.array(values, np.int32))

    def operator(name: str, inputs: list[int], result: int, options: Any = None, **values: Any) -> None:
        code, made = schema.OperatorCodeT(), schema.OperatorT()
        number = getattr(Operator, name)
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), 1
        model.operatorCodes.append(code)
        made.opcodeIndex, made.inputs, made.outputs = len(model.operatorCodes) - 1, inputs, [result]
        if options is not None:
            made.builtinOptions = options()
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options.__name__.removesuffix("T"))
            for key, value in values.items():
                setattr(made.builtinOptions, key, value)
        graph.operators.append(made)

    x = tensor(1, 6, 6, 4)
    strides = {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    conv = tensor(1, 6, 6, 4, zero=3)
    operator("CONV_2D", [x, constant(4, 3, 3, 4), integers(1, 2, 3, 4)], conv, schema.Conv2DOptionsT, **strides)
    depthwise = tensor(1, 6, 6, 4)
    sizes = {**strides, "depthMultiplier": 1, "fusedActivationFunction": 1}
    inputs = [conv, constant(1, 3, 3, 4), integers(5, 6, 7, 8)]
    operator("DEPTHWISE_CONV_2D", inputs, depthwise, schema.DepthwiseConv2DOptionsT, **sizes)
    total = tensor(1, 6, 6, 4, scale=0.07)
    operator("ADD", [conv, depthwise], total, schema.AddOptionsT)
    mean = tensor(1, 1, 1, 4, scale=0.06)
    operator("MEAN", [total, integers(1, 2, scale=1)], mean, schema.ReducerOptionsT, keepDims=True)
    flat = tensor(1, 4, scale=0.06)
    operator("RESHAPE", [mean, integers(1, 4, scale=1)], flat, schema.ReshapeOptionsT, newShape=[1, 4])
    dense = tensor(1, 5, scale=0.1)
    operator("FULLY_CONNECTED", [flat, constant(5, 4), integers(*range(5), scale=0.0006)], dense,
             schema.FullyConnectedOptionsT)  # fmt: skip
    result = tensor(1, 5, scale=1 / 256, zero=-128)
    operator("SOFTMAX", [dense], result, schema.SoftmaxOptionsT, beta=1.0)
    graph.inputs, graph.outputs = [x], [result]
    model.version, model.subgraphs = 3, [graph]
    return model


def packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def cases() -> Iterator[tuple[str, bytes]]:
    """(name, file)"""
    for name, edit in EDITS.items():
        model = network()
        edit(model)
        yield f"tflite-{name}", packed(model)


# Edits -----------------------------------------------------------------------------------------


def options(model: Any, operator: int, **values: Any) -> None:
    for name, value in values.items():
        setattr(model.subgraphs[0].operators[operator].builtinOptions, name, value)


def operator(model: Any, index: int, **values: Any) -> None:
    for name, value in values.items():
        setattr(model.subgraphs[0].operators[index], name, value)


def tensor(model: Any, index: int, **values: Any) -> None:
    for name, value in values.items():
        setattr(model.subgraphs[0].tensors[index], name, value)


def scaled(model: Any, index: int, **values: Any) -> None:
    for name, value in values.items():
        setattr(model.subgraphs[0].tensors[index].quantization, name, value)


def graph(model: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(model.subgraphs[0], name, value)


def code(model: Any, index: int, number: int) -> None:
    found = model.operatorCodes[index]
    found.builtinCode, found.deprecatedBuiltinCode = number, min(number, 127)


def custom(model: Any) -> None:
    code(model, 0, Operator.CUSTOM)
    model.operatorCodes[0].customCode = "Frobnicate"


def reverse(model: Any) -> None:
    model.subgraphs[0].operators.reverse()


def repeat(model: Any) -> None:
    model.subgraphs[0].operators.append(model.subgraphs[0].operators[0])


def chain(model: Any, count: int) -> None:
    """Many activations, each with a tensor of its own."""
    found = model.subgraphs[0]
    for _ in range(count):
        last = found.tensors[-1]
        made, link = schema.TensorT(), schema.OperatorT()
        made.name, made.shape, made.type = f"t{len(found.tensors)}", last.shape, last.type
        made.quantization, made.buffer = last.quantization, 0
        found.tensors.append(made)
        link.opcodeIndex, link.inputs, link.outputs = (
            len(model.operatorCodes),
            *([len(found.tensors) - k] for k in (2, 1)),
        )
        found.operators.append(link)
    opcode = schema.OperatorCodeT()
    opcode.builtinCode = opcode.deprecatedBuiltinCode = Operator.RELU
    model.operatorCodes.append(opcode)
    found.outputs = [len(found.tensors) - 1]


def subgraphs(model: Any, count: int) -> None:
    model.subgraphs = model.subgraphs * count


def buffer(model: Any, data: bytes) -> None:
    model.buffers[1].data = np.frombuffer(data, np.uint8)


WEIGHTS, BIAS, ACTIVATION, AXES = 2, 3, 1, 9
"""Indices of tensors: weights and bias of the first convolution, its result, axes of the mean."""
EDITS: dict[str, Edit] = {
    "operator 5000": partial(code, index=0, number=5000),
    "operator -1": partial(code, index=0, number=-1),
    **{
        f"{name} for {was}": partial(code, index=OPERATORS.index(was), number=getattr(Operator, name))
        for was, name in (
            ("CONV_2D", "ADD"),
            ("CONV_2D", "TRANSPOSE_CONV"),
            ("ADD", "CONCATENATION"),
            ("ADD", "PAD"),
            ("ADD", "CONV_2D"),
            ("MEAN", "WHILE"),
            ("MEAN", "TRANSPOSE"),
            ("MEAN", "SPLIT"),
            ("MEAN", "STRIDED_SLICE"),
            ("RESHAPE", "GATHER"),
            ("SOFTMAX", "LOG_SOFTMAX"),
            ("SOFTMAX", "QUANTIZE"),
            ("SOFTMAX", "AVERAGE_POOL_2D"),
        )
    },
    "operator of the user": custom,
    "code missing": partial(operator, index=0, opcodeIndex=99),
    "no codes": lambda m: setattr(m, "operatorCodes", []),
    "reversed": reverse,
    "operator twice": repeat,
    "no operators": partial(graph, operators=[]),
    "no tensors": partial(graph, tensors=[]),
    "no inputs": partial(graph, inputs=[]),
    "no outputs": partial(graph, outputs=[]),
    "input is a constant": partial(graph, inputs=[WEIGHTS]),
    "output is a constant": partial(graph, outputs=[WEIGHTS]),
    "output is the input": partial(graph, outputs=[0]),
    "input outside": partial(graph, inputs=[999]),
    "input negative": partial(graph, inputs=[-3]),
    "output outside": partial(graph, outputs=[999]),
    "input twice": partial(graph, inputs=[0, 0]),
    "output twice": lambda m: graph(m, outputs=m.subgraphs[0].outputs * 2),
    "two subgraphs": partial(subgraphs, count=2),
    "no subgraph": partial(subgraphs, count=0),
    "version 99": lambda m: setattr(m, "version", 99),
    **{
        f"operands {inputs} of operator {index}": partial(operator, index=index, inputs=inputs)
        for index, inputs in (
            (0, []),
            (0, [0]),
            (0, [999, 2, 3]),
            (0, [-7, 2, 3]),
            (0, [0, 0, 0]),
            (0, [2, 0, 3]),
            (0, [0, 2, -1]),
            (0, [0, 2, 2]),
            (2, [1]),
            (2, [1, 1, 1]),
            (2, [0, 7]),
            (3, [7]),
            (5, [11]),
            (6, []),
        )
    },
    "loop": partial(operator, index=2, inputs=[7, 7]),
    "no results": partial(operator, index=0, outputs=[]),
    "results outside": partial(operator, index=0, outputs=[999]),
    "result into a constant": partial(operator, index=0, outputs=[WEIGHTS]),
    "result into the input": partial(operator, index=0, outputs=[0]),
    **{
        f"options missing of operator {k}": partial(operator, index=k, builtinOptions=None, builtinOptionsType=0)
        for k in range(7)
    },
    "options of another": partial(operator, index=0, builtinOptionsType=schema.BuiltinOptions.SoftmaxOptions),
    **{
        f"{name} {value} of operator {index}": partial(options, operator=index, **{name: value})
        for index in (0, 1)
        for name, values in {
            "strideH": (0, -1, 7, 2**31 - 1),
            "dilationWFactor": (0, -1, 2**31 - 1),
            "padding": (1, 7),
            "fusedActivationFunction": (4, 5, 99),
        }.items()
        for value in values
    },
    **{f"multiplier {value}": partial(options, operator=1, depthMultiplier=value) for value in (0, -1, 3, 2**31 - 1)},
    "activation 99 of a sum": partial(options, operator=2, fusedActivationFunction=99),
    "mean without axes": partial(operator, index=3, inputs=[7, 0]),
    "reshape to 9": partial(options, operator=4, newShape=[9]),
    "dense of shuffled weights": partial(options, operator=5, weightsFormat=1),
    **{f"beta {value}": partial(options, operator=6, beta=value) for value in (np.nan, np.inf, -1.0, 0.0)},
    **{
        f"shape {shape} of {name}": partial(tensor, index=index, shape=shape)
        for name, index in (("input", 0), ("activation", ACTIVATION), ("weights", WEIGHTS), ("bias", BIAS))
        for shape in (
            [],
            [0],
            [-1, 6, 6, 4],
            [1, 6, 6, 2**31 - 1],
            [2**31 - 1] * 4,
            [4, 6, 6, 4],
            [1, 6, 6, 5],
            [1] * 9,
        )
    },
    **{f"type {kind}": partial(tensor, index=ACTIVATION, type=kind) for kind in (0, 1, 3, 5, 7, 8, 17, 99)},
    **{f"type {kind} of weights": partial(tensor, index=WEIGHTS, type=kind) for kind in (0, 2, 3, 17)},
    "buffer outside": partial(tensor, index=WEIGHTS, buffer=999),
    "buffer of nothing": partial(tensor, index=WEIGHTS, buffer=0),
    "buffer too short": partial(buffer, data=b"abc"),
    "buffer too long": partial(buffer, data=bytes(9999)),
    "buffers missing": lambda m: setattr(m, "buffers", []),
    "name missing": partial(tensor, index=ACTIVATION, name=None),
    "name of another": partial(tensor, index=ACTIVATION, name="t0"),
    "name long": partial(tensor, index=ACTIVATION, name="long" * 50_000),
    "variable": partial(tensor, index=ACTIVATION, isVariable=True),
    "quantisation missing": partial(tensor, index=ACTIVATION, quantization=None),
    "quantisation of weights missing": partial(tensor, index=WEIGHTS, quantization=None),
    **{
        f"scale {value} of {name}": partial(scaled, index=index, scale=[value])
        for name, index in (("activation", ACTIVATION), ("weights", WEIGHTS), ("input", 0))
        for value in (0.0, -1.0, np.nan, np.inf, 1e-45, 3e38)
    },
    **{f"zero point {value}": partial(scaled, index=ACTIVATION, zeroPoint=[value]) for value in (300, -(2**62), 2**31)},
    "zero point of weights": partial(scaled, index=WEIGHTS, zeroPoint=[5]),
    "zero points missing": partial(scaled, index=ACTIVATION, zeroPoint=[]),
    "scales of an activation": partial(scaled, index=ACTIVATION, scale=[0.1] * 4, zeroPoint=[0] * 4),
    "scales of weights too few": partial(scaled, index=WEIGHTS, scale=[0.1] * 3, zeroPoint=[0] * 3),
    "scales of weights across": partial(
        scaled, index=WEIGHTS, scale=[0.1] * 4, zeroPoint=[0] * 4, quantizedDimension=3
    ),
    "scales of weights at 99": partial(
        scaled, index=WEIGHTS, scale=[0.1] * 4, zeroPoint=[0] * 4, quantizedDimension=99
    ),
    "scales missing": partial(scaled, index=WEIGHTS, scale=[]),
    "500 activations": partial(chain, count=500),
}
