"""Ways to compile a graph: drafts with exact prices, and the choice between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, pairwise, product
from operator import itemgetter
from types import MappingProxyType
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.run import time_program
from dovetail.sw.compiler import memory
from dovetail.sw.compiler.emit import pooling
from dovetail.sw.compiler.emit.lower import emit
from dovetail.sw.compiler.emit.operations import Transfer
from dovetail.sw.compiler.emit.segment import Packer, Segment
from dovetail.sw.compiler.emit.words import Emitter
from dovetail.sw.compiler.partition.bands import Cascade
from dovetail.sw.compiler.partition.outline import Partition, in_bands
from dovetail.sw.compiler.partition.segments import ACCELERATOR
from dovetail.sw.compiler.plan import choices, residency
from dovetail.sw.compiler.plan.cascades import Traffic, choose
from dovetail.sw.compiler.plan.choices import Choice, Way
from dovetail.sw.compiler.plan.smaller import smaller
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir
from dovetail.sw.network.digest import digest
from dovetail.sw.network.layout import Array

SURE = 0.003
"""By how much of it an estimate must exceed another one to be given up. Of 325 configurations for MobileNetV1 two take
more cycles than the better draft for it, 0.01 % and 0.11 %."""


MATTERS = 1e-4
"""What a layer's waits on a larger memory must be of a program's cycles, at effort 0, for other places to be tried."""

PARTS = (4, 3, 2)
"""Into how many tiles rows are cut, to choose from, where tasks of many steps go along rows."""

PASSES = (2, 3)
"""Into how many passes a layer is cut, to choose from, that runs between the tiles of the one before it."""

WORKING = 2
"""Banks that are left for all else, at least, where weights stay in SRAM from run to run."""

NEAR = 1.01
"""By how much the estimate for a smaller SRAM may exceed that for all of it before its plans of more effort than 0, and
those along rows, are left out: a guess. Plans of effort 0 are written until it is sure that they take more cycles."""


def plan(partition: Partition) -> Draft:
    """The draft whose program takes the fewest cycles, by `search` or as it is remembered. Raises CompileError."""
    key = choices.key_of(partition.graph, partition.config, partition.options, partition.given)
    if (choice := choices.get(key)) and (known := _draft_of(partition, choice)):
        return known
    best, cycles = search(partition)
    if choice := best.choice(cycles):
        choices.put(key, choice)
    return best


def _draft_of(partition: Partition, choice: Choice) -> Draft | None:
    """The draft that was chosen; None if that is not one of this partition's, with so many cycles."""
    sizes = {config.sram: replace(partition, config=config) for config in smaller(partition.config)}
    sizes[partition.config.sram] = partition
    if choice.sram not in sizes or choice.way._replace(im2col=False) not in _ways(partition):
        return None
    inner = sizes[choice.sram]
    try:
        draft = _draft(inner, choice.way)
        drafts: Iterable[Draft | None] = [draft]
        if choice.cascaded and choice.way.im2col:
            drafts = draft.in_bands(inner.in_turn, _draft(inner, choice.way._replace(im2col=False)))
        elif choice.cascaded:
            drafts = [draft.cascaded()]
    except CompileError:
        return None
    for found in filter(None, drafts):
        here = found if choice.sram == partition.config.sram else found.moved(partition.config)
        if here.cycles({}, None) == choice.cycles:
            return here
    return None


