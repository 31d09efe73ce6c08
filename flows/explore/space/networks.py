"""The networks of a space as workers and the store take them: their graphs, and the hash of their files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from dovetail.flows.explore.space.design_space import Space, Workload
from dovetail.isa import extensions
from dovetail.sw import frontend
from dovetail.sw.network.ir import Graph
from dovetail.sw.passes.integer.simplify import simplify


@dataclass(frozen=True)
class SpaceNetwork:
    """A network of a space. ``hash``: SHA-256 of its file, in hexadecimal digits."""

    name: str
    source: str
    hash: str
    graph: Graph = field(repr=False)


def read(workload: Workload) -> SpaceNetwork:
    """The network of a workload. Raises NetworkError."""
    parsed = frontend.parse(frontend.read(workload.source), workload.shapes)
    graph = simplify(parsed.graph)
    return SpaceNetwork(graph.name, workload.source, hashlib.sha256(parsed.data).hexdigest(), graph)


def read_all(space: Space) -> list[SpaceNetwork]:
    """The networks of a space's workloads, in their order; what an extension of the space offers for a node is in them.

    Raises NetworkError, and ConfigError for an extension that is not installed.
    """
    for names in space.axes.get("extensions", ()):
        for name in names:
            extensions.load(name)
    return list(map(read, space.workloads))
