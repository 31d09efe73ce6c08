"""The exact price of a tiling: the cycles of the layer's own program."""

import numpy as np

from dovetail.isa.config import Config
from dovetail.isa.instructions import Unit
from dovetail.isa.numerics import Rounding
from dovetail.sw import graph as ir
from dovetail.sw.compiler import convolution
from dovetail.sw.compiler.emit import Emitter
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.residency import Place
from dovetail.sw.compiler.schedule import Space, Tiling

INPUT, WEIGHTS, MATRIX, OUTPUT = (n << 28 for n in range(4))
"""System memory addresses: 4 KiB aligned as real ones are, which is all that durations depend on."""

_REQUANT = ir.Requant(np.zeros(1, np.int32), np.zeros(1, np.int32), Rounding.TFLITE, 0, 0, -128, 127)
"""No cycle depends on it."""


def program_of(config: Config, layer: ConvLayer, space: Space, tiling: Tiling) -> Emitter:
    """The layer's own program."""
    matrix = convolution.Matrix(MATRIX, 0) if layer.mode == "matmul" else None
    source = Place(INPUT, space.input_at, layer.channels)
    target = Place(OUTPUT if space.output_at is None else None, space.output_at, layer.out_channels)
    code = convolution.ConvCode(config, layer, tiling, _REQUANT, 0, source, target, WEIGHTS, matrix)
    emitter = Emitter(config)
    emitter.add(code.tasks())
    emitter.end()
    return emitter


def exact(config: Config, layer: ConvLayer, space: Space, tiling: Tiling) -> int:
    """Cycles from the start of the layer's first operation to the end of its last one, alone on the accelerator.

    Where the input is resident already its first weights are taken to be there too: they are loaded beside the layer
    before.
    """
    clock = program_of(config, layer, space, tiling).clock
    started = clock.started[Unit.LOAD if space.input_at is None else Unit.ARRAY]
    assert started is not None
    return clock.ended - started