def search(partition: Partition) -> tuple[Draft, int]:
    """The draft whose program takes the fewest cycles, and these.

    The best schedule of each layer need not be the best for the network, so there is a draft of it for every effort up
    to the wanted one, and one without anything that stays in SRAM; and the same for smaller memories, so that more SRAM
    never costs cycles. Of those worth trying the one with the fewest cycles wins.

    Raises
    ------
    CompileError: a layer does not fit the configuration; names layer, rule and way out.
    """
    ways = _ways(partition)
    drafts = _drafts(partition, (way for way in ways if not way.rows))
    along = _drafts(partition, (way for way in ways if way.rows))
    best, least = _best([*_worth_trying(drafts), *along], None)
    assert best
    cascaded = best.cascaded()
    if cascaded and (cycles := cascaded.cycles({}, least - 1)) is not None:
        best, least = cascaded, cycles
    way = best.way
    found, cycles = _best(_with_im2col(partition, way, [*drafts, *along]), least - 1)
    if found:
        best, least = found, cycles
    # A plan takes the same cycles on every memory that is large enough, so it is priced on its own.
    better, limit = list[tuple[Draft, int]](), least
    for smaller_drafts in _on_less(partition, drafts, way):
        found, cycles = _best(smaller_drafts, limit - 1)
        if found:
            better.append((found, cycles))
            limit = cycles
    for found, cycles in reversed(better):
        # Else another one has fewer on the larger memory.
        if cycles < least and (moved := found.on(partition.config, cycles)):
            best, least = min((best, least), moved, key=itemgetter(1))
    return best, least


def _best(drafts: Sequence[Draft], limit: int | None) -> tuple[Draft | None, int]:
    """The draft with the fewest cycles, if it takes at most ``limit``."""
    best, known = None, dict[Hashable, int]()
    # Of equally fast drafts the first one. The last one is usually the best, so the others need not be finished.
    for draft in reversed(drafts):
        try:
            cycles = draft.cycles(known, limit)
        except CompileError:
            if not draft.way.is_narrow:
                raise
            continue
        if cycles is not None:
            best, limit = draft, cycles
    return best, limit or 0


def _ways(partition: Partition) -> list[Way]:
    """Those of the programs to choose from."""
    options = partition.options
    if options.tiling == "channels":
        return [Way(0, False)]
    efforts = range(options.effort + 1)
    if options.keep_tensors:
        return [Way(effort, False) for effort in efforts]
    keeping = [Way(effort, True, keeps=keeps) for keeps in _keeps(partition) for effort in efforts]
    found = [Way(0, False), *keeping, *(Way(effort, True) for effort in efforts)]
    if partition.config.serial:
        return found
    if partition.updates:
        found += [Way(effort, True, True) for effort in efforts]
    else:
        found += [Way(0, True, True, rows, by_bank=True) for rows in _tiles(partition)]
    plain = [way for way in found if way.resident and way.effort >= min(options.effort, 1) and not way.by_bank]
    found += [way._replace(by_bank=True) for way in plain]
    nodes = [node for step in partition.steps if step.is_program for node in step.nodes]
    if any(isinstance(node, ir.MatMul) for node in nodes):
        found += [way._replace(matrices=True) for way in found if way.by_bank]
    found += [way._replace(overtakes=True) for way in found if way.by_bank and not way.wide]
    if any(pooling.is_global(partition.graph, node) for node in nodes):
        pooled = [way for way in found if way.overtakes and not way.keeps]
        found += [way._replace(passes=passes) for passes in PASSES for way in pooled]
    return found


def _drafts(partition: Partition, ways: Iterable[Way]) -> list[Draft]:
    """Those of some drafts for which there is room; there must be for those that are not narrow."""
    found = list[Draft]()
    for way in ways:
        with suppress(CompileError) if way.is_narrow else nullcontext():
            found.append(_draft(partition, way))
    return found


def _draft(partition: Partition, way: Way) -> Draft:
    return Draft(partition.im2col if way.im2col and partition.im2col else partition, way)


def _with_im2col(partition: Partition, best: Way, drafts: Iterable[Draft]) -> list[Draft]:
    """Drafts in which kernels become channels, in the ``best`` way of the ``drafts`` without that, and in plain ones of
    the most effort: all of the image at once, in bands, and with cascades of others."""
    if not partition.im2col or not best.resident:
        return []
    plain = [Way(partition.options.effort, True, by_bank=by_bank) for by_bank in (False, True)]
    found = _drafts(partition, [way._replace(im2col=True) for way in dict.fromkeys((*plain, best))])
    without = {draft.way._replace(im2col=True): draft for draft in drafts}
    return [
        *found,
        *(bands for draft in found for bands in draft.in_bands(partition.in_turn, without.get(draft.way))),
    ]


