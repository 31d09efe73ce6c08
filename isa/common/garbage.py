"""Python's search for cycles of garbage, where there are hardly any."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles of garbage until the end. What makes very many objects and hardly any cycles spends much of
    its time on looking through them again and again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
