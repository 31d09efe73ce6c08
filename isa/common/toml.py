"""TOML from untrusted files: within bounds, and with one kind of error."""

import re
import tomllib
from typing import Any

MOST_BYTES = 1 << 20
"""Of a file."""
DEEPEST = 16
"""Tables and arrays within each other."""
_LONG_KEY = re.compile(r"(?:\.[^.,=#\[\]{}\n]{0,64}){32}")
"""A dotted key for which the parser, quadratic in its parts, may take hours."""


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises tomllib.TOMLDecodeError for what is no TOML, also where numbers have thousands of digits, tables are nested
    without end, or the text is longer than any that a person writes.
    """
    if len(text) > MOST_BYTES:
        raise tomllib.TOMLDecodeError(f"text must be at most {MOST_BYTES} characters, not {len(text)}")
    if _LONG_KEY.search(text):
        raise tomllib.TOMLDecodeError(f"tables and arrays must be nested at most {DEEPEST} deep")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except (RecursionError, ValueError) as error:  # ValueError: Python reads no longer numbers
        what = "tables and arrays must be nested less deeply"
        raise tomllib.TOMLDecodeError(what if isinstance(error, RecursionError) else f"{error}".split(";")[0]) from None
    _check_depth(data)
    return data


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(DEEPEST):
        level = [
            value
            for held in level
            for value in (held.values() if isinstance(held, dict) else held)
            if isinstance(value, dict | list)
        ]
        if not level:
            return
    raise tomllib.TOMLDecodeError(f"tables and arrays must be nested at most {DEEPEST} deep")
