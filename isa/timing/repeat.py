"""Counts what repeats once."""

from collections.abc import Callable, Hashable
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


def repeat(advance: Callable[[S], tuple[int, S]], state: S, count: int) -> tuple[int, S]:
    """``count`` times ``advance``, which gives cycles and the next state: the sum of the cycles and the last state.

    As soon as a state comes back, whole periods are added at once.
    """
    seen: dict[S, tuple[int, int]] | None = {}
    time = n = 0
    while n < count:
        if seen is not None:
            if state in seen:
                then, before = seen[state]
                periods = (count - n) // (n - then)
                time += periods * (time - before)
                n += periods * (n - then)
                seen = None
                continue
            seen[state] = n, time
        wait, state = advance(state)
        time += wait
        n += 1
    return time, state