def _keeps(partition: Partition) -> list[int]:
    """How many banks to try for weights that stay in SRAM from run to run, where they may and there is one program."""
    config = partition.config
    if not partition.options.keep_weights or sum(step.is_program for step in partition.steps) != 1:
        return []
    layers = (layer for layer in partition.layers.values() if layer.mode != "matmul")
    size = sum(residency.layer_constants(config, layer) for layer in layers)
    most = config.banks - WORKING
    return sorted(found for found in {min(ceil_div(size, config.bank_bytes), most), most // 2} if found > 0)


def _tiles(partition: Partition) -> list[int]:
    """Rows of a tile to try where nodes go over rows: parts of those that most of these have."""
    tensors = partition.graph.tensors
    heights = Counter(
        tensors[node.outputs[0]].shape[-2]
        for node in partition.graph.nodes
        if isinstance(node, ir.Rows) and len(tensors[node.outputs[0]].shape) > 1
    )
    if not heights:
        return []
    config, height = partition.config, max(heights, key=lambda height: (heights[height], height))
    together = max(config.softmax, config.norm, 1)
    found = (round_up(ceil_div(height, parts), together) for parts in PARTS)
    return [rows for rows in dict.fromkeys(found) if rows < height]


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

    def _banded(self, cascades: Sequence[Cascade]) -> Draft | None:
        bands = in_bands(self.partition, cascades)
        try:
            return Draft(bands, self.way) if bands else None
        except CompileError:
            return None

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


def _on_less(partition: Partition, drafts: Sequence[Draft], way: Way) -> Iterator[list[Draft]]:
    """The drafts worth trying for smaller memories, the largest first, in kinds of which the last is usually best;
    ``way``: the best one for all of it, without im2col."""
    price = _price(drafts)
    for config in smaller(partition.config) if partition.options.tiling == "free" else ():
        inner = replace(partition, config=config)
        ways = _ways(inner)
        try:
            found = _drafts(inner, (way for way in ways if not way.effort and not way.rows))
            least, along = _price(found), list[Draft]()
            near = least <= NEAR * price or least - found[-1].cascades[1] <= NEAR * price
            if near:
                found += _drafts(inner, (way for way in ways if way.effort))
                along = _drafts(inner, (way for way in ways if way.rows))
            if near or not partition.options.effort:
                along += _with_im2col(inner, way, [*found, *along])
        except CompileError:
            return
        cascaded = [draft.cascaded() for draft in found if draft.way.effort == partition.options.effort]
        tried = [*_worth_trying(found), *along, *filter(None, cascaded)]
        # The best of each kind, as the best of all might not do on the larger memory.
        for kind in ((False, False), (True, False), (True, True)):
            yield [draft for draft in tried if (draft.way.by_bank, draft.way.overtakes) == kind]


def _ends(draft: Draft, emitter: Emitter, layers: range) -> list[int]:
    """When all operations of a program have ended up to each of its layers."""
    timeline = time_program(draft.partition.config, emitter.words)
    found = [0] * len(layers)
    work = ~timeline.is_fetch
    for word, end in zip(timeline.pc[work].tolist(), timeline.end[work].tolist(), strict=True):
        layer = layers.index(emitter.layers[word])
        found[layer] = max(found[layer], end)
    return [*accumulate(found, max)]


def _price(drafts: Iterable[Draft]) -> int:
    """The least estimate."""
    return min(draft.price + draft.unpriced for draft in drafts if draft.way.is_estimated)


def _worth_trying(drafts: list[Draft]) -> list[Draft]:
    """Those that may have the fewest cycles.

    Of effort 0, where prices are estimates, a draft that is far from the best one is left out. Prices are of layers
    alone, so drafts in which nodes follow tile by tile, or matrices need no loads, are not compared by them; layers
    without a price cost what they cost in one draft or in the other, but for the transfers of their operands.
    """
    if any(draft.fused for draft in drafts):
        return drafts
    least = min(draft.price for draft in drafts if draft.way.is_estimated)
    limit = (1 + SURE) * least + max(draft.unpriced for draft in drafts)
    return [one for one in drafts if one.way not in (Way(0, False), Way(0, True)) or one.price <= limit]


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
