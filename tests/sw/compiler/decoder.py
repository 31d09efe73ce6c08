"""A small network like a step of a decoder: a run replaces the row of its position in caches of keys and values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.sw.network import ir
from dovetail.sw.network.layout import Array, Layout
from dovetail.sw.random.networks import RandomNet

WIDTH, HEADS, LENGTH = 16, 2, 16
DEPTH = WIDTH // HEADS
WORDS = 300
"""Tokens, where steps have such: more rows than a page holds."""


def decoder(length: int = LENGTH, layers: int = 2, *, dtype: str = "int64", rows: int = 1, words: int = 0) -> ir.Graph:
    """``rows``: so many tokens at once; ``words``: rows of a table that a token picks what it is from, 0: that is
    given. Caches hold [heads, length, depth]."""
    net = RandomNet(7)
    net.tensors["position"] = ir.Tensor("position", (1,), None, 0, dtype)
    if words:
        net.tensors["token"] = ir.Tensor("token", (1,), None, 0, dtype)
        table = net.random.integers(-128, 128, (words, rows * WIDTH)).astype(np.int8)
        x = net.node(ir.Pick, ("token",), net.tensor(1, 1, rows, WIDTH), table=table)
    else:
        x = net.input(1, 1, rows, WIDTH)
    states: list[ir.State] = []

    def heads(name: str) -> str:
        """[rows, width] as [heads, rows, depth]."""
        out = net.tensor(HEADS, rows, DEPTH)
        net.tensors[out] = replace(net.tensors[out], zero_point=net.zero(name))
        view = ir.positions((rows, HEADS, DEPTH)).transpose(1, 0, 2)
        copies = (ir.Copy.between(view, ir.positions((HEADS, rows, DEPTH))),)
        return net.node(ir.Move, (name,), out, copies=copies, kind="transpose")

    def cached(new: str) -> str:
        state, after = (net.tensor(HEADS, length, DEPTH) for _ in range(2))
        for name in (state, after):
            net.tensors[name] = replace(net.tensors[name], zero_point=net.zero(new))
        initial = np.full((HEADS, length, DEPTH), net.zero(new), np.int8)
        states.append(ir.State(f"cache {len(states)}", state, after, initial))
        return net.node(ir.Update, (state, new, "position"), after, axis=1)

    for _ in range(layers):
        query, key, value = (heads(net.conv(x, WIDTH, 1)) for _ in range(3))
        shares = net.matmul(query, cached(key), transposed=True)
        mixed = net.matmul(shares, cached(value))
        together = net.tensor(1, 1, rows, WIDTH)
        net.tensors[together] = replace(net.tensors[together], zero_point=net.zero(mixed))
        view = ir.positions((HEADS, rows, DEPTH)).transpose(1, 0, 2)
        target = ir.positions((rows, HEADS, DEPTH))
        net.node(ir.Move, (mixed,), together, copies=(ir.Copy.between(view, target),), kind="transpose")
        x = net.elementwise("ADD", net.conv(together, WIDTH, 1), x)

    def port(name: str) -> ir.Port:
        tensor = net.tensors[name]
        return ir.Port(name, name, tensor.dtype, tensor.scale, tensor.zero_point, Layout.plain(tensor.shape))

    inputs, nodes = (port("token" if words else net.inputs[0]), port("position")), tuple(net.nodes)
    return ir.Graph(inputs, (port(x),), net.tensors, nodes, "random", "decoder", tuple(states)).check()


def steps(graph: ir.Graph, count: int = LENGTH) -> list[dict[str, Array]]:
    """Inputs of so many runs, one position after the other."""
    random = np.random.default_rng(3)
    first, last = graph.inputs
    return [
        {
            first.name: (
                random.integers(-128, 128, first.shape).astype(np.int8)
                if first.dtype == "int8"
                else random.integers(0, WORDS, first.shape).astype(first.dtype)
            ),
            last.name: np.array([position], last.dtype),
        }
        for position in range(count)
    ]
