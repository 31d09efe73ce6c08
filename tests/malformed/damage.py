"""Ways to damage a file: bytes of any format, words of a text, values of JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

Random = np.random.Generator
Item = TypeVar("Item")
Damage = Callable[[bytes, Random], bytes]

WORDS = (
    "0", "-1", "1", "2", "255", "65536", "2147483647", "4294967296", "18446744073709551616", "1e400", "-0.0", "nan",
    "inf",
    "1" + "0" * 5000, "0x10", "true", "null", "''", '""', "[]", "{}", "[[]]", "[1, 2]", "{a = 1}", "x", "../../x",
    "/dev/zero", "a" * 5000, "[" * 3000, "{a=" * 2000,
    "\x00", "\x1b[2J", "\n", "\u202e", "#", "=", "[", "]", '"', ",", ":",
    "&a", "*a", "!!python/object:os.system", "${HOME}", "%s%n", "zoo:nothing", "1979-05-27",
)  # fmt: skip
"""What takes the place of a word."""
VALUES: tuple[Any, ...] = (
    None, True, False,
    -1, 0, 1, 2, 255, 65536, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, 2**200, 0.5, -0.0, 1e300, "", "x",
    "int8", "../..", "\x1b[2J\n", [], {}, [[]], [0], [-1], [2**40] * 4, {"x": 1},
)  # fmt: skip
"""What takes the place of a value."""


def pick(items: Sequence[Item], random: Random) -> Item:
    """One of them."""
    return items[int(random.integers(len(items)))]


def cut(data: bytes, random: Random) -> bytes:
    """The beginning."""
    return data[: int(random.integers(0, len(data)))]


def flip(data: bytes, random: Random) -> bytes:
    """One to eight bits."""
    flipped = bytearray(data)
    for position in random.integers(0, len(data), int(random.integers(1, 9))):
        flipped[position] ^= 1 << int(random.integers(8))
    return bytes(flipped)


def overwrite(data: bytes, random: Random) -> bytes:
    """Some bytes in a row: noise, zeros or ones."""
    start, size = int(random.integers(0, len(data))), int(random.integers(1, 65))
    noise = random.integers(0, 256, size, np.uint8).tobytes()
    return data[:start] + (noise, bytes(size), b"\xff" * size)[random.integers(3)] + data[start + size :]


def leave_out(data: bytes, random: Random) -> bytes:
    """Some bytes in a row are gone, or there twice."""
    start, size = int(random.integers(0, len(data))), int(random.integers(1, 65))
    return data[:start] + data[start : start + size] * int(2 * random.integers(2)) + data[start + size :]


def noise(data: bytes, random: Random) -> bytes:
    """Nothing of it but its beginning."""
    return data[:8] + random.integers(0, 256, int(random.integers(0, 600)), np.uint8).tobytes()


def words(data: bytes, random: Random) -> bytes:
    """Words and signs of a text become others."""
    parts = re.findall(r"\w+|\s+|[^\w\s]", data.decode(errors="replace"))
    for _ in range(int(random.integers(1, 4))):
        parts[int(random.integers(len(parts)))] = pick(WORDS, random)
    return "".join(parts).encode(errors="replace")


def lines(data: bytes, random: Random) -> bytes:
    """Lines in another order, twice, or left out."""
    found = data.splitlines(keepends=True)
    return b"".join(found[index] for index in random.integers(0, len(found), int(random.integers(1, 2 * len(found)))))


def values(data: bytes, random: Random) -> bytes:
    """Values of JSON become others, or are left out."""
    tree = json.loads(data)
    for _ in range(int(random.integers(1, 3))):
        change_value(tree, random)
    return json.dumps(tree).encode()


def change_value(tree: Any, random: Random) -> None:
    """Replace or remove one value somewhere in a tree of dictionaries and lists."""
    places: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        held = waiting.pop()
        keys = held if isinstance(held, dict) else range(len(held))
        places += [(held, key) for key in keys]
        waiting += [held[key] for key in keys if isinstance(held[key], dict | list)]
    if places:
        held, key = pick(places, random)
        if random.integers(5):
            held[key] = pick(VALUES, random)
        else:
            del held[key]


BYTES: tuple[Damage, ...] = (cut, flip, flip, overwrite, leave_out, noise)
TEXT: tuple[Damage, ...] = (words, words, words, lines, cut, flip, overwrite)
JSON: tuple[Damage, ...] = (values, values, values, *TEXT)
