"""What the ONNX front end knows about a name of the file: where its bytes are and what they mean."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.layout import Array, Layout, Shape, as_unsigned


@dataclass(frozen=True)
class Value:
    """A name of the file that is a graph tensor.

    Parameters
    ----------
    tensor: the graph tensor.
    layout: how the file sees its bytes.
    dtype: element type in the file; "uint8" is kept as int8 (value - 128), "int16" of a stream as int32.
    """

    tensor: str
    layout: Layout
    dtype: str

    @property
    def shape(self) -> Shape:
        """Shape in the file."""
        return self.layout.shape


_NORMAL = 2.0**-60
"""Multiples, up to 2^16, of scales from this to its reciprocal are normal numbers of float32, and so are quotients."""


@dataclass(frozen=True)
class Quant:
    """Quantisation of an activation: per tensor, zero point already moved to int8 for uint8 files; or that of a stream,
    a tensor of 16 bits, which has a power of two and no zero point."""

    scale: np.float32
    zero_point: int
    dtype: str

    @classmethod
    def of(cls, scale: Array | None, zero: Array, where: str) -> Quant | None:
        """From the file's constants; None if it is not a per-tensor 8-bit quantisation."""
        if scale is None or scale.size != 1:
            return None
        if zero.size != 1 or zero.dtype not in (np.int8, np.uint8):
            return None
        real = np.float32(scale.ravel()[0])
        if not np.isfinite(real) or real <= 0:
            raise NetworkError(f"{where}: scale must be positive and finite, not {real}")
        return cls(real, int(zero.ravel()[0]) - (128 if zero.dtype == np.uint8 else 0), str(zero.dtype))

    @classmethod
    def of_stream(cls, scale: Array | None, zero: Array | None) -> Quant | None:
        """From the file's constants; None if it is not a stream's."""
        if scale is None or zero is None or zero.dtype != np.int16 or scale.size != 1 or zero.size != 1 or zero.any():
            return None
        real = np.float32(scale.ravel()[0])
        known = frexp(float(real))[0] == 0.5 and _NORMAL <= real <= 1 / _NORMAL
        return cls(real, 0, str(zero.dtype)) if known else None

    @property
    def is_wide(self) -> bool:
        """Whether it is a stream's."""
        return self.dtype == "int16"

    @property
    def inside(self) -> str:
        """The element type of the graph's tensor."""
        return "int32" if self.is_wide else "int8"


def in_file(levels: NDArray[np.int8], quant: Quant) -> Array:
    """int8 levels as the file has them."""
    return as_unsigned(levels) if quant.dtype == "uint8" else levels


Clamp = tuple[int, int]
FULL: Clamp = (-128, 127)


@dataclass(frozen=True)
class Target:
    """An integer result that is wanted.

    Parameters
    ----------
    node: name for the node of the graph that makes it.
    name: of the result in the file.
    quant: its quantisation.
    clamp: bounds of an activation behind it.
    """

    node: str
    name: str
    quant: Quant
    clamp: Clamp = FULL


@dataclass(frozen=True)
class Sums:
    """A product's int32 sums that are wanted as they are; ``node`` and ``name`` as of `Target`."""

    node: str
    name: str
    quant: None = None


@dataclass(frozen=True)
class Source:
    """A tensor with its meaning: an operand of an integer operator, or a dequantised float name."""

    value: Value
    quant: Quant


@dataclass(frozen=True)
class Constant:
    """A quantised constant: integers, one scale or one per channel of `axis`, zero points likewise."""

    values: Array
    scale: NDArray[np.float32]
    zero_point: Array
    axis: int

    @property
    def quant(self) -> Quant | None:
        """Its quantisation as that of an activation; None if it is not one for the whole tensor, of 8 bits."""
        if self.values.dtype != self.zero_point.dtype:
            return None
        return Quant.of(self.scale, self.zero_point, "a constant")

    @property
    def stream(self) -> Quant | None:
        """Its quantisation as that of a stream; None if it is not one."""
        return Quant.of_stream(self.scale, self.zero_point) if self.values.dtype == self.zero_point.dtype else None

    def real(self) -> NDArray[np.float32]:
        """The float array it stands for."""
        centred = self.values.astype(np.int64) - self._spread(self.zero_point).astype(np.int64)
        result: NDArray[np.float32] = centred.astype(np.float32) * self._spread(self.scale)
        return result

    def _spread(self, parameter: Array) -> Array:
        if parameter.size == 1:
            return parameter.reshape(())
        shape = [1] * self.values.ndim
        shape[self.axis] = -1
        return parameter.reshape(shape)

    def transposed(self, perm: tuple[int, ...]) -> Constant:
        """After a transposition in the file."""
        axis = perm.index(self.axis % self.values.ndim) if self.scale.size > 1 else 0
        return Constant(self.values.transpose(perm), self.scale, self.zero_point, axis)

    def weights(self, channel_axis: int, where: str) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """(int8 weights around zero, one float32 scale per entry of `channel_axis`).

        Raises
        ------
        NetworkError: not 8 bits, not centred on zero, or scales along another axis.
        """
        found = self._around_zero(channel_axis)
        if isinstance(found, str):
            raise NetworkError(f"{where}: {found}")
        return found

    def fit(self, channel_axis: int) -> bool:
        """Whether there are such `weights`."""
        return not isinstance(self._around_zero(channel_axis), str)

    def _around_zero(self, channel_axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]] | str:
        """`weights`, or why there are none."""
        if self.values.dtype not in (np.int8, np.uint8):
            return f"weights must be int8 or uint8, not {self.values.dtype}"
        centred = self.values.astype(np.int16) - self._spread(self.zero_point).astype(np.int16)
        if centred.size and (centred.min() < -128 or centred.max() > 127):
            return (
                "weights must fit int8 around their zero point, not an asymmetric range; "
                "quantise with symmetric weights (quantize_static: WeightSymmetric, weight_type=QInt8)"
            )
        channels = self.values.shape[channel_axis]
        if self.scale.size == 1:
            return centred.astype(np.int8), np.full(channels, self.scale.ravel()[0], np.float32)
        if self.axis % self.values.ndim != channel_axis or self.scale.size != channels:
            return f"weight scales must run along output channels, not axis {self.axis}"
        return centred.astype(np.int8), self.scale.astype(np.float32).ravel()
