"""A tensor between the nodes of a network."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from dovetail.sw.errors import NetworkError
from dovetail.sw.network.layout import Shape


@dataclass(frozen=True)
class Tensor:
    """A tensor between nodes.

    Parameters
    ----------
    name: unique in the graph.
    shape: sizes in elements, channels last; spatial tensors are (1, H, W, C).
    scale: real value of one step, None where the tensor is not quantised.
    zero_point: the integer that stands for 0.0 (0 where not quantised).
    dtype: NumPy name of the element type: "int8" everywhere the accelerator is meant to touch, but for "int32": sums
        that products leave to the host, and elements of 16 bits.
    """

    name: str
    shape: Shape
    scale: np.float32 | None = None
    zero_point: int = 0
    dtype: str = "int8"

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.dtype).itemsize

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.item_bytes

    @property
    def nhwc(self) -> tuple[int, int, int, int]:
        """The shape seen by spatial nodes: (1, H, W, C), missing leading axes filled with ones."""
        full = (1,) * (4 - len(self.shape)) + self.shape
        if len(full) != 4 or full[0] != 1:
            raise NetworkError(f"tensor {self.name!r} must be (1, H, W, C) or shorter, not {self.shape}")
        return full[0], full[1], full[2], full[3]

    def __str__(self) -> str:
        quant = "" if self.scale is None else f" scale={self.scale:.6g} zero={self.zero_point}"
        return f"{self.name}: {self.dtype}[{'x'.join(map(str, self.shape))}]{quant}"
