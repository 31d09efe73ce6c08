"""Which draft of a program takes the fewest cycles: what is tried, and the choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from operator import itemgetter

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.sw.compiler.draft import Draft
from dovetail.sw.compiler.emit import pooling
from dovetail.sw.compiler.partition.outline import Partition
from dovetail.sw.compiler.plan import choices, residency
from dovetail.sw.compiler.plan.choices import Choice, Way
from dovetail.sw.compiler.plan.smaller import smaller
from dovetail.sw.errors import CompileError
from dovetail.sw.network import ir

SURE = 0.003
"""By how much of it an estimate must exceed another one to be given up. Of 325 configurations for MobileNetV1 two take
more cycles than the better draft for it, 0.01 % and 0.11 %."""

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
    way = choice.way._replace(moves=False)
    if choice.sram not in sizes or way._replace(im2col=False) not in _ways(partition):
        return None
    inner = sizes[choice.sram]
    try:
        draft = _draft(inner, way)
        drafts: Iterable[Draft | None] = [draft]
        if choice.cascaded and way.im2col:
            drafts = draft.in_bands(inner.in_turn, _draft(inner, way._replace(im2col=False)))
        elif choice.cascaded:
            drafts = [draft.cascaded()]
        if choice.way.moves:
            drafts = [found.rearranged() for found in filter(None, drafts)]
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
    best, least = _better(best, least, best.cascaded())
    way = best.way
    found, cycles = _best(_with_im2col(partition, way, [*drafts, *along]), least - 1)
    if found:
        best, least = found, cycles
    best, least = _better(best, least, best.rearranged())
    # A plan takes the same cycles on every memory that is large enough, so it is priced on its own.
    better, limit = list[tuple[Draft, int]](), least
    for smaller_drafts in _on_less(partition, drafts, way):
        found, cycles = _best(smaller_drafts, limit - 1)
        if found:
            better.append(_better(found, cycles, found.rearranged()))
            limit = better[-1][1]
    for found, cycles in reversed(better):
        # Else another one has fewer on the larger memory.
        if cycles < least and (moved := found.on(partition.config, cycles)):
            best, least = min((best, least), moved, key=itemgetter(1))
    return best, least


def _better(draft: Draft, least: int, other: Draft | None) -> tuple[Draft, int]:
    """A draft that takes ``least`` cycles, or the other one if it takes fewer; and these."""
    cycles = other.cycles({}, least - 1) if other else None
    return (other, cycles) if other and cycles is not None else (draft, least)


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


def _on_less(partition: Partition, drafts: Sequence[Draft], way: Way) -> Iterator[list[Draft]]:
    """The drafts worth trying for smaller memories, the largest first, in kinds of which the last is usually best;
    ``way``: the best one for all of it, without im2col."""
    price = _price(drafts)
    options = partition.options
    for config in smaller(partition.config) if options.smaller and options.tiling == "free" else ():
        inner = replace(partition, config=config)
        ways = _ways(inner)
        try:
            found = _drafts(inner, (way for way in ways if not way.effort and not way.rows))
            least, along = _price(found), list[Draft]()
            near = least <= NEAR * price or least - found[-1].cascades[1] <= NEAR * price
            if near:
                found += _drafts(inner, (way for way in ways if way.effort))
                along = _drafts(inner, (way for way in ways if way.rows))
            if near or not options.effort:
                along += _with_im2col(inner, way, [*found, *along])
        except CompileError:
            return
        cascaded = [draft.cascaded() for draft in found if draft.way.effort == options.effort]
        tried = [*_worth_trying(found), *along, *filter(None, cascaded)]
        # The best of each kind, as the best of all might not do on the larger memory.
        for kind in ((False, False), (True, False), (True, True)):
            yield [draft for draft in tried if (draft.way.by_bank, draft.way.overtakes) == kind]


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
