"""What every memory offers to those who put bursts before it. The same for the compiled core: `memory.h`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Beat(NamedTuple):
    """A beat that was served: its direction, its burst's number there, and the cycle in which it is on the bus, or in
    which the response to it is, if it is the last one of a write."""

    write: bool
    burst: int
    last: bool
    cycle: int


class Memory(Protocol):
    """What takes bursts. Whoever uses it keeps the order of time: before a `serve`, every burst that is accepted before
    `next` must be known."""

    places: int
    """Bursts of a direction that it holds, from the acceptance of their addresses up to the cycle of their last
    answers; further addresses wait. 0: any number."""

    @property
    def written(self) -> int | None:
        """When the last beat is taken of the write that was taken last; None as long as that is not known."""

    @property
    def next(self) -> int | None:
        """The cycle of the next decision; None if there is nothing to decide until the next burst."""

    def take(
        self, accepted: int, address: int, beats: int, *, write: bool, data: int = 0, beat_bytes: int | None = None
    ) -> None:
        """A burst that is accepted in this cycle; ``data``: the first cycle in which memory sees the first beat of a
        write, the others come as fast as they are taken. ``beat_bytes``: of a beat, the width of the bus if None."""

    def serve(self) -> Sequence[Beat]:
        """The next decision: beats and responses that follow from it."""
