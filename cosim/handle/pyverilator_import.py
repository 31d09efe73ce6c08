"""Makes ``import pyverilator`` work, and its ``PyVerilator`` the one of
:mod:`dovetail.cosim.handle.pyverilator_compat`.

PyVerilator 0.7.0 depends on tclwrapper for its remote control of GTKWave. No Python that Dovetail supports can import
tclwrapper: it calls a method of tkinter that was removed in Python 3.9. PyVerilator needs nothing of it but functions
that split Tcl lists, which are here.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PACKAGE, LISTS = "pyverilator", "tclwrapper.tclutil"
COMPAT = "dovetail.cosim.handle.pyverilator_compat"
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def split_list(text: str) -> list[str]:
    """The elements of a Tcl list: words, parted by white space, in braces (kept as they are) or quotes.

    Raises ValueError for a list that ends too early.
    """
    found: list[str] = []
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return found
        element, at = _braced(text, at) if text[at] == "{" else _word(text, at)
        found.append(element)


def _braced(text: str, at: int) -> tuple[str, int]:
    depth, start = 0, at
    while at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 2 if text[at] == "\\" else 1
        if not depth:
            return text[start + 1 : at - 1], at
    raise ValueError(f"a Tcl list must close its braces: {text!r}")


def _word(text: str, at: int) -> tuple[str, int]:
    quoted = text[at] == '"'
    at += quoted
    letters = []
    while at < len(text) and not (text[at] == '"' if quoted else text[at].isspace()):
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            letters.append(_ESCAPES.get(text[at], text[at]))
        else:
            letters.append(text[at])
        at += 1
    if quoted and at == len(text):
        raise ValueError(f"a Tcl list must close its quotes: {text!r}")
    return "".join(letters), at + quoted


def split_nested_list(text: str) -> Any:
    """A Tcl list of lists, as nested tuples; what is one word is a string."""
    elements = split_list(text)
    return text if elements in ([text], []) else tuple(map(split_nested_list, elements))


def split_flat_list(text: str) -> list[str]:
    """The words of a Tcl list without its braces."""
    return text.replace("{", " ").replace("}", " ").split()


def join_list(elements: Sequence[str]) -> str:
    """A Tcl list of words; those with spaces in braces."""
    return " ".join(f"{{{element}}}" if " " in element else element for element in elements)


def join_nested_list(elements: Sequence[Any]) -> str:
    """A Tcl list of words and lists."""
    parts = (e if isinstance(e, str) and " " not in e else f"{{{_joined(e)}}}" for e in elements)
    return " ".join(parts)


def _joined(element: Any) -> str:
    return element if isinstance(element, str) else join_nested_list(element)


class _Lists:
    """Stands for the module that wants tkinter."""

    def create_module(self, spec: ModuleSpec) -> None:
        """An ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(
            tclstring_to_list=split_list,
            tclstring_to_nested_list=split_nested_list,
            tclstring_to_flat_list=split_flat_list,
            list_to_tclstring=join_list,
            nested_list_to_tclstring=join_nested_list,
        )


class _Package:
    """PyVerilator's own loader, and behind it what makes the package work."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if COMPAT not in sys.modules:  # else it is what imports this
            import_module(COMPAT)


class _Finder:
    """Knows the two modules."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in (PACKAGE, LISTS):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        loader: Any = _Lists() if name == LISTS else _Package(spec.loader)
        if name == LISTS:
            return ModuleSpec(name, loader)
        spec.loader = loader
        return spec


def install() -> None:
    """From now on ``import pyverilator`` works, where the package is installed."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
