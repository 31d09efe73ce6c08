"""The exact price of a tiling: the cycles of a program of the layer."""

import numpy as np

from dovetail.isa.config import Config, ceil_div
from dovetail.isa.numerics import Rounding
from dovetail.isa.timing.engine import time_program
from dovetail.sw import graph as ir
from dovetail.sw.compiler import convolution
from dovetail.sw.compiler.emit import Emitter
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.schedule import Space, Tiling

WEIGHTS, MATRIX, *ACTIVATIONS = (n << 28 for n in range(5))
"""System memory addresses: 4 KiB aligned as real ones are, which is all that durations depend on."""

_REQUANT = ir.Requant(np.zeros(1, np.int32), np.zeros(1, np.int32), Rounding.TFLITE, 0, 0, -128, 127)
"""No cycle depends on it."""


def program_of(config: Config, layer: ConvLayer, space: Space, tiling: Tiling) -> Emitter:
    """The layer twice in a row, the second reading from system memory what the first has stored there."""
    matrix = convolution.Matrix(MATRIX, 0) if layer.mode == "matmul" else None
    emitter = Emitter(config)
    for number in range(2):
        source = Place(ACTIVATIONS[number], space.input_at, layer.channels)
        memory = ACTIVATIONS[number + 1] if space.output_at is None else None
        target = Place(memory, space.output_at, layer.out_channels)
        cut = convolution.spread(config, layer, tiling, space, emitter.arena)
        code = convolution.ConvCode(config, layer, cut, _REQUANT, number, source, target, WEIGHTS, matrix)
        emitter.add(code.tasks())
    emitter.end()
    return emitter


def exact(config: Config, layer: ConvLayer, space: Space, tiling: Tiling) -> int:
    """Cycles from the start of the first operation to the end of the last one, per run of the layer (rounded up).

    Alone, a layer would be priced with all of its first loads and last stores; in a network others run beside them. So
    it comes twice: what the two runs hide of one another counts half.
    """
    timeline = time_program(config, program_of(config, layer, space, tiling).words)
    if timeline.fault:
        raise AssertionError(f"{tiling} of {layer}: {timeline.fault}")
    operations = ~timeline.is_fetch
    return ceil_div(int(timeline.end[operations].max() - timeline.start[operations].min()) + 1, 2)
