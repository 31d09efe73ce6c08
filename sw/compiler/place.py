"""Where a tensor lies while a segment runs, and where tensors lie that programs share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: addresses in system memory and in SRAM, None where it does not; ``pitch``: bytes between its
    pixels, in both."""

    memory: int | None
    sram: int | None
    pitch: int

    def moved(self, offset: int) -> "Place":
        """A part that starts ``offset`` bytes later."""
        memory = None if self.memory is None else self.memory + offset
        return replace(self, memory=memory, sram=None if self.sram is None else self.sram + offset)


@dataclass(frozen=True)
class Part:
    """A tensor inside another one, ``whole``: ``offset`` bytes from its start, pixels ``pitch`` bytes apart."""

    whole: str
    offset: int
    pitch: int


@dataclass(frozen=True)
class Given:
    """What is settled about system memory before a graph is planned.

    ``start``: where the program's own memory begins; ``where``: addresses of tensors that others make or read, below
    it; ``parts``: those of them that are some channels of a wider one, which has an address.
    """

    start: int = 0
    where: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)
