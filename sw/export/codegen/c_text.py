"""C text: names, numbers, arrays, and the constants of the generated code, each once."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    least = {-(1 << 31): "INT32_MIN", -(1 << 63): "INT64_MIN"}
    return least.get(int(value), str(int(value)))


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


_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": "uint8_t",
    "float32": "float",
}


class Constants:
    """Collects definitions; `text` is what goes into a file, in an order in which C takes them."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._known: dict[tuple[str, str], str] = {}
        self._text: list[str] = []

    def array(self, values: NDArray[Any], wanted: str) -> str:
        """The name of an array of the values, flat, of their element type."""
        kind = _TYPES[values.dtype.name]
        return self._define(f"static const {kind}", f"[{values.size}]", f"{{\n{lines_of(values.ravel())}\n}}", wanted)

    def struct(self, kind: str, fields: Fields, wanted: str) -> str:
        """The address of a struct of the kernels."""
        return "&" + self._define(f"static const struct {kind}", "", struct(fields), wanted)

    def _define(self, kind: str, extent: str, value: str, wanted: str) -> str:
        key = kind, value
        if key not in self._known:
            name = identifier(f"node_{wanted}", self._names)
            self._names.add(name)
            self._known[key] = name
            self._text.append(f"{kind} {name}{extent} = {value};\n")
        return self._known[key]

    @property
    def text(self) -> str:
        """All definitions."""
        return "\n".join(self._text)


def int8(values: Any) -> NDArray[np.int8]:
    """An array of shifts, or of other small integers."""
    return np.asarray(values).astype(np.int8)
