"""One channel as many: element-wise nodes repeat a row or a column themselves, a convolution repeats a channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.isa.numerics.rounding import Rounding
from dovetail.sw.network import ir


def repeated(source: ir.Tensor, channels: int, name: str) -> tuple[ir.Tensor, ir.Conv]:
    """A tensor of ``channels`` equal channels and the node that makes it; ``name`` names both.

    Parameters
    ----------
    source: [..., 1]

    Every weight is one, and so is the multiplier, so every byte stays what it is.
    """
    out = replace(source, name=name, shape=(*source.shape[:-1], channels))
    node = ir.Conv(
        name=name,
        inputs=(source.name,),
        outputs=(name,),
        weights=np.ones((channels, 1, 1, 1), np.int8),
        bias=np.zeros(channels, np.int32),
        requant=ir.Requant.encode(np.ones(1), Rounding.TFLITE, 0, 0, where=name),
        kind="repeat",
    )
    return out, node
