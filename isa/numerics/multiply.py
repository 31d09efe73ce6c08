"""Product of two int8 tensors."""

from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import INT8_MAX, INT8_MIN, Int8s, Integers, Rounding, int64


def multiply(
    a: Integers,
    b: Integers,
    za: int,
    zb: int,
    mult: int,
    shift: int,
    rounding: Rounding,
    zero_point: int = 0,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
) -> Int8s:
    """Product of two int8 tensors: :func:`requantise` of ``(a - za) * (b - zb)``; a positive shift acts as 0.

    The multiplier is ``sa * sb / sy``: in float64 for TFLite's MUL, for ONNX's ``QLinearMul``
    :func:`onnx_multiplier`. ``a`` and ``b`` broadcast against each other.
    """
    product = (int64(a) - za) * (int64(b) - zb)
    return requantise(product, mult, min(shift, 0), rounding, zero_point, lo, hi)
