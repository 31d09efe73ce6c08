"""How much of the SRAM a program uses, from its timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dovetail.isa.config.resolved import Config
from dovetail.isa.timing.timeline import Timeline
from dovetail.sw.analysis.sram_lives import accesses_of, held, registers_of


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
