"""A hash of networks, configurations and options, the same in every process."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

PLAIN = (str, int, float, bool, type(None), np.generic)


def digest(*values: Any) -> str:
    """The SHA-256 of values in hexadecimal digits: of numbers, texts, arrays, and of dataclasses, sequences and
    mappings of such. Fields that do not count when values are compared do not count here. Raises TypeError for others.
    """
    state = hashlib.sha256()
    for piece in _pieces(values):
        state.update(len(piece).to_bytes(8, "little"))
        state.update(piece)
    return state.hexdigest()


def _pieces(value: Any) -> Iterator[bytes | memoryview]:
    """A value as bytes, those of equal values only equal."""
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str} {value.shape}".encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, Enum):
        yield f"{type(value).__name__}.{value.name}".encode()
    elif is_dataclass(value):
        yield type(value).__name__.encode()
        for each in fields(value):
            if each.compare:
                yield from _pieces(getattr(value, each.name))
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for name, each in value.items():
            yield from _pieces(name)
            yield from _pieces(each)
    elif isinstance(value, tuple | list):
        yield f"sequence {len(value)}".encode()
        for each in value:
            yield from _pieces(each)
    elif isinstance(value, PLAIN):
        yield repr(value).encode()
    else:
        raise TypeError(f"value must be plain data, not {type(value).__name__}")
