"""Times a program while it grows: when its words go out, when units are free.

As nobody knows yet where the program ends, a page is fetched ahead even of the last one, until :meth:`Clock.end`.
"""

from collections.abc import Sequence

from dovetail.isa.config.resolved import Config
from dovetail.isa.instructions.table import PAGE_WORDS
from dovetail.isa.timing.rules import rules_of
from dovetail.isa.timing.sequencer import END_TO_DONE, NEVER, WRITES, Chunk, Sequencer


class Clock(Sequencer):
    """Follows a program, in whatever portions it comes.

    Parameters
    ----------
    config
        The accelerator and the timing of its memory.
    """

    def __init__(self, config: Config) -> None:
        self._cycles = rules_of(config).fetch
        super().__init__(self._cycles)
        self._left = 0  # words of the page
        self._before = self.now, self.free, [0]
        """Before a page was fetched ahead: `now`, `free` and how long all lists were."""
        self._since: list[Chunk] = []
        """What there was on the page."""

    @property
    def begun(self) -> int:
        """The first cycle of the first operation; :data:`NEVER` if there is none."""
        return min((starts[0] for starts in self.starts if starts), default=NEVER)

    @property
    def ended(self) -> int:
        """The first cycle behind the last operation; 0 if there is none."""
        return max((done[-1] for done in self.done if done), default=0)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """The words that come next, on this page and others."""
        left = self._left
        for kind, _, amount, _ in chunks:
            left -= amount if kind == WRITES else 1
        if left < 0:
            single = [one for chunk in chunks for one in _single(chunk)]
            while len(single) > self._left:
                here, single = single[: self._left], single[self._left :]
                self._since += here
                self.follow(here)
                self._turn()
            chunks, left = single, self._left - len(single)
        self._left = left
        self._since += chunks
        self.follow(chunks)

    def end(self) -> int:
        """The word that comes now ends the program, and no page is fetched behind its own. Nothing may follow.

        Returns the cycles of the program.
        """
        if self._left:
            self.now, self.free, counts = self._before
            for times, count in zip(self._lists(), counts, strict=True):
                del times[count:]
            self.follow(self._since)
        else:
            self.turn()
        return max(self.now + 1, max(self.free) - 1) + END_TO_DONE

    def _turn(self) -> None:
        """On to the next page."""
        self.turn()
        self._before = self.now, self.free.copy(), list(map(len, self._lists()))
        self._since.clear()
        self._left = PAGE_WORDS
        self.fetch(self._cycles)

    def _lists(self) -> list[list[int]]:
        """Those that grow, but for what nobody asks a clock for."""
        return [*self.pops, *self.starts, *self.done]


def _single(chunk: Chunk) -> list[Chunk]:
    """A chunk for each of its words."""
    kind, unit, amount, on = chunk
    return [(WRITES, unit, 1, on)] * amount if kind == WRITES else [chunk]
