"""Layer norm and RMS norm of rows in integers: what NORM, NORM16 and NORM16_WIDE compute.

With c = x - zero_in, n elements in a row, and s and t the scales of operand and result, the reals are

    layer norm:  y = gamma / t * (c - mean c) / sqrt(var c + eps / s^2) + beta / t + zero_out
    RMS norm:    y = gamma / t * c / sqrt(mean c^2 + eps / s^2) + zero_out

The reference is ONNX Runtime's: float32 between DequantizeLinear and QuantizeLinear, the result rounded half to even.

Per row, in whole numbers (m and r are the floor of the mean and n times the rest of it; both are 0 in an RMS norm):

    S = sum c,  m = S div n,  r = S mod n,  V = n * sum c^2 - S^2         (RMS norm: V = n * sum c^2)
    W = (V + n^2 * eps / s^2) * 2^16, as 58 bits, shifted left by 2p bits until one of the two highest is set
    q = floor(sqrt(the 48 highest bits)),  R = floor((2^46 - 1) / q)      24 and 23 bits
    N = 2^k * n * R div 2^11,  O = 2^k * r * R div 2^11                   k such that 2^11 < 2^k * n <= 2^12

Per element and channel, N and O being 0 where V is:

    z = +-(abs((c - m) * N - O) / 2^(15 + k - p)), rounded, ties away from zero: 17 fraction bits
    y = round_half_even(round_to_24(+-(z + bias) * mult) / 2^(24 - shift)) + zero_out

bias is beta / gamma, mult and shift are abs(gamma) / t; where gamma is negative so is the sign. Let g be
abs(gamma) / t, Z the normalised element and d the root in steps of the operand. The result is then less than

    1/2 + 2^-15 + g * (3 * 2^-18 + (abs(Z) + 1 / d) * 2^-20)

steps away from the reals. In g: half a unit of z, half of the bias, and eps; in the last term q, R, N and O; 2^-15 is
256 times the errors of mult and of the product.

Of 16-bit elements zero_in is 0, and squares have 16 bits more, so

    W = V + n^2 * eps / s^2,  z = +-(abs((c - m) * N - O) / 2^(23 + k - p))

A 16-bit result has no zero_out, and its bound 2^-7 for 2^-15. Rounding the term of eps adds g times what
:func:`epsilon_error` says.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail.isa.numerics.multiplier import encode_multiplier
from dovetail.isa.numerics.rounding import (
    INT8_MAX,
    INT8_MIN,
    INT32_MAX,
    Int8s,
    Int64s,
    Integers,
    Rounding,
    clamp_to_16,
    clamp_to_int8,
    int64,
    round_half_even_shift,
    round_to_24,
)

NORM_COLUMNS = 1 << 12
"""Elements of the longest row: a normalised one then has 6 bits in front of its fraction."""
NORM_FRACTION = 17
"""Fraction bits of a normalised element."""
EPSILON_FRACTION = 16
"""Fraction bits of what is below the root; of 16-bit elements it has none."""
WIDE_SHIFT = EPSILON_FRACTION // 2
"""By how much more the normalised elements of 16-bit ones are shifted to the right."""
EPSILON_BITS = 56
"""Of the term of eps."""
WIDE_BITS = 58
"""Of what is below the root."""
ROOT_BITS = 24
RECIPROCAL_BITS = 23
FACTOR_BITS = 24
"""Of N and O."""
COUNT_BITS = NORM_COLUMNS.bit_length() - 1

_MULT = (1 << 24) - 1
_SHIFT, _NEGATIVE = 24, 31


@dataclass(frozen=True, kw_only=True)
class NormRecords:
    """What NORM does with a normalised element; one value per channel.

    Attributes
    ----------
    bias
        int32, added to the normalised element: beta / gamma with `NORM_FRACTION` fraction bits.
    mult, shift
        abs(gamma) / t, less `NORM_FRACTION` fraction bits, as :func:`encode_multiplier` has it with ONNX rounding: 24
        bits, and -32 to 0.
    negative
        Whether gamma is below zero.
    """

    bias: Int64s
    mult: Int64s
    shift: Int64s
    negative: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, gain: npt.NDArray[np.float32], offset: npt.NDArray[np.float32] | None, scale_out: float
    ) -> "NormRecords":
        """From a file's gamma and beta (None: zeros) and the result's scale.

        Raises
        ------
        ValueError
            An offset is too large for its gain, or a gain for the scale.
        """
        gains = gain.astype(np.float64)
        offsets = np.zeros_like(gains) if offset is None else offset.astype(np.float64)
        absent = gains == 0
        bias = np.rint(offsets / np.where(absent, 1, gains) * 2.0**NORM_FRACTION)
        wrong = np.flatnonzero(~(np.abs(bias) <= INT32_MAX) | absent & (offsets != 0))
        if len(wrong):
            n = int(wrong[0])
            raise ValueError(
                f"offset of channel {n} must be below 2**14 times its gain, {gains[n]:.6g}, not {offsets[n]:.6g}"
            )
        real = np.abs(gains) / float(np.float32(scale_out))
        if not np.all(real < 1 << NORM_FRACTION):
            raise ValueError(f"gains must be below 2**{NORM_FRACTION} steps of the result, not {real.max():.6g}")
        mult, shift = encode_multiplier((real * 2.0**-NORM_FRACTION).astype(np.float32), Rounding.ONNX)
        # What float32 rounds up to 1 becomes the next number below.
        mult, shift = np.where(shift > 0, _MULT, mult), np.minimum(shift, 0)
        return cls(bias=bias.astype(np.int64), mult=mult, shift=shift, negative=gains < 0)

    def pack(self, lanes: int) -> bytes:
        """Region B of NORM: per block of ``lanes`` channels the biases, then the other words; zeros up to its end.

        A word has the multiplier in bits 23:0, the shift in 29:24, and the sign in 31.
        """
        words = self.mult | (self.shift & 0x3F) << _SHIFT | self.negative.astype(np.int64) << _NEGATIVE
        count = -(-len(words) // lanes) * lanes
        both = np.zeros((2, count), np.int64)
        both[0, : len(words)], both[1, : len(words)] = self.bias, words
        blocks = both.reshape(2, -1, lanes).transpose(1, 0, 2)
        return (blocks & 0xFFFF_FFFF).astype("<u4").tobytes()

    @classmethod
    def unpack(cls, bias: npt.NDArray[np.int32], words: npt.NDArray[np.int32]) -> "NormRecords":
        """From the two kinds of words, one of each per channel."""
        word = int64(words) & 0xFFFF_FFFF
        shift = (word >> _SHIFT & 0x3F ^ 0x20) - 0x20
        return cls(bias=int64(bias), mult=word & _MULT, shift=shift, negative=word >> _NEGATIVE == 1)


def epsilon_fraction(bits: int) -> int:
    """Fraction bits of W, for elements of 8 or 16 ``bits``."""
    return EPSILON_FRACTION if bits == 8 else 0


def norm_epsilon(count: int, epsilon: float, scale_in: float, bits: int = 8) -> int:
    """The term of eps in W, for rows of ``count`` elements of 8 or 16 ``bits``.

    Raises
    ------
    ValueError
        It does not fit `EPSILON_BITS` bits: the root of eps is larger than the operand's range.
    """
    fraction = epsilon_fraction(bits)
    value = float(np.rint(_term(count, epsilon, scale_in) * 2.0**fraction))
    if not 0 <= value < 1 << EPSILON_BITS:
        most = 2.0 ** (EPSILON_BITS - fraction) * float(np.float32(scale_in)) ** 2 / count**2
        raise ValueError(f"eps must be 0 or more and below {most:.6g}, not {epsilon:.6g}")
    return int(value)


def epsilon_error(count: int, epsilon: float, scale_in: float) -> float:
    """How far a normalised element of a row of 16-bit elements can move as the term of eps is rounded.

    An element is (n * c - S) / sqrt(W), at most sqrt(n * V / W). An error r of W moves it by r / (2 * W) of that, which
    is most where V is half of the term; V is 0 or at least n - 1.
    """
    exact = _term(count, epsilon, scale_in)
    least = min(exact, float(np.rint(exact)))
    variance = max(count - 1, 1, least / 2)
    return float(abs(exact - np.rint(exact)) / 2 * (count * variance) ** 0.5 / (variance + least) ** 1.5)


def _term(count: int, epsilon: float, scale_in: float) -> float:
    return float(count**2 * float(epsilon) / float(np.float32(scale_in)) ** 2)


@dataclass(frozen=True, kw_only=True)
class NormRows:
    """What NORM knows of rows once it has seen them; a value per row, of the shape [..., 1].

    ``mean`` is m, ``factor`` is N, ``offset`` is O, and ``right`` the shift of their difference.
    """

    mean: Int64s
    factor: Int64s
    offset: Int64s
    right: Int64s

    @classmethod
    def of(cls, centred: Int64s, epsilon: int, *, rms: bool, bits: int = 8) -> "NormRows":
        """Of rows less their zero point, of elements of 8 or 16 ``bits``."""
        count = centred.shape[-1]
        total = np.zeros_like(centred[..., :1]) if rms else centred.sum(axis=-1, keepdims=True)
        spread = count * (centred * centred).sum(axis=-1, keepdims=True) - total * total
        mean, rest = np.divmod(total, count)
        wide = (spread << epsilon_fraction(bits)) + epsilon
        pairs = (WIDE_BITS - _bit_length(wide)) >> 1
        dropped = WIDE_BITS - 2 * ROOT_BITS
        radicand = np.where(
            2 * pairs < dropped,
            wide >> np.maximum(dropped - 2 * pairs, 0),
            np.where(spread > 0, wide, 0) << np.maximum(2 * pairs - dropped, 0),
        )
        root = np.maximum(_root(radicand), 1 << ROOT_BITS - 1)
        reciprocal = np.where(spread > 0, ((1 << ROOT_BITS + RECIPROCAL_BITS - 1) - 1) // root, 0)
        up = COUNT_BITS - (count - 1).bit_length()
        factor = ((count << up) * reciprocal) >> COUNT_BITS - 1
        offset = ((rest << up) * reciprocal) >> COUNT_BITS - 1
        right = 15 + up - pairs + (0 if bits == 8 else WIDE_SHIFT)
        return cls(mean=mean, factor=factor, offset=offset, right=np.where(spread > 0, right, 0))

    def normalised(self, centred: Int64s) -> Int64s:
        """Elements with `NORM_FRACTION` fraction bits."""
        product = (centred - self.mean) * self.factor - self.offset
        magnitude = (np.abs(product) + ((np.int64(1) << self.right) >> 1)) >> self.right
        return np.asarray(np.where(product < 0, -magnitude, magnitude), dtype=np.int64)


def norm(
    rows: Int8s,
    zero_in: int,
    epsilon: int,
    records: NormRecords,
    zero_out: int,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
    *,
    rms: bool,
) -> Int8s:
    """Norm along the last axis.

    Parameters
    ----------
    rows
        int8 [..., n], n up to `NORM_COLUMNS`.
    zero_in, zero_out, lo, hi
        int8: zero points of operand and result; then the result is clamped.
    epsilon
        :func:`norm_epsilon`.
    records
        Of n channels.
    rms
        RMS norm.
    """
    return clamp_to_int8(_scaled(int64(rows) - zero_in, epsilon, records, rms=rms, bits=8) + zero_out, lo, hi)


def norm16(
    rows: Integers,
    epsilon: int,
    records: NormRecords,
    zero_out: int,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
    *,
    rms: bool,
) -> Int8s:
    """:func:`norm` of 16-bit elements: the low 16 bits of ``rows``, signed; ``epsilon`` is that of 16 bits."""
    return clamp_to_int8(_scaled(_low_16(rows), epsilon, records, rms=rms, bits=16) + zero_out, lo, hi)


def norm16_wide(rows: Integers, epsilon: int, records: NormRecords, *, rms: bool) -> npt.NDArray[np.int32]:
    """:func:`norm16` with results of 16 bits, in int32."""
    return clamp_to_16(_scaled(_low_16(rows), epsilon, records, rms=rms, bits=16))


def _low_16(rows: Integers) -> Int64s:
    return int64(int64(rows).astype(np.int16))


def _scaled(centred: Int64s, epsilon: int, records: NormRecords, *, rms: bool, bits: int) -> Int64s:
    normal = NormRows.of(centred, epsilon, rms=rms, bits=bits).normalised(centred)
    sums = normal + records.bias
    product = round_to_24(np.where(records.negative, -sums, sums) * records.mult)
    return round_half_even_shift(product, 24 + np.maximum(-records.shift, 0))


def _bit_length(value: Int64s) -> Int64s:
    bits = np.frexp(value.astype(np.float64))[1].astype(np.int64)
    return np.asarray(bits - (value >> np.maximum(bits - 1, 0) == 0))  # float64 may round up to a power of two


def _root(value: Int64s) -> Int64s:
    """Of less than 2^52, which float64 has exactly."""
    root = np.sqrt(value.astype(np.float64)).astype(np.int64)
    return np.asarray(root - (root * root > value))
