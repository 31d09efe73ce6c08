"""What a sweep of systems may vary besides what its accelerators have, as users write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dovetail.isa.config.given import MAX_SRAM, MIN_SRAM, SIZE, Kind, Parameter, one_of
from dovetail.isa.config.system import MAX_ACCELERATORS
from dovetail.sw.compiler.options import MODES

MOST_INFERENCES = 256


def counts_of(text: str) -> Iterator[tuple[str, int]]:
    """The kinds of ``2*8x8+16x16`` and how many there are of each. Raises ValueError."""
    for part in text.split("+"):
        count, times, kind = part.rpartition("*")
        count, kind = count.strip() if times else "1", kind.strip()
        if not re.fullmatch(r"\d+", count) or not re.fullmatch(r"[\w.-]+", kind):
            raise ValueError(f"must be kinds such as 8x8, 2*8x8 or 2*8x8+16x16, not {text!r}")
        if not 1 <= int(count) <= MAX_ACCELERATORS:
            raise ValueError(f"must be 1..{MAX_ACCELERATORS} of a kind, not {int(count)} in {text!r}")
        yield kind, int(count)


def _accelerators(value: Any) -> str:
    """Kinds and their counts, each kind once, in the order in which they are named first."""
    if not isinstance(value, str):
        raise ValueError(f'must be a text such as "2*8x8+16x16", not {value!r}')
    counts: dict[str, int] = {}
    for kind, count in counts_of(value):
        counts[kind] = counts.get(kind, 0) + count
    if sum(counts.values()) > MAX_ACCELERATORS:
        raise ValueError(f"must be 1..{MAX_ACCELERATORS} in all, not {sum(counts.values())} in {value!r}")
    return "+".join(kind if count == 1 else f"{count}*{kind}" for kind, count in counts.items())


ACCELERATORS = Parameter(
    "kinds and numbers, such as 2*8x8+16x16; a kind is lanes, a name of the system's file, or a preset",
    kind=Kind(_accelerators, lexical=str),
    title="accelerators",
    name="accelerators",
)
MODE = Parameter("what the plan makes fast", kind=one_of(MODES), title="mode", name="mode")
INFERENCES = Parameter(
    "of the plan, with throughput; default: 2 per accelerator",
    1,
    MOST_INFERENCES,
    title="inferences",
    name="inferences",
)
TOTAL_SRAM = Parameter(
    "on-chip memory of all accelerators together, in equal parts",
    MIN_SRAM,
    MAX_ACCELERATORS * MAX_SRAM,
    kind=SIZE,
    title="total SRAM",
    name="total_sram",
)
NEW = {p.name: p for p in (ACCELERATORS, MODE, INFERENCES, TOTAL_SRAM)}
"""Settings that only a system has."""
