"""Uses the plan of a smaller SRAM on a larger one: which smaller sizes are candidates, and how addresses map.

Every bank of the smaller memory maps to a different bank of the larger one, so data in different banks stay in
different banks. The only change: an object that spans several banks may span fewer.
"""

from bisect import bisect_right
from collections.abc import Iterable

from dovetail.isa.config.given import MIN_SRAM, ConfigError
from dovetail.isa.config.resolved import Config
from dovetail.sw.compiler.emit.hazards import Range

FEWER = 8
"""Banks of a plan for sizes that have fewer banks than the next smaller power of two."""


def smaller(config: Config) -> list[Config]:
    """The same accelerator with every smaller power of two of SRAM, the largest first, as far as each bank of it has a
    bank in ``config`` that is no smaller. Banks are as many where they are not the default's, else the default, or
    eight where these are too many."""
    usual = config.replace(banks=None) == config
    found = []
    size = 1 << (config.sram - 1).bit_length() - 1
    while size >= MIN_SRAM:
        for banks in (None, FEWER) if usual else (config.banks,):
            try:
                other = config.replace(sram=size, banks=banks)
            except ConfigError:
                continue
            if other.banks <= config.banks and other.bank_bytes <= config.bank_bytes:
                found.append(other)
                break
        size //= 2
    return found


Residents = tuple[tuple[int, int, int], ...]
"""First bank and banks of tensors, and how many banks further on each starts in the larger memory, where it needs
fewer. What replaces the first part of a tensor waits for the last one if both are in one bank."""


class Moved:
    """Where the addresses of some operations on a smaller SRAM are in a larger one.

    Parameters
    ----------
    inner, config
        The smaller memory and the larger one.
    residents
        The tensors that others use as well.
    regions
        What the operations touch in SRAM. Regions that overlap are of one object, which stays in one piece.
    """

    def __init__(self, inner: Config, config: Config, residents: Residents, regions: Iterable[Range]) -> None:
        small, more = inner.bank_bytes, config.bank_bytes - inner.bank_bytes
        ends = {first * small: (first + banks) * small for first, banks, _ in residents}
        offsets = {first * small: first * more + later * config.bank_bytes for first, _, later in residents}
        known = sorted(ends)
        end = -1
        for first, size in sorted(set(regions)):
            place = bisect_right(known, first) - 1
            if place >= 0 and first < ends[known[place]]:
                continue
            if first >= end:
                offsets[first] = first // small * more
            end = max(end, first + size)
        self._starts = sorted(offsets)
        self._offsets = [offsets[start] for start in self._starts]

    def at(self, address: int) -> int:
        """The address on the larger memory."""
        return address + self._offsets[bisect_right(self._starts, address) - 1]

    def region(self, region: Range) -> Range:
        """The region there."""
        return self.at(region[0]), region[1]
