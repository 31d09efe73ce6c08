"""First layers of few channels, whose kernels become channels (im2col): then the array's input lanes are full.

The pixels of a kernel's row lie side by side, and so run along the lanes, but those of the next row do not. So the last
step of each row has lanes without a tap. Where all pixels of a window are the channels of one pixel, only the last step
of all has: a kernel of 3 x 3 pixels of 3 channels takes 4 steps of 8 lanes instead of 3 times 2. The vector unit copies
the image's rows into that order while the array computes the rows before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.array_layer import layer_of
from dovetail.sw.compiler.emit.pooling import im2col_cycles
from dovetail.sw.compiler.partition.bands import Cascade, bands_of, needed
from dovetail.sw.compiler.plan.residency import layer_cycles
from dovetail.sw.network import ir
from dovetail.sw.passes.integer.edit import Names, with_others

BANDS = 8
"""Into how many bands copies and convolution are cut, at least, so that they run beside each other."""
SHARE = 4
"""A band's copies take about one part in so many of SRAM, at most."""

Form = tuple[tuple[ir.Im2col, ir.Conv], ir.Tensor]
"""What takes the place of a convolution, and the tensor between."""


def with_im2col(graph: ir.Graph, config: Config, host: Collection[str], *, partly: bool) -> ir.Graph:
    """The graph in which convolutions have this form where it should take fewer cycles, in all of their rows or also
    ``partly``; the graph itself if there are none. ``host``: names of nodes that the host computes."""
    if config.serial or not config.vector:
        return graph
    others, added = dict[str, list[ir.Node]](), list[ir.Tensor]()
    for node in graph.nodes:
        if not isinstance(node, ir.Conv) or node.name in host or not _suits(node):
            continue
        least: tuple[float, int] = layer_cycles(config, layer_of(config, graph, node)), 0
        for nodes, copied in _forms(graph, node):
            with_copied = replace(graph, tensors={**graph.tensors, copied.name: copied})
            work = _Work.of(config, with_copied, nodes, node)
            cycles, count = work.best(BANDS, partly=partly)
            if (cycles, count * work.vector) < least:
                least, others[node.name] = (cycles, count * work.vector), list(nodes)
                added.append(copied)
    return with_others(graph, others, added)


def in_turn(graph: ir.Graph, config: Config, before: ir.Graph, *, partly: bool) -> list[list[Cascade]]:
    """Copies and convolutions in bands of rows: then the copies of some rows run beside the convolution of those
    before, and take little SRAM. Not where a band would see nothing but padding.

    With ``partly``, where the array would wait for the copies of all bands, only some are copied, between others that
    are computed as in the graph ``before``; both ways are given where it is close.
    """
    every, some = list[Cascade](), list[Cascade]()
    for copies, single in pairwise(graph.nodes):
        if isinstance(copies, ir.Im2col) and isinstance(single, ir.Conv):
            copied, result = graph.tensors[copies.outputs[0]], graph.tensors[single.outputs[0]]
            bands = max(ceil_div(SHARE * copied.bytes, config.sram), BANDS)
            cascade = Cascade((copies, single), min(bands, result.nhwc[1]))
            if not all(needed(graph, cascade.nodes, rows) for rows in bands_of(graph, cascade)):
                continue
            every.append(cascade)
            plain = next(node for node in before.nodes if node.name == single.name)
            assert isinstance(plain, ir.Conv)
            work = _Work.of(config, graph, (copies, single), plain)
            _, count = work.best(cascade.bands, partly=partly)
            some.append(replace(cascade, instead=plain, plain=work.turns(cascade.bands, count)[1]))
    plain_bands = max((len(cascade.plain) for cascade in some), default=0)
    return [every] if not plain_bands else [every, some] if plain_bands == 1 else [some]


def _suits(node: ir.Conv) -> bool:
    """Whether the kernel has rows, and columns that run along the lanes."""
    return node.kernel[0] > 1 and node.dilation[1] == 1 and node.groups == 1 and node.rest is None


def _forms(graph: ir.Graph, node: ir.Conv) -> Iterator[Form]:
    """With whole kernels as channels, and with their rows only, so that a pixel of the image has as many copies as the
    kernel has rows, whatever the stride."""
    source, (rows, columns), (top, left, bottom, right) = graph.tensors[node.inputs[0]], node.kernel, node.pads
    _, _, width, channels = source.nhwc
    _, out_height, out_width, _ = graph.tensors[node.outputs[0]].nhwc
    for across in (columns, 1):
        whole, names = across == columns, Names(graph)
        shape = 1, out_height, out_width if whole else width, rows * across * channels
        copied = names.like(source, shape, f"{node.name}/copied")
        copies = ir.Im2col(
            name=names.fresh(f"{node.name}/im2col"),
            inputs=node.inputs,
            outputs=(copied.name,),
            kernel=(rows, across),
            stride=(node.stride[0], node.stride[1] if whole else 1),
            dilation=(node.dilation[0], 1),
            pads=(top, left, bottom, right) if whole else (top, 0, bottom, 0),
            value=node.requant.zero_in,
        )
        order = (0, 1, 2, 3) if whole else (0, 2, 1, 3)
        single = replace(
            node,
            inputs=(copied.name,),
            weights=node.weights.transpose(order).reshape(len(node.weights), 1, columns // across, shape[-1]),
            stride=(1, 1 if whole else node.stride[1]),
            dilation=(1, 1),
            pads=(0, 0, 0, 0) if whole else (0, left, 0, right),
        )
        yield (copies, single), copied


class _Work(NamedTuple):
    """About the cycles that a layer takes: its copies, and the array with them and without."""

    vector: int
    array: int
    plain: int

    @classmethod
    def of(cls, config: Config, graph: ir.Graph, nodes: tuple[ir.Im2col, ir.Conv], plain: ir.Conv) -> _Work:
        copies, single = nodes
        array, without = (layer_cycles(config, layer_of(config, graph, node)) for node in (single, plain))
        return cls(im2col_cycles(config, copies, graph.tensors[copies.outputs[0]].shape), array, without)

    def best(self, bands: int, *, partly: bool) -> tuple[float, int]:
        """The fewest cycles of array and vector unit beside each other, and the number of copied bands with which they
        take these: all, or with ``partly`` fewer."""
        return min((self.turns(bands, count)[0], count) for count in range(1 if partly else bands, bands + 1))

    def turns(self, bands: int, count: int) -> tuple[float, frozenset[int]]:
        """About the cycles if ``count`` bands are copied, and the numbers of the others. The vector unit copies one
        after the other; a band is one of them if its copies are there when the array comes to it, or if those that are
        left must be."""
        vector, array, plain = (cycles / bands for cycles in self)
        now, copied, others = 0.0, 0, set[int]()
        for band in range(bands):
            ready = (copied + 1) * vector
            if copied < count and (ready <= now or bands - band == count - copied):
                now = max(now, ready) + array
                copied += 1
            else:
                now += plain
                others.add(band)
        return now, frozenset(others)
