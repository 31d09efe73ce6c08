"""Decides which tensors stay in SRAM from the node that makes them to the last one that reads them.

A tensor in SRAM lies dense in whole banks of its own. Who goes first: the tensor that saves the most cycles for the
banks and nodes that it occupies, where a node is taken to last as long as its computation, its loads or its stores,
whichever is longest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from dovetail.isa.common.sizes import ceil_div, round_up
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.arena import Arena, Room, Runs, runs_of
from dovetail.sw.compiler.layer import ConvLayer
from dovetail.sw.compiler.plan import array_time, schedule
from dovetail.sw.compiler.plan.smaller import Residents

EXPOSED = 8
"""Of what a node loads or stores beside its computation, one part in so many is taken to show: the first tile's load,
the last tile's store."""
TAIL_SHARE = 8
"""Of the free banks, one part in so many goes to each kind of buffer of a node that follows tile by tile."""
TABLE = 512
"""Room for a table, more than it takes so that what follows is aligned."""


MANY = 16
"""Banks from which on some are set apart where the tasks of many steps run beside each other."""
STREAMED, CACHES, KEPT = 2, 2, 6
"""Then, banks for what the vector unit streams, of which the last one keeps what several nodes read; for variables
whose new rows it puts in their place; and for what stays. Where tasks go along rows, the last one has the tables, and
results of tiles that the vector unit reads, or that are stored, have the place of the variables. Others go elsewhere if
they can, so that units need not wait for one another's ports."""

MOVED = 8
"""Tensors that are moved to make room for another one are fewer."""

KEPT_SHARE = 2
"""Of the banks that are left beside these, one part in so many is for what stays in SRAM from run to run."""


def apart_of(config: Config, banks: int = CACHES) -> Runs:
    """The banks that are set apart for variables, or for results of tiles."""
    many = config.banks >= MANY and config.vector and not config.serial
    return ((config.banks - STREAMED - banks, banks),) if many else ()


def kept_banks(config: Config, size: int) -> int:
    """How many banks are set apart for so many bytes of variables, and for weights, that stay in SRAM from run to run;
    0 if too little would be left for other weights."""
    banks = (config.banks - STREAMED - KEPT) // KEPT_SHARE
    return banks if apart_of(config) and 0 < size <= banks * config.bank_bytes else 0


@dataclass(frozen=True)
class Resident:
    """A tensor in SRAM: ``banks`` from ``bank`` on, while the segment's nodes ``begin .. end`` run; ``skip``: bytes
    from the first bank's start to it."""

    bank: int
    banks: int
    begin: int
    end: int
    skip: int = 0

    @property
    def mask(self) -> int:
        """Its banks, a bit each."""
        return ((1 << self.banks) - 1) << self.bank

    @property
    def steps(self) -> range:
        """Those beside which it is there."""
        return range(self.begin, self.end + 1)

    def is_beside(self, other: Resident) -> bool:
        """Whether both are there during a step."""
        return self.begin <= other.end and other.begin <= self.end

    def at(self, config: Config) -> int:
        """Its SRAM address on a configuration of so much or more SRAM."""
        return self.bank * config.bank_bytes + self.skip


@dataclass(frozen=True)
class Work:
    """A step of a segment, in execution order: a node, or one with another that follows it tile by tile.

    ``reads``: the tensors that it reads, ``writes`` the one that it writes, by the name of the tensor whose bytes they
    share; ``array``: its layer if it runs on the array; ``cycles``: its computation; ``constants``: bytes of its
    weights; ``bound``: what it reads or writes in system memory only; ``tail``: whether an element-wise node follows,
    ``operand``: the tensor that this one reads besides, ``table``: whether it has a table; ``copied``: whether results
    that stay in SRAM are copied there from where the tiles are; ``whole``: whether tiles have all rows; ``row``: bytes
    of a row that is not cut, of a node of the vector unit that has constants; ``item``: bytes of an element of what it
    writes; ``ahead``: beside how many steps before it it may run.
    """

    reads: tuple[str, ...]
    writes: str
    array: ConvLayer | None
    cycles: int
    constants: int
    bound: frozenset[str] = frozenset()
    tail: bool = False
    operand: str | None = None
    table: bool = False
    copied: bool = False
    whole: bool = False
    row: int = 0
    item: int = 1
    ahead: int = 0


