"""Data movement that is known only as a runtime's operator: tried out, then written as a copy or a list of places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.export.codegen.writer import Pointer, Writer
from dovetail.sw.host.kernels import Payload
from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array

_EXACT = {"int8": 1 << 24, "float32": 1 << 24, "int32": 1 << 31, "int64": 1 << 31}
"""Up to which position an element type tells all positions apart."""


def places_of(payload: Payload, tensor: ir.Tensor) -> list[NDArray[np.int64]] | None:
    """For each result the position, in the only operand, of every element; None if it is not that alone."""
    if tensor.size >= _EXACT.get(tensor.dtype, 0):
        return None
    positions = np.arange(tensor.size)
    if tensor.dtype == "int8":
        parts = [_tried(payload, tensor, positions >> shift & 255) for shift in (0, 8, 16)]
        found = [_joined(bytes_) for bytes_ in zip(*parts, strict=True)]
    else:
        found = [value.astype(np.int64) for value in _tried(payload, tensor, positions)]
    other = np.random.default_rng(0).integers(-100, 100, tensor.size)
    for places, value in zip(found, _tried(payload, tensor, other), strict=True):
        if value.dtype != tensor.dtype or places.max() >= tensor.size or places.min() < 0:
            return None
        if not np.array_equal(other.astype(tensor.dtype)[places], value):
            return None
    return found


def _joined(parts: Sequence[Array]) -> NDArray[np.int64]:
    """Numbers from their bytes, the lowest first."""
    low, middle, high = (part.view(np.uint8).astype(np.int64) for part in parts)
    return low | middle << 8 | high << 16


def _tried(payload: Payload, tensor: ir.Tensor, values: NDArray[np.int64]) -> list[Array]:
    return [np.ravel(value) for value in payload.run([values.astype(tensor.dtype).reshape(tensor.shape)])]


def write_places(
    writer: Writer, source: str | Pointer, result: str | Pointer, places: NDArray[np.int64], item_bytes: int, name: str
) -> None:
    """Append the call that gives element i of the result element ``places[i]`` of the source."""
    copy = copy_of(places)
    if copy is not None:
        writer.move(source, result, copy, item_bytes, name)
    else:
        table = writer.constants.array(places.astype(np.uint32), f"{name}_places")
        writer.call("dovetail_gather", table, len(places), item_bytes, source, result)


def copy_of(places: NDArray[np.int64]) -> ir.Copy | None:
    """The strided copy that a list of places is; None if it is none, or runs backwards."""
    start, sizes, steps = int(places[0]), [], []
    while len(places) > 1:
        differences = np.diff(places)
        step = int(differences[0])
        breaks = np.flatnonzero(differences != step)
        count = int(breaks[0]) + 1 if breaks.size else len(places)
        if step < 0 or len(places) % count:
            return None
        rows = places.reshape(-1, count)
        if not np.array_equal(rows, rows[:, :1] + step * np.arange(count)):
            return None
        sizes.append(count)
        steps.append(step)
        places = rows[:, 0]
    targets = np.cumprod([1, *sizes[:-1]]).tolist() if sizes else []
    return ir.Copy(tuple(sizes[::-1]), start, tuple(steps[::-1]), 0, tuple(targets[::-1]))
