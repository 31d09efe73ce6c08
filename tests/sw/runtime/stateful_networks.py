"""Small TFLite networks with variables, for tests."""

from __future__ import annotations

import numpy as np

from dovetail.sw.network.layout import Array
from tests.sw.frontend.tflite_writer import Operator, Writer, options


def _int8(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(-127, 128, shape).astype(np.int8)


def lstm(*, steps: int = 3, width: int = 6, units: int = 5, time_major: bool = False, clip: float = 0.0) -> bytes:
    """Sequence [1, steps, width] -> UNIDIRECTIONAL_SEQUENCE_LSTM -> dense layer of 4: int8, the cell state int16."""
    rng = np.random.default_rng(units)
    w = Writer()
    shape = (steps, 1) if time_major else (1, steps)
    x = w.tensor((*shape, width), scale=0.02, zero=-3, name="x")
    inputs = [x]
    weights = [w.constant(_int8(rng, units, width), 0.004 + 0.001 * gate) for gate in range(4)]
    recurrent = [w.constant(_int8(rng, units, units), 0.003 + 0.001 * gate) for gate in range(4)]
    biases = [w.constant(rng.integers(-9000, 9000, units).astype(np.int32), 0.00008) for _ in range(4)]
    hidden = w.tensor((1, units), scale=1 / 128, zero=7, name="hidden", variable=True)
    cell = w.tensor((1, units), "int16", 2.0**-11, name="cell", variable=True)
    inputs += [*weights, *recurrent, -1, -1, -1, *biases, -1, -1, hidden, cell, -1, -1, -1, -1]
    gates = [w.tensor((0,), "int16", 2.0**-12, name=f"gate{n}") for n in range(4)]
    inner = w.tensor((0,), "int8", 1 / 128, 7, name="inner")
    y = w.tensor((*shape, units), scale=1 / 128, zero=7, name="sequence")
    option = options(
        "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
        timeMajor=time_major,
        cellClip=clip,
        projClip=0.0,
    )
    code = Operator.UNIDIRECTIONAL_SEQUENCE_LSTM
    w.op(code, inputs, [y], option, intermediates=[*gates, inner], version=3)
    out = _dense(w, rng, y, steps, units, 4)
    w.graph.inputs, w.graph.outputs = [x], [out]
    return w.data()


def _dense(w: Writer, rng: np.random.Generator, source: int, rows: int, width: int, units: int) -> int:
    weights = w.constant(_int8(rng, units, width), 0.01)
    bias = w.constant(rng.integers(-500, 500, units).astype(np.int32), 0.0005)
    out = w.tensor((rows, units), scale=0.03, zero=4, name="y")
    w.op(Operator.FULLY_CONNECTED, [source, weights, bias], [out], options("FullyConnectedOptions"), version=4)
    return out


def svdf(*, time: str = "int16", width: int = 8, units: int = 6, rank: int = 2, memory: int = 5) -> bytes:
    """[1, width] -> dense layer -> SVDF -> dense layer; ``time``: type of the weights over time and of the state."""
    rng = np.random.default_rng(memory)
    w = Writer()
    x = w.tensor((1, width), scale=0.04, zero=-5, name="x")
    first = w.tensor((1, width), scale=0.05, zero=2, name="first")
    weights = w.constant(_int8(rng, width, width), 0.008)
    bias = w.constant(rng.integers(-500, 500, width).astype(np.int32), 0.00032)
    w.op(Operator.FULLY_CONNECTED, [x, weights, bias], [first], options("FullyConnectedOptions"), version=4)
    filters = units * rank
    feature = w.constant(_int8(rng, filters, width), 0.01)
    scales = (2.0**-11, 2.0**-15) if time == "int16" else (0.06, 0.01)
    most = 20000 if time == "int16" else 127
    over_time = w.constant(rng.integers(-most, most + 1, (filters, memory)).astype(time), scales[1])
    bias = w.constant(rng.integers(-500, 500, units).astype(np.int32), scales[0] * scales[1])
    zero = 0 if time == "int16" else 3
    state = w.tensor((1, filters * memory), time, scales[0], zero, name="state", variable=True)
    y = w.tensor((1, units), scale=0.04, zero=-9, name="filtered")
    option = options("SVDFOptions", rank=rank, fusedActivationFunction=1)
    w.op(Operator.SVDF, [first, feature, over_time, bias, state], [y], option, version=3)
    out = _dense(w, rng, y, 1, units, 4)
    w.graph.inputs, w.graph.outputs = [x], [out]
    return w.data()


def streaming(*, initial: int | None = 9, rows: int = 2, channels: int = 4) -> bytes:
    """A row of an image at a time -> convolution 3 x 3 over it and the rows before it, which a variable holds.

    ``initial``: what CALL_ONCE writes into the variable; None: there is no CALL_ONCE.
    """
    rng = np.random.default_rng(3)
    w = Writer()
    width, scale, zero = 6, 0.05, 5
    handle = options("VarHandleOptions", container="", sharedName="rows")
    x = w.tensor((1, 1, width, channels), scale=scale, zero=zero, name="x")
    if initial is not None:
        w.op(Operator.CALL_ONCE, [], [], options("CallOnceOptions", initSubgraphIndex=1))
    resource = w.tensor((), "resource", None, name="handle")
    w.op(Operator.VAR_HANDLE, [], [resource], handle)
    before = w.tensor((1, rows, width, channels), scale=scale, zero=zero, name="before")
    w.op(Operator.READ_VARIABLE, [resource], [before], options("ReadVariableOptions"))
    joined = w.tensor((1, rows + 1, width, channels), scale=scale, zero=zero, name="joined")
    w.op(Operator.CONCATENATION, [before, x], [joined], options("ConcatenationOptions", axis=1), version=2)
    begin, end, step = (
        w.constant(np.array(n, np.int32)) for n in ((0, 1, 0, 0), (1, rows + 1, width, channels), (1,) * 4)
    )
    after = w.tensor((1, rows, width, channels), scale=scale, zero=zero, name="after")
    w.op(Operator.STRIDED_SLICE, [joined, begin, end, step], [after], options("StridedSliceOptions"), version=2)
    w.op(Operator.ASSIGN_VARIABLE, [resource, after], [], options("AssignVariableOptions"))
    weights = w.constant(_int8(rng, 4, rows + 1, 3, channels), [0.01, 0.012, 0.008, 0.02])
    bias = w.constant(rng.integers(-400, 400, 4).astype(np.int32), [0.0005, 0.0006, 0.0004, 0.001])
    y = w.tensor((1, 1, width - 2, 4), scale=0.2, zero=-7, name="y")
    option = options("Conv2DOptions", padding=1, strideH=1, strideW=1, fusedActivationFunction=1)
    w.op(Operator.CONV_2D, [joined, weights, bias], [y], option, version=3)
    w.graph.inputs, w.graph.outputs = [x], [y]
    if initial is not None:
        w.subgraph()
        resource = w.tensor((), "resource", None, name="handle")
        w.op(Operator.VAR_HANDLE, [], [resource], handle)
        value = w.constant(np.full((1, rows, width, channels), initial, np.int8), scale, zero)
        w.op(Operator.ASSIGN_VARIABLE, [resource, value], [], options("AssignVariableOptions"))
    return w.data()
