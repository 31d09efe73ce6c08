"""Product of two int8 tensors."""

from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import Int8s, Integers, int64
from dovetail.isa.numerics.vector import VectorParameters


def multiply(a: Integers, b: Integers, params: VectorParameters) -> Int8s:
    """Product of two int8 tensors: :func:`requantise` of ``(a - za) * (b - zb)``; a positive shift acts as 0.

    The multiplier is ``sa * sb / sy``: in float64 for TFLite's MUL, for ONNX's ``QLinearMul``
    :func:`onnx_multiplier`. ``a`` and ``b`` broadcast against each other.
    """
    p = params
    product = (int64(a) - p.za) * (int64(b) - p.zb)
    return requantise(product, p.mult_out, min(p.shift_out, 0), p.rounding, p.zy, p.lo, p.hi)
