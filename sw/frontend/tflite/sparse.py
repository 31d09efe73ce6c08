"""Sparse constants of TFLite files: only some elements are stored, level by level as in a tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from numpy.typing import NDArray

from dovetail.sw.network.layout import Array, Shape

_VECTORS = {
    schema.SparseIndexVector.Int32Vector: schema.Int32Vector,
    schema.SparseIndexVector.Uint16Vector: schema.Uint16Vector,
    schema.SparseIndexVector.Uint8Vector: schema.Uint8Vector,
}


def expand(sparsity: Any, stored: Array, shape: Shape) -> Array:
    """The whole of a sparse constant.

    Parameters
    ----------
    sparsity: the tensor's `SparsityParameters`. Each level of the tree is an axis: those of the shape first, then
        those inside blocks.
    stored: the elements that the file holds, in the order of the tree's leaves.
    shape: of the result.

    Raises KeyError, IndexError or ValueError if the file is damaged.
    """
    whole = np.zeros(shape, stored.dtype)
    order = sparsity.TraversalOrderAsNumpy()
    blocked = list(sparsity.BlockMapAsNumpy()) if sparsity.BlockMapLength() else []
    places = np.zeros((1, len(order)), np.int64)
    sizes = np.ones(len(order), np.int64)
    for level, axis in enumerate(order):
        metadata = sparsity.DimMetadata(level)
        if metadata.Format() == schema.DimensionType.DENSE:
            sizes[axis] = metadata.DenseSize()
            if len(places) * sizes[axis] > whole.size:
                raise ValueError("more branches than elements")
            parents, along = np.indices((len(places), sizes[axis])).reshape(2, -1)
        else:
            segments = _vector(metadata.ArraySegmentsType(), metadata.ArraySegments())
            along = _vector(metadata.ArrayIndicesType(), metadata.ArrayIndices())
            parents = np.repeat(np.arange(len(places)), np.diff(segments))
        places = places[parents]
        places[:, axis] = along
    for block, axis in enumerate(blocked):
        places[:, axis] = places[:, axis] * sizes[len(shape) + block] + places[:, len(shape) + block]
    whole[tuple(places[:, : len(shape)].T)] = stored
    return whole


def _vector(kind: int, table: Any) -> NDArray[np.int64]:
    values = _VECTORS[kind]()
    values.Init(table.Bytes, table.Pos)
    return np.array(values.ValuesAsNumpy(), np.int64)
