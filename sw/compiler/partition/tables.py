"""Tables of which a run picks rows: all that one run input picks from is one table of records, so that one parameter
serves them all."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.isa.common.sizes import round_up
from dovetail.sw.network import ir

ALIGN = 64
"""Bytes that a row begins at a multiple of, as wide as the widest bus."""


@dataclass(frozen=True)
class Records:
    """The rows that a run input picks. Record n holds the rows of number n, one behind the other.

    Parameters
    ----------
    input: the tensor that holds the number.
    picks: what is picked.
    """

    input: str
    picks: tuple[ir.Pick, ...]

    @property
    def count(self) -> int:
        """Records: the number may be 0 up to this, less one."""
        return min(len(pick.table) for pick in self.picks)

    @property
    def step(self) -> int:
        """Bytes from a record to the next."""
        return step_of(pick.table.shape[1] for pick in self.picks)

    @property
    def bytes(self) -> int:
        """Of all records."""
        return self.count * self.step

    @property
    def reach(self) -> int:
        """Bytes from a row of the first record to that of the last one."""
        return (self.count - 1) * self.step

    @property
    def offsets(self) -> dict[str, int]:
        """Where each picked tensor lies in the first record."""
        sizes = [pick.table.shape[1] for pick in self.picks]
        return {pick.outputs[0]: step_of(sizes[:number]) for number, pick in enumerate(self.picks)}

    def packed(self) -> NDArray[np.uint8]:
        """The records."""
        found = np.zeros((self.count, self.step), np.int8)
        for pick, at in zip(self.picks, self.offsets.values(), strict=True):
            found[:, at : at + pick.table.shape[1]] = pick.table[: self.count]
        return found.view(np.uint8).ravel()


def step_of(sizes: Iterable[int]) -> int:
    """Bytes of a record that holds rows of so many."""
    return sum(round_up(size, ALIGN) for size in sizes)


def records_of(nodes: Iterable[ir.Node]) -> list[Records]:
    """The tables that nodes pick from, in the nodes' order."""
    picks: dict[str, list[ir.Pick]] = {}
    for node in nodes:
        if isinstance(node, ir.Pick):
            picks.setdefault(node.inputs[0], []).append(node)
    return [Records(name, tuple(found)) for name, found in picks.items()]
