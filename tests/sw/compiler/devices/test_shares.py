"""Shares of nodes: put together, what they make is what the nodes make."""

import random

import numpy as np
import pytest

from dovetail.sw import frontend
from dovetail.sw.compiler.devices.shares import CHANNELS, ROWS, Region, Span, share_of
from dovetail.sw.compiler.partition.segments import border_of
from dovetail.sw.network import ir, reference
from dovetail.sw.passes.integer.simplify import simplify


def graph_of(name: str) -> ir.Graph:
    return simplify(frontend.parse(frontend.read(f"zoo:{name}"), None).graph)


def cut(value: np.ndarray, region: Region) -> np.ndarray:
    if region.is_whole:
        return value
    first, count = region.span
    return value[:, first : first + count] if region.kind == ROWS else value[..., first : first + count]


@pytest.mark.parametrize("name", ["resnet8", "dscnn", "mobilenet_v2_block"])
def test_shares_together_make_what_the_nodes_make(name: str) -> None:
    graph, rng = graph_of(name), random.Random(51015)
    inputs = {port.tensor: np.random.default_rng(5).integers(-128, 128, graph.tensors[port.tensor].shape, np.int8)
              for port in graph.inputs}  # fmt: skip
    values = reference.evaluate(graph, inputs, keep_all=True)
    nodes, shared = graph.nodes, {ROWS: 0, CHANNELS: 0}
    for first in range(len(nodes)):
        for last in range(first + 1, min(first + 4, len(nodes)) + 1):
            group, kind = nodes[first:last], rng.choice((ROWS, CHANNELS))
            made = border_of(graph, group)[1]
            size = min(graph.tensors[tensor].shape[1 if kind == ROWS else -1] for tensor in made)
            if size < 2 or any(kind == ROWS and len(graph.tensors[tensor].shape) < 4 for tensor in made):
                continue
            border = rng.randrange(1, size)
            found = {tensor: np.zeros_like(values[tensor]) for tensor in made}
            for part in (0, 1):
                spans: dict[str, Span] = {}
                for tensor in made:
                    length = graph.tensors[tensor].shape[1 if kind == ROWS else -1]
                    at = length * border // size
                    spans[tensor] = (0, at) if not part else (at, length - at)
                share = share_of(graph, group, kind, spans)
                if share is None:
                    break
                share.graph.check()
                given = {name: cut(values[region.tensor.name], region) for name, region in share.reads.items()}
                results = reference.evaluate(share.graph, given, keep_all=True)
                for name, region in share.writes.items():
                    cut(found[region.tensor.name], region)[...] = results[name]
            else:
                shared[kind] += 1
                for tensor in made:
                    np.testing.assert_array_equal(found[tensor], values[tensor], f"{first}..{last} {kind} {tensor}")
    assert min(shared.values()) > 1, shared
