"""C text: names, numbers, arrays."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from textwrap import wrap
from typing import Any

import numpy as np

from dovetail.sw.network.names import unused

WIDTH = 116
_LONGEST = 40
"""Characters of a name."""

_KEYWORDS = {
    *("auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum"),
    *("extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return"),
    *("short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void"),
    *("volatile", "while", "and", "asm", "bool", "catch", "class", "delete", "explicit", "export", "false"),
    *("friend", "mutable", "namespace", "new", "not", "operator", "or", "private", "protected", "public"),
    *("template", "this", "throw", "true", "try", "typename", "using", "virtual", "xor"),
}
"""Of C, and of C++, which may include the header."""

Fields = Mapping[str, "str | int | Fields"]
"""Members of a struct: C text, a number, or a struct of its own."""


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """An unused lower-case C name that resembles `name`."""
    plain = re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_") or "tensor"
    if len(plain) > _LONGEST:
        plain = f"{plain[: _LONGEST // 2]}_{plain[-_LONGEST // 2 :]}"
    if plain[0].isdigit() or plain in _KEYWORDS:
        plain = f"t_{plain}"
    return unused(plain, taken)


def number(value: Any) -> str:
    """A constant expression; of a float32 as many digits as tell it from all others; what is not finite
    has a name in math.h."""
    if isinstance(value, float | np.floating):
        if not np.isfinite(np.float32(value)):
            return "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        text = f"{np.float32(value):.9g}"
        return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
    return "INT32_MIN" if int(value) == -(1 << 31) else str(int(value))


def printable(text: str) -> str:
    """A text as it can stand inside a comment: one line, no ends of comments."""
    plain = "".join(c if c.isprintable() and c.isascii() else "?" for c in text)
    short = plain if len(plain) < WIDTH - 20 else f"{plain[: WIDTH - 20]}..."
    return short.replace("*/", "* /").replace("/*", "/ *")


def comment(text: str) -> str:
    """One line of comment."""
    return f"/* {printable(text)} */"


def lines_of(values: Iterable[Any], indent: str = "    ") -> str:
    """Numbers, comma after comma, in lines."""
    return "\n".join(wrap(", ".join(map(number, values)), WIDTH, initial_indent=indent, subsequent_indent=indent))


def struct(fields: Fields, indent: str = "    ") -> str:
    """The initialiser of a struct, braces included."""
    rows = [f"{indent}.{name} = {_member(value, indent)}," for name, value in fields.items()]
    return "\n".join(("{", *rows, f"{indent[4:]}}}"))


def _member(value: str | int | Fields, indent: str) -> str:
    if isinstance(value, Mapping):
        return struct(value, indent + "    ")
    return value if isinstance(value, str) else number(value)
