"""Product of two int8 tensors."""

from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.requantise import requantise
from dovetail.isa.numerics.rounding import INT8_MAX, INT8_MIN, Int8s, Integers, Rounding, int64
from dovetail.isa.numerics.vector import VectorOperation, VectorParameters


def scaled_product(
    real: float, za: int, zb: int, zy: int, rounding: Rounding, *, lo: int = INT8_MIN, hi: int = INT8_MAX
) -> VectorParameters:
    """Parameters of a product with the multiplier ``real``, which :func:`multiply` explains.

    Raises ValueError when the multiplier cannot be encoded.
    """
    mult, shift = (int(part) for part in encode_multiplier(real, rounding))
    return VectorParameters(
        operation=VectorOperation.MULTIPLY,
        rounding=rounding,
        za=za,
        zb=zb,
        zy=zy,
        mult_out=mult,
        shift_out=shift,
        lo=lo,
        hi=hi,
    )


def multiply(a: Integers, b: Integers, params: VectorParameters) -> Int8s:
    """Product of two int8 tensors: :func:`requantise` of ``(a - za) * (b - zb)``; a positive shift acts as 0.

    The multiplier is ``sa * sb / sy``: in float64 for TFLite's MUL, for ONNX's ``QLinearMul``
    :func:`onnx_multiplier`. ``a`` and ``b`` broadcast against each other.
    """
    p = params
    product = (int64(a) - p.za) * (int64(b) - p.zb)
    return requantise(product, p.mult_out, min(p.shift_out, 0), p.rounding, p.zy, p.lo, p.hi)
