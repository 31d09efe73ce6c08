"""A draft: one way to compile a graph, with its exact price."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, pairwise, product
from operator import itemgetter
from types import MappingProxyType
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.run import time_program
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.emit.lower import emit
from dovetail.sw.compiler.emit.operations import Transfer
from dovetail.sw.compiler.emit.segment import Packer, Segment
from dovetail.sw.compiler.emit.words import Emitter
from dovetail.sw.compiler.partition.bands import Cascade
from dovetail.sw.compiler.partition.outline import Partition, in_bands
from dovetail.sw.compiler.partition.segments import ACCELERATOR
from dovetail.sw.compiler.plan.cascades import Traffic, choose
from dovetail.sw.compiler.plan.choices import Choice, Way
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir
from dovetail.sw.network.digest import digest
from dovetail.sw.network.layout import Array

MATTERS = 1e-4
"""What a layer's waits on a larger memory must be of a program's cycles, at effort 0, for other places to be tried."""


class Draft:
    """One way to compile a graph: segments with their schedules. Their words are written on demand.

    ``price``: the sum of what its layers' schedules cost; ``unpriced``: cycles of all transfers of the other layers'
    operands; ``fused``: whether there are element-wise nodes that follow tile by tile.
    """

    def __init__(self, partition: Partition, way: Way) -> None:
        options = replace(partition.options, effort=way.effort)
        self.partition, self.way = partition, way
        alone = sum(step.is_program for step in partition.steps) == 1
        self.segments = [
            Segment(partition, options, partition.executed(step), wanted, way, alone=alone)
            for step, wanted in zip(partition.steps, partition.outside(), strict=True)
            if step.is_program
        ]
        self.price = sum(tiling.price for segment in self.segments for tiling in segment.tilings.values())
        self.unpriced = sum(
            _transfer(partition, node)
            for segment in self.segments
            for node in segment.nodes
            if node.name not in segment.tilings
        )
        self.fused = any(isinstance(stage.tail, ir.Pointwise) for segment in self.segments for stage in segment.stages)
        self._emitters: dict[int, Emitter] = {}
        self._inner: Draft | None = None
        self._later: Mapping[str, int] = {}

    def on(self, config: Config, cycles: int) -> tuple[Draft, int] | None:
        """The same draft, which takes ``cycles``, on the larger SRAM of ``config``, and its cycles there. If there are
        additional waits, tensors near them are tried at other places within their banks, one after the other, each
        place once. None if its order of operations would not do there (`Emitter.meets`).
        """
        best = self.moved(config)
        least = best.cycles({}, None)
        if least is None:
            return None
        places, tried = self._places(best) if cycles < least else [], set[tuple[str, int]]()
        while places and cycles < least:
            name, later = place = places.pop(0)
            if place in tried:
                continue
            tried.add(place)
            other = self.moved(config, {**best._later, name: later})
            if (found := other.cycles({}, least - 1)) is not None:
                best, least = other, found
                places = self._places(best)
        return best, least

    @cached_property
    def cascades(self) -> tuple[list[Cascade], int]:
        """Layers that could run band by band, as tensors between them go to system memory and back; and about how many
        cycles that would save."""
        partition = self.partition
        cascades, saved = list[Cascade](), 0
        if not self.way.resident or self.way.wide or self.way.keeps or partition.whole or partition.config.serial:
            return cascades, saved
        shares = Counter(partition.roots.values())
        shared = {name for name, root in partition.roots.items() if root != name or shares[root] > 1}
        for segment in self.segments:
            traffic = Traffic(segment.plan.residents.keys(), shared | segment.outside)
            found, less = choose(partition.config, partition.graph, segment.links(), traffic)
            cascades += found
            saved += less
        return (cascades, saved) if saved > 0 else ([], 0)

    def cascaded(self) -> Draft | None:
        """The same in which they do; None if there are none."""
        cascades, _ = self.cascades
        return self._banded(cascades) if cascades else None

    def in_bands(self, layers: Iterable[list[Cascade]], without: Draft | None) -> Iterator[Draft]:
        """The same in which ``layers`` with im2col run band by band, as of `Partition.in_turn`, and beside them no
        others, those of `cascades`, or those of the same ``without`` im2col, as then other tensors stay in SRAM."""
        if self.way.wide:
            return
        own, _ = self.cascades
        others = [[], own] if own else [[]]
        if without:
            same = {id(node) for node in self.partition.graph.nodes}
            plain = [one for one in without.cascades[0] if same.issuperset(map(id, one.nodes))]
            others += [plain] if plain not in others else []
        for pairs, cascades in product(layers, others):
            inside = {node.name for cascade in cascades for node in cascade.nodes}
            wanted = [*cascades, *(one for one in pairs if inside.isdisjoint(node.name for node in one.nodes))]
            if wanted and (draft := self._banded(wanted)):
                yield draft

    def rearranged(self) -> Draft | None:
        """The same in which tensors that stay in SRAM move to make room for others; None if that changes nothing."""
        if self.way.moves or not any(segment.plan.crowded or segment.copies_all for segment in self.segments):
            return None
        return _if_it_fits(self.partition, self.way._replace(moves=True))

    def _banded(self, cascades: Sequence[Cascade]) -> Draft | None:
        bands = in_bands(self.partition, cascades)
        return _if_it_fits(bands, self.way) if bands else None

    def moved(self, config: Config, later: Mapping[str, int] = MappingProxyType({})) -> Draft:
        """The same draft on the larger SRAM of ``config``; ``later``: as of `residency.Plan.alive`."""
        moved = copy(self)
        moved.partition = replace(self.partition, config=config)
        moved._inner, moved._later, moved._emitters = self, later, {}
        return moved

    def choice(self, cycles: int) -> Choice | None:
        """What it is known by, if it takes ``cycles``; None where more would have to be remembered: tensors' places."""
        draft = self._inner or self
        cascaded = self.partition.whole is not None
        choice = Choice(draft.partition.config.sram, self.way, cascaded, cycles)
        return None if self._later else choice

    def _places(self, moved: Draft) -> list[tuple[str, int]]:
        """Other places of tensors near the layers that wait so long that it matters, the longest waits first: by how
        many banks they start later."""
        banks, waits = moved.partition.config.bank_bytes, list[tuple[int, int, Segment]]()
        for number, segment in enumerate(self.segments):
            emitter, inner = moved.emitted(number), self.emitted(number)
            assert emitter and inner
            least = 0 if self.partition.options.effort else MATTERS * emitter.cycles
            first = sum(len(other.nodes) for other in self.segments[:number])
            stages = [*accumulate((len(stage.nodes) for stage in segment.stages), initial=first)]
            here, there = (_ends(*each, range(first, stages[-1])) for each in ((moved, emitter), (self, inner)))
            behind = [0, *(here[end - first - 1] - there[end - first - 1] for end in stages[1:])]
            behind.append(behind[-1])
            for step, layers in enumerate(pairwise(stages)):
                more = behind[step + 2] - behind[max(step - 1, 0)]  # from the step before to the one behind
                if more > least and not emitter.late.isdisjoint(range(*layers)):
                    waits.append((more, step, segment))
        found = dict[tuple[str, int], None]()
        for _, step, segment in sorted(waits, key=itemgetter(0), reverse=True):
            for name, resident in segment.plan.residents.items():
                if resident.begin <= step + 1 and step - 1 <= resident.end:
                    needed = ceil_div(self.partition.graph.tensors[name].bytes, banks)
                    found |= dict.fromkeys((name, later) for later in range(1, resident.banks - needed + 1))
        return list(found)

    def cycles(self, known: dict[Hashable, int], limit: int | None) -> int | None:
        """Cycles of the program, None if these are more than ``limit``.

        ``known``: segments' cycles by their schedules, of other drafts as well: only addresses in system memory differ.
        """
        total = 0
        if limit is not None and self._inner is None and sum(one.least_cycles[0] for one in self.segments) > limit:
            return None
        for number, segment in enumerate(self.segments):
            key = number, _schedule(segment)
            if key not in known:
                emitter = self.emitted(number, None if limit is None else limit - total)
                if emitter is None:
                    return None
                known[key] = emitter.cycles
            total += known[key]
        return total if limit is None or total <= limit else None

    @cached_property
    def constants(self) -> Constants:
        partition = self.partition
        return Constants(partition, self.segments)

    @cached_property
    def memory(self) -> memory.Plan:
        partition = self.partition
        stored = {root for segment in self.segments for root in segment.stored} - partition.given.where.keys()
        follows = {stage.tail.name: stage.head for segment in self.segments for stage in segment.stages if stage.tail}
        keep = partition.options.keep_tensors
        base = self.constants.end
        return memory.plan(partition.graph, partition.steps, partition.roots, stored, base, keep=keep, follows=follows)

    @cached_property
    def where(self) -> dict[str, int]:
        partition = self.partition
        constants = {
            node.outputs[0]: self.constants.where[node.name]
            for node in partition.graph.nodes
            if isinstance(node, ir.Constant | ir.Pick)
        }
        places = {**self.memory.where, **constants, **partition.given.where}
        offsets = {name: part.offset for name, part in partition.parts.items()}
        return {name: places[root] + offsets.get(name, 0) for name, root in partition.roots.items() if root in places}

    def kept(self, number: int, first: int) -> Iterator[tuple[int, Transfer]]:
        """What a segment keeps in SRAM from run to run, as loads, each with its layer; ``first``: the number of the
        segment's first one."""
        segment, config = self.segments[number], self.partition.config
        for index, node in enumerate(segment.nodes):
            at = segment.kept_at(node, config)
            if at is not None and isinstance(node, ir.Update):
                size = self.partition.graph.tensors[node.outputs[0]].bytes
                yield first + index, Transfer(self.where[node.outputs[0]], at, size)
            elif at is not None and (needed := segment.constants(node)):
                yield first + index, Transfer(self.constants.where[node.name], at, needed[0])

    def emitted(self, number: int, limit: int | None = None) -> Emitter | None:
        """What has written the words of a segment; None if that takes more cycles than ``limit``."""
        emitter = self._emitters.get(number)
        if emitter is None:
            like = self._inner.emitted(number) if self._inner else None
            emitter = Emitter(self.partition.config, like, overtakes=self.segments[number].overtakes)
            first = sum(len(segment.nodes) for segment in self.segments[:number])
            where, constants = self.where, self.constants.where
            if not emit(self.segments[number], emitter, first, where, constants, self._later, limit):
                return None
            self._emitters[number] = emitter
        return emitter


