"""What lives in SRAM while a program runs: words from the operation that writes them to the last that reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dovetail.isa.common.sizes import ceil_div
from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.checks import Regions, View, regions
from dovetail.isa.instructions.table import Op, Unit
from dovetail.isa.timing.timeline import Timeline


class Access(NamedTuple):
    """An operation's: its element in the timeline, and what it reads and writes."""

    element: int
    op: Op
    view: View
    regions: Regions


class Held(NamedTuple):
    """Words of SRAM, ``first`` .. ``last`` - 1, from the access that writes them to the last that reads them.

    ``writer``, ``reader``: which accesses, in their order; ``use``: which of the reader's reads it is.
    """

    first: int
    last: int
    writer: int
    reader: int
    use: int


def registers_of(timeline: Timeline) -> dict[int, tuple[int, ...]]:
    """The registers that each operation sees, by the index of its word."""
    kept = ~timeline.is_fetch
    return dict(zip(timeline.pc[kept].tolist(), (r for r in timeline.registers if r), strict=True))


def accesses_of(timeline: Timeline, registers: Mapping[int, tuple[int, ...]]) -> list[Access]:
    """What the operations read and write, in the order in which they start."""
    order = np.flatnonzero(~timeline.is_fetch & timeline.works)
    found = []
    for element in order[np.argsort(timeline.start[order], kind="stable")].tolist():
        op, unit = Op(int(timeline.op[element])), Unit(int(timeline.unit[element]))
        view = View(unit, registers[int(timeline.pc[element])])
        found.append(Access(element, op, view, regions(op, view)))
    return found


def held(config: Config, accesses: Iterable[Access]) -> Iterator[Held]:
    """What is still to be read; words are as one as long as they are written by one access, and read for the last time
    by another."""
    words = config.sram // config.word_bytes
    written, read = (np.full(words, -1, np.int64) for _ in range(2))
    uses = np.zeros(words, np.int8)

    def settle(place: slice) -> Iterator[Held]:
        before, after = written[place], read[place]
        used = (before >= 0) & (after >= 0)
        edges = np.flatnonzero(np.diff(before) | np.diff(after) | np.diff(used)) + 1
        for first, last in zip([0, *edges.tolist()], [*edges.tolist(), len(used)], strict=True):
            if used[first]:
                start = place.start + first
                yield Held(start, place.start + last, int(before[first]), int(after[first]), int(uses[start]))

    for number, access in enumerate(accesses):
        for use, region in enumerate(access.regions.reads):
            place = _words(config, *region)
            read[place], uses[place] = number, use
        for region in access.regions.writes:
            place = _words(config, *region)
            yield from settle(place)
            written[place], read[place] = number, -1
    yield from settle(slice(0, words))


def _words(config: Config, address: int, size: int) -> slice:
    return slice(address // config.word_bytes, ceil_div(address + size, config.word_bytes))


@dataclass(frozen=True)
class SramUse:
    """Bytes of SRAM.

    Parameters
    ----------
    top: one behind the highest that an operation reads or writes.
    live: the most that hold something still to be read, from the operation that writes them to the last that reads
        them; counted in whole SRAM words.
    """

    top: int
    live: int


def sram_use(config: Config, timelines: Iterable[Timeline]) -> SramUse:
    """What programs use that run one after the other, each with nothing left in SRAM by those before."""
    uses = [_use(config, timeline) for timeline in timelines]
    return SramUse(max((use.top for use in uses), default=0), max((use.live for use in uses), default=0))


def _use(config: Config, timeline: Timeline) -> SramUse:
    accesses = accesses_of(timeline, registers_of(timeline))
    touched = (region for access in accesses for region in (*access.regions.reads, *access.regions.writes))
    changes = np.zeros(len(accesses) + 1, np.int64)
    for part in held(config, accesses):
        changes[part.writer] += part.last - part.first
        changes[part.reader] -= part.last - part.first
    return SramUse(
        max((address + size for address, size in touched), default=0),
        int(np.cumsum(changes).max(initial=0)) * config.word_bytes,
    )