@lru_cache(maxsize=4096)
def layer_cycles(config: Config, layer: ConvLayer) -> int:
    """About the cycles of a whole layer on the array."""
    extent = layer.extent(layer.out_height, layer.out_width)
    stripe = array_time.longest_stripe(config, layer)
    groups = layer.out_channels // layer.group[1] if layer.mode == "grouped" else 1

    def one(channels: int) -> int:
        return array_time.array_cycles(config, layer, extent, layer.out_channels, channels, stripe)

    more = (layer.terms - 1) * one(layer.span[1]) if layer.terms > 1 else 0
    return groups * one(layer.channels) + more + array_time.repeated_cycles(config, layer, extent)


@lru_cache(maxsize=4096)
def layer_constants(config: Config, layer: ConvLayer) -> int:
    """Bytes of all weights of a layer."""
    more = (layer.terms - 1) * layer.weight_bytes(config, layer.out_channels, layer.span[1]) if layer.terms > 1 else 0
    return int(layer.weight_bytes(config, layer.out_channels, layer.channels)) + int(more)


Extent = tuple[int, int]
"""SRAM byte address, bytes."""


class Plan:
    """The residents of a segment.

    Parameters
    ----------
    config
        The accelerator.
    works
        The segment's nodes.
    sizes
        Bytes of every tensor that they read or write.
    stored
        Tensors that must be in system memory too.
    enabled
        Whether there may be any.
    apart
        How many banks are set apart for variables (`apart_of`); 0 if none are for anything.
    kept
        How many banks keep what they have from run to run: those that are set apart, or else the last ones.
    along_rows
        Whether they are for tasks that go along rows, and not for variables.
    shares
        Whether small tensors that the array reads as second operands lie in banks together. What several nodes read,
        and nobody makes, has a bank of its own then, if there are many.
    passes
        Whether passes of a layer go between the tiles of the layer before it, whose planes are pooled.
    moves
        Whether tensors move to make room for others, and take places where nobody waits for the vector unit.

    Attributes
    ----------
    crowded
        Whether a tensor could be at a better place, or could be there if others moved.
    """

    def __init__(
        self,
        config: Config,
        works: Sequence[Work],
        sizes: Mapping[str, int],
        stored: Collection[str],
        *,
        enabled: bool = True,
        apart: int = 0,
        kept: int = 0,
        along_rows: bool = False,
        shares: bool = False,
        passes: bool = False,
        moves: bool = False,
    ) -> None:
        self.config, self.works, self.sizes, self.stored = config, works, sizes, stored
        self.residents: dict[str, Resident] = {}
        self._apart, self._kept, self._along_rows, self._shares = apart, kept, along_rows, shares
        self._passes, self._moves, self.crowded = passes, moves, False
        self._together = list[str]()
        """Tensors in banks that they share, or that others may share with them."""
        again = not along_rows if apart else shares and not kept and config.banks >= MANY
        self.loaded = self._read_again() if again else {}
        """Tensors from outside that are loaded for the first node that reads them."""
        self.residents |= self.loaded
        self.banks = config.banks - (STREAMED + apart if apart else kept or bool(self.loaded))
        """Those that residents and the array's buffers may take, from the first one on."""
        self._free = [(1 << self.banks) - 1] * len(works)
        for name, begin, end in self._candidates() if enabled else ():
            self._try(name, begin, end)

    def space(self, number: int) -> schedule.Space:
        """What a step's first node finds; addresses are those of the whole tensors whose bytes it shares."""
        work = self.works[number]
        source = self.residents.get(work.reads[0]) if work.reads else None
        target = None if work.tail or work.copied else self.residents.get(work.writes)
        places = [one.at(self.config) if one else None for one in (source, target, self._matrix(work))]
        return schedule.Space(self._split(number)[0], *places)

    def layer(self, number: int) -> ConvLayer | None:
        """What a step's first node computes on the array."""
        work = self.works[number]
        return replace(work.array, inside=self._matrix(work) is not None) if work.array else None

    def _matrix(self, work: Work) -> Resident | None:
        """Where the matrix of a product stays."""
        product = work.array and work.array.mode == "matmul"
        return self.residents.get(work.reads[1]) if product else None

    def free(self, number: int) -> int:
        """Bytes of the banks that no resident has during a step."""
        return self._free[number].bit_count() * self.config.bank_bytes

    def alive(self, number: int, later: Mapping[str, int]) -> Residents:
        """The residents beside a step; ``later``: by how many banks some start later on a larger SRAM."""
        found = ((name, r) for name, r in self.residents.items() if r.begin <= number <= r.end)
        places = tuple((r.bank, r.banks, later.get(name, 0)) for name, r in found)
        return (*places, (self.banks, self._kept, 0)) if self._kept else places

    @property
    def results(self) -> Runs | None:
        """The banks that are set apart for results of tiles; None if there are none."""
        return apart_of(self.config) if self._apart and self._along_rows else None

    def areas(self, number: int) -> tuple[Extent, Extent]:
        """Where the node that follows tile by tile has its operand and its table, and where its results."""
        return self._split(number)[1]

    def _split(self, number: int) -> tuple[Runs, tuple[Extent, Extent]]:
        """The banks of a step's first node, and the areas of the one that follows."""
        work, free = self.works[number], runs_of(self._free[number], self.config.banks)
        if self._apart and not work.array:
            return self._of_vector(number), ((0, 0), (0, 0))
        if self._apart:
            free = runs_of(self._free[number] & -(1 << KEPT), self.config.banks)
        if not work.tail:
            return free, ((0, 0), (0, 0))
        streamed = work.operand is not None and work.operand not in self.residents
        if self._apart:
            half, end = self.config.bank_bytes // 2, self.config.banks * self.config.bank_bytes
            return free, ((end - half, half), (end - self.config.bank_bytes - half, half))
        count = max(1, sum(banks for _, banks in free) // TAIL_SHARE)
        areas = []
        for wanted in (streamed or work.table, work.writes not in self.residents):
            area = 0, 0
            run = min((run for run in free if run[1] >= count), key=lambda run: run[1], default=None)
            if wanted and run:
                area = (run[0] + run[1] - count) * self.config.bank_bytes, count * self.config.bank_bytes
                free = tuple((first, n - count * ((first, n) == run)) for first, n in free)
                free = tuple(run for run in free if run[1])
            areas.append(area)
        return free, (areas[0], areas[1])

    def _of_vector(self, number: int) -> Runs:
        """The banks of a step of the vector unit."""
        end, first = self.config.banks - 1, self.config.banks - STREAMED
        if self._streams_little(number):
            work = self.works[number]
            inside = {*work.reads, work.writes} <= self.residents.keys()
            return ((end, 1),) if self._along_rows and inside else ((first, end - first),)
        return runs_of(self._free[number] | (1 << end) - (1 << first), end)

    def _streams_little(self, number: int) -> bool:
        """Whether the banks for what the vector unit streams do for a step of it."""
        work = self.works[number]
        streamed = [name for name in (*work.reads, work.writes) if name not in self.residents]
        size = 2 * sum(self.sizes[name] for name in streamed) + work.constants
        stays = work.writes in self.residents or (len(streamed) == 1 and not work.constants)
        return stays and 2 * size <= (STREAMED - 1) * self.config.bank_bytes

    def _read_again(self) -> dict[str, Resident]:
        """What several nodes read, and nobody makes, as far as the last bank has room for it; but nothing that follows
        a node tile by tile, and matrices only where tensors share banks, without the rows of their products."""
        uses: dict[str, list[int]] = {}
        others, pairs = set[str](), list[tuple[str, ...]]()
        for number, work in enumerate(self.works):
            for name in dict.fromkeys(work.reads):
                uses.setdefault(name, []).append(number)
            others |= {work.writes, *work.bound}
            if work.array and work.array.mode == "matmul" and self._shares:
                pairs.append(work.reads[:2])
            elif work.array:
                others |= {*work.reads[1:]}
        found, at = dict[str, Resident](), 0
        for name, numbers in uses.items():
            size = round_up(self.sizes[name], self.config.word_bytes)
            together = any(name in pair and not found.keys().isdisjoint(pair) for pair in pairs)
            fits = not together and at + size <= self.config.bank_bytes
            if len(numbers) > 1 and name not in others and fits:
                found[name] = Resident(self.config.banks - 1, 1, numbers[0], numbers[-1], at)
                at += size
        return found

    def _candidates(self) -> list[tuple[str, int, int]]:
        """(tensor, first, last node) of what may stay, the most worth first."""
        uses: dict[str, list[int]] = {}
        made: set[str] = set()
        barred: set[str] = set()
        for number, work in enumerate(self.works):
            barred |= work.bound
            for name in {*work.reads, work.writes}:
                uses.setdefault(name, []).append(number)
                if name == work.writes:
                    made.add(name)
                elif name not in made:
                    barred.add(name)  # comes from outside
        found = []
        for name, numbers in uses.items():
            banks = ceil_div(self.sizes[name], self.config.bank_bytes)
            span = numbers[-1] - numbers[0] + 1
            if name in barred or span < 2 or banks > self.config.banks - 2:
                continue
            gain = sum(self._cost(n, "") - self._cost(n, name) for n in numbers)
            if gain > 0:
                found.append((-gain / (banks * span), numbers[0] - self.works[numbers[0]].ahead, name, numbers[-1]))
        return [(name, begin, end) for _, begin, name, end in sorted(found)]

    def _cost(self, number: int, resident: str) -> float:
        """About the cycles of a node where one of its tensors is in SRAM."""
        work, bus = self.works[number], self.config.bus_bytes
        loads = sum(self.sizes[name] for name in work.reads if name != resident)
        stores = self.sizes[work.writes] if work.writes != resident or resident in self.stored else 0
        beside = (loads + stores) / bus / EXPOSED
        # int32 results take longer to store than to compute, so that nothing else would seem to be worth its banks.
        stored = stores / bus * (work.item == 1)
        return max(work.cycles + beside, (loads + work.constants) / bus, stored)

    def _try(self, name: str, begin: int, end: int) -> None:
        """Keep a tensor in SRAM if there are banks for it and every node then still has enough."""
        shared = self._shares and name in self._seconds and 2 * self.sizes[name] <= self.config.bank_bytes
        banks = dict.fromkeys(self.residents[other].bank for other in self._together) if shared else ()
        if any(self._beside_others(name, bank, begin, end) for bank in banks):
            self._together.append(name)
            return
        if self._passes and self._beside_pooled(name, begin, end):
            return
        count = ceil_div(self.sizes[name], self.config.bank_bytes)
        mask, starts = (1 << count) - 1, self._starts(count, begin, end)
        if self._apart:
            starts.sort(key=lambda start: (start + count > KEPT, -self._gap(mask << start, begin, end)))
        calm = self._calm(name, begin, end)
        quiet = [start for start in starts if calm >> start & mask == mask]
        first = (*quiet[:1], *quiet[-1:]) if self._moves else ()
        for start in dict.fromkeys((*first, *starts[:1], *starts[-1:])):
            placed = Resident(start, count, begin, end)
            if self._keep(name, placed, placed.steps):
                self._together += [name] * shared
                self.crowded |= bool(quiet) and start not in quiet
                return
        if not self._apart and all(self._free[number].bit_count() > count for number in range(begin, end + 1)):
            self.crowded = True
            if self._moves:
                self._rearrange(name, Resident(0, count, begin, end))

    def _calm(self, name: str, begin: int, end: int) -> int:
        """Banks in which neither a tensor nor what is there before or after it waits for the vector unit: this still
        reads the second operand of a sum when the array has ended with the tiles of the first one."""
        calm = -1
        if begin and (before := self.residents.get(self.works[begin - 1].operand or "")):
            calm &= ~before.mask
        if end + 1 < len(self.works) and self.works[end].operand == name:
            calm &= self._free[end + 1]
        return calm

    def _rearrange(self, name: str, new: Resident) -> None:
        """Keep a tensor for which there are banks, but not side by side, by moving those beside it. Not those that
        share a bank."""
        beside = {key: one for key, one in self.residents.items() if one.is_beside(new)}
        if len(beside) >= MOVED or any(self._shares_bank(key) for key in beside):
            return
        free, residents = list(self._free), dict(self.residents)
        for one in beside.values():
            self._release(one, one.steps)
        moved = sorted([*beside.items(), (name, new)], key=lambda item: item[1].begin)
        steps = {number for _, one in moved for number in one.steps}
        if not self._fit(moved) or not all(map(self.suffices, steps)):
            self._free, self.residents = free, residents

    def _shares_bank(self, name: str) -> bool:
        """Whether a tensor is in a bank with others while it is there, or may be."""
        one = self.residents[name]
        here = [two for two in self.residents.values() if two.is_beside(one) and two.mask & one.mask]
        return name in self._together or name in self.loaded or len(here) > 1

    def _fit(self, tensors: Sequence[tuple[str, Resident]]) -> bool:
        """Whether all of some tensors find a place: each at the lowest or the highest banks that are free."""
        if not tensors:
            return True
        (name, one), *others = tensors
        starts = self._starts(one.banks, one.begin, one.end)
        for start in dict.fromkeys((*starts[:1], *starts[-1:])):
            self.residents[name] = placed = replace(one, bank=start)
            self._take(placed, placed.steps)
            if self._fit(others):
                return True
            self._release(placed, placed.steps)
        return False

    def _starts(self, count: int, begin: int, end: int) -> list[int]:
        """Where so many banks are free side by side during some steps."""
        free = (1 << self.banks) - 1
        for number in range(begin, end + 1):
            free &= self._free[number]
        mask = (1 << count) - 1
        return [start for start in range(self.config.banks - count + 1) if free >> start & mask == mask]

    @cached_property
    def _seconds(self) -> set[str]:
        """What steps of the array read as their second operand only: a product reads its rows from another bank."""
        array = [work for work in self.works if work.array]
        return {name for work in array for name in work.reads[1:]} - {name for work in array for name in work.reads[:1]}

    def _beside_pooled(self, name: str, begin: int, end: int) -> bool:
        """Keep a layer's input and what pools the tiles of its result in one bank, if no other step needs both: the
        array reads one after the other, and the vector unit alone writes. So there is a bank more for weights."""
        for number in (begin, end):
            work = self.works[number]
            pair = {work.reads[0]: work.writes, work.writes: work.reads[0]} if work.whole else {}
            other = self.residents.get(pair.get(name, ""))
            if other is None or other.banks > 1 or max(begin, other.begin) < min(end, other.end):
                continue
            at = other.skip + round_up(self.sizes[pair[name]], self.config.word_bytes)
            added = [step for step in range(begin, end + 1) if step != number]
            fits = at + self.sizes[name] <= self.config.bank_bytes
            if fits and all(self._free[step] >> other.bank & 1 for step in added):
                return self._keep(name, Resident(other.bank, 1, begin, end, at), added)
        return False

    def _beside_others(self, name: str, bank: int, begin: int, end: int) -> bool:
        """Keep a tensor in a bank that other ones have, if there is room."""
        others = {key: one for key, one in self.residents.items() if key in self._together and one.bank == bank}
        taken = {number for one in others.values() for number in one.steps}
        added = [number for number in range(begin, end + 1) if number not in taken]
        size, at = round_up(self.sizes[name], self.config.word_bytes), 0
        for key, one in sorted(others.items(), key=lambda item: item[1].skip):
            if one.begin <= end and begin <= one.end:
                if at + size <= one.skip:
                    break
                at = one.skip + round_up(self.sizes[key], self.config.word_bytes)
        if at + size > self.config.bank_bytes or not all(self._free[number] >> bank & 1 for number in added):
            return False
        return self._keep(name, Resident(bank, 1, begin, end, at), added)

    def _keep(self, name: str, resident: Resident, added: Sequence[int]) -> bool:
        """Keep a tensor in banks that it takes from some steps, if all of these still have room enough."""
        self.residents[name] = resident
        self._take(resident, added)
        if all(map(self.suffices, resident.steps)):
            return True
        del self.residents[name]
        self._release(resident, added)
        return False

    def _take(self, resident: Resident, steps: Iterable[int]) -> None:
        for number in steps:
            self._free[number] &= ~resident.mask

    def _release(self, resident: Resident, steps: Iterable[int]) -> None:
        for number in steps:
            self._free[number] |= resident.mask

    def _gap(self, banks: int, begin: int, end: int) -> int:
        """How many nodes before and after these do not have a tensor in some banks, whichever are fewer."""
        used = [number for number, free in enumerate(self._free) if free & banks != banks]
        return min((max(begin - number, number - end) for number in used), default=len(self._free))

    def suffices(self, number: int) -> bool:
        """Whether a node has room for what it needs besides residents, with some to spare."""
        work, space, config = self.works[number], self.space(number), self.config
        if self._apart and work.array is None and self._streams_little(number):
            return True
        if work.array is None:
            loads, stores = any(name not in self.residents for name in work.reads), work.writes not in self.residents
            if work.row:
                row = 2 * round_up(work.row, config.word_bytes)
                room = Room(config, Arena(config), space.free, operands=True, results=stores)
                return room.fits(row * loads + round_up(work.constants, config.word_bytes), row * stores)
            streams = loads + stores
            return sum(banks for _, banks in space.free) >= max(2 * streams, work.constants > 0)
        layer = self.layer(number)
        assert layer
        channels = min(layer.out_channels, 2 * layer.lanes(config))
        if work.tail:
            streamed = work.operand is not None and work.operand not in self.residents
            row = 2 * layer.out_width * channels
            least = row * streamed + TABLE * work.table, row * work.item * (work.writes not in self.residents)
            if any(size < need for (_, size), need in zip(self.areas(number), least, strict=True)):
                return False
        rows = layer.out_height if work.whole else min(layer.out_height, ceil_div(config.stripe, layer.out_width))
        sizes = schedule.buffer_bytes(config, layer, rows, channels, layer.channels, space)
        copies = int(space.input_at is None) * 2, 2, int(space.output_at is None) * 2
        return schedule.place(config, sizes, copies, space) is not None