def _if_it_fits(partition: Partition, way: Way) -> Draft | None:
    """A draft; None if there is no room for it."""
    try:
        return Draft(partition, way)
    except CompileError:
        return None


def _ends(draft: Draft, emitter: Emitter, layers: range) -> list[int]:
    """When all operations of a program have ended up to each of its layers."""
    timeline = time_program(draft.partition.config, emitter.words)
    found = [0] * len(layers)
    work = ~timeline.is_fetch
    for word, end in zip(timeline.pc[work].tolist(), timeline.end[work].tolist(), strict=True):
        layer = layers.index(emitter.layers[word])
        found[layer] = max(found[layer], end)
    return [*accumulate(found, max)]


def _transfer(partition: Partition, node: ir.Node) -> int:
    """Cycles on the bus of all operands of a node, without latencies."""
    size = sum(partition.graph.tensors[name].bytes for name in (*node.inputs, *node.outputs))
    return ceil_div(size, partition.config.bus_bytes) * partition.config.like_fixed.beat_cycles


def _schedule(segment: Segment) -> Hashable:
    """All that a segment's words depend on but addresses in system memory."""
    stages = tuple(tuple(node.name for node in stage.nodes) for stage in segment.stages)
    kept = tuple(segment.kept.items())
    order = segment.by_bank, segment.overtakes
    return stages, tuple(segment.plan.residents.items()), tuple(segment.tilings.items()), kept, order


