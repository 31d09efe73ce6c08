"""The exact price of a tiling: the cycles of a program of the layer."""

import numpy as np

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.compiler.emit import array_layer, convolution
from dovetail.sw.compiler.emit.words import Emitter
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.place import Place
from dovetail.sw.compiler.plan.schedule import Space, Tiling
from dovetail.sw.network import ir

WEIGHTS, MATRIX, *ACTIVATIONS = (n << 28 for n in range(5))
"""System memory addresses: 4 KiB aligned as real ones are, which is all that durations depend on."""

_REQUANT = ir.Requant(np.zeros(1, np.int32), np.zeros(1, np.int32), Rounding.TFLITE, 0, 0, -128, 127)
"""No cycle depends on it."""


def exact(config: Config, layer: ConvLayer, space: Space, tiling: Tiling) -> int:
    """Cycles from the start of the first operation to the end of the last one, per run of the layer (rounded up).

    Alone, a layer would be priced with all of its first loads and last stores; in a network others run beside them. So
    it comes twice in a row, the second reading from system memory what the first has stored there: what the two runs
    hide of one another counts half.
    """
    price = within(config, layer, space, tiling, None)
    assert price is not None
    return price


def within(config: Config, layer: ConvLayer, space: Space, tiling: Tiling, limit: int | None) -> int | None:
    """The exact price; None, as soon as that is sure, if it is more than ``limit``."""
    matrix = convolution.Matrix(MATRIX, 0, space.matrix_at) if layer.mode == "matmul" else None
    emitter, most = Emitter(config), None if limit is None else 2 * limit
    for number in range(2):
        source = Place(ACTIVATIONS[number], space.input_at, layer.channels)
        memory = ACTIVATIONS[number + 1] if space.output_at is None else None
        target = Place(memory, space.output_at, layer.out_channels)
        cut = array_layer.spread(config, layer, tiling, space, emitter.arena)
        code = convolution.ConvCode(config, layer, cut, _REQUANT, number, source, target, WEIGHTS, matrix)
        emitter.add(code.tasks())
        array = emitter.array_cycles
        # The second run has as many operations as the first one, but for loads of what is there still.
        if not number and not emitter.advance(most, rest=array, more=1, alone=True):
            return None
    return ceil_div(emitter.span, 2) if emitter.end(most, alone=True) else None
