"""Sizes in bytes and their text, and division that rounds up."""

import re
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

INT32_BYTES = 4
UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def parse_bytes(text: str | int) -> int:
    """Bytes of ``"512 KiB"``, ``"1MiB"``, ``"4096"`` or an integer. Raises ValueError for another text."""
    if isinstance(text, int):
        return text
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", text)
    if not match or match[2].upper() not in UNITS:
        raise ValueError(f'size must be a number with B, KiB, MiB or GiB, not "{text}"')
    return int(match[1]) * UNITS[match[2].upper()]


def format_bytes(size: int) -> str:
    """The shortest exact text of a size: ``524288`` is ``"512 KiB"``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size % unit == 0 and size:
            return f"{size // unit} {name}"
    return f"{size} B"


Count = TypeVar("Count", int, "int | NDArray[np.int64]")
"""A number, or an array of them (one with numbers gives arrays)."""


def ceil_div(a: Count, b: Count | int) -> Count:
    """The least integer not below a / b."""
    return -(-a // b)


def round_up(size: Count, to: Count | int) -> Count:
    """The least multiple of ``to`` not below ``size``."""
    return ceil_div(size, to) * to
