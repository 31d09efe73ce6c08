"""Real multipliers as the runtimes form them, and their encoding."""

import numpy as np
import numpy.typing as npt

from dovetail.isa.numerics.rounding import Int64s, Reals, Rounding

MULT_BITS = 31
SHIFT_MIN, SHIFT_MAX = -32, 31

ONNX_MULT_MASK = (1 << 24) - 1
"""The bits of ``mult`` that the ONNX rounding uses: a float32 has 24 significant bits."""


def tflite_multiplier(input_scale: Reals, weight_scale: Reals, output_scale: Reals) -> npt.NDArray[np.float64]:
    """Real multiplier of a TFLite convolution, depthwise convolution or per-channel dense layer.

    Float32 scales, converted to float64 first: ``(double)sx * (double)sw / (double)sy``, the order of
    TFLite's ``PopulateConvolutionQuantizationParams``.
    """
    sx, sw, sy = (np.asarray(s, np.float32).astype(np.float64) for s in (input_scale, weight_scale, output_scale))
    return np.asarray(sx * sw / sy, dtype=np.float64)


def tflite_dense_multiplier(input_scale: Reals, weight_scale: Reals, output_scale: Reals) -> npt.NDArray[np.float64]:
    """Real multiplier of a TFLite layer with one weight scale for all channels, as FULLY_CONNECTED forms it.

    The product is made in float32: ``(double)(sx * sw) / (double)sy``, TFLite's
    ``GetQuantizedConvolutionMultipler``.
    """
    product = np.asarray(input_scale, np.float32) * np.asarray(weight_scale, np.float32)
    return np.asarray(product.astype(np.float64) / np.asarray(output_scale, np.float32).astype(np.float64))


def onnx_multiplier(input_scale: Reals, weight_scale: Reals, output_scale: Reals) -> npt.NDArray[np.float32]:
    """Multiplier of an ONNX convolution or matrix product: ``f32(f32(sx * sw) / sy)``, in this order."""
    sx, sw, sy = (np.asarray(s, np.float32) for s in (input_scale, weight_scale, output_scale))
    return np.asarray(sx * sw / sy, dtype=np.float32)


def encode_multiplier(real: Reals, rounding: Rounding) -> tuple[Int64s, Int64s]:
    """Encode real multipliers as ``(mult, shift)``, arrays of the shape of ``real``.

    TFLITE takes float64 and follows TFLite's ``QuantizeMultiplier``: the mantissa rounded to 31 bits, ties
    away from zero; shifts below -31 become zero. ONNX takes float32, which it encodes exactly; shifts below
    -32, which no accumulator can lift to one half, become zero.

    Raises
    ------
    ValueError
        When a multiplier is negative, not finite, or 2**31 and more.
    """
    values = np.asarray(real, np.float64 if rounding == Rounding.TFLITE else np.float32).astype(np.float64)
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise ValueError(f"multiplier must be finite and not negative, not {real!r}")
    mantissa, exponent = np.frexp(values)
    shift = exponent.astype(np.int64)
    bits, smallest = (MULT_BITS, -31) if rounding == Rounding.TFLITE else (24, -32)
    mult = np.floor(mantissa * (1 << bits) + 0.5).astype(np.int64)
    carry = mult == 1 << bits
    mult = np.where(carry, mult >> 1, mult)
    shift = shift + carry
    zero = (mult == 0) | (shift < smallest)
    mult, shift = np.where(zero, 0, mult), np.where(zero, 0, shift)
    if np.any(shift > SHIFT_MAX):
        raise ValueError(f"multiplier must be below 2**{SHIFT_MAX}, not {real!r}")
    return mult, shift


def mean_multiplier(input_scale: float, output_scale: float, count: int) -> tuple[int, int]:
    """``(mult, shift)`` of TFLite's MEAN over ``count`` elements; requantise ``sum(x) - zx * count`` with it.

    The reciprocal of ``count`` is folded into the multiplier of ``sx / sy`` with truncation, as TFLite Micro
    does, so ``mult`` may have one bit less than a normalised one.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count!r}")
    real = np.float64(np.float32(input_scale)) / np.float64(np.float32(output_scale))
    mult_array, shift_array = encode_multiplier(np.asarray(real), Rounding.TFLITE)
    mult, shift = int(mult_array), int(shift_array)
    lift = min(count.bit_length() - 1, 32, 31 + shift)
    return (mult << lift) // count, shift - lift
