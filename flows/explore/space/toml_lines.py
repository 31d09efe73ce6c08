"""The line of each key and each array element in a TOML text, which `tomllib` does not tell.

Only texts that `tomllib` has accepted are scanned, so that nothing is checked here: it is enough to tell where keys,
strings, brackets and commas are.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

Path = tuple[str | int, ...]
"""Keys and indices from the top: ``("network", 0, "weight")``."""

SPACE = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
KEY = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|[A-Za-z0-9_-]+')
VALUE = re.compile(
    r'"""(?:\\.|[^\\])*?"""+'  # up to five quotes: two may belong to the text
    r"|'''.*?'''+"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|[^\[\]{},#\n]+",
    re.DOTALL,
)


def lines_of(text: str) -> dict[Path, int]:
    """The line, from 1, where each value of a valid TOML text begins: that of its key, or of an array's element."""
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.ends = [match.start() for match in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {(): 1}
        self.tables: dict[Path, int] = {}  # arrays of tables, and how many tables they have

    def scan(self) -> dict[Path, int]:
        here: Path = ()
        self.skip()
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                here = self.header()
            else:
                self.pair(here)
            self.skip()
        return self.lines

    def skip(self) -> None:
        """Go over blanks, line ends and comments."""
        match = SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[0]

    def comes(self, character: str) -> bool:
        """Whether ``character`` is next, after blanks; then it is taken."""
        self.skip()
        found = self.text.startswith(character, self.at)
        self.at += len(character) if found else 0
        return found

    def note(self, path: Path, at: int) -> None:
        """Keep where each part of ``path`` was seen first."""
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], bisect_right(self.ends, at - 1) + 1)

    def keys(self) -> list[str]:
        """A key, or several with dots between them."""
        found = []
        while True:
            self.skip()
            key = self.take(KEY)
            found.append(tomllib.loads(f"key = {key}")["key"] if key[0] in "\"'" else key)
            if not self.comes("."):
                return found

    def header(self) -> Path:
        """``[a.b]`` or ``[[a.b]]``; the path of the table that begins."""
        start, several = self.at, self.text.startswith("[[", self.at)
        self.at += 2 if several else 1
        path: Path = ()
        keys = self.keys()
        for place, key in enumerate(keys):
            path += (key,)
            if several and place == len(keys) - 1:
                self.tables[path] = self.tables.get(path, 0) + 1
            if path in self.tables:
                path += (self.tables[path] - 1,)
        self.comes("]]" if several else "]")
        self.note(path, start)
        return path

    def pair(self, here: Path) -> None:
        """``key = value``."""
        start = self.at
        path = (*here, *self.keys())
        self.note(path, start)
        self.comes("=")
        self.value(path)

    def value(self, path: Path) -> None:
        self.skip()
        if self.comes("["):
            index = 0
            while not self.comes("]"):
                self.note((*path, index), self.at)
                self.value((*path, index))
                self.comes(",")
                index += 1
        elif self.comes("{"):
            while not self.comes("}"):
                self.pair(path)
                self.comes(",")
        else:
            self.take(VALUE)
