"""Where a tensor lies while a segment runs."""

from dataclasses import dataclass, replace


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
