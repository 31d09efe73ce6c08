"""The networks: which ONNX operators the operations perform, and what their registers then hold."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.rounding import Rounding
from dovetail.isa.numerics.vector import VectorParameters
from dovetail.sw.frontend.onnx.mapping import OnnxMapping
from dovetail.sw.frontend.onnx.values import Quant
from own_instruction.instructions import BIT_AND, BIT_OR, BIT_XOR, MOST_LEFT, PRELU


def prelu(a: Quant, slope: Quant, y: Quant, attributes: Mapping[str, Any]) -> VectorParameters | None:
    """Multipliers ``sa / sy`` and ``sa * sb / sy``; None where one of them is too large."""
    ratio = np.float32(a.scale / y.scale)
    (mult_a, shift_a), (mult_out, shift_out) = (
        (int(part) for part in encode_multiplier(real, Rounding.ONNX)) for real in (ratio, ratio * slope.scale)
    )
    if max(shift_a, shift_out) > MOST_LEFT:
        return None
    return VectorParameters(
        rounding=Rounding.ONNX,
        za=a.zero_point,
        zb=slope.zero_point,
        zy=y.zero_point,
        mult_a=mult_a,
        shift_a=shift_a,
        mult_out=mult_out,
        shift_out=shift_out,
    )


def bits(a: Quant, b: Quant, y: Quant, attributes: Mapping[str, Any]) -> VectorParameters:
    """Nothing to set: the operations know only bits."""
    return VectorParameters(rounding=Rounding.ONNX, za=0, zb=0, zy=0)


MAPPINGS = [
    OnnxMapping("PRelu", PRELU, prelu),
    OnnxMapping("BitwiseAnd", BIT_AND, bits, integers=True),
    OnnxMapping("BitwiseOr", BIT_OR, bits, integers=True),
    OnnxMapping("BitwiseXor", BIT_XOR, bits, integers=True),
]