class Constants:
    """The constants of a graph and of its segments' nodes: addresses by node, what makes them, where they end."""

    def __init__(self, partition: Partition, segments: Iterable[Segment]) -> None:
        self.where: dict[str, int] = {}
        self.packers: list[tuple[int, Packer]] = []
        self.end = partition.given.start
        band_of = partition.band_of
        for step in partition.steps:
            for node in step.nodes:
                if isinstance(node, ir.Constant) and step.device == ACCELERATOR:
                    self._add([node.name], node.value.nbytes, partial(_bytes, node.value))
        for rows in partition.records:
            at = self._add([], rows.bytes, rows.packed)
            self.where |= {pick.name: at + rows.offsets[pick.outputs[0]] for pick in rows.picks}
        known: dict[Hashable, int] = {}
        segments = list(segments)
        records = {
            node.name: digest(node.bias, node.requant) for one in segments for node in one.nodes if _is_layer(node)
        }
        often = Counter(records.values())
        for segment in segments:
            for node in segment.nodes:
                if needed := segment.constants(node):
                    same: Hashable = band_of.get(node.name, node.name)
                    if _is_layer(node) and often[records[node.name]] > 1:  # perhaps steps of one recurrent layer
                        same = records[node.name], digest(node.weights, node.rest)
                    key = same, segment.form_of(node)
                    if key in known:
                        self.where[node.name] = known[key]
                        continue
                    known[key] = self._add([node.name], *needed)

    def _add(self, names: Iterable[str], size: int, packer: Packer) -> int:
        """Place constants of nodes with some names; returns their address."""
        address = self.end
        self.where |= dict.fromkeys(names, address)
        self.packers.append((address, packer))
        self.end += memory.align(size)
        return address


def _is_layer(node: ir.Node) -> TypeGuard[ir.Conv | ir.Depthwise]:
    return isinstance(node, ir.Conv | ir.Depthwise)


def _bytes(values: Array) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8).ravel()
