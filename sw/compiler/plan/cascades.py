"""Chooses cascades: which layers run band by band of rows, and in how many bands.

Candidates are tensors that a plan moves to system memory and back, though one program both makes and reads them. The
nodes around them are divided into cascades with the least sum of estimates.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from operator import itemgetter
from typing import NamedTuple

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.partition.bands import Cascade, bands_of, is_local, leaves_out, needed
from dovetail.sw.network import ir

BANDS = range(2, 9)
"""Numbers of bands to try. More were never worth it on networks of the zoo: rows are computed and weights loaded again
(docs/decisions/0016-cascades.md)."""
MARGIN = 1.1
"""By what part of it a cascade's estimate must be below that of its steps one by one."""
LONGEST = 8
"""Nodes of a cascade, at most: of longer ones the bands need more and more rows twice."""
OVERHEAD = 120
"""Cycles of a node of a band beside its work: to the first result, and between its instructions."""
SHARE = 3 / 4
"""Of SRAM, what the tensors between layers may take; weights, and tiles of what lies outside, take the rest."""


class Link(NamedTuple):
    """A step of a program: its nodes, the last of which makes its result; its cycles on the array; the price of its
    schedule, 0 if it has none or another node follows; bytes of weights, and those of SRAM that no resident takes while
    it runs. The vector unit is taken to work beside the array."""

    nodes: tuple[ir.Node, ...]
    array: int
    price: int
    weights: int
    free: int

    @property
    def reads(self) -> set[str]:
        """The tensors from before that it reads."""
        return {name for node in self.nodes for name in node.inputs} - {node.outputs[0] for node in self.nodes}

    @property
    def writes(self) -> str:
        """The tensor that it makes."""
        return self.nodes[-1].outputs[0]


@dataclass(frozen=True)
class Traffic:
    """Of a program's tensors those that stay in SRAM, ``residents``, and those that are not its own, ``outside``: read
    by others, or of the same bytes as others."""

    residents: Collection[str]
    outside: Collection[str]


def choose(config: Config, graph: ir.Graph, links: Sequence[Link], traffic: Traffic) -> tuple[list[Cascade], int]:
    """Cascades of a program's steps, which are in order, and about how many cycles they save."""
    return _Chooser(config, graph, links, traffic).best()


class _Chooser:
    def __init__(self, config: Config, graph: ir.Graph, links: Sequence[Link], traffic: Traffic) -> None:
        self.config, self.graph, self.links, self.traffic = config, graph, links, traffic
        self.local = [all(is_local(graph, node) for node in link.nodes) for link in links]
        self.sparse = [any(leaves_out(node) for node in link.nodes) for link in links]
        self.readers: dict[str, list[int]] = {}
        for number, link in enumerate(links):
            for name in link.reads:
                self.readers.setdefault(name, []).append(number)

    def best(self) -> tuple[list[Cascade], int]:
        """The division of the least sum."""
        single = [self._cost(number) for number in range(len(self.links))]
        costs, found = [0.0], list[tuple[int, Cascade | None]]()
        for end in range(1, len(self.links) + 1):
            ways: list[tuple[float, int, Cascade | None]] = [(costs[end - 1] + single[end - 1], end - 1, None)]
            fewest = BANDS[0]
            for begin in range(end - 1, max(end - LONGEST, 0) - 1, -1):
                if not self.local[begin]:
                    break
                if begin == end - 1 or not self._is_closed(begin, end):
                    continue
                if costs[begin] + self._least(begin, end) >= min(way[0] for way in ways):
                    continue
                way = self._cascade(begin, end, fewest)
                if not way:  # longer ones need as many bands, or more
                    break
                fewest = way[1].bands
                ways.append((costs[begin] + way[0], begin, way[1]))
            cost, begin, best = min(ways, key=itemgetter(0))
            costs.append(cost)
            found.append((begin, best))
        cascades, end = list[Cascade](), len(self.links)
        while end:
            end, cascade = found[end - 1]
            cascades += [cascade] if cascade else []
        return cascades, round(sum(single) - costs[-1])

    def _is_closed(self, begin: int, end: int) -> bool:
        """Whether steps make one result, and all else that they make is not in SRAM and read by them only."""
        traffic = self.traffic
        for link in self.links[begin : end - 1]:
            name = link.writes
            if name in traffic.residents or name in traffic.outside or max(self.readers.get(name, [end])) >= end:
                return False
        return True

    def _least(self, begin: int, end: int) -> float:
        """What no cascade of some steps costs less than. Where windows leave rows out, bands compute fewer of them."""
        links = self.links[begin:end]
        array = 0 if any(self.sparse[begin:end]) else sum(link.array for link in links)
        return MARGIN * array + BANDS[0] * len(links) * OVERHEAD

    def _cascade(self, begin: int, end: int, fewest: int) -> tuple[float, Cascade] | None:
        """The cascade of the fewest bands that fit, ``fewest`` at least, and its cost."""
        links = self.links[begin:end]
        nodes = tuple(node for link in links for node in link.nodes)
        made = {link.writes: (n, max(self.readers[link.writes]) - begin) for n, link in enumerate(links[:-1])}
        free = min(link.free for link in links)
        for bands in range(fewest, BANDS.stop):
            cascade = Cascade(nodes, bands)
            if bands > self.graph.tensors[nodes[-1].outputs[0]].shape[1]:
                break
            found = (needed(self.graph, nodes, rows) for rows in bands_of(self.graph, cascade))
            extents = [extent for extent in found if extent is not None]
            if len(extents) < bands:
                break
            largest = max(
                sum(self._bytes(name, extent[name][1]) for name, (first, last) in made.items() if first <= n <= last)
                for extent in extents
                for n in range(len(links))
            )
            if largest <= SHARE * free:
                rows = Counter[str]()
                for extent in extents:
                    rows.update({name: count for name, (_, count) in extent.items()})
                return self._banded(links, cascade, rows, made), cascade
        return None

    def _banded(self, links: Sequence[Link], cascade: Cascade, rows: Mapping[str, int], made: Collection[str]) -> float:
        """The cost of a cascade that computes and reads so many ``rows`` of each tensor."""
        again = [rows[name] / self.graph.tensors[name].shape[1] for name in (link.writes for link in links)]
        loads = sum(self._bytes(name, rows[name]) for name in self._loaded(links) - set(made))
        loads += cascade.bands * sum(link.weights for link in links)
        stores = 0 if links[-1].writes in self.traffic.residents else self.graph.tensors[links[-1].writes].bytes
        array = sum(link.array * more for link, more in zip(links, again, strict=True))
        return MARGIN * max(array, self._bus(loads), self._bus(stores)) + cascade.bands * len(links) * OVERHEAD

    def _cost(self, number: int) -> float:
        """The cost of a node of its own."""
        link = self.links[number]
        loads = sum(self.graph.tensors[name].bytes for name in self._loaded((link,))) + link.weights
        stores = 0 if link.writes in self.traffic.residents else self.graph.tensors[link.writes].bytes
        return link.price or max(link.array, self._bus(loads), self._bus(stores)) + OVERHEAD

    def _loaded(self, links: Sequence[Link]) -> set[str]:
        """The tensors that steps read from system memory, or from one another."""
        return {name for link in links for name in link.reads} - set(self.traffic.residents)

    def _bytes(self, name: str, rows: int) -> int:
        return rows * prod(self.graph.tensors[name].shape[2:])

    def _bus(self, size: int) -> int:
        return ceil_div(size, self.config.bus_bytes) * self.config.like_fixed.beat_cycles
