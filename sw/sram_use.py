"""How much of the SRAM a program uses, from its timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dovetail.isa.checks import View, regions
from dovetail.isa.config import Config, ceil_div
from dovetail.isa.instructions import Op, Unit
from dovetail.isa.timing.engine import Timeline


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
    words = config.sram_bytes // config.word_bytes
    written, read = (np.full(words, -1, np.int64) for _ in range(2))
    changes = np.zeros(len(timeline) + 1, np.int64)
    top = 0

    def settle(place: slice) -> None:
        """Count the words of a region from when they were written to when they were read."""
        used = (read[place] > written[place]) & (written[place] >= 0)
        np.add.at(changes, written[place][used], 1)
        np.add.at(changes, read[place][used], -1)

    order = np.flatnonzero(~timeline.is_fetch & timeline.works)
    for number, element in enumerate(order[np.argsort(timeline.start[order], kind="stable")].tolist()):
        view = View(Unit(int(timeline.unit[element])), timeline.registers[element])
        claimed = regions(Op(int(timeline.op[element])), view)
        for address, size in claimed.reads:
            read[_words(config, address, size)] = number
        for address, size in claimed.writes:
            place = _words(config, address, size)
            settle(place)
            written[place], read[place] = number, -1
        top = max(top, *(address + size for address, size in (*claimed.reads, *claimed.writes)))
    settle(slice(0, words))
    return SramUse(top, int(np.cumsum(changes).max(initial=0)) * config.word_bytes)


def _words(config: Config, address: int, size: int) -> slice:
    return slice(address // config.word_bytes, ceil_div(address + size, config.word_bytes))
