"""Memory of a latency: when it answers.

The rule of :class:`Direction` has two other users: the memory of cocotb benches, and in C++ `cosim/rtl/axi_bus.h`.
"""

from collections import deque
from typing import NamedTuple

from dovetail.isa.config.given import MemoryTiming
from dovetail.isa.timing.memories.interface import Beat


class Direction(NamedTuple):
    """When system memory answers bursts of reads, or of writes. Addresses are always accepted, bursts keep their order,
    and neither direction disturbs the other. Times are cycles.

    ``latency``: from a burst's address to its first beat, at the earliest.
    ``beat_cycles``: from a beat to the next one, of any burst, at the earliest.
    ``answer``: from a burst's last beat to its end.
    """

    latency: int
    beat_cycles: int
    answer: int

    @staticmethod
    def reads(memory: MemoryTiming) -> "Direction":
        """A read ends with its last beat."""
        return Direction(memory.read_latency, memory.beat_cycles, 0)

    @staticmethod
    def writes(memory: MemoryTiming) -> "Direction":
        """The data of a write follow its address; it ends with the response."""
        return Direction(1, memory.beat_cycles, memory.write_latency)

    def first_beat(self, address: int, previous: int) -> int:
        """Of a burst whose address comes in cycle ``address``; ``previous``: the last beat of the burst before."""
        return max(address + self.latency, previous + self.beat_cycles)

    def last_beat(self, first: int, beats: int) -> int:
        """Of a burst whose first beat comes in cycle ``first``."""
        return first + (beats - 1) * self.beat_cycles

    def end(self, last: int) -> int:
        """Of a burst whose last beat comes in cycle ``last``."""
        return last + self.answer


class Fixed:
    """Memory of a latency, burst by burst."""

    places = 0

    def __init__(self, memory: MemoryTiming) -> None:
        self._directions = Direction.reads(memory), Direction.writes(memory)
        self._last = [-memory.beat_cycles, -memory.beat_cycles]
        self._counts = [0, 0]
        self._answers: deque[Beat] = deque()
        self.written: int | None = None

    @property
    def next(self) -> int | None:
        """All is decided when a burst comes."""
        return 0 if self._answers else None

    def take(
        self, accepted: int, address: int, beats: int, *, write: bool, data: int = 0, beat_bytes: int | None = None
    ) -> None:
        """A burst."""
        rule = self._directions[write]
        first = rule.first_beat(data - rule.latency if write else accepted, self._last[write])
        self._last[write] = last = rule.last_beat(first, beats)
        if write:
            self.written = last
        self._answers.append(Beat(write, self._counts[write], True, rule.end(last)))
        self._counts[write] += 1

    def serve(self) -> list[Beat]:
        """An answer."""
        return [self._answers.popleft()]
