"""Docstrings of this project as mkdocstrings reads them: numpy's sections, in Markdown.

Roles of reStructuredText become code, and literal blocks lose a colon. In a section, ``name: text`` becomes a name with
its text below, two names in a line become two entries, and a paragraph after the entries becomes a note.
"""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([\w.]+)`")
SECTION = re.compile(r"^(Parameters|Raises|Returns)\n-{3,}\n", re.MULTILINE)
HEADING = re.compile(r"^\w+\n-{3,}$", re.MULTILINE)
ENTRY = re.compile(r"([*\w]+(?:, [*\w]+)*)(?:: (.*))?")


class Docstrings(griffe.Extension):
    """An extension of griffe, which reads the docstrings for mkdocstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(text: str) -> str:
    """A docstring as numpy's style and Markdown have it."""
    text = ROLE.sub(lambda role: f"`{role[1].rpartition('.')[2]}`", text)
    text = re.sub(r"::\n\n(?=    )", ":\n\n", text)
    parts = SECTION.split(text)
    new = [parts[0]]
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        new.append(f"{name}\n{'-' * len(name)}\n{_section(body)}")
    return "".join(new)


def _section(body: str) -> str:
    """The entries of a section, and what follows them as notes."""
    lines, entry, after_blank = [], list[str](), False
    names: list[str] = []
    rest = body.split("\n")
    for number, line in enumerate(rest):
        at_margin = bool(line) and not line.startswith(" ")
        match = ENTRY.fullmatch(line) if at_margin else None
        if at_margin and (HEADING.match("\n".join(rest[number:])) or (after_blank and not match)):
            follows = "\n".join(rest[number:])
            notes = "" if HEADING.match(follows) else "Notes\n-----\n"
            return "\n".join([*lines, *_entries(names, entry), "", notes + follows])
        if match:
            lines += _entries(names, entry)
            names, entry = match[1].split(", "), [f"    {match[2]}"] if match[2] else []
        elif line.strip():
            entry.append(line)
        after_blank = not line.strip()
    return "\n".join([*lines, *_entries(names, entry)]) + "\n"


def _entries(names: list[str], text: list[str]) -> list[str]:
    return [line for name in names for line in (name, *text)]
