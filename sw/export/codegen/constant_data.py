"""Constant data of the generated code: arrays and structs, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.sw.export.codegen.c_text import Fields, identifier, lines_of, struct

_TYPES = {"int8": "int8_t", "int32": "int32_t", "uint32": "uint32_t", "float32": "float"}


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
