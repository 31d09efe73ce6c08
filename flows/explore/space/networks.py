"""The networks of a space as workers and the store take them: bytes that need no other file, and their hash."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.sw import frontend
from dovetail.sw.frontend.onnx.external_data import self_contained
from dovetail.sw.frontend.open_shapes import with_shapes


@dataclass(frozen=True)
class NetworkFile:
    """A network's file in memory. ``hash``: SHA-256 of its bytes, in hexadecimal digits."""

    name: str
    source: str
    hash: str
    data: bytes = field(repr=False)


def read(workload: Workload) -> NetworkFile:
    """The file of a workload, external data and sizes of inputs included; it is parsed, to see that it can be.

    Raises NetworkError.
    """
    name, data = frontend.read(workload.source)
    data = with_shapes(self_contained(data, name, Path(workload.source).parent), name, workload.shapes)
    graph = frontend.parse(data, name, None)
    return NetworkFile(graph.name, workload.source, hashlib.sha256(data).hexdigest(), data)


def read_all(space: Space) -> list[NetworkFile]:
    """The files of a space's workloads, in their order. Raises NetworkError."""
    return list(map(read, space.workloads))
